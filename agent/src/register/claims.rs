//! What a token says to this node. Pure.

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::refusal::Refusal;
use hpc_schema::token::{AnyClaims, JoinClaims, TokenClaims, read_any_token_unverified};

use crate::config::Config;
use crate::uplink::CaPin;

/// Everything of a token that counts here; a join token names neither node nor key.
#[derive(Debug, Clone)]
pub(super) struct Claims {
    pub(super) jti: String,
    pub(super) node_id: NodeId,
    pub(super) cluster_id: ClusterId,
    pub(super) chain_id: String,
    pub(super) contract: String,
    pub(super) ca: CaPin,
    pub(super) task_key: Option<AgentKey>,
    /// UNIX seconds.
    pub(super) expires_at: u64,
    /// The request has to name the node.
    pub(super) join: bool,
}

impl Claims {
    /// Reads `token` for `key`; what the gateway would refuse anyway is said here, before anything is sent. With a join
    /// token the node's name is `node.id`, else the host's short name.
    ///
    /// # Errors
    /// The token is no token, for another key, or contradicts the configuration.
    pub(super) fn read(
        token: &str,
        config: &Config,
        key: &AgentKey,
        host: Option<&str>,
    ) -> Result<Self, Refusal> {
        let claims = match read_any_token_unverified(token)? {
            AnyClaims::Node(claims) => Self::of_node(*claims, config, key)?,
            AnyClaims::Join(claims) => Self::of_join(*claims, config, host)?,
        };
        let other = |id: &ClusterId| *id != claims.cluster_id;
        if config.cluster_id.as_ref().is_some_and(other) {
            return Err(Refusal::field(
                Code::ClusterMismatch,
                "node.cluster_id",
                format_args!("is not the token's {}", claims.cluster_id),
            ));
        }
        Ok(claims)
    }

    fn of_node(claims: TokenClaims, config: &Config, key: &AgentKey) -> Result<Self, Refusal> {
        if claims.pubkey != *key {
            return Err(Refusal::field(
                Code::KeyMismatch,
                "agent.registration_token",
                format_args!("is for key {}, this node's key is {key}", claims.pubkey),
            ));
        }
        if config.node_id.as_ref().is_some_and(|id| *id != claims.sub) {
            return Err(Refusal::field(
                Code::IdentityMismatch,
                "node.id",
                format_args!("is not the token's {}", claims.sub),
            ));
        }
        Ok(Self {
            jti: claims.jti,
            node_id: claims.sub,
            cluster_id: claims.cluster_id,
            chain_id: claims.chain_id,
            contract: claims.contract,
            ca: pin(&claims.ca_sha256)?,
            task_key: claims.task_key,
            expires_at: claims.exp.0,
            join: false,
        })
    }

    fn of_join(claims: JoinClaims, config: &Config, host: Option<&str>) -> Result<Self, Refusal> {
        let short = host.and_then(|h| h.split('.').next());
        let node_id = match (&config.node_id, short.map(str::parse)) {
            (Some(id), _) => id.clone(),
            (None, Some(Ok(id))) => id,
            (None, _) => {
                return Err(Refusal::field(
                    Code::InvalidField,
                    "node.id",
                    "is needed with a join token: the host's name cannot be a node's",
                ));
            }
        };
        Ok(Self {
            jti: claims.jti,
            node_id,
            cluster_id: claims.cluster_id,
            chain_id: claims.chain_id,
            contract: claims.contract,
            ca: pin(&claims.ca_sha256)?,
            task_key: claims.task_key,
            expires_at: claims.exp.0,
            join: true,
        })
    }
}

fn pin(text: &str) -> Result<CaPin, Refusal> {
    text.parse()
        .map_err(|e| Refusal::field(Code::TokenInvalid, "token.ca_sha256", e))
}
