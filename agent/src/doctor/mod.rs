//! Whether this machine has what the agent needs, before it is registered too: each check with what it found and what to
//! do. The rows of the specifications' troubleshooting tables are among them (`rows.rs`).

mod gateway;
mod helper;
mod host;
mod identity;
mod rows;
mod slurm;
pub(crate) mod user;

use std::fmt::Display;

use schemars::JsonSchema;
use serde::Serialize;

pub use rows::{ROWS, Row, table};

use crate::accel;
use crate::config::Config;
use crate::state::{Registration, StateDir};
use crate::status::Trouble;
use user::User;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// As it should be.
    Good,
    /// Nothing to look at here.
    Skipped,
    /// The agent works, and something could be better.
    Note,
    /// The agent does not work, or not as it should.
    Wrong,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// Stable word.
    pub code: &'static str,
    /// What it came to.
    pub grade: Grade,
    /// What was found.
    pub message: String,
    /// What to do, if it is not good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    fn good(code: &'static str, message: impl Display) -> Self {
        Self {
            code,
            grade: Grade::Good,
            message: message.to_string(),
            remedy: None,
        }
    }

    fn skipped(code: &'static str, message: impl Display) -> Self {
        Self {
            grade: Grade::Skipped,
            ..Self::good(code, message)
        }
    }

    fn note(code: &'static str, message: impl Display, remedy: impl Display) -> Self {
        Self {
            grade: Grade::Note,
            remedy: Some(remedy.to_string()),
            ..Self::good(code, message)
        }
    }

    /// A check that the agent needs and that failed.
    pub fn wrong(code: &'static str, message: impl Display, remedy: impl Display) -> Self {
        Self {
            grade: Grade::Wrong,
            remedy: Some(remedy.to_string()),
            ..Self::good(code, message)
        }
    }

    /// As a trouble, if it is one.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let remedy = self.remedy.as_deref().unwrap_or_default();
        (self.grade == Grade::Wrong).then(|| Trouble::new(self.code, self.message.clone(), remedy))
    }
}

/// Every check that this machine alone answers, in a second or two.
#[must_use]
pub fn local(config: &Config, unix: u64) -> Vec<Check> {
    let state = StateDir::new(&config.state_dir);
    let user = User::of_service(config);
    let registration = Registration::load(&state);
    let registered = registration.as_ref().ok().and_then(Option::as_ref);
    let tasks = config.tasks.as_ref().map(|t| t.dir.as_path());
    let supported = &accel::supported(tasks, &config.roots);
    let mut all = vec![
        identity::key(config),
        identity::registered(config, registration.as_ref()),
        identity::token(config, registered, unix),
        identity::interval(config, registered),
        identity::probe_port(config, registered),
        identity::probe_address(config, registered),
        host::state_dir(config, &user),
        host::memory(&config.roots),
        host::kernel_log(&config.roots, &user),
        host::journal(&config.roots, &user),
        host::energy(&config.roots, &user),
        host::accel(config.accel, supported),
        host::kvm(&config.roots),
        host::tpm(config, &user),
    ];
    all.extend(slurm::checks(config, &user));
    all.push(helper::shutdown(config, &user));
    all
}

/// Every check, with those of the gateways: a few seconds for each that does not answer.
pub async fn all(config: &Config, unix: u64) -> Vec<Check> {
    let mut all = local(config, unix);
    all.extend(gateway::checks(config).await);
    all
}
