use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Inclusion;
use crate::hash::TxHash;
use crate::rpc::{Client, Endpoints, RpcError};

/// Everything about a transaction's block that a proof needs. Nodes forget it; whoever keeps it need not ask again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Block.
    pub height: u64,
    /// The transaction, base64.
    pub tx: String,
    /// Where it is in the block.
    pub inclusion: Inclusion,
    /// Header and signatures.
    pub signed_header: Value,
    /// Who signed.
    pub validators: Value,
}

/// Asks one endpoint after the other for a transaction with its proof, its block's header, signatures and validators, until
/// one gives what `holds`; that is told the endpoint's name as well.
///
/// # Errors
/// [`RpcError`]; [`RpcError::Behind`] if no endpoint has them (any more, or yet).
pub async fn gather(
    endpoints: &Endpoints,
    hash: TxHash,
    holds: impl Fn(&str, &Evidence) -> bool,
) -> Result<Evidence, RpcError> {
    let holds = &holds;
    endpoints
        .ask(|c: Client| async move {
            // No failure of the endpoint: for other questions it may be as good as any.
            let not_here = || RpcError::Behind {
                endpoint: c.name().to_owned(),
                height: 0,
                wanted: 0,
            };
            match of_one(&c, hash).await {
                Err(RpcError::Response { .. }) => Err(not_here()),
                Ok(evidence) if !holds(c.name(), &evidence) => Err(not_here()),
                other => other,
            }
        })
        .await
}

async fn of_one(client: &Client, hash: TxHash) -> Result<Evidence, RpcError> {
    let (height, bytes, proof) = client.tx_with_proof(hash).await?;
    let (signed_header, validators) = (client.commit(height).await?, client.validators(height).await?);
    Ok(Evidence {
        height,
        tx: STANDARD.encode(bytes),
        inclusion: proof,
        signed_header,
        validators,
    })
}
