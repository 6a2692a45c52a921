//! An agent written by hand: what it sends is built field by field, so that each field can be wrong. TLS and HTTP are
//! curl's, the bytes are those of `docs/protocol.md`.

mod agent;
mod gateway;
mod task;

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKeyBytes};
use serde_json::Value;

pub use agent::{Draft, RawAgent};
pub use gateway::{Gateway, Registration};

use crate::process;

/// An Ed25519 key of a test: the seed is its number.
#[must_use]
pub fn key(number: u8) -> SigningKey {
    SigningKey::from([number; 32])
}

/// The public half, base64.
#[must_use]
pub fn public(key: &SigningKey) -> String {
    STANDARD.encode(<[u8; 32]>::from(VerificationKeyBytes::from(key)))
}

/// Seconds since 1970.
///
/// # Errors
/// If the clock stands before 1970.
pub fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// What the gateway answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status; 0 if the TLS handshake or the connection failed.
    pub status: u16,
    /// The body, null if it is not JSON.
    pub body: Value,
}

impl Answer {
    /// The stable code: of a problem, of the response's first entry in `errors`, or of a pending registration.
    #[must_use]
    pub fn code(&self) -> &str {
        let pointers = ["/code", "/response/errors/0/code"];
        pointers
            .iter()
            .find_map(|p| self.body.pointer(p))
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// True if the heartbeat was taken.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.body.pointer("/response/accepted").and_then(Value::as_bool) == Some(true)
    }

    /// One word for it: `accepted`, or status and code.
    #[must_use]
    pub fn word(&self) -> String {
        if self.accepted() {
            "accepted".into()
        } else {
            format!("{} {}", self.status, self.code())
        }
    }
}

/// Fails with what differs from the expected word.
///
/// # Errors
/// If the answer is another one.
pub fn expect(answer: &Answer, word: &str) -> Result<()> {
    if answer.word() != word {
        bail!("expected {word:?}, got {:?}: {}", answer.word(), answer.body);
    }
    Ok(())
}

/// Adds `curl` to what a test needs; named early, with its remedy.
///
/// # Errors
/// If it is missing.
pub fn need_curl() -> Result<()> {
    process::output(Command::new("curl").arg("--version"))
        .context("curl is missing. Remedy: apt-get install curl")
        .map(drop)
}
