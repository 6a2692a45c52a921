use hpc_schema::gateway::parse_certificate_uri;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_SERIALNUMBER;
use x509_parser::x509::X509Name;

/// Characters of a CA's name that are kept.
const MAX_ISSUER: usize = 256;

/// Who is at the other end of a connection, by its client certificate. The TLS layer has verified the
/// chain to our CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// The registration that it counts for; none in a certificate that this gateway's version did not issue.
    pub epoch: Option<u64>,
    /// Lower-case hex serial number, as `openssl x509 -serial` has it.
    pub serial: String,
    /// Lower-case hex SHA-256 of the certificate: two CAs may give the same serial number.
    pub fingerprint: String,
    /// The CA's name, for people.
    pub issuer: String,
    /// The certificate counts from; its CA may date it back.
    pub not_before: UnixSeconds,
    /// The certificate counts until; a connection may outlive it.
    pub not_after: UnixSeconds,
}

/// Who has issued a certificate, as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedBy {
    /// The issuer's name, DER.
    pub name: Vec<u8>,
    /// Identifier of the issuer's key.
    pub key: Option<Vec<u8>>,
}

/// A certificate of ours that names no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate names no node")]
pub struct PeerError;

impl PeerIdentity {
    /// Reads the identity out of a verified certificate: exactly one URI, and it is a node's.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn from_der(der: &[u8]) -> Result<Self, PeerError> {
        Self::with_issuer(der).map(|(peer, _)| peer)
    }

    /// The same, with who has issued the certificate.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn with_issuer(der: &[u8]) -> Result<(Self, IssuedBy), PeerError> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).map_err(|_| PeerError)?;
        let san = certificate
            .subject_alternative_name()
            .ok()
            .flatten()
            .ok_or(PeerError)?;
        let [GeneralName::URI(uri)] = san.value.general_names.as_slice() else {
            return Err(PeerError);
        };
        let (cluster_id, node_id) = parse_certificate_uri(uri).ok_or(PeerError)?;
        let not_before = u64::try_from(certificate.validity().not_before.timestamp()).unwrap_or(0);
        let not_after = u64::try_from(certificate.validity().not_after.timestamp()).map_err(|_| PeerError)?;
        let serial = serial_text(certificate.raw_serial());
        let issuer = name_text(certificate.issuer());
        let epoch = certificate
            .subject()
            .iter_by_oid(&OID_X509_SERIALNUMBER)
            .next()
            .and_then(|a| a.as_str().ok())
            .and_then(|text| text.parse().ok());
        let vouched = IssuedBy {
            name: certificate.issuer().as_raw().to_vec(),
            key: certificate
                .iter_extensions()
                .find_map(|e| match e.parsed_extension() {
                    ParsedExtension::AuthorityKeyIdentifier(id) => {
                        id.key_identifier.as_ref().map(|k| k.0.to_vec())
                    }
                    _ => None,
                }),
        };
        let peer = Self {
            cluster_id,
            node_id,
            epoch,
            serial,
            fingerprint: hex::encode(Sha256::digest(der)),
            issuer,
            not_before: UnixSeconds(not_before),
            not_after: UnixSeconds(not_after),
        };
        Ok((peer, vouched))
    }
}

impl PeerIdentity {
    /// The serial number as records of before fingerprints were kept may have it, DER's zero byte included.
    #[must_use]
    pub fn der_serial(&self) -> String {
        format!("00{}", self.serial)
    }
}

/// DER puts a zero byte before a serial number whose top bit is set; nobody writes it.
fn serial_text(raw: &[u8]) -> String {
    let zeros = raw
        .iter()
        .take(raw.len().saturating_sub(1))
        .take_while(|b| **b == 0);
    hex::encode(raw.get(zeros.count()..).unwrap_or_default())
}

/// A name on one line.
pub(super) fn name_text(name: &X509Name<'_>) -> String {
    let text = name.to_string();
    text.chars()
        .filter(|c| !c.is_control())
        .take(MAX_ISSUER)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_written_without_the_zero_byte_that_der_puts_before_it() {
        assert_eq!(serial_text(&[0x00, 0xab, 0x01]), "ab01");
        assert_eq!(serial_text(&[0x0a, 0x00]), "0a00");
        assert_eq!(
            (serial_text(&[0]), serial_text(&[])),
            ("00".into(), String::new())
        );
    }
}
