use std::collections::BTreeSet;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::time::UnixSeconds;
use hpc_schema::token::{JoinClaims, JoinPurpose};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use crate::attest::{self, Expected};
use crate::audit::Actor;
use crate::clock;
use crate::daemon::load_ca;
use crate::enrol::{self, JoinRow, JoinTerms, Revoked, TokenRow, TokenState};
use crate::identity::{Claims, Seed, TokenKey};
use crate::page::{Page, Window};
use crate::registry::{self, TaskKeys};

/// Longest life of a registration token.
pub const MAX_EXPIRES_SECONDS: u64 = 30 * 24 * 3600;
/// Most uses of a join token.
pub const MAX_USES: u32 = 100_000;

/// A node that is to get a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// The agent's public key: the line in agent.pub.
    pub pubkey: AgentKey,
    /// The TPM that it must quote by, as `virtengine-node-agent key show --attestation` prints it, or `new` for whichever
    /// it has; without it the one that is pinned for the node, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9a-f]{64}|new)$"))]
    pub attestation_key: Option<String>,
}

/// A join token that is to be made.
#[derive(Debug, Clone)]
pub struct JoinWanted {
    /// The nodes' cluster.
    pub cluster_id: ClusterId,
    /// What it allows.
    pub terms: JoinTerms,
}

/// A token on record with how it stands.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Shown<T> {
    /// How it stands.
    pub state: TokenState,
    /// As on record.
    #[serde(flatten)]
    pub token: T,
}

/// What makes tokens of this directory.
struct Maker {
    key: TokenKey,
    ca_sha256: String,
    tasks: TaskKeys,
}

impl Admin {
    /// One token for each, all on record or none; in the order of `wanted`.
    ///
    /// # Errors
    /// If the life is out of range, a key cannot be used, or the configuration names no chain.
    pub async fn make_tokens(
        &self,
        by: &Actor,
        wanted: &[Wanted],
        expires_seconds: u64,
    ) -> Result<Vec<String>, AdminError> {
        let prepared = self.prepare_tokens(wanted, expires_seconds).await;
        let target = match wanted {
            [one] => super::node::target(&one.cluster_id, &one.node_id),
            many => format!("{} nodes", many.len()),
        };
        let mut act = Act::begin(&self.store, by, "node_token.create", target).await?;
        let mut ids = Vec::new();
        let done = async {
            let mut tokens = Vec::new();
            for ((claims, token), one) in prepared?.into_iter().zip(wanted) {
                enrol::insert(act.conn(), &claims).await?;
                if let Some(key) = &one.attestation_key {
                    attest::expect(act.conn(), &claims.jti, key).await?;
                }
                ids.push(claims.jti);
                tokens.push(token);
            }
            Ok::<_, AdminError>(tokens)
        };
        let done = done.await;
        act.end(done, json!({ "ids": ids })).await
    }

    /// The tokens, signed, before the store is locked: a thousand take their time.
    async fn prepare_tokens(
        &self,
        wanted: &[Wanted],
        expires_seconds: u64,
    ) -> Result<Vec<(Claims, String)>, AdminError> {
        let maker = self.maker(expires_seconds).await?;
        let now = clock::now();
        let is_one = |key: &String| Expected::parse(key).is_some();
        if !wanted
            .iter()
            .filter_map(|w| w.attestation_key.as_ref())
            .all(is_one)
        {
            let what = "must be new, or what virtengine-node-agent key show --attestation prints on the node";
            return Err(AdminError::field(Code::InvalidField, "attestation_key", what));
        }
        let mut made = Vec::with_capacity(wanted.len());
        self.known_clusters(&wanted.iter().map(|w| &w.cluster_id).collect())
            .await?;
        for one in wanted {
            let claims = Claims {
                iss: TokenKey::ISSUER.to_owned(),
                sub: one.node_id.clone(),
                provider_address: registry::cluster_owner(self.store.reader(), &one.cluster_id).await?,
                task_key: Some(maker.task_key(&one.cluster_id)?),
                cluster_id: one.cluster_id.clone(),
                pubkey: one.pubkey,
                jti: hex::encode(clock::random::<16>()?),
                iat: now.0,
                exp: now.plus(expires_seconds).0,
                ca_sha256: maker.ca_sha256.clone(),
                chain_id: self.config.chain.id.clone(),
                contract: self.config.chain.contract.clone(),
                endpoint: self.config.gateway.endpoint.clone(),
            };
            let token = maker.issue(&claims)?;
            made.push((claims, token));
        }
        Ok(made)
    }

    /// A token with which several nodes of a cluster register.
    ///
    /// # Errors
    /// If uses or life are out of range, a key cannot be used, or the configuration names no chain.
    pub async fn make_join_token(
        &self,
        by: &Actor,
        wanted: JoinWanted,
        expires_seconds: u64,
    ) -> Result<String, AdminError> {
        let JoinWanted { cluster_id, terms } = wanted;
        let target = format!("cluster {cluster_id}");
        let prepared = self.prepare_join(cluster_id, &terms, expires_seconds).await;
        let mut act = Act::begin(&self.store, by, "join_token.create", target).await?;
        let mut detail = json!({});
        let done = async {
            let (claims, token) = prepared?;
            enrol::insert_join(act.conn(), &claims, &terms).await?;
            let ranges: Vec<String> = terms.ranges.iter().map(ToString::to_string).collect();
            detail =
                json!({ "id": claims.jti, "uses": terms.uses, "ranges": ranges, "approval": terms.approval });
            Ok::<_, AdminError>(token)
        };
        let done = done.await;
        act.end(done, detail).await
    }

    async fn prepare_join(
        &self,
        cluster_id: ClusterId,
        terms: &JoinTerms,
        expires_seconds: u64,
    ) -> Result<(JoinClaims, String), AdminError> {
        if !(1..=MAX_USES).contains(&terms.uses) {
            let what = format!("is {}, must be 1 to {MAX_USES}", terms.uses);
            return Err(AdminError::field(Code::InvalidField, "uses", what));
        }
        let maker = self.maker(expires_seconds).await?;
        self.known_clusters(&BTreeSet::from([&cluster_id])).await?;
        let now = clock::now();
        let claims = JoinClaims {
            iss: TokenKey::ISSUER.to_owned(),
            purpose: JoinPurpose::Join,
            provider_address: registry::cluster_owner(self.store.reader(), &cluster_id).await?,
            task_key: Some(maker.task_key(&cluster_id)?),
            cluster_id,
            jti: hex::encode(clock::random::<16>()?),
            iat: now,
            exp: now.plus(expires_seconds),
            ca_sha256: maker.ca_sha256.clone(),
            chain_id: self.config.chain.id.clone(),
            contract: self.config.chain.contract.clone(),
            endpoint: self.config.gateway.endpoint.clone(),
        };
        let token = maker.issue(&claims)?;
        Ok((claims, token))
    }

    async fn maker(&self, expires_seconds: u64) -> Result<Maker, AdminError> {
        let fail = |e: &dyn std::fmt::Display| AdminError::Home(e.to_string());
        if !(1..=MAX_EXPIRES_SECONDS).contains(&expires_seconds) {
            let what = format!("is {expires_seconds}, must be 1 to {MAX_EXPIRES_SECONDS} seconds (720h)");
            return Err(AdminError::field(Code::InvalidField, "expires", what));
        }
        self.config.require_chain().map_err(|e| fail(&e))?;
        let chain = &self.config.chain;
        self.store.bind(&chain.id, &chain.contract).await?;
        Ok(Maker {
            key: TokenKey::new(Seed::load(&self.home.token_key()).map_err(|e| fail(&e))?),
            ca_sha256: load_ca(&self.home).map_err(|e| fail(&e))?.fingerprint(),
            tasks: TaskKeys::new(self.home.clone()),
        })
    }

    /// Tokens for one node, newest first.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn tokens(&self, window: Window<'_>) -> Result<Page<Shown<TokenRow>>, AdminError> {
        let tokens = enrol::list(self.store.reader(), window).await?;
        Ok(shown(tokens, TokenRow::state))
    }

    /// Join tokens, newest first.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn join_tokens(&self, window: Window<'_>) -> Result<Page<Shown<JoinRow>>, AdminError> {
        let tokens = enrol::list_joins(self.store.reader(), window).await?;
        Ok(shown(tokens, JoinRow::state))
    }

    /// Takes back a token that has not been used, or a join token with all its uses that are not done. Whether a
    /// registration with it is in a transaction already, which cannot be called back.
    ///
    /// # Errors
    /// If there is no unused token of this id.
    pub async fn revoke_token(&self, by: &Actor, jti: &str) -> Result<bool, AdminError> {
        let mut act = Act::begin(&self.store, by, "token.revoke", format!("token {jti}")).await?;
        let done = async {
            let now = clock::now();
            if enrol::revoke_join(act.conn(), jti, now).await? {
                return Ok(false);
            }
            match enrol::revoke(act.conn(), jti, now).await? {
                Revoked::Done => Ok(false),
                Revoked::Sent => Ok(true),
                Revoked::Unknown => {
                    let what =
                        format!("there is no unused token {jti} (virtengine-provider node-token list)");
                    Err(AdminError::missing("jti", what))
                }
            }
        };
        let done = done.await;
        let sent = done.as_ref().copied().unwrap_or(false);
        act.end(done, json!({ "registration_is_sent": sent })).await
    }
}

impl Maker {
    fn task_key(&self, cluster: &ClusterId) -> Result<AgentKey, AdminError> {
        let key = self.tasks.get_or_create(cluster);
        key.map(|k| *k.public())
            .map_err(|e| AdminError::Home(e.to_string()))
    }

    fn issue(&self, claims: &impl Serialize) -> Result<String, AdminError> {
        self.key
            .issue(claims)
            .map_err(|e| AdminError::Home(e.to_string()))
    }
}

fn shown<T>(tokens: Page<T>, state: impl Fn(&T, UnixSeconds) -> TokenState) -> Page<Shown<T>> {
    let now = clock::now();
    tokens.map(|token| Shown {
        state: state(&token, now),
        token,
    })
}
