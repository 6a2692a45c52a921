//! What is trusted after an answer of a gateway for which a trusted CA has vouched: it may name the CA to come, and a CA
//! that it names no more goes once a connection has been made without it.

use std::sync::Arc;

use pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::time_provider::TimeProvider as _;

use super::pin::PinnedCa;
use super::{CaPin, Known, Trust, provider};
use crate::clock::Clock;

/// CAs that count of one answer, or of a file that names the gateway's: a gateway has nine at most.
pub const MOST_CAS: usize = 16;

/// By what a connection was trusted: the gateway's name and the certificates that it has shown.
#[derive(Debug)]
pub struct Shown {
    name: ServerName<'static>,
    chain: Vec<CertificateDer<'static>>,
}

impl Shown {
    pub(super) fn new(name: ServerName<'static>, chain: Vec<CertificateDer<'static>>) -> Self {
        Self { name, chain }
    }

    /// Whether one of these CAs alone would have vouched for it.
    fn leads_to(&self, cas: &[CertificateDer<'static>], clock: &Clock) -> bool {
        let (Some((leaf, rest)), Some(now)) = (self.chain.split_first(), clock.current_time()) else {
            return false;
        };
        let by = PinnedCa {
            trust: Trust {
                pins: cas.iter().map(CaPin::of).collect(),
                known: cas.into(),
            },
            provider: provider(),
        };
        by.verify_server_cert(leaf, rest, &self.name, &[], now).is_ok()
    }
}

impl Trust {
    /// The CAs after an answer that names `sent`, over a connection which one of these has vouched for with what was
    /// `shown`: those, and the former ones too where none of `sent` has vouched for the connection. An answer without any,
    /// or of which it is not known how it came, changes nothing.
    #[must_use]
    pub fn after(&self, sent: &[CertificateDer<'static>], shown: Option<&Shown>, clock: &Clock) -> Self {
        let sent = sent.get(..MOST_CAS).unwrap_or(sent);
        let Some(shown) = shown.filter(|_| !sent.is_empty()) else {
            return self.clone();
        };
        let mut pins: Vec<CaPin> = Vec::new();
        for pin in sent.iter().map(CaPin::of) {
            if !pins.contains(&pin) {
                pins.push(pin);
            }
        }
        if !shown.leads_to(sent, clock) {
            let former = self.pins.iter().filter(|p| !pins.contains(p));
            let former: Vec<CaPin> = former.copied().collect();
            pins.extend(former);
        }
        let new = sent.iter().filter(|c| !self.known.contains(c));
        let known: Known = self.known.iter().chain(new).cloned().collect();
        Self { pins, known }
    }

    /// Their certificates as PEM, for a CA file.
    #[must_use]
    pub fn pem(&self) -> String {
        to_pem(&self.certificates())
    }

    /// With what a CA file holds: those that are trusted stay known, whatever it lacks.
    #[must_use]
    pub fn with_file(&self, file: &[CertificateDer<'static>]) -> Known {
        let missing = self.certificates().into_iter().filter(|c| !file.contains(c));
        let all: Vec<_> = file.iter().cloned().chain(missing).collect();
        Arc::from(all)
    }
}

/// Certificates as PEM.
#[must_use]
pub fn to_pem(certificates: &[CertificateDer<'static>]) -> String {
    certificates.iter().map(pem).collect()
}

fn pem(certificate: &CertificateDer<'static>) -> String {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    encode_config(&Pem::new("CERTIFICATE", certificate.as_ref()), lines)
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    };

    use super::*;
    use crate::uplink::certificates;

    pub(crate) fn ca() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        // As those of one gateway: all have the same name.
        params.distinguished_name.push(DnType::CommonName, "a CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn shown(by: &CertifiedIssuer<'_, KeyPair>) -> Shown {
        let params = CertificateParams::new(vec!["gateway".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, by).unwrap();
        Shown::new("gateway".try_into().unwrap(), vec![leaf.der().clone()])
    }

    #[test]
    fn a_ca_to_come_is_added_and_a_former_one_goes_once_a_connection_was_made_without_it() {
        let (old, next) = (ca(), ca());
        let (o, n) = (old.der().clone(), next.der().clone());
        let (by_old, by_next) = (CaPin::of(&o), CaPin::of(&n));
        let clock = Clock::system();
        let first = Trust {
            pins: vec![by_old],
            known: Known::from(vec![o.clone()]),
        };
        let both = first.after(&[o.clone(), n.clone()], Some(&shown(&old)), &clock);
        assert_eq!(both.pins, [by_old, by_next]);
        assert_eq!(certificates(&both.pem()), [o.clone(), n.clone()]);
        // The former one is named no more and has vouched for this connection all the same.
        let only_next = [n];
        let kept = both.after(&only_next, Some(&shown(&old)), &clock);
        assert_eq!(kept.pins, [by_next, by_old]);
        let alone = kept.after(&only_next, Some(&shown(&next)), &clock);
        assert_eq!(alone.pins, [by_next]);
        assert_eq!(alone.certificates(), only_next);
        // Nothing is named, or nothing is known of the connection.
        assert_eq!(first.after(&[], Some(&shown(&old)), &clock), first);
        assert_eq!(first.after(&only_next, None, &clock), first);
        let nothing = Shown::new("gateway".try_into().unwrap(), Vec::new());
        assert_eq!(alone.after(&[o], Some(&nothing), &clock).pins, [by_old, by_next]);
    }

    #[test]
    fn what_is_trusted_stays_known_whatever_the_ca_file_holds() {
        let (ours, theirs) = ([ca().der().clone()], [ca().der().clone()]);
        let both = [theirs[0].clone(), ours[0].clone()];
        let trust = Trust {
            pins: vec![CaPin::of(&ours[0])],
            known: Known::from(ours.to_vec()),
        };
        assert_eq!(trust.with_file(&[])[..], ours);
        assert_eq!(trust.with_file(&theirs)[..], both);
        assert_eq!(trust.with_file(&both)[..], both);
    }
}
