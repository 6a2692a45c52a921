//! Who uses an image: whoever fetches it, or takes it away, has its path alone; whoever reads it shares it. Tasks of one
//! process; whoever read it in another life reads no more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two looks whether it is free.
const LOOK: Duration = Duration::from_millis(100);

static USES: Mutex<BTreeMap<PathBuf, Use>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default)]
struct Use {
    readers: usize,
    alone: bool,
    /// Who waits to have it alone: new readers wait for them.
    waiting: usize,
}

fn uses() -> MutexGuard<'static, BTreeMap<PathBuf, Use>> {
    USES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn change<T>(path: &Path, f: impl FnOnce(&mut Use) -> T) -> T {
    let mut uses = uses();
    let of = uses.entry(path.to_owned()).or_default();
    let out = f(of);
    if of.readers == 0 && !of.alone && of.waiting == 0 {
        uses.remove(path);
    }
    out
}

/// An image that is not taken away.
#[derive(Debug)]
#[must_use]
pub(super) struct Reading(PathBuf);

/// A path that nobody else uses.
#[derive(Debug)]
#[must_use]
pub(super) struct Alone(PathBuf);

impl Drop for Reading {
    fn drop(&mut self) {
        change(&self.0, |u| u.readers = u.readers.saturating_sub(1));
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        change(&self.0, |u| u.alone = false);
    }
}

impl Alone {
    /// Lets others read it too, and nobody take it away in between.
    fn share(self) -> Reading {
        change(&self.0, |u| u.readers = u.readers.saturating_add(1));
        Reading(self.0.clone())
    }
}

/// Waits until the path can be read; `wait` says whether it still may.
///
/// # Errors
/// What `wait` says.
pub(super) fn read<E>(path: &Path, wait: &dyn Fn() -> Result<(), E>) -> Result<Reading, E> {
    let free = |u: &mut Use| {
        let free = !u.alone && u.waiting == 0;
        u.readers = u.readers.saturating_add(usize::from(free));
        free
    };
    while !change(path, free) {
        wait()?;
        std::thread::sleep(LOOK);
    }
    Ok(Reading(path.to_owned()))
}

/// Waits until nobody else uses the path.
///
/// # Errors
/// What `wait` says.
pub(super) fn alone<E>(path: &Path, wait: &dyn Fn() -> Result<(), E>) -> Result<Alone, E> {
    change(path, |u| u.waiting = u.waiting.saturating_add(1));
    let alone = loop {
        if let Some(alone) = alone_now(path) {
            break Ok(alone);
        }
        if let Err(e) = wait() {
            break Err(e);
        }
        std::thread::sleep(LOOK);
    };
    change(path, |u| u.waiting = u.waiting.saturating_sub(1));
    alone
}

/// The path alone, if nobody else uses it now.
fn alone_now(path: &Path) -> Option<Alone> {
    change(path, |u| {
        let free = !u.alone && u.readers == 0;
        u.alone |= free;
        free
    })
    .then(|| Alone(path.to_owned()))
}

/// The image, once it is there: fetched by the first that misses it, used by all.
///
/// # Errors
/// What `wait` or `fetch` says.
pub(super) fn present<E>(
    path: &Path,
    wait: &dyn Fn() -> Result<(), E>,
    fetch: impl FnOnce() -> Result<(), E>,
) -> Result<Reading, E> {
    loop {
        let reading = read(path, wait)?;
        if path.exists() {
            return Ok(reading);
        }
        drop(reading);
        // Whoever comes too late for it looks again: to wait for the first's readers would be to wait for its machine.
        if let Some(alone) = alone_now(path) {
            if !path.exists() {
                fetch()?;
            }
            return Ok(alone.share());
        }
        wait()?;
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn two_that_miss_an_image_fetch_it_once_and_whoever_takes_it_away_waits_for_its_readers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let (fetched, go_on) = (AtomicUsize::new(0), || Ok::<_, String>(()));
        // Both have looked, and missed it, before either has it alone.
        let missed = [read(&path, &go_on).unwrap(), read(&path, &go_on).unwrap()];
        let present = || {
            present(&path, &go_on, || {
                fetched.fetch_add(1, Ordering::AcqRel);
                std::thread::sleep(LOOK * 2);
                std::fs::write(&path, "x").map_err(|e| e.to_string())
            })
        };
        let both: Vec<Reading> = std::thread::scope(|s| {
            let threads = [s.spawn(present), s.spawn(present)];
            std::thread::sleep(LOOK * 2);
            drop(missed);
            threads.map(|t| t.join().unwrap().unwrap()).into()
        });
        assert_eq!(fetched.load(Ordering::Acquire), 1);
        std::thread::scope(|s| {
            let gone = s.spawn(|| {
                let _alone = alone(&path, &go_on).unwrap();
                std::fs::remove_file(&path).unwrap();
            });
            std::thread::sleep(LOOK * 3);
            assert!(path.exists() && !gone.is_finished());
            drop(both);
            gone.join().unwrap();
        });
        assert!(!path.exists());
        // Whoever may wait no longer leaves nothing behind.
        let reading = read(&path, &go_on).unwrap();
        assert_eq!(alone(&path, &|| Err("late")).unwrap_err(), "late");
        drop(reading);
        assert!(!uses().contains_key(&path));
    }
}
