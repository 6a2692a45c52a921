use std::fmt;
use std::net::IpAddr;

use hpc_schema::gateway::certificate_uri;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
    SerialNumber,
};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::Pem;
use zeroize::Zeroizing;

use super::NodeCsr;
use super::peer::{IssuedBy, name_text};

/// Certificates start this long ago, for clocks that are behind.
const BACKDATE_SECONDS: u64 = 3600;
/// X.520 serialNumber of the subject: there stands the epoch, in decimal.
const SUBJECT_SERIAL_NUMBER: [u64; 4] = [2, 5, 4, 5];
/// Common name of the gateway's own certificates.
const SERVER_NAME: &str = "virtengine-provider gateway";
const CA_LIFETIME_SECONDS: u64 = 10 * 365 * 24 * 3600;
/// Lifetime of the gateway's own certificate; the daemon renews it at two thirds.
const SERVER_LIFETIME_SECONDS: u64 = 90 * 24 * 3600;

/// Why the CA cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A certificate or key does not parse.
    #[error("{what}: not readable as PEM of the expected kind")]
    Pem {
        /// Which.
        what: &'static str,
    },
    /// Key and certificate are of different pairs.
    #[error("ca/ca.key: is not the key of the certificate in ca/ca.crt; put the pair in place")]
    Mismatch,
    /// A name that no certificate can carry.
    #[error("{name:?} is neither an IP address nor a host name")]
    Name {
        /// As it was written.
        name: String,
    },
    /// The library refuses.
    #[error("certificate: {0}")]
    Rcgen(#[from] rcgen::Error),
    /// The time is outside of what certificates can say.
    #[error("the clock is outside the years 1970 to 9999")]
    Time,
}

/// The gateway's certificate authority: ECDSA P-256.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: Vec<u8>,
    /// As its certificates name it.
    itself: IssuedBy,
}

/// What its certificates say of the CA of this one.
fn itself(der: &[u8]) -> Option<IssuedBy> {
    let (_, ca) = x509_parser::parse_x509_certificate(der).ok()?;
    Some(IssuedBy {
        name: ca.subject().as_raw().to_vec(),
        key: ca.iter_extensions().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        }),
    })
}

/// Whom a node's certificate names.
#[derive(Debug, Clone, Copy)]
pub struct NodeSubject<'a> {
    /// The cluster.
    pub cluster: &'a ClusterId,
    /// The node.
    pub node: &'a NodeId,
    /// The registration that it counts for.
    pub epoch: u64,
}

/// A fresh certificate.
#[derive(Debug, Clone)]
pub struct Issued {
    /// PEM; the gateway's own with the CA after it.
    pub pem: String,
    /// Lower-case hex serial number.
    pub serial: String,
    /// Lower-case hex SHA-256 of the certificate.
    pub fingerprint: String,
    /// The CA's name, for people.
    pub issuer: String,
    /// Counts until.
    pub not_after: UnixSeconds,
}

impl Ca {
    /// Draws a new authority; gives it with its key as PKCS#8 PEM.
    ///
    /// # Errors
    /// [`CaError`].
    pub fn create(now: UnixSeconds, serial: [u8; 16]) -> Result<(Self, Zeroizing<String>), CaError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let key_pem = Zeroizing::new(key.serialize_pem());
        let mut params = base(now, CA_LIFETIME_SECONDS, serial)?;
        let name = format!(
            "VirtEngine provider CA {}",
            hex::encode(serial.get(..4).unwrap_or_default())
        );
        params.distinguished_name.push(DnType::CommonName, name);
        // No intermediates: it signs nothing but leaves.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let ca = CertifiedIssuer::self_signed(params, key)?;
        Ok((Self::from_pem(&ca.pem(), &key_pem)?, key_pem))
    }

    /// Reads certificate and key.
    ///
    /// # Errors
    /// [`CaError`].
    pub fn from_pem(cert: &str, key: &str) -> Result<Self, CaError> {
        let certificate = || CaError::Pem { what: "ca/ca.crt" };
        let der = first_certificate(cert).ok_or_else(certificate)?;
        let key = KeyPair::from_pem(key).map_err(|_| CaError::Pem { what: "ca/ca.key" })?;
        {
            let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|_| certificate())?;
            if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
                return Err(CaError::Mismatch);
            }
        }
        let issuer = Issuer::from_ca_cert_der(&der.as_slice().into(), key).map_err(|_| certificate())?;
        let itself = itself(&der).ok_or_else(certificate)?;
        Ok(Self {
            issuer,
            pem: cert.to_owned(),
            der,
            itself,
        })
    }

    /// The certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The certificate, DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Lower-case hex SHA-256 of the certificate, which tokens carry.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(&self.der))
    }

    /// A node's client certificate: names from the registration, only the key from the request.
    ///
    /// # Errors
    /// [`CaError`].
    pub fn issue_node(
        &self,
        csr: &NodeCsr,
        subject: &NodeSubject<'_>,
        now: UnixSeconds,
        lifetime: u64,
        serial: [u8; 16],
    ) -> Result<Issued, CaError> {
        let NodeSubject { cluster, node, epoch } = subject;
        let mut params = base(now, lifetime, serial)?;
        params.distinguished_name.push(DnType::CommonName, node.as_str());
        let kind = DnType::CustomDnType(SUBJECT_SERIAL_NUMBER.to_vec());
        // X.520 and RFC 5280, appendix A.1 have it so.
        let epoch = DnValue::PrintableString(epoch.to_string().try_into()?);
        params.distinguished_name.push(kind, epoch);
        let uri = certificate_uri(cluster, node)
            .try_into()
            .map_err(CaError::Rcgen)?;
        params.subject_alt_names.push(SanType::URI(uri));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&csr.key, &self.issuer)?;
        Ok(Issued {
            pem: certificate.pem(),
            serial: hex::encode(positive(serial)),
            fingerprint: hex::encode(Sha256::digest(certificate.der())),
            issuer: self.name(),
            not_after: now.plus(lifetime),
        })
    }

    /// Its own name, for people.
    fn name(&self) -> String {
        let parsed = x509_parser::parse_x509_certificate(&self.der);
        parsed.map_or_else(|_| String::new(), |(_, ca)| name_text(ca.subject()))
    }

    /// Whether a certificate of a chain that was verified names this CA and its key as its issuer's: another CA may have the
    /// same name.
    #[must_use]
    pub fn is(&self, issuer: &IssuedBy) -> bool {
        issuer.key.is_some() && *issuer == self.itself
    }

    /// Whether a gateway's certificate is one that this CA's [`Ca::issue_server`] made; none if it cannot be read.
    #[must_use]
    pub fn issued_server(&self, pem: &str) -> Option<bool> {
        let der = first_certificate(pem)?;
        let (_, leaf) = x509_parser::parse_x509_certificate(&der).ok()?;
        let (_, ca) = x509_parser::parse_x509_certificate(&self.der).ok()?;
        // An outside CA may have vouched for this one and for the gateway alike; the name is ours alone.
        let ours = leaf
            .subject()
            .iter_common_name()
            .any(|n| n.as_str() == Ok(SERVER_NAME));
        Some(ours && leaf.issuer().as_raw() == ca.subject().as_raw())
    }

    /// The gateway's own certificate chain for `names`, with its new key as PKCS#8 PEM.
    ///
    /// # Errors
    /// [`CaError::Name`] for a name that no certificate can carry.
    pub fn issue_server(
        &self,
        names: &[String],
        now: UnixSeconds,
        serial: [u8; 16],
    ) -> Result<(Issued, Zeroizing<String>), CaError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = base(now, SERVER_LIFETIME_SECONDS, serial)?;
        params.distinguished_name.push(DnType::CommonName, SERVER_NAME);
        params.subject_alt_names = server_names(names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let issued = Issued {
            // With the CA: an agent that registers knows only its fingerprint, from the token.
            pem: certificate.pem() + &self.pem,
            serial: hex::encode(positive(serial)),
            fingerprint: hex::encode(Sha256::digest(certificate.der())),
            issuer: self.name(),
            not_after: now.plus(SERVER_LIFETIME_SECONDS),
        };
        Ok((issued, Zeroizing::new(key.serialize_pem())))
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca")
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

/// Host names and addresses as subject alternative names.
///
/// # Errors
/// [`CaError::Name`].
pub fn server_names(names: &[String]) -> Result<Vec<SanType>, CaError> {
    let bad = |name: &String| CaError::Name { name: name.clone() };
    names
        .iter()
        .map(|name| {
            if let Ok(ip) = name.parse::<IpAddr>() {
                return Ok(SanType::IpAddress(ip));
            }
            rustls::pki_types::DnsName::try_from(name.as_str()).map_err(|_| bad(name))?;
            Ok(SanType::DnsName(name.as_str().try_into().map_err(|_| bad(name))?))
        })
        .collect()
}

/// DER serial numbers are positive: the top bit would make one negative.
fn positive(mut serial: [u8; 16]) -> [u8; 16] {
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    serial
}

fn base(now: UnixSeconds, lifetime: u64, serial: [u8; 16]) -> Result<CertificateParams, CaError> {
    let at = |t: UnixSeconds| {
        i64::try_from(t.0)
            .ok()
            .and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok())
            .ok_or(CaError::Time)
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = at(now.minus(BACKDATE_SECONDS))?;
    params.not_after = at(now.plus(lifetime))?;
    params.serial_number = Some(SerialNumber::from_slice(&positive(serial)));
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

pub(super) fn first_certificate(pem: &str) -> Option<Vec<u8>> {
    let block = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
    (block.label == "CERTIFICATE").then_some(block.contents)
}

#[cfg(test)]
mod tests {
    use x509_parser::asn1_rs::Tag;
    use x509_parser::oid_registry::OID_X509_SERIALNUMBER;

    use super::*;
    use crate::identity::PeerIdentity;

    fn csr(names: Vec<String>) -> (String, KeyPair) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "node-evil");
        (params.serialize_request(&key).unwrap().pem().unwrap(), key)
    }

    #[test]
    fn a_nodes_certificate_takes_its_names_from_the_registration_never_from_the_request() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [0xff; 16]).unwrap();
        let csr = NodeCsr::from_pem(&csr(vec!["gateway.example.com".into()]).0).unwrap();
        let (cluster, node) = (
            "hpc-cluster-1".parse().unwrap(),
            "node-hpc1-compute-042".parse().unwrap(),
        );
        let subject = NodeSubject {
            cluster: &cluster,
            node: &node,
            epoch: u64::MAX,
        };
        let issued = ca.issue_node(&csr, &subject, now, 86_400, [0xee; 16]).unwrap();
        let der = first_certificate(&issued.pem).unwrap();
        let peer = PeerIdentity::from_der(&der).unwrap();
        assert_eq!((&peer.cluster_id, &peer.node_id), (&cluster, &node));
        assert_eq!(peer.epoch, Some(u64::MAX));
        assert_eq!((peer.not_after, &peer.serial), (issued.not_after, &issued.serial));
        let (_, x) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert!(!x.is_ca());
        let names: Vec<_> = x
            .subject()
            .iter_common_name()
            .map(|n| n.as_str().unwrap())
            .collect();
        assert_eq!(names, ["node-hpc1-compute-042"]);
        let epoch = x.subject().iter_by_oid(&OID_X509_SERIALNUMBER).next().unwrap();
        assert_eq!(epoch.attr_value().tag(), Tag::PrintableString);
        assert_eq!(
            x.subject_alternative_name()
                .unwrap()
                .unwrap()
                .value
                .general_names
                .len(),
            1
        );
        let usage = x.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        // The gateway's own certificate is no node's.
        let (server, _) = ca
            .issue_server(&["localhost".into(), "::1".into()], now, [1; 16])
            .unwrap();
        assert!(PeerIdentity::from_der(&first_certificate(&server.pem).unwrap()).is_err());
    }

    #[test]
    fn a_request_signed_by_another_key_or_of_another_kind_is_refused() {
        let (good, _) = csr(vec![]);
        assert!(NodeCsr::from_pem(&good).is_ok());
        let der = NodeCsr::from_pem(&good).unwrap().der().to_vec();
        let mut broken = der;
        let last = broken.len() - 1;
        broken[last] ^= 1;
        use base64::Engine as _;
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            base64::engine::general_purpose::STANDARD.encode(&broken)
        );
        assert!(NodeCsr::from_pem(&pem).is_err());
        assert!(NodeCsr::from_pem(&format!("{good}{good}")).is_err());
        assert!(NodeCsr::from_pem("").is_err());
        let (ca, key) = Ca::create(UnixSeconds(1_800_000_000), [3; 16]).unwrap();
        assert!(NodeCsr::from_pem(ca.pem()).is_err());
        assert!(!format!("{ca:?}").contains(key.lines().nth(1).unwrap()));
    }

    #[test]
    fn names_that_no_certificate_can_carry_are_refused() {
        assert_eq!(
            server_names(&["a.example".into(), "10.0.0.1".into(), "::1".into()])
                .unwrap()
                .len(),
            3
        );
        for bad in ["", "a b", "https://x", "ä"] {
            assert!(server_names(&[bad.to_owned()]).is_err(), "{bad:?}");
        }
    }
}
