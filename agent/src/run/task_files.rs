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
    /// When it was looked at last, and why that failed.
    looked: Option<Instant>,
    error: Option<String>,
    /// Since when it has not answered.
    silent: Option<Instant>,
    hangs: bool,
}

/// Between two looks: the loop turns more than once in a moment.
const LOOK: Duration = Duration::from_secs(1);

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
            (self.looked, self.error) = (None, None);
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

    /// Looks again, unless it was looked at a moment ago.
    ///
    /// # Errors
    /// Why what tasks hold is as it was before.
    pub(super) fn look(&mut self, unix: u64) -> Result<(), String> {
        let now = instant();
        let recent = |at: Instant| now.saturating_duration_since(at) < LOOK;
        if !self.looked.is_some_and(recent) {
            self.error = self.ask(unix).err();
        }
        self.error.clone().map_or(Ok(()), Err)
    }

    fn ask(&mut self, unix: u64) -> Result<(), String> {
        let Some(asked) = &mut self.asked else {
            return Ok(());
        };
        let files = asked.ask(move |files| files.read(unix));
        let now = instant();
        // An answer that was waited for may be old.
        self.looked = files.filter(|_| self.silent.is_none()).map(|_| now);
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::config::{parse, resolve};

    /// What a look comes to, once the folder has answered.
    fn look(files: &mut TaskFiles) -> Result<u32, String> {
        for _ in 0..1000 {
            match files.look(1_795_303_803) {
                Err(e) if e.contains("does not answer") => std::thread::sleep(Duration::from_millis(5)),
                other => return other.map(|()| files.holdings().held.cores),
            }
        }
        panic!("no answer");
    }

    #[tokio::test(start_paused = true)]
    async fn within_a_moment_the_folder_is_looked_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "provider_daemon: {{endpoint: 'https://gateway:8443'}}\ntasks: {{dir: '{}'}}",
            dir.path().display()
        );
        let config = resolve(parse(&text, Path::new("config.yaml")).unwrap()).unwrap();
        let holds = |cores: u32| {
            let facts = json!({"vcpus": cores});
            let held = json!({"kind": "vm", "name": "x", "task_id": "task-1", "since": 1, "facts": facts});
            let text = json!({"holdings": [held]}).to_string();
            std::fs::write(dir.path().join("holdings.json"), text).unwrap();
        };
        let mut files = TaskFiles::of(&config, Vec::new());
        holds(2);
        assert_eq!(look(&mut files), Ok(2));
        holds(4);
        assert_eq!(look(&mut files), Ok(2));
        tokio::time::advance(LOOK).await;
        assert_eq!(look(&mut files), Ok(4));
        // What is wrong with it is as true a moment later.
        std::fs::write(dir.path().join("holdings.json"), "{").unwrap();
        tokio::time::advance(LOOK).await;
        let wrong = look(&mut files);
        assert!(wrong.is_err());
        holds(6);
        assert_eq!(look(&mut files), wrong);
        assert_eq!(files.holdings().held.cores, 4);
        tokio::time::advance(LOOK).await;
        assert_eq!(look(&mut files), Ok(6));
    }
}
