//! The command line `virtengine`, as an operator uses it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{deadline, process, program};

/// `virtengine` with keyring and profiles in a folder of the test.
#[derive(Debug, Clone)]
pub struct Cli {
    home: PathBuf,
}

impl Cli {
    /// A command line whose keyring and profiles are in `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            home: folder.to_owned(),
        }
    }

    /// Makes a key and returns its address; its words are in [`Cli::words`].
    ///
    /// # Errors
    /// If the program fails.
    pub fn add_key(&self, name: &str) -> Result<String> {
        let words = self.words(name).display().to_string();
        self.run(&["keys", "add", name, "--mnemonic-file", &words])?;
        Ok(self.run(&["keys", "show", name, "--address"])?.trim().to_owned())
    }

    /// File with the mnemonic of a key that [`Cli::add_key`] made.
    #[must_use]
    pub fn words(&self, name: &str) -> PathBuf {
        self.home.join(format!("{name}.words"))
    }

    /// The command with these arguments, ready to run.
    ///
    /// # Errors
    /// If the program does not build.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(program::path("virtengine")?);
        command.args(arguments).stdin(Stdio::null());
        command
            .env("VIRTENGINE_HOME", &self.home)
            .env("VIRTENGINE_KEYRING_BACKEND", "test");
        Ok(command)
    }

    /// Runs it and returns standard output.
    ///
    /// # Errors
    /// If it ends with another code than 0.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        process::output(&mut self.command(arguments)?)
    }

    /// Runs it with `-o json` and returns what it printed.
    ///
    /// # Errors
    /// If it fails or prints no JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
        let text = self.run(&arguments)?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }

    /// Runs it, expects it to fail, and returns standard error.
    ///
    /// # Errors
    /// If it succeeds.
    pub fn fails(&self, arguments: &[&str]) -> Result<String> {
        let output = deadline::output(&mut self.command(arguments)?, Duration::from_secs(300))?;
        if output.status.success() {
            bail!(
                "{arguments:?} succeeded: {}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
