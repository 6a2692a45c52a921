use std::time::Duration;

use hpc_chain::gas::{Adjustment, GasPrice};
use hpc_chain::send::{Gas, Pay, SendOptions, send_and_wait};
use hpc_schema::command::CommandType;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::time::UnixSeconds;

use super::error::AdminError;
use super::node::resolve;
use crate::config::Config;
use crate::daemon::{client, load_key, prefix_of};
use crate::home::Home;
use crate::store::Store;

/// How long the transaction is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Records a drain, or its end, on chain, signed and paid by the operator key; the node is told by the gateway once
/// the chain has it. Gives the transaction's hash.
///
/// # Errors
/// If there is no such node, the key is not there, or the chain refuses.
pub async fn drain(
    home: &Home,
    config: &Config,
    store: &Store,
    (node_id, cluster_id): (&NodeId, Option<&ClusterId>),
    kind: CommandType,
    (reason, until): (Option<String>, Option<UnixSeconds>),
) -> Result<String, AdminError> {
    let known = resolve(store, node_id, cluster_id).await?;
    let chain = |e: &dyn std::fmt::Display| AdminError::Chain(e.to_string());
    let (cluster_id, node_id) = (Some(known.cluster_id), known.node_id);
    let message = if kind == CommandType::Resume {
        ExecuteMsg::ResumeNode { cluster_id, node_id }
    } else {
        ExecuteMsg::DrainNode {
            cluster_id,
            node_id,
            reason,
            until,
        }
    };
    let prefix = prefix_of(&config.chain.contract).map_err(|e| chain(&e))?;
    let key = load_key(home, &config.keys.operator).map_err(|e| chain(&e))?;
    let address = key.address(&prefix).map_err(|e| chain(&e))?;
    let price: GasPrice = config.chain.gas_price.parse().map_err(|e| chain(&e))?;
    let client = client(config).map_err(|e| chain(&e))?;
    let any = client.execute(&address, &message, &[]).map_err(|e| chain(&e))?;
    let options = SendOptions {
        chain_id: config.chain.id.clone(),
        prefix,
        gas: Gas::Auto(Adjustment::default()),
        pay: Pay::Price(price),
        memo: String::new(),
        deadline: PATIENCE,
    };
    let sent = send_and_wait(client.chain(), &key, &options, vec![any])
        .await
        .map_err(|e| {
            AdminError::Chain(format!(
                "{e}; the operator key {address} must be the cluster's owner or operator and pays for this; or use: \
                 virtengine tx hpc drain-node"
            ))
        })?;
    Ok(sent.tx.hash.to_string())
}
