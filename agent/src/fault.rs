//! Named crash points. In a build with the feature `fault-injection`, `VIRTENGINE_AGENT_FAULT=<step>` makes the process
//! SIGKILL itself at that step; in a release they are nothing.

/// The steps of a registration that takes the place of another, in their order.
pub const STEPS: &[&str] = &[
    "rotate.prepared",
    "rotate.signed",
    "register.answered",
    "register.certified",
    "register.saved",
    "rotate.registered",
    "rotate.promoted",
    "adopt.saved",
    "adopt.promoted",
];

/// The steps of an ordered update, in their order.
pub const UPDATE: &[&str] = &[
    "update.fetched",
    "update.half",
    "update.put",
    "update.tried",
    "update.turned",
    "update.counted",
    "update.started",
    "update.proven",
    "update.tidied",
];

/// Dies here if the environment says so.
#[cfg(feature = "fault-injection")]
pub fn point(step: &'static str) {
    debug_assert!(
        STEPS.contains(&step) || UPDATE.contains(&step),
        "{step} is in no list"
    );
    if std::env::var("VIRTENGINE_AGENT_FAULT").is_ok_and(|wanted| wanted == step) {
        // As hard as a power cut of the process: no destructor runs, nothing is flushed.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
        loop {
            std::thread::park();
        }
    }
}

/// `timing` in a hurry: with `VIRTENGINE_AGENT_SHORTEST_MS` between heartbeats where the gateway asks for less, so that a
/// test sees hundreds in a second.
#[cfg(feature = "fault-injection")]
#[must_use]
pub fn hurried(timing: crate::run::Timing) -> crate::run::Timing {
    let shortest = std::env::var("VIRTENGINE_AGENT_SHORTEST_MS").ok();
    match shortest.and_then(|ms| ms.parse().ok()) {
        Some(ms) => crate::run::Timing {
            shortest_interval: std::time::Duration::from_millis(ms),
            ..timing
        },
        None => timing,
    }
}

/// As it is, in a build without fault injection.
#[cfg(not(feature = "fault-injection"))]
#[must_use]
pub fn hurried(timing: crate::run::Timing) -> crate::run::Timing {
    timing
}

/// Nothing, in a build without fault injection.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub fn point(_step: &'static str) {}

/// Dies at the n-th time that any such step is passed, for `VIRTENGINE_AGENT_FAULT=<step>:<n>`; n counts from 1.
#[cfg(feature = "fault-injection")]
pub fn counted(step: &'static str) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let wanted = std::env::var("VIRTENGINE_AGENT_FAULT").ok();
    let Some(n) = wanted
        .as_deref()
        .and_then(|w| w.strip_prefix(step)?.strip_prefix(':')?.parse::<u64>().ok())
    else {
        return;
    };
    if PASSED.fetch_add(1, Ordering::AcqRel).saturating_add(1) == n {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
        loop {
            std::thread::park();
        }
    }
}

/// Whether the phase is to fail here, for `VIRTENGINE_AGENT_FAULT=fails:<phase>`; dies here for `dies:<phase>`.
#[cfg(feature = "fault-injection")]
#[must_use]
pub fn phase(name: &str) -> bool {
    let wanted = std::env::var("VIRTENGINE_AGENT_FAULT").unwrap_or_default();
    match wanted.split_once(':') {
        Some(("fails", phase)) => phase == name,
        Some(("dies", phase)) if phase == name => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
            loop {
                std::thread::park();
            }
        }
        _ => false,
    }
}

/// Nothing, in a build without fault injection.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
#[must_use]
pub fn phase(_name: &str) -> bool {
    false
}

/// Nothing, in a build without fault injection.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub fn counted(_step: &'static str) {}
