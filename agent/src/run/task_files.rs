//! What the task domain has left for the heartbeat in its folder, which may lie on a file server that does not answer.

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
}

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
    /// Of the folder in this configuration.
    pub(super) fn of(config: &Config) -> Self {
        let asked = config.tasks.as_ref().map(|tasks| {
            Patient::new(Files {
                holdings: HoldingsFile::new(Some(&tasks.dir)),
                news: News::of(Some(&tasks.dir)),
                error: None,
            })
        });
        Self {
            asked,
            ..Self::default()
        }
    }

    /// The same in another configuration; what was learnt stays until it is read.
    pub(super) fn again(&mut self, config: &Config) {
        self.asked = Self::of(config).asked;
        if self.asked.is_none() {
            *self = Self::default();
        }
    }

    /// What tasks hold.
    pub(super) fn holdings(&self) -> TaskHoldings {
        self.holdings
    }

    /// What the task domain has found: code of the catalogue, and words.
    pub(super) fn news(&self) -> &[(&'static str, String)] {
        &self.news
    }

    /// Looks again.
    ///
    /// # Errors
    /// Why what tasks hold is as it was before.
    pub(super) fn look(&mut self, unix: u64) -> Result<(), String> {
        let Some(asked) = &mut self.asked else {
            return Ok(());
        };
        let files = asked
            .ask(move |files| files.read(unix))
            .ok_or("the folder of tasks (tasks.dir) does not answer")?;
        self.holdings = files.holdings.last();
        self.news = files.news.last().to_vec();
        files.error.clone().map_or(Ok(()), Err)
    }
}
