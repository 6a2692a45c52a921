//! Key, token, registration.

use std::net::IpAddr;

use hpc_schema::code::Code;

use super::Check;
use crate::config::Config;
use crate::files::FileError;
use crate::probe::host;
use crate::register::{examine, same_node};
use crate::state::Registration;

/// The key: there, private, a key.
pub(super) fn key(config: &Config) -> Check {
    match crate::key::describe(&config.key_path) {
        Ok((public, place)) => Check::good("key", format!("{public}, {place}")),
        Err(e) => Check::wrong(
            "key",
            format!("agent.key_path: {e}"),
            "virtengine-node-agent keygen makes one",
        ),
    }
}

/// The registration, and whether it is this key's.
pub(super) fn registered(config: &Config, found: Result<&Option<Registration>, &FileError>) -> Check {
    let code = "registered";
    let registration = match found {
        Ok(Some(r)) => r,
        Ok(None) if config.token.is_some() => {
            return Check::skipped(code, "not yet; there is a token to do it with");
        }
        Ok(None) => {
            let why = config.token_file_missing.as_ref().map_or_else(
                || "there is no token to do it with".to_owned(),
                |path| {
                    format!(
                        "{} (agent.registration_token_file) does not exist",
                        path.display()
                    )
                },
            );
            return Check::wrong(
                code,
                format!("this node is not registered, and {why}"),
                "virtengine-provider node-token create --pubkey …, then agent.registration_token_file",
            );
        }
        Err(e) => return Check::wrong(code, e, "run doctor as root, or register again"),
    };
    if let Err(e) = same_node(config, registration) {
        let code = Code::IdentityMismatch;
        return Check::wrong(code.as_str(), e, "until then run does not start");
    }
    match crate::key::describe(&config.key_path) {
        Ok((public, _)) if public != registration.public_key => Check::wrong(
            Code::KeyMismatch.as_str(),
            format!(
                "agent.key is not the key that was registered ({})",
                registration.public_key
            ),
            "put the registered key back, or register again: virtengine-provider node-token create --pubkey …",
        ),
        _ => Check::good(
            code,
            format!(
                "{} in cluster {}, epoch {}",
                registration.node_id, registration.cluster_id, registration.epoch
            ),
        ),
    }
}

/// The token, if it is needed: for this key, node and cluster, and not expired.
pub(super) fn token(config: &Config, registered: Option<&Registration>, unix: u64) -> Check {
    let code = "token";
    let Some(token) = &config.token else {
        return Check::skipped(code, "none");
    };
    let Ok((public, _)) = crate::key::describe(&config.key_path) else {
        return Check::skipped(code, "without a key nothing can be said of it");
    };
    let host = host::hostname(&config.roots);
    let claims = match examine(token, config, &public, host.as_deref()) {
        Ok(claims) => claims,
        Err(refusal) if registered.is_some() => {
            return Check::note(
                code,
                format!("of no use here: {refusal}"),
                "the node is registered: take agent.registration_token away",
            );
        }
        Err(refusal) => return Check::wrong(refusal.code.as_str(), &refusal, refusal.code.remedy()),
    };
    if registered.is_some_and(|r| r.jti == claims.jti) {
        return Check::good(code, "used; it can be taken away");
    }
    if unix >= claims.expires_at {
        let late = unix.saturating_sub(claims.expires_at);
        return Check::wrong(
            Code::TokenExpired.as_str(),
            format!("the registration token expired {late} s ago"),
            Code::TokenExpired.remedy(),
        );
    }
    Check::good(
        code,
        format!(
            "for {}, valid for {} s",
            claims.node_id,
            claims.expires_at.saturating_sub(unix)
        ),
    )
}

/// Peers ask the port that the gateway was told at registration, whatever the configuration says since.
pub(super) fn probe_port(config: &Config, registered: Option<&Registration>) -> Check {
    let code = "probe_port";
    let Some(told) = registered.and_then(|r| r.probe_port) else {
        return Check::skipped(code, "nothing is known of what the gateway was told");
    };
    let shown = |port: u16| match port {
        0 => "none".to_owned(),
        port => format!("UDP {port}"),
    };
    let ours = config.responder.port.unwrap_or(0);
    if told == ours {
        return Check::good(code, format!("{}, as registered", shown(ours)));
    }
    Check::wrong(
        "probe_port_changed",
        format!(
            "probe.port is {}, and the gateway names {} to peers, as registered: they do not measure this node",
            shown(ours),
            shown(told)
        ),
        format!(
            "register again (virtengine-provider node-token create --pubkey …), or set probe.port back to {told}"
        ),
    )
}

/// Peers ask at the address that the gateway was told at registration, too.
pub(super) fn probe_address(config: &Config, registered: Option<&Registration>) -> Check {
    let code = "probe_address";
    // Whoever answers no probes has no use for an address.
    let told = registered.filter(|r| r.probe_port.is_some_and(|port| port > 0));
    let (Some(told), Some(_)) = (told.map(|r| r.probe_address), config.responder.port) else {
        return Check::skipped(
            code,
            "nothing is known of what the gateway was told, or no probes are answered",
        );
    };
    let ours = config.responder.advertised;
    let shown = |address: Option<IpAddr>| {
        address.map_or_else(
            || "the one that this node reports from".to_owned(),
            |a| a.to_string(),
        )
    };
    if told == ours {
        return Check::good(code, format!("{}, as registered", shown(ours)));
    }
    let back = told.map_or_else(
        || "take probe.advertise_address away".to_owned(),
        |told| format!("set probe.advertise_address back to {told}"),
    );
    Check::wrong(
        "probe_address_changed",
        format!(
            "the address for probes is {}, and the gateway names {} to peers, as registered",
            shown(ours),
            shown(told)
        ),
        format!("register again (virtengine-provider node-token create --pubkey …), or {back}"),
    )
}

/// Heartbeats must leave before the node counts as stale.
pub(super) fn interval(config: &Config, registered: Option<&Registration>) -> Check {
    let code = "interval_not_below_timeout";
    let interval = config.sampling.base_interval.as_secs();
    let timeout = registered.map_or_else(
        || hpc_schema::registry::Params::default().heartbeat_timeout,
        |r| r.params.heartbeat_timeout,
    );
    if interval < u64::from(timeout) {
        Check::good("interval", format!("every {interval} s; stale after {timeout} s"))
    } else {
        Check::wrong(
            code,
            format!("sampling.base_interval is {interval} s, and a node counts as stale after {timeout} s"),
            format!("set it below {timeout}s"),
        )
    }
}
