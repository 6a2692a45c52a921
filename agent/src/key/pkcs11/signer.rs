//! The agent's side: a queue, one child, a deadline for each signature.

use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hpc_schema::key::{AgentKey, Verifier as _, ZebraVerifier};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{COMMAND, HsmKey};
use crate::key::{Place, Signer, Signing, SigningError};

/// Signatures that wait at once.
const QUEUE: usize = 32;
/// For a signature, a new session included; a network HSM takes tens of milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a killed child may take to go.
const GRACE: Duration = Duration::from_millis(200);
/// Secrets that are not the child's to know.
const NOT_ITS_BUSINESS: [&str; 2] = [
    "VIRTENGINE_NODE_AGENT_REGISTRATION_TOKEN",
    "NODE_AGENT_BOOTSTRAP_TOKEN",
];

struct Request {
    message: Vec<u8>,
    answer: oneshot::Sender<Result<[u8; 64], String>>,
}

/// A key in an HSM.
#[derive(Debug)]
pub(in super::super) struct HsmSigner {
    key: HsmKey,
    queue: Mutex<Option<mpsc::Sender<Request>>>,
}

impl HsmSigner {
    /// Nothing is started before the first signature.
    pub(in super::super) fn new(key: HsmKey) -> Self {
        Self {
            key,
            queue: Mutex::new(None),
        }
    }

    fn queue(&self) -> mpsc::Sender<Request> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        match &*queue {
            Some(sender) if !sender.is_closed() => sender.clone(),
            _ => {
                let (sender, receiver) = mpsc::channel(QUEUE);
                tokio::spawn(work(self.key.clone(), receiver));
                queue.insert(sender).clone()
            }
        }
    }
}

impl Signer for HsmSigner {
    fn public(&self) -> AgentKey {
        self.key.public_key
    }

    fn place(&self) -> Place {
        self.key.place()
    }

    fn sign<'a>(&'a self, message: &'a [u8]) -> Signing<'a> {
        Box::pin(async move {
            let failed = |message: String| SigningError {
                place: self.place().to_string(),
                message,
            };
            let (answer, signature) = oneshot::channel();
            let request = Request {
                message: message.to_vec(),
                answer,
            };
            self.queue()
                .try_send(request)
                .map_err(|_| failed("too many signatures wait for it; check the HSM".into()))?;
            match timeout(LIMIT, signature).await {
                Ok(Ok(result)) => result.map_err(failed),
                Ok(Err(_)) => Err(failed(
                    "the signer has ended; the next attempt starts another".into(),
                )),
                Err(_) => Err(failed(format!(
                    "no signature within {LIMIT:?}; check the HSM and its network"
                ))),
            }
        })
    }
}

/// One signature after the other. A child that fails is replaced at once, and the signature tried again: a session is
/// lost when an HSM restarts or its token is pulled.
async fn work(key: HsmKey, mut requests: mpsc::Receiver<Request>) {
    let mut helper = Helper::default();
    while let Some(Request { message, answer }) = requests.recv().await {
        if answer.is_closed() {
            continue;
        }
        let result = timeout(LIMIT, async {
            match helper.sign(&key, &message).await {
                Err(e) if e.again => {
                    helper.end().await;
                    helper.sign(&key, &message).await
                }
                other => other,
            }
        });
        let result = match result.await {
            Ok(result) => result.map_err(|e| e.message),
            Err(_) => Err(format!(
                "no signature within {LIMIT:?}; check the HSM and its network"
            )),
        };
        if result.is_err() {
            helper.end().await;
        }
        // Whoever asked may have gone.
        answer.send(result).ok();
    }
    helper.end().await;
}

struct HelperError {
    message: String,
    /// A fresh session may do it.
    again: bool,
}

#[derive(Default)]
struct Helper {
    running: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
    /// Killed and not gone: no other one is started beside it.
    left: Option<Child>,
}

impl Helper {
    async fn sign(&mut self, key: &HsmKey, message: &[u8]) -> Result<[u8; 64], HelperError> {
        let fresh = self.running.is_none();
        if fresh {
            self.start(key)?;
            let text = serde_json::to_string(key).map_err(|e| once(&e))?;
            let ready = self.ask(&text).await?;
            if ready != "ready" {
                return Err(once(&told(&ready)));
            }
        }
        let line = self
            .ask(&hex::encode(message))
            .await
            .map_err(|e| HelperError { again: !fresh, ..e })?;
        let signature = hex::decode(&line)
            .ok()
            .and_then(|bytes| <[u8; 64]>::try_from(bytes).ok())
            .ok_or_else(|| HelperError {
                message: told(&line),
                again: !fresh,
            })?;
        if ZebraVerifier.verify(message, &signature, key.public_key.as_bytes()) {
            Ok(signature)
        } else {
            Err(once(
                &"its signature does not verify with the key file's public key",
            ))
        }
    }

    fn start(&mut self, key: &HsmKey) -> Result<(), HelperError> {
        if let Some(left) = &mut self.left
            && matches!(left.try_wait(), Ok(None))
        {
            return Err(once(
                &"its process hangs and cannot be killed; check the HSM's driver",
            ));
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
        for name in NOT_ITS_BUSINESS {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(|e| once(&e))?;
        tracing::debug!(module = %key.options.module.display(), "a session with the HSM begins");
        if let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) {
            self.running = Some((child, input, BufReader::new(output)));
        }
        Ok(())
    }

    async fn ask(&mut self, question: &str) -> Result<String, HelperError> {
        let Some((_, input, output)) = &mut self.running else {
            return Err(once(&"its process has no pipes"));
        };
        let broken = |e: std::io::Error| HelperError {
            message: format!("its process has ended: {e}"),
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

fn once(message: &dyn std::fmt::Display) -> HelperError {
    HelperError {
        message: message.to_string(),
        again: false,
    }
}

fn told(line: &str) -> String {
    match line.strip_prefix("error ") {
        Some(text) => text.to_owned(),
        None => "its process answers something that is no signature".to_owned(),
    }
}
