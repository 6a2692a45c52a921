//! A token as it is, before anything is sent.

use hpc_schema::id::NodeId;
use hpc_schema::key::AgentKey;
use hpc_schema::refusal::Refusal;

use super::claims::Claims;
use crate::config::{Config, Token};
use crate::uplink::CaPin;

/// What a token says, as far as this node can tell: only the gateway knows whether it made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// Its name.
    pub jti: String,
    /// The node that it registers.
    pub node_id: NodeId,
    /// The gateway's CA.
    pub ca: CaPin,
    /// UNIX seconds.
    pub expires_at: u64,
}

/// Reads `token` for `key`.
///
/// # Errors
/// It is no token, for another key, or contradicts the configuration.
pub fn examine(
    token: &Token,
    config: &Config,
    key: &AgentKey,
    host: Option<&str>,
) -> Result<Examined, Refusal> {
    let claims = Claims::read(token.secret(), config, key, host)?;
    Ok(Examined {
        jti: claims.jti,
        node_id: claims.node_id,
        ca: claims.ca,
        expires_at: claims.expires_at,
    })
}
