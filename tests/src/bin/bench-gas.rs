//! Measures gas on a wasmd chain of its own; `scripts/bench gas` runs it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use hpc_chain::keys::LocalKey;
use hpc_tests::bench::budget::Budget;
use hpc_tests::bench::chain::{CHAIN_ID, Chain, Genesis, UNPINNED};
use hpc_tests::bench::figures::Measured;
use hpc_tests::bench::fleet::Domain;
use hpc_tests::bench::measure::Bench;
use hpc_tests::bench::page;
use hpc_tests::bench::sender::{PREFIX, Sender};
use hpc_tests::bench::silent::Silent;
use hpc_tests::raw::now;

/// Sizes of clusters in a whole run.
const SIZES: [usize; 5] = [1, 10, 50, 256, 1_024];
/// Nodes of each cluster that is silent when the chain starts, and of the one that is to be pruned.
const SILENT: usize = 1_024;
const FORGOTTEN: usize = 320;

/// Gas on wasmd of all that the registry does.
#[derive(Parser)]
struct Args {
    /// The registry, as `scripts/wasm` makes it.
    #[arg(long)]
    wasm: PathBuf,
    /// The naive contract, as `scripts/wasm --package hpc-bench-naive` makes it.
    #[arg(long)]
    naive: PathBuf,
    /// Where the figures go.
    #[arg(long, default_value = "target/bench/gas.json")]
    out: PathBuf,
    /// Sizes of clusters.
    #[arg(long, value_delimiter = ',', default_values_t = SIZES)]
    sizes: Vec<usize>,
    /// Measures these parts alone.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Fails if a figure is above its budget or its ceiling in this file.
    #[arg(long)]
    budget: Option<PathBuf>,
    /// Writes the figures into the budget instead, and the tables into this page.
    #[arg(long, requires = "budget", conflicts_with_all = ["only", "sizes"])]
    update: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Batches,
    Variants,
    Layouts,
    Pinned,
    Upkeep,
    Messages,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let measured = measure(&args).await?;
    println!("{}", page::tables(&measured));
    write(
        &args.out,
        &format!("{}\n", serde_json::to_string_pretty(&measured)?),
    )?;
    let Some(path) = &args.budget else { return Ok(()) };
    let text = fs::read_to_string(path)?;
    let mut budget: Budget =
        serde_json::from_str(&text).with_context(|| format!("{} is no budget", path.display()))?;
    if let Some(docs) = &args.update {
        budget.measured = measured.clone();
        write(path, &format!("{}\n", serde_json::to_string_pretty(&budget)?))?;
        write(docs, &page::fill(&fs::read_to_string(docs)?, &measured)?)?;
    }
    let whole = args.only.is_empty() && args.sizes == SIZES;
    judge(path, &budget, &measured, whole)
}

async fn measure(args: &Args) -> Result<Measured> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("{} is missing", path.display()));
    let (wasm, naive) = (read(&args.wasm)?, read(&args.naive)?);
    let wants = |part| args.only.is_empty() || args.only.contains(&part);
    let key = LocalKey::from_secret(&[7; 32])?;
    let owner = key.address(PREFIX)?;
    let contract = cosmrs::AccountId::new(PREFIX, &[9; 32]).map_err(|e| anyhow::anyhow!("{e}"))?;
    let domain = Domain {
        chain_id: CHAIN_ID,
        contract: contract.as_ref(),
    };
    let mut silent = Silent::build(domain, &key, now()?, SILENT, FORGOTTEN)?;
    let chain = Chain::init(PathBuf::from("target/bench/wasmd"), &owner)?;
    let rpc = chain.start(Genesis {
        wasm: &wasm,
        contract: domain.contract,
        creator: &owner,
        storage: &silent.storage,
    })?;
    let mut bench = Bench::new(Sender::connect(&rpc, key).await?, domain.contract);

    let mut measured = Measured::default();
    // First, while the nodes have been silent for as long as they should have been.
    if wants(Part::Upkeep) || wants(Part::Messages) {
        measured.upkeep = bench.silence(&silent).await?;
    }
    if wants(Part::Messages) {
        measured
            .messages
            .push(bench.dearest_reports(&mut silent.offline).await?);
        let known = [measured.upkeep.as_slice(), &measured.messages].concat();
        measured.messages.extend(bench.messages(&wasm, &known).await?);
    }
    bench.instantiate(UNPINNED).await?;
    if wants(Part::Upkeep) {
        measured.upkeep.extend(bench.registrations().await?);
    }
    if wants(Part::Batches) {
        for n in &args.sizes {
            measured
                .batches
                .push(bench.batch(&format!("batch{n}"), *n, 1).await?);
        }
    }
    if wants(Part::Variants) {
        measured.variants = bench.variants().await?;
    }
    if wants(Part::Layouts) {
        measured.layouts = bench.layouts(&naive).await?;
    }
    if wants(Part::Pinned) {
        measured.pinned = bench.pinned().await?;
    }
    Ok(measured)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)?;
    println!("written to {}", path.display());
    Ok(())
}

fn judge(path: &Path, budget: &Budget, measured: &Measured, whole: bool) -> Result<()> {
    for cheap in budget.cheaper(measured) {
        println!("far below its budget (scripts/bench gas --update makes it the new one): {cheap}");
    }
    let faults = budget.faults(measured, whole);
    if !faults.is_empty() {
        bail!("over budget ({}):\n  {}", path.display(), faults.join("\n  "));
    }
    println!(
        "all figures are within {} (+{} %) and below its ceilings",
        path.display(),
        budget.tolerance_percent
    );
    Ok(())
}
