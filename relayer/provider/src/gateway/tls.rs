use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hpc_schema::time::UnixSeconds;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, CipherSuite, NamedGroup, RootCertStore, ServerConfig};

use super::certificate_cache::CachingVerifier;
use super::key_exchange::FastX25519;
use crate::identity::Anchors;

/// The TLS side cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// rustls refuses.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
    /// The verifier of client certificates refuses the CA.
    #[error("TLS: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// No certificate where one should be.
    #[error("gateway/server.crt: holds no certificate in PEM")]
    NoCertificate,
    /// The gateway's certificate cannot be read.
    #[error("gateway/server.crt: {0}")]
    Certificate(rustls::Error),
    /// No key where one should be.
    #[error("gateway/server.key: holds no private key in PEM (PKCS#8, SEC1 or PKCS#1)")]
    NoKey,
    /// The gateway's key cannot sign.
    #[error("gateway/server.key: {0}")]
    Key(rustls::Error),
    /// Key and certificate are of different pairs.
    #[error(
        "gateway/server.key: is not the key of the certificate in gateway/server.crt; put the pair in place"
    )]
    Mismatch,
    /// No CA that counts has issued the certificate.
    #[error("gateway/server.crt: leads neither to ca/ca.crt nor to a CA in ca/trusted")]
    Issuer,
    /// An agent would refuse the certificate.
    #[error("gateway/server.crt: agents that connect to {name} would refuse it: {why}")]
    Refused {
        /// A name of `gateway.names`.
        name: String,
        /// Why; part of the text, and so no source, which would be told twice.
        why: rustls::Error,
    },
    /// A name that no certificate can carry.
    #[error("gateway.names: {0:?} is neither a host name nor an IP address")]
    Name(String),
}

impl TlsError {
    /// Whether the certificate is good but for its time or one of the names: by a clock that is right, or under another name,
    /// agents take it.
    #[must_use]
    pub fn is_of_time_or_name(&self) -> bool {
        match self {
            Self::Refused {
                why: rustls::Error::InvalidCertificate(why),
                ..
            } => matches!(
                why,
                CertificateError::Expired
                    | CertificateError::ExpiredContext { .. }
                    | CertificateError::NotValidYet
                    | CertificateError::NotValidYetContext { .. }
                    | CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. }
            ),
            Self::Name(_) => true,
            _ => false,
        }
    }
}

/// The gateway's certificate, which can be replaced while connections are open.
pub struct ServerCertificate(RwLock<Arc<CertifiedKey>>);

impl ServerCertificate {
    /// From PEM; checks that key and certificate belong together.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(chain: &str, key: &str) -> Result<Self, TlsError> {
        Ok(Self(RwLock::new(Arc::new(certified(chain, key)?))))
    }

    /// Takes another certificate into use, if it is sound.
    ///
    /// # Errors
    /// [`TlsError`]; the former stays in use.
    pub fn replace(&self, chain: &str, key: &str) -> Result<(), TlsError> {
        let next = Arc::new(certified(chain, key)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// Whether an agent that trusts `anchors` takes the one in use under each of `names`.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn check(&self, anchors: &Anchors, names: &[String], now: UnixSeconds) -> Result<(), TlsError> {
        let shown = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        vouched(&shown, anchors, names, now)
    }

    /// Whether the first certificate of this chain, as PEM, is the one that is shown.
    #[must_use]
    pub fn shows(&self, chain: &str) -> bool {
        let first = CertificateDer::pem_slice_iter(chain.as_bytes()).next();
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        first.is_some_and(|first| first.is_ok_and(|first| shown.cert.first() == Some(&first)))
    }
}

fn certified(chain: &str, key: &str) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::NoCertificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| TlsError::NoKey)?;
    let key = ring::sign::any_supported_type(&key).map_err(TlsError::Key)?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::Mismatch),
        Err(e) => Err(TlsError::Certificate(e)),
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The TLS configuration of new connections, which can be replaced while others are open.
#[derive(Debug)]
pub struct Tls(RwLock<Arc<ServerConfig>>);

impl Tls {
    /// With this one.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self(RwLock::new(Arc::new(config)))
    }

    /// The one in use.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes another into use; open connections keep theirs.
    pub fn replace(&self, config: ServerConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }
}

/// TLS 1.3 only. A client certificate may be left out, for registration and recovery; one that is shown
/// must come from our CA and be within its time, else there is no connection.
///
/// # Errors
/// [`TlsError`].
pub fn server_config(
    anchors: &Anchors,
    certificate: Arc<ServerCertificate>,
) -> Result<ServerConfig, TlsError> {
    let mut provider = ring::default_provider();
    // The suite that every TLS 1.3 has, before the others whatever agents prefer: processors have instructions for SHA-256
    // and none for SHA-384, which a handshake is then full of.
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    // In place of ring's, where that one stands.
    for group in &mut provider.kx_groups {
        if group.name() == NamedGroup::X25519 {
            *group = &FastX25519;
        }
    }
    let provider = Arc::new(provider);
    let verifier = Arc::new(CachingVerifier::new(verifier(anchors, Arc::clone(&provider))?));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.ignore_client_order = true;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // 0-RTT data can be replayed.
    config.max_early_data_size = 0;
    // Every connection shows its certificate anew: a resumed one would outlive the CA that vouched for it.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// Judges what nodes show by these CAs, as a handshake does.
///
/// # Errors
/// [`TlsError`].
pub fn client_verifier(anchors: &Anchors) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    verifier(anchors, Arc::new(ring::default_provider()))
}

fn verifier(
    anchors: &Anchors,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    Ok(
        WebPkiClientVerifier::builder_with_provider(roots(anchors)?, provider)
            .allow_unauthenticated()
            .build()?,
    )
}

fn roots(anchors: &Anchors) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for der in anchors.ders() {
        roots.add(CertificateDer::from(der.clone()))?;
    }
    Ok(Arc::new(roots))
}

/// Whether an agent that trusts `anchors` would take this certificate under each of `names`: asked before it is
/// published.
///
/// # Errors
/// [`TlsError`].
pub fn check_server(
    chain: &str,
    key: &str,
    anchors: &Anchors,
    names: &[String],
    now: UnixSeconds,
) -> Result<(), TlsError> {
    vouched(&certified(chain, key)?, anchors, names, now)
}

fn vouched(
    certified: &CertifiedKey,
    anchors: &Anchors,
    names: &[String],
    now: UnixSeconds,
) -> Result<(), TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(anchors)?, provider).build()?;
    let (leaf, rest) = certified.cert.split_first().ok_or(TlsError::NoCertificate)?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(now.0));
    for name in names {
        let server = ServerName::try_from(name.as_str()).map_err(|_| TlsError::Name(name.clone()))?;
        verifier
            .verify_server_cert(leaf, rest, &server, &[], time)
            .map_err(|e| match e {
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => TlsError::Issuer,
                why => TlsError::Refused {
                    name: name.clone(),
                    why,
                },
            })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hpc_schema::time::UnixSeconds;

    use super::*;
    use crate::identity::Ca;

    #[test]
    fn the_gateway_agrees_on_keys_by_the_faster_code() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let (shown, key) = ca.issue_server(&["gw.example".to_owned()], now, [2; 16]).unwrap();
        let certificate = Arc::new(ServerCertificate::new(&shown.pem, &key).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let anchors = Anchors::load(&ca, folder.path(), now).unwrap();
        let config = server_config(&anchors, certificate).unwrap();
        let groups: Vec<_> = config
            .crypto_provider()
            .kx_groups
            .iter()
            .map(|g| format!("{g:?}"))
            .collect();
        assert_eq!(groups, ["FastX25519", "secp256r1", "secp384r1"]);
    }

    #[test]
    fn what_is_wrong_with_the_gateways_certificate_is_told_with_its_file() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let (other, _) = Ca::create(now, [9; 16]).unwrap();
        let names = ["gw.example".to_owned()];
        let issue = |by: &Ca, serial| by.issue_server(&names, now, serial).unwrap();
        let ((good, key), (next, _), (foreign, foreign_key)) =
            (issue(&ca, [2; 16]), issue(&ca, [3; 16]), issue(&other, [4; 16]));
        let folder = tempfile::tempdir().unwrap();
        let anchors = Anchors::load(&ca, folder.path(), now).unwrap();
        let check = |chain: &str, key: &str, names: &[String]| {
            check_server(chain, key, &anchors, names, now).map_err(|e| e.to_string())
        };
        assert_eq!(check(&good.pem, &key, &names), Ok(()));
        let elsewhere = ["elsewhere.example".to_owned()];
        for (chain, key, names, says) in [
            ("junk", &**key, &names, "gateway/server.crt: holds no certificate"),
            (
                &good.pem,
                "junk",
                &names,
                "gateway/server.key: holds no private key",
            ),
            (
                &next.pem,
                &key,
                &names,
                "gateway/server.key: is not the key of the certificate",
            ),
            (
                &foreign.pem,
                &foreign_key,
                &names,
                "gateway/server.crt: leads neither to ca/ca.crt",
            ),
            (
                &good.pem,
                &key,
                &elsewhere,
                "gateway/server.crt: agents that connect to elsewhere.example",
            ),
        ] {
            let said = check(chain, key, names).unwrap_err();
            assert!(said.starts_with(says), "{said}");
        }
    }

    #[test]
    fn what_time_or_another_name_mends_is_told_from_a_certificate_that_no_agent_takes() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let (other, _) = Ca::create(now, [9; 16]).unwrap();
        let names = ["gw.example".to_owned()];
        let shown = |by: &Ca| {
            let (issued, key) = by.issue_server(&names, now, [2; 16]).unwrap();
            ServerCertificate::new(&issued.pem, &key).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let anchors = Anchors::load(&ca, folder.path(), now).unwrap();
        let (ours, foreign) = (shown(&ca), shown(&other));
        assert!(ours.check(&anchors, &names, now).is_ok());
        let more = [names[0].clone(), "elsewhere.example".to_owned()];
        let year = 365 * 86_400;
        for (names, at) in [
            (&more[..], now),
            (&names[..], now.plus(year)),
            (&names[..], now.minus(year)),
            (&["no name".to_owned()][..], now),
        ] {
            let why = ours.check(&anchors, names, at).unwrap_err();
            assert!(why.is_of_time_or_name(), "{why}");
        }
        let why = foreign.check(&anchors, &names, now).unwrap_err();
        assert!(
            matches!(why, TlsError::Issuer) && !why.is_of_time_or_name(),
            "{why}"
        );
    }

    #[test]
    fn a_certificate_that_was_not_taken_into_use_is_not_the_one_that_is_shown() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let issue = |serial| ca.issue_server(&["gw.example".to_owned()], now, serial).unwrap();
        let ((first, first_key), (next, next_key)) = (issue([2; 16]), issue([3; 16]));
        let certificate = ServerCertificate::new(&first.pem, &first_key).unwrap();
        assert!(certificate.shows(&first.pem) && !certificate.shows(&next.pem));
        certificate.replace(&next.pem, &next_key).unwrap();
        assert!(certificate.shows(&next.pem) && !certificate.shows(&first.pem));
        assert!(!certificate.shows("") && !certificate.shows("no PEM"));
    }
}
