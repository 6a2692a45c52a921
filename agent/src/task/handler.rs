use hpc_schema::task::Params;
use serde_json::Value;

use super::context::Context;
use super::failure::Failure;
use super::owner::Owner;
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
