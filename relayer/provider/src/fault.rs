//! Named crash points. In a build with the feature `fault-injection`, `VIRTENGINE_FAULT=<step>` makes the
//! process SIGKILL itself at that step, `<step>:<n>` at the n-th time; in a release they are nothing.

/// Every step between admission and settlement, in the order in which a report passes them.
pub const STEPS: &[&str] = &[
    "admit.verified",
    "spool.written",
    "spool.applying",
    "spool.applied",
    "spool.committed",
    "settle.submitted",
    "settle.planned",
    "settle.signed",
    "settle.persisting",
    "settle.persisted",
    "settle.broadcasting",
    "settle.broadcast",
    "settle.found",
    "settle.ended",
    "settle.outcomes",
    "settle.settling",
    "settle.settled",
];

/// Every step of what is done beside it: the chain's events, alerts, a new task key, a new token key.
pub const ASIDE: &[&str] = &[
    "events.written",
    "events.committed",
    "alert.queued",
    "alert.sent",
    "task_key.drawn",
    "task_key.on_chain",
    "task_key.recorded",
    "task_key.resumed",
    "token_key.drawn",
    "token_key.recorded",
    "token_key.promoted",
];

/// Dies here if the environment says so.
#[cfg(feature = "fault-injection")]
pub fn point(step: &'static str) {
    use std::sync::atomic::{AtomicU64, Ordering};

    static PASSED: AtomicU64 = AtomicU64::new(0);
    debug_assert!(
        STEPS.contains(&step) || ASIDE.contains(&step),
        "{step} is not listed"
    );
    let Ok(wanted) = std::env::var("VIRTENGINE_FAULT") else {
        return;
    };
    let (name, times) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    if name == step && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == times.parse().unwrap_or(1) {
        // As hard as a power cut of the process: no destructor runs, nothing is flushed.
        let killed = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        debug_assert!(killed.is_ok(), "a process may kill itself");
        loop {
            std::thread::park();
        }
    }
}

/// Nothing, in a build without fault injection.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub fn point(_step: &'static str) {}
