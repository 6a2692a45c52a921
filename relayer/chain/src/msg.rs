//! The chain's messages that are sent here.

use std::io::Write as _;

pub use cosmrs::Any;
use cosmrs::proto::cosmos::bank::v1beta1::MsgSend;
use cosmrs::proto::cosmwasm::wasm::v1::{
    MsgExecuteContract, MsgInstantiateContract, MsgMigrateContract, MsgStoreCode,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::gas::Coin;
use crate::tx::{any, proto_coins};

/// A contract message that does not serialise: never for the registry's own types.
#[derive(Debug, thiserror::Error)]
#[error("message cannot be written as JSON: {0}")]
pub struct EncodeError(#[from] serde_json::Error);

/// `MsgExecuteContract`.
///
/// # Errors
/// [`EncodeError`].
pub fn execute<M: Serialize>(
    sender: &str,
    contract: &str,
    msg: &M,
    funds: &[Coin],
) -> Result<Any, EncodeError> {
    Ok(any(&MsgExecuteContract {
        sender: sender.to_owned(),
        contract: contract.to_owned(),
        msg: serde_json::to_vec(msg)?,
        funds: proto_coins(funds),
    }))
}

/// `MsgInstantiateContract`; the answer is a `MsgInstantiateContractResponse` with the address.
///
/// # Errors
/// [`EncodeError`].
pub fn instantiate<M: Serialize>(
    sender: &str,
    admin: Option<&str>,
    code_id: u64,
    label: &str,
    msg: &M,
    funds: &[Coin],
) -> Result<Any, EncodeError> {
    Ok(any(&MsgInstantiateContract {
        sender: sender.to_owned(),
        admin: admin.unwrap_or_default().to_owned(),
        code_id,
        label: label.to_owned(),
        msg: serde_json::to_vec(msg)?,
        funds: proto_coins(funds),
    }))
}

/// `MsgStoreCode`; everybody may instantiate it (the chain's default).
///
/// The code is sent gzipped, which wasmd unpacks: a third of the gas for bytes, and what is over the limit of an RPC body
/// (1,000,000 bytes, base64 or hex included) mostly fits. The chain's checksum is that of the wasm itself.
#[must_use]
pub fn store_code(sender: &str, wasm: impl AsRef<[u8]>) -> Any {
    any(&MsgStoreCode {
        sender: sender.to_owned(),
        wasm_byte_code: gzip(wasm.as_ref()),
        instantiate_permission: None,
    })
}

/// Gzip without name or time, so that the same code gives the same transaction; what is gzip already stays as it is.
fn gzip(wasm: &[u8]) -> Vec<u8> {
    const MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];
    if wasm.starts_with(&MAGIC) {
        return wasm.to_vec();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail; if it ever did, the plain bytes are as good.
    encoder
        .write_all(wasm)
        .and_then(|()| encoder.finish())
        .unwrap_or_else(|_| wasm.to_vec())
}

/// `MsgMigrateContract`.
///
/// # Errors
/// [`EncodeError`].
pub fn migrate<M: Serialize>(
    sender: &str,
    contract: &str,
    code_id: u64,
    msg: &M,
) -> Result<Any, EncodeError> {
    Ok(any(&MsgMigrateContract {
        sender: sender.to_owned(),
        contract: contract.to_owned(),
        code_id,
        msg: serde_json::to_vec(msg)?,
    }))
}

/// `MsgSend`.
#[must_use]
pub fn send(from: &str, to: &str, coins: &[Coin]) -> Any {
    any(&MsgSend {
        from_address: from.to_owned(),
        to_address: to.to_owned(),
        amount: proto_coins(coins),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use cosmrs::proto::traits::Message as _;

    use super::*;

    #[test]
    fn code_is_sent_gzipped_once_and_the_same_every_time() {
        let wasm = [b"\0asm".as_slice(), &[7; 10_000]].concat();
        let sent = |code: &[u8]| {
            MsgStoreCode::decode(store_code("wasm1a", code).value.as_slice())
                .unwrap()
                .wasm_byte_code
        };
        let packed = sent(&wasm);
        assert!(packed.len() < 200);
        assert_eq!(sent(&wasm), packed);
        assert_eq!(sent(&packed), packed);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice())
            .read_to_end(&mut plain)
            .unwrap();
        assert_eq!(plain, wasm);
    }
}
