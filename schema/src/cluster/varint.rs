//! Unsigned LEB128: seven bits a byte, lowest first, the top bit says that more follow.

/// Appends `value` in its shortest form.
pub(super) fn push(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Reads one value from the front; `None` if it is cut off, overflows or is not in its shortest form.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        let shifted = part << shift;
        if shifted >> shift != part {
            return None;
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            return (*byte != 0 || shift == 0).then_some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_survive_the_round_trip(value: u64, bits in 0u32..64) {
            let value = value >> bits;
            let mut out = Vec::new();
            push(&mut out, value);
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut rest = &bytes[..];
            if let Some(value) = take(&mut rest) {
                let mut out = Vec::new();
                push(&mut out, value);
                prop_assert_eq!(&out[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
