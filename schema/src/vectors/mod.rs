//! Signed test vectors for writers of agents in other languages, and the check that our code agrees.
//!
//! A vector file is `{"description", "context": {…}, "cases": [{"name", …, "result"}]}`. `result` is
//! `"accepted"` or `{"code", "field"?, "malformed"?}`. Keys come from fixed seeds and are worth nothing.

mod command;
mod heartbeat;
mod registration;
mod report;
mod task;
mod token;

use ed25519_zebra::{SigningKey, VerificationKey};
use serde_json::{Value, json};

use crate::code::Code;
use crate::key::{AgentKey, KeyError};
use crate::refusal::{Refusal, RefusalKind};

/// Why a vector could not be made or does not hold.
#[derive(Debug, thiserror::Error)]
pub enum VectorError {
    /// A fixed input of the generator breaks a rule.
    #[error("a fixed input breaks a rule: {0}")]
    Input(String),
    /// A file is not of the documented form.
    #[error("{case}: {what} is absent or of another type")]
    Form {
        /// Case of the file, or its context.
        case: String,
        /// What is missing.
        what: String,
    },
    /// The code does not do what the vector says.
    #[error("{case}: {what} should be {expected}, is {got}")]
    Differs {
        /// Case of the file.
        case: String,
        /// What differs.
        what: &'static str,
        /// By the file.
        expected: String,
        /// By the code.
        got: String,
    },
}

impl VectorError {
    fn input(e: impl std::fmt::Display) -> Self {
        Self::Input(e.to_string())
    }
}

impl From<KeyError> for VectorError {
    fn from(e: KeyError) -> Self {
        Self::input(e)
    }
}

/// Every vector file with its name in `schema/vectors/`.
///
/// # Errors
/// If a fixed input breaks a rule of the protocol: then the rule has changed.
pub fn vectors() -> Result<Vec<(&'static str, Value)>, VectorError> {
    Ok(vec![
        ("command.json", command::generate()?),
        ("heartbeat.json", heartbeat::generate()?),
        ("registration.json", registration::generate()?),
        ("report.json", report::generate()?),
        ("task.json", task::generate()?),
        ("token.json", token::generate()?),
    ])
}

/// Checks the content of a vector file with this version's code; answers how many cases hold.
///
/// # Errors
/// The first case that does not hold, or a file that is not known.
pub fn check_vectors(file_name: &str, content: &Value) -> Result<usize, VectorError> {
    let check = match file_name {
        "command.json" => command::check,
        "heartbeat.json" => heartbeat::check,
        "registration.json" => registration::check,
        "report.json" => report::check,
        "task.json" => task::check,
        "token.json" => token::check,
        other => return Err(VectorError::Input(format!("no vectors are called {other}"))),
    };
    let context = Case {
        name: "context".into(),
        value: content.get("context").cloned().unwrap_or_default(),
    };
    let cases = content
        .get("cases")
        .and_then(Value::as_array)
        .filter(|c| !c.is_empty())
        .ok_or_else(|| VectorError::Form {
            case: file_name.into(),
            what: "cases".into(),
        })?;
    for value in cases {
        let name = value
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("unnamed")
            .to_owned();
        check(
            &context,
            &Case {
                name,
                value: value.clone(),
            },
        )?;
    }
    Ok(cases.len())
}

/// One case of a file, read field by field.
struct Case {
    name: String,
    value: Value,
}

impl Case {
    fn missing(&self, what: &str) -> VectorError {
        VectorError::Form {
            case: self.name.clone(),
            what: what.into(),
        }
    }

    fn text(&self, what: &str) -> Result<&str, VectorError> {
        self.value
            .get(what)
            .and_then(Value::as_str)
            .ok_or_else(|| self.missing(what))
    }

    fn number(&self, what: &str) -> Result<u64, VectorError> {
        self.value
            .get(what)
            .and_then(Value::as_u64)
            .ok_or_else(|| self.missing(what))
    }

    fn parsed<T: std::str::FromStr>(&self, what: &str) -> Result<T, VectorError> {
        self.text(what)?.parse().map_err(|_| self.missing(what))
    }

    fn bytes(&self, what: &str) -> Result<Vec<u8>, VectorError> {
        hex::decode(self.text(what)?).map_err(|_| self.missing(what))
    }

    fn array<const N: usize>(&self, what: &str) -> Result<[u8; N], VectorError> {
        self.bytes(what)?.try_into().map_err(|_| self.missing(what))
    }

    fn same(&self, what: &'static str, got: &Value) -> Result<(), VectorError> {
        let expected = self.value.get(what).ok_or_else(|| self.missing(what))?;
        if expected == got {
            return Ok(());
        }
        Err(VectorError::Differs {
            case: self.name.clone(),
            what,
            expected: expected.to_string(),
            got: got.to_string(),
        })
    }
}

/// A key pair from a fixed seed.
struct Signer {
    seed: [u8; 32],
    key: SigningKey,
    public: AgentKey,
}

impl Signer {
    fn from_seed(byte: u8) -> Result<Self, VectorError> {
        let seed = [byte; 32];
        let key = SigningKey::from(seed);
        let public: [u8; 32] = VerificationKey::from(&key).into();
        Ok(Self {
            seed,
            key,
            public: AgentKey::from_bytes(public)?,
        })
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).into()
    }

    fn json(&self) -> Value {
        json!({"seed": hex::encode(self.seed), "public_key": self.public.to_base64()})
    }
}

fn result_of<T>(result: &Result<T, Refusal>) -> Value {
    match result {
        Ok(_) => json!("accepted"),
        Err(r) => {
            let mut v = json!({"code": r.code.as_str()});
            if let (Some(map), Some(field)) = (v.as_object_mut(), r.field.as_deref()) {
                map.insert("field".into(), json!(field));
            }
            if let (Some(map), RefusalKind::Malformed) = (v.as_object_mut(), r.kind) {
                map.insert("malformed".into(), json!(true));
            }
            v
        }
    }
}

fn result_of_code<T>(result: &Result<T, Code>) -> Value {
    match result {
        Ok(_) => json!("accepted"),
        Err(code) => json!({"code": code.as_str()}),
    }
}

const CHAIN_ID: &str = "hpc-local-1";
const CONTRACT: &str = "wasm14hj2tavq8fpesdwxxcu44rty3hh90vhujrvcmstl4zr3txmfvw9s0phg4d";
const NOW: u64 = 1_769_781_900;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vector_file_holds_and_has_negative_cases() {
        for (name, content) in vectors().unwrap() {
            assert!(check_vectors(name, &content).unwrap() > 1, "{name}");
            let refused = content["cases"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|c| c["result"]["code"].is_string());
            assert!(refused.count() > 0, "{name}");
        }
    }

    #[test]
    fn vectors_are_the_same_at_every_run() {
        assert_eq!(vectors().unwrap(), vectors().unwrap());
    }

    #[test]
    fn a_vector_that_does_not_hold_is_found() {
        for (name, mut content) in vectors().unwrap() {
            content["cases"][0]["result"] = json!({"code": "malformed"});
            assert!(
                matches!(check_vectors(name, &content), Err(VectorError::Differs { .. })),
                "{name}"
            );
        }
    }
}
