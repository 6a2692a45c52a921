use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Sink;
use crate::config::LoggingConfig;
use crate::files::FileError;

/// Bytes that wait for a file at most; what comes then goes to standard error.
const WAITING: usize = 64 << 10;
/// Who works on one line for longer hangs.
const STUCK: Duration = Duration::from_secs(1);
/// Enough to write to a file and to open one.
const STACK: usize = 128 << 10;

/// Lines for a file whose disk may not answer, such as a file server's. At first each is written at once; then, by a thread
/// that lives while there are some, so that nobody who logs waits for the disk.
#[derive(Debug)]
pub(super) struct Aside(Mutex<Arc<Queue>>);

/// What one file, or one after the other, is given.
#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    /// Nobody works any more, or nobody reads what is done.
    done: Condvar,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    /// None while it is written to.
    sink: Option<Sink>,
    /// The first is being worked on, if one is.
    work: VecDeque<Work>,
    /// Of the lines that wait.
    bytes: usize,
    /// Somebody works, since when at what is done now.
    working: Option<Instant>,
    /// That lines go elsewhere was said.
    said: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    AtOnce,
    Aside,
    /// Nobody reads it any more.
    Left,
}

#[derive(Debug, Clone)]
enum Work {
    Line(Arc<[u8]>),
    Open(Arc<LoggingConfig>),
}

impl Aside {
    pub(super) fn new(sink: Sink) -> Self {
        Self(Mutex::new(Queue::new(Mode::AtOnce, sink, VecDeque::new())))
    }

    fn current(&self) -> MutexGuard<'_, Arc<Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn line(&self, line: &[u8]) {
        self.pass_by();
        let queue = Arc::clone(&self.current());
        queue.line(line);
    }

    pub(super) fn aside(&self) {
        self.current().lock().mode = Mode::Aside;
    }

    /// Opens the file of another configuration, or the same anew, after the lines that wait; before them where the present
    /// one hangs.
    pub(super) fn open(&self, config: &LoggingConfig) {
        let open = Work::Open(Arc::new(config.clone()));
        let queue = {
            // Nobody leaves it meanwhile.
            let current = self.current();
            current.lock().work.push_back(open);
            Arc::clone(&current)
        };
        queue.go_on();
        self.pass_by();
    }

    /// Goes on with the file that waits to be opened, if there is one, where the present one hangs.
    fn pass_by(&self) {
        let queue = {
            let mut current = self.current();
            let mut state = current.lock();
            if !state.hangs() {
                return;
            }
            // The first may be what hangs.
            let Some(open) = state.work.iter().skip(1).rfind(|w| w.line().is_none()).cloned() else {
                return;
            };
            state.say();
            let mut work = state.leave();
            drop(state);
            current.done.notify_all();
            work.push_front(open);
            // Standard error until it is open, and if it cannot be.
            *current = Queue::new(Mode::Aside, Sink(None), work);
            Arc::clone(&current)
        };
        queue.go_on();
    }

    /// Waits for the lines that wait; those whose file does not answer within `limit`, and all that come later, go to standard
    /// error.
    pub(super) fn settle(&self, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            let queue = Arc::clone(&self.current());
            let left = until.saturating_duration_since(Instant::now());
            let (mut state, waited) = queue
                .done
                .wait_timeout_while(queue.lock(), left, |s| {
                    s.working.is_some() && s.mode != Mode::Left
                })
                .unwrap_or_else(PoisonError::into_inner);
            if state.mode == Mode::Left && !waited.timed_out() {
                // Somebody has gone on with another.
                continue;
            }
            if state.working.is_none() {
                state.mode = Mode::AtOnce;
                drop(state);
                // What no thread could be had for.
                return queue.go_on();
            }
            let left = state.leave();
            drop(state);
            *self.current() = Queue::new(Mode::AtOnce, Sink(None), VecDeque::new());
            for line in left.iter().filter_map(Work::line) {
                io::stderr().write_all(line).ok();
            }
            return;
        }
    }
}

impl Work {
    fn line(&self) -> Option<&[u8]> {
        match self {
            Self::Line(line) => Some(line),
            Self::Open(_) => None,
        }
    }
}

impl State {
    fn hangs(&self) -> bool {
        self.working.is_some_and(|since| since.elapsed() >= STUCK)
    }

    /// Once until it answers.
    fn say(&mut self) {
        if !std::mem::replace(&mut self.said, true) {
            let what = if self.hangs() {
                "does not answer"
            } else {
                "cannot keep up"
            };
            let words =
                "lines wait for it, and go here where they are too many; SIGHUP opens it anew, or another";
            writeln!(io::stderr(), "logging.file {what}: {words}").ok();
        }
    }

    /// Leaves the sink to the thread that hangs on it; gives the lines that wait, that at which it hangs too: twice is
    /// better than not at all.
    fn leave(&mut self) -> VecDeque<Work> {
        self.mode = Mode::Left;
        let mut work = std::mem::take(&mut self.work);
        work.retain(|w| w.line().is_some());
        work
    }
}

impl Queue {
    fn new(mode: Mode, sink: Sink, work: VecDeque<Work>) -> Arc<Self> {
        let bytes = work.iter().filter_map(Work::line).map(<[u8]>::len).sum();
        Arc::new(Self {
            state: Mutex::new(State {
                mode,
                sink: Some(sink),
                work,
                bytes,
                working: None,
                said: false,
            }),
            done: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(self: &Arc<Self>, line: &[u8]) {
        let mut state = self.lock();
        if state.work.is_empty()
            && let Some(sink) = state.sink.as_mut().filter(|sink| sink.0.is_none())
        {
            // No file's disk.
            return sink.write(line);
        }
        let waiting = state.bytes.saturating_add(line.len());
        let full = state.mode == Mode::Left || waiting > WAITING;
        if full || state.hangs() {
            state.say();
        }
        if full {
            io::stderr().write_all(line).ok();
            return;
        }
        state.bytes = waiting;
        state.work.push_back(Work::Line(line.into()));
        drop(state);
        self.go_on();
    }

    /// Has what waits worked on, unless somebody does already: by a thread, or here where nobody minds. Without a thread it
    /// waits for the next line.
    fn go_on(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.working.is_some() || state.work.is_empty() {
            return;
        }
        state.working = Some(Instant::now());
        let mode = state.mode;
        drop(state);
        if mode == Mode::AtOnce {
            return self.work();
        }
        let queue = Arc::clone(self);
        let thread = thread::Builder::new().name("log".to_owned()).stack_size(STACK);
        if thread.spawn(move || queue.work()).is_err() {
            self.lock().working = None;
            self.done.notify_all();
        }
    }

    /// To the last line.
    fn work(&self) {
        let mut state = self.lock();
        let Some(mut sink) = state.sink.take() else { return };
        while let Some(work) = state.work.front().cloned() {
            state.working = Some(Instant::now());
            drop(state);
            let failed = match &work {
                Work::Line(line) => {
                    sink.write(line);
                    None
                }
                Work::Open(config) => reopen(&mut sink, config).err(),
            };
            state = self.lock();
            if state.mode == Mode::Left {
                return;
            }
            state.work.pop_front();
            let length = work.line().map_or(0, <[u8]>::len);
            state.bytes = state.bytes.saturating_sub(length);
            if let Some(e) = failed {
                let used = match sink.0 {
                    Some(_) => "the former one stays in use",
                    None => "lines go to standard error",
                };
                // Not under the lock: it is a line as well.
                drop(state);
                tracing::error!("logging.file: {e}; {used}");
                state = self.lock();
            }
        }
        state.sink = Some(sink);
        (state.working, state.said) = (None, false);
        self.done.notify_all();
    }
}

/// Opens another file, or the same anew.
fn reopen(sink: &mut Sink, config: &LoggingConfig) -> Result<(), FileError> {
    let former = std::mem::replace(sink, Sink(super::open(config)?));
    if former.0.is_some() {
        // A disk that does not answer may hold up the end of a file, when it is too late to leave it. Without a thread it is
        // closed here.
        let thread = thread::Builder::new().name("log".to_owned()).stack_size(STACK);
        thread.spawn(move || drop(former)).ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};

    use rustix::fs::{CWD, Mode as Permissions, mkfifoat};

    use super::*;
    use crate::log::open;

    fn config(path: &Path) -> LoggingConfig {
        LoggingConfig {
            file: Some(path.to_owned()),
            ..LoggingConfig::default()
        }
    }

    fn aside(path: &Path) -> Aside {
        let aside = Aside::new(Sink(open(&config(path)).unwrap()));
        aside.aside();
        aside
    }

    /// A file whose disk does not answer: whoever opens it waits for a reader.
    fn hangs(folder: &Path) -> PathBuf {
        let path = folder.join("hangs.log");
        mkfifoat(CWD, &path, Permissions::RUSR | Permissions::WUSR).unwrap();
        path
    }

    fn wait_until_it_hangs(aside: &Aside) {
        let began = Instant::now();
        while !aside.current().lock().hangs() {
            assert!(began.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn lines_are_in_the_file_in_order_and_no_thread_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let aside = aside(&path);
        let lines: String = (0..500).map(|n| format!("line {n}\n")).collect();
        for line in lines.split_inclusive('\n') {
            aside.line(line.as_bytes());
        }
        let other = dir.path().join("other.log");
        aside.open(&config(&other));
        aside.line(b"of the other\n");
        aside.settle(Duration::from_secs(60));
        assert_eq!(fs::read_to_string(&path).unwrap(), lines);
        assert_eq!(fs::read_to_string(&other).unwrap(), "of the other\n");
        assert!(aside.current().lock().working.is_none());
        // Settled, a line is there at once.
        aside.line(b"the last\n");
        assert_eq!(fs::read_to_string(&other).unwrap(), "of the other\nthe last\n");
    }

    #[test]
    fn a_file_that_hangs_keeps_nobody_and_its_lines_go_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first.log"), dir.path().join("second.log"));
        let aside = aside(&first);
        let dead = hangs(dir.path());
        aside.open(&config(&dead));
        let began = Instant::now();
        aside.line(b"while it hangs\n");
        let long = "x".repeat(999) + "\n";
        for _ in 0..67 {
            aside.line(long.as_bytes());
        }
        assert!(began.elapsed() < STUCK, "{:?}", began.elapsed());
        let queue = Arc::clone(&aside.current());
        let (bytes, said) = {
            let state = queue.lock();
            (state.bytes, state.said)
        };
        assert!(bytes <= WAITING && bytes > WAITING - 2000 && said, "{bytes}");
        wait_until_it_hangs(&aside);
        aside.open(&config(&second));
        aside.line(b"after\n");
        aside.settle(Duration::from_secs(60));
        let text = fs::read_to_string(&second).unwrap();
        assert!(
            text.starts_with("while it hangs\nxxx") && text.ends_with("x\nafter\n"),
            "{}",
            text.len()
        );
        // The thread that hung comes back to nothing.
        let reader = File::open(&dead).unwrap();
        assert_eq!(std::io::read_to_string(reader).unwrap(), "");
    }

    #[test]
    fn a_line_at_which_the_file_hangs_is_in_the_next_and_at_the_end_on_standard_error() {
        let dir = tempfile::tempdir().unwrap();
        let (dead, next) = (hangs(dir.path()), dir.path().join("next.log"));
        // Somebody reads it, and not to the end.
        let reader = thread::spawn({
            let dead = dead.clone();
            move || File::open(dead).unwrap()
        });
        let aside = aside(&dead);
        let reader = reader.join().unwrap();
        let long = "x".repeat(40_000) + "\n";
        aside.line(long.as_bytes());
        while aside.current().lock().working.is_some() {
            thread::sleep(Duration::from_millis(1));
        }
        // A pipe takes 64 KiB: this one hangs in the middle.
        aside.line(long.as_bytes());
        // Given when nothing seems to hang yet; the next line after a while passes by.
        aside.open(&config(&next));
        aside.line(b"after it\n");
        assert!(!next.exists());
        wait_until_it_hangs(&aside);
        aside.line(b"later\n");
        aside.settle(Duration::from_secs(60));
        assert_eq!(
            fs::read_to_string(&next).unwrap(),
            format!("{long}after it\nlater\n")
        );
        // What hung is written after all, and nobody minds.
        let text = std::io::read_to_string(reader).unwrap();
        assert_eq!(text.len(), 2 * long.len());
    }

    #[test]
    fn the_end_waits_for_a_file_that_hangs_no_longer_than_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let aside = aside(&dir.path().join("first.log"));
        aside.open(&config(&hangs(dir.path())));
        aside.line(b"to standard error\n");
        let began = Instant::now();
        aside.settle(Duration::from_millis(100));
        assert!(began.elapsed() >= Duration::from_millis(100));
        let current = aside.current();
        let state = current.lock();
        assert_eq!((state.mode, state.working.is_none()), (Mode::AtOnce, true));
        assert!(
            state.sink.as_ref().is_some_and(|s| s.0.is_none()),
            "standard error"
        );
    }
}
