//! What the daemon of one test logs. A test's daemon runs on the test's own thread, so that logs do not mix.

use std::io::Write;
use std::sync::{Arc, Mutex};

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

impl Logs {
    /// From here on, on this thread.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let logs = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("virtengine_provider=debug,hpc_chain=debug"))
            .with_ansi(false)
            .with_writer(logs.clone())
            .finish();
        (logs, tracing::subscriber::set_default(subscriber))
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
