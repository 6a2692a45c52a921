//! What the daemon of one test logs. A daemon runs on a thread of its own that tells the subscriber of its test, so that logs
//! do not mix.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
pub(crate) struct Logs(Arc<Mutex<Vec<u8>>>);

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Whether a line of the code is of interest is asked once and kept: with one subscriber in the process, of whichever thread
/// comes there first, which may be that of a test that listens to nothing. With several, all are asked.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| dispatch(Logs::default())));

fn dispatch(logs: Logs) -> Dispatch {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("virtengine_provider=debug,hpc_chain=debug"))
        .with_ansi(false)
        .with_writer(logs)
        .finish();
    Dispatch::new(subscriber)
}

impl Logs {
    /// From here on, on this thread.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        LazyLock::force(&OTHERS);
        let logs = Self::default();
        let guard = tracing::dispatcher::set_default(&dispatch(logs.clone()));
        (logs, guard)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// Lines with this in them.
    pub(crate) fn lines(&self, what: &str) -> Vec<String> {
        self.text()
            .lines()
            .filter(|l| l.contains(what))
            .map(str::to_owned)
            .collect()
    }

    /// A number that a line names, such as `timeout_height=12`.
    pub(crate) fn field(line: &str, name: &str) -> u64 {
        let at = line
            .find(&format!("{name}="))
            .unwrap_or_else(|| panic!("no {name} in {line}"));
        let digits = line[at + name.len() + 1..]
            .chars()
            .take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().unwrap()
    }
}

#[test]
fn a_line_is_heard_though_somebody_who_listens_to_nothing_came_there_first() {
    let says = |n: u32| tracing::info!(target: "virtengine_provider", n, "a line");
    std::thread::spawn(move || says(1)).join().unwrap();
    let (logs, _here) = Logs::start();
    std::thread::spawn(move || says(2)).join().unwrap();
    says(3);
    let heard: Vec<u64> = logs.lines("a line").iter().map(|l| Logs::field(l, "n")).collect();
    assert_eq!(heard, [3], "its own, and nobody else's");
}
