//! One transaction from bytes to result, for CheckTx, blocks and simulation.

use std::collections::BTreeSet;

use cosmrs::proto::Any;
use cosmrs::proto::cosmos::bank::v1beta1::MsgSendResponse;
use cosmrs::proto::cosmos::base::abci::v1beta1::TxMsgData;
use cosmrs::proto::traits::Message;

use super::ante::{self, Mode, out_of_gas};
use super::context::{BlockContext, Rules};
use super::event::Event;
use super::message::Msg;
use super::scope::MessageRun;
use super::{DecodedTx, TxError, wasm};
use crate::address;
use crate::coin::Coins;
use crate::gas::Meter;
use crate::kv::Layer;

/// The result of a transaction, as blocks keep it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxResult {
    #[prost(uint32, tag = "1")]
    pub(crate) code: u32,
    #[prost(string, tag = "2")]
    pub(crate) codespace: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) data: Vec<u8>,
    #[prost(string, tag = "4")]
    pub(crate) log: String,
    #[prost(uint64, tag = "5")]
    pub(crate) gas_wanted: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) gas_used: u64,
    #[prost(message, repeated, tag = "7")]
    pub(crate) events: Vec<Event>,
}

impl TxResult {
    fn failed(error: TxError, gas_wanted: u64, gas_used: u64, events: Vec<Event>) -> Self {
        Self {
            code: error.code,
            codespace: error.codespace.to_string(),
            data: Vec::new(),
            log: error.log,
            gas_wanted,
            gas_used,
            events,
        }
    }
}

/// CheckTx: changes `state` (the check state) only if the transaction is accepted.
pub(crate) fn check(
    context: &BlockContext<'_>,
    rules: &Rules,
    mode: Mode,
    state: &mut Layer<'_>,
    tx: &DecodedTx,
) -> Result<u64, TxError> {
    let meter = Meter::default();
    let mut layer = Layer::over(state);
    ante::run(context, rules, mode, &mut layer, tx, &meter)?;
    let writes = layer.into_writes();
    state.apply(writes);
    Ok(meter.used())
}

/// Runs a transaction in a block. Fee and sequence stay changed when a message fails; nothing changes when
/// the ante checks fail.
pub(crate) fn deliver(
    context: &BlockContext<'_>,
    rules: &Rules,
    state: &mut Layer<'_>,
    bytes: &[u8],
    index: u32,
) -> TxResult {
    let tx = match DecodedTx::decode(bytes) {
        Ok(tx) => tx,
        Err(error) => return TxResult::failed(error, 0, 0, Vec::new()),
    };
    let meter = Meter::default();
    let wanted = tx.fee.gas_limit;
    let mut layer = Layer::over(state);
    let mut events = match ante::run(context, rules, Mode::Deliver, &mut layer, &tx, &meter) {
        Ok(events) => events,
        Err(error) => return TxResult::failed(error, wanted, meter.used(), Vec::new()),
    };
    let mut after = Layer::over(&layer);
    let outcome = messages(context, rules, Mode::Deliver, &mut after, &tx, index, &meter);
    let message_writes = after.into_writes();
    let result = match outcome {
        Ok((message_events, data)) => {
            layer.apply(message_writes);
            events.extend(message_events);
            TxResult {
                code: 0,
                codespace: String::new(),
                data,
                log: String::new(),
                gas_wanted: wanted,
                gas_used: meter.used(),
                events,
            }
        }
        Err(error) => TxResult::failed(error, wanted, meter.used(), events),
    };
    let writes = layer.into_writes();
    state.apply(writes);
    result
}

/// What a transaction would do and cost now; `state` is thrown away by the caller.
pub(crate) fn simulate(
    context: &BlockContext<'_>,
    rules: &Rules,
    state: &mut Layer<'_>,
    bytes: &[u8],
) -> Result<TxResult, TxError> {
    let tx = DecodedTx::decode(bytes)?;
    let meter = Meter::default();
    let mut events = ante::run(context, rules, Mode::Simulate, state, &tx, &meter)?;
    let (message_events, data) = messages(context, rules, Mode::Simulate, state, &tx, 0, &meter)?;
    events.extend(message_events);
    Ok(TxResult {
        data,
        gas_wanted: u64::MAX,
        gas_used: meter.used(),
        events,
        ..TxResult::default()
    })
}

/// Runs all messages or none: `Ok` has their events and the encoded `TxMsgData`.
fn messages(
    context: &BlockContext<'_>,
    rules: &Rules,
    mode: Mode,
    state: &mut Layer<'_>,
    tx: &DecodedTx,
    index: u32,
    meter: &Meter,
) -> Result<(Vec<Event>, Vec<u8>), TxError> {
    let mut run = MessageRun {
        context,
        rules,
        tx,
        index,
        meter,
        loaded: BTreeSet::new(),
    };
    let mut events = Vec::new();
    let mut responses = Vec::with_capacity(tx.msgs.len());
    for (number, msg) in tx.msgs.iter().enumerate() {
        let failed =
            |error: TxError| error.context(format!("failed to execute message; message index: {number}"));
        let (message_events, response) = message(&mut run, state, msg).map_err(failed)?;
        out_of_gas(mode, tx, meter, "wasm contract or store")?;
        events.extend(
            message_events
                .into_iter()
                .map(|event| event.with("msg_index", number.to_string())),
        );
        responses.push(response);
    }
    #[allow(
        deprecated,
        reason = "the generated type still has the SDK's old field, left empty as the SDK does"
    )]
    let data = TxMsgData {
        data: Vec::new(),
        msg_responses: responses,
    };
    Ok((events, data.encode_to_vec()))
}

/// Runs one message: its events and its response.
fn message(run: &mut MessageRun<'_>, state: &mut Layer<'_>, msg: &Msg) -> Result<(Vec<Event>, Any), TxError> {
    let sender = msg.sender()?;
    let mut events = vec![
        Event::new("message")
            .with("action", msg.type_url())
            .with("sender", address::text(&sender))
            .with("module", msg.module()),
    ];
    let (handled, value) = match msg {
        Msg::Send(send) => {
            let to = address::parse(&send.to_address)?;
            (
                run.send(state, &sender, &to, &Coins::from_proto(&send.amount)?, true)?,
                MsgSendResponse {}.encode_to_vec(),
            )
        }
        Msg::Execute(msg) => wasm::execute(run, state, &sender, msg)?,
        Msg::Instantiate(msg) => wasm::instantiate(run, state, &sender, msg)?,
        Msg::Migrate(msg) => wasm::migrate(run, state, &sender, msg)?,
        Msg::UpdateAdmin(msg) => wasm::set_admin(run, state, &sender, &msg.contract, &msg.new_admin)?,
        Msg::ClearAdmin(msg) => wasm::set_admin(run, state, &sender, &msg.contract, "")?,
    };
    events.extend(handled);
    Ok((
        events,
        Any {
            type_url: format!("{}Response", msg.type_url()),
            value,
        },
    ))
}
