//! The boundary between the chain and a natively linked contract.

use std::marker::PhantomData;

use cosmwasm_std::{Binary, Deps, DepsMut, Env, MessageInfo, Response, from_json};
use serde::de::DeserializeOwned;

/// A contract by its entry points. Messages are raw JSON, as they stand in the transaction or query; errors
/// are the contract's own text, as wasmd would put it into the log.
pub trait NativeContract: Send + Sync {
    /// A name for logs and for the code's data hash.
    fn name(&self) -> &str;

    /// # Errors
    /// The contract's refusal, or a message that does not parse.
    fn instantiate(
        &self,
        deps: DepsMut<'_>,
        env: Env,
        info: MessageInfo,
        msg: &[u8],
    ) -> Result<Response, String>;

    /// # Errors
    /// The contract's refusal, or a message that does not parse.
    fn execute(&self, deps: DepsMut<'_>, env: Env, info: MessageInfo, msg: &[u8])
    -> Result<Response, String>;

    /// # Errors
    /// The contract's refusal, or a message that does not parse.
    fn query(&self, deps: Deps<'_>, env: Env, msg: &[u8]) -> Result<Binary, String>;

    /// # Errors
    /// The contract's refusal, or a message that does not parse.
    fn migrate(&self, deps: DepsMut<'_>, env: Env, msg: &[u8]) -> Result<Response, String>;
}

/// A contract with typed messages and plain CosmWasm functions.
///
/// `I`, `X`, `Q`, `M` are the instantiate, execute, query and migrate messages, `E` the contract's error.
pub struct Typed<I, X, Q, M, E> {
    name: &'static str,
    instantiate: fn(DepsMut<'_>, Env, MessageInfo, I) -> Result<Response, E>,
    execute: fn(DepsMut<'_>, Env, MessageInfo, X) -> Result<Response, E>,
    query: fn(Deps<'_>, Env, Q) -> Result<Binary, E>,
    migrate: fn(DepsMut<'_>, Env, M) -> Result<Response, E>,
    messages: PhantomData<fn(I, X, Q, M)>,
}

impl<I, X, Q, M, E> Typed<I, X, Q, M, E> {
    /// Wraps the four entry points.
    pub fn new(
        name: &'static str,
        instantiate: fn(DepsMut<'_>, Env, MessageInfo, I) -> Result<Response, E>,
        execute: fn(DepsMut<'_>, Env, MessageInfo, X) -> Result<Response, E>,
        query: fn(Deps<'_>, Env, Q) -> Result<Binary, E>,
        migrate: fn(DepsMut<'_>, Env, M) -> Result<Response, E>,
    ) -> Self {
        Self {
            name,
            instantiate,
            execute,
            query,
            migrate,
            messages: PhantomData,
        }
    }
}

impl<I, X, Q, M, E> std::fmt::Debug for Typed<I, X, Q, M, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Typed")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The error's text is the one that the wasm build of a contract gives.
fn parse<T: DeserializeOwned>(msg: &[u8]) -> Result<T, String> {
    from_json(msg).map_err(|error| error.to_string())
}

impl<I, X, Q, M, E> NativeContract for Typed<I, X, Q, M, E>
where
    I: DeserializeOwned,
    X: DeserializeOwned,
    Q: DeserializeOwned,
    M: DeserializeOwned,
    E: std::fmt::Display,
{
    fn name(&self) -> &str {
        self.name
    }

    fn instantiate(
        &self,
        deps: DepsMut<'_>,
        env: Env,
        info: MessageInfo,
        msg: &[u8],
    ) -> Result<Response, String> {
        (self.instantiate)(deps, env, info, parse(msg)?).map_err(|error| error.to_string())
    }

    fn execute(
        &self,
        deps: DepsMut<'_>,
        env: Env,
        info: MessageInfo,
        msg: &[u8],
    ) -> Result<Response, String> {
        (self.execute)(deps, env, info, parse(msg)?).map_err(|error| error.to_string())
    }

    fn query(&self, deps: Deps<'_>, env: Env, msg: &[u8]) -> Result<Binary, String> {
        (self.query)(deps, env, parse(msg)?).map_err(|error| error.to_string())
    }

    fn migrate(&self, deps: DepsMut<'_>, env: Env, msg: &[u8]) -> Result<Response, String> {
        (self.migrate)(deps, env, parse(msg)?).map_err(|error| error.to_string())
    }
}
