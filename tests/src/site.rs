//! A whole site: chain, contract, active cluster, provider daemon; agents are added by the test.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::chain::{CHAIN_ID, Chain, Kind};
use crate::cli::Cli;
use crate::process::{self, Process};
use crate::raw::Gateway;
use crate::registry::Registry;
use crate::scene::Scene;
use crate::{deadline, port, program, raw, wait};

/// The cluster of every site.
pub const CLUSTER: &str = "hpc-cluster-1";

/// Longest wait for something that takes a batch and a few blocks.
pub const SETTLED: Duration = Duration::from_secs(60);

/// How a report ended, as the provider recorded it.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct End {
    /// Its number.
    pub sequence: u32,
    /// The first of those that it replaced before they were sent.
    pub superseded_from: Option<u32>,
    /// `on_chain`, `refused` or `superseded`.
    pub ended: String,
    /// Why, where it was refused.
    pub code: Option<String>,
    /// The block.
    pub height: Option<u64>,
}

/// A site in the test's folder. Dropping it kills all of it.
#[derive(Debug)]
pub struct Site {
    /// The chain.
    pub chain: Chain,
    /// The operator's command line; its key `owner` owns the cluster.
    pub cli: Cli,
    /// Address of the registry contract.
    pub contract: String,
    home: PathBuf,
    log: PathBuf,
    gateway_port: u16,
    ops_port: u16,
    folder: PathBuf,
    settings: Vec<(&'static str, String)>,
    cpu: Option<u32>,
    provider: Option<Process>,
}

impl Site {
    /// Sets a site up as the documentation tells an operator to: keys, chain, deployment, cluster, provider.
    ///
    /// # Errors
    /// If any step fails.
    pub fn start(scene: &Scene, kind: Kind) -> Result<Self> {
        let mut site = Self::prepare(scene, kind)?;
        site.activate()?;
        site.start_provider()?;
        Ok(site)
    }

    /// Makes the cluster active.
    ///
    /// # Errors
    /// If the chain refuses.
    pub fn activate(&self) -> Result<()> {
        let words = [
            "tx",
            "hpc",
            "activate-cluster",
            CLUSTER,
            "--from",
            "owner",
            "--yes",
        ];
        self.cli.run(&words).map(drop)
    }

    /// The same up to a cluster that is not active and a provider that does not run.
    ///
    /// # Errors
    /// If any step fails.
    pub fn prepare(scene: &Scene, kind: Kind) -> Result<Self> {
        raw::need_curl()?;
        let Registry { chain, cli, contract } = Registry::deploy(scene, kind)?;
        cli.run(&["tx", "hpc", "create-cluster", CLUSTER, "--from", "owner", "--yes"])?;
        let home = scene.path("provider");
        let mut init = Command::new(program::path("virtengine-provider")?);
        init.arg("init")
            .arg("--home")
            .arg(&home)
            .args(["--chain-id", CHAIN_ID, "--contract", &contract]);
        init.args(["--rpc", &chain.rpc(), "--gas-price", "0stake"]);
        init.arg("--import-operator")
            .arg(cli.words("owner"))
            .arg("--import")
            .arg(cli.words("relayer"));
        process::output(&mut init)?;
        Ok(Self {
            chain,
            cli,
            contract,
            log: scene.log("provider"),
            gateway_port: port::free()?,
            ops_port: port::free()?,
            folder: scene.folder("client")?,
            settings: Vec::new(),
            cpu: None,
            home,
            provider: None,
        })
    }

    /// Overrides a key of the daemon's configuration, as `SECTION__KEY`, from its next start on.
    pub fn set(&mut self, key: &'static str, value: impl Into<String>) {
        self.settings.push((key, value.into()));
    }

    /// Binds the daemon to one CPU, from its next start on.
    pub fn pin(&mut self, cpu: u32) {
        self.cpu = Some(cpu);
    }

    /// The daemon's directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Port of health, readiness and metrics.
    #[must_use]
    pub fn ops_port(&self) -> u16 {
        self.ops_port
    }

    /// Port of the agents' listener.
    #[must_use]
    pub fn gateway_port(&self) -> u16 {
        self.gateway_port
    }

    /// Starts the provider daemon; returns once it is ready.
    ///
    /// # Errors
    /// If it is not ready within 30 s.
    pub fn start_provider(&mut self) -> Result<()> {
        let command = self.run_command()?;
        let ready = self.launch(command)?;
        ensure!(ready, "the provider ended at once:\n{}", self.provider()?.log());
        Ok(())
    }

    /// Starts it with a fault: it kills itself when it comes to that step (`virtengine_provider::fault`). Returns once it is
    /// ready, or dead already, because it resumed work of its last life.
    ///
    /// # Errors
    /// If it is neither within 30 s.
    pub fn start_provider_to_die_at(&mut self, step: &str) -> Result<()> {
        let mut command = self.run_command()?;
        command.env("VIRTENGINE_FAULT", step);
        self.launch(command).map(drop)
    }

    /// True once it is ready, false if it died before.
    fn launch(&mut self, command: Command) -> Result<bool> {
        let mut process = Process::start("provider", command, &self.log)?;
        let url = format!("http://127.0.0.1:{}/readyz", self.ops_port);
        let ready = wait::until("the provider to be ready", Duration::from_secs(30), || {
            if process.check_alive().is_err() {
                return Ok(Some(false));
            }
            process::output(Command::new("curl").args(["-sf", "--max-time", "5", &url])).map(|_| Some(true))
        })?;
        self.provider = Some(process);
        Ok(ready)
    }

    fn run_command(&self) -> Result<Command> {
        let plain = self.provider_command()?;
        let mut command = match self.cpu {
            None => plain,
            Some(cpu) => {
                let mut pinned = Command::new("taskset");
                pinned
                    .args(["--cpu-list", &cpu.to_string()])
                    .arg(plain.get_program());
                for (key, value) in plain.get_envs() {
                    pinned.env(key, value.unwrap_or_default());
                }
                pinned
            }
        };
        command.arg("run").arg("--home").arg(&self.home);
        Ok(command)
    }

    /// The running provider daemon.
    ///
    /// # Errors
    /// If it does not run.
    pub fn provider(&mut self) -> Result<&mut Process> {
        self.provider.as_mut().context("the provider does not run")
    }

    /// SIGKILL to the provider, whatever it is doing.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_provider(&mut self) -> Result<()> {
        self.provider.take().context("the provider does not run")?.kill()
    }

    /// SIGTERM to the provider, and waits until it has ended by itself.
    ///
    /// # Errors
    /// If it does not run, ends with an error, or still runs after two minutes.
    pub fn stop_provider(&mut self) -> Result<()> {
        let mut provider = self.provider.take().context("the provider does not run")?;
        let status = provider.stop(Duration::from_secs(120))?;
        ensure!(
            status.success(),
            "the provider ended with {status}:\n{}",
            provider.log()
        );
        Ok(())
    }

    /// What an agent or an intruder knows of the gateway.
    #[must_use]
    pub fn gateway(&self) -> Gateway {
        Gateway {
            url: format!("https://127.0.0.1:{}", self.gateway_port),
            ca: self.home.join("ca/ca.crt"),
            folder: self.folder.clone(),
        }
    }

    /// Makes a registration token.
    ///
    /// # Errors
    /// If the provider refuses.
    pub fn token(&self, node: &str, public_key: &str, expires: &str) -> Result<String> {
        let mut command = self.provider_command()?;
        command.args(["node-token", "create", "--cluster-id", CLUSTER, "--node-id", node]);
        command
            .args(["--pubkey", public_key, "--expires", expires])
            .arg("--home")
            .arg(&self.home);
        Ok(process::output(&mut command)?.trim().to_owned())
    }

    /// Runs a command of the provider to its end.
    ///
    /// # Errors
    /// If it fails.
    pub fn provider_run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.provider_command()?;
        command.args(arguments).arg("--home").arg(&self.home);
        process::output(&mut command)
    }

    /// Runs a command of the provider with a fault: it kills itself when it comes to that step (`virtengine_provider::fault`).
    ///
    /// # Errors
    /// If it comes to its end.
    pub fn provider_dies_at(&self, step: &str, arguments: &[&str]) -> Result<()> {
        let mut command = self.provider_command()?;
        command.args(arguments).arg("--home").arg(&self.home);
        command.env("VIRTENGINE_FAULT", step);
        let ended = deadline::output(&mut command, Duration::from_secs(300))?;
        ensure!(
            ended.status.signal() == Some(9),
            "{arguments:?} never came to {step}: {}\n{}",
            ended.status,
            String::from_utf8_lossy(&ended.stderr)
        );
        Ok(())
    }

    /// What the daemon says where it is given no endpoint of the chain.
    ///
    /// # Errors
    /// If it starts.
    pub fn provider_without_endpoints(&self) -> Result<String> {
        let mut command = self.run_command()?;
        command.env("VIRTENGINE_PROVIDER__CHAIN__RPC", "[]");
        match process::output(&mut command) {
            Ok(said) => bail!("the provider starts without an endpoint: {said}"),
            Err(e) => Ok(format!("{e:#}")),
        }
    }

    /// The last orders to a node, newest first: type, state, detail.
    ///
    /// # Errors
    /// If the provider cannot tell.
    pub fn orders(&self, node: &str) -> Result<Vec<(String, String, String)>> {
        let text = self.provider_run(&["command", "list", "--node-id", node, "-o", "json"])?;
        let rows: Vec<Value> = serde_json::from_str(&text)?;
        let word = |row: &Value, key: &str| {
            row.get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Ok(rows
            .iter()
            .map(|r| (word(r, "type"), word(r, "state"), word(r, "detail")))
            .collect())
    }

    /// The node as the chain knows it.
    ///
    /// # Errors
    /// If the chain does not know it.
    pub fn node(&self, node: &str) -> Result<Value> {
        self.cli.json(&["query", "hpc", "node", node])
    }

    /// The node's epoch, and how its reports ended, as the provider recorded it.
    ///
    /// # Errors
    /// If the provider does not know it.
    pub fn ends(&self, node: &str) -> Result<(u64, Vec<End>)> {
        #[derive(serde::Deserialize)]
        struct Shown {
            epoch: u64,
            reports: Vec<End>,
        }
        let mut command = self.provider_command()?;
        command
            .args(["node", "show", node, "--reports", "10000", "-o", "json", "--home"])
            .arg(&self.home);
        let shown: Shown = serde_json::from_str(&process::output(&mut command)?)?;
        Ok((shown.epoch, shown.reports))
    }

    /// How many transactions of the provider have not ended.
    ///
    /// # Errors
    /// If the provider cannot tell.
    pub fn open_transactions(&self) -> Result<u64> {
        let status: Value = serde_json::from_str(&self.provider_run(&["status", "-o", "json"])?)?;
        status
            .get("open_transactions")
            .and_then(Value::as_u64)
            .context("no open_transactions")
    }

    /// State of a node on chain.
    ///
    /// # Errors
    /// If the chain does not know it.
    pub fn state(&self, node: &str) -> Result<String> {
        let answer = self.node(node)?;
        Ok(answer
            .get("state")
            .and_then(Value::as_str)
            .context("no state")?
            .to_owned())
    }

    /// Sequence of the node's last report on chain.
    ///
    /// # Errors
    /// If the chain does not know it.
    pub fn sequence(&self, node: &str) -> Result<u64> {
        let answer = self.node(node)?;
        answer
            .get("sequence")
            .and_then(Value::as_u64)
            .context("no sequence")
    }

    /// Waits until the node has that state on chain.
    ///
    /// # Errors
    /// If it does not get there.
    pub fn wait_state(&self, node: &str, state: &str) -> Result<()> {
        wait::until(&format!("{node} to be {state}"), SETTLED, || {
            Ok((self.state(node)? == state).then_some(()))
        })
    }

    /// Waits until the chain has a report of the node with at least that sequence.
    ///
    /// # Errors
    /// If it does not get there.
    pub fn wait_sequence(&self, node: &str, sequence: u64) -> Result<u64> {
        wait::until(
            &format!("sequence {sequence} of {node} on chain"),
            SETTLED,
            || {
                let settled = self.sequence(node)?;
                Ok((settled >= sequence).then_some(settled))
            },
        )
    }

    fn provider_command(&self) -> Result<Command> {
        let mut command = Command::new(program::path("virtengine-provider")?);
        let gateway = format!("127.0.0.1:{}", self.gateway_port);
        let ops = format!("127.0.0.1:{}", self.ops_port);
        for (key, value) in [
            ("CHAIN__POLL", "200ms"),
            ("CHAIN__SYNC", "1s"),
            ("GATEWAY__LISTEN", gateway.as_str()),
            ("GATEWAY__ENDPOINT", self.gateway().url.as_str()),
            // Tests send faster than nodes do.
            ("GATEWAY__REQUESTS_PER_MINUTE", "6000"),
            ("OPS__LISTEN", ops.as_str()),
            ("ADMIN__LISTEN", "127.0.0.1:0"),
            ("BATCH__SUBMIT_INTERVAL", "1s"),
        ] {
            command.env(format!("VIRTENGINE_PROVIDER__{key}"), value);
        }
        for (key, value) in &self.settings {
            command.env(format!("VIRTENGINE_PROVIDER__{key}"), value);
        }
        Ok(command)
    }
}
