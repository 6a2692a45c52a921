//! A node's task domain, here or in a process of its own that can be killed, and a provider that signs for it.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_schema::key::AgentKey;
use hpc_schema::task::{Delivered, NodeMode, Task, TaskOutcome, TaskResult, check_output, task_message};
use hpc_schema::time::Rfc3339;
use hpc_tests::deadline::Deadline;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use virtengine_node_agent::clock::Clock;
use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::task::domain::{Domain, Input, Output, Setup, Sign};
use virtengine_node_agent::task::{Authority, Host, Policy, TaskDir, handlers};

use super::guest::{READY, guest};

/// Longest wait for a result: emulation on a busy host.
const PATIENCE: Duration = Duration::from_secs(400);
/// A node with this file is let as a whole.
pub(crate) const WHOLE_NODE: &str = "whole_node";
/// Ids of tenants here.
pub(crate) const FIRST_UID: u32 = 28_700;
/// Tells a copy of this program to be a domain, and where.
const CHILD: &str = "HPC_TEST_DOMAIN";
const FAULT: &str = "VIRTENGINE_AGENT_FAULT";

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

/// A signed task. No two tests at a time have tasks of the same id: what a task has made is known on the host by it.
pub(crate) fn task(id: &str, kind: &str, params: &Value) -> Task {
    let now = Clock::system().seconds();
    let mut test = DefaultHasher::new();
    std::thread::current().name().hash(&mut test);
    let mut task = Task {
        task_id: format!("{id}-{:x}", test.finish()).parse().unwrap(),
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

/// `vm.launch` of the guest, with these members changed.
pub(crate) fn launch(vm_id: &str, change: &Value) -> Value {
    let mut all = json!({
        "vm_id": vm_id, "image_path": guest().image, "image_sha256": guest().sha256, "image_format": "raw",
        "vcpu_count": 1, "memory_mib": 192, "lease_seconds": 1200, "accel": "tcg", "ready_line": READY,
    });
    for (key, value) in change.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

/// A folder for a node that QEMU's user can pass through.
pub(crate) fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

pub(crate) fn host(dir: &Path) -> Host {
    let policy = dir.join("policy.yaml");
    if policy.exists() {
        return on(dir, Policy::load(&policy).unwrap());
    }
    let whole = dir.join(WHOLE_NODE).exists();
    let mut policy = Policy {
        mode: Some(if whole {
            NodeMode::WholeNode
        } else {
            NodeMode::Slice
        }),
        ..Policy::default()
    };
    policy.users.min_uid = FIRST_UID;
    policy.users.max_uid = FIRST_UID + 99;
    if whole {
        // No machine is made there, and no guest for it.
        return on(dir, policy);
    }
    policy.machines.image_directories = vec![text(guest().image.parent().unwrap())];
    policy.machines.probe_kernel = Some(text(&guest().kernel));
    policy.machines.reserve_memory_mib = 0;
    on(dir, policy)
}

fn on(dir: &Path, policy: Policy) -> Host {
    Host {
        roots: Roots::default(),
        dir: TaskDir::new(&dir.join("tasks")),
        policy: Arc::new(policy),
        clock: Clock::system(),
    }
}

fn text(path: &Path) -> hpc_schema::task::HostPath {
    path.to_str().unwrap().parse().unwrap()
}

/// A domain in this process.
pub(crate) struct Node {
    pub(crate) host: Host,
    domain: Domain,
    said: Receiver<Output>,
    // The last: letting the others go may hang too.
    _deadline: Deadline,
}

impl Node {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::on(host(dir))
    }

    pub(crate) fn on(host: Host) -> Self {
        let (sender, said) = channel();
        let sender = Mutex::new(sender);
        let setup = Setup {
            host: host.clone(),
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
            host,
            domain,
            said,
            _deadline: deadline,
        }
    }

    pub(crate) fn deliver(&self, task: &Task) {
        let delivered = Delivered {
            task: task.clone(),
            lease_seconds: 600,
            attempt: 1,
        };
        assert!(self.domain.tell(Input::Deliver(Box::new(delivered))));
    }

    pub(crate) fn result(&self, task: &Task) -> TaskResult {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Output::Result { task_id, result } =
                self.said.recv_timeout(left).expect("no result in time")
                && task_id == task.task_id
            {
                return *result;
            }
        }
    }

    /// Carries a task out.
    pub(crate) fn run(&self, id: &str, kind: &str, params: &Value) -> TaskResult {
        let task = task(id, kind, params);
        self.deliver(&task);
        self.result(&task)
    }

    /// The same for one that has to be completed; its result.
    pub(crate) fn done(&self, id: &str, kind: &str, params: &Value) -> Value {
        let result = self.run(id, kind, params);
        assert_eq!(
            result.outcome,
            TaskOutcome::Completed,
            "{result:?} {:?}",
            result.detail
        );
        check_output(kind.parse().unwrap(), &result.result).unwrap();
        serde_json::from_str(result.result.get()).unwrap()
    }

    /// Owners that hold something.
    pub(crate) fn held(&self) -> usize {
        self.domain.ledger().held("vm").len()
    }
}

/// Waits for something.
pub(crate) fn until(what: &str, limit: Duration, mut good: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !good() {
        assert!(begun.elapsed() < limit, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    begun.elapsed()
}

/// What is left of machines on this host, of this folder's: names of files, processes, control groups.
pub(crate) fn left(host: &Host, vm_id: &str) -> Vec<String> {
    let mut left: Vec<String> = fs::read_dir(host.dir.machines())
        .into_iter()
        .flatten()
        .map(|e| e.unwrap().path().display().to_string())
        .collect();
    left.extend(processes(host).into_iter().map(|pid| format!("process {pid}")));
    for hierarchy in ["memory", "cpu", "pids", "."] {
        let group = Path::new("/sys/fs/cgroup")
            .join(hierarchy)
            .join("virtengine-machines")
            .join(host.dir.group(vm_id));
        if group.exists() {
            left.push(group.display().to_string());
        }
    }
    left
}

/// Processes that name this node's machines in their arguments, and that are no zombies.
pub(crate) fn processes(host: &Host) -> Vec<u32> {
    let machines = host.dir.machines().display().to_string();
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&machines)
    })
    .collect()
}

/// A domain in a process of its own: a copy of this program.
pub(crate) struct Apart {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    _deadline: Deadline,
}

impl Apart {
    /// `fault` is where it kills itself.
    pub(crate) fn start(dir: &Path, fault: Option<&str>) -> Self {
        Self::of(Command::new(std::env::current_exe().unwrap()), dir, fault)
    }

    /// The same on an `/etc` and a `/home` of its own: `etc` and `home` in `dir`.
    pub(crate) fn private(dir: &Path, fault: Option<&str>) -> Self {
        let mut command = Command::new("unshare");
        let mounts = "mount --bind \"$1/etc\" /etc && mount --bind \"$1/home\" /home && shift && exec \"$@\"";
        command
            .args(["--mount", "--", "/bin/sh", "-c", mounts, "sh"])
            .arg(dir);
        command.arg(std::env::current_exe().unwrap());
        Self::of(command, dir, fault)
    }

    /// The same where `/usr` is this host's, without `without` and with the programs that lie in `dir/bin`.
    pub(crate) fn with_programs(dir: &Path, without: &[&str]) -> Self {
        let mut command = Command::new("unshare");
        let mounts = "set -e; top=$1/top; mount --make-rprivate /; mkdir \"$top\"; mount -t tmpfs none \"$top\"; \
                      mkdir \"$top/upper\" \"$top/work\"; \
                      mount -t overlay -o \"lowerdir=/usr,upperdir=$top/upper,workdir=$top/work\" none /usr; \
                      for p in $2; do rm -f /usr/bin/$p /usr/sbin/$p /usr/local/bin/$p /usr/local/sbin/$p; done; \
                      cp \"$1\"/bin/* /usr/bin/; shift 2; exec \"$@\"";
        command
            .args(["--mount", "--", "/bin/bash", "-c", mounts, "bash"])
            .arg(dir)
            .arg(without.join(" "));
        command.arg(std::env::current_exe().unwrap());
        Self::of(command, dir, None)
    }

    fn of(mut command: Command, dir: &Path, fault: Option<&str>) -> Self {
        command
            .args(["--exact", "node::a_domain_of_its_own", "--nocapture"])
            .env(CHILD, dir)
            .env_remove(FAULT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(fault) = fault {
            command.env(FAULT, fault);
        }
        let mut child = command.spawn().unwrap();
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
        Self {
            child,
            input,
            lines,
            _deadline: Deadline::of_test(),
        }
    }

    pub(crate) fn deliver(&mut self, task: &Task) {
        // It may have killed itself already.
        writeln!(self.input, "{}", serde_json::to_string(task).unwrap()).ok();
    }

    /// The next result; none if it ends first.
    pub(crate) fn result(&mut self) -> Option<TaskResult> {
        let line = self.lines.recv_timeout(PATIENCE);
        match line {
            Ok(text) => Some(serde_json::from_str(&text).unwrap()),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                until("the process that says nothing more ends", PATIENCE, || {
                    self.child.try_wait().unwrap().is_some()
                });
                None
            }
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
    let node = Node::start(&dir);
    let Node { domain, said, .. } = node;
    std::thread::spawn(move || {
        for output in said {
            if let Output::Result { result, .. } = output {
                println!("\nRESULT {}", serde_json::to_string(&result).unwrap());
            }
        }
    });
    assert!(domain.tell(Input::Hello));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let task: Task = serde_json::from_str(&line).unwrap();
        let delivered = Delivered {
            task,
            lease_seconds: 600,
            attempt: 1,
        };
        assert!(domain.tell(Input::Deliver(Box::new(delivered))));
    }
    domain.stop();
}
