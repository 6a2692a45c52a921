//! What comes before the first heartbeat, and may hang: a file system, a device with the key, a gateway that is not there
//! yet. The service manager hears that the agent lives, a signal ends it, and what hangs is said.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;

use super::Failure;
use crate::config::Config;
use crate::files::directory_of;
use crate::key::{Place, describe};
use crate::run::Signal;

/// A local file system answers at once, a busy server within seconds.
const FILES: Duration = Duration::from_secs(10);
/// Enough for a look.
const STACK: usize = 64 << 10;

/// Looks at the folders that the start needs.
///
/// # Errors
/// One of them does not answer.
pub(super) fn look_at_files(config: &Config) -> Result<(), Failure> {
    let log = config.logging.file.as_deref().map(directory_of);
    let tasks = config.tasks.as_ref().map(|t| t.dir.as_path());
    let folders = [
        ("agent.state_dir", Some(config.state_dir.as_path())),
        ("agent.key_path", Some(directory_of(&config.key_path))),
        ("logging.file", log),
        ("tasks.dir", tasks),
    ];
    for (key, folder) in folders {
        if let Some(folder) = folder {
            look(key, folder, FILES)?;
        }
    }
    Ok(())
}

fn look(key: &str, folder: &Path, limit: Duration) -> Result<(), Failure> {
    // What the kernel remembers of a server it answers without it: this name it cannot know.
    let name: PathBuf = folder.join(format!(".{}.look", std::process::id()));
    let (sender, answered) = mpsc::channel();
    let asked = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        // Whatever the answer is, there was one.
        sender.send(name.symlink_metadata().is_ok()).ok();
    });
    asked.map_err(|e| Failure::new(1, format_args!("cannot start: {e}")))?;
    match answered.recv_timeout(limit) {
        Ok(_) | Err(RecvTimeoutError::Disconnected) => Ok(()),
        Err(RecvTimeoutError::Timeout) => Err(Failure::new(
            1,
            format_args!(
                "{key}: {} has not answered within {limit:?}; its file system hangs: look at the mount (findmnt -T), and have \
                 what the agent keeps on a local disk",
                folder.display()
            ),
        )),
    }
}

/// Tells the service manager that the agent is up and lives, until it is dropped.
#[derive(Debug)]
pub(super) struct Alive(Option<JoinHandle<()>>);

impl Alive {
    /// Within a runtime.
    pub(super) fn start() -> Self {
        // Without systemd there is nobody to tell.
        sd_notify::notify(&[sd_notify::NotifyState::Ready]).ok();
        let period = sd_notify::watchdog_enabled().map(|d| d / 2);
        Self(period.map(|period| {
            tokio::spawn(async move {
                loop {
                    sd_notify::notify(&[sd_notify::NotifyState::Watchdog]).ok();
                    tokio::time::sleep(period).await;
                }
            })
        }))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

/// Does `work`, which needs the key, and waits for it no longer than until a signal; none then. A key in its file is read
/// here and now.
pub(super) async fn with_key<T: Send + 'static>(
    path: &Path,
    signals: &mut Receiver<Signal>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, Failure> {
    match describe(path) {
        Ok((_, Place::Tpm2 { .. } | Place::Pkcs11 { .. })) => {
            let what = format!("the device that {} (agent.key_path) names", path.display());
            aside(&what, signals, work).await
        }
        // What is wrong with the file is told by the work.
        _ => Ok(Some(work())),
    }
}

/// Does `work`, which may hang, on a thread of its own; none if told to stop meanwhile. What takes longer than a moment is
/// said, with `what` it is.
async fn aside<T: Send + 'static>(
    what: &str,
    signals: &mut Receiver<Signal>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, Failure> {
    let mut work = tokio::task::spawn_blocking(work);
    let mut said = false;
    loop {
        tokio::select! {
            biased;
            signal = signals.recv() => match signal {
                // What is being read is as good as new.
                Some(Signal::Reload) => {}
                Some(Signal::Stop) | None => return Ok(None),
            },
            done = &mut work => {
                return done.map(Some).map_err(|e| Failure::new(1, format_args!("{what}: {e}")));
            }
            () = tokio::time::sleep(FILES), if !said => {
                said = true;
                tracing::warn!("{what} has not answered within {FILES:?}; the agent waits for it");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_there_or_not_answers_both_times() {
        let dir = tempfile::tempdir().unwrap();
        for folder in [dir.path().to_owned(), dir.path().join("missing")] {
            look("agent.state_dir", &folder, Duration::from_secs(60)).unwrap();
        }
    }

    #[tokio::test]
    async fn what_hangs_does_not_keep_the_agent_from_ending() {
        let (sender, mut signals) = tokio::sync::mpsc::channel(1);
        let (held, never) = mpsc::channel::<()>();
        sender.send(Signal::Stop).await.unwrap();
        let end = aside("the key", &mut signals, move || never.recv().ok()).await;
        assert!(end.unwrap().is_none());
        drop((held, sender));
        // Nobody is left who could send a signal.
        let end = aside("the key", &mut signals, || 7).await;
        assert!(end.unwrap().is_none());
        let (_sender, mut signals) = tokio::sync::mpsc::channel(1);
        assert_eq!(aside("the key", &mut signals, || 7).await.unwrap(), Some(7));
    }
}
