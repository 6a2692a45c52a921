//! What needs rights that the agent has not: switching the host off, and draining it where Slurm knows no operators. A
//! process of its own does it, started by the service manager for each request on a socket that only the agent's user
//! may open. It knows these verbs and no other; each is carried out by compiled-in code with arguments of its own.
//!
//! One line of JSON each way: a [`Verb`], an [`Answer`].

mod serve;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use serve::{Allowed, Peer, Rules, peer, serve};

use crate::probe::slurm::By;
use crate::socket::connect_at_once;

/// Where the helper's unit listens.
pub const SOCKET: &str = "/run/virtengine-node-helper.sock";
/// What to do where it is missing.
pub const REMEDY: &str =
    "let the helper do it: systemctl enable --now virtengine-node-helper.socket (docs/agent.md)";
/// Longest line either way.
const LONGEST: u64 = 4096;
/// Slurm's programs give up after eight seconds, and are asked three times.
const PATIENCE: Duration = Duration::from_secs(45);

/// What it can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Verb {
    /// Drain this node in Slurm, or give a drain of ours this reason.
    Drain {
        /// For whom.
        by: By,
        /// Why.
        reason: String,
    },
    /// End a drain of ours in Slurm.
    Resume {
        /// For whom it was drained.
        by: By,
    },
    /// Switch this host off. (Braces, or serde would let further fields pass.)
    Poweroff {},
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// Done.
    Done {
        /// For people.
        detail: String,
    },
    /// Not done.
    Failed {
        /// For people.
        detail: String,
    },
}

/// The helper, seen from the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper(PathBuf);

impl Helper {
    /// The helper that listens at `socket`; none if there is no socket.
    #[must_use]
    pub fn at(socket: &Path) -> Option<Self> {
        socket.exists().then(|| Self(socket.to_owned()))
    }

    /// Has it done; blocks for at most three quarters of a minute. What it says for people.
    ///
    /// # Errors
    /// It does not answer, refuses, or could not do it.
    pub fn ask(&self, verb: &Verb) -> Result<String, String> {
        let answer = self.exchange(verb).map_err(|e| {
            format!(
                "the helper at {} does not answer: {e}; {REMEDY}",
                self.0.display()
            )
        })?;
        match answer {
            Answer::Done { detail } => Ok(detail),
            Answer::Failed { detail } => Err(format!("the helper: {detail}")),
        }
    }

    fn exchange(&self, verb: &Verb) -> std::io::Result<Answer> {
        let mut stream = connect_at_once(&self.0)?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(verb)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(stream.take(LONGEST)).read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }
}
