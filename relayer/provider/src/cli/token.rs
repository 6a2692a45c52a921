use anyhow::{Context as _, bail};
use serde::Serialize;

use super::args::TokenCommand;
use super::output;
use crate::clock;
use crate::config::{Config, Span};
use crate::daemon::{StartError, load_ca};
use crate::enrol::{self, Revoked, TokenRow, TokenState};
use crate::home::Home;
use crate::identity::{Claims, Seed, TokenKey};
use crate::registry::{self, TaskKeys};
use crate::store::Store;

/// Longest life of a token.
const MAX_EXPIRES: Span = Span::seconds(30 * 24 * 3600);

#[derive(Debug, Serialize)]
struct Shown {
    state: TokenState,
    #[serde(flatten)]
    token: TokenRow,
}

pub(super) async fn run(home: &Home, config: &Config, command: TokenCommand) -> anyhow::Result<()> {
    let store = Store::open(&home.store()).await.map_err(StartError::from)?;
    match command {
        TokenCommand::Create {
            cluster_id,
            node_id,
            pubkey,
            expires,
        } => {
            config.require_chain().map_err(StartError::from)?;
            if expires < Span::seconds(1) || expires > MAX_EXPIRES {
                bail!("--expires is {expires}, must be 1s to 720h");
            }
            store
                .bind(&config.chain.id, &config.chain.contract)
                .await
                .map_err(StartError::from)?;
            let ca = load_ca(home)?;
            let key = TokenKey::new(Seed::load(&home.token_key())?);
            let task = TaskKeys::new(home.clone()).get_or_create(&cluster_id)?;
            let owner = registry::cluster_owner(store.reader(), &cluster_id).await?;
            let now = clock::now();
            let claims = Claims {
                iss: TokenKey::ISSUER.to_owned(),
                sub: node_id,
                cluster_id,
                provider_address: owner,
                pubkey,
                jti: random_id()?,
                iat: now.0,
                exp: now.plus(expires.as_secs()).0,
                ca_sha256: ca.fingerprint(),
                chain_id: config.chain.id.clone(),
                contract: config.chain.contract.clone(),
                task_key: Some(*task.public()),
                endpoint: config.gateway.endpoint.clone(),
            };
            let token = key.issue(&claims)?;
            let mut tx = store.begin().await?;
            enrol::insert(&mut tx, &claims).await?;
            tx.commit().await?;
            output::line(&token)
        }
        TokenCommand::List(out) => {
            let now = clock::now();
            let tokens: Vec<Shown> = enrol::list(store.reader())
                .await?
                .into_iter()
                .map(|token| Shown {
                    state: token.state(now),
                    token,
                })
                .collect();
            let head = ["ID", "STATE", "CLUSTER", "NODE", "EXPIRES"];
            output::list(&tokens, out.output, &head, |t| {
                vec![
                    t.token.jti.clone(),
                    format!("{:?}", t.state).to_lowercase(),
                    t.token.cluster_id.to_string(),
                    t.token.node_id.to_string(),
                    t.token.expires_at.to_string(),
                ]
            })
        }
        TokenCommand::Revoke { jti } => {
            let mut tx = store.begin().await?;
            let revoked = enrol::revoke(&mut tx, &jti, clock::now()).await?;
            tx.commit().await?;
            match revoked {
                Revoked::Unknown => {
                    bail!("there is no unused token {jti}; see: virtengine-provider node-token list")
                }
                Revoked::Done => output::line(&format!("token {jti} is revoked")),
                Revoked::Sent => output::line(&format!(
                    "token {jti} is revoked, but its registration is in a transaction already: the node gets no \
                     certificate; if it appears on chain, deregister it"
                )),
            }
        }
    }
}

fn random_id() -> anyhow::Result<String> {
    Ok(hex::encode(clock::random::<16>().context("token id")?))
}
