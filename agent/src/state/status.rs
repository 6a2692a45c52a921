use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use hpc_schema::heartbeat::JobId;
use hpc_schema::node::NodeState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{StateDir, read_json};
use crate::command::OrderedDrain;
use crate::files::{Durability, FileError, Replace, at, write};
use crate::health::OutOfService;

/// How the running agent is doing; times are UNIX seconds.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the agent.
    pub agent_version: String,
    /// Its process.
    pub pid: u32,
    /// When it started.
    pub started_at: u64,
    /// The node, once registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// What the registration waits for, while `run` registers the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registering: Option<String>,
    /// The gateway in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// What the last heartbeat said of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// Why it is not healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// When the last heartbeat was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<u64>,
    /// When the last heartbeat was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_accepted_at: Option<u64>,
    /// Its sequence number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_accepted_sequence: Option<u32>,
    /// Heartbeats accepted since the start.
    pub accepted: u64,
    /// Attempts since the start that failed or were refused.
    pub failed: u64,
    /// Attempts that failed in a row.
    pub failures_in_a_row: u32,
    /// The last sequence number sent.
    pub sequence: u32,
    /// The highest that the gateway has stored.
    pub sequence_ack: u64,
    /// The last heartbeat that the gateway has stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Seconds until the next heartbeat, as agreed with the gateway.
    pub interval_seconds: u64,
    /// Round trip of the last heartbeat, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_latency_us: Option<u64>,
    /// When `gateway_latency_us` was measured, by our clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_latency_at: Option<u64>,
    /// The gateway's clock minus ours, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_skew_ms: Option<i64>,
    /// The node on chain, as the gateway reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainView>,
    /// When the chain last had a new report of this node, by our clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<u64>,
    /// Seconds of silence after which the chain counts the node as stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<u32>,
    /// The client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateStatus>,
    /// The last refusal by the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<Problem>,
    /// The last failure to reach it, or of the agent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Problem>,
    /// The provider's drain, while it is in force here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<OrderedDrain>,
    /// What runs here by tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<JobId>,
    /// The provider's last orders, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<OrderStatus>,
    /// The node is out of service by the site's policy of health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<OutOfService>,
    /// Errors and warnings of 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_24h: Option<ErrorCounts>,
    /// Why they are not known, where part of them cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_24h_missing: Option<String>,
    /// Jobs that ended within 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_24h: Option<JobCounts>,
    /// What the gateway has set beyond a limit, and what is in force instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// Collectors that do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck_collectors: Vec<String>,
    /// How long samples are kept, in seconds, as file and gateway have set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_retention_seconds: Option<u64>,
    /// When the agent stopped cleanly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<u64>,
}

/// Errors and warnings of 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCounts {
    /// Errors.
    pub errors: u32,
    /// Warnings.
    pub warnings: u32,
    /// UNIX seconds since which they are counted: a day ago, or later, as after messages that nobody could read.
    pub since: u64,
}

/// Jobs that ended within 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobCounts {
    /// Completed.
    pub completed: u32,
    /// Failed.
    pub failed: u32,
    /// UNIX seconds since which they are counted: a day ago, or later.
    pub since: u64,
}

/// The node as the chain knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChainView {
    /// Effective state.
    pub node_state: NodeState,
    /// Sequence of the last report on chain.
    pub settled_sequence: u32,
    /// The chain's height that the gateway has seen.
    pub height: u64,
    /// Registration epoch.
    pub epoch: u64,
    /// Round trip from the gateway to the chain, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// When the gateway said so, by our clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_at: Option<u64>,
}

/// Proof of a heartbeat: its hash stands in the signed report on chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// Its sequence number.
    pub sequence: u32,
    /// Lower-case hex SHA-256 of the payload.
    pub payload_sha256: String,
    /// When the gateway acknowledged it, by our clock.
    pub accepted_at: u64,
}

/// The client certificate in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateStatus {
    /// The file it came from.
    pub path: String,
    /// Valid until.
    pub not_after: u64,
    /// Renewed from then on.
    pub renew_at: u64,
}

/// An order of the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderStatus {
    /// Its id.
    pub command_id: String,
    /// What was to be done.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it was taken, or ended.
    pub at: u64,
    /// `accepted`, `done`, `failed` or `refused`.
    pub status: String,
    /// Why, or what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// When.
    pub at: u64,
    /// Stable code.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Status {
    /// Reads it; none if the agent never ran here.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn load(state: &StateDir) -> Result<Option<Self>, FileError> {
        // It is written in place: who looks in that very moment looks again.
        for _ in 0..3 {
            if let Ok(status) = read_json(&state.status()) {
                return Ok(status);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        read_json(&state.status())
    }
}

/// The file as the running agent writes it: in place, because a file that is made anew with each heartbeat costs more
/// than measuring, and a write to the disk each time. It is news, not memory.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    file: Option<File>,
    length: usize,
}

/// What is written is padded to a multiple of this: shorter text leaves nothing of longer one behind.
const STEP: usize = 512;

impl StatusFile {
    /// Nothing is opened before the first [`StatusFile::save`].
    #[must_use]
    pub fn new(state: &StateDir) -> Self {
        Self {
            path: state.status(),
            file: None,
            length: 0,
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// IO.
    pub fn save(&mut self, status: &Status) -> Result<(), FileError> {
        let mut json = serde_json::to_vec(status).map_err(|e| at("write", &self.path)(e.into()))?;
        self.put(&mut json)
    }

    /// Writes `json`, a [`Status`] as JSON, and leaves it padded.
    ///
    /// # Errors
    /// IO.
    pub fn put(&mut self, json: &mut Vec<u8>) -> Result<(), FileError> {
        let wanted = json
            .len()
            .saturating_add(1)
            .next_multiple_of(STEP)
            .max(self.length);
        json.resize(wanted.saturating_sub(1), b' ');
        json.push(b'\n');
        // Somebody may have taken the file away meanwhile.
        let file = match self
            .file
            .take()
            .filter(|f| f.metadata().is_ok_and(|m| m.nlink() > 0))
        {
            Some(file) => file,
            None => {
                write(&self.path, json, 0o644, Replace::Yes, Durability::Atomic)?;
                OpenOptions::new()
                    .write(true)
                    .open(&self.path)
                    .map_err(at("open", &self.path))?
            }
        };
        file.write_all_at(json, 0).map_err(at("write", &self.path))?;
        self.length = wanted;
        self.file = Some(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_news_leave_nothing_of_longer_ones_and_a_lost_file_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let mut file = StatusFile::new(&state);
        for findings in [0, 200, 3, 0] {
            let status = Status {
                findings: vec!["finding".to_owned(); findings],
                ..Status::default()
            };
            file.save(&status).unwrap();
            assert_eq!(Status::load(&state).unwrap(), Some(status));
        }
        std::fs::remove_file(state.status()).unwrap();
        file.save(&Status::default()).unwrap();
        assert_eq!(Status::load(&state).unwrap(), Some(Status::default()));
    }
}
