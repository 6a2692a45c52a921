//! Clients that nobody here wrote, against the embedded chain: CosmJS and the command line of wasmd.

mod cosmjs;
mod wasmd_cli;
