//! Whether the agent is well, from what it last wrote down. Pure.

use crate::state::Status;

/// The gateway's clock and ours may differ by this before it is worth a word; the protocol allows a minute ahead.
pub const SKEW_MS: u64 = 10_000;

/// Health of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Nothing is wrong.
    pub healthy: bool,
    /// What is, with its remedy.
    pub problems: Vec<String>,
}

/// Judges the last status; `running` says whether an agent holds the state directory.
#[must_use]
pub fn judge(status: Option<&Status>, running: bool, now: u64) -> Verdict {
    let mut problems = Vec::new();
    match status {
        None => problems.push(
            "the agent has not run here yet; start it: virtengine-node-agent run --config …".to_owned(),
        ),
        Some(s) => inspect(s, running, now, &mut problems),
    }
    Verdict {
        healthy: problems.is_empty(),
        problems,
    }
}

fn inspect(s: &Status, running: bool, now: u64, problems: &mut Vec<String>) {
    if !running {
        let how = if s.stopped_at.is_some() {
            "was stopped"
        } else {
            "is not running (it was killed, or the machine restarted)"
        };
        problems.push(format!(
            "the agent {how}; start it: systemctl start virtengine-node-agent"
        ));
    }
    if let Some(reason) = s.registering.as_ref().filter(|_| running) {
        problems.push(format!("this node is not registered yet: {reason}"));
        return;
    }
    if let Some(refusal) = &s.last_refusal {
        problems.push(format!(
            "the last heartbeat was refused: {}; {}",
            refusal.code, refusal.remedy
        ));
    }
    // Three intervals, and the protocol's shortest silence before a node counts as stale.
    let patience = s.interval_seconds.saturating_mul(3).max(60);
    let since = s.last_accepted_at.unwrap_or(s.started_at);
    let silent = now.saturating_sub(since);
    if running && silent > patience {
        let why = s
            .last_error
            .as_ref()
            .map_or(String::new(), |e| format!(": {}; {}", e.message, e.remedy));
        problems.push(format!("no heartbeat was accepted for {silent} s{why}"));
    }
    if let Some(skew) = s.clock_skew_ms.filter(|ms| ms.unsigned_abs() > SKEW_MS) {
        let way = if skew > 0 { "behind" } else { "ahead of" };
        problems.push(format!(
            "this node's clock is {} s {way} the gateway's; synchronise it (NTP)",
            skew.unsigned_abs() / 1000
        ));
    }
    if let Some(c) = s.certificate.as_ref().filter(|c| now >= c.not_after) {
        problems.push(format!(
            "the client certificate has expired ({}); the agent recovers it once the gateway answers",
            c.path
        ));
    }
    if let Some(health) = s
        .health
        .as_ref()
        .filter(|h| !matches!(h.as_str(), "healthy" | "offline"))
    {
        problems.push(format!(
            "this node reports itself {health}: {}",
            s.findings.join("; ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{CertificateStatus, Problem};

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
        assert!(v.problems[0].contains("approval"), "{:?}", v.problems);
    }

    #[test]
    fn each_trouble_is_named_with_a_remedy() {
        assert!(judge(None, false, 0).problems[0].contains("start it"));
        assert!(judge(Some(&well()), false, 2000).problems[0].contains("killed"));
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
        let all = v.problems.join("\n");
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
}
