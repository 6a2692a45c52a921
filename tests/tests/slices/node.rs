//! A node's task domain, here or in a process of its own that fails or is killed in a phase.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_schema::key::AgentKey;
use hpc_schema::task::{Delivered, Task, TaskOutcome, TaskResult, check_output, task_message};
use hpc_schema::time::Rfc3339;
use hpc_tests::deadline::Deadline;
use serde_json::Value;
use serde_json::value::RawValue;
use virtengine_node_agent::clock::Clock;
use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::task::domain::{Domain, Input, Output, Setup, Sign};
use virtengine_node_agent::task::{Authority, Host, Policy, TaskDir, handlers};

/// Longest wait for a result: emulation on a busy host.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Tells a copy of this program to be a domain, and where.
const CHILD: &str = "HPC_TEST_DOMAIN";

struct Key(SigningKey);

impl Sign for Key {
    fn sign(&self, message: &[u8]) -> Result<[u8; 64], String> {
        Ok(self.0.sign(message).into())
    }
}

fn task_key() -> SigningKey {
    SigningKey::from([3; 32])
}

fn authority() -> Authority {
    Authority {
        chain_id: "hpc-1".into(),
        contract: "wasm1abc".into(),
        cluster_id: "hpc-cluster-1".parse().unwrap(),
        node_id: "node-1".parse().unwrap(),
        task_key: AgentKey::from_bytes(VerificationKey::from(&task_key()).into()).unwrap(),
        since: 0,
    }
}

/// A signed task.
pub(crate) fn task(id: &str, kind: &str, params: &Value) -> Task {
    let now = Clock::system().seconds();
    let mut task = Task {
        task_id: id.parse().unwrap(),
        task_type: kind.to_owned(),
        params: RawValue::from_string(params.to_string()).unwrap(),
        issued_at: Rfc3339::from_unix(now, 0).unwrap(),
        expires_at: Rfc3339::from_unix(now + 1200, 0).unwrap(),
        nonce: STANDARD.encode([7; 16]),
        signature: String::new(),
    };
    let message = task_message(&authority().scope(), &task, &[7; 16]);
    task.signature = STANDARD.encode(<[u8; 64]>::from(task_key().sign(&message)));
    task
}

/// A domain in this process.
pub(crate) struct Node {
    domain: Domain,
    said: Receiver<Output>,
    // The last: letting the others go may hang too.
    _deadline: Deadline,
}

impl Node {
    /// On a folder with `policy.yaml` and `tasks`.
    pub(crate) fn start(dir: &Path) -> Self {
        let (sender, said) = channel();
        let sender = Mutex::new(sender);
        let setup = Setup {
            host: Host {
                roots: Roots::default(),
                dir: TaskDir::new(&dir.join("tasks")),
                policy: Arc::new(Policy::load(&dir.join("policy.yaml")).unwrap()),
                clock: Clock::system(),
            },
            authority: authority(),
            sign: Arc::new(Key(SigningKey::from([1; 32]))),
            handlers: handlers::handler,
            stewards: handlers::stewards(),
            concurrency: 4,
        };
        let out = Arc::new(move |o| {
            sender.lock().unwrap().send(o).ok();
        });
        let deadline = Deadline::of_test();
        let domain = Domain::start(setup, out).unwrap();
        Self {
            domain,
            said,
            _deadline: deadline,
        }
    }

    pub(crate) fn run(&self, task: &Task) -> TaskResult {
        deliver(&self.domain, task.clone());
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Output::Result { task_id, result } =
                self.said.recv_timeout(left).expect("no result in time")
                && task_id == task.task_id
            {
                if result.outcome == TaskOutcome::Completed {
                    check_output(task.task_type.parse().unwrap(), &result.result).unwrap();
                }
                return *result;
            }
        }
    }
}

fn deliver(domain: &Domain, task: Task) {
    let delivered = Delivered {
        task,
        lease_seconds: 600,
        attempt: 1,
    };
    assert!(domain.tell(Input::Deliver(Box::new(delivered))));
}

/// Waits for something.
pub(crate) fn until(what: &str, limit: Duration, mut good: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !good() {
        assert!(begun.elapsed() < limit, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A domain in a process of its own: a copy of this program.
pub(crate) struct Apart {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Apart {
    /// `fault` is where it fails or dies.
    pub(crate) fn start(dir: &Path, fault: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "node::a_domain_of_its_own", "--nocapture"])
            .env(CHILD, dir)
            .env("VIRTENGINE_AGENT_FAULT", fault)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(result) = line.strip_prefix("RESULT ") {
                    sender.send(result.to_owned()).ok();
                }
            }
        });
        Self { child, input, lines }
    }

    pub(crate) fn deliver(&mut self, task: &Task) {
        // It may have killed itself already.
        writeln!(self.input, "{}", serde_json::to_string(task).unwrap()).ok();
    }

    /// The result; none if it dies first.
    pub(crate) fn result(&mut self) -> Option<TaskResult> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(text) => Some(serde_json::from_str(&text).unwrap()),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(e) => panic!("no result in time: {e}"),
        }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Only in a copy that [`Apart::start`] has made.
#[test]
fn a_domain_of_its_own() {
    let Some(dir) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let Node { domain, said, .. } = Node::start(&dir);
    std::thread::spawn(move || {
        for output in said {
            if let Output::Result { result, .. } = output {
                println!("\nRESULT {}", serde_json::to_string(&result).unwrap());
            }
        }
    });
    assert!(domain.tell(Input::Hello));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        deliver(&domain, serde_json::from_str(&line).unwrap());
    }
    domain.stop();
}
