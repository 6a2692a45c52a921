//! What can go wrong between us and an endpoint.

use reqwest::Url;

use crate::code::Class;

/// A failed call. Answers of the chain itself (a refused transaction, a failed query) are no errors here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The endpoint's address is not an http(s) URL.
    #[error("{url}: not a node's RPC address; give e.g. http://127.0.0.1:26657")]
    Url {
        /// As it was given, without credentials.
        url: String,
    },
    /// No connection.
    #[error("{endpoint}: cannot be reached ({reason}); check the address and that the node runs")]
    Unreachable {
        /// Which endpoint.
        endpoint: String,
        /// Why, in the transport's words.
        reason: String,
    },
    /// The connection broke before the answer was there.
    #[error("{endpoint}: the connection broke before the answer to {method} was there ({reason})")]
    Broken {
        /// Which endpoint.
        endpoint: String,
        /// Which call.
        method: &'static str,
        /// Why, in the transport's words.
        reason: String,
    },
    /// No answer in time.
    #[error("{endpoint}: no answer to {method} within {millis} ms")]
    Timeout {
        /// Which endpoint.
        endpoint: String,
        /// Which call.
        method: &'static str,
        /// The deadline.
        millis: u64,
    },
    /// The answer is larger than allowed.
    #[error("{endpoint}: the answer to {method} is larger than {limit} bytes")]
    TooLarge {
        /// Which endpoint.
        endpoint: String,
        /// Which call.
        method: &'static str,
        /// The bound.
        limit: usize,
    },
    /// Not the answer of a CometBFT node.
    #[error("{endpoint}: unreadable answer to {method}: {reason}")]
    Malformed {
        /// Which endpoint.
        endpoint: String,
        /// Which call.
        method: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A JSON-RPC error.
    #[error("{endpoint}: {method}: {message} ({code}): {data}")]
    Response {
        /// Which endpoint.
        endpoint: String,
        /// Which call.
        method: &'static str,
        /// JSON-RPC code.
        code: i64,
        /// Its message.
        message: String,
        /// Its data: where CometBFT writes the reason.
        data: String,
    },
    /// The endpoint is of another chain.
    #[error("{endpoint}: is of chain {found:?}, not of {wanted:?}; correct its address or the chain id")]
    WrongChain {
        /// Which endpoint.
        endpoint: String,
        /// What it says.
        found: String,
        /// What was expected.
        wanted: String,
    },
    /// The endpoint has not reached the height that the answer must be of.
    #[error("{endpoint}: {}", behind(*height, *wanted))]
    Behind {
        /// Which endpoint.
        endpoint: String,
        /// Height of its answer; 0: it has no block yet, or does not say.
        height: u64,
        /// The lowest that will do; 0: it lacks what was asked for, at whatever height.
        wanted: u64,
    },
    /// The node came up and has seen no block since: it answers, but can execute nothing yet.
    #[error("{endpoint}: has seen no block since it came up; wait for its first one")]
    NotReady {
        /// Which endpoint.
        endpoint: String,
    },
    /// The node has no service that answers this question; another one may have it.
    #[error(
        "{endpoint}: has no service for this question; switch on grpc.enable or api.enable in its app.toml"
    )]
    NoService {
        /// Which endpoint.
        endpoint: String,
    },
    /// The node keeps this no more, or never did: asking it again is of no use, another one may have it.
    #[error("{endpoint}: does not keep {what} ({reason}){}; name a node that does", beside(.unheard))]
    NotKept {
        /// Which endpoint.
        endpoint: String,
        /// What it lacks.
        what: &'static str,
        /// Why, in its words.
        reason: String,
        /// Those that may keep it and did not say: they refuse, are behind, or gave no answer for so long
        /// that nobody waits for them.
        unheard: Vec<String>,
    },
    /// The request is larger than the endpoint takes.
    #[error("{endpoint}: takes no request of this size to {method}; raise rpc.max_body_bytes of the node")]
    RequestTooLarge {
        /// Which endpoint.
        endpoint: String,
        /// Which call.
        method: &'static str,
    },
    /// More addresses than a process keeps apart.
    #[error("too many changes of addresses for one process; restart it")]
    TooMany,
    /// No endpoint is configured.
    #[error("no RPC endpoint is configured; set --node or chain.endpoints")]
    NoEndpoint,
}

impl RpcError {
    /// Whether another endpoint, or a later try, may do better.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::Timeout { .. }
            | Self::Malformed { .. }
            | Self::WrongChain { .. }
            | Self::Behind { .. }
            | Self::NotReady { .. }
            | Self::NoService { .. }
            | Self::NotKept { .. } => Class::Transient,
            Self::Response { .. } | Self::TooLarge { .. } | Self::RequestTooLarge { .. } => Class::Rejected,
            Self::Url { .. } | Self::TooMany | Self::NoEndpoint => Class::Fatal,
        }
    }

    /// The endpoints that may keep what the others do not ([`Self::NotKept`]), and did not say.
    #[must_use]
    pub fn unheard(&self) -> &[String] {
        match self {
            Self::NotKept { unheard, .. } => unheard,
            _ => &[],
        }
    }

    /// Whether no node of the chain has answered.
    pub(super) fn is_silence(&self) -> bool {
        self.unanswered().is_some() || matches!(self, Self::Unreachable { .. } | Self::WrongChain { .. })
    }

    /// The method that was not answered, by an endpoint that may answer others.
    pub(super) fn unanswered(&self) -> Option<&'static str> {
        match self {
            Self::Broken { method, .. } | Self::Timeout { method, .. } | Self::Malformed { method, .. } => {
                Some(*method)
            }
            _ => None,
        }
    }
}

fn behind(height: u64, wanted: u64) -> String {
    match (height, wanted) {
        (_, 0) => "does not have this (yet, or any more)".to_owned(),
        (0, _) => {
            format!(
                "has no block yet, or does not say which, and the answer must be of height {wanted} or above"
            )
        }
        _ => format!("is at height {height}, and the answer must be of {wanted} or above"),
    }
}

fn beside(unheard: &[String]) -> String {
    if unheard.is_empty() {
        return String::new();
    }
    format!(
        ", and {} did not say: without an answer for five minutes, behind, or refusing",
        unheard.join(", ")
    )
}

/// The reason in a JSON-RPC error: CometBFT writes it into the data, others into the message.
pub(crate) fn reason(message: String, data: String) -> String {
    if data.is_empty() { message } else { data }
}

/// An address without user, password, query and fragment: keys of hosted nodes stand there.
pub(super) fn redact(url: &str) -> String {
    match Url::parse(url) {
        Ok(u) => match (u.host_str(), u.port()) {
            (Some(host), Some(port)) => format!("{}://{host}:{port}", u.scheme()),
            (Some(host), None) => format!("{}://{host}", u.scheme()),
            (None, _) => format!("{}:", u.scheme()),
        },
        Err(_) => url
            .chars()
            .take_while(|c| !matches!(c, '@' | '?'))
            .take(64)
            .collect(),
    }
}

/// An error with its causes: reqwest's own text hides them. The URL is left out, it may hold a key.
pub(crate) fn causes(e: &dyn std::error::Error) -> String {
    let mut parts = Vec::new();
    let mut source = e.source();
    while let Some(cause) = source {
        parts.push(cause.to_string());
        source = cause.source();
    }
    if parts.is_empty() {
        "transport error".to_owned()
    } else {
        parts.join(": ")
    }
}
