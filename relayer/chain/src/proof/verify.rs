use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::key::AgentKey;
use serde::Serialize;

use super::{FORMAT, Proof, ProofError, VERSION, block, payload};
use crate::hash::TxHash;

/// What the reader knows from elsewhere. What is left out is taken from the proof, and said to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Hash of the validator set, upper-case hex, as `validators_hash` of a header that the reader trusts.
    pub validators_hash: Option<String>,
    /// The key registered for the node.
    pub agent_key: Option<AgentKey>,
    /// The chain.
    pub chain_id: Option<String>,
    /// The contract.
    pub contract: Option<String>,
}

/// What a proof proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Chain.
    pub chain_id: String,
    /// Contract.
    pub contract: String,
    /// Cluster.
    pub cluster_id: String,
    /// Node.
    pub node_id: String,
    /// Registration epoch.
    pub epoch: u64,
    /// Sequence.
    pub sequence: u32,
    /// The agent's key.
    pub agent_key: String,
    /// SHA-256 of the payload, hex.
    pub payload_sha256: String,
    /// Transaction.
    pub tx: String,
    /// Block.
    pub height: u64,
    /// Its time.
    pub block_time: String,
    /// Its hash.
    pub block_hash: String,
    /// Hash of the validator set that signed it.
    pub validators_hash: String,
    /// Validators in the set.
    pub validators: usize,
    /// Voting power that signed.
    pub signed_power: u64,
    /// All of it.
    pub total_power: u64,
    /// What holds.
    pub proven: Vec<&'static str>,
    /// What has to be taken from elsewhere.
    pub not_proven: Vec<String>,
}

/// Checks a proof from beginning to end, without asking anybody.
///
/// # Errors
/// The first thing that does not hold.
pub fn verify(proof: &Proof, trust: &Trust) -> Result<Found, ProofError> {
    if proof.format != FORMAT || proof.version != VERSION {
        return Err(ProofError::Format(
            proof.format.chars().take(64).collect(),
            proof.version,
        ));
    }
    expect("chain_id", trust.chain_id.as_deref(), &proof.chain_id)?;
    expect("contract", trust.contract.as_deref(), &proof.contract)?;
    let agent_key = STANDARD.encode(proof.agent.public_key.as_bytes());
    let wanted = trust.agent_key.map(|k| STANDARD.encode(k.as_bytes()));
    expect("agent.public_key", wanted.as_deref(), &agent_key)?;

    let heartbeat = payload::signed(proof)?;
    let tx = STANDARD
        .decode(&proof.tx)
        .map_err(|e| ProofError::Part("tx", e.to_string()))?;
    payload::carried(proof, &tx, &heartbeat)?;
    let signed = block::signed(proof)?;
    let validators_hash = signed.validators_hash.to_string();
    let wanted = trust.validators_hash.as_ref().map(|h| h.to_uppercase());
    expect("validators", wanted.as_deref(), &validators_hash)?;
    block::included(proof, &tx, &signed)?;

    let mut not_proven = Vec::new();
    if trust.validators_hash.is_none() {
        not_proven.push(format!(
            "that these were the chain's validators: compare {validators_hash} with validators_hash of block {} from a node that you trust",
            signed.header.header().height
        ));
    }
    if trust.agent_key.is_none() {
        not_proven.push(format!(
            "that {agent_key} was registered for {} in epoch {}: see its registration on chain",
            proof.agent.node_id, proof.agent.epoch
        ));
    }
    not_proven.push(
        "that the contract accepted the report: the block proves what was sent, not the outcome".into(),
    );
    let head = signed.header.header();
    Ok(Found {
        chain_id: proof.chain_id.clone(),
        contract: proof.contract.clone(),
        cluster_id: proof.agent.cluster_id.to_string(),
        node_id: proof.agent.node_id.to_string(),
        epoch: proof.agent.epoch,
        sequence: heartbeat.report.sequence,
        agent_key,
        payload_sha256: hex::encode(heartbeat.payload_hash),
        tx: TxHash::of(&tx).to_string(),
        height: head.height.value(),
        block_time: head.time.to_rfc3339(),
        block_hash: head.hash().to_string(),
        validators_hash,
        validators: signed.validators,
        signed_power: signed.signed_power,
        total_power: signed.total_power,
        proven: vec![
            "the agent's key signed this payload",
            "it signed a report for chain, contract, cluster, node and epoch that says what the payload says",
            "the report is in the transaction's message to the contract",
            "the transaction is in the block",
            "more than two thirds of the validators' power signed the block",
        ],
        not_proven,
    })
}

fn expect(what: &'static str, wanted: Option<&str>, found: &str) -> Result<(), ProofError> {
    match wanted {
        Some(wanted) if wanted != found => Err(ProofError::NotTrusted {
            what,
            found: found.to_owned(),
            wanted: wanted.to_owned(),
        }),
        _ => Ok(()),
    }
}
