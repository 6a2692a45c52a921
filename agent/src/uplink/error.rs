use std::error::Error as _;
use std::time::Duration;

use rustls::{AlertDescription as Alert, CertificateError};

/// What stands behind a failure of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsCause {
    /// The gateway refused our certificate.
    CertificateRefused,
    /// The gateway's certificate is not valid yet, or no more, by our clock.
    Clock,
    /// Unknown CA, wrong name, broken protocol.
    Other,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// No gateway could be reached; the last one's reason.
    #[error("cannot reach {endpoint}: {message}")]
    Connect {
        /// The last gateway tried.
        endpoint: String,
        /// Why.
        message: String,
    },
    /// TLS failed: unknown CA, wrong name, refused certificate.
    #[error("TLS with {endpoint}: {message}")]
    Tls {
        /// The gateway.
        endpoint: String,
        /// Why.
        message: String,
        /// What stands behind it.
        cause: TlsCause,
    },
    /// No answer in time.
    #[error("{endpoint} did not answer within {limit:?}")]
    Timeout {
        /// The gateway.
        endpoint: String,
        /// The limit.
        limit: Duration,
    },
    /// The connection broke on the way.
    #[error("the connection to {endpoint} broke: {message}")]
    Broken {
        /// The gateway.
        endpoint: String,
        /// How.
        message: String,
    },
}

impl UplinkError {
    /// Whether the gateway refused our certificate: it has expired, or was revoked.
    #[must_use]
    pub fn certificate_refused(&self) -> bool {
        matches!(
            self,
            Self::Tls {
                cause: TlsCause::CertificateRefused,
                ..
            }
        )
    }

    /// A stable word for status and logs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "gateway_unreachable",
            Self::Tls { cause, .. } => match cause {
                TlsCause::CertificateRefused => "certificate_refused",
                TlsCause::Clock => "clock_or_certificate",
                TlsCause::Other => "tls_failed",
            },
            Self::Timeout { .. } => "gateway_timeout",
            Self::Broken { .. } => "connection_broken",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Connect { .. } => {
                "check provider_daemon.endpoint, name resolution and firewall; the agent keeps trying"
            }
            Self::Tls { cause, .. } => match cause {
                TlsCause::CertificateRefused => {
                    "the agent recovers its certificate by itself; if it cannot, register again"
                }
                TlsCause::Clock => {
                    "the gateway's certificate is not valid at this node's time: synchronise its clock (NTP), then look at the gateway's certificate"
                }
                TlsCause::Other => {
                    "this node trusts the CAs of its registration, and no other: check that the endpoint's host is a name in the gateway's certificate; if the gateway's CA was changed while this node could not renew, register again with a new token (virtengine-node-agent register): the running agent takes that over by itself"
                }
            },
            Self::Timeout { .. } | Self::Broken { .. } => {
                "check the gateway's log and the network; the agent keeps trying"
            }
        }
    }
}

/// An error of hyper; with TLS 1.3 a refused client certificate shows only when the first answer is read.
pub(super) fn broken(endpoint: String, e: &hyper::Error) -> UplinkError {
    let mut source = e.source();
    while let Some(s) = source {
        if let Some(io) = s.downcast_ref::<std::io::Error>()
            && io
                .get_ref()
                .is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
        {
            return tls(&endpoint, io);
        }
        source = s.source();
    }
    UplinkError::Broken {
        endpoint,
        message: e.to_string(),
    }
}

pub(super) fn tls(endpoint: &str, e: &std::io::Error) -> UplinkError {
    let inner = e
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    UplinkError::Tls {
        endpoint: endpoint.to_owned(),
        message: e.to_string(),
        cause: inner.map_or(TlsCause::Other, cause),
    }
}

fn cause(e: &rustls::Error) -> TlsCause {
    match e {
        rustls::Error::AlertReceived(
            Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied,
        ) => TlsCause::CertificateRefused,
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => TlsCause::Clock,
        _ => TlsCause::Other,
    }
}
