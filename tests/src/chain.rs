//! The chain under the suite: the embedded one, or wasmd. Everything above speaks to either through its RPC port.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process::{self, Process};
use crate::scene::Scene;
use crate::{port, program, wait};

/// Which chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `virtengine-devnet`.
    Embedded,
    /// wasmd, from `scripts/wasmd`.
    Wasmd,
}

impl Kind {
    /// The value of `HPC_TEST_CHAIN`; the embedded chain if it is unset.
    ///
    /// # Errors
    /// If it names no chain.
    pub fn from_environment() -> Result<Self> {
        match std::env::var("HPC_TEST_CHAIN").as_deref() {
            Err(_) | Ok("embedded") => Ok(Self::Embedded),
            Ok("wasmd") => Ok(Self::Wasmd),
            Ok(other) => bail!("HPC_TEST_CHAIN={other}: must be embedded or wasmd"),
        }
    }

    /// As `HPC_TEST_CHAIN` names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Wasmd => "wasmd",
        }
    }

    /// Builds what it is run from, if that is none of ours: from nothing that takes long.
    ///
    /// # Errors
    /// If it does not build.
    pub fn build(self) -> Result<()> {
        match self {
            Self::Embedded => Ok(()),
            Self::Wasmd => process::output(Command::new(wasmd_script()).arg("build")).map(drop),
        }
    }
}

fn wasmd_script() -> PathBuf {
    program::root().join("scripts/wasmd")
}

/// Chain id of every chain of the suite.
pub const CHAIN_ID: &str = "hpc-test-1";

/// Time between blocks.
const BLOCK_TIME: &str = "500ms";

/// A running chain, with state in the test's folder. Dropping it kills it.
#[derive(Debug)]
pub struct Chain {
    kind: Kind,
    home: PathBuf,
    log: PathBuf,
    port: u16,
    accounts: Vec<String>,
    block_time: String,
    process: Option<Process>,
}

impl Chain {
    /// Starts a new chain on which these addresses hold `1000000000000stake` each; returns once it has a block.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(scene: &Scene, kind: Kind, accounts: &[&str]) -> Result<Self> {
        let mut chain = Self {
            kind,
            home: scene.path("chain"),
            log: scene.log("chain"),
            port: port::free()?,
            accounts: accounts
                .iter()
                .map(|a| format!("{a}=1000000000000stake"))
                .collect(),
            block_time: BLOCK_TIME.to_owned(),
            process: None,
        };
        chain.resume()?;
        Ok(chain)
    }

    /// Which chain it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// URL of its RPC port.
    #[must_use]
    pub fn rpc(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// SIGKILL at whatever it is doing.
    ///
    /// # Errors
    /// If it is not running.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().context("the chain does not run")?.kill()
    }

    /// Starts an embedded chain again with another time between blocks, such as `5s`.
    ///
    /// # Errors
    /// If it does not come up, or is no embedded chain.
    pub fn set_block_time(&mut self, block_time: &str) -> Result<()> {
        ensure!(
            self.kind == Kind::Embedded,
            "the time between blocks of wasmd is in its configuration"
        );
        block_time.clone_into(&mut self.block_time);
        self.kill()?;
        self.resume()
    }

    /// Lets everything else on its CPU go first, as if it ran on another machine.
    ///
    /// # Errors
    /// If it does not run.
    pub fn give_way(&self) -> Result<()> {
        let process = self.process.as_ref().context("the chain does not run")?;
        let mut idle = Command::new("chrt");
        idle.args(["--idle", "--all-tasks", "--pid", "0"])
            .arg(process.id().to_string());
        process::output(&mut idle).map(drop)
    }

    /// Starts it again with the state it has; returns once it has executed a new block.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn resume(&mut self) -> Result<()> {
        let command = match self.kind {
            Kind::Embedded => self.embedded()?,
            Kind::Wasmd => self.wasmd()?,
        };
        let mut process = Process::start(self.kind.name(), command, &self.log)?;
        let mut first = None;
        // wasmd tells a height before it has executed that block, and executes nothing before its first one.
        wait::until("the chain's next blocks", Duration::from_secs(60), || {
            process.check_alive()?;
            let height = self.height()?;
            Ok((height > *first.get_or_insert(height) + 1).then_some(()))
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// Ends it and proves that its state is what its blocks make of the genesis. Only the embedded chain can tell.
    ///
    /// # Errors
    /// If state and blocks do not agree.
    pub fn verify(&mut self) -> Result<()> {
        self.kill()?;
        if self.kind == Kind::Embedded {
            let mut verify = Command::new(program::path("virtengine-devnet")?);
            process::output(verify.arg("verify").arg("--home").arg(&self.home))?;
        }
        Ok(())
    }

    /// Height of the latest block.
    ///
    /// # Errors
    /// If the RPC does not answer.
    pub fn height(&self) -> Result<u64> {
        let url = format!("{}/", self.rpc());
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"status","params":{}}"#;
        let answer =
            process::output(Command::new("curl").args(["-sf", "--max-time", "5", "-d", request, &url]))?;
        let answer: Value = serde_json::from_str(&answer).context("status is not JSON")?;
        let height = answer
            .pointer("/result/sync_info/latest_block_height")
            .and_then(Value::as_str);
        height
            .context("status has no height")?
            .parse()
            .context("the height is no number")
    }

    fn embedded(&self) -> Result<Command> {
        let program = program::path("virtengine-devnet")?;
        if !self.home.join("genesis.json").exists() {
            let mut init = Command::new(&program);
            init.arg("init")
                .arg("--home")
                .arg(&self.home)
                .args(["--chain-id", CHAIN_ID]);
            for account in &self.accounts {
                init.args(["--genesis-account", account]);
            }
            process::output(&mut init)?;
        }
        let mut command = Command::new(program);
        command
            .arg("start")
            .arg("--home")
            .arg(&self.home)
            .args(["--block-time", &self.block_time]);
        command.args(["--rpc-addr", &format!("127.0.0.1:{}", self.port)]);
        Ok(command)
    }

    /// `scripts/wasmd` makes the chain; the process itself is ours, so that it can be killed and never stays behind.
    fn wasmd(&self) -> Result<Command> {
        let script = wasmd_script();
        let binary = process::output(Command::new(&script).arg("build"))?;
        if !self.home.join("chain-id").exists() {
            let mut init = Command::new(&script);
            init.arg("init").arg("--home").arg(&self.home);
            init.args(["--chain-id", CHAIN_ID, "--block-time", BLOCK_TIME]);
            for account in &self.accounts {
                init.args(["--genesis-account", account]);
            }
            process::output(&mut init)?;
        }
        let mut command = Command::new(binary.trim());
        command.arg("start").arg("--home").arg(&self.home);
        command.args(["--rpc.laddr", &format!("tcp://127.0.0.1:{}", self.port)]);
        command.args([
            "--p2p.laddr",
            &format!("tcp://127.0.0.1:{}", port::free()?),
            "--rpc.pprof_laddr",
            "",
        ]);
        // gRPC is on because simulation, which clients ask for over the RPC port, exists only with it.
        let grpc = format!("127.0.0.1:{}", port::free()?);
        command.args([
            "--grpc.enable=true",
            "--grpc.address",
            &grpc,
            "--grpc-web.enable=false",
        ]);
        command.args(["--api.enable=false", "--log_no_color"]);
        Ok(command)
    }
}
