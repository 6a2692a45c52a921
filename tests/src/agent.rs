//! Our agent at a site, as a real process.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::process::{self, Process};
use crate::scene::Scene;
use crate::site::{CLUSTER, Site};
use crate::{calm, deadline, program};

const NO_SLURM: &str = "slurm:\n  enabled: false\n";
const NO_API: &str = "api: {listen: 'off'}\n";

/// A node agent's files.
#[derive(Debug)]
pub struct Agent {
    folder: PathBuf,
    log: PathBuf,
}

impl Agent {
    /// Starts it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self) -> Result<Process> {
        let mut command = Command::new(program::path("virtengine-node-agent")?);
        command.args(["run", "--config", &self.path("config.yaml")]);
        Process::start("agent", command, &self.log)
    }

    /// Starts the process that takes tasks.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_tasks(&self) -> Result<Process> {
        let mut command = Command::new(program::path("virtengine-node-agent")?);
        command.args(["tasks", "--config", &self.path("config.yaml")]);
        Process::start("tasks", command, &self.log.with_extension("tasks.log"))
    }

    /// Adds to its configuration, which ends within `sampling`. Whatever Slurm is installed on this machine is not the
    /// node's, unless a section `slurm` is among what is added; nor has it a local interface without a section `api`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn configure(&self, more: &str) -> Result<()> {
        let path = self.path("config.yaml");
        let mut text = fs::read_to_string(&path)?;
        if more.contains("slurm:\n") {
            text = text.replace(NO_SLURM, "");
        }
        if more.contains("api:\n") {
            text = text.replace(NO_API, "");
        }
        Ok(fs::write(&path, text + more)?)
    }

    /// Gives it a host without troubles of its own, from its next start on: the health that it tells is then its own.
    ///
    /// # Errors
    /// If that cannot be made.
    pub fn calm(&self) -> Result<()> {
        let roots = calm::host(&self.folder.join("host"))?;
        let path = self.path("config.yaml");
        let text = fs::read_to_string(&path)?;
        ensure!(
            text.contains("agent:\n"),
            "the configuration has no part named agent"
        );
        Ok(fs::write(
            &path,
            text.replace("agent:\n", &format!("agent:\n{roots}")),
        )?)
    }

    /// Runs one of its commands to the end.
    ///
    /// # Errors
    /// If it fails.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        process::output(Command::new(program::path("virtengine-node-agent")?).args(arguments))
    }

    /// What one of its commands prints, however it ends.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run_whatever(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program::path("virtengine-node-agent")?);
        let said = deadline::output(command.args(arguments), Duration::from_secs(300))?;
        Ok(String::from_utf8(said.stdout)?)
    }

    /// Writes a token to a file that nobody else can read.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_token(&self, name: &str, token: &str) -> Result<()> {
        fs::write(self.path(name), token)?;
        process::output(Command::new("chmod").args(["600", &self.path(name)])).map(drop)
    }

    /// A path in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Site {
    /// Makes keys, token and configuration of an agent, registers it; it does not run yet.
    ///
    /// # Errors
    /// If any step fails.
    pub fn agent(&self, scene: &Scene, node: &str) -> Result<Agent> {
        let agent = Self::keys_of(scene, node)?;
        let public = fs::read_to_string(agent.path("keys/agent.pub"))?;
        let token = self.token(node, public.trim(), "1h")?;
        self.configure(&agent, node, &token)?;
        agent.run(&["register", "--config", &agent.path("config.yaml")])?;
        ensure!(
            fs::exists(agent.path("client.crt"))?,
            "register wrote no certificate"
        );
        Ok(agent)
    }

    /// Makes keys and configuration of an agent that registers with `token` once it runs.
    ///
    /// # Errors
    /// If any step fails.
    pub fn agent_with(&self, scene: &Scene, node: &str, token: &str) -> Result<Agent> {
        let agent = Self::keys_of(scene, node)?;
        self.configure(&agent, node, token)?;
        Ok(agent)
    }

    fn keys_of(scene: &Scene, node: &str) -> Result<Agent> {
        let agent = Agent {
            folder: scene.folder(&format!("agent-{node}"))?,
            log: scene.log(&format!("agent-{node}")),
        };
        agent.run(&["keygen", "--output-dir", &agent.path("keys")])?;
        Ok(agent)
    }

    fn configure(&self, agent: &Agent, node: &str, token: &str) -> Result<()> {
        agent.write_token("token", token)?;
        let config = format!(
            "node:\n  id: {node}\n  cluster_id: {CLUSTER}\n\
             provider_daemon:\n  endpoint: {url}\n  tls:\n    ca_cert: {ca}\n    client_cert: {cert}\n    client_key: {key}\n\
             agent:\n  key_path: {agent_key}\n  registration_token_file: {token}\n  state_dir: {state}\n\
             {NO_SLURM}{NO_API}sampling:\n  base_interval: 10s\n",
            url = self.gateway().url,
            ca = agent.path("ca.crt"),
            cert = agent.path("client.crt"),
            key = agent.path("client.key"),
            agent_key = agent.path("keys/agent.key"),
            token = agent.path("token"),
            state = agent.path("state"),
        );
        fs::write(agent.path("config.yaml"), config)?;
        Ok(())
    }
}
