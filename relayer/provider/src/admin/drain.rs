use std::sync::Arc;
use std::time::Duration;

use hpc_chain::code::{contract_code, contract_message, contract_sentence};
use hpc_chain::gas::{Adjustment, GasPrice};
use hpc_chain::query::QueryError;
use hpc_chain::send::{Gas, SendError, SendOptions, send_and_wait};
use hpc_schema::command::CommandType;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::refusal::Refusal;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::time::UnixSeconds;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::act::Act;
use super::error::AdminError;
use super::pay::{otherwise, pay};
use super::{Admin, node};
use crate::audit::Actor;
use crate::daemon::{client, named_key, not_found, prefix_of};
use crate::settle::fit;

/// How long the key's turn is waited for, and after that the transaction.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is said where the key's turn does not come in that time.
const BUSY: &str = "other transactions of the operator key are under way; try again";

/// One transaction of the operator key at a time in this process.
static TURN: Semaphore = Semaphore::const_new(1);

/// A drain, or its end.
#[derive(Debug, Clone)]
pub struct Drain<'a> {
    /// The node.
    pub node_id: &'a NodeId,
    /// Its cluster, if several have a node of this id.
    pub cluster_id: Option<&'a ClusterId>,
    /// [`CommandType::Resume`] ends a drain; anything else begins one.
    pub kind: CommandType,
    /// For people; becomes public.
    pub reason: Option<String>,
    /// Until when a drained node that is switched off is not deregistered.
    pub until: Option<UnixSeconds>,
}

impl Admin {
    /// Records a drain, or its end, on chain, signed and paid by the operator key; the node is told by the gateway once
    /// the chain has it. Gives the transaction's hash. The audit log has it twice: begun, and how it ended.
    ///
    /// # Errors
    /// If there is no such node, the key is not there, or the chain refuses.
    pub async fn drain(&self, by: &Actor, what: Drain<'_>) -> Result<String, AdminError> {
        let action = match what.kind {
            CommandType::Resume => "node.resume",
            _ => "node.drain",
        };
        let detail = json!({ "reason": what.reason, "until": what.until });
        let known = match self.resolve(what.node_id, what.cluster_id).await {
            Ok(known) => known,
            Err(e) => {
                let act = Act::begin(&self.store, by, action, format!("node {}", what.node_id)).await?;
                return act.end(Err(e), detail).await;
            }
        };
        let target = node::target(&known.cluster_id, &known.node_id);
        Act::note(&self.store, by, (action, target.clone()), "begun", detail).await?;
        let (cluster_id, node_id) = (Some(known.cluster_id), known.node_id);
        let message = if what.kind == CommandType::Resume {
            ExecuteMsg::ResumeNode { cluster_id, node_id }
        } else {
            ExecuteMsg::DrainNode {
                cluster_id,
                node_id,
                reason: what.reason,
                until: what.until,
            }
        };
        let sent = self.operator_sends(&[message]).await.map_err(|e| match e {
            AdminError::Chain(what) => AdminError::Chain(or_by_hand(&what)),
            AdminError::Home(what) => AdminError::Home(or_by_hand(&what)),
            other => other,
        });
        let (result, detail) = match &sent {
            Ok(hash) => ("done", json!({ "tx": hash })),
            Err(e) => e.recorded(),
        };
        Act::note(&self.store, by, (action, target), result, detail).await?;
        sent
    }

    /// Sends messages to the contract with the operator key and waits for the block; gives the hash. The key pays, or
    /// `chain.fee_granter` where that has granted it fees.
    ///
    /// # Errors
    /// If the key cannot be used, or the chain refuses.
    pub async fn operator_sends(&self, messages: &[ExecuteMsg]) -> Result<String, AdminError> {
        let config = &self.config;
        let chain = |e: &dyn std::fmt::Display| AdminError::Chain(e.to_string());
        // What is wrong here the chain was not asked about.
        let own = |e: &dyn std::fmt::Display| AdminError::Home(e.to_string());
        let prefix = prefix_of(&config.chain.contract).map_err(|e| own(&e))?;
        let key = match &self.operator {
            Some(opened) => Arc::clone(opened),
            None => named_key(&self.home, "keys.operator", &config.keys.operator).map_err(|e| own(&e))?,
        };
        let address = key.address(&prefix).map_err(|e| own(&e))?;
        let price: GasPrice = config.chain.gas_price.parse().map_err(|e| own(&e))?;
        let ceiling = config.chain.gas_price_max.as_deref();
        let ceiling = ceiling
            .map(str::parse::<GasPrice>)
            .transpose()
            .map_err(|e| own(&e))?;
        let granter = config.chain.fee_granter.as_ref();
        let client = client(config).map_err(|e| own(&e))?;
        let anys = messages
            .iter()
            .map(|m| client.execute(&address, m, &[]).map_err(|e| own(&e)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut options = SendOptions {
            chain_id: config.chain.id.clone(),
            prefix,
            gas: Gas::Auto(Adjustment::default()),
            pay: pay(price, granter),
            memo: String::new(),
            deadline: PATIENCE,
        };
        // Two at a time would want the same sequence number. A closed semaphore gives no place; this one never closes.
        let until = Instant::now() + PATIENCE;
        let _turn = timeout_at(until, TURN.acquire())
            .await
            .map_err(|_| chain(&BUSY))?
            .map_err(|e| chain(&e))?;
        // Other processes have the same key: the gateways of a shared store, the command line beside a daemon.
        let left = until.saturating_duration_since(Instant::now());
        let Some(_signing) = self.store.signing_turn(&address, left).await? else {
            return Err(chain(&BUSY));
        };
        loop {
            let e = match send_and_wait(client.chain(), &*key, &options, anys.clone()).await {
                Ok(sent) => return Ok(sent.tx.hash.to_string()),
                // It took effect: more is not told here.
                Err(SendError::Unread { hash, .. }) => return Ok(hash.to_string()),
                Err(e) => e,
            };
            // What the chain would refuse is then in a block.
            if matches!(e, SendError::Query(QueryError::NoSimulation)) {
                options.gas = Gas::Fixed(Adjustment::default().apply(fit::of_acts(messages)));
                continue;
            }
            // What is refused for its fee is nowhere: it may be signed anew.
            match otherwise(&options.pay, &e, ceiling.as_ref()) {
                Some(pay) => options.pay = pay,
                None => return Err(refused(&e, &address, granter)),
            }
        }
    }

    /// The operator key's address.
    ///
    /// # Errors
    /// If the key is not there.
    pub fn operator_address(&self) -> Result<String, AdminError> {
        let fail = |e: &dyn std::fmt::Display| AdminError::Home(e.to_string());
        let prefix = prefix_of(&self.config.chain.contract).map_err(|e| fail(&e))?;
        let keyring = hpc_chain::keys::Keyring::open(&self.home.keyring(), hpc_chain::keys::Backend::Test)
            .map_err(|e| fail(&e))?;
        let name = &self.config.keys.operator;
        let info = keyring
            .info(name)
            .map_err(|e| fail(&not_found("keys.operator", name, e)))?;
        info.address(&prefix).map_err(|e| fail(&e))
    }
}

/// What the contract refuses has its own code; what may still take effect is not said to have failed; the rest is between the
/// key and the chain.
fn refused(e: &SendError, address: &str, granter: Option<&String>) -> AdminError {
    let text = match e {
        SendError::Unknown {
            hash,
            timeout_height: last,
        }
        | SendError::Untold { hash, height: last } => {
            return AdminError::Unknown {
                what: e.to_string(),
                tx: *hash,
                last_block: *last,
            };
        }
        SendError::Refused { log, .. } => log,
        SendError::Failed { message, .. } | SendError::Query(QueryError::Contract { message, .. }) => message,
        _ => "",
    };
    match contract_code(text) {
        Some(code) => {
            let sentence = contract_sentence(code, contract_message(text));
            AdminError::OnChain(Refusal::whole(code, sentence))
        }
        None => {
            let unless = granter
                .map(|g| format!(", unless {g} (chain.fee_granter) has granted it fees"))
                .unwrap_or_default();
            AdminError::Chain(format!(
                "{e}; the operator key {address} must be the cluster's owner or operator and pays for this{unless}"
            ))
        }
    }
}

/// What else does it, where the operator key here does not.
fn or_by_hand(what: &str) -> String {
    format!("{what}; or use: virtengine tx hpc drain-node")
}

#[cfg(test)]
mod tests {
    use hpc_chain::hash::TxHash;
    use hpc_chain::keys::{Backend, Keyring, LocalKey, Passphrase};

    use super::*;
    use crate::config::Config;
    use crate::home;

    #[test]
    fn what_may_still_take_effect_is_on_record_as_unknown_with_its_hash_and_last_block() {
        let hash = TxHash::from([7_u8; 32]);
        let slow = SendError::Unknown {
            hash,
            timeout_height: 120,
        };
        let untold = SendError::Untold { hash, height: 118 };
        for (e, last) in [(slow, 120), (untold, 118)] {
            let said = refused(&e, "wasm1operator", None);
            assert!(!said.to_string().contains("pays for this"), "{said}");
            let (result, detail) = said.recorded();
            assert_eq!(result, "unknown");
            assert_eq!(detail["tx"], hash.to_string());
            assert_eq!(detail["last_block"], last);
        }
        // Provably nowhere.
        let (result, _) = refused(&SendError::Expired { hash }, "wasm1operator", None).recorded();
        assert_eq!(result, "failed");
    }

    #[tokio::test]
    async fn an_operator_key_that_is_not_there_or_stays_sealed_is_no_answer_of_the_chain() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.chain.contract = format!("wasm1{}", "q".repeat(59));
        let admin = Admin::alone(dir.path(), config).await;
        home::make_private_dir(&admin.home.keyring()).unwrap();
        let absent = admin.operator_sends(&[]).await.unwrap_err();
        let named = matches!(&absent, AdminError::Home(what) if what.contains("keys.operator"));
        assert!(named, "{absent:?}");
        let keyring = Keyring::open(&admin.home.keyring(), Backend::File).unwrap();
        let key = LocalKey::from_secret(&[7; 32]).unwrap();
        let passphrase = || Ok(Passphrase::new("correct horse".to_owned()));
        keyring
            .add(&admin.config.keys.operator, &key, passphrase)
            .unwrap();
        let sealed = admin.operator_sends(&[]).await.unwrap_err();
        let named = matches!(&sealed, AdminError::Home(what) if what.contains("passphrase"));
        assert!(named, "{sealed:?}");
    }
}
