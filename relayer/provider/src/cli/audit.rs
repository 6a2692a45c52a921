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
    chain: Option<Compared>,
}

/// What the log was compared with.
#[derive(Debug, Serialize)]
struct Compared {
    #[serde(flatten)]
    checked: Checked,
    /// Whose anchors count.
    senders: Vec<String>,
    /// Where they were looked for.
    clusters: BTreeSet<ClusterId>,
}

impl Verified {
    /// For people: what was compared with what.
    fn words(&self) -> String {
        let rows = self.rows;
        let mut lines = vec![match rows {
            0 => "the log has no row".to_owned(),
            _ => format!(
                "rows 1 to {rows} of the log follow one from the other; the digest of row {rows} is {}",
                self.digest
            ),
        }];
        lines.extend(self.chain.iter().flat_map(|c| c.words(rows)));
        lines.join("\n")
    }
}

impl Compared {
    fn words(&self, rows: u64) -> Vec<String> {
        let found = &self.checked;
        let senders = self.senders.join(", ");
        let clusters: Vec<&str> = self.clusters.iter().map(ClusterId::as_str).collect();
        let whose = match clusters.as_slice() {
            [] => format!("of {senders} in no cluster"),
            some => format!("of {senders} in {}", some.join(", ")),
        };
        let (Some(from), Some(to)) = (found.from_height, found.to_height) else {
            return vec![format!("the chain has no anchor {whose}: nothing was compared")];
        };
        let (all, missing) = (found.anchors, found.missing.len());
        let mut lines = vec![format!(
            "{all} digests that the chain has {whose}, anchored at heights {from} to {to}, were compared with those of \
             the rows: {missing} of them are not in the log"
        )];
        lines.extend(
            found
                .missing
                .iter()
                .map(|digest| format!("not in the log: {digest}")),
        );
        if let Some(at) = found.anchored_at {
            let up_to = found.anchored_up_to;
            let since = rows.saturating_sub(up_to);
            lines.push(format!(
                "rows 1 to {up_to} are as they were at {at}, when the last of these was anchored; rows since, not anchored \
                 yet: {since}"
            ));
        }
        lines
    }
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
            let rows = desk.audit(after).await?.items;
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
                    let (clusters, anchors) = anchors(admin).await?;
                    Some(Compared {
                        checked: audit::check(&anchors, &ours, rows.iter()),
                        senders: ours,
                        clusters,
                    })
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
            out.done(&verified.words(), &verified)?;
            let checked = verified.chain.map(|c| c.checked);
            let nothing = checked.as_ref().is_some_and(|c| c.anchors == 0);
            match checked.map_or(0, |c| c.missing.len()) {
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

/// The rows that a listener gives, followed from the first up to where it says that the log ends.
async fn fetched(desk: &Desk, rows: &mut Vec<Row>) -> anyhow::Result<Chain> {
    let mut chain = Chain::default();
    loop {
        let page = desk.audit(chain.seq).await?;
        if page.items.is_empty() {
            page.head.ends(&chain)?;
            return Ok(chain);
        }
        for row in page.items {
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

/// The clusters of this store, and every anchor of this kind in them.
async fn anchors(desk: &Admin) -> anyhow::Result<(BTreeSet<ClusterId>, Vec<AnchorView>)> {
    desk.config.require_chain()?;
    let client = client(&desk.config)?;
    let mut all = Vec::new();
    // The store may be what was written anew: what the configuration names is asked as well.
    let stored = registry::clusters(desk.store.reader()).await?;
    let stored = stored.into_iter().map(|c| c.cluster_id);
    let clusters: BTreeSet<ClusterId> = stored.chain(desk.config.chain.clusters.iter().cloned()).collect();
    for cluster in &clusters {
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
    Ok((clusters, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(checked: Checked) -> String {
        let chain = Compared {
            checked,
            senders: vec!["wasm1ours".to_owned()],
            clusters: ["hpc-cluster-1", "hpc-cluster-2"]
                .map(|c| c.parse::<ClusterId>().unwrap())
                .into(),
        };
        let verified = Verified {
            rows: 120,
            digest: "ab".repeat(32),
            chain: Some(chain),
        };
        verified.words()
    }

    #[test]
    fn a_log_that_is_verified_is_told_with_what_it_was_compared_with() {
        let said = verified(Checked {
            anchors: 7,
            anchored_up_to: 115,
            anchored_at: Some(UnixSeconds(1_769_781_900)),
            from_height: Some(100),
            to_height: Some(4_500),
            missing: Vec::new(),
        });
        for part in [
            "rows 1 to 120 of the log follow one from the other",
            "7 digests that the chain has of wasm1ours in hpc-cluster-1, hpc-cluster-2",
            "at heights 100 to 4500",
            "0 of them are not in the log",
            "rows 1 to 115 are as they were at 2026-01-30T14:05:00Z",
            "not anchored yet: 5",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let cut = verified(Checked {
            anchors: 2,
            from_height: Some(100),
            to_height: Some(200),
            missing: vec!["cd".repeat(32)],
            ..Checked::default()
        });
        assert!(cut.contains("1 of them are not in the log"), "{cut}");
        assert!(
            cut.contains(&format!("not in the log: {}", "cd".repeat(32))),
            "{cut}"
        );
        let nothing = verified(Checked::default());
        assert!(nothing.ends_with("nothing was compared"), "{nothing}");
    }
}
