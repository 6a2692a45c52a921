//! Section `probe` of the file: latency probes between agents.

use std::net::IpAddr;

use hpc_schema::gateway::is_probe_address;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::bounds::refuse;

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
    /// IP address that peers are told, none of IPv6's `fe80::/10`; default: the one that this node reports from. The gateway learns it at registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise_address: Option<IpAddr>,
}

/// Where this agent answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponderConfig {
    /// UDP port; none: it does not answer.
    pub port: Option<u16>,
    /// Address; none: all.
    pub address: Option<IpAddr>,
    /// The address that peers are told; none: the one that the gateway sees.
    pub advertised: Option<IpAddr>,
}

impl ResponderConfig {
    /// What its socket is bound to: address and port.
    #[must_use]
    pub fn bound(&self) -> (Option<IpAddr>, Option<u16>) {
        (self.address, self.port)
    }
}

pub(super) fn resolve(probe: &Probe) -> Result<ResponderConfig, ConfigError> {
    let port = probe.port.unwrap_or(DEFAULT_PROBE_PORT);
    if let Some(address) = probe.advertise_address.filter(|a| !is_probe_address(*a)) {
        return Err(refuse(
            "probe.advertise_address",
            format_args!(
                "{address} is unspecified, multicast, broadcast or link-local: name the one that peers reach, or leave the key out"
            ),
        ));
    }
    Ok(ResponderConfig {
        port: (port > 0).then_some(port),
        address: probe.address,
        advertised: probe.advertise_address,
    })
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
            "probe: {advertise_address: node7}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        // To listen on all is one thing, to be asked there another.
        for good in ["198.51.100.7", "2001:db8::7", "127.0.0.1"] {
            let config = read(&format!("probe: {{address: '::', advertise_address: '{good}'}}")).unwrap();
            assert_eq!(config.advertised, Some(good.parse().unwrap()));
            assert_eq!(config.bound(), (Some("::".parse().unwrap()), Some(9461)));
        }
        for bad in [
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "fe80::7",
            "255.255.255.255",
        ] {
            let e = read(&format!("probe: {{advertise_address: '{bad}'}}")).unwrap_err();
            assert!(
                e.starts_with("probe.advertise_address: ")
                    && e.contains(bad)
                    && e.contains("name the one that peers reach"),
                "{e}"
            );
        }
    }
}
