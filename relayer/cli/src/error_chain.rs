//! Failures of the chain client, in the words of this program.

use std::borrow::Cow;

use hpc_chain::code;
use hpc_chain::gas::MoneyError;
use hpc_chain::keys::{FileError, KeyError, KeyringError};
use hpc_chain::msg::EncodeError;
use hpc_chain::query::QueryError;
use hpc_chain::rpc::RpcError;
use hpc_chain::send::SendError;
use hpc_schema::code::Code;

use crate::error::{Exit, Failure, verdict_code};

impl From<RpcError> for Failure {
    fn from(e: RpcError) -> Self {
        let message = e.to_string();
        match e {
            RpcError::Url { .. } => Self::usage("bad_node_url", message),
            RpcError::NoEndpoint | RpcError::TooMany => Self::usage("setting_missing", message),
            RpcError::Unreachable { .. } | RpcError::Broken { .. } => {
                Self::new(Exit::Unreachable, "node_unreachable", message)
                    .remedy("check --node, and that the node runs")
            }
            RpcError::Timeout { .. } => Self::new(Exit::Unreachable, "node_timeout", message)
                .remedy("try again, or raise --call-timeout"),
            RpcError::TooLarge { .. } => {
                Self::new(Exit::Failed, "answer_too_large", message).remedy("ask for less with --limit")
            }
            RpcError::RequestTooLarge { .. } => {
                Self::new(Exit::Failed, "node_error", message).remedy("send less at once")
            }
            RpcError::WrongChain { .. } => Self::usage("wrong_chain", message),
            RpcError::Behind { .. } | RpcError::NotReady { .. } => {
                Self::new(Exit::Unreachable, "node_timeout", message).remedy("try again")
            }
            RpcError::NoService { .. } => Self::new(Exit::Refused, "chain_error", message),
            RpcError::NotKept { .. } => Self::new(Exit::Failed, "node_error", message),
            RpcError::Malformed { .. } => Self::new(Exit::Unreachable, "not_a_node", message)
                .remedy("--node must name the RPC port of a CometBFT node, usually 26657"),
            RpcError::Response { .. } => Self::new(Exit::Failed, "node_error", message),
        }
    }
}

impl From<QueryError> for Failure {
    fn from(e: QueryError) -> Self {
        match e {
            QueryError::Rpc(e) => e.into(),
            QueryError::Contract { code, message } => contract(code, &message),
            QueryError::NotFound { what, .. } => Self::new(
                Exit::NotFound,
                "not_found",
                format!("{what} does not exist on this chain"),
            )
            .remedy("check --contract and --node, or make a contract with virtengine deploy"),
            QueryError::Refused {
                codespace,
                code,
                verdict,
                log,
                path: _,
            } => {
                let failure = match code::contract_code(&log) {
                    Some(stable) => contract(Some(stable), code::contract_message(&log)),
                    None => Self::new(Exit::Refused, verdict_code(&verdict), log).remedy(verdict.remedy()),
                };
                failure.abci(&codespace, code)
            }
            QueryError::NoSimulation => Self::new(Exit::Refused, "chain_error", e.to_string())
                .remedy("give the gas limit with --gas, switch one of them on, or use another --node"),
            QueryError::Malformed { .. } => Self::new(Exit::Failed, "bad_answer", e.to_string())
                .remedy("check that --contract is an HPC registry of this version"),
        }
    }
}

impl From<SendError> for Failure {
    fn from(e: SendError) -> Self {
        let text = e.to_string();
        match e {
            SendError::Query(e) => refused(e.into()),
            SendError::Money(e) => e.into(),
            SendError::Key(e) => e.into(),
            SendError::WrongChain { .. } => {
                Self::usage("wrong_chain", text).remedy("set --chain-id, --node or --profile")
            }
            SendError::AccountUnknown { .. } => Self::new(Exit::Refused, "account_unknown", text)
                .remedy("send it tokens first: virtengine tx bank send"),
            SendError::Halted { .. } => Self::new(Exit::Unreachable, "chain_halted", text)
                .remedy("try again when the chain makes blocks"),
            SendError::Refused {
                verdict,
                abci_code,
                codespace,
                log,
                remedy,
            } => Self::new(Exit::Refused, verdict_code(&verdict), log)
                .remedy(remedy)
                .abci(&codespace, abci_code),
            SendError::Failed {
                code,
                abci_code,
                codespace,
                message,
                hash,
                height,
            } => {
                let failure = match code {
                    Some(_) => refused(contract(code, &message)),
                    None => {
                        let verdict = code::of_abci(&codespace, abci_code, &message);
                        Self::new(Exit::Refused, verdict_code(&verdict), message).remedy(verdict.remedy())
                    }
                };
                failure.abci(&codespace, abci_code).tx(hash).height(height)
            }
            SendError::Expired { hash } => Self::new(Exit::Refused, "expired", text)
                .remedy("send it again; nothing has happened")
                .tx(hash),
            SendError::Superseded { hash } => Self::new(Exit::Refused, "superseded", text)
                .remedy("use one process per key, then send it again")
                .tx(hash),
            SendError::Unknown { hash, .. } => Self::new(Exit::Unknown, "outcome_unknown", text)
                .remedy(format!("virtengine query tx {hash}"))
                .tx(hash),
            SendError::Unread { hash, height, .. } => Self::new(Exit::Unknown, "result_unread", text)
                .remedy(format!("virtengine query tx {hash}"))
                .tx(hash)
                .height(height),
            SendError::Untold { hash, height } => Self::new(Exit::Unknown, "outcome_unknown", text)
                .remedy(format!(
                    "ask a node with an index of transactions: virtengine query tx {hash} --node URL"
                ))
                .tx(hash)
                .height(height),
            SendError::NothingSent => Self::new(Exit::Unreachable, "nothing_sent", text)
                .remedy("check the node, then send it again"),
        }
    }
}

impl From<KeyringError> for Failure {
    fn from(e: KeyringError) -> Self {
        let message = e.to_string();
        match e {
            KeyringError::File(e) => e.into(),
            KeyringError::NotFound { name, .. } => Self::new(Exit::NotFound, "key_not_found", message)
                .remedy(format!(
                    "create it: virtengine keys add {name}, or list them: virtengine keys list"
                )),
            KeyringError::Exists(_) => Self::new(Exit::Failed, "key_exists", message),
            KeyringError::Busy(_) => Self::new(Exit::Failed, "keyring_busy", message),
            KeyringError::Name(_) => Self::usage("bad_key_name", message),
            KeyringError::Format(_) => {
                Self::new(Exit::Failed, "bad_key_file", message).remedy("import the key again from its words")
            }
            KeyringError::Passphrase(_) => Self::new(Exit::Failed, "wrong_passphrase", message)
                .remedy("check the file that VIRTENGINE_KEYRING_PASSPHRASE_FILE names"),
            KeyringError::PassphraseNeeded(_) => Self::usage("passphrase_needed", message),
            KeyringError::Elsewhere(_) => Self::usage("key_in_hsm", message),
            KeyringError::Credential { .. } | KeyringError::CredentialName(_) => {
                Self::usage("key_credential_missing", message)
            }
            KeyringError::CredentialWords { .. } => Self::new(Exit::Failed, "bad_key", message),
            KeyringError::OtherKey { .. } => Self::new(Exit::Failed, "key_credential_differs", message),
            KeyringError::PassphraseShort => Self::usage("passphrase_short", message),
            KeyringError::Key(e) => e.into(),
        }
    }
}

impl From<FileError> for Failure {
    fn from(e: FileError) -> Self {
        let code = match &e {
            FileError::Mode { .. } | FileError::Owner { .. } | FileError::Kind { .. } => "unsafe_file",
            FileError::TooLong { .. } => "file_too_large",
            FileError::Exists { .. } => "file_exists",
            FileError::Io { .. } => "file_error",
        };
        Self::new(Exit::Failed, code, e.to_string())
    }
}

impl From<KeyError> for Failure {
    fn from(e: KeyError) -> Self {
        Self::new(Exit::Failed, "bad_key", e.to_string())
    }
}

impl From<MoneyError> for Failure {
    fn from(e: MoneyError) -> Self {
        Self::usage("bad_amount", e.to_string())
    }
}

impl From<EncodeError> for Failure {
    fn from(e: EncodeError) -> Self {
        Self::new(Exit::Failed, "bad_message", e.to_string())
    }
}

/// A registry's refusal. Asking for what is not there is not found; everything else is a refusal.
fn contract(code: Option<Code>, message: &str) -> Failure {
    let Some(code) = code else {
        return Failure::new(Exit::Refused, "contract_error", message)
            .remedy("check that --contract is an HPC registry of this version");
    };
    let exit = match code {
        Code::UnknownNode | Code::UnknownCluster => Exit::NotFound,
        _ => Exit::Refused,
    };
    let remedy: Cow<'static, str> = match code {
        Code::InvalidDeposit => {
            Cow::Borrowed("give --deposit as the parameter cluster_deposit says: virtengine query hpc params")
        }
        other => Cow::Borrowed(other.remedy()),
    };
    Failure::new(exit, code.as_str(), code::contract_sentence(code, message)).remedy(remedy)
}

/// Of a transaction nothing is "not found": it was refused.
fn refused(mut failure: Failure) -> Failure {
    if failure.exit == Exit::NotFound {
        failure.exit = Exit::Refused;
    }
    failure
}

#[cfg(test)]
mod tests {
    use hpc_chain::code::Verdict;
    use hpc_chain::hash::TxHash;

    use super::*;

    fn refusal(code: Code, sentence: &str) -> String {
        format!("{code}: {sentence}; {}", code.remedy())
    }

    #[test]
    fn a_contracts_sentence_is_shown_without_code_and_remedy() {
        let message = refusal(
            Code::NotAuthorized,
            "wasm1abc is neither owner nor operator of hpc-cluster-1",
        );
        let failure = contract(Some(Code::NotAuthorized), &message);
        assert_eq!(
            failure.message,
            "wasm1abc is neither owner nor operator of hpc-cluster-1"
        );
        assert_eq!(failure.code, "not_authorized");
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(failure.remedy.as_deref(), Some(Code::NotAuthorized.remedy()));
    }

    #[test]
    fn asking_for_an_unknown_node_is_not_found_but_draining_one_is_refused() {
        let message = refusal(Code::UnknownNode, "node-a is in no cluster");
        let asked: Failure = QueryError::Contract {
            code: Some(Code::UnknownNode),
            message: message.clone(),
        }
        .into();
        assert_eq!(asked.exit, Exit::NotFound);
        let sent: Failure = SendError::Query(QueryError::Contract {
            code: Some(Code::UnknownNode),
            message,
        })
        .into();
        assert_eq!(sent.exit, Exit::Refused);
        assert_eq!(sent.code, "unknown_node");
    }

    #[test]
    fn a_query_refused_with_wasmds_frame_keeps_the_contracts_code() {
        let log = "unknown_cluster: hpc-x does not exist; create the cluster first: virtengine tx hpc create-cluster: \
                   query wasm contract failed";
        let failure: Failure = QueryError::Refused {
            path: "/cosmwasm.wasm.v1.Query/SmartContractState",
            codespace: "wasm".into(),
            code: 9,
            verdict: Verdict::Other,
            log: log.into(),
        }
        .into();
        assert_eq!(failure.exit, Exit::NotFound);
        assert_eq!(failure.code, "unknown_cluster");
        assert_eq!(failure.message, "hpc-x does not exist");
        assert!(
            failure.to_json().contains(r#""codespace":"wasm","abci_code":9"#),
            "{}",
            failure.to_json()
        );
    }

    #[test]
    fn an_unknown_outcome_names_the_query_that_tells_it() {
        let hash = TxHash::from([1; 32]);
        let failure: Failure = SendError::Unknown {
            hash,
            timeout_height: 9,
        }
        .into();
        assert_eq!(failure.exit, Exit::Unknown);
        assert_eq!(
            failure.remedy.as_deref(),
            Some(format!("virtengine query tx {hash}").as_str())
        );
    }

    #[test]
    fn of_a_transaction_whose_result_no_node_keeps_the_outcome_is_unknown_and_who_could_tell_is_named() {
        let hash = TxHash::from([1; 32]);
        let failure: Failure = SendError::Untold { hash, height: 9 }.into();
        assert_eq!((failure.exit.number(), &*failure.code), (6, "outcome_unknown"));
        for word in ["in block 9", "is not known", "before sending it again"] {
            assert!(failure.message.contains(word), "{failure}");
        }
        let remedy = failure.remedy.as_deref().unwrap();
        assert!(
            remedy.contains("index of transactions")
                && remedy.contains(&format!("virtengine query tx {hash} --node")),
            "{remedy}"
        );
        assert!(
            failure.to_string().contains(&format!("\ntransaction: {hash}\n")),
            "{failure}"
        );
        let json = failure.to_json();
        assert!(
            json.contains(&format!(r#""txhash":"{hash}","height":9"#)),
            "{json}"
        );
    }
}
