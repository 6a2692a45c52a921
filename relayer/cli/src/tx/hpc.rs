//! `tx hpc`: the contract's messages.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use hpc_chain::gas::Coin;
use hpc_schema::registry::{Coin as MsgCoin, ExecuteMsg, ParamsUpdate};
use hpc_schema::time::UnixSeconds;

use super::Sending;
use crate::args::{
    ClusterSettings, CreateCluster, DrainArgs, HpcTx, KeyringArgs, NodeRef, ParamsArgs, TxArgs, UpdateCluster,
};
use crate::context::{Context, Session, address};
use crate::error::{Exit, Failure};

/// A registration is a few hundred bytes.
const MAX_FILE: u64 = 64 * 1024;

pub(super) async fn run(
    context: &Context,
    session: &Session,
    args: &TxArgs,
    command: &HpcTx,
) -> Result<(), Failure> {
    let registry = session.registry()?;
    let prefix = session.prefix();
    let resolver = Resolver {
        context,
        keyring: &args.keyring,
        prefix,
    };
    let (message, funds) = message(&resolver, command)?;
    let sending = Sending::new(
        context,
        &session.chain,
        session.profile.as_ref(),
        prefix,
        &args.sign,
        &args.keyring,
    )?;
    let any = registry.execute(sending.sender(), &message, &funds)?;
    let json = serde_json::to_string(&message).unwrap_or_default();
    let with: String = funds.iter().map(|c| format!(" with {c}")).collect();
    let what = format!("execute {json}{with}\non contract {}", registry.contract());
    match sending.send(context, &what, any).await? {
        Some(tx) => context.printer.print(&tx),
        None => Ok(()),
    }
}

/// Turns names of keys into addresses.
struct Resolver<'a> {
    context: &'a Context,
    keyring: &'a KeyringArgs,
    prefix: &'a str,
}

impl Resolver<'_> {
    fn address(&self, text: &str) -> Result<String, Failure> {
        address(self.context, self.keyring, self.prefix, text)
    }

    fn addresses(&self, texts: &[String]) -> Result<Vec<String>, Failure> {
        texts.iter().map(|t| self.address(t)).collect()
    }

    fn maybe(&self, text: Option<&String>) -> Result<Option<String>, Failure> {
        text.map(|t| self.address(t)).transpose()
    }
}

/// The contract's message and the coins that go with it.
fn message(resolver: &Resolver<'_>, command: &HpcTx) -> Result<(ExecuteMsg, Vec<Coin>), Failure> {
    let message = match command {
        HpcTx::CreateCluster(args) => return create(resolver, args),
        HpcTx::UpdateCluster(args) => update(resolver, args)?,
        HpcTx::ActivateCluster { cluster_id } => ExecuteMsg::ActivateCluster {
            cluster_id: cluster_id.clone(),
        },
        HpcTx::DeactivateCluster { cluster_id } => ExecuteMsg::DeactivateCluster {
            cluster_id: cluster_id.clone(),
        },
        HpcTx::CloseCluster { cluster_id } => ExecuteMsg::CloseCluster {
            cluster_id: cluster_id.clone(),
        },
        HpcTx::SetTaskKey {
            cluster_id,
            task_public_key,
            rotation_signature,
        } => ExecuteMsg::SetTaskKey {
            cluster_id: cluster_id.clone(),
            task_public_key: *task_public_key,
            rotation_signature: rotation_signature.clone(),
        },
        HpcTx::ProposeClusterOwner {
            cluster_id,
            owner,
            withdraw: _,
        } => ExecuteMsg::ProposeClusterOwner {
            cluster_id: cluster_id.clone(),
            owner: resolver.maybe(owner.as_ref())?,
        },
        HpcTx::AcceptClusterOwner { cluster_id } => ExecuteMsg::AcceptClusterOwner {
            cluster_id: cluster_id.clone(),
        },
        HpcTx::RegisterNode { file } => registration(file)?,
        HpcTx::DeregisterNode(NodeRef { node_id, cluster_id }) => ExecuteMsg::DeregisterNode {
            cluster_id: cluster_id.clone(),
            node_id: node_id.clone(),
        },
        HpcTx::DrainNode(args) => drain(args),
        HpcTx::ResumeNode(NodeRef { node_id, cluster_id }) => ExecuteMsg::ResumeNode {
            cluster_id: cluster_id.clone(),
            node_id: node_id.clone(),
        },
        HpcTx::Sweep { cluster_id, limit } => ExecuteMsg::Sweep {
            cluster_id: cluster_id.clone(),
            limit: *limit,
        },
        HpcTx::Prune { limit } => ExecuteMsg::Prune { limit: *limit },
        HpcTx::Anchor {
            cluster_id,
            kind,
            digest,
        } => ExecuteMsg::Anchor {
            cluster_id: cluster_id.clone(),
            kind: kind.clone(),
            digest: digest.clone(),
        },
        HpcTx::UpdateParams(args) => ExecuteMsg::UpdateParams { params: params(args) },
        HpcTx::ProposeAdmin { admin, withdraw: _ } => ExecuteMsg::ProposeAdmin {
            admin: resolver.maybe(admin.as_ref())?,
        },
        HpcTx::AcceptAdmin => ExecuteMsg::AcceptAdmin {},
        HpcTx::PauseRegistrations => ExecuteMsg::PauseRegistrations { paused: true },
        HpcTx::UnpauseRegistrations => ExecuteMsg::PauseRegistrations { paused: false },
    };
    Ok((message, Vec::new()))
}

fn create(resolver: &Resolver<'_>, args: &CreateCluster) -> Result<(ExecuteMsg, Vec<Coin>), Failure> {
    let CreateCluster {
        cluster_id,
        settings,
        task_public_key,
        deposit,
    } = args;
    let ClusterSettings {
        name,
        region,
        gateway_endpoint,
        operators,
        job_ids,
    } = settings;
    let message = ExecuteMsg::CreateCluster {
        cluster_id: cluster_id.clone(),
        name: name.clone(),
        region: region.clone(),
        gateway_endpoint: gateway_endpoint.clone(),
        operators: resolver.addresses(operators)?,
        task_public_key: *task_public_key,
        job_ids: job_ids.map(Into::into).unwrap_or_default(),
    };
    Ok((message, deposit.iter().cloned().collect()))
}

fn update(resolver: &Resolver<'_>, args: &UpdateCluster) -> Result<ExecuteMsg, Failure> {
    let UpdateCluster {
        cluster_id,
        settings,
        no_operators,
    } = args;
    let ClusterSettings {
        name,
        region,
        gateway_endpoint,
        operators,
        job_ids,
    } = settings;
    let operators = if *no_operators {
        Some(Vec::new())
    } else if operators.is_empty() {
        None
    } else {
        Some(resolver.addresses(operators)?)
    };
    let nothing = name.is_none()
        && region.is_none()
        && gateway_endpoint.is_none()
        && operators.is_none()
        && job_ids.is_none();
    if nothing {
        return Err(Failure::usage("usage", "nothing to change was given")
            .remedy("see virtengine tx hpc update-cluster --help"));
    }
    Ok(ExecuteMsg::UpdateCluster {
        cluster_id: cluster_id.clone(),
        name: name.clone(),
        region: region.clone(),
        gateway_endpoint: gateway_endpoint.clone(),
        operators,
        job_ids: job_ids.map(Into::into),
    })
}

fn drain(args: &DrainArgs) -> ExecuteMsg {
    let DrainArgs {
        node: NodeRef { node_id, cluster_id },
        reason,
        until,
    } = args;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = UnixSeconds(since.as_secs());
    ExecuteMsg::DrainNode {
        cluster_id: cluster_id.clone(),
        node_id: node_id.clone(),
        reason: reason.clone(),
        until: until.as_ref().map(|u| u.instant(now)),
    }
}

fn params(args: &ParamsArgs) -> ParamsUpdate {
    let ParamsArgs {
        heartbeat_interval,
        heartbeat_timeout,
        offline_threshold,
        deregistration_delay,
        retention,
        batch_limit,
        cluster_creation,
        cluster_deposit,
    } = args;
    let coin = |c: &Coin| MsgCoin {
        denom: c.denom.clone(),
        amount: c.amount.to_string(),
    };
    ParamsUpdate {
        heartbeat_interval: *heartbeat_interval,
        heartbeat_timeout: *heartbeat_timeout,
        offline_threshold: *offline_threshold,
        deregistration_delay: *deregistration_delay,
        retention: *retention,
        batch_limit: *batch_limit,
        cluster_creation: cluster_creation.map(Into::into),
        cluster_deposit: cluster_deposit.as_ref().map(coin),
    }
}

/// Reads the members of a `register_node` message, with or without that name around them.
fn registration(path: &Path) -> Result<ExecuteMsg, Failure> {
    let text = crate::file::read(path, MAX_FILE)?;
    let bad = |e: serde_json::Error| {
        Failure::new(Exit::Failed, "bad_file", format!("{}: {e}", path.display()))
            .remedy("see virtengine tx hpc register-node --help")
    };
    let mut value: serde_json::Value = serde_json::from_slice(&text).map_err(bad)?;
    if value.get("register_node").is_none() {
        value = serde_json::json!({ "register_node": value });
    }
    serde_json::from_value(value).map_err(bad)
}

#[cfg(test)]
mod tests;
