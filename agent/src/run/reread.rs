//! The configuration is read again with a thread of its own: its file, or that of the token, may lie on a file server that
//! does not answer.

use std::mem::{replace, take};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::instant;
use crate::config::{Config, ConfigError};
use crate::patient::Disk;

/// Reads the configuration again.
pub type Reread = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// A local file system answers at once, a busy server within seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks for what is being read, until then.
const LOOK: Duration = Duration::from_secs(1);

/// What is being read.
#[derive(Debug)]
pub(crate) struct Rereading {
    disk: Disk<Result<Config, ConfigError>>,
    /// How often it was asked for: what was read for an earlier time does not count.
    asked: u64,
    /// Since when it is asked for.
    since: Option<Instant>,
    /// That it does not come was said.
    said: bool,
}

impl Default for Rereading {
    fn default() -> Self {
        Self {
            disk: Disk::reading(),
            asked: 0,
            since: None,
            said: false,
        }
    }
}

impl Rereading {
    /// Has it read from here on.
    pub(crate) fn ask(&mut self) {
        self.asked = self.asked.saturating_add(1);
        self.since = Some(instant());
        self.said = false;
    }

    /// Another configuration than `present`, once it was asked for and is read; late ones count too. What is wrong with it,
    /// or that it does not come, is said.
    pub(crate) fn answer(&mut self, reread: &Reread, present: &Config) -> Option<Config> {
        let since = self.since?;
        let reread = Arc::clone(reread);
        let read = self.disk.ask(self.asked, move || reread());
        let waited = instant().saturating_duration_since(since);
        let Some(read) = read else {
            if waited >= PATIENCE && !replace(&mut self.said, true) {
                say(present);
            }
            return None;
        };
        self.since = None;
        if take(&mut self.said) {
            tracing::warn!("the configuration that SIGHUP asked for has answered after {waited:?}");
        }
        read.inspect_err(|e| {
            tracing::error!("configuration not reloaded, the former one stays in force: {e}");
        })
        .ok()
    }

    /// When to look for it again.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.since?;
        let pause = if self.said { PATIENCE } else { LOOK };
        instant().checked_add(pause)
    }
}

/// That the configuration does not come.
fn say(present: &Config) {
    let file = present.path.as_ref().map_or_else(
        || "the configuration file".to_owned(),
        |path| path.display().to_string(),
    );
    tracing::error!(
        "configuration not reloaded, the former one stays in force: {file}, or the file of \
         agent.registration_token_file in it, has not answered within {PATIENCE:?}; its file system hangs: look at the \
         mount (findmnt -T {file}); once it answers, what is read counts"
    );
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::config::{parse, resolve};

    /// Names this port.
    fn config(port: u16) -> Config {
        let text = format!("provider_daemon: {{endpoint: 'https://gateway:{port}'}}");
        resolve(parse(&text, Path::new("config.yaml")).unwrap()).unwrap()
    }

    /// A file that answers as often as it is told to, each time with the next port.
    fn hanging() -> (Sender<()>, Reread) {
        let (go, wait) = channel();
        let turns = Mutex::new((wait, 0));
        let reread: Reread = Arc::new(move || {
            let mut turns = turns.lock().unwrap();
            let _gone = turns.0.recv();
            turns.1 += 1;
            Ok(config(turns.1))
        });
        (go, reread)
    }

    fn late(r: &mut Rereading, reread: &Reread) -> Option<u16> {
        let new = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            r.answer(reread, &config(9))
        });
        new.map(|c| c.endpoints[0].port)
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_hangs_is_said_once_and_counts_when_it_answers_at_last() {
        let (go, reread) = hanging();
        let present = config(9);
        let mut r = Rereading::default();
        assert!(r.answer(&reread, &present).is_none() && r.again_at().is_none());
        r.ask();
        assert!(r.answer(&reread, &present).is_none() && !r.said);
        assert_eq!(r.again_at(), instant().checked_add(LOOK));
        tokio::time::advance(PATIENCE).await;
        assert!(r.answer(&reread, &present).is_none() && r.said);
        assert_eq!(r.again_at(), instant().checked_add(PATIENCE));
        go.send(()).unwrap();
        assert_eq!(late(&mut r, &reread), Some(1));
        assert!(r.answer(&reread, &present).is_none() && r.again_at().is_none());
    }

    #[tokio::test]
    async fn what_was_read_for_an_earlier_hangup_does_not_count() {
        let (go, reread) = hanging();
        let mut r = Rereading::default();
        r.ask();
        assert!(r.answer(&reread, &config(9)).is_none());
        r.ask();
        go.send(()).unwrap();
        go.send(()).unwrap();
        assert_eq!(late(&mut r, &reread), Some(2));
    }

    #[tokio::test]
    async fn a_wrong_file_is_no_configuration_and_is_not_read_again_by_itself() {
        let wrong: Reread = Arc::new(|| {
            Err(ConfigError::Missing {
                path: "config.yaml".to_owned(),
            })
        });
        let mut r = Rereading::default();
        r.ask();
        assert!(r.answer(&wrong, &config(9)).is_none() && r.again_at().is_none());
    }
}
