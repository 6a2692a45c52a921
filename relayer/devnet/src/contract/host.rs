//! Runs the entry points of a contract over a layer of state.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cosmwasm_std::{Addr, Coin, Uint256};
use cosmwasm_std::{
    Binary, BlockInfo, ContractInfo, ContractResult, Deps, DepsMut, Env, MessageInfo, Querier, QuerierResult,
    QuerierWrapper, Response, SystemError, SystemResult, Timestamp, TransactionInfo,
};

use super::NativeContract;
use super::api::HostApi;
use super::storage::ContractStorage;
use crate::address;
use crate::coin::Coins;
use crate::gas::{self, Meter};
use crate::kv::Layer;
use crate::state::contract_prefix;

/// What an entry point that changes state gave back.
pub(crate) type Outcome<T = Response> = Result<T, Failure>;

/// Why a call to a contract gave nothing back.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The contract refused, with its own text.
    Refused(String),
    /// The contract panicked, where wasm would have trapped.
    Panicked(String),
}

/// Everything about a call that is not the message: block, transaction, contract, gas counter.
pub(crate) struct Host<'a> {
    pub(crate) chain_id: &'a str,
    pub(crate) height: u64,
    pub(crate) time_nanos: u64,
    /// Index in the block and hash of the transaction; `None` in a query.
    pub(crate) transaction: Option<(u32, [u8; 32])>,
    pub(crate) meter: Meter,
}

impl Host<'_> {
    fn env(&self, contract: &[u8]) -> Env {
        Env {
            block: BlockInfo {
                height: self.height,
                time: Timestamp::from_nanos(self.time_nanos),
                chain_id: self.chain_id.to_string(),
            },
            transaction: self
                .transaction
                .map(|(index, hash)| TransactionInfo::new(index, Binary::from(hash.as_slice()))),
            contract: ContractInfo {
                address: Addr::unchecked(address::text(contract)),
            },
        }
    }

    /// Calls `run` with storage, host functions and querier of the contract at `contract`.
    fn with_deps<T>(
        &self,
        layer: &mut Layer<'_>,
        contract: &[u8],
        run: impl FnOnce(DepsMut<'_>, Env) -> Result<T, String>,
    ) -> Outcome<T> {
        let mut storage = ContractStorage {
            layer,
            prefix: contract_prefix(contract),
            meter: self.meter.clone(),
        };
        let api = HostApi::new(self.meter.clone());
        let deps = DepsMut {
            storage: &mut storage,
            api: &api,
            querier: QuerierWrapper::new(&NoQueries),
        };
        // What a panicking call has written lies in `layer`, which the caller drops with the failed message.
        match catch_unwind(AssertUnwindSafe(|| run(deps, self.env(contract)))) {
            Ok(outcome) => outcome.map_err(Failure::Refused),
            Err(payload) => Err(Failure::Panicked(panic_text(payload.as_ref()))),
        }
    }

    pub(crate) fn instantiate(
        &self,
        code: &dyn NativeContract,
        layer: &mut Layer<'_>,
        contract: &[u8],
        sender: &[u8],
        funds: &Coins,
        msg: &[u8],
    ) -> Outcome {
        self.meter.add(gas::json(msg.len()));
        self.with_deps(layer, contract, |deps, env| {
            code.instantiate(deps, env, info(sender, funds), msg)
        })
    }

    pub(crate) fn execute(
        &self,
        code: &dyn NativeContract,
        layer: &mut Layer<'_>,
        contract: &[u8],
        sender: &[u8],
        funds: &Coins,
        msg: &[u8],
    ) -> Outcome {
        self.meter.add(gas::json(msg.len()));
        self.with_deps(layer, contract, |deps, env| {
            code.execute(deps, env, info(sender, funds), msg)
        })
    }

    pub(crate) fn migrate(
        &self,
        code: &dyn NativeContract,
        layer: &mut Layer<'_>,
        contract: &[u8],
        msg: &[u8],
    ) -> Outcome {
        self.meter.add(gas::json(msg.len()));
        self.with_deps(layer, contract, |deps, env| code.migrate(deps, env, msg))
    }

    /// Asks a contract; `layer` is thrown away by the caller.
    pub(crate) fn query(
        &self,
        code: &dyn NativeContract,
        layer: &mut Layer<'_>,
        contract: &[u8],
        msg: &[u8],
    ) -> Outcome<Binary> {
        self.with_deps(layer, contract, |deps, env| {
            let deps = Deps {
                storage: deps.storage,
                api: deps.api,
                querier: deps.querier,
            };
            code.query(deps, env, msg)
        })
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!(
        "Aborted: panicked: {}",
        text.unwrap_or_else(|| "no message".to_string())
    )
}

fn info(sender: &[u8], funds: &Coins) -> MessageInfo {
    let coin = |(denom, amount): (&str, u128)| Coin {
        denom: denom.to_string(),
        amount: Uint256::from(amount),
    };
    MessageInfo {
        sender: Addr::unchecked(address::text(sender)),
        funds: funds.iter().map(coin).collect(),
    }
}

/// Contracts on this chain get no answers from other modules: every query is refused, none invented.
struct NoQueries;

impl Querier for NoQueries {
    fn raw_query(&self, _request: &[u8]) -> QuerierResult {
        SystemResult::<ContractResult<Binary>>::Err(SystemError::UnsupportedRequest {
            kind: "any query to other modules or contracts, on the embedded chain".to_string(),
        })
    }
}
