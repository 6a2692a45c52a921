//! A stream of bytes under a passphrase: Argon2id for the key, then XChaCha20-Poly1305 over pieces of 64 KiB in the
//! STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizár 2015): a piece that is changed, moved, missing or too many is
//! noticed.

use std::fmt;
use std::io::{self, Read, Write};

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::RngCore as _;

use super::seal::{MAX_MEMORY_KIB, MAX_PASSES, MEMORY_KIB, PASSES, Passphrase, derive};

/// Plain bytes of a piece.
const PIECE: usize = 64 * 1024;
/// Bytes that a piece grows by.
const TAG: usize = 16;
/// Salt, memory, passes, prefix of the nonces.
const HEAD: usize = 16 + 4 + 4 + 19;

struct Cipher {
    cipher: XChaCha20Poly1305,
    prefix: [u8; 19],
    bound: Vec<u8>,
    number: u32,
}

impl Cipher {
    /// Prefix, number of the piece, whether it is the last.
    fn nonce(&mut self, last: bool) -> io::Result<XNonce> {
        let mut nonce = [0; 24];
        let number = self.number.to_be_bytes();
        let parts = self.prefix.iter().chain(&number).copied();
        for (to, from) in nonce.iter_mut().zip(parts.chain([u8::from(last)])) {
            *to = from;
        }
        self.number = self.number.checked_add(1).ok_or_else(|| bad("too long"))?;
        Ok(XNonce::from(nonce))
    }

    fn seal(&mut self, plain: &[u8], last: bool) -> io::Result<Vec<u8>> {
        let nonce = self.nonce(last)?;
        let payload = Payload {
            msg: plain,
            aad: &self.bound,
        };
        self.cipher.encrypt(&nonce, payload).map_err(|_| bad("too long"))
    }

    fn open(&mut self, sealed: &[u8], last: bool) -> io::Result<Vec<u8>> {
        let nonce = self.nonce(last)?;
        let payload = Payload {
            msg: sealed,
            aad: &self.bound,
        };
        self.cipher
            .decrypt(&nonce, payload)
            .map_err(|_| bad("the passphrase is wrong, or the file was changed or cut off"))
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Seals what is written to it; without [`SealWriter::finish`] the result does not open.
pub struct SealWriter<W> {
    out: W,
    cipher: Cipher,
    plain: Vec<u8>,
}

impl<W> fmt::Debug for SealWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealWriter")
    }
}

impl<W: Write> SealWriter<W> {
    /// Writes to `out`; `bound` is authenticated with every piece.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn new(mut out: W, passphrase: &Passphrase, bound: &[u8]) -> io::Result<Self> {
        let (mut salt, mut prefix) = ([0u8; 16], [0u8; 19]);
        rand::rng().fill_bytes(&mut salt);
        rand::rng().fill_bytes(&mut prefix);
        let key = derive(passphrase, &salt, MEMORY_KIB, PASSES).map_err(|_| bad("no key can be derived"))?;
        for part in [
            &salt[..],
            &MEMORY_KIB.to_be_bytes(),
            &PASSES.to_be_bytes(),
            &prefix,
        ] {
            out.write_all(part)?;
        }
        Ok(Self {
            out,
            cipher: Cipher {
                cipher: XChaCha20Poly1305::new(key.as_ref().into()),
                prefix,
                bound: bound.to_vec(),
                number: 0,
            },
            plain: Vec::with_capacity(PIECE),
        })
    }

    /// Writes the last piece.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let last = self.cipher.seal(&self.plain, true)?;
        self.out.write_all(&last)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Write for SealWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full piece is written once more follows: only then it is not the last.
        if self.plain.len() == PIECE {
            let sealed = self.cipher.seal(&self.plain, false)?;
            self.out.write_all(&sealed)?;
            self.plain.clear();
        }
        let room = PIECE - self.plain.len();
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.plain.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Opens what a [`SealWriter`] sealed. What is read counts only once the end has been reached without an error.
pub struct OpenReader<R> {
    input: R,
    cipher: Cipher,
    /// The piece after the present one, sealed.
    ahead: Vec<u8>,
    plain: Vec<u8>,
    read: usize,
    ended: bool,
}

impl<R> fmt::Debug for OpenReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenReader")
    }
}

impl<R: Read> OpenReader<R> {
    /// Reads from `input`.
    ///
    /// # Errors
    /// If it cannot be read, or is not one of ours.
    pub fn new(mut input: R, passphrase: &Passphrase, bound: &[u8]) -> io::Result<Self> {
        let mut head = [0u8; HEAD];
        input
            .read_exact(&mut head)
            .map_err(|_| bad("the file is cut off"))?;
        let part = |from: usize, to: usize| head.get(from..to).unwrap_or_default();
        let number = |from: usize| {
            let bytes: [u8; 4] = part(from, from + 4).try_into().unwrap_or_default();
            u32::from_be_bytes(bytes)
        };
        let (memory_kib, passes) = (number(16), number(20));
        if memory_kib > MAX_MEMORY_KIB || passes > MAX_PASSES {
            return Err(bad("asks for too much memory; it is not one of ours"));
        }
        let key =
            derive(passphrase, part(0, 16), memory_kib, passes).map_err(|_| bad("it is not one of ours"))?;
        let mut ahead = Vec::new();
        input.by_ref().take(piece_limit()).read_to_end(&mut ahead)?;
        Ok(Self {
            input,
            cipher: Cipher {
                cipher: XChaCha20Poly1305::new(key.as_ref().into()),
                prefix: part(24, HEAD)
                    .try_into()
                    .map_err(|_| bad("it is not one of ours"))?,
                bound: bound.to_vec(),
                number: 0,
            },
            ahead,
            plain: Vec::new(),
            read: 0,
            ended: false,
        })
    }

    fn next_piece(&mut self) -> io::Result<()> {
        let sealed = std::mem::take(&mut self.ahead);
        self.input
            .by_ref()
            .take(piece_limit())
            .read_to_end(&mut self.ahead)?;
        self.ended = self.ahead.is_empty();
        self.plain = self.cipher.open(&sealed, self.ended)?;
        self.read = 0;
        Ok(())
    }
}

fn piece_limit() -> u64 {
    u64::try_from(PIECE + TAG).unwrap_or(u64::MAX)
}

impl<R: Read> Read for OpenReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.read == self.plain.len() && !self.ended {
            self.next_piece()?;
        }
        let left = self.plain.get(self.read..).unwrap_or_default();
        let count = left.len().min(to.len());
        for (to, from) in to.iter_mut().zip(left) {
            *to = *from;
        }
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(plain: &[u8], bound: &[u8]) -> Vec<u8> {
        let mut out = SealWriter::new(Vec::new(), &Passphrase::new("correct horse".into()), bound).unwrap();
        out.write_all(plain).unwrap();
        out.finish().unwrap()
    }

    fn opened(bytes: &[u8], passphrase: &str, bound: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        OpenReader::new(bytes, &Passphrase::new(passphrase.into()), bound)?.read_to_end(&mut plain)?;
        Ok(plain)
    }

    #[test]
    fn what_was_sealed_opens_again_whatever_its_length() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE] {
            let plain: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let file = sealed(&plain, b"head");
            assert_eq!(
                opened(&file, "correct horse", b"head").unwrap(),
                plain,
                "{length}"
            );
        }
    }

    #[test]
    fn a_wrong_passphrase_another_head_and_any_change_are_noticed() {
        let plain = vec![7; 2 * PIECE + 5];
        let file = sealed(&plain, b"head");
        assert!(opened(&file, "correct hors", b"head").is_err());
        assert!(opened(&file, "correct horse", b"hea").is_err());
        for at in [HEAD, HEAD + PIECE + TAG, file.len() - 1] {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(opened(&changed, "correct horse", b"head").is_err(), "{at}");
        }
        // Cut off at the end of a piece, and within the head.
        for length in [HEAD + PIECE + TAG, HEAD + 2 * (PIECE + TAG), HEAD, 10] {
            assert!(
                opened(&file[..length], "correct horse", b"head").is_err(),
                "{length}"
            );
        }
        // Pieces in another order, and one twice.
        let piece = |n: usize| &file[HEAD + n * (PIECE + TAG)..HEAD + (n + 1) * (PIECE + TAG)];
        let rest = &file[HEAD + 2 * (PIECE + TAG)..];
        for order in [[1, 0], [0, 0]] {
            let moved = [&file[..HEAD], piece(order[0]), piece(order[1]), rest].concat();
            assert!(opened(&moved, "correct horse", b"head").is_err());
        }
    }
}
