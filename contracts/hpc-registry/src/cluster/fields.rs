//! Text fields of clusters.

use cosmwasm_std::{Addr, Api};
use hpc_schema::code::Code;

use crate::error::{ContractError, refuse};

const MAX_OPERATORS: usize = 16;

/// Printable ASCII of `min` to `max` characters without `" \ < > &`.
pub(crate) fn plain(field: &str, text: &str, min: usize, max: usize) -> Result<(), ContractError> {
    let good = |b: u8| (0x20..0x7f).contains(&b) && !matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&');
    if (min..=max).contains(&text.len()) && text.bytes().all(good) {
        return Ok(());
    }
    refuse(
        Code::InvalidField,
        format!("{field} must be {min} to {max} printable ASCII characters without \" \\ < > &"),
    )
}

pub(crate) fn name(text: &str) -> Result<(), ContractError> {
    plain("name", text, 1, 64)
}

pub(crate) fn region(text: &str) -> Result<(), ContractError> {
    plain("region", text, 1, 32)
}

pub(crate) fn gateway_endpoint(text: &str) -> Result<(), ContractError> {
    plain("gateway_endpoint", text, 9, 256)?;
    let host = text.strip_prefix("https://").unwrap_or_default();
    if host.is_empty() || host.starts_with('/') || host.contains(' ') {
        return refuse(Code::InvalidField, "gateway_endpoint must be an https:// URL");
    }
    Ok(())
}

/// Valid addresses, none twice, at most 16.
pub(crate) fn operators(api: &dyn Api, given: &[String]) -> Result<Vec<Addr>, ContractError> {
    if given.len() > MAX_OPERATORS {
        return refuse(
            Code::InvalidField,
            format!("operators: at most {MAX_OPERATORS}, not {}", given.len()),
        );
    }
    let mut operators: Vec<Addr> = Vec::with_capacity(given.len());
    for text in given {
        let address = address(api, "operators", text)?;
        if operators.contains(&address) {
            return refuse(
                Code::InvalidField,
                format!("operators: {address} stands there twice"),
            );
        }
        operators.push(address);
    }
    Ok(operators)
}

pub(crate) fn address(api: &dyn Api, field: &str, text: &str) -> Result<Addr, ContractError> {
    api.addr_validate(text).map_err(|_| {
        ContractError::new(
            Code::InvalidField,
            format!("{field} must be an address of this chain"),
        )
    })
}
