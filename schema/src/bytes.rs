//! Building blocks of signed bytes.

/// Appends a length-prefixed text: big-endian u16 length, then the bytes.
///
/// Every text that is signed is bounded far below 64 KiB by its type; a longer one is cut, so that the
/// length always says what follows.
pub fn push_lp(out: &mut Vec<u8>, text: &str) {
    let cut = text
        .as_bytes()
        .get(..usize::from(u16::MAX))
        .unwrap_or(text.as_bytes());
    out.extend_from_slice(&u16::try_from(cut.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(cut);
}

/// Standard base64 of exactly `N` bytes; none if it is anything else.
#[must_use]
pub fn base64_exact<const N: usize>(text: &str) -> Option<[u8; N]> {
    use base64::Engine as _;
    // The decoded size is known, so longer text need not be decoded.
    if text.len() != N.div_ceil(3) * 4 {
        return None;
    }
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .ok()?
        .try_into()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_precede_texts() {
        let mut out = Vec::new();
        push_lp(&mut out, "ab");
        push_lp(&mut out, "");
        assert_eq!(out, [0, 2, b'a', b'b', 0, 0]);
        let mut long = Vec::new();
        push_lp(&mut long, &"x".repeat(70_000));
        assert_eq!((long.len(), &long[..2]), (65_537, &[0xff, 0xff][..]));
    }

    #[test]
    fn base64_must_have_the_exact_length() {
        assert_eq!(base64_exact::<3>("AAEC"), Some([0, 1, 2]));
        for bad in ["", "AAE=", "AAECAw==", "AA-C", " AEC", "AAEC\n"] {
            assert_eq!(base64_exact::<3>(bad), None, "{bad:?}");
        }
        assert_eq!(base64_exact::<16>("AAAAAAAAAAAAAAAAAAAAAA=="), Some([0; 16]));
    }
}
