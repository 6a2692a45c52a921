//! What a TPM 2.0 writes, read as bytes from a stranger (TPM 2.0 Library, Part 2: Structures). Pure.

/// `TPM_GENERATED_VALUE`: only the TPM itself begins what it signs so.
const MAGIC: u32 = 0xff54_4347;
const ST_ATTEST_QUOTE: u16 = 0x8018;
const ALG_SHA256: u16 = 0x000b;
const ALG_NULL: u16 = 0x0010;
const ALG_ECDSA: u16 = 0x0018;
const ALG_ECC: u16 = 0x0023;
const NIST_P256: u16 = 0x0003;
/// fixedTPM, fixedParent, sensitiveDataOrigin, restricted, sign.
const WANTED: u32 = 0x0002 | 0x0010 | 0x0020 | 0x0001_0000 | 0x0004_0000;
/// decrypt.
const UNWANTED: u32 = 0x0002_0000;
/// Larger than any field of these structures.
const MOST: usize = 1024;

/// What is wrong with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// They end early, or go on.
    #[error("is not of the length that it says")]
    Length,
    /// Something else than what belongs there.
    #[error("is no {0}")]
    NotA(&'static str),
}

/// A restricted ECDSA key of a TPM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Public {
    /// The point, uncompressed: 4, x, y.
    pub(super) point: [u8; 65],
}

/// A quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quote {
    /// The key's qualified Name: hash algorithm and digest.
    pub(super) signer: Vec<u8>,
    /// What the caller wanted in it.
    pub(super) data: Vec<u8>,
    /// Quoted registers of the SHA-256 bank, rising.
    pub(super) pcrs: Vec<u8>,
    /// SHA-256 over their values.
    pub(super) digest: Vec<u8>,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Unreadable::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        self.bytes(N)?.try_into().map_err(|_| Unreadable::Length)
    }

    fn u16(&mut self) -> Result<u16, Unreadable> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Unreadable> {
        self.array().map(u32::from_be_bytes)
    }

    /// A TPM2B: its length, and as many bytes.
    fn sized(&mut self) -> Result<&'a [u8], Unreadable> {
        let n = usize::from(self.u16()?);
        if n > MOST {
            return Err(Unreadable::Length);
        }
        self.bytes(n)
    }

    fn is(&mut self, expected: u16, what: &'static str) -> Result<(), Unreadable> {
        if self.u16()? == expected {
            Ok(())
        } else {
            Err(Unreadable::NotA(what))
        }
    }

    fn end(self) -> Result<(), Unreadable> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Unreadable::Length)
        }
    }
}

/// Right-aligned in 32 bytes: leading zeros may be missing.
fn coordinate(bytes: &[u8], into: &mut [u8]) -> Result<(), Unreadable> {
    let from = into.len().checked_sub(bytes.len()).ok_or(Unreadable::Length)?;
    let place = into.get_mut(from..).ok_or(Unreadable::Length)?;
    place.copy_from_slice(bytes);
    Ok(())
}

/// `TPMT_PUBLIC` of a restricted signing key: ECDSA, NIST P-256, SHA-256, that has never been outside of its TPM.
///
/// # Errors
/// Other bytes.
pub(super) fn public(bytes: &[u8]) -> Result<Public, Unreadable> {
    let what = "restricted ECDSA key over NIST P-256 with SHA-256";
    let mut r = Reader(bytes);
    r.is(ALG_ECC, what)?;
    r.is(ALG_SHA256, what)?;
    let attributes = r.u32()?;
    if attributes & WANTED != WANTED || attributes & UNWANTED != 0 {
        return Err(Unreadable::NotA(what));
    }
    r.sized()?;
    r.is(ALG_NULL, what)?;
    r.is(ALG_ECDSA, what)?;
    r.is(ALG_SHA256, what)?;
    r.is(NIST_P256, what)?;
    r.is(ALG_NULL, what)?;
    let (x, y) = (r.sized()?, r.sized()?);
    r.end()?;
    let mut point = [0; 65];
    let (tag, rest) = point.split_at_mut(1);
    tag.fill(4);
    let (left, right) = rest.split_at_mut(32);
    coordinate(x, left)?;
    coordinate(y, right)?;
    Ok(Public { point })
}

/// `TPMS_ATTEST` of a quote.
///
/// # Errors
/// Other bytes.
pub(super) fn quote(bytes: &[u8]) -> Result<Quote, Unreadable> {
    let mut r = Reader(bytes);
    if r.u32()? != MAGIC {
        return Err(Unreadable::NotA("statement of a TPM"));
    }
    r.is(ST_ATTEST_QUOTE, "quote")?;
    let (signer, data) = (r.sized()?.to_vec(), r.sized()?.to_vec());
    // Clock: time, resets, restarts, safe; and the firmware's version.
    r.bytes(8 + 4 + 4 + 1 + 8)?;
    let bank = "quote of the SHA-256 bank";
    if r.u32()? != 1 {
        return Err(Unreadable::NotA(bank));
    }
    r.is(ALG_SHA256, bank)?;
    let [size] = r.array()?;
    let selected = r.bytes(usize::from(size))?;
    let digest = r.sized()?.to_vec();
    r.end()?;
    let mut pcrs = Vec::new();
    for (byte, bits) in (0u8..32).zip(selected) {
        pcrs.extend(
            (0..8)
                .filter(|bit| (bits >> bit) & 1 == 1)
                .map(|bit| byte * 8 + bit),
        );
    }
    if selected.len() > 32 {
        return Err(Unreadable::Length);
    }
    Ok(Quote {
        signer,
        data,
        pcrs,
        digest,
    })
}
