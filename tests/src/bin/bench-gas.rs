//! Measures gas on a wasmd chain of its own; `scripts/bench gas` runs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Parser;
use hpc_chain::keys::LocalKey;
use hpc_tests::bench::gas::{Bench, Measured, Row};
use hpc_tests::bench::sender::{PREFIX, Sender};
use hpc_tests::process;

/// Gas of batches of reports on wasmd.
#[derive(Parser)]
struct Args {
    /// The contract, as `scripts/wasm` makes it.
    #[arg(long)]
    wasm: PathBuf,
    /// Where the figures go.
    #[arg(long, default_value = "target/bench/gas.json")]
    out: PathBuf,
    /// Sizes of clusters.
    #[arg(long, value_delimiter = ',', default_value = "1,10,50,256,1024")]
    sizes: Vec<usize>,
    /// Leaves the variants out.
    #[arg(long)]
    no_variants: bool,
    /// Fails if a figure is above its budget in this file by more than its tolerance.
    #[arg(long)]
    budget: Option<PathBuf>,
}

/// Budgets: gas a report by size of the batch, gas by name of the variant.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    tolerance_percent: u64,
    batches: BTreeMap<usize, u64>,
    variants: BTreeMap<String, u64>,
}

/// A wasmd chain that ends with this program.
struct Chain {
    home: PathBuf,
}

impl Chain {
    fn start(home: PathBuf, account: &str) -> Result<(Self, String)> {
        let chain = Self { home };
        chain.script(&["reset"])?;
        let account = format!("{account}=1000000000000stake");
        chain.script(&[
            "start",
            "--chain-id",
            "hpc-bench-1",
            "--block-time",
            "300ms",
            "--genesis-account",
            &account,
        ])?;
        let rpc = std::fs::read_to_string(chain.home.join("rpc"))?;
        Ok((chain, rpc.trim().to_owned()))
    }

    fn script(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("scripts/wasmd");
        let (first, rest) = arguments.split_first().context("no command")?;
        command.arg(first).arg("--home").arg(&self.home).args(rest);
        process::output(&mut command).map(drop)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        if let Err(error) = self.script(&["reset"]) {
            eprintln!("warning: the chain was not removed: {error:#}");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let wasm = std::fs::read(&args.wasm)
        .with_context(|| format!("{} is missing. Remedy: scripts/wasm", args.wasm.display()))?;
    let key = LocalKey::from_secret(&[7; 32])?;
    let (_chain, rpc) = Chain::start(PathBuf::from("target/bench/wasmd"), &key.address(PREFIX)?)?;
    let mut bench = Bench::deploy(Sender::connect(&rpc, key).await?, wasm).await?;

    println!(
        "{:<52} {:>12} {:>12} {:>10}",
        "one transaction, fee 0, contract unpinned", "gas", "gas each", "bytes"
    );
    let mut measured = Measured {
        batches: Vec::new(),
        variants: Vec::new(),
    };
    for n in args.sizes {
        let row = bench.batch(&format!("batch{n}"), n, 1).await?;
        print(&format!("{n} reports, a cluster of {n}"), &row);
        measured.batches.push(row);
    }
    if !args.no_variants {
        measured.variants = bench.variants().await?;
        for variant in &measured.variants {
            print(&variant.name, &variant.row);
        }
    }
    save(&args.out, &measured)?;
    match args.budget {
        Some(path) => check(&path, &measured),
        None => Ok(()),
    }
}

fn print(name: &str, row: &Row) {
    println!(
        "{name:<52} {:>12} {:>12} {:>10}",
        row.gas_used, row.gas_per_report, row.tx_bytes
    );
}

fn save(path: &Path, measured: &Measured) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, format!("{}\n", serde_json::to_string_pretty(measured)?))?;
    println!("written to {}", path.display());
    Ok(())
}

fn check(path: &Path, measured: &Measured) -> Result<()> {
    let budget: Budget = serde_json::from_str(&std::fs::read_to_string(path)?)
        .with_context(|| format!("{} is no budget", path.display()))?;
    let mut faults = Vec::new();
    let mut judge = |name: String, gas: u64, limit: Option<&u64>| match limit {
        None => faults.push(format!("{name} has no budget")),
        Some(limit) if gas * 100 > limit * (100 + budget.tolerance_percent) => {
            faults.push(format!("{name}: {gas} gas, budget {limit}"));
        }
        Some(_) => {}
    };
    for row in &measured.batches {
        judge(
            format!("{} reports", row.n),
            row.gas_per_report,
            budget.batches.get(&row.n),
        );
    }
    for variant in &measured.variants {
        judge(
            variant.name.clone(),
            variant.row.gas_per_report,
            budget.variants.get(&variant.name),
        );
    }
    if !faults.is_empty() {
        bail!("over budget ({}):\n  {}", path.display(), faults.join("\n  "));
    }
    println!(
        "all figures are within {} (+{} %)",
        path.display(),
        budget.tolerance_percent
    );
    Ok(())
}
