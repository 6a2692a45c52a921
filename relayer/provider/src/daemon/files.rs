use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// Files beside connections: store, logs, the chain, the admin listener.
const OTHER_FILES: u64 = 512;

/// Raises the limit of open files as far as the system allows, so that every connection that the configuration
/// promises can be had; says so if it cannot.
pub(super) fn raise_limit(config: &Config) {
    let limits = &config.gateway;
    let connections = limits.max_connections.saturating_add(limits.max_anonymous);
    let wanted = u64::try_from(connections)
        .unwrap_or(u64::MAX)
        .saturating_add(OTHER_FILES);
    let now = getrlimit(Resource::Nofile);
    let current = now.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return;
    }
    let next = now.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(next),
            maximum: now.maximum,
        },
    );
    let has = if raised.is_ok() { next } else { current };
    if has < wanted {
        tracing::warn!(
            limit = has,
            wanted,
            "not all configured connections can be open at once; raise LimitNOFILE or lower gateway.max_connections"
        );
    }
}
