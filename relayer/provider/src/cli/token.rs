use anyhow::{Context as _, bail};
use hpc_schema::id::ClusterId;
use hpc_schema::token::{JoinClaims, JoinPurpose};
use serde::Serialize;

use super::args::TokenCommand;
use super::csv::{self, Wanted};
use super::output;
use crate::clock;
use crate::config::{Config, Span};
use crate::daemon::{StartError, load_ca};
use crate::enrol::{self, JoinRow, JoinTerms, Revoked, TokenRow, TokenState};
use crate::home::Home;
use crate::identity::{Claims, Seed, TokenKey};
use crate::registry::{self, TaskKeys};
use crate::store::Store;

/// Longest life of a token.
const MAX_EXPIRES: Span = Span::seconds(30 * 24 * 3600);
const MAX_USES: u32 = 100_000;
/// Largest file of nodes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Serialize)]
struct Shown<T> {
    state: TokenState,
    #[serde(flatten)]
    token: T,
}

/// A registration that waits for approval.
#[derive(Debug, Serialize)]
struct Waits {
    cluster_id: ClusterId,
    node_id: hpc_schema::id::NodeId,
    public_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
}

pub(super) async fn run(home: &Home, config: &Config, command: TokenCommand) -> anyhow::Result<()> {
    let store = Store::open(&home.store()).await.map_err(StartError::from)?;
    match command {
        TokenCommand::Create {
            cluster_id,
            node_id,
            pubkey,
            from_file,
            expires,
        } => {
            let maker = Maker::new(home, config, &store, expires).await?;
            if let Some(path) = from_file {
                let size = std::fs::metadata(&path)
                    .with_context(|| path.display().to_string())?
                    .len();
                if size > MAX_FILE_BYTES {
                    bail!(
                        "{} has more than {MAX_FILE_BYTES} bytes; split it",
                        path.display()
                    );
                }
                let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                let wanted =
                    csv::parse(&text, cluster_id.as_ref()).with_context(|| path.display().to_string())?;
                let tokens = maker.make(&wanted).await?;
                for (one, token) in wanted.iter().zip(tokens) {
                    output::line(&format!("{},{token}", one.node_id))?;
                }
                return Ok(());
            }
            let (Some(cluster_id), Some(node_id), Some(pubkey)) = (cluster_id, node_id, pubkey) else {
                bail!("name --cluster-id, --node-id and --pubkey, or --from-file");
            };
            let wanted = Wanted {
                cluster_id,
                node_id,
                pubkey,
            };
            let tokens = maker.make(&[wanted]).await?;
            tokens.iter().try_for_each(|token| output::line(token))
        }
        TokenCommand::Join {
            cluster_id,
            uses,
            range,
            approval,
            expires,
        } => {
            if !(1..=MAX_USES).contains(&uses) {
                bail!("--uses is {uses}, must be 1 to {MAX_USES}");
            }
            let maker = Maker::new(home, config, &store, expires).await?;
            let terms = JoinTerms {
                uses,
                ranges: range,
                approval,
            };
            output::line(&maker.join(cluster_id, &terms).await?)
        }
        TokenCommand::List(out) => {
            let now = clock::now();
            let tokens: Vec<Shown<TokenRow>> = enrol::list(store.reader())
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
                    word(t.state),
                    t.token.cluster_id.to_string(),
                    t.token.node_id.to_string(),
                    t.token.expires_at.to_string(),
                ]
            })
        }
        TokenCommand::JoinList(out) => {
            let now = clock::now();
            let tokens: Vec<Shown<JoinRow>> = enrol::list_joins(store.reader())
                .await?
                .into_iter()
                .map(|token| Shown {
                    state: token.state(now),
                    token,
                })
                .collect();
            let head = ["ID", "STATE", "CLUSTER", "USED", "RANGES", "APPROVAL", "EXPIRES"];
            output::list(&tokens, out.output, &head, |t| {
                vec![
                    t.token.jti.clone(),
                    word(t.state),
                    t.token.cluster_id.to_string(),
                    format!("{}/{}", t.token.used, t.token.uses),
                    if t.token.ranges.is_empty() {
                        "any".into()
                    } else {
                        t.token.ranges.join(" ")
                    },
                    if t.token.approval {
                        "yes".into()
                    } else {
                        "no".into()
                    },
                    t.token.expires_at.to_string(),
                ]
            })
        }
        TokenCommand::Waiting(out) => {
            let waiting: Vec<Waits> = enrol::held(store.reader())
                .await?
                .into_iter()
                .map(|r| Waits {
                    cluster_id: r.cluster_id,
                    node_id: r.node_id,
                    public_key: r.public_key.to_base64(),
                    hostname: r.hostname,
                })
                .collect();
            let head = ["CLUSTER", "NODE", "PUBLIC KEY", "HOST NAME"];
            output::list(&waiting, out.output, &head, |w| {
                vec![
                    w.cluster_id.to_string(),
                    w.node_id.to_string(),
                    w.public_key.clone(),
                    w.hostname.clone().unwrap_or_else(|| "-".to_owned()),
                ]
            })
        }
        TokenCommand::Approve { whose } => {
            let mut waiting = enrol::held(store.reader()).await?;
            waiting.retain(|r| {
                r.node_id == whose.node_id && whose.cluster_id.as_ref().is_none_or(|c| *c == r.cluster_id)
            });
            let [one] = waiting.as_slice() else {
                bail!(
                    "{} registrations of {} wait; see: virtengine-provider node-token waiting",
                    waiting.len(),
                    whose.node_id
                );
            };
            let mut tx = store.begin().await?;
            enrol::approve(&mut tx, &one.cluster_id, &one.node_id, clock::now_ms()).await?;
            tx.commit().await?;
            output::line(&format!("node {} may register", one.node_id))
        }
        TokenCommand::Revoke { jti } => revoke(&store, &jti).await,
    }
}

async fn revoke(store: &Store, jti: &str) -> anyhow::Result<()> {
    let mut tx = store.begin().await?;
    let join = enrol::revoke_join(&mut tx, jti, clock::now()).await?;
    let one = if join {
        Revoked::Done
    } else {
        enrol::revoke(&mut tx, jti, clock::now()).await?
    };
    tx.commit().await?;
    match one {
        Revoked::Unknown => bail!("there is no unused token {jti}; see: virtengine-provider node-token list"),
        Revoked::Done => output::line(&format!("token {jti} is revoked")),
        Revoked::Sent => output::line(&format!(
            "token {jti} is revoked, but its registration is in a transaction already: the node gets no \
             certificate; if it appears on chain, deregister it"
        )),
    }
}

fn word(state: TokenState) -> String {
    format!("{state:?}").to_lowercase()
}

/// Makes tokens.
struct Maker<'a> {
    home: &'a Home,
    config: &'a Config,
    store: &'a Store,
    key: TokenKey,
    ca_sha256: String,
    expires: Span,
}

impl<'a> Maker<'a> {
    async fn new(
        home: &'a Home,
        config: &'a Config,
        store: &'a Store,
        expires: Span,
    ) -> anyhow::Result<Self> {
        config.require_chain().map_err(StartError::from)?;
        if expires < Span::seconds(1) || expires > MAX_EXPIRES {
            bail!("--expires is {expires}, must be 1s to 720h");
        }
        store
            .bind(&config.chain.id, &config.chain.contract)
            .await
            .map_err(StartError::from)?;
        Ok(Self {
            home,
            config,
            store,
            key: TokenKey::new(Seed::load(&home.token_key())?),
            ca_sha256: load_ca(home)?.fingerprint(),
            expires,
        })
    }

    /// One token for each, all on record or none.
    async fn make(&self, wanted: &[Wanted]) -> anyhow::Result<Vec<String>> {
        let tasks = TaskKeys::new(self.home.clone());
        let now = clock::now();
        let mut tx = self.store.begin().await?;
        let mut tokens = Vec::with_capacity(wanted.len());
        for one in wanted {
            let claims = Claims {
                iss: TokenKey::ISSUER.to_owned(),
                sub: one.node_id.clone(),
                provider_address: registry::cluster_owner(self.store.reader(), &one.cluster_id).await?,
                task_key: Some(*tasks.get_or_create(&one.cluster_id)?.public()),
                cluster_id: one.cluster_id.clone(),
                pubkey: one.pubkey,
                jti: random_id()?,
                iat: now.0,
                exp: now.plus(self.expires.as_secs()).0,
                ca_sha256: self.ca_sha256.clone(),
                chain_id: self.config.chain.id.clone(),
                contract: self.config.chain.contract.clone(),
                endpoint: self.config.gateway.endpoint.clone(),
            };
            tokens.push(self.key.issue(&claims)?);
            enrol::insert(&mut tx, &claims).await?;
        }
        tx.commit().await?;
        Ok(tokens)
    }

    async fn join(&self, cluster_id: ClusterId, terms: &JoinTerms) -> anyhow::Result<String> {
        let task = TaskKeys::new(self.home.clone()).get_or_create(&cluster_id)?;
        let now = clock::now();
        let claims = JoinClaims {
            iss: TokenKey::ISSUER.to_owned(),
            purpose: JoinPurpose::Join,
            provider_address: registry::cluster_owner(self.store.reader(), &cluster_id).await?,
            cluster_id,
            jti: random_id()?,
            iat: now,
            exp: now.plus(self.expires.as_secs()),
            ca_sha256: self.ca_sha256.clone(),
            chain_id: self.config.chain.id.clone(),
            contract: self.config.chain.contract.clone(),
            task_key: Some(*task.public()),
            endpoint: self.config.gateway.endpoint.clone(),
        };
        let token = self.key.issue(&claims)?;
        let mut tx = self.store.begin().await?;
        enrol::insert_join(&mut tx, &claims, terms).await?;
        tx.commit().await?;
        Ok(token)
    }
}

fn random_id() -> anyhow::Result<String> {
    Ok(hex::encode(clock::random::<16>().context("token id")?))
}
