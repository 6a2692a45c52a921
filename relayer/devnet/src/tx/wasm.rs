//! Messages to contracts, handled as wasmd handles them.

use cosmrs::proto::cosmos::base::v1beta1::Coin as ProtoCoin;
use cosmrs::proto::cosmwasm::wasm::v1::{
    AbsoluteTxPosition, ContractInfo, MsgExecuteContract, MsgExecuteContractResponse, MsgInstantiateContract,
    MsgInstantiateContractResponse, MsgMigrateContract, MsgMigrateContractResponse,
};
use cosmrs::proto::traits::Message;
use cosmwasm_std::{Attribute, BankMsg, CosmosMsg, ReplyOn, Response, SubMsg};

use super::TxError;
use super::event::Event;
use super::scope::MessageRun;
use crate::address::{self, Address};
use crate::coin::Coins;
use crate::contract::{Failure, Host};
use crate::gas;
use crate::kv::Layer;
use crate::state::{Account, load_contract, next_id, save_contract};

/// Events of a message and its encoded response.
type Handled = (Vec<Event>, Vec<u8>);

impl MessageRun<'_> {
    fn host(&self) -> Host<'_> {
        Host {
            chain_id: self.context.chain_id,
            height: self.context.height,
            time_nanos: self.context.time_nanos,
            transaction: Some((self.index, self.tx.hash)),
            meter: self.meter.clone(),
        }
    }

    /// Counts loading a code: dear the first time in a transaction.
    fn load_code(&mut self, code_id: u64) {
        self.meter.add(if self.loaded.insert(code_id) {
            gas::INSTANCE
        } else {
            gas::INSTANCE_AGAIN
        });
    }

    fn fund(
        &self,
        state: &mut Layer<'_>,
        from: &Address,
        to: &Address,
        coins: &Coins,
    ) -> Result<Vec<Event>, TxError> {
        if coins.is_empty() {
            Ok(Vec::new())
        } else {
            self.send(state, from, to, coins, false)
        }
    }
}

pub(super) fn execute(
    run: &mut MessageRun<'_>,
    state: &mut Layer<'_>,
    sender: &Address,
    msg: &MsgExecuteContract,
) -> Result<Handled, TxError> {
    let contract = address::parse(&msg.contract)?;
    let info = contract_info(state, &contract)?;
    run.load_code(info.code_id);
    run.meter.add(gas::EXECUTE);
    let funds = Coins::from_proto(&msg.funds)?;
    let mut events = run.fund(state, sender, &contract, &funds)?;
    let code = run.context.code(info.code_id)?;
    let response = run
        .host()
        .execute(code, state, &contract, sender, &funds, &msg.msg)
        .map_err(|failure| refused(failure, TxError::execute_failed))?;
    events.push(Event::new("execute").with("_contract_address", &msg.contract));
    let data = contract_response(run, state, &msg.contract, response, &mut events)?;
    Ok((events, MsgExecuteContractResponse { data }.encode_to_vec()))
}

pub(super) fn instantiate(
    run: &mut MessageRun<'_>,
    state: &mut Layer<'_>,
    sender: &Address,
    msg: &MsgInstantiateContract,
) -> Result<Handled, TxError> {
    run.context.code(msg.code_id)?;
    run.load_code(msg.code_id);
    run.meter.add(gas::EXECUTE);
    let contract = address::contract(msg.code_id, next_id(state, "instance"));
    let text = address::text(&contract);
    Account::ensure(state, &contract, run.numbers());
    let funds = Coins::from_proto(&msg.funds)?;
    let mut events = run.fund(state, sender, &contract, &funds)?;
    let code = run.context.code(msg.code_id)?;
    let response = run
        .host()
        .instantiate(code, state, &contract, sender, &funds, &msg.msg)
        .map_err(|failure| refused(failure, TxError::instantiate_failed))?;
    let info = ContractInfo {
        code_id: msg.code_id,
        creator: address::text(sender),
        admin: msg.admin.clone(),
        label: msg.label.clone(),
        created: Some(AbsoluteTxPosition {
            block_height: run.context.height,
            tx_index: u64::from(run.index),
        }),
        ibc_port_id: String::new(),
        extension: None,
    };
    save_contract(state, &contract, &info);
    run.meter.add(gas::INSTANTIATE);
    events.push(
        Event::new("instantiate")
            .with("_contract_address", &text)
            .with("code_id", msg.code_id.to_string()),
    );
    let data = contract_response(run, state, &text, response, &mut events)?;
    Ok((
        events,
        MsgInstantiateContractResponse { address: text, data }.encode_to_vec(),
    ))
}

pub(super) fn migrate(
    run: &mut MessageRun<'_>,
    state: &mut Layer<'_>,
    sender: &Address,
    msg: &MsgMigrateContract,
) -> Result<Handled, TxError> {
    let contract = address::parse(&msg.contract)?;
    let mut info = contract_info(state, &contract)?;
    only_admin(&info, sender, "can not migrate")?;
    run.context.code(msg.code_id)?;
    run.load_code(msg.code_id);
    run.meter.add(gas::EXECUTE.saturating_add(gas::CONTRACT_RECORD));
    let code = run.context.code(msg.code_id)?;
    let response = run
        .host()
        .migrate(code, state, &contract, &msg.msg)
        .map_err(|failure| refused(failure, TxError::migration_failed))?;
    info.code_id = msg.code_id;
    save_contract(state, &contract, &info);
    let mut events = vec![
        Event::new("migrate")
            .with("code_id", msg.code_id.to_string())
            .with("_contract_address", &msg.contract),
    ];
    let data = contract_response(run, state, &msg.contract, response, &mut events)?;
    Ok((events, MsgMigrateContractResponse { data }.encode_to_vec()))
}

/// `MsgUpdateAdmin`, and `MsgClearAdmin` with an empty `admin`. Both responses are empty.
pub(super) fn set_admin(
    run: &MessageRun<'_>,
    state: &mut Layer<'_>,
    sender: &Address,
    contract_text: &str,
    admin: &str,
) -> Result<Handled, TxError> {
    let contract = address::parse(contract_text)?;
    let mut info = contract_info(state, &contract)?;
    only_admin(&info, sender, "can not modify contract")?;
    run.meter.add(gas::CONTRACT_RECORD);
    info.admin = admin.to_string();
    save_contract(state, &contract, &info);
    let event = Event::new("update_contract_admin")
        .with("_contract_address", contract_text)
        .with("new_admin_address", admin);
    Ok((vec![event], Vec::new()))
}

fn refused(failure: Failure, as_error: fn(String) -> TxError) -> TxError {
    match failure {
        Failure::Refused(text) => as_error(text),
        Failure::Panicked(text) => TxError::vm(text),
    }
}

fn contract_info(state: &Layer<'_>, contract: &[u8]) -> Result<ContractInfo, TxError> {
    load_contract(state, contract)
        .ok_or_else(|| TxError::no_such_contract(format!("address {}", address::text(contract))))
}

fn only_admin(info: &ContractInfo, sender: &[u8], what: &str) -> Result<(), TxError> {
    if info.admin.is_empty() || info.admin != address::text(sender) {
        return Err(TxError::unauthorized(what));
    }
    Ok(())
}

/// Turns a contract's response into events (appended) and data. Of messages only coins that the contract sends, with
/// no reply asked for, are carried out.
fn contract_response(
    run: &MessageRun<'_>,
    state: &mut Layer<'_>,
    contract: &str,
    response: Response,
    events: &mut Vec<Event>,
) -> Result<Vec<u8>, TxError> {
    if !response.attributes.is_empty() {
        run.meter
            .add(gas::EVENT_ATTRIBUTE.saturating_mul(response.attributes.len() as u64));
        events.push(contract_event(
            "wasm".to_string(),
            contract,
            &response.attributes,
        )?);
    }
    for event in &response.events {
        let kind = event.ty.trim();
        if kind.len() <= 2 {
            return Err(TxError::invalid_event(format!("Event type too short: '{kind}'")));
        }
        run.meter.add(
            gas::EVENT.saturating_add(gas::EVENT_ATTRIBUTE.saturating_mul(event.attributes.len() as u64)),
        );
        events.push(contract_event(
            format!("wasm-{kind}"),
            contract,
            &event.attributes,
        )?);
    }
    for message in &response.messages {
        events.extend(sent(run, state, contract, message)?);
    }
    Ok(response.data.map(Vec::from).unwrap_or_default())
}

/// Carries out one message of a contract.
fn sent(
    run: &MessageRun<'_>,
    state: &mut Layer<'_>,
    contract: &str,
    message: &SubMsg,
) -> Result<Vec<Event>, TxError> {
    match (&message.msg, &message.reply_on) {
        (CosmosMsg::Bank(BankMsg::Send { to_address, amount }), ReplyOn::Never) => {
            let coins: Vec<_> = amount
                .iter()
                .map(|c| ProtoCoin {
                    denom: c.denom.clone(),
                    amount: c.amount.to_string(),
                })
                .collect();
            let (from, to) = (address::parse(contract)?, address::parse(to_address)?);
            run.send(state, &from, &to, &Coins::from_proto(&coins)?, true)
        }
        _ => Err(TxError::invalid_contract_message(
            "of a contract's messages the embedded chain carries out bank sends without reply alone",
        )),
    }
}

fn contract_event(kind: String, contract: &str, attributes: &[Attribute]) -> Result<Event, TxError> {
    let mut event = Event::new(kind).with("_contract_address", contract);
    for attribute in attributes {
        let (key, value) = (attribute.key.trim(), attribute.value.trim());
        if key.is_empty() {
            return Err(TxError::invalid_event(format!(
                "Empty attribute key. Value: {value}"
            )));
        }
        if key.starts_with('_') {
            return Err(TxError::invalid_event(format!(
                "Attribute key starts with reserved prefix _: '{key}'"
            )));
        }
        event = event.with(key, value);
    }
    Ok(event)
}
