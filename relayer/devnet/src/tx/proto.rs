//! Protobuf as the SDK reads it: a field that it does not know is an error, never dropped.

use cosmrs::proto::Any;
use cosmrs::proto::traits::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::TxError;

/// Numbers of the fields of a message, and which of them are messages of their own.
pub(super) struct Fields {
    pub(super) known: &'static [u32],
    pub(super) nested: &'static [(u32, &'static Fields)],
}

/// `cosmos.base.v1beta1.Coin`: denom, amount.
pub(super) const COIN: Fields = Fields {
    known: &[1, 2],
    nested: &[],
};

/// Decodes and refuses what would be lost: unknown fields, or an encoding that is not the canonical one.
pub(super) fn strict<M: Message + Default>(bytes: &[u8], name: &str) -> Result<M, TxError> {
    let message = M::decode(bytes).map_err(|error| TxError::tx_decode(format!("{name}: {error}")))?;
    if message.encode_to_vec() != bytes {
        return Err(TxError::tx_decode(format!(
            "{name} has unknown fields or is not encoded canonically (unordered transactions and timeout timestamps are not supported)"
        )));
    }
    Ok(message)
}

/// Decodes the value of an `Any` whose type is known, and refuses fields that its type does not have.
pub(super) fn value<M: Message + Default>(any: &Any, fields: &Fields) -> Result<M, TxError> {
    refuse_unknown(&any.value, fields, &any.type_url)?;
    M::decode(any.value.as_slice()).map_err(|error| TxError::tx_decode(format!("{}: {error}", any.type_url)))
}

/// Unlike [`strict`] any encoding that a client may choose is accepted. A field number with bit 11 set is
/// "non-critical" (Cosmos ADR-020), and may be unknown.
fn refuse_unknown(mut bytes: &[u8], fields: &Fields, name: &str) -> Result<(), TxError> {
    const NON_CRITICAL: u32 = 1 << 10;
    let broken = |error: prost::DecodeError| TxError::tx_decode(format!("{name}: {error}"));
    while bytes.has_remaining() {
        let (tag, wire) = decode_key(&mut bytes).map_err(broken)?;
        if !fields.known.contains(&tag) && tag & NON_CRITICAL == 0 {
            return Err(TxError::tx_decode(format!(
                "errUnknownField \"{name}\": {{TagNum: {tag}, WireType: {wire:?}}}"
            )));
        }
        match fields.nested.iter().find(|(nested, _)| *nested == tag) {
            Some((_, inner)) if wire == WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).map_err(broken)?;
                let (inside, after) = usize::try_from(length)
                    .ok()
                    .and_then(|length| bytes.split_at_checked(length))
                    .ok_or_else(|| TxError::tx_decode(format!("{name}: field {tag} is cut off")))?;
                refuse_unknown(inside, inner, name)?;
                bytes = after;
            }
            _ => skip_field(wire, tag, &mut bytes, DecodeContext::default()).map_err(broken)?,
        }
    }
    Ok(())
}
