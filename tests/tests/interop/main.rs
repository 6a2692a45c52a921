//! Clients that nobody here wrote, against the embedded chain: CosmJS and the command line of wasmd; and the types for such clients.

mod cosmjs;
mod types;
mod wasmd_cli;
