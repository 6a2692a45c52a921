//! A real Slurm, seen by the agent's probes and told by heartbeats and chain. Needs Debian's slurm-wlm and munge.

mod probe;
mod rights;
mod story;
