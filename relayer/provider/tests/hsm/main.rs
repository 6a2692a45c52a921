//! Chain keys that are not in the keyring, but in an HSM (SoftHSM2) or with systemd: the daemon as a process, which settles on the
//! embedded chain with them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "../it/agent.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod agent;
mod credential;
#[path = "../it/process.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod process;
#[path = "../it/site.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod site;
mod softhsm;

use std::process::Command;
use std::time::{Duration, Instant};

use hpc_chain::msg;
use hpc_schema::registry::ExecuteMsg;
use reqwest::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use agent::Agent;
use process::{Process, beat};
use site::{CLUSTER, Site, deadline, eventually, run};
use softhsm::{Hsm, PIN};

/// A site and an HSM.
struct World {
    site: Site,
    hsm: Hsm,
    /// Further variables of the daemon's environment.
    env: Vec<(String, String)>,
}

impl World {
    async fn new(tokens: &[&str]) -> Self {
        let hsm = Hsm::with(tokens);
        let conf = hsm.conf().display().to_string();
        Self {
            site: Site::prepare().await,
            hsm,
            env: vec![("SOFTHSM2_CONF".into(), conf)],
        }
    }

    /// With operator and relayer in the HSM's first token from the beginning.
    async fn in_hsm() -> Self {
        let mut world = Self::new(&["first"]).await;
        world.add("operator-2", "first").await;
        world.add("relayer-2", "first").await;
        world.operators(&["operator-2"]).await;
        world.uses("OPERATOR", "operator-2");
        world.uses("RELAYER", "relayer-2");
        world
    }

    fn uses(&mut self, of: &str, name: &str) {
        let key = format!("VIRTENGINE_PROVIDER__KEYS__{of}");
        self.env.retain(|(k, _)| *k != key);
        self.env.push((key, name.into()));
    }

    /// The program, on this site's directory.
    async fn run(&self, words: &[&str]) -> (String, String, i32) {
        let (home, mut env) = (self.site.home(), self.site.env());
        env.extend(self.env.clone());
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        tokio::task::spawn_blocking(move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            run(&home, &env, &words)
        })
        .await
        .unwrap()
    }

    async fn add_with(&self, name: &str, token: &str, pin: [&str; 2]) -> String {
        let mut words = vec!["keys", "add", name, "--store", "pkcs11", "--pkcs11-module"];
        words.extend([Hsm::module(), "--pkcs11-token", token]);
        words.extend(pin);
        let (_, err, code) = self.run(&words).await;
        assert_eq!(code, 0, "{err}");
        self.endowed(name).await
    }

    /// The key's account gets tokens; its address.
    async fn endowed(&self, name: &str) -> String {
        let address = self.address(name).await;
        let owner = self.site.owner.address("wasm").unwrap();
        let gift = msg::send(&owner, &address, &["1000000000stake".parse().unwrap()]);
        self.site.owner_signs(gift).await;
        address
    }

    /// What these nodes report is paid for by the one account and no more by the other.
    async fn pays(&self, process: &Process, nodes: [&mut Node; 2], next: &str, former: &str) {
        let before = self.sequence_of(former).await;
        for node in nodes {
            node.beats(process).await;
            node.settles(self).await;
        }
        assert!(self.sequence_of(next).await > 0, "the new key pays");
        assert!(
            self.sequence_of(former).await <= before + 1,
            "and the former one no more"
        );
        // Nothing twice: it says so if there is.
        self.site.accepted_on_chain().await;
    }

    /// A key that the HSM makes, with tokens on its account; its address.
    async fn add(&self, name: &str, token: &str) -> String {
        let pin = self.hsm.pin();
        self.add_with(name, token, ["--pin-file", pin.to_str().unwrap()])
            .await
    }

    async fn address(&self, name: &str) -> String {
        self.run(&["keys", "address", name]).await.0.trim().to_owned()
    }

    /// These and no others may register nodes.
    async fn operators(&self, names: &[&str]) {
        let mut all = Vec::new();
        for name in names {
            all.push(self.address(name).await);
        }
        let message: ExecuteMsg =
            serde_json::from_value(json!({ "update_cluster": { "cluster_id": CLUSTER, "operators": all } }))
                .unwrap();
        self.site.owner_sends(&message).await;
    }

    fn start(&mut self) -> Process {
        let env: Vec<(&str, &str)> = self.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let process = Process::start_with(&self.site, None, &env);
        self.site.elsewhere = Some(process.port);
        process
    }

    async fn sequence_of(&self, address: &str) -> u64 {
        let chain = self.site.client.chain();
        chain.account(address).await.unwrap().value.unwrap().sequence
    }

    /// What `run` says as it refuses, with its exit code.
    fn refuses(&self) -> (String, Option<i32>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_virtengine-provider"));
        command.arg("run").arg("--home").arg(self.site.home());
        command.envs(self.site.env()).envs(self.env.iter().cloned());
        let out = deadline::output(&mut command, Duration::from_secs(120)).expect("it refuses");
        (
            String::from_utf8_lossy(&out.stderr).into_owned(),
            out.status.code(),
        )
    }
}

/// The processes that speak with the HSM for this daemon.
fn helpers(process: &Process) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.child.id())).unwrap();
    let children = tasks.flat_map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    children
        .filter(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("sign-pkcs11")
        })
        .map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap())
        .collect()
}

fn all_get(process: &Process, signal: Signal) {
    let helpers = helpers(process);
    assert!(!helpers.is_empty());
    for helper in helpers {
        // It may just have gone.
        kill_process(helper, signal).ok();
    }
}

/// A node, its connection, and how far it has counted.
struct Node {
    agent: Agent,
    client: Client,
    sequence: u32,
}

impl Node {
    async fn enrolled(world: &World, name: &str) -> Self {
        let agent = Agent::enrolled(&world.site, name).await;
        let client = agent.client(&world.site);
        Self {
            agent,
            client,
            sequence: 0,
        }
    }

    async fn beats(&mut self, process: &Process) {
        self.sequence += 1;
        assert!(beat(&self.agent, &self.client, process.port, self.sequence).await);
    }

    async fn settles(&self, world: &World) {
        world.site.wait_sequence(&self.agent.node, self.sequence).await;
    }
}

async fn says(process: &Process, code: &str, so: bool) {
    eventually(&format!("readyz with {code}: {so}"), async || {
        process.ready().await.contains(code) == so
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_from_the_keyring_into_an_hsm_and_on_to_another_token_and_reports_settle_throughout() {
    let mut world = World::new(&["first", "second"]).await;
    let process = world.start();
    let mut one = Node::enrolled(&world, "node-0001").await;
    one.beats(&process).await;
    one.settles(&world).await;

    // From the keyring into the HSM: the cluster has both operators until the new one is in use.
    world.add("operator-2", "first").await;
    let second = world.add("relayer-2", "first").await;
    world.operators(&["operator", "operator-2"]).await;
    world.uses("OPERATOR", "operator-2");
    world.uses("RELAYER", "relayer-2");
    drop(process);
    let process = world.start();
    world.operators(&["operator-2"]).await;
    let mut two = Node::enrolled(&world, "node-0002").await;
    for node in [&mut one, &mut two] {
        node.beats(&process).await;
        node.settles(&world).await;
    }
    assert!(world.sequence_of(&second).await >= 2, "the HSM's key pays");
    let shown = world.run(&["keys", "show", "relayer-2", "-o", "json"]).await.0;
    assert!(shown.contains("\"pkcs11\""), "{shown}");
    let file = std::fs::read_to_string(world.site.home().join("keys/keyring/relayer-2.key")).unwrap();
    assert!(file.contains("\"first\"") && !file.contains(PIN), "{file}");
    // What the operator key signs itself.
    let (out, err, code) = world
        .run(&["node", "drain", "node-0002", "--reason", "memory"])
        .await;
    assert_eq!(code, 0, "{out}{err}");

    // On to another token, as to another HSM.
    let third = world.add("relayer-3", "second").await;
    world.uses("RELAYER", "relayer-3");
    drop(process);
    let process = world.start();
    world.pays(&process, [&mut one, &mut two], &third, &second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_pulled_or_hangs_is_told_and_nothing_is_lost() {
    let mut world = World::in_hsm().await;
    let process = world.start();
    let mut node = Node::enrolled(&world, "node-0001").await;
    node.beats(&process).await;
    node.settles(&world).await;

    // A session that is lost costs nothing.
    all_get(&process, Signal::KILL);
    node.beats(&process).await;
    node.settles(&world).await;

    // The token is gone.
    world.hsm.pull();
    all_get(&process, Signal::KILL);
    node.beats(&process).await;
    says(&process, "key_unusable", true).await;
    node.beats(&process).await;
    // A start without it is one that accepts, too.
    drop(process);
    let process = world.start();
    assert!(
        process.ready().await.contains("has no token"),
        "{}",
        process.ready().await
    );
    node.beats(&process).await;
    world.hsm.put_back();
    node.settles(&world).await;
    says(&process, "key_unusable", false).await;

    // It hangs, and so does every session that follows.
    all_get(&process, Signal::STOP);
    node.beats(&process).await;
    eventually("readyz with key_unusable", async || {
        for helper in helpers(&process) {
            kill_process(helper, Signal::STOP).ok();
        }
        process.ready().await.contains("key_unusable")
    })
    .await;
    node.beats(&process).await;
    node.settles(&world).await;
    says(&process, "key_unusable", false).await;
    world.site.accepted_on_chain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_there_and_never_signs_is_told_until_it_does() {
    let mut world = World::in_hsm().await;
    let process = world.start();
    let mut node = Node::enrolled(&world, "node-0001").await;
    node.beats(&process).await;
    node.settles(&world).await;
    world.hsm.let_sign(false);
    all_get(&process, Signal::KILL);
    node.beats(&process).await;
    says(&process, "key_unusable", true).await;
    // It is looked at every few seconds, and found each time: that it is there is not that it signs.
    let until = Instant::now() + Duration::from_secs(13);
    while Instant::now() < until {
        assert!(process.ready().await.contains("key_unusable"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A start finds it out before anything is to be signed.
    drop(process);
    let process = world.start();
    assert!(
        process.ready().await.contains("does not sign"),
        "{}",
        process.ready().await
    );
    world.hsm.let_sign(true);
    node.settles(&world).await;
    says(&process, "key_unusable", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_pin_a_pin_that_others_read_and_a_key_that_is_not_there_refuse_to_start() {
    let world = World::in_hsm().await;
    world.hsm.write_pin("9876");
    let (said, code) = world.refuses();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("key operator-2") && said.contains("PIN"), "{said}");
    assert!(!said.contains("9876"), "{said}");
    world.hsm.write_pin(PIN);
    world.hsm.let_others_read_the_pin(true);
    let (said, code) = world.refuses();
    assert!(code == Some(78) && said.contains("chmod 600"), "{said}");
    world.hsm.let_others_read_the_pin(false);
    let file = world.site.home().join("keys/keyring/operator-2.key");
    let text = std::fs::read_to_string(&file).unwrap();
    let id = text
        .split("\"id\": \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    std::fs::write(&file, text.replace(id, &"00".repeat(16))).unwrap();
    let (said, code) = world.refuses();
    assert!(code == Some(78) && said.contains("has no key with id"), "{said}");
    // Another key under that id than the file says.
    let other = std::fs::read_to_string(file.with_file_name("relayer-2.key")).unwrap();
    let other = other
        .split("\"id\": \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    std::fs::write(&file, text.replace(id, other)).unwrap();
    let (said, code) = world.refuses();
    assert!(code == Some(78) && said.contains("is not"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_comes_as_a_credential_of_systemd_and_a_key_that_the_hsm_has_is_taken_by_its_id() {
    let mut world = World::new(&["first"]).await;
    // As systemd hands it to the unit.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hsm-pin"), PIN).unwrap();
    let credentials = folder.path().display().to_string();
    world.env.push(("CREDENTIALS_DIRECTORY".into(), credentials));
    let made = world
        .add_with("relayer-2", "first", ["--pin-credential", "hsm-pin"])
        .await;
    let file = std::fs::read_to_string(world.site.home().join("keys/keyring/relayer-2.key")).unwrap();
    let id = file
        .split("\"id\": \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let words = ["keys", "add", "same", "--store", "pkcs11", "--pkcs11-module"];
    let mut words = words.to_vec();
    words.extend([Hsm::module(), "--pkcs11-token", "first", "--pkcs11-id", id]);
    words.extend(["--pin-credential", "hsm-pin"]);
    let (_, err, code) = world.run(&words).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(world.address("same").await, made);
    world.uses("RELAYER", "same");
    let process = world.start();
    let mut node = Node::enrolled(&world, "node-0001").await;
    node.beats(&process).await;
    node.settles(&world).await;
    assert!(world.sequence_of(&made).await > 0);
}
