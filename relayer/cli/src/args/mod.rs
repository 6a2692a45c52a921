//! What the command line understands. Nothing here does anything: each struct is read by the module of its name.

mod common;
mod deploy;
mod keys;
mod profile;
mod proof;
mod query;
mod tx;
mod tx_values;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use common::{Connect, Gas, KeyringArgs, Page, SignArgs};
pub(crate) use deploy::DeployArgs;
pub(crate) use keys::{KeysArgs, KeysCommand};
pub(crate) use profile::ProfileCommand;
pub(crate) use proof::ProofCommand;
pub(crate) use query::{AnchorsArgs, BankQuery, HpcQuery, QueryArgs, QueryCommand};
pub(crate) use tx::{BankTx, HpcTx, TxArgs, TxCommand};
pub(crate) use tx_values::{ClusterSettings, CreateCluster, DrainArgs, NodeRef, ParamsArgs, UpdateCluster};

use crate::output::Format;

const EXAMPLES: &str = "\
Examples:
  virtengine deploy --node http://127.0.0.1:26657 --chain-id hpc-local-1 --from owner --gas-prices 0stake
  virtengine query hpc node node-hpc1-compute-042
  virtengine tx hpc activate-cluster hpc-cluster-1 --from owner --yes

Settings: a flag wins over its environment variable, that over the profile which `deploy` writes.

Exit codes:
  0  done
  1  failed: input, files, keys, damaged answers
  2  wrong usage, or a setting is missing
  3  not found: node, cluster, transaction, key, profile
  4  refused by the chain or the contract, or a proof does not hold; the code is printed
  5  the node cannot be reached
  6  no outcome known: the transaction may still be included, or is in a block, its result unread

Errors name a stable code and a remedy; with `-o json` they are JSON on standard error.";

/// Queries and transactions of the HPC registry.
#[derive(Debug, Parser)]
#[command(name = "virtengine", version, after_help = EXAMPLES, max_term_width = 110, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// How answers and errors are printed.
    #[arg(
        short,
        long,
        global = true,
        env = "VIRTENGINE_OUTPUT",
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Global options"
    )]
    pub(crate) output: Format,
    /// Folder of profiles and keyring [default: $XDG_CONFIG_HOME/virtengine or ~/.config/virtengine].
    #[arg(
        long,
        global = true,
        env = "VIRTENGINE_HOME",
        value_name = "DIR",
        help_heading = "Global options"
    )]
    pub(crate) home: Option<PathBuf>,
    /// Name of a profile, or the path of a profile file [default: the one chosen by `profile use`].
    #[arg(
        long,
        global = true,
        env = "VIRTENGINE_PROFILE",
        value_name = "NAME",
        help_heading = "Global options"
    )]
    pub(crate) profile: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask the chain.
    #[command(visible_alias = "q", after_help = query::EXAMPLES)]
    Query(Box<QueryArgs>),
    /// Change something on the chain.
    #[command(after_help = tx::EXAMPLES)]
    Tx(Box<TxArgs>),
    /// Signing keys of this machine.
    #[command(after_help = keys::EXAMPLES)]
    Keys(Box<KeysArgs>),
    /// Put the registry contract on a chain and write a profile for it.
    #[command(after_help = deploy::EXAMPLES)]
    Deploy(Box<DeployArgs>),
    /// Proofs of heartbeats.
    #[command(subcommand, after_help = proof::EXAMPLES)]
    Proof(Box<ProofCommand>),
    /// Profiles: which chain and contract the other commands mean.
    #[command(subcommand, after_help = profile::EXAMPLES)]
    Profile(ProfileCommand),
    /// Print a completion script for a shell.
    #[command(after_help = "\
Examples:
  virtengine completion bash > ~/.local/share/bash-completion/completions/virtengine
  virtengine completion zsh > ~/.zfunc/_virtengine
  virtengine completion fish > ~/.config/fish/completions/virtengine.fish")]
    Completion {
        /// Which shell.
        #[arg(value_parser = clap::builder::EnumValueParser::<Shell>::new())]
        shell: Shell,
    },
    /// Print the version.
    #[command(after_help = "\
Examples:
  virtengine version
  virtengine version -o json")]
    Version,
}

#[cfg(test)]
mod tests;
