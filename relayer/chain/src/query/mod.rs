//! Questions to the chain's modules, by `abci_query` alone. Every answer carries the height at which it holds.

mod account;
mod bank;
mod feegrant;
mod wasm;

pub use account::Account;
pub use feegrant::FeeGrant;
pub use wasm::{CodeInfo, ContractInfo};

use cosmrs::proto::traits::Message;

use crate::code::{self, Class, Verdict};
use crate::rpc::{AbciAnswer, AsRpcError, Client, Endpoints, RpcError};
use hpc_schema::code::Code;

/// A failed question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The endpoints could not be asked.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The contract refused.
    #[error("{message}")]
    Contract {
        /// The registry's stable code, if it gave one.
        code: Option<Code>,
        /// Its message.
        message: String,
    },
    /// What was asked for does not exist.
    #[error("{what} does not exist: {log}")]
    NotFound {
        /// What was asked for.
        what: &'static str,
        /// The height at which it does not; 0 where the chain does not say.
        height: u64,
        /// The chain's text.
        log: String,
    },
    /// The chain refused.
    #[error("{path}: {log} (codespace {codespace}, code {code})")]
    Refused {
        /// Query path.
        path: &'static str,
        /// ABCI codespace.
        codespace: String,
        /// ABCI code.
        code: u32,
        /// Its meaning, for simulations.
        verdict: Verdict,
        /// The chain's text.
        log: String,
    },
    /// No node that answers has a service that simulates: it registers that only with one of its other ports.
    #[error("this node simulates nothing: grpc.enable and api.enable are off in its app.toml")]
    NoSimulation,
    /// The answer does not have the shape that was expected.
    #[error("unreadable answer to {path}: {reason}")]
    Malformed {
        /// Query path.
        path: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl QueryError {
    /// How a caller should react.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Rpc(e) => e.class(),
            Self::Refused { verdict, .. } => verdict.class().unwrap_or(Class::Rejected),
            Self::Contract { .. } | Self::NotFound { .. } | Self::NoSimulation | Self::Malformed { .. } => {
                Class::Rejected
            }
        }
    }
}

impl AsRpcError for QueryError {
    fn rpc(&self) -> Option<&RpcError> {
        match self {
            Self::Rpc(e) => Some(e),
            _ => None,
        }
    }
}

/// An answer and the height at which it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<T> {
    /// The answer's own height.
    pub height: u64,
    /// The answer.
    pub value: T,
}

impl<T> At<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> At<U> {
        At {
            height: self.height,
            value: f(self.value),
        }
    }
}

/// The chain behind the operator's endpoints. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Chain {
    endpoints: Endpoints,
    /// Answers below this height do not count.
    floor: u64,
}

impl Chain {
    /// Over these endpoints.
    #[must_use]
    pub fn new(endpoints: Endpoints) -> Self {
        Self { endpoints, floor: 0 }
    }

    /// The same chain, of which only answers of at least this height count: an endpoint that is behind is passed over, and
    /// if all are, the question fails with [`RpcError::Behind`].
    #[must_use]
    pub fn from_height(&self, floor: u64) -> Self {
        Self {
            endpoints: self.endpoints.clone(),
            floor,
        }
    }

    /// Answers below this height do not count.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The endpoints.
    #[must_use]
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The chain id that the best endpoint names.
    ///
    /// # Errors
    /// [`QueryError::Rpc`].
    pub async fn chain_id(&self) -> Result<String, QueryError> {
        Ok(self
            .endpoints
            .ask(|c: Client| async move { c.status().await })
            .await?
            .chain_id)
    }

    /// One gRPC query over `abci_query`, at the newest height (0) or at a given one.
    async fn grpc<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        what: &'static str,
        question: &Q,
        height: u64,
    ) -> Result<At<A>, QueryError> {
        let data = question.encode_to_vec();
        let floor = self.floor;
        let answer = self
            .endpoints
            .ask(|c: Client| {
                let data = data.clone();
                async move { at_least(&c, floor, path, &data, height).await }
            })
            .await?;
        if answer.code != 0 {
            let (codespace, code, log, height) = (answer.codespace, answer.code, answer.log, answer.height);
            return Err(if code::is_contract_text(&log) {
                let message = code::contract_message(&log).to_owned();
                QueryError::Contract {
                    code: code::contract_code(&log),
                    message,
                }
            } else if code::is_not_found(&codespace, code, &log) {
                QueryError::NotFound { what, height, log }
            } else {
                QueryError::Refused {
                    path,
                    verdict: code::of_simulation(&codespace, code, &log),
                    log: code::without_stack(&log).to_owned(),
                    codespace,
                    code,
                }
            });
        }
        let value = A::decode(answer.value.as_slice()).map_err(|e| QueryError::Malformed {
            path,
            reason: e.to_string(),
        })?;
        Ok(At {
            height: answer.height,
            value,
        })
    }
}

/// An answer of at least this height.
async fn at_least(
    client: &Client,
    floor: u64,
    path: &'static str,
    data: &[u8],
    height: u64,
) -> Result<AbciAnswer, RpcError> {
    let behind = |height| RpcError::Behind {
        endpoint: client.name().to_owned(),
        height,
        wanted: floor,
    };
    // A refusal does not say its height; a block above the floor says that the floor's state is there.
    let before = if floor > 0 {
        client.status().await?.height
    } else {
        0
    };
    let answer = client.abci_query(path, data, height).await?;
    if answer.code != 0 && code::is_not_ready(&answer.log) {
        let endpoint = client.name().to_owned();
        return Err(RpcError::NotReady { endpoint });
    }
    if path == account::SIMULATE && code::is_unknown_path(&answer.codespace, answer.code, &answer.log) {
        let endpoint = client.name().to_owned();
        return Err(RpcError::NoService { endpoint });
    }
    let proven = if answer.code == 0 || answer.height > 0 {
        answer.height
    } else {
        before.saturating_sub(1)
    };
    if proven < floor {
        return Err(behind(proven));
    }
    Ok(answer)
}
