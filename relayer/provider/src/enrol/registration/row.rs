use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;

use crate::db::Row;
use crate::store::{StoreError, bytes, opt_uint, text, uint};

/// How far a registration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationState {
    /// Waits to be signed.
    Queued,
    /// Part of a transaction.
    Sent,
    /// Done.
    OnChain,
    /// The chain or the gateway refuses it for now; a repeated request tries again.
    Refused,
}

impl RegistrationState {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let word: String = row.try_get("state")?;
        match word.as_str() {
            "queued" => Ok(Self::Queued),
            "sent" => Ok(Self::Sent),
            "on_chain" => Ok(Self::OnChain),
            "refused" => Ok(Self::Refused),
            _ => Err(StoreError::Value {
                table: "registration",
                column: "state",
            }),
        }
    }
}

/// A request to register, checked against its token.
#[derive(Debug, Clone)]
pub struct NewRegistration<'a> {
    /// Token id.
    pub jti: &'a str,
    /// From the token.
    pub cluster_id: &'a ClusterId,
    /// From the token.
    pub node_id: &'a NodeId,
    /// From the token.
    pub public_key: &'a AgentKey,
    /// DER of the certificate request.
    pub csr: &'a [u8],
    /// As the agent says.
    pub hostname: Option<&'a str>,
    /// As the agent says.
    pub hardware_fingerprint: Option<&'a str>,
    /// For a rotation: what the provider is to sign, and the old key's signature, both base64.
    pub rotation: Option<(&'a str, &'a str)>,
    /// Waits for the operator's approval first.
    pub held: bool,
    /// The attestation key that it quotes by, checked.
    pub quoted_by: Option<&'a str>,
}

/// A registration on record.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Row.
    pub id: u64,
    /// Its token.
    pub jti: String,
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// The agent's key.
    pub public_key: AgentKey,
    /// DER of the certificate request.
    pub csr: Vec<u8>,
    /// As the agent says.
    pub hostname: Option<String>,
    /// As the agent says.
    pub hardware_fingerprint: Option<String>,
    /// For a rotation: the identity's nonce and the old key's signature, both base64.
    pub rotation: Option<(String, String)>,
    /// Waits for the operator's approval.
    pub held: bool,
    /// The attestation key that it last quoted by, empty if it did not; none if that was not kept yet when it came.
    pub quoted_by: Option<String>,
    /// How far it is.
    pub state: RegistrationState,
    /// Why it was refused.
    pub code: Option<Code>,
    /// The same for people.
    pub detail: Option<String>,
    /// The epoch it began.
    pub epoch: Option<u64>,
    /// The certificate that answers it.
    pub certificate: Option<String>,
    /// UNIX milliseconds.
    pub updated_at: u64,
}

impl Registration {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        let nonce: Option<String> = row.try_get("registration_nonce")?;
        let rotation = nonce.zip(row.try_get("rotation_signature")?);
        Ok(Self {
            id: uint(row, "id")?,
            jti: row.try_get("jti")?,
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            public_key: AgentKey::from_bytes(bytes(row, "public_key")?).map_err(|_| StoreError::Value {
                table: "registration",
                column: "public_key",
            })?,
            csr: row.try_get("csr")?,
            hostname: row.try_get("hostname")?,
            hardware_fingerprint: row.try_get("hardware_fingerprint")?,
            rotation,
            held: uint(row, "held")? != 0,
            quoted_by: row.try_get("attestation_key")?,
            state: RegistrationState::read(row)?,
            code: opt_uint(row, "code")?
                .and_then(|n| u8::try_from(n).ok())
                .and_then(Code::from_number),
            detail: row.try_get("detail")?,
            epoch: opt_uint(row, "epoch")?,
            certificate: row.try_get("certificate")?,
            updated_at: uint(row, "updated_at")?,
        })
    }
}
