//! Where secrets lie.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How secrets are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// Under a passphrase.
    File,
    /// In the clear (mode 0600): for test chains only.
    Test,
    /// In an HSM; the file says where.
    Pkcs11,
    /// A credential that the service manager hands over at each start; the file says which.
    Credential,
}

impl FromStr for Backend {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "file" => Ok(Self::File),
            "test" => Ok(Self::Test),
            other => Err(format!("{other:?} is no keyring backend; use file or test")),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Test => "test",
            Self::Pkcs11 => "pkcs11",
            Self::Credential => "credential",
        })
    }
}
