//! Upkeep that anyone may pay for: stepping silent nodes, removing what is past retention.

pub(crate) mod prune;
pub(crate) mod walk;
