mod csv;

use std::path::Path;

use anyhow::{Context as _, bail};
use hpc_schema::id::ClusterId;
use serde_json::json;

use super::args::TokenCommand;
use super::desk::Desk;
use super::output::{Output, line};
use crate::admin::{JoinWanted, Shown, Wanted};
use crate::enrol::{JoinRow, JoinTerms, TokenRow, TokenState};

/// Largest file of nodes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

pub(super) async fn run(desk: &Desk, command: TokenCommand, out: Output) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create {
            cluster_id,
            node_id,
            pubkey,
            attestation_key,
            from_file,
            expires,
        } => {
            let file = match (&from_file, cluster_id, node_id, pubkey) {
                (Some(path), cluster, ..) => read(path, cluster.as_ref())?,
                (None, Some(cluster_id), Some(node_id), Some(pubkey)) => csv::File {
                    wanted: vec![Wanted {
                        cluster_id,
                        node_id,
                        pubkey,
                        attestation_key,
                    }],
                    names_clusters: false,
                },
                _ => bail!("name --cluster-id, --node-id and --pubkey, or --from-file"),
            };
            let csv::File {
                wanted,
                names_clusters,
            } = file;
            let tokens = desk.make_tokens(&wanted, expires.as_secs()).await?;
            let made = wanted.iter().zip(&tokens);
            if !out.is_text() {
                let made: Vec<_> = made
                    .map(|(w, t)| json!({ "cluster_id": w.cluster_id, "node_id": w.node_id, "token": t }))
                    .collect();
                return out.value(&made);
            }
            for (one, token) in made {
                match &from_file {
                    Some(_) => line(&csv::made(one, token, names_clusters))?,
                    None => line(token)?,
                }
            }
            Ok(())
        }
        TokenCommand::Join {
            cluster_id,
            uses,
            range,
            approval,
            expires,
        } => {
            let terms = JoinTerms {
                uses,
                ranges: range,
                approval,
            };
            let wanted = JoinWanted { cluster_id, terms };
            let token = desk.make_join_token(wanted, expires.as_secs()).await?;
            out.done(&token, &json!({ "token": token }))
        }
        TokenCommand::List => list(&desk.tokens().await?, out),
        TokenCommand::JoinList => list_joins(&desk.join_tokens().await?, out),
        TokenCommand::Waiting => {
            let head = ["CLUSTER", "NODE", "PUBLIC KEY", "HOST NAME"];
            out.list(&desk.waiting().await?, &head, |w| {
                vec![
                    w.cluster_id.to_string(),
                    w.node_id.to_string(),
                    w.public_key.clone(),
                    w.hostname.clone().unwrap_or_else(|| "-".to_owned()),
                ]
            })
        }
        TokenCommand::Approve(who) => {
            desk.approve(&who).await?;
            let node = &who.whose.node_id;
            out.done(
                &format!("node {node} may register"),
                &json!({ "node_id": node, "approved": true }),
            )
        }
        TokenCommand::Reject(who) => {
            let key = desk.reject(&who).await?;
            let node = &who.whose.node_id;
            out.done(
                &format!("the key {key} is refused as node {node}"),
                &json!({ "node_id": node, "public_key": key, "rejected": true }),
            )
        }
        TokenCommand::Revoke { jti } => {
            let sent = desk.revoke_token(&jti).await?;
            let text = if sent {
                format!(
                    "token {jti} is revoked, but its registration is in a transaction already: the node gets no \
                     certificate; if it appears on chain, deregister it"
                )
            } else {
                format!("token {jti} is revoked")
            };
            out.done(&text, &json!({ "jti": jti, "registration_is_sent": sent }))
        }
    }
}

fn read(path: &Path, cluster: Option<&ClusterId>) -> anyhow::Result<csv::File> {
    let name = || path.display().to_string();
    let size = std::fs::metadata(path).with_context(name)?.len();
    if size > MAX_FILE_BYTES {
        bail!(
            "{} has more than {MAX_FILE_BYTES} bytes; split it",
            path.display()
        );
    }
    let text = std::fs::read_to_string(path).with_context(name)?;
    csv::parse(&text, cluster).with_context(name)
}

fn word(state: TokenState) -> String {
    format!("{state:?}").to_lowercase()
}

fn list(tokens: &[Shown<TokenRow>], out: Output) -> anyhow::Result<()> {
    let head = ["ID", "STATE", "CLUSTER", "NODE", "EXPIRES"];
    out.list(tokens, &head, |t| {
        vec![
            t.token.jti.clone(),
            word(t.state),
            t.token.cluster_id.to_string(),
            t.token.node_id.to_string(),
            t.token.expires_at.to_string(),
        ]
    })
}

fn list_joins(tokens: &[Shown<JoinRow>], out: Output) -> anyhow::Result<()> {
    let head = ["ID", "STATE", "CLUSTER", "USED", "RANGES", "APPROVAL", "EXPIRES"];
    out.list(tokens, &head, |t| {
        let token = &t.token;
        let ranges = match token.ranges.as_slice() {
            [] => "any".to_owned(),
            some => some.join(" "),
        };
        vec![
            token.jti.clone(),
            word(t.state),
            token.cluster_id.to_string(),
            format!("{}/{}", token.used, token.uses),
            ranges,
            if token.approval { "yes" } else { "no" }.to_owned(),
            token.expires_at.to_string(),
        ]
    })
}
