//! Tables that are calculated from what was measured and the chain's prices.

use std::fmt::Write as _;

use hpc_schema::node::HOT_LEN;
use hpc_schema::report::batch::ITEM_LEN;

use super::number;
use crate::bench::figures::{Figure, Measured};
use crate::bench::fleet::Fleet;
use crate::bench::measure::{SWEEP_IDLE, SWEEP_STALE};
use crate::bench::silent::STALE_CLUSTER;

/// Bytes of agent key, tag, section digest and GPU type, which a report reads.
const FIXED_LEN: u64 = 65;
/// A chain's prices: a byte of a transaction, a byte read, a byte written, a signature in a batch.
const WIRE: u64 = 10;
const READ: u64 = 3;
const WRITE: u64 = 30;
const SIGNATURE: u64 = 150;
/// A step of a scan, an attribute of an event.
const STEP: u64 = 30;
const ATTRIBUTE: u64 = 10;
/// Bytes before every key of a contract; of the key of a node's id; of a slot in a section page.
const PREFIX_LEN: u64 = 33;
const PLACE_LEN: u64 = 8;
const SECTION_LEN: u64 = 17;
/// Most reports in a message, as the contract's parameters have it by default.
const BATCH: u64 = 1_024;
/// Seconds of a block in the table of blocks.
const BLOCK: u64 = 6;

/// Gas and bytes as a line through two measured batches: (of a message, of a report).
#[derive(Clone, Copy)]
struct Line {
    message: u64,
    report: u64,
}

impl Line {
    fn through(small: (u64, u64), large: (u64, u64)) -> Self {
        let report = large
            .1
            .saturating_sub(small.1)
            .div_ceil((large.0 - small.0).max(1));
        Self {
            message: small.1.saturating_sub(report * small.0),
            report,
        }
    }

    fn at(self, messages: u64, reports: u64) -> u64 {
        self.message * messages + self.report * reports
    }
}

fn lines(m: &Measured) -> Option<(Line, Line)> {
    let (small, large) = (m.batch(256)?, m.batch(BATCH)?);
    Some((
        Line::through((small.n, small.gas_used), (large.n, large.gas_used)),
        Line::through((small.n, small.tx_bytes), (large.n, large.tx_bytes)),
    ))
}

pub(super) fn blocks(m: &Measured) -> Option<String> {
    let (gas, bytes) = lines(m)?;
    let fifty = m.batch(50)?;
    let mut table = format!(
        "gas = {} × messages + {} × reports; bytes = {} × messages + {} × reports. For 50 reports that is {} gas, measured were {}.\n\n\
         | nodes | messages a round | gas of a round | kB of a round | gas a block, a report a minute | kB a block | gas a block, a report in 30 s | kB a block |\n\
         |---|---|---|---|---|---|---|---|\n",
        number(gas.message),
        number(gas.report),
        number(bytes.message),
        number(bytes.report),
        number(gas.at(1, 50)),
        number(fifty.gas_used),
    );
    for nodes in [50_u64, 256, 1_024, 10_240, 102_400] {
        let messages = nodes.div_ceil(BATCH);
        let (gas, bytes) = (gas.at(messages, nodes), bytes.at(messages, nodes));
        let a_block = |of: u64, seconds: u64| (of * BLOCK).div_ceil(seconds);
        let _written = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            number(nodes),
            number(messages),
            number(gas),
            number(bytes.div_ceil(1_000)),
            number(a_block(gas, 60)),
            number(a_block(bytes, 60).div_ceil(1_000)),
            number(a_block(gas, 30)),
            number(a_block(bytes, 30).div_ceil(1_000)),
        );
    }
    Some(table)
}

/// Where the gas of a report in the largest batch goes.
pub(super) fn floor(m: &Measured) -> Option<String> {
    let (gas, _) = lines(m)?;
    let total = m.batch(BATCH)?.gas_per_report;
    let (item, hot) = (u64::try_from(ITEM_LEN).ok()?, u64::try_from(HOT_LEN).ok()?);
    let mut parts = vec![
        (
            format!(
                "the wire: {item} bytes, as base64 {}, {WIRE} gas each",
                (item * 4).div_ceil(3)
            ),
            (item * 4 * WIRE).div_ceil(3),
        ),
        (
            format!("hot record: {hot} bytes, {READ} to read and {WRITE} to write each"),
            hot * (READ + WRITE),
        ),
        (
            format!("key, tag, section digest: {FIXED_LEN} bytes, {READ} to read each"),
            FIXED_LEN * READ,
        ),
        ("the signature, in calls of 256".to_owned(), SIGNATURE),
        (
            format!(
                "the fixed part of the transaction and its message, {}, over {}",
                number(gas.message),
                number(BATCH)
            ),
            gas.message.div_ceil(BATCH),
        ),
    ];
    let known: u64 = parts.iter().map(|(_, gas)| gas).sum();
    parts.push((
        "the rest: flat costs of a page over its 64 nodes, the wasm's own work".to_owned(),
        total.saturating_sub(known),
    ));
    let mut table = "| part | gas a report |\n|---|---|\n".to_owned();
    for (name, gas) in parts {
        let _written = writeln!(table, "| {name} | {} |", number(gas));
    }
    let _written = writeln!(table, "| measured at {} | {} |", number(BATCH), number(total));
    Some(table)
}

/// Where the gas of a node goes that becomes STALE in a sweep.
pub(super) fn sweep(figures: &[Figure]) -> Option<String> {
    let of = |name: &str| figures.iter().find(|f| f.name == name);
    let (stale, idle) = (of(SWEEP_STALE)?, of(SWEEP_IDLE)?);
    let fleet = Fleet::new(STALE_CLUSTER, 1).ok()?;
    let node_id = fleet.ids().pop()?;
    let id = u64::try_from(node_id.as_str().len()).ok()?;
    let hot = u64::try_from(HOT_LEN).ok()?;
    let (key, value) = ("node_id", node_id.as_str());
    let text = u64::try_from(key.len() + value.len()).ok()?;
    // A node more in the event of its page: what its attribute adds to the JSON, and the comma before it.
    let json = serde_json::to_vec(&cosmwasm_std::Attribute::new(key, value)).ok()?;
    let json = u64::try_from(json.len()).ok()? + 1;
    let mut parts = vec![
        (
            "a sweep that changes nothing, as measured".to_owned(),
            idle.gas_each,
        ),
        (
            format!("hot record: {hot} bytes, {WRITE} to write each"),
            hot * WRITE,
        ),
        (
            format!(
                "node id, by a scan: {STEP} flat, {READ} for each of {PREFIX_LEN} + {PLACE_LEN} + {id} bytes"
            ),
            STEP + READ * (PREFIX_LEN + PLACE_LEN + id),
        ),
        (
            format!("section digest, GPU type: {SECTION_LEN} bytes, {READ} to read each"),
            SECTION_LEN * READ,
        ),
        (
            format!("its attribute in the event of its page: {ATTRIBUTE} flat, 1 for each of {text} bytes"),
            ATTRIBUTE + text,
        ),
        (
            format!("the same in the contract's answer: {json} bytes of JSON, 1 each"),
            json,
        ),
    ];
    let known: u64 = parts.iter().map(|(_, gas)| gas).sum();
    parts.push((
        "the rest: flat costs of a page over its 64 nodes, the wasm's own work".to_owned(),
        stale.gas_each.saturating_sub(known),
    ));
    let mut table = "| part | gas a node |\n|---|---|\n".to_owned();
    for (name, gas) in parts {
        let _written = writeln!(table, "| {name} | {} |", number(gas));
    }
    let _written = writeln!(table, "| measured | {} |", number(stale.gas_each));
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_both_of_its_points() {
        let line = Line::through((256, 1_000 + 256 * 7), (1_024, 1_000 + 1_024 * 7));
        assert_eq!((line.message, line.report), (1_000, 7));
        assert_eq!(line.at(2, 100), 2_700);
    }
}
