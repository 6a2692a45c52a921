//! What answers are made of.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::board::{Board, View};
use crate::accel::Accel;
use crate::config::Config;
use crate::probe::Roots;
use crate::state::{Lock, StateDir, Status};

/// The loop puts something on the board at least this often, or it hangs: its longest wait is for a gateway.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// Where answers come from.
#[derive(Debug)]
pub(super) struct Source {
    state: StateDir,
    pub(super) board: Arc<Board>,
    pub(super) roots: Roots,
    pub(super) storage_path: PathBuf,
    /// The accelerator that the administrator wants.
    pub(super) wanted: Option<Accel>,
    /// Folder of the task agent, which knows what machines run by here.
    pub(super) tasks: Option<PathBuf>,
    /// The node's id before it is registered.
    pub(super) node_id: Option<String>,
    started: Instant,
}

impl Source {
    pub(super) fn new(config: &Config, board: Arc<Board>, now: Instant) -> Self {
        Self {
            state: StateDir::new(&config.state_dir),
            board,
            roots: config.roots.clone(),
            storage_path: config.storage_path.clone(),
            wanted: config.accel,
            tasks: config.tasks.as_ref().map(|t| t.dir.clone()),
            node_id: config.node_id.as_ref().map(ToString::to_string),
            started: now,
        }
    }

    /// What the agent last wrote down.
    pub(super) fn status(&self) -> Option<Status> {
        Status::load(&self.state).ok().flatten()
    }

    /// Whether an agent holds the state directory: this one does, but while it registers the node.
    pub(super) fn running(&self) -> bool {
        Lock::is_held(&self.state)
    }

    /// What the loop last measured.
    pub(super) fn view(&self) -> Option<Arc<View>> {
        self.board.get().map(|(_, view)| view)
    }

    /// How long the loop has been silent, if that is too long.
    pub(super) fn hangs(&self, now: Instant) -> Option<Duration> {
        let last = self.board.get().map_or(self.started, |(at, _)| at);
        let registering = || self.status().is_some_and(|s| s.registering.is_some());
        let silent = now.saturating_duration_since(last);
        (silent > LONGEST_SILENCE && !registering()).then_some(silent)
    }
}
