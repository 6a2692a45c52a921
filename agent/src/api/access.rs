//! Who may ask, and how often.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::config::{ConfigError, read_token_file};

/// Shortest token that counts: base64 of 12 random bytes.
const SHORTEST: usize = 16;

/// The bearer token that requests need. Only its hash is kept; comparing hashes tells nothing of the token by time.
#[derive(Debug, Clone)]
pub(super) struct Token([u8; 32]);

impl Token {
    /// Reads it.
    ///
    /// # Errors
    /// IO, missing, world-readable, too short.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_token_file("api.token_file", path)?.unwrap_or_default();
        let token = text.trim();
        if token.len() < SHORTEST {
            return Err(ConfigError::Value {
                key: "api.token_file",
                message: format!(
                    "{} must hold a token of at least {SHORTEST} characters; openssl rand -base64 32 makes one",
                    path.display()
                ),
            });
        }
        Ok(Self(Sha256::digest(token).into()))
    }

    /// Whether `header`, the value of `Authorization`, bears it.
    pub(super) fn is_in(&self, header: Option<&[u8]>) -> bool {
        let given = header
            .and_then(|h| h.strip_prefix(b"Bearer "))
            .unwrap_or_default();
        let hash: [u8; 32] = Sha256::digest(given.trim_ascii()).into();
        hash == self.0
    }
}

/// Requests a second, over time.
const RATE: u32 = 20;
/// Requests at once.
const BURST: u32 = 40;

/// A bucket that fills with time.
#[derive(Debug)]
pub(super) struct Rate(Mutex<(Instant, Duration)>);

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new((now, full())))
    }

    /// Takes one request out of the bucket; false if it is empty.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, credit) = *bucket;
        let credit = credit
            .saturating_add(now.saturating_duration_since(last))
            .min(full());
        let (left, good) = match credit.checked_sub(price()) {
            Some(left) => (left, true),
            None => (credit, false),
        };
        *bucket = (now, left);
        good
    }
}

fn price() -> Duration {
    Duration::from_secs(1) / RATE
}

fn full() -> Duration {
    price().saturating_mul(BURST)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_counts_whole_and_one_that_others_can_read_or_guess_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let put = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path)
        };
        let token = put("0123456789abcdef\n", 0o600).unwrap();
        assert!(token.is_in(Some(b"Bearer 0123456789abcdef")));
        for wrong in [
            None,
            Some(&b""[..]),
            Some(b"0123456789abcdef"),
            Some(b"Bearer 0123456789abcde"),
            Some(b"Bearer 0123456789abcdef0"),
            Some(b"Basic 0123456789abcdef"),
        ] {
            assert!(!token.is_in(wrong), "{wrong:?}");
        }
        assert!(
            put("short", 0o600)
                .unwrap_err()
                .to_string()
                .starts_with("api.token_file")
        );
        let exposed = put("0123456789abcdef", 0o644).unwrap_err().to_string();
        assert!(exposed.starts_with("api.token_file: "), "{exposed}");
        std::fs::remove_file(&path).unwrap();
        assert!(Token::read(&path).is_err());
    }

    #[test]
    fn a_burst_is_answered_and_then_so_many_a_second() {
        let start = Instant::now();
        let rate = Rate::new(start);
        let taken = |now| (0..1000).filter(|_| rate.take(now)).count();
        assert_eq!(taken(start), 40);
        assert_eq!(taken(start + Duration::from_secs(1)), 20);
        assert_eq!(taken(start + Duration::from_secs(100)), 40);
    }
}
