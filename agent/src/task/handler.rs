use hpc_schema::task::Params;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::Context;
use super::failure::Failure;
use super::policy::Policy;

/// What a task of a type does. It is compiled in; nothing else can be asked for (specification 004).
///
/// A handler changes the host through [`Context::apply`] and [`Context::release`] alone, so that whatever kills the
/// agent, the journal knows what to undo. It runs on a thread of its own and may block.
pub trait Handler: Send + Sync {
    /// What follows after a crash in its midst.
    fn recovery(&self) -> Recovery {
        Recovery::Undo
    }

    /// Whose things it makes or takes away. One task at a time works for an owner; what a completed task has made stays
    /// under that name until it is released.
    fn owner(&self, _params: &Params) -> Option<Owner> {
        None
    }

    /// Whether the site's policy allows these parameters. Asked before anything is written down.
    ///
    /// # Errors
    /// Why not.
    fn allow(&self, _params: &Params, _policy: &Policy) -> Result<(), Failure> {
        Ok(())
    }

    /// Does it; the value is the task's result.
    ///
    /// # Errors
    /// Why not. What it has done by then is undone, newest first.
    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure>;
}

/// What follows after a crash in the midst of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// What it has done is undone; it ends as `task_interrupted`.
    Undo,
    /// It is begun anew: what it does can be done twice.
    Again,
}

/// Under which name effects stay on the host: `kind/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner(String);

impl Owner {
    /// `name` is a checked text of the schema.
    #[must_use]
    pub fn new(kind: &'static str, name: &str) -> Self {
        Self(format!("{kind}/{name}"))
    }

    /// What comes before the slash.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.split_once('/').map_or(self.0.as_str(), |(kind, _)| kind)
    }

    /// What comes after the slash.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
