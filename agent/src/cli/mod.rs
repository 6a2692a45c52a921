//! The command line.
//!
//! Exit codes: 0 done (for `status`: healthy), 1 failed (for `status`: not healthy), 2 wrong usage or configuration, or a
//! token that does not fit this node, 3 refused by the gateway or not registered, 4 not within the time given, 10 stopped
//! by order of the provider (`run`).

mod check;
mod doctor;
mod entry;
mod examples;
mod helper;
mod install;
mod inventory;
mod keys;
mod output;
mod owner;
mod probe_gpu;
mod refused;
mod register;
mod rotate;
mod run;
mod selftest;
mod service;
mod sign_pkcs11;
mod start;
mod status;
mod store;
mod tasks;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

pub use entry::main;
pub use output::Format;

use crate::config::{self, Config, ConfigError, HumanDuration, Overrides};
use crate::files::directory_of;

/// Measures this node, signs what it measured, reports it to the provider's gateway.
#[derive(Debug, Parser)]
#[command(name = "virtengine-node-agent", version, arg_required_else_help = true, after_help = examples::ALL)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the node's key pair: agent.key (0600) and agent.pub (one line of base64)
    #[command(after_help = examples::KEYGEN)]
    Keygen(keys::Keygen),
    /// The node's key: look at it, replace it
    #[command(subcommand, after_help = examples::KEY)]
    Key(keys::Key),
    /// Register the node with the registration token: certificate, record on chain
    #[command(after_help = examples::REGISTER)]
    Register(register::Register),
    /// Measure and report until told to stop (SIGTERM); SIGHUP reads the configuration again
    #[command(after_help = examples::RUN)]
    Run(run::Run),
    /// Take tasks of the provider until told to stop (SIGTERM): a process apart from run
    #[command(after_help = examples::TASKS)]
    Tasks(tasks::Tasks),
    /// How the agent is doing; exit code 0 if it is well
    #[command(after_help = examples::STATUS)]
    Status(status::StatusCommand),
    /// Everything that the agent needs here, before it is registered too; exit code 0 if nothing is wrong
    #[command(after_help = examples::DOCTOR)]
    Doctor(doctor::Doctor),
    /// Whether the agent keeps this node out of service; its return
    #[command(subcommand, after_help = examples::SERVICE)]
    Service(service::Service),
    /// Everything that is measured here, with source and age
    #[command(after_help = examples::INVENTORY)]
    Inventory(inventory::Inventory),
    /// Put the agent onto this host without a package manager: user, directories, program, units
    #[command(after_help = examples::INSTALL)]
    Install(install::Install),
    /// Take program and units away again; configuration, keys and state only with --purge
    #[command(after_help = examples::UNINSTALL)]
    Uninstall(install::Uninstall),
    /// Look at the configuration
    #[command(subcommand, after_help = examples::CONFIG)]
    Config(ConfigCommand),
    /// Try what the agent's own jails must not let through; exit code 0 if the kernel refuses all of it
    #[command(after_help = examples::SELFTEST)]
    Selftest(selftest::Selftest),
    /// Print the OpenAPI document of the local interface
    #[command(after_help = examples::OPENAPI)]
    Openapi,
    /// Print the completion script of a shell
    #[command(after_help = examples::COMPLETION)]
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Ask NVML and print what it says as JSON: the agent starts this as a process of its own
    #[command(name = crate::probe::gpu::COMMAND, hide = true)]
    ProbeGpu(probe_gpu::ProbeGpu),
    /// Speak with the gateway about tasks: the task agent starts this as a process of its own
    #[command(name = crate::task::process::LINK_COMMAND, hide = true)]
    TaskLink(tasks::TaskLink),
    /// Do one thing that needs root's rights: systemd starts this for each request on the helper's socket
    #[command(name = "helper", hide = true)]
    Helper(helper::HelperCommand),
    /// End machines at the end of their leases: the task agent starts this as a process of its own, which outlives it
    #[command(name = crate::task::guard::GUARD_COMMAND, hide = true)]
    TaskGuard {
        /// The folder of the task domain
        dir: PathBuf,
    },
    /// Wait for a word on standard input and become a program: the task agent starts this for each program of a task
    #[command(name = crate::task::start::START_COMMAND, hide = true)]
    TaskStart {
        /// The program reads nothing
        #[arg(long)]
        no_input: bool,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Enter a jail and try: selftest starts this as a process of its own
    #[command(name = crate::task::jail::TRIAL_COMMAND, hide = true)]
    SandboxTry(selftest::SandboxTry),
    /// Sign what comes in with a key in an HSM: the agent starts this as a process of its own
    #[command(name = crate::key::PKCS11_COMMAND, hide = true)]
    SignPkcs11,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the configuration file and what it names
    #[command(after_help = examples::CONFIG_CHECK)]
    Check(check::Check),
    /// Print the JSON Schema of the configuration file
    #[command(after_help = examples::CONFIG_SCHEMA)]
    Schema,
}

/// Where the configuration is, and what wins over it.
#[derive(Debug, Clone, Args)]
pub struct ConfigArguments {
    /// Configuration file
    #[arg(short, long, env = "VIRTENGINE_NODE_AGENT_CONFIG", default_value = config::DEFAULT_PATH)]
    pub config: PathBuf,
    /// Gateway: https://host:port, several separated by commas
    #[arg(long, env = "VIRTENGINE_NODE_AGENT_ENDPOINT")]
    pub endpoint: Option<String>,
    /// Interval of heartbeats until the gateway says another
    #[arg(long, env = "VIRTENGINE_NODE_AGENT_HEARTBEAT_INTERVAL")]
    pub heartbeat_interval: Option<HumanDuration>,
    /// Node id
    #[arg(long, env = "VIRTENGINE_NODE_AGENT_NODE_ID")]
    pub node_id: Option<String>,
    /// Host name to register
    #[arg(long, env = "VIRTENGINE_NODE_AGENT_HOSTNAME")]
    pub hostname: Option<String>,
    /// IP address that peers are told for latency probes, where it is not the one that this node reports from
    #[arg(long, env = "VIRTENGINE_NODE_AGENT_PROBE_ADVERTISE_ADDRESS")]
    pub probe_advertise_address: Option<IpAddr>,
    /// Least important messages: error, warn, info, debug, trace
    #[arg(long, env = "VIRTENGINE_NODE_AGENT_LOG_LEVEL")]
    pub log_level: Option<String>,
}

impl ConfigArguments {
    /// Reads, merges and checks the configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let overrides = Overrides {
            endpoint: self.endpoint.clone(),
            heartbeat_interval: self.heartbeat_interval,
            node_id: self.node_id.clone(),
            hostname: self.hostname.clone(),
            probe_advertise_address: self.probe_advertise_address,
            // Never a flag: every user of the machine can read those.
            token: std::env::var("VIRTENGINE_NODE_AGENT_REGISTRATION_TOKEN").ok(),
            log_level: self.log_level.clone(),
            accel: None,
        }
        .or_runbook(|name| std::env::var(name).ok())?;
        config::load(&self.config, &overrides)
    }

    /// Whether the file is there, for commands that can do without the default one.
    ///
    /// # Errors
    /// One that was named is not there.
    fn is_there(&self) -> Result<bool, ConfigError> {
        if self.config == Path::new(config::DEFAULT_PATH) {
            return Ok(self.config.exists());
        }
        match self.config.try_exists() {
            Ok(false) => Err(ConfigError::Missing {
                path: self.config.display().to_string(),
            }),
            // What keeps it from being read is told by reading it.
            Ok(true) | Err(_) => Ok(true),
        }
    }

    /// The same; root goes on as the user to whom it and what it names belongs.
    fn load_as_owner(&self) -> Result<Config, Failure> {
        // First of all the file itself: it names a file with a token.
        owner::as_owner_of(&[&self.config])?;
        let config = self.load()?;
        owner::as_owner_of(&[
            &config.state_dir,
            directory_of(&config.key_path),
            directory_of(&config.tls.client_cert),
        ])?;
        Ok(config)
    }
}

/// A failed command: what to print and how to exit.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(code: u8, message: impl std::fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(e: ConfigError) -> Self {
        Self::new(2, e)
    }
}

/// Runs the command.
fn dispatch(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Keygen(c) => c.run(),
        Command::Key(c) => c.run(),
        Command::Register(c) => c.run(),
        Command::Run(c) => c.run(),
        Command::Tasks(c) => c.run(),
        Command::TaskLink(c) => c.run(),
        Command::TaskGuard { dir } => tasks::guard(&dir),
        Command::TaskStart { no_input, words } => Err(tasks::start(&words, no_input)),
        Command::Status(c) => c.run(),
        Command::Doctor(c) => c.run(),
        Command::Service(c) => c.run(),
        Command::Inventory(c) => c.run(),
        Command::Install(c) => c.run(),
        Command::Uninstall(c) => c.run(),
        Command::Helper(c) => c.run(),
        Command::Openapi => output::print(&crate::api::openapi(), Format::Json),
        Command::ProbeGpu(c) => c.run(),
        Command::Selftest(c) => c.run(),
        Command::SandboxTry(c) => c.run(),
        Command::SignPkcs11 => sign_pkcs11::run(),
        Command::Config(ConfigCommand::Check(c)) => c.run(),
        Command::Completion { shell } => Ok(completion(shell)),
        Command::Config(ConfigCommand::Schema) => output::print(&config::json_schema(), Format::Json),
    }
}

fn completion(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut Arguments::command(),
        "virtengine-node-agent",
        &mut script,
    );
    output::raw(&script);
    ExitCode::SUCCESS
}

/// The one-threaded runtime of every command that talks to the gateway.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Name resolution only; collectors have their own thread.
        .max_blocking_threads(2)
        .thread_stack_size(256 << 10)
        .build()
        .map_err(|e| Failure::new(1, format_args!("cannot start: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_has_every_command() {
        let page = include_str!("../../../deploy/package/virtengine-node-agent.8");
        let words: Vec<&str> = page.split([' ', '\n']).collect();
        for command in Arguments::command().get_subcommands() {
            let shown = !command.is_hide_set() && command.get_name() != "help";
            let named = words
                .windows(2)
                .any(|w| w[0] == ".B" && w[1] == command.get_name());
            assert!(!shown || named, "{} is missing", command.get_name());
        }
    }

    #[test]
    fn every_command_explains_itself_with_an_example_that_it_understands() {
        fn walk(command: &clap::Command, path: &str) {
            let after = command
                .get_after_help()
                .map_or_else(String::new, ToString::to_string);
            let examples: Vec<&str> = after
                .lines()
                .filter_map(|l| l.trim().strip_prefix("virtengine-node-agent "))
                .collect();
            assert!(!examples.is_empty(), "{path} has no examples");
            for example in examples {
                let words = example.split(['>', '|', '#']).next().unwrap_or_default();
                let line = std::iter::once("virtengine-node-agent").chain(words.split_whitespace());
                let parsed = Arguments::try_parse_from(line);
                assert!(parsed.is_ok(), "{path}: {example}: {}", parsed.unwrap_err());
            }
            for below in command
                .get_subcommands()
                .filter(|c| !c.is_hide_set() && c.get_name() != "help")
            {
                walk(below, &format!("{path} {}", below.get_name()));
            }
        }
        walk(&Arguments::command(), "virtengine-node-agent");
        Arguments::command().debug_assert();
    }
}
