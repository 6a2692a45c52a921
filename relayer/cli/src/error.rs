//! Failures as people and scripts see them: an exit code, a stable code, a message, a remedy.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use hpc_chain::code::Verdict;
use hpc_chain::hash::TxHash;
use serde::Serialize;

/// Exit codes. They stand in `--help` and `docs/cli.md` and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Input, files, keys, damaged answers.
    Failed = 1,
    /// Wrong usage, or a setting is missing.
    Usage = 2,
    /// Node, cluster, transaction, key or profile that does not exist.
    NotFound = 3,
    /// The chain or the contract said no, or a proof does not hold.
    Refused = 4,
    /// No node could be asked.
    Unreachable = 5,
    /// The transaction may still be included, or is in a block, and its result could not be read.
    Unknown = 6,
}

impl Exit {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Unreachable => 5,
            Self::Unknown => 6,
        }
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Stable word: one of the protocol's codes, or one of `docs/cli.md`.
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) remedy: Option<Cow<'static, str>>,
    /// Boxed, because most failures have none of it.
    on_chain: Box<OnChain>,
}

/// What a chain said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OnChain {
    /// Codespace and number.
    abci: Option<(String, u32)>,
    /// The transaction.
    txhash: Option<TxHash>,
    /// Block it is in, if it is in one.
    height: Option<u64>,
}

/// Errors in JSON: `{"error": {…}}`.
#[derive(Serialize)]
struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'a str>,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    codespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    abci_code: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    txhash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u64>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.into(),
            message: message.into(),
            remedy: None,
            on_chain: Box::default(),
        }
    }

    pub(crate) fn usage(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(path: &Path, e: &dyn fmt::Display) -> Self {
        Self::new(Exit::Failed, "file_error", format!("{}: {e}", path.display()))
            .remedy("check the path, and that it may be read or written here")
    }

    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    #[must_use]
    pub(crate) fn abci(mut self, codespace: &str, code: u32) -> Self {
        self.on_chain.abci = Some((codespace.to_owned(), code));
        self
    }

    #[must_use]
    pub(crate) fn tx(mut self, hash: TxHash) -> Self {
        self.on_chain.txhash = Some(hash);
        self
    }

    #[must_use]
    pub(crate) fn height(mut self, height: u64) -> Self {
        self.on_chain.height = Some(height);
        self
    }

    /// One line of JSON.
    pub(crate) fn to_json(&self) -> String {
        let Self {
            exit,
            code,
            message,
            remedy,
            on_chain,
        } = self;
        let OnChain { abci, txhash, height } = on_chain.as_ref();
        let body = Body {
            code,
            message,
            remedy: remedy.as_deref(),
            exit_code: exit.number(),
            codespace: abci.as_ref().map(|(space, _)| space.as_str()),
            abci_code: abci.as_ref().map(|(_, code)| *code),
            txhash: txhash.map(|h| h.to_string()),
            height: *height,
        };
        serde_json::to_string(&Envelope { error: body }).unwrap_or_default()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some((codespace, code)) = &self.on_chain.abci {
            write!(f, " (codespace {codespace}, code {code})")?;
        }
        if let Some(hash) = &self.on_chain.txhash {
            write!(f, "\ntransaction: {hash}")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "\nremedy: {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// The stable word of a chain's refusal.
pub(crate) fn verdict_code(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Accepted => "accepted",
        Verdict::AlreadyInCache => "already_in_mempool",
        Verdict::MempoolFull => "mempool_full",
        Verdict::WrongSequence { .. } => "wrong_sequence",
        Verdict::TimeoutHeight => "timeout_height",
        Verdict::OutOfGas => "out_of_gas",
        Verdict::InsufficientFee => "insufficient_fee",
        Verdict::InsufficientFunds | Verdict::FeeGrant => "insufficient_funds",
        Verdict::Unauthorized => "unauthorized",
        Verdict::TxTooLarge => "tx_too_large",
        Verdict::ContractError => "contract_error",
        Verdict::Other => "chain_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_json_has_its_code_its_remedy_and_the_chains_numbers() {
        let failure = Failure::new(Exit::Refused, "not_authorized", "only the owner may")
            .remedy("send as the cluster's owner")
            .abci("wasm", 5)
            .tx(TxHash::from([0xab; 32]));
        assert_eq!(
            failure.to_json(),
            format!(
                "{{\"error\":{{\"code\":\"not_authorized\",\"message\":\"only the owner may\",\
                 \"remedy\":\"send as the cluster's owner\",\"exit_code\":4,\"codespace\":\"wasm\",\"abci_code\":5,\
                 \"txhash\":\"{}\"}}}}",
                "AB".repeat(32)
            )
        );
    }

    #[test]
    fn an_error_in_text_has_the_code_in_front_and_the_remedy_on_its_own_line() {
        let failure = Failure::usage("setting_missing", "no node is set").remedy("give --node");
        assert_eq!(
            failure.to_string(),
            "error[setting_missing]: no node is set\nremedy: give --node"
        );
    }
}
