//! Identifiers (protocol decision 1): 4–64 of `[A-Za-z0-9._-]`, the first alphanumeric.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a string is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Shorter than 4 or longer than 64 bytes.
    #[error("{kind} must have 4 to 64 characters, has {len}")]
    Length {
        /// What the string should have been.
        kind: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// A character outside `[A-Za-z0-9._-]`, or a first one that is not alphanumeric.
    #[error("{kind} may hold A-Z a-z 0-9 . _ - and must start with a letter or digit")]
    Character {
        /// What the string should have been.
        kind: &'static str,
    },
}

fn check(kind: &'static str, s: &str) -> Result<(), IdError> {
    if !(4..=64).contains(&s.len()) {
        return Err(IdError::Length { kind, len: s.len() });
    }
    let mut bytes = s.bytes();
    let first_ok = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    if !first_ok || !bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        return Err(IdError::Character { kind });
    }
    Ok(())
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(extend("pattern" = r"^[A-Za-z0-9][A-Za-z0-9._-]{3,63}$"))]
        pub struct $name(String);

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(s: String) -> Result<Self, IdError> {
                check($kind, &s)?;
                Ok(Self(s))
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(s: &str) -> Result<Self, IdError> {
                check($kind, s)?;
                Ok(Self(s.to_owned()))
            }
        }

        crate::text::as_text!($name);
    };
}

id_type!(
    /// A node's identifier, unique within its cluster.
    NodeId,
    "node_id"
);
id_type!(
    /// A cluster's identifier, unique on the contract.
    ClusterId,
    "cluster_id"
);

id_type!(
    /// A task's identifier, unique in its cluster; also a file name.
    TaskId,
    "task_id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_specifications_example() {
        assert_eq!(
            "node-hpc1-compute-042".parse::<NodeId>().unwrap().as_str(),
            "node-hpc1-compute-042"
        );
    }

    #[test]
    fn refuses_what_is_outside_the_grammar() {
        for bad in ["", "abc", "-abc", ".abcd", "ab cd", "näme", "a/bcd", "a|bcd"] {
            assert!(bad.parse::<NodeId>().is_err(), "{bad}");
        }
        assert!("a".repeat(64).parse::<NodeId>().is_ok());
        assert!("a".repeat(65).parse::<NodeId>().is_err());
    }
}
