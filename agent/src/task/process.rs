//! The task domain as a process: it carries tasks out, and starts another process without rights that speaks with the
//! gateway. Neither is the heartbeat's; the end of one is not the end of another.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::authority::Authority;
use super::domain::{Domain, Input, Output, Setup, Sign};
use super::failure::Failure;
use super::handlers;
use super::host::{Host, TaskDir};
use super::link::MAX_LINE;
use super::policy::Policy;
use crate::clock::Clock;
use crate::config::Config;
use crate::key::load_registered;
use crate::probe::host::hostname;
use crate::random;
use crate::state::{Lock, Registration, StateDir};
use crate::uplink::Backoff;

/// The hidden command of the process that speaks with the gateway.
pub const LINK_COMMAND: &str = "task-link";
/// Words that wait for the link; beyond, they are said again later.
const QUEUE: usize = 512;
/// For what a task agent before this one has left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(5);
/// How long the link may take to read a word.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two starts of the link at most; one that lived for so long was a good one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For the domain's end; its tasks have twenty seconds of it.
const LONGEST_STOP: Duration = Duration::from_secs(40);

/// A task domain with its process for the gateway.
#[derive(Debug)]
pub struct TaskProcess {
    domain: Domain,
    said: mpsc::Receiver<Output>,
    link: LinkStart,
    _lock: Lock,
}

/// How the link is started.
#[derive(Debug, Clone)]
pub struct LinkStart {
    /// This program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// User and group that it runs as; absent: ours.
    pub user: Option<(u32, u32)>,
}

/// Signs with the node's key as it is registered at that moment.
#[derive(Debug)]
struct NodeKey {
    key_path: PathBuf,
    state: StateDir,
}

impl Sign for NodeKey {
    fn sign(&self, message: &[u8]) -> Result<[u8; 64], String> {
        let registration = Registration::load(&self.state).map_err(|e| e.to_string())?;
        let registration = registration.ok_or("this node is not registered")?;
        let key = load_registered(&self.key_path, &registration.public_key).map_err(|e| e.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        runtime.block_on(key.sign(message)).map_err(|e| e.to_string())
    }
}

impl TaskProcess {
    /// Reads policy and journals, takes up what was interrupted.
    ///
    /// # Errors
    /// Tasks are not configured here; IO; another one runs.
    pub fn start(config: &Config, link: LinkStart) -> Result<Self, Failure> {
        let Some(tasks) = &config.tasks else {
            return Err(Failure::failed(
                "this node takes no tasks: the configuration has no section tasks (docs/tasks.md)",
            ));
        };
        let mut policy = match &tasks.policy {
            Some(path) => Policy::load(path)?,
            None => Policy::default(),
        };
        policy.shown_by(&config.api, &hostname(&config.roots).unwrap_or_default());
        let clock = Clock::system();
        let state = StateDir::new(&config.state_dir);
        let registration = Registration::load(&state)?.ok_or_else(|| {
            Failure::failed("this node is not registered; run virtengine-node-agent register")
        })?;
        let dir = TaskDir::new(&tasks.dir);
        dir.create()?;
        let lock = Lock::take_within(&dir.lock(), LEFT_BEHIND)?;
        let lock = lock
            .ok_or_else(|| Failure::failed(format!("another task agent runs on {}", tasks.dir.display())))?;
        let authority = Authority::pinned(&dir, &registration, clock.seconds())?;
        super::guard::keep(link.program.clone(), dir.clone());
        let (sender, said) = mpsc::channel(QUEUE);
        let setup = Setup {
            host: Host {
                roots: config.roots.clone(),
                dir,
                policy: Arc::new(policy),
                clock,
            },
            authority,
            sign: Arc::new(NodeKey {
                key_path: config.key_path.clone(),
                state,
            }),
            handlers: handlers::handler,
            stewards: handlers::stewards(),
            concurrency: tasks.concurrency,
        };
        // Full: the link is slow or gone. Results are said again, progress is not needed then.
        let out = Arc::new(move |output| {
            sender.try_send(output).ok();
        });
        Ok(Self {
            domain: Domain::start(setup, out)?,
            said,
            link,
            _lock: lock,
        })
    }

    /// Serves until `stop` ends.
    pub async fn serve(mut self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let tell = self.domain.teller();
        let link = keep_linked(&self.link, &mut self.said, &tell);
        let ended = async {
            while !self.domain.is_over() {
                sleep(Duration::from_millis(500)).await;
            }
        };
        let failed = tokio::select! {
            () = stop => false,
            () = link => true,
            () = ended => true,
        };
        let domain = self.domain;
        // Whatever it hangs in: what is under way is taken up again at the next start.
        match timeout(LONGEST_STOP, tokio::task::spawn_blocking(move || domain.stop())).await {
            Ok(stopped) => stopped.map_err(Failure::failed)?,
            Err(_) => {
                tracing::error!("the task domain has not stopped within {LONGEST_STOP:?}; it is left behind");
            }
        }
        if failed {
            return Err(Failure::failed(
                "the task domain has stopped unexpectedly; see the log",
            ));
        }
        Ok(())
    }
}

/// Keeps the link running, for ever; one that ends or hangs is started anew.
async fn keep_linked(start: &LinkStart, said: &mut mpsc::Receiver<Output>, tell: &SyncSender<Input>) {
    let mut backoff = Backoff::new(Duration::from_secs(1), LONGEST_PAUSE);
    loop {
        match spawn(start) {
            Ok((mut child, stdin, stdout)) => {
                let begun = Instant::now();
                let why = converse(&mut child, stdin, stdout, said, tell).await;
                // One that ends now and then is no reason to wait ever longer.
                if begun.elapsed() >= LONGEST_PAUSE {
                    backoff.reset();
                }
                tracing::warn!("the process that speaks with the gateway is started anew: {why}");
                // Dead already, or hanging.
                child.start_kill().ok();
                timeout(PATIENCE, child.wait()).await.ok();
            }
            Err(e) => tracing::error!("the process that speaks with the gateway cannot be started: {e}"),
        }
        sleep(backoff.next(random::up_to)).await;
    }
}

fn spawn(start: &LinkStart) -> std::io::Result<(Child, ChildStdin, ChildStdout)> {
    let mut command = Command::new(&start.program);
    command
        .args(&start.arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    if let Some((uid, gid)) = start.user {
        // The group first; other groups go with the user.
        command.gid(gid).uid(uid);
    }
    let mut child = command.spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take());
    let (Some(stdin), Some(stdout)) = pipes else {
        return Err(std::io::Error::other("it has no pipes"));
    };
    Ok((child, stdin, stdout))
}

/// Carries words both ways until something ends; says what.
async fn converse(
    child: &mut Child,
    mut stdin: ChildStdin,
    stdout: ChildStdout,
    said: &mut mpsc::Receiver<Output>,
    tell: &SyncSender<Input>,
) -> String {
    let (heard, mut hears) = mpsc::channel(1);
    let listening = tokio::spawn(listen(stdout, heard));
    let why = loop {
        tokio::select! {
            input = hears.recv() => match input {
                Some(Ok(input)) => {
                    let tell = tell.clone();
                    // The domain may be writing to its disk.
                    let told = tokio::task::spawn_blocking(move || tell.send(input)).await;
                    if !matches!(told, Ok(Ok(()))) {
                        break "the domain has ended".to_owned();
                    }
                }
                Some(Err(e)) => break e,
                None => break "it has ended".to_owned(),
            },
            output = said.recv() => match output {
                Some(output) => {
                    let Ok(mut line) = serde_json::to_vec(&output) else { continue };
                    line.push(b'\n');
                    match timeout(PATIENCE, stdin.write_all(&line)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(e)) => break format!("it does not read: {e}"),
                        Err(_) => break format!("it has read nothing for {PATIENCE:?}"),
                    }
                }
                None => break "the domain has ended".to_owned(),
            },
            status = child.wait() => break status.map_or_else(|e| e.to_string(), |s| format!("it ended with {s}")),
        }
    };
    listening.abort();
    why
}

async fn listen(stdout: ChildStdout, heard: mpsc::Sender<Result<Input, String>>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let read = (&mut stdout).take(MAX_LINE).read_until(b'\n', &mut line).await;
        let word = match read {
            Ok(0) => return,
            Ok(_) => match line.strip_suffix(b"\n") {
                Some(text) => {
                    serde_json::from_slice(text).map_err(|e| format!("it says what cannot be read: {e}"))
                }
                None => Err("it says too much at once".to_owned()),
            },
            Err(e) => Err(e.to_string()),
        };
        let over = word.is_err();
        if heard.send(word).await.is_err() || over {
            return;
        }
    }
}
