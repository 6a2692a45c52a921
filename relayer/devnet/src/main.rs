//! `virtengine-devnet`: the embedded chain as a program.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use hpc_devnet::{BlockMode, Config, Devnet, GasPrice, Genesis, GenesisAccount, Limits, Numbering};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

const EXAMPLES: &str = "\
Examples:
  # a new chain with two funded accounts
  virtengine-devnet init --home ./chain --chain-id hpc-devnet-1 \\
      --genesis-account wasm1…=1000000000stake --genesis-account wasm1…=5stake

  # run it: RPC on 127.0.0.1:26657, one block a second
  virtengine-devnet start --home ./chain

  # run it without a fixed pace: a block as soon as a transaction waits
  virtengine-devnet start --home ./chain --block-on-demand

  # prove that the state is what the blocks make of the genesis
  virtengine-devnet verify --home ./chain";

/// The embedded chain: CometBFT RPC, real transaction checks, the registry contract linked natively as code id
/// 1. Gas is an estimate, never metered.
#[derive(Parser)]
#[command(name = "virtengine-devnet", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a home folder with a genesis.
    Init(Init),
    /// Run the chain until SIGTERM or Ctrl-C.
    Start(Start),
    /// Replay all blocks of a chain that is not running and compare with its state.
    Verify(Home),
}

#[derive(Args)]
struct Home {
    /// Folder of the chain.
    #[arg(long, env = "VIRTENGINE_DEVNET_HOME", value_name = "DIR")]
    home: PathBuf,
}

#[derive(Args)]
struct Init {
    #[command(flatten)]
    home: Home,
    /// Id of the chain, part of every signature.
    #[arg(long, value_name = "ID", default_value = "hpc-devnet-1")]
    chain_id: String,
    /// A funded account, like wasm1…=1000000stake; `#NUMBER` at the end fixes its account number. Repeatable.
    #[arg(long = "genesis-account", value_name = "ADDR=COINS")]
    accounts: Vec<GenesisAccount>,
    /// How accounts made after genesis are numbered.
    #[arg(long, value_name = "HOW", default_value = "sequential")]
    account_numbers: Numbers,
    /// Gas limits of all transactions of a block together; without it there is no limit.
    #[arg(long, value_name = "GAS")]
    max_block_gas: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Numbers {
    /// 0, 1, 2, …
    Sequential,
    /// With the top bit set, as Cosmos SDK 0.54 draws them.
    Sdk54,
}

#[derive(Args)]
struct Start {
    #[command(flatten)]
    home: Home,
    /// Where the RPC listens.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:26657")]
    rpc_addr: SocketAddr,
    /// Allow an RPC address that other machines reach.
    #[arg(long)]
    allow_remote: bool,
    /// Time between blocks, like 1s or 200ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    block_time: Duration,
    /// Make a block as soon as a transaction waits, and none otherwise.
    #[arg(long, conflicts_with = "block_time")]
    block_on_demand: bool,
    /// Lowest gas price that is accepted.
    #[arg(long, value_name = "PRICE", default_value = "0stake")]
    min_gas_price: GasPrice,
    /// Transactions that may wait for a block.
    #[arg(long, value_name = "N", default_value_t = Limits::default().mempool_txs)]
    mempool_size: usize,
}

/// Parses `1s`, `1.5s` is not understood: use `1500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("`{text}`: expected whole seconds or milliseconds, like 1s or 200ms");
    let duration = if let Some(millis) = text.strip_suffix("ms") {
        Duration::from_millis(millis.parse().map_err(|_| expected())?)
    } else {
        Duration::from_secs(
            text.strip_suffix('s')
                .ok_or_else(expected)?
                .parse()
                .map_err(|_| expected())?,
        )
    };
    if duration.is_zero() || duration > Duration::from_secs(3600) {
        return Err(format!("`{text}`: expected between 1ms and 3600s"));
    }
    Ok(duration)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("VIRTENGINE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let outcome = match cli.command {
        Command::Init(init) => run_init(init),
        Command::Start(start) => run_start(start),
        Command::Verify(home) => run_verify(&home),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_init(init: Init) -> anyhow::Result<()> {
    let home = init.home.home;
    let account_numbers = match init.account_numbers {
        Numbers::Sequential => Numbering::Sequential,
        Numbers::Sdk54 => Numbering::Sdk54,
    };
    let genesis = Genesis {
        chain_id: init.chain_id,
        accounts: init.accounts,
        account_numbers,
        max_block_gas: init.max_block_gas,
    };
    genesis.check()?;
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let path = home.join("genesis.json");
    genesis.save(&path)?;
    println!("wrote {}", path.display());
    println!("next: virtengine-devnet start --home {}", home.display());
    Ok(())
}

fn config(home: PathBuf) -> anyhow::Result<Config> {
    let path = home.join("genesis.json");
    if !path.exists() {
        bail!(
            "{} has no genesis.json; make one with `virtengine-devnet init --home {0}`",
            home.display()
        );
    }
    let mut config = Config::ephemeral(Genesis::load(&path)?);
    config.home = Some(home);
    Ok(config)
}

fn run_start(start: Start) -> anyhow::Result<()> {
    let mut config = config(start.home.home)?;
    config.rpc_addr = start.rpc_addr;
    config.allow_remote = start.allow_remote;
    config.blocks = if start.block_on_demand {
        BlockMode::OnTransaction
    } else {
        BlockMode::Every(start.block_time)
    };
    config.min_gas_price = start.min_gas_price;
    config.limits.mempool_txs = start.mempool_size;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let chain = {
        let _context = runtime.enter();
        // Signals are taken over before the chain says that it runs.
        let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let chain = Devnet::start(config)?;
        println!("RPC at {}", chain.rpc_url());
        runtime.block_on(wait(&chain, signals))?;
        chain
    };
    chain.shutdown();
    Ok(())
}

/// Waits for a signal, or for the chain to fail.
async fn wait(
    chain: &hpc_devnet::Handle,
    (mut terminate, mut interrupt): (tokio::signal::unix::Signal, tokio::signal::unix::Signal),
) -> anyhow::Result<()> {
    let mut check = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = check.tick() => {
                if let Some(reason) = chain.failure() {
                    bail!("the chain has stopped: {reason}");
                }
            }
        }
    }
    tracing::info!("stopping");
    Ok(())
}

fn run_verify(home: &Home) -> anyhow::Result<()> {
    let verified = hpc_devnet::verify(&config(home.home.clone())?)?;
    println!(
        "verified: {} blocks with {} transactions replayed, {} keys of state agree",
        verified.height, verified.txs, verified.keys
    );
    Ok(())
}
