//! CometBFT's JSON-RPC over HTTP and websocket.

mod jsonrpc;
mod methods;
mod params;
mod server;
mod view;
mod websocket;

pub(crate) use server::{Server, bind};
