//! Digests with the block's height and time: proof that something existed by then.

use cosmwasm_std::{Deps, DepsMut, Env, MessageInfo, Order, Response, Storage, from_json, to_json_vec};
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::registry::{AnchorAnswer, AnchorView, AnchorsAnswer, Event};

use crate::cluster::ClusterHot;
use crate::cluster::query::limit;
use crate::config::query::{block, now};
use crate::emit;
use crate::error::{ContractError, refuse};
use crate::keys;

/// Anchors looked at in one call of a filtered list.
const MAX_SCAN: usize = 1_000;

fn check_kind(kind: &str) -> Result<(), ContractError> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    if (1..=32).contains(&kind.len()) && kind.bytes().all(good) {
        return Ok(());
    }
    refuse(Code::InvalidField, "kind must be 1 to 32 of a-z 0-9 _ -")
}

fn check_digest(digest: &str) -> Result<Vec<u8>, ContractError> {
    let good = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if digest.len() != 64 || !digest.bytes().all(good) {
        return refuse(
            Code::InvalidField,
            "digest must be the lower-case hex of a SHA-256 (64 characters)",
        );
    }
    let pairs = (0..64)
        .step_by(2)
        .filter_map(|i| u8::from_str_radix(digest.get(i..i + 2)?, 16).ok());
    Ok(pairs.collect())
}

fn number(storage: &dyn Storage, key: &[u8]) -> Option<u64> {
    storage
        .get(key)
        .and_then(|b| b.try_into().ok())
        .map(u64::from_be_bytes)
}

fn view(bytes: &[u8]) -> Result<AnchorView, ContractError> {
    from_json(bytes).map_err(|_| ContractError::Corrupt { what: "an anchor" })
}

/// Records a digest; one that is there already keeps its first height and time.
pub(crate) fn anchor(
    deps: DepsMut<'_>,
    env: &Env,
    info: &MessageInfo,
    cluster_id: ClusterId,
    kind: String,
    digest: String,
) -> Result<Response, ContractError> {
    check_kind(&kind)?;
    let bytes = check_digest(&digest)?;
    let cluster = ClusterHot::load(deps.storage, &cluster_id)?.index;
    let key = keys::anchor_number(cluster, &kind, &bytes);
    if deps.storage.get(&key).is_some() {
        return Ok(Response::new());
    }
    let count = number(deps.storage, &keys::anchor_count(cluster)).unwrap_or(0);
    let record = AnchorView {
        kind: kind.clone(),
        digest: digest.clone(),
        sender: info.sender.to_string(),
        height: env.block.height,
        time: now(env),
    };
    deps.storage
        .set(&keys::anchor(cluster, count), &to_json_vec(&record)?);
    deps.storage.set(&key, &count.to_be_bytes());
    deps.storage
        .set(&keys::anchor_count(cluster), &(count + 1).to_be_bytes());
    Ok(emit::single(Event::Anchored {
        cluster_id,
        kind,
        digest,
    }))
}

pub(crate) fn one(
    deps: Deps<'_>,
    env: &Env,
    cluster_id: &ClusterId,
    kind: &str,
    digest: &str,
) -> Result<AnchorAnswer, ContractError> {
    check_kind(kind)?;
    let bytes = check_digest(digest)?;
    let cluster = ClusterHot::load(deps.storage, cluster_id)?.index;
    let found = number(deps.storage, &keys::anchor_number(cluster, kind, &bytes))
        .and_then(|n| deps.storage.get(&keys::anchor(cluster, n)));
    let anchor = found.map(|bytes| view(&bytes)).transpose()?;
    Ok(AnchorAnswer {
        anchor,
        block: block(env),
    })
}

pub(crate) fn list(
    deps: Deps<'_>,
    env: &Env,
    cluster_id: &ClusterId,
    kind: Option<&str>,
    start_after: Option<&str>,
    asked: Option<u32>,
) -> Result<AnchorsAnswer, ContractError> {
    let cluster = ClusterHot::load(deps.storage, cluster_id)?.index;
    let first = match start_after {
        None => 0,
        Some(text) => match text.parse::<u64>() {
            Ok(n) => n.saturating_add(1),
            Err(_) => {
                return refuse(
                    Code::Malformed,
                    "start_after must be the next of the answer before",
                );
            }
        },
    };
    let (start, end) = (keys::anchor(cluster, first), keys::anchors_end(cluster));
    let (limit, mut anchors, mut next) = (limit(asked), Vec::new(), None);
    let entries = deps.storage.range(Some(&start), Some(&end), Order::Ascending);
    for (scanned, (n, (_, bytes))) in (first..).zip(entries).enumerate() {
        if anchors.len() == limit || scanned == MAX_SCAN {
            next = n.checked_sub(1).map(|last| last.to_string());
            break;
        }
        let anchor = view(&bytes)?;
        if kind.is_none_or(|kind| anchor.kind == kind) {
            anchors.push(anchor);
        }
    }
    Ok(AnchorsAnswer {
        anchors,
        next,
        block: block(env),
    })
}
