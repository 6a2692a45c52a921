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

/// Dies here if the environment says so.
#[cfg(feature = "fault-injection")]
pub fn point(step: &'static str) {
    debug_assert!(STEPS.contains(&step), "{step} is not in STEPS");
    if std::env::var("VIRTENGINE_AGENT_FAULT").is_ok_and(|wanted| wanted == step) {
        // As hard as a power cut of the process: no destructor runs, nothing is flushed.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
        loop {
            std::thread::park();
        }
    }
}

/// Nothing, in a build without fault injection.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub fn point(_step: &'static str) {}
