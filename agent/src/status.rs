//! Whether the agent is well, from what it last wrote down. Pure.

use std::fmt;

use hpc_schema::code::Code;
use hpc_schema::node::NodeState;
use schemars::JsonSchema;
use serde::Serialize;

use crate::state::Status;

/// The gateway's clock and ours may differ by this before it is worth a word; the protocol allows a minute ahead.
pub const SKEW_MS: u64 = 10_000;

/// After this without news of the node on chain its reports do not get there: by then it counts as offline.
pub const SETTLES_WITHIN: u64 = 300;

/// Something that is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Trouble {
    /// Stable word.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Trouble {
    /// All three.
    pub fn new(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.remedy)
    }
}

/// Health of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Nothing is wrong.
    pub healthy: bool,
    /// What is, with its remedy.
    pub problems: Vec<Trouble>,
}

impl Verdict {
    /// Healthy if there is none.
    #[must_use]
    pub fn of(problems: Vec<Trouble>) -> Self {
        Self {
            healthy: problems.is_empty(),
            problems,
        }
    }
}

/// Judges the last status; `running` says whether an agent holds the state directory.
#[must_use]
pub fn judge(status: Option<&Status>, running: bool, now: u64) -> Verdict {
    let mut problems = Vec::new();
    match status {
        None => problems.push(Trouble::new(
            "never_ran",
            "the agent has not run here yet",
            "start it: virtengine-node-agent run --config …",
        )),
        Some(s) => inspect(s, running, now, &mut problems),
    }
    Verdict::of(problems)
}

fn inspect(s: &Status, running: bool, now: u64, problems: &mut Vec<Trouble>) {
    let mut add =
        |code: &str, message: String, remedy: &str| problems.push(Trouble::new(code, message, remedy));
    if !running {
        let how = if s.stopped_at.is_some() {
            "was stopped"
        } else {
            "is not running (it was killed, or the machine restarted)"
        };
        add(
            "not_running",
            format!("the agent {how}"),
            "start it: systemctl start virtengine-node-agent",
        );
    }
    if let Some(refusal) = &s.last_refusal {
        let what = if s.node_id.is_some() {
            "the last heartbeat"
        } else {
            "the registration"
        };
        let detail = match refusal.message.as_str() {
            "" => String::new(),
            text => format!(" ({text})"),
        };
        add(
            &refusal.code,
            format!("{what} was refused: {}{detail}", refusal.code),
            &refusal.remedy,
        );
    }
    if let Some(reason) = &s.registering {
        if running {
            add(
                "not_registered",
                format!("this node is not registered yet: {reason}"),
                "approval is virtengine-provider node-token approve; the rest the agent tries again by itself",
            );
        }
        return;
    }
    // Three intervals, and the protocol's shortest silence before a node counts as stale.
    let patience = s.interval_seconds.saturating_mul(3).max(60);
    let since = s.last_accepted_at.unwrap_or(s.started_at);
    let silent = now.saturating_sub(since);
    let arrives = running && silent <= patience;
    if running && !arrives {
        let (code, why, remedy) = match &s.last_error {
            Some(e) => (e.code.as_str(), format!(": {}", e.message), e.remedy.as_str()),
            None => ("silent", String::new(), "see the agent's log"),
        };
        add(
            code,
            format!("no heartbeat was accepted for {silent} s{why}"),
            remedy,
        );
    }
    if let Some(skew) = s.clock_skew_ms.filter(|ms| ms.unsigned_abs() > SKEW_MS) {
        let way = if skew > 0 { "behind" } else { "ahead of" };
        add(
            "clock_skew",
            format!(
                "this node's clock is {} s {way} the gateway's",
                skew.unsigned_abs() / 1000
            ),
            "synchronise it (NTP)",
        );
    }
    if let Some(timeout) = s
        .heartbeat_timeout
        .filter(|t| s.interval_seconds >= u64::from(*t))
    {
        add(
            "interval_not_below_timeout",
            format!(
                "heartbeats leave every {} s, and the chain counts a node as stale after {timeout} s",
                s.interval_seconds
            ),
            "set sampling.base_interval, and the gateway's interval, below it",
        );
    }
    if arrives {
        on_chain(s, now, &mut add);
    }
    if let Some(c) = s.certificate.as_ref().filter(|c| now >= c.not_after) {
        add(
            "certificate_expired",
            format!("the client certificate has expired ({})", c.path),
            "the agent recovers it once the gateway answers",
        );
    }
    if let Some(health) = s
        .health
        .as_ref()
        .filter(|h| !matches!(h.as_str(), "healthy" | "offline"))
    {
        add(
            "node_health",
            format!("this node reports itself {health}: {}", s.findings.join("; ")),
            "docs/agent-health.md has each finding",
        );
    }
}

/// Heartbeats arrive; what becomes of them on chain.
fn on_chain(s: &Status, now: u64, add: &mut impl FnMut(&str, String, &str)) {
    let Some(chain) = &s.chain else { return };
    let still = now.saturating_sub(s.settled_at.unwrap_or(s.started_at).max(s.started_at));
    let timeout = u64::from(s.heartbeat_timeout.unwrap_or(0));
    if still > SETTLES_WITHIN.max(timeout.saturating_mul(2)) {
        add(
            "no_chain_updates",
            format!(
                "the chain has had no new report of this node for {still} s (the last is {})",
                chain.settled_sequence
            ),
            "check the provider daemon's log and its status",
        );
    } else if chain.node_state == NodeState::Pending && chain.settled_sequence > 0 {
        add(
            Code::ClusterInactive.as_str(),
            "the node is PENDING on chain: its cluster is not active".to_owned(),
            Code::ClusterInactive.remedy(),
        );
    } else if chain.node_state == NodeState::Deregistered {
        add(
            Code::NodeDeregistered.as_str(),
            "the node is deregistered on chain".to_owned(),
            Code::NodeDeregistered.remedy(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{CertificateStatus, ChainView, Problem};

    fn well() -> Status {
        Status {
            started_at: 1000,
            last_accepted_at: Some(2000),
            interval_seconds: 30,
            health: Some("healthy".into()),
            certificate: Some(CertificateStatus {
                path: "c".into(),
                not_after: 5000,
                renew_at: 4000,
            }),
            ..Status::default()
        }
    }

    #[test]
    fn a_running_agent_with_a_recent_heartbeat_is_healthy() {
        assert!(judge(Some(&well()), true, 2090).healthy);
        assert!(!judge(Some(&well()), true, 2091).healthy);
    }

    #[test]
    fn a_registration_that_waits_for_approval_says_so() {
        let mut s = well();
        s.registering = Some("waiting for the operator's approval".into());
        let v = judge(Some(&s), true, 9000);
        assert_eq!(v.problems.len(), 1, "{:?}", v.problems);
        assert!(v.problems[0].to_string().contains("approval"), "{:?}", v.problems);
    }

    #[test]
    fn each_trouble_is_named_with_a_remedy() {
        assert!(judge(None, false, 0).problems[0].remedy.contains("start it"));
        assert!(
            judge(Some(&well()), false, 2000).problems[0]
                .message
                .contains("killed")
        );
        let mut s = well();
        s.last_refusal = Some(Problem {
            at: 1,
            code: "key_mismatch".into(),
            message: String::new(),
            remedy: "re-register".into(),
        });
        s.clock_skew_ms = Some(-70_500);
        s.health = Some("degraded".into());
        s.findings = vec!["cpu_hot: 99".into()];
        let v = judge(Some(&s), true, 5000);
        let all: String = v.problems.iter().map(|p| format!("{p}\n")).collect();
        for word in [
            "key_mismatch",
            "re-register",
            "3000 s",
            "70 s ahead",
            "expired",
            "cpu_hot",
        ] {
            assert!(all.contains(word), "{word} in {all}");
        }
    }

    fn chain(node_state: NodeState, settled_sequence: u32) -> ChainView {
        ChainView {
            node_state,
            settled_sequence,
            height: 1,
            epoch: 1,
            latency_ms: None,
            told_at: None,
        }
    }

    fn codes(s: &Status, now: u64) -> Vec<String> {
        let v = judge(Some(s), true, now);
        v.problems.into_iter().map(|p| p.code).collect()
    }

    #[test]
    fn what_the_chain_makes_of_the_node_is_judged_while_heartbeats_arrive() {
        let mut s = well();
        s.chain = Some(chain(NodeState::Pending, 0));
        s.settled_at = Some(1900);
        assert!(codes(&s, 2050).is_empty());
        s.chain = Some(chain(NodeState::Pending, 7));
        assert_eq!(codes(&s, 2050), ["cluster_inactive"]);
        s.chain = Some(chain(NodeState::Active, 7));
        s.settled_at = Some(1700);
        assert!(codes(&s, 2000).is_empty());
        assert_eq!(codes(&s, 2001), ["no_chain_updates"]);
        // Nothing arrives: that is the trouble, not the chain.
        assert_eq!(codes(&s, 2500), ["silent"]);
        s.settled_at = None;
        s.last_accepted_at = Some(1200);
        assert!(codes(&s, 1250).is_empty(), "a start is no standstill");
    }

    #[test]
    fn an_interval_that_is_not_below_the_timeout_is_told() {
        let mut s = well();
        (s.interval_seconds, s.heartbeat_timeout) = (120, Some(121));
        assert!(codes(&s, 2050).is_empty());
        s.heartbeat_timeout = Some(120);
        assert_eq!(codes(&s, 2050), ["interval_not_below_timeout"]);
    }

    #[test]
    fn a_registration_that_was_refused_is_told_with_its_code() {
        let s = Status {
            started_at: 10,
            registering: Some("sent".into()),
            last_refusal: Some(Problem {
                at: 1,
                code: "token_expired".into(),
                message: "at 5".into(),
                remedy: "make a new one".into(),
            }),
            ..Status::default()
        };
        let v = judge(Some(&s), false, 20);
        let codes: Vec<&str> = v.problems.iter().map(|p| p.code.as_str()).collect();
        assert_eq!(codes, ["not_running", "token_expired"]);
        assert!(
            v.problems[1]
                .to_string()
                .contains("the registration was refused: token_expired (at 5); make")
        );
    }
}
