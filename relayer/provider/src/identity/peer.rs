use hpc_schema::gateway::parse_certificate_uri;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::OID_X509_SERIALNUMBER;

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
    /// Lower-case hex serial number.
    pub serial: String,
    /// The certificate counts until; a connection may outlive it.
    pub not_after: UnixSeconds,
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
        let not_after = u64::try_from(certificate.validity().not_after.timestamp()).map_err(|_| PeerError)?;
        let serial = hex::encode(certificate.raw_serial());
        let epoch = certificate
            .subject()
            .iter_by_oid(&OID_X509_SERIALNUMBER)
            .next()
            .and_then(|a| a.as_str().ok())
            .and_then(|text| text.parse().ok());
        Ok(Self {
            cluster_id,
            node_id,
            epoch,
            serial,
            not_after: UnixSeconds(not_after),
        })
    }
}
