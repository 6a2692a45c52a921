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
use hpc_schema::time::UnixSeconds;

use self::answer::{done, pending, refused};
use self::check::{Checked, check};
use self::join::{not_another, use_of};
use super::answer::Failure;
use super::connection::Connection;
use super::{Gateway, body};
use crate::clock;
use crate::enrol::{self, Claimed, NewRegistration, RegistrationState};

/// After a refusal by the chain, a repeated request is tried anew after so long.
const RETRY_REFUSED_MS: u64 = 10_000;

/// `POST /api/v1/hpc/nodes/register`: server-authenticated TLS; the token, the agent's key and the
/// certificate request stand for each other.
pub(super) async fn register(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Result<Response, Failure> {
    let live = gateway.live.get();
    let limits = &live.gateway;
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
            Ok(pending(&registration))
        }
        RegistrationState::Refused => Err(refused(&registration)),
        RegistrationState::OnChain => done(&gateway, &claims, &csr, &registration, now_ms).await,
    }
}
