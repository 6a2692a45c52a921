//! Parameters on record: version u8 = 1 ‖ interval, timeout, offline threshold, deregistration delay, retention,
//! batch limit, each u32 ‖ cluster creation u8 (0 open, 1 admin) ‖ deposit: amount u128 ‖ denomination, absent if none.

use cosmwasm_std::{DepsMut, MessageInfo, Response, Storage};
use hpc_schema::registry::{ClusterCreation, Coin, Params, ParamsUpdate};

use crate::emit;
use crate::error::ContractError;
use crate::keys;

const VERSION: u8 = 1;

pub(crate) fn load(storage: &dyn Storage) -> Result<Params, ContractError> {
    storage
        .get(keys::PARAMS)
        .and_then(|b| decode(&b))
        .ok_or(ContractError::Corrupt { what: "params" })
}

pub(crate) fn save(storage: &mut dyn Storage, params: &Params) {
    storage.set(keys::PARAMS, &encode(params));
}

fn encode(p: &Params) -> Vec<u8> {
    let mut out = Vec::with_capacity(48);
    out.push(VERSION);
    for n in [
        p.heartbeat_interval,
        p.heartbeat_timeout,
        p.offline_threshold,
        p.deregistration_delay,
        p.retention,
        p.batch_limit,
    ] {
        out.extend_from_slice(&n.to_be_bytes());
    }
    out.push(match p.cluster_creation {
        ClusterCreation::Open => 0,
        ClusterCreation::Admin => 1,
    });
    if let Some(deposit) = &p.cluster_deposit {
        // Checked to be an integer before it came here.
        out.extend_from_slice(&deposit.amount.parse::<u128>().unwrap_or(0).to_be_bytes());
        out.extend_from_slice(deposit.denom.as_bytes());
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Params> {
    let (&[VERSION], rest) = bytes.split_first_chunk::<1>()? else {
        return None;
    };
    let (numbers, rest) = rest.split_first_chunk::<24>()?;
    let mut numbers = numbers
        .chunks_exact(4)
        .map(|c| c.try_into().map(u32::from_be_bytes));
    let mut next = || numbers.next()?.ok();
    let (creation, rest) = rest.split_first()?;
    Some(Params {
        heartbeat_interval: next()?,
        heartbeat_timeout: next()?,
        offline_threshold: next()?,
        deregistration_delay: next()?,
        retention: next()?,
        batch_limit: next()?,
        cluster_creation: match creation {
            0 => ClusterCreation::Open,
            1 => ClusterCreation::Admin,
            _ => return None,
        },
        cluster_deposit: match rest.split_first_chunk::<16>() {
            None if rest.is_empty() => None,
            None => return None,
            Some((amount, denom)) => Some(Coin {
                denom: String::from_utf8(denom.to_vec()).ok()?,
                amount: u128::from_be_bytes(*amount).to_string(),
            }),
        },
    })
}

pub(crate) fn update(
    deps: DepsMut<'_>,
    info: &MessageInfo,
    update: ParamsUpdate,
) -> Result<Response, ContractError> {
    let params = update.apply(&load(deps.storage)?)?;
    save(deps.storage, &params);
    emit::admin("params_updated", &info.sender, &params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_survive_the_round_trip() {
        let deposit = Coin {
            denom: "stake".to_owned(),
            amount: u128::MAX.to_string(),
        };
        for params in [
            Params::default(),
            Params {
                cluster_creation: ClusterCreation::Admin,
                cluster_deposit: Some(deposit),
                ..Params::default()
            },
        ] {
            assert_eq!(decode(&encode(&params)), Some(params));
        }
        assert_eq!(decode(&[2]), None);
    }
}
