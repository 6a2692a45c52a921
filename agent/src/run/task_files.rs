//! What the task domain has left for the heartbeat in its folder, which may lie on a file server that does not answer.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hpc_schema::heartbeat::JobId;

use crate::clock::instant;
use crate::config::Config;
use crate::heartbeat::{HoldingsFile, TaskHoldings};
use crate::patient::Patient;
use crate::task::news::News;

/// What was learnt last, and who asks for more.
#[derive(Debug, Default)]
pub(super) struct TaskFiles {
    /// None where the node takes no tasks.
    asked: Option<Patient<Files>>,
    holdings: TaskHoldings,
    news: Vec<(&'static str, String)>,
    /// The folder.
    dir: Option<PathBuf>,
    /// Since when it has not answered.
    silent: Option<Instant>,
    hangs: bool,
}

/// A folder that does not answer for so long hangs; a busy one is slow now and then.
const HANGS: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
struct Files {
    holdings: HoldingsFile,
    news: News,
    /// Why what tasks hold could not be read.
    error: Option<String>,
}

impl Files {
    fn read(&mut self, unix: u64) {
        self.error = self.holdings.read().err().map(|e| e.to_string());
        self.news.read(unix);
    }
}

impl TaskFiles {
    /// Of the folder in this configuration; `work` ran by tasks when an agent last looked, and goes on until the folder says
    /// otherwise.
    pub(super) fn of(config: &Config, work: Vec<JobId>) -> Self {
        let Some(dir) = config.tasks.as_ref().map(|tasks| tasks.dir.clone()) else {
            return Self::default();
        };
        let holdings = HoldingsFile::new(Some(&dir)).knowing(work);
        Self {
            holdings: holdings.last().clone(),
            asked: Some(Patient::new(Files {
                holdings,
                news: News::of(Some(&dir)),
                error: None,
            })),
            dir: Some(dir),
            ..Self::default()
        }
    }

    /// The same in another configuration; what was learnt stays until another folder is read, and who asks this one goes on.
    pub(super) fn again(&mut self, config: &Config) {
        let new = Self::of(config, self.holdings.work.clone());
        if new.dir.is_none() {
            *self = new;
        } else if new.dir != self.dir {
            (self.asked, self.dir) = (new.asked, new.dir);
            (self.silent, self.hangs) = (None, false);
        }
    }

    /// What tasks hold.
    pub(super) fn holdings(&self) -> &TaskHoldings {
        &self.holdings
    }

    /// What the task domain has found: code of the catalogue, and words.
    pub(super) fn news(&self) -> &[(&'static str, String)] {
        &self.news
    }

    /// Whether the folder did not answer, and has not for a while, when it was looked at last.
    pub(super) fn hang(&self) -> bool {
        self.hangs
    }

    /// Looks again.
    ///
    /// # Errors
    /// Why what tasks hold is as it was before.
    pub(super) fn look(&mut self, unix: u64) -> Result<(), String> {
        let Some(asked) = &mut self.asked else {
            return Ok(());
        };
        let files = asked.ask(move |files| files.read(unix));
        let now = instant();
        self.silent = match files {
            Some(_) => None,
            None => self.silent.or(Some(now)),
        };
        self.hangs = self
            .silent
            .is_some_and(|since| now.saturating_duration_since(since) >= HANGS);
        let files = files.ok_or("the folder of tasks (tasks.dir) does not answer")?;
        if files.error.is_none() {
            self.holdings = files.holdings.last().clone();
        }
        self.news = files.news.last().to_vec();
        files.error.clone().map_or(Ok(()), Err)
    }
}
