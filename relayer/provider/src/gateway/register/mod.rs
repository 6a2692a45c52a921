//! `POST /api/v1/hpc/nodes/register`.

mod answer;
mod check;
mod join;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use hpc_schema::code::Code;
use hpc_schema::gateway::{MAX_REGISTER_BYTES, RegisterRequest};
use hpc_schema::refusal::Refusal;
use hpc_schema::time::UnixSeconds;

use self::answer::{done, pending, refused};
use self::check::{Checked, check};
use self::join::{not_another, rejected, use_of};
use super::answer::Failure;
use super::certificate::not_disabled;
use super::connection::Connection;
use super::{Gateway, body};
use crate::attest::{self, Quoted};
use crate::clock;
use crate::db::Conn;
use crate::enrol::{self, Claimed, NewRegistration, REJECTED, Registration, RegistrationState};
use crate::identity::Claims;
use crate::registry::{self, Node, ProbeEndpoint};

/// After a refusal by the chain, a repeated request is tried anew after so long.
const RETRY_REFUSED_MS: u64 = 10_000;

/// `POST /api/v1/hpc/nodes/register`: server-authenticated TLS; the token, the agent's key and the
/// certificate request stand for each other.
pub(super) async fn register(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Result<Response, Failure> {
    let answered = take_in(&gateway, &connection, request).await;
    answered.map_err(|failure| match member(failure.refusal.code) {
        Some(member) if failure.refusal.field.is_none() => failure.of(member),
        _ => failure,
    })
}

/// The member of the request that is refused with this code, whoever refuses it.
fn member(code: Code) -> Option<&'static str> {
    match code {
        Code::TokenInvalid | Code::TokenExpired | Code::TokenUsed => Some("token"),
        Code::DuplicateHardware => Some("hardware_fingerprint"),
        Code::NodeExists => Some("node_id"),
        Code::RegistrationNonceUsed => Some("registration_nonce"),
        _ => None,
    }
}

async fn take_in(gateway: &Gateway, connection: &Connection, request: Request) -> Result<Response, Failure> {
    let live = gateway.live.get();
    let limits = &live.gateway;
    let limit = MAX_REGISTER_BYTES.min(limits.max_body_bytes);
    let bytes = body::read(request, limit, limits.request_timeout.duration()).await?;
    let request: RegisterRequest = body::json(&bytes)?;
    let now_ms = clock::now_ms();
    let now = UnixSeconds(now_ms / 1000);
    let Checked {
        claims,
        csr,
        join,
        quoted,
    } = check(gateway, &request, now)?;
    if join.is_some() {
        not_another(gateway, &claims)?;
    }
    // Before anything of it is kept: the operator decides whether the node comes in, not the chain.
    not_disabled(gateway, &claims.cluster_id, &claims.sub)?;
    let mut tx = gateway.store.begin().await?;
    let held = match &join {
        None => false,
        Some(join) => {
            let joined = enrol::join(&mut tx, join, &claims, connection.ip(), now).await?;
            use_of(joined, connection.ip())?
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
        held,
        quoted_by: quoted.as_ref().map(|q| q.key.as_str()),
    };
    let claimed = enrol::claim(&mut tx, &new, now_ms, RETRY_REFUSED_MS).await?;
    let on_record = gateway.registry.node(&claims.cluster_id, &claims.sub);
    let mut probed = None;
    if let Claimed::Ours(registration) = &claimed {
        same_machine(&mut tx, &claims, quoted.as_ref()).await?;
        if says_where_to_probe(&claims, registration, on_record.as_deref()) {
            let endpoint = ProbeEndpoint {
                port: request.probe_port,
                // v4 as v4, as that of the connection.
                address: request.probe_address.map(|a| a.to_canonical()),
                from: connection.ip(),
            };
            registry::keep_probe(&mut tx, &claims.cluster_id, &claims.sub, endpoint).await?;
            probed = Some(endpoint);
        }
    }
    // Pinned is who is on chain: nobody takes a node's place before that, nor once another has taken it.
    if let (Claimed::Ours(registration), Some(quoted)) = (&claimed, &quoted)
        && registration.state == RegistrationState::OnChain
        && on_record.is_some_and(|n| Some(n.chain.epoch) == registration.epoch)
    {
        attest::pin(&mut tx, (&claims.cluster_id, &claims.sub), quoted, now.0).await?;
        // Whatever the token asked for: from here on it is this machine's.
        attest::expect(&mut tx, &claims.jti, &quoted.key).await?;
        tracing::info!(cluster = %claims.cluster_id, node = %claims.sub, key = %quoted.key, "registered with a TPM's quote");
    }
    tx.commit().await.map_err(crate::store::StoreError::from)?;
    let registration = match claimed {
        Claimed::Ours(registration) => registration,
        Claimed::Unknown => {
            return Err(Failure::forbidden(
                Code::TokenInvalid,
                "the token is not on record",
            ));
        }
        Claimed::Revoked(why) => {
            return Err(match why.as_deref() {
                Some(REJECTED) => rejected(),
                why => Failure::forbidden(Code::TokenInvalid, why.unwrap_or("the token has been revoked")),
            });
        }
        Claimed::Expired => return Err(Failure::forbidden(Code::TokenExpired, "the token has expired")),
        Claimed::Used => {
            return Err(Failure::forbidden(
                Code::TokenUsed,
                "another key or certificate request has used the token",
            ));
        }
    };
    if let Some(endpoint) = probed {
        gateway
            .registry
            .set_probe(&claims.cluster_id, &claims.sub, endpoint);
    }
    match registration.state {
        RegistrationState::Queued | RegistrationState::Sent => {
            gateway.wake.call();
            Ok(pending(&registration))
        }
        RegistrationState::Refused => Err(refused(&registration)),
        RegistrationState::OnChain => done(gateway, &claims, &csr, &registration, now_ms).await,
    }
}

/// Whether this request has a say in where the node is probed. One on record is probed where it said until another
/// registration counts: a key beside it comes to that with the repeat that follows, and one that was replaced never.
fn says_where_to_probe(claims: &Claims, registration: &Registration, on_record: Option<&Node>) -> bool {
    on_record.is_none_or(|node| match registration.epoch {
        Some(epoch) => epoch >= node.chain.epoch,
        None => *node.key() == claims.pubkey,
    })
}

/// Where a TPM is pinned for the node, or the token names one, the registration must come from that machine.
async fn same_machine(tx: &mut Conn, claims: &Claims, quoted: Option<&Quoted>) -> Result<(), Failure> {
    let of = (&claims.cluster_id, &claims.sub);
    attest::judge_now(tx, &claims.jti, of, quoted.map(|q| q.key.as_str()))
        .await?
        .map_err(|why| Failure::new(403, Refusal::field(Code::KeyMismatch, "attestation", why)))
}
