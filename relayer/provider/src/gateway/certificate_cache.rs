//! Remembers what CAs have vouched for, so that a node that connects again costs one signature check instead of two.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use sha2::{Digest as _, Sha256};

/// Chains of one generation; two are kept: all of so many nodes are remembered, at most twice as many are kept.
const GENERATION: usize = 16_384;

/// SHA-256 of a chain.
type Digest = [u8; 32];

/// When a chain has been found good, UNIX seconds, and until when it is.
#[derive(Debug, Clone, Copy)]
struct Validity {
    from: u64,
    until: u64,
}

/// The chains found good last.
#[derive(Default)]
struct Cache {
    recent: HashMap<Digest, Validity>,
    former: HashMap<Digest, Validity>,
}

impl Cache {
    fn get(&mut self, chain: &Digest) -> Option<Validity> {
        let known = self.recent.get(chain).copied();
        known.or_else(|| {
            let validity = self.former.remove(chain)?;
            self.insert(*chain, validity);
            Some(validity)
        })
    }

    fn insert(&mut self, chain: Digest, validity: Validity) {
        if self.recent.len() >= GENERATION {
            self.former = mem::take(&mut self.recent);
        }
        self.recent.insert(chain, validity);
    }
}

/// A verifier that asks another one about each chain once. It lives as long as the CAs that it is of: others are asked anew.
/// That the other end holds the certificate's key is proven in each handshake.
pub(super) struct CachingVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    cache: Mutex<Cache>,
}

impl CachingVerifier {
    pub(super) fn new(inner: Arc<dyn ClientCertVerifier>) -> Self {
        Self {
            inner,
            cache: Mutex::default(),
        }
    }

    fn cache<T>(&self, look: impl FnOnce(&mut Cache) -> T) -> T {
        look(&mut self.cache.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for CachingVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachingVerifier")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

fn digest(leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Digest {
    // DER says its own length: a chain cannot be cut elsewhere.
    let mut hash = Sha256::new_with_prefix(leaf);
    for der in rest {
        hash.update(der);
    }
    hash.finalize().into()
}

/// Until when all of these count, UNIX seconds.
fn until(leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Option<u64> {
    let mut least = u64::MAX;
    for der in std::iter::once(leaf).chain(rest) {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        least = least.min(u64::try_from(certificate.validity().not_after.timestamp()).ok()?);
    }
    Some(least)
}

impl ClientCertVerifier for CachingVerifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let (chain, at) = (digest(leaf, rest), now.as_secs());
        // Before it was found good nothing is known: it may not have begun.
        let known = self.cache(|cache| cache.get(&chain));
        if known.is_some_and(|known| (known.from..=known.until).contains(&at)) {
            return Ok(ClientCertVerified::assertion());
        }
        let verified = self.inner.verify_client_cert(leaf, rest, now)?;
        if let Some(until) = until(leaf, rest) {
            self.cache(|cache| cache.insert(chain, Validity { from: at, until }));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.inner.requires_raw_public_keys()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Takes what is asked for while it is told to, and counts.
    #[derive(Debug, Default)]
    struct Counting {
        asked: AtomicUsize,
    }

    impl ClientCertVerifier for Counting {
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            &[]
        }
        fn verify_client_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            now: UnixTime,
        ) -> Result<ClientCertVerified, Error> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if now < BEGINS || now > ENDS {
                return Err(Error::General("not of its time".into()));
            }
            Ok(ClientCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("not asked here".into()))
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("not asked here".into()))
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            Vec::new()
        }
    }

    /// 2026-01-01 and 2026-01-02.
    const BEGINS: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
    const ENDS: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_767_312_000));

    fn certificate() -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["node".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 1, 2);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn after(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(BEGINS.as_secs() + seconds))
    }

    #[test]
    fn a_chain_is_judged_once_within_its_time_and_anew_outside_of_it() {
        let counting = Arc::new(Counting::default());
        let verifier = CachingVerifier::new(Arc::clone(&counting) as Arc<dyn ClientCertVerifier>);
        let asked = || counting.asked.load(Ordering::Relaxed);
        let (one, other) = (certificate(), certificate());
        let judge =
            |leaf, rest: &[CertificateDer<'_>], at| verifier.verify_client_cert(leaf, rest, at).is_ok();
        for at in [100, 100, 101, 86_400] {
            assert!(judge(&one, &[], after(at)));
        }
        assert_eq!(asked(), 1);
        assert!(!judge(&one, &[], after(86_401)), "it has ended");
        assert!(judge(&one, &[], after(99)), "the clock went back");
        assert_eq!(asked(), 3);
        assert!(judge(&other, &[], after(100)));
        assert!(
            judge(&one, std::slice::from_ref(&other), after(100)),
            "another chain"
        );
        assert_eq!(asked(), 5);
    }

    #[test]
    fn what_is_refused_is_asked_for_again_and_what_connects_is_kept_within_a_bound() {
        let counting = Arc::new(Counting::default());
        let verifier = CachingVerifier::new(Arc::clone(&counting) as Arc<dyn ClientCertVerifier>);
        let one = certificate();
        for _ in 0..2 {
            assert!(verifier.verify_client_cert(&one, &[], after(90_000)).is_err());
        }
        assert_eq!(counting.asked.load(Ordering::Relaxed), 2);
        let good = Validity {
            from: 0,
            until: u64::MAX,
        };
        let name = |n: usize| -> Digest { Sha256::digest(n.to_be_bytes()).into() };
        let (mut cache, first) = (Cache::default(), name(0));
        for n in 0..4 * GENERATION {
            cache.insert(name(n), good);
            assert!(cache.get(&first).is_some(), "it connects all the time");
        }
        assert!(cache.recent.len() + cache.former.len() <= 2 * GENERATION);
        assert!(cache.get(&name(1)).is_none());
        // So many nodes that connect in turn, on top of what was there before.
        let chains: Vec<_> = (1..=GENERATION).map(name).collect();
        for chain in &chains {
            cache.insert(*chain, good);
        }
        for _ in 0..2 {
            assert!(chains.iter().all(|chain| cache.get(chain).is_some()));
        }
    }
}
