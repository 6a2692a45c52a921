//! Orders of the provider: the agent in this process and as a process of its own, against a gateway with real TLS.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway::{Gateway, Home, Seen, Signed, order, read, rotation, stand_in};
use hpc_schema::command::{Acknowledgement, AcknowledgementStatus, Command};
use hpc_schema::heartbeat::{HealthStatus, SlurmState, VerifiedHeartbeat};
use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use virtengine_node_agent::config::Config;
use virtengine_node_agent::key::NodeKey;
use virtengine_node_agent::register::register;
use virtengine_node_agent::run::{Agent, Ended, Signal, Timing, World};
use virtengine_node_agent::state::{StateDir, Status};

fn timing() -> Timing {
    Timing {
        shortest_interval: Duration::from_millis(50),
        out_of_turn: Duration::from_millis(50),
        backoff_first: Duration::from_millis(50),
        backoff_longest: Duration::from_millis(400),
        refused: Duration::from_millis(100),
        ..Timing::default()
    }
}

/// A site whose Slurm is a stand-in that keeps its node's state in files.
struct Site {
    gateway: Gateway,
    home: Home,
}

impl Site {
    async fn start() -> Self {
        let gateway = Gateway::start().await;
        gateway.behaviour().next_heartbeat_seconds = 1;
        let home = Home::new();
        let token = gateway.token(&home.key.public());
        let config = home.config(&[gateway.url()], Some(&token));
        register(&config, &home.key, Some(Duration::from_secs(10)), |_| {})
            .await
            .unwrap();
        Self { gateway, home }
    }

    fn slurm(&self) -> PathBuf {
        self.home.path("slurm")
    }

    /// `scontrol` that takes its time before it changes anything.
    fn with_slurm(self, before: &str) -> Self {
        let dir = self.slurm();
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("state"), "IDLE\n").unwrap();
        let text = format!(
            "#!/bin/sh\ncd {}\nif [ \"$1\" = update ]; then\n  echo \"$*\" >> called\n  {before}\n  case $3 in\n  \
             state=drain) echo \"${{4#reason=}}\" > reason; echo IDLE+DRAIN > state;;\n  \
             state=resume) : > reason; echo IDLE > state;;\n  esac\n  exit\nfi\n\
             echo \"NodeName=here CPUTot=2 CPUAlloc=0 RealMemory=4000 AllocMem=0 State=$(cat state) Reason=$(cat reason 2>/dev/null) [root@x]\"\n",
            dir.display()
        );
        for (name, text) in [("scontrol", text.as_str()), ("squeue", "#!/bin/sh\n")] {
            stand_in(&dir.join(name), text);
        }
        self
    }

    fn configure(&self, more: &str) -> PathBuf {
        let path = self.home.configure(&[self.gateway.url()], None);
        let mut text = read(&path);
        if self.slurm().exists() {
            let dir = self.slurm();
            let ours = format!(
                "slurm: {{enabled: true, node_name: here, bin_dir: {}}}",
                dir.display()
            );
            text = text.replace("slurm: {enabled: false}", &ours);
        }
        fs::write(&path, text + more).unwrap();
        path
    }

    fn config(&self, more: &str) -> Config {
        let overrides = virtengine_node_agent::config::Overrides::default();
        virtengine_node_agent::config::load(&self.configure(more), &overrides).unwrap()
    }

    fn run(&self, more: &str) -> Running {
        let agent = Agent::new(self.config(more), World::real(timing())).unwrap();
        let (signals, receiver) = mpsc::channel(1);
        Running {
            signals,
            task: tokio::spawn(agent.run(receiver)),
        }
    }

    fn process(&self) -> tokio::process::Child {
        self.process_with("")
    }

    fn process_with(&self, more: &str) -> tokio::process::Child {
        tokio::process::Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
            .args(["run", "--config", self.configure(more).to_str().unwrap()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// An agent that is killed while `systemctl`, which then does `rest`, is to switch the host off; its configuration, and
    /// the file of what `systemctl` was told.
    async fn killed_at_the_shutdown(&self, rest: &str) -> (String, PathBuf) {
        let (program, called) = (self.home.path("systemctl"), self.home.path("systemctl.called"));
        stand_in(&program, &format!("#!/bin/sh\necho $* >> $0.called\n{rest}\n"));
        let more = format!(
            "commands: {{shutdown: host, systemctl: {}, helper: {}}}\n",
            program.display(),
            self.home.path("none").display()
        );
        self.tell(&[order("s", "shutdown", "{}")]);
        let mut first = self.process_with(&more);
        self.gateway
            .until("systemctl", |_| {
                fs::read(&called).is_ok_and(|said| !said.is_empty())
            })
            .await;
        first.kill().await.unwrap();
        (more, called)
    }

    fn tell(&self, commands: &[Command]) {
        self.gateway.behaviour().commands.extend(commands.iter().cloned());
    }

    /// The last word on an order, once it is not `accepted`.
    async fn outcome(&self, id: &str) -> Acknowledgement {
        self.gateway
            .until(id, |s| last(&s.acknowledgements, id).is_some())
            .await;
        last(&self.gateway.seen().acknowledgements, id).unwrap()
    }

    fn status(&self) -> Status {
        let state = StateDir::new(&self.home.path("state"));
        Status::load(&state).unwrap().unwrap()
    }

    fn called(&self) -> Vec<String> {
        let text = fs::read_to_string(self.slurm().join("called")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn last(all: &[Acknowledgement], id: &str) -> Option<Acknowledgement> {
    let ended = |a: &&Acknowledgement| a.command_id == id && a.status != AcknowledgementStatus::Accepted;
    all.iter().rev().find(ended).cloned()
}

struct Running {
    signals: mpsc::Sender<Signal>,
    task: tokio::task::JoinHandle<Ended>,
}

impl Running {
    async fn stop(self) {
        self.signals.send(Signal::Stop).await.unwrap();
        self.ended().await;
    }

    async fn ended(self) {
        tokio::time::timeout(Duration::from_secs(10), self.task)
            .await
            .expect("ends")
            .unwrap();
    }
}

#[tokio::test]
async fn what_the_task_key_did_not_sign_for_this_node_and_time_is_refused_with_its_code() {
    let site = Site::start().await.with_slurm("");
    let good = |id| Signed::new(id, "drain", "{}");
    let wrong = [
        Signed {
            key: NodeKey::from_seed([66; 32]).unwrap(),
            ..good("key")
        },
        Signed {
            cluster: "hpc-cluster-2",
            ..good("cluster")
        },
        Signed {
            node: "node-hpc1-compute-043",
            ..good("node")
        },
        Signed {
            issued: -900,
            deadline: -300,
            ..good("late")
        },
        Signed {
            issued: 300,
            ..good("early")
        },
        Signed {
            kind: "format_disk",
            ..good("kind")
        },
        Signed {
            parameters: r#"{"reason":"x","also":1}"#,
            ..good("parameters")
        },
    ];
    let mut commands: Vec<Command> = wrong.iter().map(Signed::command).collect();
    let mut altered = order("altered", "drain", r#"{"reason":"a"}"#);
    altered.parameters = RawValue::from_string(r#"{"reason":"b"}"#.to_owned()).unwrap();
    commands.push(altered);
    site.tell(&commands);
    let running = site.run("");
    for (id, code) in [
        ("key", "task_signature_invalid"),
        ("cluster", "task_signature_invalid"),
        ("node", "task_signature_invalid"),
        ("altered", "task_signature_invalid"),
        ("late", "task_expired"),
        ("early", "timestamp_in_future"),
        ("kind", "unsupported_version"),
        ("parameters", "invalid_field"),
    ] {
        let ack = site.outcome(id).await;
        assert_eq!(
            (ack.status, ack.code.as_deref()),
            (AcknowledgementStatus::Refused, Some(code)),
            "{id}: {ack:?}"
        );
    }
    running.stop().await;
    assert!(site.called().is_empty());
    // A forged order does not stand in the way of the genuine one of that name.
    site.tell(&[order("key", "drain", r#"{"reason":"new disk"}"#)]);
    let running = site.run("");
    site.gateway
        .until("the genuine order", |s| {
            last(&s.acknowledgements, "key").is_some_and(|a| a.status == AcknowledgementStatus::Done)
        })
        .await;
    running.stop().await;
    assert_eq!(
        site.called(),
        ["update nodename=here state=drain reason=virtengine order: new disk"]
    );
}

#[tokio::test]
async fn orders_count_by_the_key_that_the_one_before_has_signed_and_by_the_old_one_no_more() {
    let site = Site::start().await.with_slurm("");
    let key = |seed: u8| NodeKey::from_seed([seed; 32]).unwrap();
    let (second, third) = (key(67), key(68));
    let steps = vec![rotation(&gateway::task_key(), &second), rotation(&second, &third)];
    let by = |id, key| {
        Signed {
            key,
            ..Signed::new(id, "drain", "{}")
        }
        .command()
    };
    // Not yet told of: a stranger's.
    site.tell(&[by("early", key(68))]);
    let agent = site.run("");
    assert_eq!(
        site.outcome("early").await.code.as_deref(),
        Some("task_signature_invalid")
    );
    site.gateway.behaviour().task_keys = steps;
    site.tell(&[by("new", key(68)), by("old", gateway::task_key())]);
    assert_eq!(site.outcome("new").await.status, AcknowledgementStatus::Done);
    assert_eq!(
        site.outcome("old").await.code.as_deref(),
        Some("task_signature_invalid")
    );
    agent.stop().await;
    // It is pinned from here on, with and without the gateway's word.
    site.gateway.behaviour().task_keys.clear();
    let agent = site.run("");
    site.tell(&[by("older", gateway::task_key())]);
    assert_eq!(
        site.outcome("older").await.code.as_deref(),
        Some("task_signature_invalid")
    );
    agent.stop().await;
}

#[tokio::test]
async fn a_drain_and_its_end_go_through_slurm_and_are_no_drain_of_the_site() {
    let site = Site::start().await.with_slurm("");
    let running = site.run("");
    site.gateway.until_heartbeats(1).await;
    site.tell(&[order("d", "drain", r#"{"reason":"new disk"}"#)]);
    let ack = site.outcome("d").await;
    assert_eq!(
        (ack.status, ack.detail.as_deref()),
        (AcknowledgementStatus::Done, Some("Slurm drains the node"))
    );
    // The gateway hears of it before the file is written.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let drain = loop {
        match site.status().drain {
            Some(drain) => break drain,
            None => assert!(std::time::Instant::now() < deadline, "status says nothing"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(drain.reason.as_deref(), Some("new disk"));
    // Over a restart it stays drained, and reports what it measures: the chain has the order.
    running.stop().await;
    let seen = site.gateway.seen().heartbeats.len();
    let running = site.run("");
    site.gateway
        .until("heartbeats while drained", |s| {
            let told = |h: &VerifiedHeartbeat| h.heartbeat.health.slurm_state == Some(SlurmState::Drain);
            s.heartbeats.len() > seen + 1 && s.heartbeats.last().is_some_and(told)
        })
        .await;
    {
        let all = site.gateway.seen();
        let health = &all.heartbeats.last().unwrap().heartbeat.health;
        assert_eq!(health.slurm_state, Some(SlurmState::Drain));
        assert_ne!(health.status, HealthStatus::Draining);
    }
    site.tell(&[order("r", "resume", "{}")]);
    let ack = site.outcome("r").await;
    assert_eq!(ack.detail.as_deref(), Some("Slurm gives the node jobs again"));
    running.stop().await;
    assert_eq!(site.called().len(), 2);
    let status = site.status();
    assert!(status.drain.is_none());
    let orders: Vec<(&str, &str)> = status
        .orders
        .iter()
        .map(|o| (o.kind.as_str(), o.status.as_str()))
        .collect();
    assert_eq!(orders, [("drain", "done"), ("resume", "done")]);
}

#[tokio::test]
async fn an_administrators_drain_outlives_slurms_silence_and_a_restart_meanwhile() {
    let site = Site::start().await.with_slurm("");
    let slurm = site.slurm();
    fs::write(slurm.join("state"), "IDLE+DRAIN\n").unwrap();
    fs::write(slurm.join("reason"), "bad disk\n").unwrap();
    let more = "  capacity_interval: 10s\n";
    let of = |h: &VerifiedHeartbeat| h.heartbeat.health.slurm_state;
    let last = |s: &Seen| s.heartbeats.last().and_then(of);
    let statuses = |from: usize| -> Vec<HealthStatus> {
        let seen = site.gateway.seen();
        let all = seen.heartbeats.iter().skip(from);
        all.map(|h| h.heartbeat.health.status)
            .filter(|s| *s != HealthStatus::Offline)
            .collect()
    };
    let drains = |from: usize| {
        let told = statuses(from);
        let all = told.iter().all(|s| *s == HealthStatus::Draining);
        assert!(all && told.len() > 1, "{told:?}");
    };

    let running = site.run(more);
    let gateway = &site.gateway;
    gateway
        .until("the drain", |s| last(s) == Some(SlurmState::Drain))
        .await;
    let first = gateway.seen().heartbeats.len().saturating_sub(1);
    stand_in(&slurm.join("scontrol"), "#!/bin/sh\nexit 1\n");
    gateway
        .until("Slurm's silence", |s| last(s) == Some(SlurmState::Unknown))
        .await;
    drains(first);
    running.stop().await;

    // Slower than a heartbeat may wait, and silent in the end.
    stand_in(&slurm.join("scontrol"), "#!/bin/sh\nsleep 3\nexit 1\n");
    let again = gateway.seen().heartbeats.len();
    let running = site.run(more);
    gateway.until_heartbeats(again + 5).await;
    drains(again);
    running.stop().await;

    let site = site.with_slurm("");
    let running = site.run(more);
    let back = |s: &Seen| last(s) == Some(SlurmState::Idle);
    site.gateway.until("a node in service", back).await;
    assert_ne!(site.gateway.last().health.status, HealthStatus::Draining);
    running.stop().await;
}

#[tokio::test]
async fn a_drain_that_slurm_tells_is_kept_before_a_heartbeat_tells_it() {
    let site = Site::start().await.with_slurm("");
    let (slurm, kept) = (site.slurm(), site.home.path("state/slurm.json"));
    let running = site.run("  capacity_interval: 10s\n");
    site.gateway
        .until("what Slurm said", |s| !s.heartbeats.is_empty() && kept.exists())
        .await;
    // Whoever reads it waits until nobody has it open for writing any more, as for a slow disk.
    fs::remove_file(&kept).unwrap();
    mkfifoat(CWD, &kept, Mode::RUSR | Mode::WUSR).unwrap();
    let (sender, read_by_the_agent) = tokio::sync::oneshot::channel();
    let pipe = kept.clone();
    std::thread::spawn(move || sender.send(fs::File::options().write(true).open(pipe)).ok());
    fs::write(slurm.join("reason"), "bad disk\n").unwrap();
    fs::write(slurm.join("state"), "IDLE+DRAIN\n").unwrap();
    let opened = tokio::time::timeout(Duration::from_secs(60), read_by_the_agent).await;
    let disk = opened.expect("the agent looks at it").unwrap().unwrap();
    let told = |s: &Seen| {
        let last = s.heartbeats.last();
        last.is_some_and(|h| h.heartbeat.health.slurm_state == Some(SlurmState::Drain))
    };
    let before =
        tokio::time::timeout(Duration::from_millis(300), site.gateway.until("the drain", told)).await;
    assert!(before.is_err(), "it was told before it was kept");
    drop(disk);
    site.gateway.until("the drain", told).await;
    assert!(fs::metadata(&kept).unwrap().is_file());
    assert!(read(&kept).contains("bad disk"), "{}", read(&kept));
    running.stop().await;
}

#[tokio::test]
async fn killed_while_an_order_is_carried_out_the_next_life_ends_it() {
    // The first life is killed while scontrol hesitates; the second one finds the order in its journal.
    let site = Site::start().await.with_slurm("[ -e quick ] || sleep 20");
    site.tell(&[order("d", "drain", "{}")]);
    let mut first = site.process();
    site.gateway
        .until("scontrol to be called", |_| !site.called().is_empty())
        .await;
    first.kill().await.unwrap();
    assert_eq!(site.called().len(), 1);
    fs::write(site.slurm().join("quick"), "").unwrap();
    let mut second = site.process();
    assert_eq!(site.outcome("d").await.status, AcknowledgementStatus::Done);
    assert_eq!(read(&site.slurm().join("state")), "IDLE+DRAIN\n");
    second.kill().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_ends_the_agent_once_however_often_it_is_told() {
    let site = Site::start().await;
    let shutdown = order("s", "shutdown", r#"{"reason":"power works"}"#);
    site.tell(std::slice::from_ref(&shutdown));
    // Issued before the first start, and after the registration: it is for this node.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    site.run("").ended().await;
    let ack = site.outcome("s").await;
    assert_eq!(
        (ack.status, ack.detail.as_deref()),
        (AcknowledgementStatus::Done, Some("the agent stops"))
    );
    let health = |site: &Site| site.gateway.last().health.status;
    assert_eq!(health(&site), HealthStatus::Offline);
    // The gateway has lost the acknowledgement: it is told again, and the agent of the next start does not stop.
    site.gateway.seen().acknowledgements.clear();
    site.tell(&[shutdown]);
    let running = site.run("");
    assert_eq!(site.outcome("s").await.status, AcknowledgementStatus::Done);
    let seen = site.gateway.seen().heartbeats.len();
    site.gateway
        .until("more heartbeats", |s| s.heartbeats.len() > seen + 1)
        .await;
    assert!(!running.task.is_finished());
    // Where the site forbids it, and where it means the host.
    running.stop().await;
    site.tell(&[order("s2", "shutdown", "{}")]);
    let running = site.run("commands: {shutdown: refuse}\n");
    let ack = site.outcome("s2").await;
    assert_eq!(
        (ack.status, ack.code.as_deref()),
        (AcknowledgementStatus::Refused, Some("wrong_mode"))
    );
    running.stop().await;
    let (program, called) = (site.home.path("systemctl"), site.home.path("called"));
    stand_in(&program, &format!("#!/bin/sh\necho $* > {}\n", called.display()));
    site.tell(&[order("s3", "shutdown", "{}")]);
    let running = site.run(&format!(
        "commands: {{shutdown: host, systemctl: {}, helper: {}}}\n",
        program.display(),
        site.home.path("none").display()
    ));
    assert_eq!(
        site.outcome("s3").await.detail.as_deref(),
        Some("the host shuts down")
    );
    assert_eq!(read(&called), "poweroff\n");
    running.stop().await;
}

#[tokio::test]
async fn a_host_that_comes_up_again_is_not_switched_off_a_second_time() {
    let site = Site::start().await;
    let (more, called) = site.killed_at_the_shutdown("sleep 20").await;
    // As a boot of the host would leave it.
    let (orders, boot) = (
        site.home.path("state/orders.json"),
        read(Path::new("/proc/sys/kernel/random/boot_id")),
    );
    let kept = read(&orders);
    assert!(kept.contains(boot.trim()), "{kept}");
    fs::write(
        &orders,
        kept.replace(boot.trim(), "6d8f7a0e-0000-4000-8000-000000000000"),
    )
    .unwrap();
    let running = site.run(&more);
    let ack = site.outcome("s").await;
    assert_eq!(ack.status, AcknowledgementStatus::Done, "{ack:?}");
    assert!(ack.detail.unwrap().contains("is up again"));
    running.stop().await;
    assert_eq!(read(&called), "poweroff\n");
}

#[tokio::test]
async fn a_host_that_has_not_been_down_since_is_told_again() {
    let site = Site::start().await;
    // The first time it has not said anything to the host yet when the agent ends.
    let (more, called) = site
        .killed_at_the_shutdown("[ $(wc -l < $0.called) -gt 1 ] || sleep 20")
        .await;
    let running = site.run(&more);
    let ack = site.outcome("s").await;
    assert_eq!(ack.status, AcknowledgementStatus::Done, "{ack:?}");
    assert_eq!(ack.detail.as_deref(), Some("the host shuts down"));
    running.stop().await;
    assert_eq!(read(&called), "poweroff\npoweroff\n");
}

#[tokio::test]
async fn diagnostics_are_bounded_to_those_compiled_in_and_updates_need_a_release_key() {
    let site = Site::start().await;
    let running = site.run("");
    site.gateway.until_heartbeats(1).await;
    let kept = site.home.path("state/history/utilization");
    let written = async {
        while !kept.exists() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written)
        .await
        .expect("samples");
    let run = |name: &str| order(name, "run_diagnostic", &format!(r#"{{"name":"{name}"}}"#));
    site.tell(&["health", "figures", "uplink", "history", "storage", "rm-rf"].map(run));
    for (name, word) in [
        ("health", ""),
        ("figures", "memory_percent"),
        ("uplink", "https://localhost:"),
        ("history", "memory_percent"),
        ("storage", "1 MiB in "),
    ] {
        let ack = site.outcome(name).await;
        let detail = ack.detail.unwrap();
        assert_eq!(ack.status, AcknowledgementStatus::Done, "{name}: {detail}");
        assert!(detail.contains(word) && detail.len() <= 256, "{name}: {detail}");
        // All of it, as it stays here too.
        let report: serde_json::Value = serde_json::from_str(&ack.report.unwrap()).unwrap();
        let member = match name {
            "storage" => "result",
            "uplink" => "endpoint",
            other => other,
        };
        assert!(!report[member].is_null(), "{name}: {report}");
        // Whatever the host's is.
        let health = report["health"].as_str().unwrap_or_default();
        assert!(
            name != "health" || (!health.is_empty() && detail.starts_with(health)),
            "{detail}"
        );
    }
    let ack = site.outcome("rm-rf").await;
    assert_eq!(
        (ack.status, ack.code.as_deref()),
        (AcknowledgementStatus::Refused, Some("invalid_field"))
    );
    assert_eq!(
        fs::read_dir(site.home.path("state/diagnostics")).unwrap().count(),
        5
    );
    let update = format!(
        r#"{{"version":"9.9.9","url":"https://x/agent","sha256":"{}"}}"#,
        "0".repeat(64)
    );
    site.tell(&[order("u", "update_agent", &update)]);
    let ack = site.outcome("u").await;
    assert_eq!(
        (ack.status, ack.code.as_deref()),
        (AcknowledgementStatus::Refused, Some("wrong_mode"))
    );
    assert!(ack.detail.unwrap().contains("release key"));
    running.stop().await;
}

#[tokio::test]
async fn a_report_that_is_too_large_for_the_gateway_does_not_silence_the_node() {
    let site = Site::start().await;
    let running = site.run("");
    site.gateway.until_heartbeats(1).await;
    site.gateway.behaviour().no_reports = true;
    site.tell(&[order("health", "run_diagnostic", r#"{"name":"health"}"#)]);
    let ack = site.outcome("health").await;
    let detail = ack.detail.unwrap();
    assert_eq!((ack.status, ack.report), (AcknowledgementStatus::Done, None));
    assert!(detail.contains("413"), "{detail}");
    assert_eq!(
        fs::read_dir(site.home.path("state/diagnostics")).unwrap().count(),
        1
    );
    running.stop().await;
}

#[tokio::test]
async fn a_download_that_hangs_holds_up_neither_drain_nor_resume_nor_shutdown() {
    let site = Site::start().await.with_slurm("");
    // It takes a connection and then says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    fs::write(site.home.path("downloads.pem"), gateway::Authority::new().pem()).unwrap();
    let release = NodeKey::from_seed([9; 32]).unwrap().public();
    let key = [b"Edrelease1".as_slice(), release.as_bytes()].concat();
    let running = site.run(&format!(
        "commands: {{shutdown: agent}}\nupdate: {{release_key: {}, ca_file: {}}}\n",
        STANDARD.encode(key),
        site.home.path("downloads.pem").display()
    ));
    let update = format!(
        r#"{{"version":"99.0.0","url":"https://localhost:{port}/agent","sha256":"{}"}}"#,
        "0".repeat(64)
    );
    site.tell(&[order("u", "update_agent", &update)]);
    let waits = tokio::time::timeout(Duration::from_secs(10), silent.accept()).await;
    let _hangs = waits.expect("no download").unwrap();
    for (id, kind) in [("d", "drain"), ("r", "resume"), ("s", "shutdown")] {
        site.tell(&[order(id, kind, "{}")]);
        let ack = site.outcome(id).await;
        assert_eq!(
            ack.status,
            AcknowledgementStatus::Done,
            "{kind}: {:?}",
            ack.detail
        );
    }
    assert!(
        last(&site.gateway.seen().acknowledgements, "u").is_none(),
        "the download did not hang"
    );
    running.ended().await;
}

#[tokio::test]
async fn an_order_that_cannot_be_written_down_as_begun_is_not_begun() {
    // The first attempt fails: the second has to be kept.
    let site = Site::start()
        .await
        .with_slurm("[ -e failed ] || { touch failed; exit 1; }");
    let running = site.run("");
    site.gateway.until_heartbeats(1).await;
    site.tell(&[order("d", "drain", "{}")]);
    let begun = std::time::Instant::now();
    while site.called().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // In one step: the agent may write it at any moment.
    let (orders, other) = (site.home.path("state/orders.json"), site.home.path("other"));
    fs::create_dir_all(other.join("in the way")).unwrap();
    renameat_with(CWD, &orders, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    // Five seconds later it is tried again.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(site.called().len(), 1, "{:?}", site.called());
    fs::remove_dir_all(&orders).unwrap();
    let ack = site.outcome("d").await;
    assert_eq!(
        (ack.status, site.called().len()),
        (AcknowledgementStatus::Done, 2)
    );
    running.stop().await;
}
