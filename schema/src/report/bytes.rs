//! A bounded reader of byte strings, and the narrow integers of the formats.

/// Reads from the front; every method answers `None` past the end and never panics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| *b)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(|b| u16::from_be_bytes(*b))
    }

    pub(crate) fn u24(&mut self) -> Option<u32> {
        self.array().map(|b| from_u24(*b))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(|b| u32::from_be_bytes(*b))
    }

    /// A length byte and as many bytes.
    pub(crate) fn short(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }
}

/// The largest value of 24 bits.
pub(crate) const U24_MAX: u32 = 0x00ff_ffff;

/// Saturating big-endian u24.
pub(crate) fn to_u24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.min(U24_MAX).to_be_bytes();
    [a, b, c]
}

/// Big-endian u24.
pub(crate) fn from_u24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// Appends a u16 length and the bytes, as in every hashed string. Strings here are short identifiers;
/// a longer one is cut at 65,535 bytes together with its length, so the prefix never lies.
pub(crate) fn lp(out: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend(text.bytes().take(usize::from(len)));
}
