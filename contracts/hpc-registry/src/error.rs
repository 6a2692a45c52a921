use cosmwasm_std::StdError;
use hpc_schema::code::Code;
use hpc_schema::id::IdError;
use hpc_schema::registration::FieldError;
use hpc_schema::registry::ParamsError;

/// Why a message or query is refused. The text begins with a stable code and ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// Refused by a rule of the protocol.
    #[error("{code}: {message}; {}", code.remedy())]
    Refused {
        /// Stable code.
        code: Code,
        /// What is wrong, naming the field.
        message: String,
    },
    /// Storage holds what this version never wrote.
    #[error("corrupt_storage: {what} cannot be read; migrate the contract to the version that wrote it")]
    Corrupt {
        /// Which value.
        what: &'static str,
    },
    /// Refused by the CosmWasm library: an address, JSON.
    #[error("malformed: {0}; see docs/protocol.md")]
    Std(String),
}

impl ContractError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Refused {
            code,
            message: message.into(),
        }
    }

    /// The stable code, if a rule of the protocol refused.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Corrupt { .. } | Self::Std(_) => None,
        }
    }
}

/// Shorthand for a refusal.
pub(crate) fn refuse<T>(code: Code, message: impl Into<String>) -> Result<T, ContractError> {
    Err(ContractError::new(code, message))
}

impl From<StdError> for ContractError {
    fn from(e: StdError) -> Self {
        Self::Std(e.to_string())
    }
}

impl From<ParamsError> for ContractError {
    fn from(e: ParamsError) -> Self {
        Self::new(Code::InvalidParams, e.to_string())
    }
}

impl From<FieldError> for ContractError {
    fn from(e: FieldError) -> Self {
        Self::new(Code::InvalidField, e.to_string())
    }
}

impl From<IdError> for ContractError {
    fn from(e: IdError) -> Self {
        Self::new(Code::InvalidField, e.to_string())
    }
}
