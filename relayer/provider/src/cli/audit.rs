use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail};
use hpc_chain::query::QueryError;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::registry::AnchorView;
use hpc_schema::time::UnixSeconds;
use serde::Serialize;

use super::args::AuditCommand;
use super::desk::Desk;
use super::output::{Output, line};
use crate::admin::Admin;
use crate::audit::{self, Chain, Checked, Row};
use crate::daemon::client;
use crate::registry;

/// Largest exported log that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// Anchors that are asked for at once.
const PAGE: u32 = 100;

/// What was found.
#[derive(Debug, Serialize)]
struct Verified {
    rows: u64,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<Checked>,
}

pub(super) async fn run(desk: &Desk, command: AuditCommand, out: Output) -> anyhow::Result<()> {
    match command {
        AuditCommand::List { limit } => {
            let mut rows = desk.audit_newest(limit).await?;
            rows.reverse();
            let head = ["ROW", "AT", "WHO", "ROLE", "VIA", "ACT", "TARGET", "RESULT"];
            out.list(&rows, &head, |r| {
                vec![
                    r.seq.to_string(),
                    UnixSeconds(r.at / 1000).to_string(),
                    r.actor.clone(),
                    r.role.clone(),
                    r.via.clone(),
                    r.action.clone(),
                    r.target.clone(),
                    r.result.clone(),
                ]
            })
        }
        AuditCommand::Export { mut after } => loop {
            let rows = desk.audit(after).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.seq;
            for row in &rows {
                line(&serde_json::to_string(row)?)?;
            }
        },
        AuditCommand::Verify {
            file,
            chain,
            anchored_by,
        } => {
            let here = match desk {
                Desk::Here(admin, _) => Some(&**admin),
                Desk::There(_) => None,
            };
            let mut rows = Vec::new();
            let end = match (&file, here) {
                (Some(path), _) => follow(path, &mut rows)?,
                (None, Some(admin)) => {
                    audit::verify(admin.store.reader(), |row| rows.push(row.clone())).await??
                }
                (None, None) => fetched(desk, &mut rows).await?,
            };
            let checked = match here {
                _ if !chain => None,
                Some(admin) => {
                    let mut ours = anchored_by;
                    ours.push(admin.operator_address()?);
                    Some(audit::check(&anchors(admin).await?, &ours, rows.iter()))
                }
                None => {
                    bail!("--chain is for the gateway's own machine, whose configuration names the chain")
                }
            };
            let verified = Verified {
                rows: end.seq,
                digest: hex::encode(end.digest),
                chain: checked,
            };
            out.value(&verified)?;
            let nothing = verified.chain.as_ref().is_some_and(|c| c.anchors == 0);
            match verified.chain.map_or(0, |c| c.missing.len()) {
                0 if nothing => bail!(
                    "the chain has no anchor of this operator key in these clusters, so nothing was compared; name a former key \
                     with --anchored-by, and the clusters in chain.clusters"
                ),
                0 => Ok(()),
                n => bail!(
                    "{n} digests that were anchored on chain are not in this log: it was cut off or written anew"
                ),
            }
        }
    }
}

/// The rows that a listener gives, followed from the first.
async fn fetched(desk: &Desk, rows: &mut Vec<Row>) -> anyhow::Result<Chain> {
    let mut chain = Chain::default();
    loop {
        let page = desk.audit(chain.seq).await?;
        if page.is_empty() {
            return Ok(chain);
        }
        for row in page {
            chain.follow(&row)?;
            rows.push(row);
        }
    }
}

/// The rows of an exported log, followed from the first.
fn follow(path: &Path, rows: &mut Vec<Row>) -> anyhow::Result<Chain> {
    let name = || path.display().to_string();
    if std::fs::metadata(path).with_context(name)?.len() > MAX_FILE_BYTES {
        bail!("{} has more than {MAX_FILE_BYTES} bytes", path.display());
    }
    let text = std::fs::read_to_string(path).with_context(name)?;
    let mut chain = Chain::default();
    for (number, text) in (1..).zip(text.lines()) {
        let row: Row =
            serde_json::from_str(text).with_context(|| format!("{}: line {number}", path.display()))?;
        chain.follow(&row).with_context(name)?;
        rows.push(row);
    }
    Ok(chain)
}

/// Every anchor of this kind in the clusters of this store.
async fn anchors(desk: &Admin) -> anyhow::Result<Vec<AnchorView>> {
    desk.config.require_chain()?;
    let client = client(&desk.config)?;
    let mut all = Vec::new();
    // The store may be what was written anew: what the configuration names is asked as well.
    let stored = registry::clusters(desk.store.reader()).await?;
    let stored = stored.into_iter().map(|c| c.cluster_id);
    let clusters: BTreeSet<ClusterId> = stored.chain(desk.config.chain.clusters.iter().cloned()).collect();
    for cluster in clusters {
        let mut after = None;
        loop {
            let kind = Some(audit::KIND.to_owned());
            let asked = client.anchors(cluster.clone(), kind, after, Some(PAGE)).await;
            // A closed cluster has none any more.
            if let Err(QueryError::Contract {
                code: Some(Code::UnknownCluster),
                ..
            }) = &asked
            {
                break;
            }
            let page = asked.with_context(|| format!("the anchors of cluster {cluster}"))?;
            all.extend(page.value.anchors);
            after = page.value.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(all)
}
