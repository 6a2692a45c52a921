//! What asks a disk that may not answer, such as a file server's: with a thread of its own, and nobody waits for it long.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than any disk that works takes for a small file.
const PATIENCE: Duration = Duration::from_millis(250);
/// For making sure of a file, which a busy disk takes its time for. Heartbeats wait as long.
const WRITTEN: Duration = Duration::from_secs(1);
/// No disk that works takes so long for it.
const HANGS: Duration = Duration::from_secs(5);
/// Enough to read a file of JSON.
const STACK: usize = 256 << 10;
/// Enough to read a file that people write, however deep; what is not touched of it costs nothing.
const PARSER: usize = 2 << 20;

/// Does it with a thread of its own, which ends with it.
fn apart<T: Send + 'static>(
    stack: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(Receiver<T>, JoinHandle<()>)> {
    let (tx, rx) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("disk".into()).stack_size(stack);
    // Whoever asked may wait no more.
    let thread = thread.spawn(move || drop(tx.send(work())))?;
    Ok((rx, thread))
}

/// Does it, and gives what came of it; none if that takes longer than `limit`, and nobody hears of it then.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (rx, _) = apart(STACK, work).ok()?;
    rx.recv_timeout(limit).ok()
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
        let answer = apart(STACK, move || {
            question(&mut value);
            value
        });
        let (rx, _) = answer.ok()?;
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
pub(crate) struct Disk<T> {
    away: Option<Away<T>>,
    limit: Duration,
    stack: usize,
}

/// What was not waited for any longer.
#[derive(Debug)]
struct Away<T> {
    /// What it writes.
    what: u64,
    since: Instant,
    end: Receiver<T>,
    thread: JoinHandle<()>,
}

impl<T> Default for Disk<T> {
    fn default() -> Self {
        Self {
            away: None,
            limit: WRITTEN,
            stack: STACK,
        }
    }
}

impl<T: Send + 'static> Disk<T> {
    /// One from which is read what people write: nothing is waited for longer than a moment.
    pub(crate) fn reading() -> Self {
        Self {
            away: None,
            limit: PATIENCE,
            stack: PARSER,
        }
    }

    /// Does it, and gives what came of it; none while something hangs, for which only the first waits. `what` names what is
    /// written. What ends late is given to whoever asks for the same again, so that a slow disk gets it done; whoever asks
    /// for something else has it done after that.
    pub(crate) fn ask(&mut self, what: u64, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if let Some(away) = self.away.take() {
            match away.end.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.away = Some(away);
                    return None;
                }
                Ok(done) if away.what == what => return Some(done),
                // Of something else, or its thread has ended without a word.
                Ok(_) | Err(TryRecvError::Disconnected) => {}
            }
        }
        let since = Instant::now();
        let (end, thread) = apart(self.stack, work).ok()?;
        match end.recv_timeout(self.limit) {
            Ok(done) => Some(done),
            Err(RecvTimeoutError::Timeout) => {
                self.away = Some(Away {
                    what,
                    since,
                    end,
                    thread,
                });
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Whether what was asked last has not ended for longer than a slow disk takes.
    pub(crate) fn hangs(&self) -> bool {
        let away = self.away.as_ref();
        away.is_some_and(|a| !a.thread.is_finished() && a.since.elapsed() > HANGS)
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
        let answered = |patient: &mut Patient<i32>, more: i32| {
            (0..1000).find_map(|_| {
                thread::sleep(Duration::from_millis(5));
                patient.ask(move |n| *n += more).copied()
            })
        };
        assert_eq!(answered(&mut patient, 1), Some(2));
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
        assert_eq!(answered(&mut patient, 1000), Some(12), "the late answer itself");
        assert_eq!(answered(&mut patient, 1), Some(13));
        // A question that ends its thread leaves the value as it was, however long its last words take.
        assert_eq!(patient.ask(|_| panic!("on purpose")), None);
        assert_eq!(answered(&mut patient, 1), Some(14));
    }

    #[test]
    fn what_hangs_is_waited_for_once_and_what_comes_after_it_is_done() {
        let mut disk = Disk::default();
        assert_eq!(disk.ask(1, || 1), Some(1));
        let (go, wait) = mpsc::channel::<()>();
        let began = Instant::now();
        let hangs = move || {
            let _gone = wait.recv();
            2
        };
        assert_eq!(disk.ask(2, hangs), None);
        assert!(began.elapsed() >= WRITTEN && !disk.hangs());
        let began = Instant::now();
        for _ in 0..100 {
            assert_eq!(disk.ask(2, || 3), None);
        }
        assert!(began.elapsed() < WRITTEN, "{:?}", began.elapsed());
        thread::sleep(HANGS - WRITTEN);
        assert!(disk.hangs());
        go.send(()).unwrap();
        let answered = |disk: &mut Disk<i32>, n: i32| {
            (0..1000).find_map(|_| {
                thread::sleep(Duration::from_millis(5));
                disk.ask(n.unsigned_abs().into(), move || n)
            })
        };
        assert_eq!(
            answered(&mut disk, 4),
            Some(4),
            "not the late answer to another question"
        );
        assert!(!disk.hangs());
        // What comes after is done, however long its last words take.
        assert_eq!(disk.ask(5, || panic!("on purpose")), None);
        assert_eq!(answered(&mut disk, 6), Some(6));
    }

    #[test]
    fn what_takes_too_long_is_not_heard_of_and_goes_on_by_itself() {
        assert_eq!(within(HANGS, || 1), Some(1));
        assert_eq!(within(HANGS, || -> i32 { panic!("on purpose") }), None);
        let (go, wait) = mpsc::channel::<()>();
        let (held, released) = mpsc::channel::<()>();
        let began = Instant::now();
        let hangs = move || {
            let _gone = wait.recv();
            drop(held);
        };
        assert_eq!(within(Duration::from_millis(50), hangs), None);
        assert!(began.elapsed() < HANGS, "{:?}", began.elapsed());
        assert_eq!(
            released.try_recv(),
            Err(TryRecvError::Empty),
            "it has what it was given"
        );
        go.send(()).unwrap();
        assert_eq!(released.recv_timeout(HANGS), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn a_slow_disk_gets_it_done_once_and_nobody_waits_for_it_longer() {
        let mut disk = Disk::default();
        let (done, count) = mpsc::channel();
        let slow = || {
            let done = done.clone();
            move || {
                thread::sleep(WRITTEN * 4);
                let _gone = done.send(());
                7
            }
        };
        let began = Instant::now();
        assert_eq!(disk.ask(1, slow()), None);
        assert!(began.elapsed() < WRITTEN * 4, "{:?}", began.elapsed());
        let end = (0..1000).find_map(|_| {
            thread::sleep(Duration::from_millis(20));
            disk.ask(1, slow())
        });
        assert_eq!((end, count.try_iter().count()), (Some(7), 1));
        disk.hurry();
        let began = Instant::now();
        assert_eq!(disk.ask(2, slow()), None);
        assert!(began.elapsed() < WRITTEN, "{:?}", began.elapsed());
    }
}
