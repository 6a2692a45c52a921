use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::command::{Command, CommandScope, command_message};
use hpc_schema::time::{Rfc3339, UnixSeconds};
use serde_json::value::RawValue;

use super::row::CommandRow;
use crate::identity::Seed;

/// The orders that count at `now`, signed. The same order gives the same bytes each time.
#[must_use]
pub fn signed(
    rows: &[CommandRow],
    chain_id: &str,
    contract: &str,
    key: &Seed,
    now: UnixSeconds,
) -> Vec<Command> {
    rows.iter()
        .filter(|row| now <= row.deadline)
        .filter_map(|row| sign(row, chain_id, contract, key))
        .collect()
}

fn sign(row: &CommandRow, chain_id: &str, contract: &str, key: &Seed) -> Option<Command> {
    let mut command = Command {
        command_id: row.command_id.clone(),
        command_type: row.kind.as_str().to_owned(),
        parameters: RawValue::from_string(row.parameters.clone()).ok()?,
        deadline: Rfc3339::from_unix(row.deadline.0, 0).ok()?,
        issued_at: Rfc3339::from_unix(row.issued_at.0, 0).ok()?,
        nonce: STANDARD.encode(row.nonce),
        signature: String::new(),
    };
    let scope = CommandScope {
        chain_id,
        contract,
        cluster_id: &row.cluster_id,
        node_id: &row.node_id,
    };
    command.signature = STANDARD.encode(key.sign(&command_message(&scope, &command, &row.nonce)));
    Some(command)
}
