//! Section `probe` of the file: latency probes between agents.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where agents answer each other.
pub(super) const DEFAULT_PROBE_PORT: u16 = 9461;

/// Latency probes between agents.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    /// UDP port on which this agent answers; default 9461; 0: it does not answer. The gateway learns it at registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Address on which it answers; default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// Where this agent answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponderConfig {
    /// UDP port; none: it does not answer.
    pub port: Option<u16>,
    /// Address; none: all.
    pub address: Option<IpAddr>,
}

pub(super) fn resolve(probe: &Probe) -> ResponderConfig {
    let port = probe.port.unwrap_or(DEFAULT_PROBE_PORT);
    ResponderConfig {
        port: (port > 0).then_some(port),
        address: probe.address,
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{parse, resolve};

    #[test]
    fn agents_answer_on_the_default_port_unless_told_otherwise() {
        let read = |text: &str| {
            let text = format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{text}");
            let file = parse(&text, std::path::Path::new("f.yaml")).map_err(|e| e.to_string())?;
            resolve(file).map(|c| c.responder).map_err(|e| e.to_string())
        };
        let port = |text: &str| read(text).unwrap().port;
        assert_eq!(
            (port(""), port("probe: {port: 7}"), port("probe: {port: 0}")),
            (Some(9461), Some(7), None)
        );
        let bound = read("probe: {address: '10.0.0.7'}").unwrap();
        assert_eq!(bound.address, Some("10.0.0.7".parse().unwrap()));
        for bad in [
            "probe: {port: 70000}",
            "probe: {ports: 7}",
            "probe: {address: node7}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
