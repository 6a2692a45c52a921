//! The side that wants signatures: a queue, one child, a deadline for each.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::{COMMAND, HsmError, Key};

/// Signatures that wait at once.
const QUEUE: usize = 32;
/// For a signature, a new session included; a network HSM takes tens of milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a killed child may take to go.
const GRACE: Duration = Duration::from_millis(200);

/// Whether these bytes of an HSM are a signature over the message: then in the form that is used.
pub type Check = Arc<dyn Fn(&[u8], &[u8]) -> Option<[u8; 64]> + Send + Sync>;

/// Tokens that have refused a PIN of this process: a few tries more would lock them.
static REFUSED: Mutex<BTreeMap<(PathBuf, String), String>> = Mutex::new(BTreeMap::new());

type Answer = oneshot::Sender<Result<[u8; 64], HsmError>>;

struct Request {
    message: Vec<u8>,
    answer: Answer,
}

/// A key in an HSM, to be used. Within a tokio runtime.
pub struct Session {
    shared: Arc<Shared>,
    queue: Mutex<Option<mpsc::Sender<Request>>>,
}

struct Shared {
    key: Key,
    check: Check,
    /// Variables of the environment that are not the child's to know.
    hidden: &'static [&'static str],
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("key", &self.shared.key)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Nothing is started before the first signature. `hidden` are variables of the environment that the child does not get.
    #[must_use]
    pub fn new(key: Key, check: Check, hidden: &'static [&'static str]) -> Self {
        Self {
            shared: Arc::new(Shared { key, check, hidden }),
            queue: Mutex::new(None),
        }
    }

    /// A signature, verified; ends in bounded time.
    ///
    /// # Errors
    /// [`HsmError`]; the next attempt begins with a new session.
    pub async fn sign(&self, message: &[u8]) -> Result<[u8; 64], HsmError> {
        let (answer, signature) = oneshot::channel();
        let message = message.to_vec();
        self.queue()
            .try_send(Request { message, answer })
            .map_err(|_| device(&"too many signatures wait for it; check the HSM"))?;
        match timeout(LIMIT, signature).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(device(&"the signer has ended; the next attempt starts another")),
            Err(_) => Err(late()),
        }
    }

    fn queue(&self) -> mpsc::Sender<Request> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        match &*queue {
            Some(sender) if !sender.is_closed() => sender.clone(),
            _ => {
                let (sender, receiver) = mpsc::channel(QUEUE);
                tokio::spawn(work(Arc::clone(&self.shared), receiver));
                queue.insert(sender).clone()
            }
        }
    }
}

/// One signature after the other. A child that fails is replaced at once, and the signature tried again: a session is
/// lost when an HSM restarts or its token is pulled.
async fn work(shared: Arc<Shared>, mut requests: mpsc::Receiver<Request>) {
    let mut helper = Helper::default();
    while let Some(Request { message, answer }) = requests.recv().await {
        if answer.is_closed() {
            continue;
        }
        let result = timeout(LIMIT, async {
            match helper.sign(&shared, &message).await {
                Err(e) if e.again => {
                    helper.end().await;
                    helper.sign(&shared, &message).await
                }
                other => other,
            }
        });
        let result = match result.await {
            Ok(result) => result.map_err(|e| e.error),
            Err(_) => Err(late()),
        };
        if result.is_err() {
            helper.end().await;
        }
        // Whoever asked may have gone.
        answer.send(result).ok();
    }
    helper.end().await;
}

fn late() -> HsmError {
    HsmError::Device(format!(
        "no signature within {LIMIT:?}; check the HSM and its network"
    ))
}

fn device(message: &dyn fmt::Display) -> HsmError {
    HsmError::Device(message.to_string())
}

struct HelperError {
    error: HsmError,
    /// A fresh session may do it.
    again: bool,
}

impl From<HsmError> for HelperError {
    fn from(error: HsmError) -> Self {
        Self { error, again: false }
    }
}

#[derive(Default)]
struct Helper {
    running: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
    /// Killed and not gone: no other one is started beside it.
    left: Option<Child>,
}

impl Helper {
    async fn sign(&mut self, shared: &Shared, message: &[u8]) -> Result<[u8; 64], HelperError> {
        let fresh = self.running.is_none();
        if fresh {
            self.begin(shared).await?;
        }
        let line = self
            .ask(&hex::encode(message))
            .await
            .map_err(|e| HelperError { again: !fresh, ..e })?;
        let signature = hex::decode(&line).map_err(|_| HelperError {
            error: told(&line),
            again: !fresh,
        })?;
        (shared.check)(message, &signature)
            .ok_or_else(|| device(&"its signature does not verify with the key file's public key").into())
    }

    /// A child with a session.
    async fn begin(&mut self, shared: &Shared) -> Result<(), HelperError> {
        let options = &shared.key.options;
        let token = (options.module.clone(), options.token.clone());
        if let Some(text) = REFUSED.lock().unwrap_or_else(PoisonError::into_inner).get(&token) {
            let text =
                format!("{text}; it is not tried again before a restart, so that the token is not locked");
            return Err(HsmError::Pin(text).into());
        }
        self.start(shared)?;
        let text = serde_json::to_string(&shared.key).map_err(|e| device(&e))?;
        let ready = self.ask(&text).await?;
        if ready == "ready" {
            return Ok(());
        }
        let error = told(&ready);
        if let HsmError::Pin(text) = &error {
            REFUSED
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(token, text.clone());
        }
        Err(error.into())
    }

    fn start(&mut self, shared: &Shared) -> Result<(), HelperError> {
        if let Some(left) = &mut self.left
            && matches!(left.try_wait(), Ok(None))
        {
            return Err(device(&"its process hangs and cannot be killed; check the HSM's driver").into());
        }
        self.left = None;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir("/")
            .kill_on_drop(true);
        for name in shared.hidden {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(|e| device(&e))?;
        tracing::debug!(module = %shared.key.options.module.display(), "a session with the HSM begins");
        if let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) {
            self.running = Some((child, input, BufReader::new(output)));
        }
        Ok(())
    }

    async fn ask(&mut self, question: &str) -> Result<String, HelperError> {
        let Some((_, input, output)) = &mut self.running else {
            return Err(device(&"its process has no pipes").into());
        };
        let broken = |e: std::io::Error| HelperError {
            error: HsmError::Device(format!("its process has ended: {e}")),
            again: true,
        };
        // A child that has just ended may still have said why.
        let written = async {
            input.write_all(question.as_bytes()).await?;
            input.write_all(b"\n").await?;
            input.flush().await
        }
        .await;
        let mut line = String::new();
        let n = output.take(16 << 10).read_line(&mut line).await.map_err(broken)?;
        if n == 0 {
            written.map_err(broken)?;
            return Err(broken(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(line.trim_end().to_owned())
    }

    async fn end(&mut self) {
        if let Some((mut child, input, output)) = self.running.take() {
            drop((input, output));
            child.start_kill().ok();
            if timeout(GRACE, child.wait()).await.is_err() {
                self.left = Some(child);
            }
        }
    }
}

fn told(line: &str) -> HsmError {
    HsmError::of_line(line).unwrap_or_else(|| device(&"its process answers something that is no signature"))
}
