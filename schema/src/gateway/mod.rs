//! What agents and the gateway say to each other over HTTP. Clients ignore unknown fields.

mod certificate;
mod heartbeat;
mod problem;
mod register;
mod text;

pub use certificate::{
    CertificateRequest, CertificateResponse, ChallengeResponse, RecoverRequest, RegistrationRecord,
    SEQUENCE_BLOCK, recover_message,
};
pub use heartbeat::{
    ChainStatus, ConfigUpdates, HeartbeatResponse, HeartbeatResponseBody, Notice, Peer,
    next_heartbeat_seconds,
};
pub use problem::Problem;
pub use register::{
    Attestation, MAX_REGISTER_BYTES, Pcr, RegisterPending, RegisterRequest, RegisterResponse, RegisterStatus,
    WaitingFor, attestation_data, is_probe_address, register_message,
};

/// Path of registration; server-authenticated TLS.
pub const REGISTER_PATH: &str = "/api/v1/hpc/nodes/register";

/// Path of a node's heartbeats; mutual TLS.
#[must_use]
pub fn heartbeat_path(node_id: &crate::id::NodeId) -> String {
    format!("/api/v1/hpc/nodes/{node_id}/heartbeat")
}

/// Path of certificate renewal; mutual TLS.
#[must_use]
pub fn certificate_path(node_id: &crate::id::NodeId) -> String {
    format!("/api/v1/hpc/nodes/{node_id}/certificate")
}

/// Path that gives a challenge for recovery; server-authenticated TLS.
#[must_use]
pub fn challenge_path(node_id: &crate::id::NodeId) -> String {
    format!("/api/v1/hpc/nodes/{node_id}/certificate/challenge")
}

/// Path that recovers an expired certificate; server-authenticated TLS.
#[must_use]
pub fn recover_path(node_id: &crate::id::NodeId) -> String {
    format!("/api/v1/hpc/nodes/{node_id}/certificate/recover")
}

/// SAN URI of a node's certificate; node ids alone are unique only within their cluster.
#[must_use]
pub fn certificate_uri(cluster_id: &crate::id::ClusterId, node_id: &crate::id::NodeId) -> String {
    format!("spiffe://virtengine/hpc/{cluster_id}/{node_id}")
}

/// Cluster and node of a certificate's SAN URI; none if it is not one of ours.
#[must_use]
pub fn parse_certificate_uri(uri: &str) -> Option<(crate::id::ClusterId, crate::id::NodeId)> {
    let (cluster, node) = uri.strip_prefix("spiffe://virtengine/hpc/")?.split_once('/')?;
    Some((cluster.parse().ok()?, node.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificates_uri_reads_back_and_others_do_not() {
        let (c, n) = (
            "hpc-cluster-1".parse().unwrap(),
            "node-hpc1-compute-042".parse().unwrap(),
        );
        assert_eq!(parse_certificate_uri(&certificate_uri(&c, &n)), Some((c, n)));
        for bad in [
            "",
            "spiffe://other/hpc/aaaa/bbbb",
            "spiffe://virtengine/hpc/aaaa",
            "spiffe://virtengine/hpc/aaaa/bbbb/cccc",
        ] {
            assert_eq!(parse_certificate_uri(bad), None, "{bad}");
        }
    }
}
