//! `query hpc proof`: how a task ended, by what its node has signed, what the provider's log says of it, and what the
//! chain has of that log.

use std::path::Path;

use hpc_chain::registry::RegistryClient;
use hpc_schema::audit::KIND;
use hpc_schema::key::ZebraVerifier;
use hpc_schema::registry::AnchorView;
use hpc_schema::task::{Proven, TaskProof};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{Exit, Failure};
use crate::file;
use crate::output::{Lines, Printer, Text};

/// Largest file: a result, and rows between two anchors.
const MOST: u64 = 256 << 20;

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    cluster_id: String,
    node_id: String,
    task_id: String,
    #[serde(rename = "type")]
    kind: String,
    outcome: &'static str,
    task_hash: String,
    result_sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cleanup_sha256: Option<String>,
    /// What was looked at after a release, as the node signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cleanup: Option<Value>,
    result_key: String,
    row: u64,
    anchor: AnchorView,
    anchored_row: u64,
    proven: Vec<String>,
    not_proven: Vec<String>,
}

impl Text for Found {
    fn text(&self) -> String {
        let mut lines = Lines::new();
        lines
            .line("cluster", &self.cluster_id)
            .line("node", &self.node_id)
            .line("task", &self.task_id)
            .line("type", &self.kind)
            .line("outcome", self.outcome)
            .line("task_hash", &self.task_hash)
            .line("result_sha256", &self.result_sha256)
            .maybe("cleanup_sha256", self.cleanup_sha256.as_ref())
            .maybe("cleanup", self.cleanup.as_ref())
            .line("result_key", &self.result_key)
            .line("row", self.row)
            .line("anchored_row", self.anchored_row)
            .line("anchored_digest", &self.anchor.digest)
            .line("anchored_by", &self.anchor.sender)
            .line("height", self.anchor.height)
            .line("time", self.anchor.time);
        for what in &self.proven {
            lines.line("proven", what);
        }
        for what in &self.not_proven {
            lines.line("not_proven", what);
        }
        lines.finish()
    }
}

/// Runs the command.
pub(super) async fn run(printer: Printer, registry: &RegistryClient, path: &Path) -> Result<(), Failure> {
    let bytes = file::read(path, MOST)?;
    let proof: TaskProof = serde_json::from_slice(&bytes).map_err(|e| {
        let message = format!("{}: is no task's proof: {e}", path.display());
        Failure::new(Exit::Failed, "proof_unreadable", message)
            .remedy("give the file as virtengine-provider task prove has written it")
    })?;
    let refused = |what: String| {
        Failure::new(
            Exit::Refused,
            "proof_invalid",
            format!("the proof does not hold: {what}"),
        )
        .remedy(
            "check chain and contract that are asked; if they are right, do not rely on the proof, and have it made again: \
             virtengine-provider task prove",
        )
    };
    let found = proof.verify(&ZebraVerifier).map_err(|e| refused(e.to_string()))?;
    if proof.contract != registry.contract() {
        let what = format!(
            "it is of contract {}, asked is {}",
            proof.contract,
            registry.contract()
        );
        return Err(refused(what));
    }
    let digest = found.anchored_digest.clone();
    let answer = registry
        .anchor(proof.cluster_id.clone(), KIND.to_owned(), digest.clone())
        .await?;
    let anchor = answer.value.anchor.ok_or_else(|| {
        refused(format!(
            "its last digest {digest} was never anchored in {}",
            proof.cluster_id
        ))
    })?;
    printer.print(&told(registry, &proof, found, anchor).await?)
}

async fn told(
    registry: &RegistryClient,
    proof: &TaskProof,
    found: Proven,
    anchor: AnchorView,
) -> Result<Found, Failure> {
    let mut proven = vec![
        "the node's key signed this result of this task".to_owned(),
        format!(
            "the log with it was anchored by {} in block {}",
            anchor.sender, anchor.height
        ),
    ];
    let mut not_proven = Vec::new();
    let node = registry
        .node(Some(proof.cluster_id.clone()), proof.node_id.clone())
        .await;
    match node {
        Ok(node) if node.value.node.agent_pubkey == proof.result_key => {
            proven.push("the chain has that key as the node's".to_owned());
        }
        Ok(_) => {
            not_proven.push(
                "the chain has another key of the node by now: it was rotated, or never its".to_owned(),
            );
        }
        Err(e) => not_proven.push(format!("whose key it is: {e}")),
    }
    let cluster = registry.cluster(proof.cluster_id.clone()).await?.value.cluster;
    if cluster.owner == anchor.sender || cluster.operators.contains(&anchor.sender) {
        proven.push("who anchored it owns or operates the cluster".to_owned());
    } else {
        not_proven.push("who anchored it neither owns nor operates the cluster by now".to_owned());
    }
    Ok(Found {
        cluster_id: proof.cluster_id.to_string(),
        node_id: proof.node_id.to_string(),
        task_id: proof.task.task_id.to_string(),
        kind: proof.task.task_type.clone(),
        outcome: proof.result.outcome.as_str(),
        task_hash: found.hash.to_hex(),
        result_sha256: found.digests.result_sha256,
        cleanup_sha256: found.digests.cleanup_sha256,
        cleanup: cleanup(&proof.result.result),
        result_key: proof.result_key.to_base64(),
        row: found.row,
        anchor,
        anchored_row: found.anchored_row,
        proven,
        not_proven,
    })
}

fn cleanup(result: &RawValue) -> Option<Value> {
    let mut all: serde_json::Map<String, Value> = serde_json::from_str(result.get()).ok()?;
    all.remove("cleanup")
}
