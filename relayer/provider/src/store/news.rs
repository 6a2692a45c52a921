use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Store, Write};

/// How often it is said that there may be news where nothing tells of them.
const OTHERWISE: Duration = Duration::from_millis(500);

/// Tells that something was written, by whatever process, without saying what. Listens only while somebody wants to know.
#[derive(Debug)]
pub struct News {
    store: Store,
    running: Mutex<Weak<Running>>,
}

/// Somebody who wants to know.
#[derive(Debug)]
pub struct Heard {
    changed: watch::Receiver<u64>,
    _running: Arc<Running>,
}

#[derive(Debug)]
struct Running {
    changed: watch::Receiver<u64>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Store {
    /// News of this store.
    #[must_use]
    pub fn news(&self) -> News {
        News {
            store: self.clone(),
            running: Mutex::default(),
        }
    }
}

impl News {
    /// From now on.
    #[must_use]
    pub fn subscribe(&self) -> Heard {
        let mut known = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = known.upgrade().unwrap_or_else(|| {
            let running = Arc::new(self.start());
            *known = Arc::downgrade(&running);
            running
        });
        Heard {
            changed: running.changed.clone(),
            _running: running,
        }
    }

    fn start(&self) -> Running {
        let (sender, changed) = watch::channel(0);
        let task = match &self.store.write {
            Write::Sqlite { writer, .. } => {
                let file = writer.file().to_owned();
                std::thread::spawn(move || of_files(&file, &sender));
                None
            }
            Write::Postgres { .. } => {
                let changes = self.store.changes();
                Some(tokio::spawn(async move {
                    loop {
                        changes.heard().await;
                        tick(&sender);
                    }
                }))
            }
        };
        Running { changed, task }
    }
}

impl Heard {
    /// What comes from here on is news.
    pub fn mark(&mut self) {
        self.changed.borrow_and_update();
    }

    /// Ends when something was written since the last mark.
    pub async fn news(&mut self) {
        if self.changed.changed().await.is_err() {
            sleep(OTHERWISE).await;
        }
    }
}

fn tick(sender: &watch::Sender<u64>) {
    sender.send_modify(|n| *n = n.wrapping_add(1));
}

/// Every commit writes to the journal beside the database. On a thread of its own, until nobody wants to know.
fn of_files(database: &Path, sender: &watch::Sender<u64>) {
    let watched = database.parent().map(watched);
    if let Some(Ok(fd)) = watched {
        let mut events = [0; 4096];
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        while !sender.is_closed() {
            let mut wanted = [PollFd::new(&fd, PollFlags::IN)];
            match poll(&mut wanted, Some(&second)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    while rustix::io::read(&fd, &mut events).is_ok_and(|n| n > 0) {}
                    tick(sender);
                }
                Err(_) => break,
            }
        }
    }
    // Nothing tells: it is looked at now and then.
    while !sender.is_closed() {
        std::thread::sleep(OTHERWISE);
        tick(sender);
    }
}

fn watched(dir: &Path) -> io::Result<OwnedFd> {
    let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&fd, dir, inotify::WatchFlags::MODIFY)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::control;

    #[tokio::test]
    async fn what_another_process_writes_is_heard_of_at_once_and_silence_is_silence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store/p.db");
        let (ours, theirs) = (Store::for_test(&path).await, Store::for_test(&path).await);
        let mut heard = ours.news().subscribe();
        // PostgreSQL's listener needs a moment to connect.
        let until = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            heard.mark();
            let mut tx = theirs.begin().await.unwrap();
            control::touch(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
            if timeout(Duration::from_secs(1), heard.news()).await.is_ok() {
                break;
            }
            assert!(tokio::time::Instant::now() < until, "nothing was heard");
        }
        while timeout(Duration::from_millis(300), heard.news()).await.is_ok() {
            heard.mark();
            assert!(tokio::time::Instant::now() < until, "there is always news");
        }
        assert!(timeout(Duration::from_millis(300), heard.news()).await.is_err());
    }
}
