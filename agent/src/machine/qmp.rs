//! QEMU's monitor: one line of JSON each way on a Unix socket. Every wait has its end and every line its bound: what is
//! at the other end may be taken over by its guest.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::socket::connect_at_once;

/// Longest line; the longest answer in use is 64 KiB of console in base64.
const LINE: usize = 256 << 10;
/// Events kept while nobody asks for them; the oldest go first.
const EVENTS: usize = 64;

/// Why the monitor gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The socket.
    #[error("QEMU's monitor: {0}")]
    Io(#[from] io::Error),
    /// It ended.
    #[error("QEMU's monitor closed")]
    Closed,
    /// It hangs.
    #[error("QEMU's monitor did not answer {command} within {waited:?}")]
    Late {
        /// What it was asked.
        command: String,
        /// How long.
        waited: Duration,
    },
    /// Not JSON, or beyond all bounds.
    #[error("QEMU's monitor said something that is no answer: {0}")]
    Strange(String),
    /// It says no.
    #[error("QEMU refused {command}: {message}")]
    Refused {
        /// What it was asked.
        command: String,
        /// Its words.
        message: String,
    },
}

/// A connection to a monitor that has taken the greeting.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    buffer: Vec<u8>,
    events: VecDeque<String>,
    patience: Duration,
}

impl Qmp {
    /// Connects, and leaves the negotiation mode. `patience` bounds this and each later answer.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, QmpError> {
        let mut qmp = Self {
            stream: connect_at_once(path)?,
            buffer: Vec::new(),
            events: VecDeque::new(),
            patience,
        };
        let end = qmp.end();
        let greeting = qmp.line(end, "a greeting")?;
        if greeting.get("QMP").is_none() {
            return Err(QmpError::Strange("no greeting".to_owned()));
        }
        qmp.execute("qmp_capabilities", None)?;
        Ok(qmp)
    }

    /// Asks and waits for the answer; events that come before it are kept.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub fn execute(&mut self, command: &str, arguments: Option<&Value>) -> Result<Value, QmpError> {
        let mut request = json!({ "execute": command });
        if let (Some(map), Some(arguments)) = (request.as_object_mut(), arguments) {
            map.insert("arguments".to_owned(), arguments.clone());
        }
        let end = self.end();
        self.stream.set_write_timeout(Some(self.patience))?;
        self.stream.write_all(format!("{request}\n").as_bytes())?;
        loop {
            let mut answer = self.line(end, command)?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let message = error.get("desc").and_then(Value::as_str).unwrap_or("no reason");
                return Err(QmpError::Refused {
                    command: command.to_owned(),
                    message: message.to_owned(),
                });
            }
            self.keep(&answer);
            // Events without end are no answer.
            if end.is_none_or(|e| Instant::now() >= e) {
                return Err(QmpError::Late {
                    command: command.to_owned(),
                    waited: self.patience,
                });
            }
        }
    }

    /// Takes in what has come without waiting for more; false once the monitor has closed.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub fn pump(&mut self) -> Result<bool, QmpError> {
        // As much as is kept at most; a guest may have taken QEMU over and never stop.
        for _ in 0..EVENTS {
            match self.line(Some(Instant::now()), "nothing") {
                Ok(value) => self.keep(&value),
                Err(QmpError::Late { .. }) => return Ok(true),
                Err(QmpError::Closed) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// The oldest event that nobody has taken: its name, with the reason after a space if it has one.
    pub fn event(&mut self) -> Option<String> {
        self.events.pop_front()
    }

    fn keep(&mut self, message: &Value) {
        let Some(name) = message.get("event").and_then(Value::as_str) else {
            return;
        };
        let reason = message.pointer("/data/reason").and_then(Value::as_str);
        self.events
            .push_back(reason.map_or_else(|| name.to_owned(), |r| format!("{name} {r}")));
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
    }

    fn end(&self) -> Option<Instant> {
        Instant::now().checked_add(self.patience)
    }

    fn line(&mut self, end: Option<Instant>, command: &str) -> Result<Value, QmpError> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let rest = self.buffer.split_off(at.saturating_add(1));
                let line = std::mem::replace(&mut self.buffer, rest);
                return serde_json::from_slice(&line).map_err(|e| QmpError::Strange(e.to_string()));
            }
            if self.buffer.len() > LINE {
                return Err(QmpError::Strange(format!("a line of more than {LINE} bytes")));
            }
            let left = end.map_or(Duration::ZERO, |e| e.saturating_duration_since(Instant::now()));
            // Zero would mean for ever.
            self.stream
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut chunk = [0u8; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(QmpError::Closed),
                Ok(n) => self.buffer.extend(chunk.iter().take(n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if end.is_none_or(|e| Instant::now() >= e) {
                        return Err(QmpError::Late {
                            command: command.to_owned(),
                            waited: self.patience,
                        });
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(QmpError::Closed),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for Qmp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(300);

    /// A monitor that says `lines`, each after it was asked once.
    fn monitor(
        lines: &'static [&'static str],
    ) -> (tempfile::TempDir, std::path::PathBuf, thread::JoinHandle<()>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q");
        let listener = UnixListener::bind(&path).unwrap();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = BufReader::new(stream.try_clone().unwrap());
            for line in lines {
                if stream.write_all(format!("{line}\n").as_bytes()).is_err() {
                    return;
                }
                let mut question = String::new();
                if asked.read_line(&mut question).unwrap_or(0) == 0 {
                    return;
                }
            }
        });
        (dir, path, served)
    }

    #[test]
    fn answers_are_told_from_events_and_refusals_keep_their_words() {
        let (_dir, path, served) = monitor(&[
            r#"{"QMP":{"version":{}}}"#,
            r#"{"return":{}}"#,
            "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-shutdown\"}}\n{\"return\":{\"status\":\"running\"}}",
            r#"{"error":{"class":"GenericError","desc":"no such thing"}}"#,
        ]);
        let mut qmp = Qmp::connect(&path, Duration::from_secs(10)).unwrap();
        let status = qmp.execute("query-status", None).unwrap();
        assert_eq!(status["status"], "running");
        assert_eq!(qmp.event().as_deref(), Some("SHUTDOWN guest-shutdown"));
        assert_eq!(qmp.event(), None);
        let e = qmp.execute("x", Some(&json!({"a": 1}))).unwrap_err();
        assert_eq!(e.to_string(), "QEMU refused x: no such thing");
        assert!(qmp.pump().unwrap());
        drop(qmp);
        served.join().unwrap();
    }

    #[test]
    fn a_monitor_that_hangs_floods_or_is_gone_is_left_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q");
        assert!(matches!(Qmp::connect(&path, SHORT), Err(QmpError::Io(_))));
        // Nobody accepts: neither the first connection nor those after the queue is full hold us.
        let listener = UnixListener::bind(&path).unwrap();
        let start = Instant::now();
        let silent = Qmp::connect(&path, SHORT);
        assert!(matches!(silent, Err(QmpError::Late { .. })), "{silent:?}");
        assert!(start.elapsed() < Duration::from_secs(5));
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let flood = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        assert!(matches!(
            Qmp::connect(&path, Duration::from_secs(10)),
            Err(QmpError::Strange(_))
        ));
        flood.join().unwrap();
    }
}
