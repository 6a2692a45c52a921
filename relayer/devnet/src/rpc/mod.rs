//! CometBFT's JSON-RPC over HTTP and websocket.

mod answer;
mod evidence;
mod jsonrpc;
mod methods;
mod params;
mod server;
mod uri;
mod view;
mod websocket;

pub(crate) use server::{Server, bind};
