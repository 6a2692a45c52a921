//! A task domain on a folder of its own, and a provider that signs for it.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use hpc_schema::key::{AgentKey, ZebraVerifier};
use hpc_schema::task::{
    Cancellation, Delivered, HostPath, KeyRotation, NodeMode, Task, TaskOutcome, TaskResult, TaskType,
    cancel_message, check_output, rotation_message, task_message, verify_result,
};
use hpc_schema::time::Rfc3339;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::domain::{Domain, Input, Output, Setup, Sign};
use super::super::effect::{Directory, Effect, File, Lease};
use super::super::verify::hash_of;
use super::super::*;
use crate::clock::Clock;
use crate::probe::Roots;

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

struct Key(SigningKey);

impl Sign for Key {
    fn sign(&self, message: &[u8]) -> Result<[u8; 64], String> {
        Ok(self.0.sign(message).into())
    }
}

/// A node with its domain.
pub(super) struct Node {
    pub(super) host: Host,
    pub(super) domain: Domain,
    pub(super) said: Receiver<Output>,
    pub(super) site: Site,
}

/// The provider of the node, and the node's key.
#[derive(Clone)]
pub(in crate::task) struct Site {
    pub(super) authority: Authority,
    task_key: SigningKey,
    agent: SigningKey,
}

impl Site {
    pub(in crate::task) fn new() -> Self {
        let task_key = SigningKey::from([3; 32]);
        Self {
            authority: Authority {
                chain_id: "hpc-1".into(),
                contract: "wasm1abc".into(),
                cluster_id: "hpc-cluster-1".parse().unwrap(),
                node_id: "node-1".parse().unwrap(),
                task_key: AgentKey::from_bytes(VerificationKey::from(&task_key).into()).unwrap(),
                since: 0,
            },
            task_key,
            agent: SigningKey::from([1; 32]),
        }
    }

    /// The provider after a rotation of its task key: itself with the new key, and the old one's word for it.
    pub(super) fn rotated(&self, seed: u8) -> (Self, KeyRotation) {
        let mut next = self.clone();
        next.task_key = SigningKey::from([seed; 32]);
        let new_key = AgentKey::from_bytes(VerificationKey::from(&next.task_key).into()).unwrap();
        next.authority.task_key = new_key;
        let a = &self.authority;
        let old_key = a.task_key;
        let message = rotation_message(&a.chain_id, &a.contract, &a.cluster_id, &old_key, &new_key);
        let signature = STANDARD.encode(<[u8; 64]>::from(self.task_key.sign(&message)));
        let step = KeyRotation {
            old_key,
            new_key,
            signature,
        };
        (next, step)
    }

    /// The same names, another task key.
    pub(super) fn of_another_key() -> Self {
        Self {
            task_key: SigningKey::from([4; 32]),
            ..Self::new()
        }
    }

    pub(super) fn agent_key(&self) -> AgentKey {
        AgentKey::from_bytes(VerificationKey::from(&self.agent).into()).unwrap()
    }

    pub(super) fn task(&self, id: &str, kind: &str, params: &str) -> Task {
        let now = Clock::system().seconds();
        let mut task = Task {
            task_id: id.parse().unwrap(),
            task_type: kind.to_owned(),
            params: RawValue::from_string(params.to_owned()).unwrap(),
            issued_at: Rfc3339::from_unix(now, 0).unwrap(),
            expires_at: Rfc3339::from_unix(now + 600, 0).unwrap(),
            nonce: STANDARD.encode([7; 16]),
            signature: String::new(),
        };
        self.sign(&mut task);
        task
    }

    pub(super) fn sign(&self, task: &mut Task) {
        let nonce: [u8; 16] = STANDARD.decode(&task.nonce).unwrap().try_into().unwrap();
        let message = task_message(&self.authority.scope(), task, &nonce);
        task.signature = STANDARD.encode(<[u8; 64]>::from(self.task_key.sign(&message)));
    }

    pub(super) fn cancellation(&self, task: &Task) -> Cancellation {
        let hash = hash_of(task, &self.authority).unwrap();
        let message = cancel_message(&self.authority.scope(), &task.task_id, hash);
        Cancellation {
            task_id: task.task_id.clone(),
            task_hash: hash.to_hex(),
            signature: STANDARD.encode(<[u8; 64]>::from(self.task_key.sign(&message))),
        }
    }
}

pub(in crate::task) fn host(dir: &Path) -> Host {
    Host {
        roots: Roots::default(),
        dir: TaskDir::new(&dir.join("tasks")),
        policy: Arc::new(Policy {
            mode: Some(NodeMode::Slice),
            ..Policy::default()
        }),
        clock: Clock::system(),
    }
}

impl Node {
    pub(super) fn start(dir: &Path) -> Self {
        Self::with(host(dir), Site::new())
    }

    pub(super) fn with(host: Host, site: Site) -> Self {
        Self::looked_after(host, site, Vec::new())
    }

    pub(super) fn looked_after(host: Host, site: Site, stewards: Vec<Box<dyn Steward>>) -> Self {
        let (sender, said) = channel();
        let sender = Mutex::new(sender);
        let setup = Setup {
            host: host.clone(),
            authority: site.authority.clone(),
            sign: Arc::new(Key(site.agent)),
            handlers,
            stewards,
            concurrency: 4,
        };
        let out = Arc::new(move |o| {
            sender.lock().unwrap().send(o).ok();
        });
        Self {
            host,
            domain: Domain::start(setup, out).unwrap(),
            said,
            site,
        }
    }

    pub(super) fn deliver(&self, task: &Task) {
        let delivered = Delivered {
            task: task.clone(),
            lease_seconds: 30,
            attempt: 1,
        };
        assert!(self.domain.tell(Input::Deliver(Box::new(delivered))));
    }

    /// The first of what the domain says from now on that is wanted, in time.
    pub(super) fn wait_for<T>(&self, what: &str, mut wanted: impl FnMut(Output) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            // Whatever else is said, also all the time, the end stays.
            let left = end.saturating_duration_since(Instant::now());
            let said = self.said.recv_timeout(left);
            let said = said.unwrap_or_else(|e| panic!("not within {PATIENCE:?}: {what}: {e}"));
            if let Some(found) = wanted(said) {
                return found;
            }
            assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        }
    }

    /// The next result of this task; its signature is good, and its form what a gateway takes.
    pub(super) fn result(&self, task: &Task) -> TaskResult {
        let result = self.wait_for(&format!("a result of {}", task.task_id), |said| match said {
            Output::Result { task_id, result } if task_id == task.task_id => Some(*result),
            _ => None,
        });
        let hash = hash_of(task, &self.site.authority).unwrap();
        verify_result(&result, hash, &self.site.agent_key(), &ZebraVerifier).unwrap();
        let completed = result.outcome == TaskOutcome::Completed;
        assert!(!completed || result.finished_at.seconds() >= task.issued_at.seconds());
        // Machines are files here, and their results others.
        if completed && !task.task_type.starts_with("vm.") {
            check_output(task.task_type.parse().unwrap(), &result.result).unwrap();
        }
        result
    }

    /// Waits until a task says that it is in this phase.
    pub(super) fn phase(&self, name: &str) {
        self.wait_for(&format!("phase {name} of a task"), |said| match said {
            Output::Progress { progress, .. } => (progress.phase == name).then_some(()),
            Output::Result { .. } => None,
        });
    }

    pub(super) fn run(&self, task: &Task) -> TaskResult {
        self.deliver(task);
        self.result(task)
    }

    pub(super) fn heard(&self, id: &TaskId) {
        assert!(self.domain.tell(Input::Heard { task_id: id.clone() }));
    }
}

/// Looks again and again until it is so, in time.
pub(super) fn until(what: &str, mut good: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !good() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn value(result: &TaskResult) -> Value {
    serde_json::from_str(result.result.get()).unwrap()
}

pub(super) fn code(result: &TaskResult) -> Option<Code> {
    assert_eq!(result.outcome == TaskOutcome::Completed, result.code.is_none());
    result.code.as_deref().and_then(Code::from_word)
}

pub(in crate::task) fn path(p: impl AsRef<Path>) -> HostPath {
    p.as_ref().to_str().unwrap().parse().unwrap()
}

/// `vm.launch` and `vm.terminate` with files in place of machines; the machine's id says how it goes.
fn handlers(kind: TaskType) -> Option<&'static dyn Handler> {
    match kind {
        TaskType::VmLaunch => Some(&Launch),
        TaskType::VmTerminate => Some(&Terminate),
        other => super::super::handlers::handler(other),
    }
}

struct Launch;
struct Terminate;

impl Handler for Launch {
    fn owner(&self, params: &hpc_schema::task::Params) -> Option<Owner> {
        let hpc_schema::task::Params::VmLaunch(p) = params else {
            return None;
        };
        Some(Owner::new("vm", p.vm_id.as_str()))
    }

    fn run(&self, c: &mut Context<'_>, params: &hpc_schema::task::Params) -> Result<Value, Failure> {
        let hpc_schema::task::Params::VmLaunch(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        let id = p.vm_id.as_str();
        let folder = c.host().dir.machines().join(id);
        c.phase("lease")?;
        c.apply(Effect::Lease(Lease {
            path: path(c.host().dir.machines().join(format!("{id}.lease"))),
            resource: format!("machine/{id}"),
            holder: id.to_owned(),
        }))?;
        c.phase("folder")?;
        c.apply(Effect::Directory(Directory {
            path: path(&folder),
            mode: 0o700,
        }))?;
        let secret = c.apply(Effect::File(File::new(
            path(folder.join("secret")),
            0o600,
            b"hunter2".to_vec(),
        )))?;
        // By a name that somebody swaps for a link, it would be written elsewhere.
        if !id.starts_with("races") {
            std::fs::write(folder.join("litter"), "by the machine").unwrap();
        }
        c.phase("start")?;
        if id.starts_with("fails") {
            return Err(Failure::failed("it was to fail"));
        }
        if id.starts_with("breaks") {
            panic!("it was to break");
        }
        while id.starts_with("waits") {
            c.check()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        c.undo(secret)?;
        c.fact("public.port", serde_json::json!(2222))?;
        Ok(serde_json::json!({"vm_id": id, "timings": c.timings()}))
    }
}

impl Handler for Terminate {
    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    fn owner(&self, params: &hpc_schema::task::Params) -> Option<Owner> {
        let hpc_schema::task::Params::VmTerminate(p) = params else {
            return None;
        };
        Some(Owner::new("vm", p.vm_id.as_str()))
    }

    fn run(&self, c: &mut Context<'_>, params: &hpc_schema::task::Params) -> Result<Value, Failure> {
        let hpc_schema::task::Params::VmTerminate(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        let owner = Owner::new("vm", p.vm_id.as_str());
        let existed = !c.holdings(&owner).is_empty();
        let undone = c.release(&owner)?;
        Ok(serde_json::json!({"existed": existed, "undone": undone.undone, "stuck": undone.stuck}))
    }
}

pub(in crate::task) fn launch(site: &Site, task: &str, vm: &str) -> Task {
    let params = format!(
        r#"{{"vm_id":"{vm}","image_path":"/var/lib/libvirt/images/a.img","image_sha256":"{}","image_format":"raw","vcpu_count":2,"memory_mib":512,"lease_seconds":600}}"#,
        "a".repeat(64)
    );
    site.task(task, "vm.launch", &params)
}

pub(super) fn terminate(site: &Site, task: &str, vm: &str) -> Task {
    site.task(task, "vm.terminate", &format!(r#"{{"vm_id":"{vm}"}}"#))
}

/// What lies in the folder of machines.
pub(super) fn left(host: &Host) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(host.dir.machines())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
