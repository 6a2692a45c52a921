//! A real Slurm, seen by the agent's probes and told by heartbeats and chain. Needs Debian's slurm-wlm, munge, slurmdbd and MariaDB, and root.

mod accounts;
mod probe;
mod rights;
mod story;
