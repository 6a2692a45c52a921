//! What asks a disk that may not answer, such as a file server's: with a thread of its own, and nobody waits for it long.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any disk that works takes for a small file.
const PATIENCE: Duration = Duration::from_millis(250);
/// For making sure of a file, which a busy disk takes its time for.
const WRITTEN: Duration = Duration::from_secs(2);
/// The same of a slow one.
const LONGEST: Duration = Duration::from_secs(16);
/// Enough to read a file of JSON.
const STACK: usize = 256 << 10;

/// Does it with a thread of its own, which ends with it.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
    let (tx, rx) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("disk".into()).stack_size(STACK);
    // Whoever asked may wait no more.
    thread.spawn(move || drop(tx.send(work())))?;
    Ok(rx)
}

/// A value with which the disk is asked.
#[derive(Debug)]
pub(crate) struct Patient<T> {
    /// As it was answered last.
    value: T,
    away: Option<Receiver<T>>,
}

impl<T: Clone + Send + 'static> Patient<T> {
    /// With this value.
    pub(crate) fn new(value: T) -> Self {
        Self { value, away: None }
    }

    /// Asks, and gives the value with what it has learnt; none while a question hangs, for which only the first waits. An
    /// answer that comes late is given by the next call, which asks nothing.
    pub(crate) fn ask(&mut self, question: impl FnOnce(&mut T) + Send + 'static) -> Option<&T> {
        if let Some(away) = &self.away {
            let answer = away.try_recv();
            if matches!(answer, Err(TryRecvError::Empty)) {
                return None;
            }
            self.away = None;
            // Else its thread has ended without one.
            if let Ok(value) = answer {
                self.value = value;
                return Some(&self.value);
            }
        }
        let mut value = self.value.clone();
        let answer = apart(move || {
            question(&mut value);
            value
        });
        let rx = answer.ok()?;
        match rx.recv_timeout(PATIENCE) {
            Ok(value) => {
                self.value = value;
                Some(&self.value)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.away = Some(rx);
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

/// A disk to which is written now and then, and what is written must be known to be there.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Of what hung: closed once that has ended.
    away: Option<Receiver<()>>,
    limit: Duration,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            away: None,
            limit: WRITTEN,
        }
    }
}

impl Disk {
    /// Does it, and gives what came of it; none while something hangs, for which only the first waits. What ends late is as
    /// good as not done: whoever asked does it again, and is waited for twice as long, so that a slow disk gets it done.
    pub(crate) fn ask<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.hangs() {
            return None;
        }
        let (held, away) = mpsc::sync_channel(0);
        let answer = apart(move || {
            let done = work();
            drop(held);
            done
        });
        let rx = answer.ok()?;
        let limit = if self.away.take().is_some() {
            self.limit.saturating_mul(2).min(LONGEST)
        } else {
            self.limit
        };
        let began = Instant::now();
        let answer = rx.recv_timeout(limit);
        let late = matches!(answer, Err(RecvTimeoutError::Timeout));
        // As long as it is slow, else every other one would be waited for in vain.
        let slow = late || began.elapsed() > WRITTEN / 2;
        self.limit = if slow { limit } else { WRITTEN.min(self.limit) };
        self.away = late.then_some(away);
        answer.ok()
    }

    /// Whether what was asked last has not ended.
    pub(crate) fn hangs(&self) -> bool {
        self.away
            .as_ref()
            .is_some_and(|away| matches!(away.try_recv(), Err(TryRecvError::Empty)))
    }

    /// From here on nothing is waited for longer than a moment.
    pub(crate) fn hurry(&mut self) {
        self.limit = PATIENCE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_question_that_hangs_is_waited_for_shortly_and_no_later_one() {
        let mut patient = Patient::new(1);
        assert_eq!(patient.ask(|n| *n += 1), Some(&2));
        let (go, wait) = mpsc::channel::<()>();
        let began = Instant::now();
        let hangs = move |n: &mut i32| {
            let _gone = wait.recv();
            *n += 10;
        };
        assert_eq!(patient.ask(hangs), None);
        assert!(began.elapsed() >= PATIENCE);
        let began = Instant::now();
        for _ in 0..100 {
            assert_eq!(patient.ask(|n| *n += 100), None);
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        go.send(()).unwrap();
        let answered = (0..1000).find_map(|_| {
            thread::sleep(Duration::from_millis(5));
            patient.ask(|n| *n += 1000).copied()
        });
        assert_eq!(answered, Some(12), "the late answer itself");
        assert_eq!(patient.ask(|n| *n += 1), Some(&13));
        // A question that ends its thread leaves the value as it was.
        assert_eq!(patient.ask(|_| panic!("on purpose")), None);
        assert_eq!(patient.ask(|n| *n += 1), Some(&14));
    }

    #[test]
    fn what_hangs_is_waited_for_once_and_what_comes_after_it_is_done() {
        let mut disk = Disk::default();
        assert_eq!(disk.ask(|| 1), Some(1));
        let (go, wait) = mpsc::channel::<()>();
        let began = Instant::now();
        assert_eq!(disk.ask(move || wait.recv().is_ok()), None);
        assert!(began.elapsed() >= WRITTEN);
        let began = Instant::now();
        for _ in 0..100 {
            assert_eq!(disk.ask(|| 2), None);
        }
        assert!(began.elapsed() < WRITTEN, "{:?}", began.elapsed());
        go.send(()).unwrap();
        let answered = (0..1000).find_map(|_| {
            thread::sleep(Duration::from_millis(5));
            disk.ask(|| 3)
        });
        assert_eq!(answered, Some(3), "not the late answer");
        assert_eq!(disk.ask(|| panic!("on purpose")), None::<()>);
        assert_eq!(disk.ask(|| 4), Some(4));
    }

    #[test]
    fn a_slow_disk_gets_it_done() {
        let mut disk = Disk::default();
        let slow = || thread::sleep(WRITTEN * 3 / 2);
        let began = Instant::now();
        let done = (0..1000).find_map(|_| {
            thread::sleep(Duration::from_millis(20));
            disk.ask(slow)
        });
        assert!(done.is_some() && !disk.hangs());
        assert_eq!(disk.ask(slow), Some(()), "the next one is waited for as long");
        assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
        disk.hurry();
        let began = Instant::now();
        assert_eq!(disk.ask(slow), None);
        assert!(disk.hangs() && began.elapsed() < WRITTEN, "{:?}", began.elapsed());
    }
}
