use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse as _, Response};
use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::gateway::{
    MAX_REGISTER_BYTES, RegisterPending, RegisterRequest, RegisterResponse, register_message,
};
use hpc_schema::key::{Verifier as _, ZebraVerifier};
use hpc_schema::refusal::Refusal;
use hpc_schema::registration::key_rotation_message;
use hpc_schema::time::UnixSeconds;
use hpc_schema::token::JoinClaims;

use super::answer::Failure;
use super::certificate::{issue, may_have_one};
use super::connection::Connection;
use super::{Gateway, body};
use crate::clock;
use crate::enrol::{self, Claimed, Joined, NewRegistration, Registration, RegistrationState};
use crate::identity::{Claims, NodeCsr, NodeSubject, Token, TokenError};
use crate::spool;

/// After a refusal by the chain, a repeated request is tried anew after so long.
const RETRY_REFUSED_MS: u64 = 10_000;
/// How soon a pending registration should be asked for again.
const RETRY_AFTER_SECONDS: u64 = 2;

/// `POST /api/v1/hpc/nodes/register`: server-authenticated TLS; the token, the agent's key and the
/// certificate request stand for each other.
pub(super) async fn register(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Result<Response, Failure> {
    let limits = &gateway.config.gateway;
    let limit = MAX_REGISTER_BYTES.min(limits.max_body_bytes);
    let bytes = body::read(request, limit, limits.request_timeout.duration()).await?;
    let request: RegisterRequest = body::json(&bytes)?;
    let now_ms = clock::now_ms();
    let now = UnixSeconds(now_ms / 1000);
    let Checked { claims, csr, join } = check(&gateway, &request, now)?;
    let mut tx = gateway.store.begin().await?;
    let held = match &join {
        None => false,
        Some(join) => {
            not_another(&gateway, &claims)?;
            let joined = enrol::join(&mut tx, join, &claims, connection.ip(), now).await?;
            use_of(joined)?
        }
    };
    let new = NewRegistration {
        jti: &claims.jti,
        cluster_id: &claims.cluster_id,
        node_id: &claims.sub,
        public_key: &claims.pubkey,
        csr: csr.der(),
        hostname: request.hostname.as_deref(),
        hardware_fingerprint: request.hardware_fingerprint.as_deref(),
        rotation: request
            .registration_nonce
            .as_deref()
            .zip(request.rotation_signature.as_deref()),
        probe: (request.probe_port, connection.ip()),
        held,
    };
    let claimed = enrol::claim(&mut tx, &new, now_ms, RETRY_REFUSED_MS).await?;
    tx.commit().await.map_err(crate::store::StoreError::from)?;
    let registration = match claimed {
        Claimed::Ours(registration) => registration,
        Claimed::Unknown => {
            return Err(Failure::forbidden(
                Code::TokenInvalid,
                "the token is not on record",
            ));
        }
        Claimed::Revoked => {
            return Err(Failure::forbidden(
                Code::TokenInvalid,
                "the token has been revoked",
            ));
        }
        Claimed::Expired => return Err(Failure::forbidden(Code::TokenExpired, "the token has expired")),
        Claimed::Used => {
            return Err(Failure::forbidden(
                Code::TokenUsed,
                "another key or certificate request has used the token",
            ));
        }
    };
    gateway.registry.set_probe_port(
        &claims.cluster_id,
        &claims.sub,
        request.probe_port,
        connection.ip(),
    );
    match registration.state {
        RegistrationState::Queued | RegistrationState::Sent => {
            gateway.wake.call();
            Ok(pending())
        }
        RegistrationState::Refused => Err(refused(&registration)),
        RegistrationState::OnChain => done(&gateway, &claims, &csr, &registration, now_ms).await,
    }
}

/// Everything that can be said without the store.
fn check(gateway: &Gateway, request: &RegisterRequest, now: UnixSeconds) -> Result<Checked, Failure> {
    let registry = &gateway.registry;
    let token = gateway
        .tokens
        .read_any(&request.token, registry.chain_id(), registry.contract())
        .map_err(|e: TokenError| Failure::forbidden(Code::TokenInvalid, e))?;
    let (claims, join) = match token {
        Token::Node(claims) => (*claims, None),
        Token::Join(join) => (use_claims(request, &join)?, Some(join.jti)),
    };
    claims
        .check_time(now)
        .map_err(|e| Failure::forbidden(Code::TokenExpired, e))?;
    if request.public_key != claims.pubkey {
        let refusal = Refusal::field(
            Code::KeyMismatch,
            "public_key",
            "is not the key that the token was made for",
        );
        return Err(Failure::new(403, refusal));
    }
    let csr = NodeCsr::from_pem(&request.csr).map_err(|e| Failure::malformed("csr", e))?;
    let signature: [u8; 64] = base64_exact(&request.csr_signature)
        .ok_or_else(|| Failure::malformed("csr_signature", "must be base64 of 64 bytes"))?;
    let message = register_message(join.as_ref().unwrap_or(&claims.jti), csr.der());
    if !ZebraVerifier.verify(&message, &signature, claims.pubkey.as_bytes()) {
        let refusal = Refusal::field(
            Code::SignatureInvalid,
            "csr_signature",
            "does not verify over the token's id and the request with the agent's key",
        );
        return Err(Failure::new(403, refusal));
    }
    check_rotation(gateway, request, &claims)?;
    let plain = |field: &str, text: &Option<String>, max: usize| {
        let good = |s: &String| {
            (1..=max).contains(&s.len())
                && s.bytes()
                    .all(|b| (0x20..0x7f).contains(&b) && !matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&'))
        };
        if text.as_ref().is_none_or(good) {
            return Ok(());
        }
        let what = format!("must be 1 to {max} printable ASCII characters without \" \\ < > &");
        Err(Failure::new(400, Refusal::field(Code::InvalidField, field, what)))
    };
    plain("hostname", &request.hostname, 253)?;
    if request.hardware_fingerprint.as_ref().is_some_and(|f| {
        f.len() != 64
            || !f
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    }) {
        let what = "must be the lower-case hex of a SHA-256";
        return Err(Failure::new(
            400,
            Refusal::field(Code::InvalidField, "hardware_fingerprint", what),
        ));
    }
    Ok(Checked { claims, csr, join })
}

/// A request whose signatures are in order.
struct Checked {
    claims: Claims,
    csr: NodeCsr,
    /// Id of the join token, if it is one; then the claims are those of this node's use of it.
    join: Option<String>,
}

/// What a join token is for the node that uses it.
fn use_claims(request: &RegisterRequest, join: &JoinClaims) -> Result<Claims, Failure> {
    let node = request
        .node_id
        .clone()
        .ok_or_else(|| Failure::malformed("node_id", "is needed with a join token"))?;
    let pubkey = request.public_key;
    Ok(Claims {
        iss: join.iss.clone(),
        jti: enrol::use_id(&join.jti, node.as_str(), pubkey.as_bytes()),
        sub: node,
        cluster_id: join.cluster_id.clone(),
        provider_address: join.provider_address.clone(),
        pubkey,
        iat: join.iat.0,
        exp: join.exp.0,
        ca_sha256: join.ca_sha256.clone(),
        chain_id: join.chain_id.clone(),
        contract: join.contract.clone(),
        task_key: join.task_key,
        endpoint: join.endpoint.clone(),
    })
}

/// Whoever has a join token may add nodes, not take over one that is on record: that needs a token for its name.
fn not_another(gateway: &Gateway, claims: &Claims) -> Result<(), Failure> {
    let node = gateway.registry.node(&claims.cluster_id, &claims.sub);
    if node.is_none_or(|n| *n.key() == claims.pubkey) {
        return Ok(());
    }
    let what =
        "another key is registered under this id; a join token does not replace it, a node's token does";
    Err(Failure::new(
        403,
        Refusal::field(Code::NodeExists, "node_id", what),
    ))
}

fn use_of(joined: Joined) -> Result<bool, Failure> {
    match joined {
        Joined::Yes { held } => Ok(held),
        Joined::Unknown => Err(Failure::forbidden(
            Code::TokenInvalid,
            "the token is not on record",
        )),
        Joined::Revoked => Err(Failure::forbidden(
            Code::TokenInvalid,
            "the token has been revoked",
        )),
        Joined::Expired => Err(Failure::forbidden(Code::TokenExpired, "the token has expired")),
        Joined::NoUsesLeft => Err(Failure::forbidden(
            Code::TokenUsed,
            "as many nodes as the token allows have used it",
        )),
        Joined::OutOfRange => Err(Failure::forbidden(
            Code::NotAuthorized,
            "the token does not serve this address",
        )),
    }
}

/// The old key's consent, checked against the node on record; the contract has the last word.
fn check_rotation(gateway: &Gateway, request: &RegisterRequest, claims: &Claims) -> Result<(), Failure> {
    let (nonce, signature) = match (&request.registration_nonce, &request.rotation_signature) {
        (None, None) => return Ok(()),
        (Some(nonce), Some(signature)) => (nonce, signature),
        _ => {
            let what = "is needed together with the other of registration_nonce and rotation_signature";
            return Err(Failure::malformed("rotation_signature", what));
        }
    };
    let nonce: [u8; 32] = base64_exact(nonce)
        .ok_or_else(|| Failure::malformed("registration_nonce", "must be base64 of 32 bytes"))?;
    let signature: [u8; 64] = base64_exact(signature)
        .ok_or_else(|| Failure::malformed("rotation_signature", "must be base64 of 64 bytes"))?;
    let registry = &gateway.registry;
    let Some(node) = registry.node(&claims.cluster_id, &claims.sub) else {
        return Ok(());
    };
    // Once the rotation is on chain, the repeated request finds the new key there.
    if *node.key() == claims.pubkey {
        return Ok(());
    }
    let message = key_rotation_message(
        registry.chain_id(),
        registry.contract(),
        &claims.cluster_id,
        &claims.sub,
        &claims.pubkey,
        &nonce,
    );
    if ZebraVerifier.verify(&message, &signature, node.key().as_bytes()) {
        return Ok(());
    }
    let what = "does not verify over the new key and registration_nonce with the node's present key";
    Err(Failure::new(
        403,
        Refusal::field(Code::SignatureInvalid, "rotation_signature", what),
    ))
}

fn pending() -> Response {
    let body = Json(RegisterPending::new(Code::RegistrationPending));
    (
        StatusCode::ACCEPTED,
        [(RETRY_AFTER, RETRY_AFTER_SECONDS.to_string())],
        body,
    )
        .into_response()
}

fn refused(registration: &Registration) -> Failure {
    let code = registration.code.unwrap_or(Code::NotAuthorized);
    let detail = registration
        .detail
        .clone()
        .unwrap_or_else(|| "the chain refused the registration".into());
    Failure {
        status: 403,
        refusal: Refusal::whole(code, detail),
        retry_after: Some(RETRY_REFUSED_MS / 1000 + 1),
    }
}

/// The registration is on chain: the same certificate each time it is asked for.
async fn done(
    gateway: &Gateway,
    claims: &Claims,
    csr: &NodeCsr,
    registration: &Registration,
    now_ms: u64,
) -> Result<Response, Failure> {
    let (cluster_id, node_id) = (&claims.cluster_id, &claims.sub);
    let registry = &gateway.registry;
    let (Some(epoch), Some(cluster)) = (registration.epoch, registry.cluster(cluster_id)) else {
        return Ok(pending());
    };
    // The certificate is of use only once heartbeats are known to belong to the new epoch.
    let Some(node) = registry
        .node(cluster_id, node_id)
        .filter(|n| n.chain.epoch >= epoch)
    else {
        gateway.wake.call();
        return Ok(pending());
    };
    // The answer of a registration that has been replaced would hand out the old identity again.
    if node.chain.epoch > epoch {
        let what = "the node has been registered anew since";
        return Err(Failure::forbidden(Code::TokenUsed, what));
    }
    may_have_one(gateway, Some(&node))?;
    let certificate = match &registration.certificate {
        Some(certificate) => certificate.clone(),
        None => {
            let subject = NodeSubject {
                cluster: cluster_id,
                node: node_id,
                epoch,
            };
            issue(gateway, csr, &subject, Some(registration.id), now_ms).await?
        }
    };
    let highest = spool::intake_of(gateway.store.reader(), cluster_id, node_id).await?;
    let chain_sequence = node.chain.sequence;
    let task_public_key = gateway
        .tasks
        .get(cluster_id)
        .ok()
        .flatten()
        .map(|k| *k.public())
        .or(cluster.task_public_key);
    let response = RegisterResponse {
        certificate,
        ca: gateway.ca_bundle(),
        cluster_id: cluster_id.clone(),
        node_id: node_id.clone(),
        provider_address: cluster.owner.clone(),
        chain_id: registry.chain_id().to_owned(),
        contract: registry.contract().to_owned(),
        epoch,
        last_sequence: highest.map_or(0, |i| i.highest_sequence).max(chain_sequence),
        params: registry.params(),
        job_ids: cluster.job_ids,
        task_public_key,
    };
    Ok(Json(response).into_response())
}
