use std::net::SocketAddr;
use std::path::PathBuf;

use hpc_schema::id::ClusterId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// Which chain and contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Chain {
    /// Chain id, as the node's `status` names it.
    pub id: String,
    /// Bech32 address of the registry contract.
    pub contract: String,
    /// CometBFT RPC endpoints, tried in order.
    pub rpc: Vec<String>,
    /// A file with the CAs (PEM) that vouch for `https://` endpoints, for requests and the websocket; without it the
    /// system's do.
    pub ca_file: Option<PathBuf>,
    /// What a unit of gas is paid with, such as `0.025stake`; `0stake` pays nothing.
    pub gas_price: String,
    /// The most that a unit of gas is paid with: the price rises towards it where a node asks for more. Without it the
    /// price is fixed.
    pub gas_price_max: Option<String>,
    /// Address that pays the fees, by a fee grant to each paying key; without it each key pays for itself.
    pub fee_granter: Option<String>,
    /// How long a transaction may live before it is signed anew. Reports are good for five minutes.
    pub tx_lifetime: Span,
    /// Without a new block for so long the chain counts as halted.
    pub halt_after: Span,
    /// How often the chain's height is asked for where no websocket tells it.
    pub poll: Span,
    /// How often parameters, clusters and nodes are read.
    pub sync: Span,
    /// Deadline of one request.
    pub timeout: Span,
    /// Clusters served beside those that tokens were made for.
    pub clusters: Vec<ClusterId>,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            id: String::new(),
            contract: String::new(),
            rpc: vec!["http://127.0.0.1:26657".into()],
            ca_file: None,
            gas_price: "0.025stake".into(),
            gas_price_max: None,
            fee_granter: None,
            tx_lifetime: Span::seconds(90),
            halt_after: Span::seconds(30),
            poll: Span::seconds(1),
            sync: Span::seconds(5),
            timeout: Span::seconds(10),
            clusters: Vec::new(),
        }
    }
}

/// The listener of the agents: TLS 1.3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Address and port.
    pub listen: SocketAddr,
    /// URL that agents reach the gateway under; travels in tokens.
    pub endpoint: Option<String>,
    /// Host names and addresses in the server certificate.
    pub names: Vec<String>,
    /// Open connections of nodes. Beyond, the oldest of the node that has the most goes.
    pub max_connections: usize,
    /// Open connections of one node; beyond, its oldest goes.
    pub max_connections_per_node: usize,
    /// Open connections that have not shown a certificate that counts. Beyond, the oldest of the address that has the most goes.
    pub max_anonymous: usize,
    /// The same of one address (of IPv6 a /64); beyond, its oldest goes.
    pub max_anonymous_per_address: usize,
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
    /// From the first byte of a request to the last byte of its body, and then again to the answer.
    pub request_timeout: Span,
    /// TLS handshake, and the silence allowed to a connection without a certificate that counts.
    pub handshake_timeout: Span,
    /// From the first byte of a request to the end of its head.
    pub header_timeout: Span,
    /// Connections of nodes are closed after this long without a request.
    pub idle_timeout: Span,
    /// Requests a node may make within a minute.
    pub requests_per_minute: u32,
    /// How long a node's certificate counts.
    pub certificate_lifetime: Span,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
            endpoint: None,
            names: vec!["localhost".into(), "127.0.0.1".into()],
            max_connections: 12_000,
            max_connections_per_node: 4,
            max_anonymous: 2_048,
            max_anonymous_per_address: 256,
            max_body_bytes: 65_536,
            request_timeout: Span::seconds(10),
            handshake_timeout: Span::seconds(10),
            header_timeout: Span::seconds(5),
            idle_timeout: Span::seconds(180),
            requests_per_minute: 30,
            certificate_lifetime: Span::seconds(24 * 3600),
        }
    }
}

/// Health, readiness, metrics: plain HTTP, for this machine only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ops {
    /// Address and port.
    pub listen: SocketAddr,
}

impl Default for Ops {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
        }
    }
}

/// The listener of operators: what the command line does, over HTTP with a bearer token each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Address and port; `null` for none. Anything but a loopback address needs `tls`.
    pub listen: Option<SocketAddr>,
    /// TLS 1.3 with the gateway's certificate.
    pub tls: bool,
    /// Requests that one credential may make within a minute.
    pub requests_per_minute: u32,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 9465))),
            tls: false,
            requests_per_minute: 600,
        }
    }
}
