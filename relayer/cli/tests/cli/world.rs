//! An embedded chain, a home folder, and the program.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use hpc_chain::keys::{DEFAULT_PATH, LocalKey, Mnemonic};
use hpc_devnet::{BlockMode, Config, Devnet, Genesis, GenesisAccount, Handle};
use serde_json::Value;

use crate::deadline::{Deadline, output, output_of};

/// How long a run takes at most.
const LONGEST: Duration = Duration::from_secs(120);
pub(crate) const CHAIN_ID: &str = "hpc-test-1";
pub(crate) const CLUSTER: &str = "hpc-cluster-1";

/// The program with a home folder of its own and an empty environment.
pub(crate) struct Program {
    pub(crate) folder: tempfile::TempDir,
    env: Vec<(String, String)>,
    // The last: letting the others go may hang too.
    _deadline: Deadline,
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let env = vec![("VIRTENGINE_KEYRING_BACKEND".to_owned(), "test".to_owned())];
        Self {
            folder,
            env,
            _deadline: Deadline::of_test(),
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.retain(|(n, _)| n != name);
        self.env.push((name.to_owned(), value.into()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_virtengine"));
        command
            .args(arguments)
            .env_clear()
            .env("VIRTENGINE_HOME", self.path("home"));
        command
            .envs(self.env.iter().cloned())
            .current_dir(self.folder.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        output(&mut self.command(arguments), LONGEST).unwrap().into()
    }

    /// Runs it with text on standard input.
    pub(crate) fn feed(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        output_of(child, LONGEST).unwrap().into()
    }

    /// Runs it and expects success.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    /// Runs it with `-o json` and reads the answer.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// Runs it with `-o json`, expects this exit code and reads the error.
    pub(crate) fn error(&self, code: i32, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["-o", "json"]].concat());
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        assert_eq!(ran.out, "", "{arguments:?}");
        let line = ran.err.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        assert_eq!(value["error"]["exit_code"], code);
        value["error"].clone()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// A chain on which the key `owner` holds a billion stake.
pub(crate) struct World {
    pub(crate) program: Program,
    pub(crate) chain: Handle,
    pub(crate) owner: LocalKey,
}

/// BIP39's test words for 256 zero bits. They protect nothing.
pub(crate) fn words() -> String {
    format!("{} art\n", ["abandon"; 23].join(" "))
}

impl World {
    /// With a block every 100 ms.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let program = Program::new();
        let owner = LocalKey::from_mnemonic(&Mnemonic::parse(&words()).unwrap(), DEFAULT_PATH).unwrap();
        let address = owner.address("wasm").unwrap();
        let account = GenesisAccount::new(address.clone(), "1000000000stake");
        let mut config = Config::ephemeral(Genesis::new(CHAIN_ID, vec![account]));
        config.blocks = BlockMode::Every(Duration::from_millis(100));
        change(&mut config);
        let chain = Devnet::start(config).unwrap();
        let ran = program.feed(&["keys", "import", "owner"], &words());
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(
            program.ok(&["keys", "show", "owner", "--address"]).trim(),
            address
        );
        Self {
            program,
            chain,
            owner,
        }
    }

    /// With the contract deployed.
    pub(crate) fn deployed() -> Self {
        let world = Self::start();
        world.deploy("0stake");
        world
    }

    /// Deploys and returns what was printed.
    pub(crate) fn deploy(&self, gas_prices: &str) -> Value {
        let url = self.chain.rpc_url();
        self.program.json(&[
            "deploy",
            "--node",
            &url,
            "--chain-id",
            CHAIN_ID,
            "--from",
            "owner",
            "--gas-prices",
            gas_prices,
        ])
    }

    /// Sends a transaction as the owner.
    pub(crate) fn tx(&self, arguments: &[&str]) -> Value {
        self.program
            .json(&[&["tx"], arguments, &["--from", "owner", "--yes"]].concat())
    }
}

/// Permission bits of a file.
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
