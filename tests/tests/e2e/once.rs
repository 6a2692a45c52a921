//! Duplicate and lost deliveries, gateway and agent killed at random: never done twice, never said to be done when it was
//! not. What tasks do is counted: each start of a machine is told to this test before the machine does anything.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hpc_tests::agent::Agent;
use hpc_tests::process::Process;
use hpc_tests::program;
use hpc_tests::scene;
use hpc_tests::site::Site;
use hpc_tests::wait;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const NODE: &str = "node-hpc1-compute-042";
/// Longest for one task, with everything that is killed meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

/// Draws what happens; the same story for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Under this name those are counted that began outside their control group.
const OUTSIDE: &str = "outside";

type Starts = Arc<Mutex<BTreeMap<String, (usize, u32)>>>;

/// A folder that users of machines can pass through, with programs that count.
struct Bench(tempfile::TempDir, Starts);

impl Bench {
    fn new() -> Result<Self> {
        let bench = Self(tempfile::tempdir()?, Starts::default());
        let folder = bench.0.path();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        for name in ["bin", "count", "images"] {
            fs::create_dir(folder.join(name))?;
        }
        let counted = folder.join("bin/counted-machine");
        fs::copy(program::path("counted-machine")?, &counted)?;
        for name in ["qemu-system-x86_64", "qemu-img", "xorriso"] {
            fs::hard_link(&counted, folder.join("bin").join(name))?;
        }
        let socket = folder.join("count/socket");
        let listener = UnixListener::bind(&socket)?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
        let starts = Arc::clone(&bench.1);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // Killed in its midst, it was not started.
                drop(count(stream, &starts));
            }
        });
        for name in ["kernel", "disk.raw"] {
            fs::write(folder.join("images").join(name), [7u8; 4096])?;
        }
        let policy = format!(
            "mode: slice\nmachines:\n  image_directories: [{0}/images]\n  programs: {0}/bin\n  probe_kernel: {0}/images/kernel\n  \
             reserve_memory_mib: 0\n  max_count: 100\n",
            folder.display()
        );
        fs::write(folder.join("policy.yaml"), policy)?;
        Ok(bench)
    }

    fn configuration(&self) -> String {
        let folder = self.0.path().display();
        format!("tasks:\n  dir: {folder}/tasks\n  policy: {folder}/policy.yaml\n")
    }

    /// How often each machine was started, and by which process last.
    fn counted(&self, vm: &str) -> Option<(usize, u32)> {
        self.1.lock().ok()?.get(vm).copied()
    }

    fn launch(&self, vm: &str, lease_seconds: u32) -> String {
        let image = self.0.path().join("images/disk.raw");
        let sha = hex(&Sha256::digest([7u8; 4096]));
        format!(
            r#"{{"vm_id":"{vm}","image_path":"{}","image_sha256":"{sha}","image_format":"raw","vcpu_count":1,"memory_mib":64,"lease_seconds":{lease_seconds},"accel":"tcg"}}"#,
            image.display()
        )
    }
}

fn count(stream: UnixStream, starts: &Starts) -> Result<()> {
    let mut line = String::new();
    let mut stream = BufReader::new(stream);
    stream.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (name, pid) = (words.next().context("a name")?, words.next().context("a pid")?);
    let inside: bool = words.next().context("whether it is in its group")?.parse()?;
    if let Ok(mut starts) = starts.lock() {
        let entry = starts.entry(name.to_owned()).or_insert((0, 0));
        *entry = (entry.0 + 1, pid.parse()?);
        if !inside {
            let entry = starts.entry(OUTSIDE.to_owned()).or_insert((0, 0));
            entry.0 += 1;
        }
    }
    Ok(stream.get_mut().write_all(b"counted\n")?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|s| s != 'Z')
}

struct Story<'a> {
    site: Site,
    agent: &'a Agent,
    acting: Process,
    dice: Dice,
    killed: [u32; 3],
}

impl Story<'_> {
    /// Kills something after a moment, or nothing.
    fn disturb(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(self.dice.below(250)));
        match self.dice.below(6) {
            0 | 1 => {
                self.acting.kill()?;
                self.acting = self.agent.start_tasks()?;
                self.killed[0] += 1;
            }
            2 => {
                let pid = self.acting.id();
                let below =
                    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
                let is_link = |pid: &&str| {
                    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                    line.contains("task-link")
                };
                for link in below.split_ascii_whitespace().filter(is_link) {
                    // Gone meanwhile: as good as killed.
                    drop(Command::new("kill").args(["-9", link]).status());
                }
                self.killed[1] += 1;
            }
            3 if self.dice.below(3) == 0 => {
                self.site.kill_provider()?;
                self.site.start_provider()?;
                self.killed[2] += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// A machine ends with its lease though the task agent is killed before, and what is left of it goes at the next start.
    fn lease_without_agent(&mut self, bench: &Bench) -> Result<()> {
        let params = bench.launch("vm-lease", 60);
        let words = [
            "task",
            "submit",
            NODE,
            "--type",
            "vm.launch",
            "--params",
            &params,
            "--task-id",
            "lease",
        ];
        self.site.provider_run(&words)?;
        self.site
            .provider_run(&["task", "watch", "lease", "--within", "60s"])?;
        let (_, pid) = bench.counted("vm-lease").context("it was not started")?;
        self.acting.kill()?;
        let killed = Instant::now();
        wait::until("the lease to end", Duration::from_secs(90), || {
            Ok((!lives(pid)).then_some(()))
        })?;
        ensure!(
            killed.elapsed() > Duration::from_secs(40),
            "it ended with the agent, not with its lease"
        );
        self.acting = self.agent.start_tasks()?;
        let machines = bench.0.path().join("tasks/machines");
        wait::until("what is left to go", Duration::from_secs(30), || {
            Ok((folders(&machines)? == 0).then_some(()))
        })
    }

    /// Submits a task, lets things happen, and waits for its end.
    fn task(&mut self, id: &str, kind: &str, params: &str) -> Result<Value> {
        let words = [
            "task",
            "submit",
            NODE,
            "--type",
            kind,
            "--params",
            params,
            "--task-id",
            id,
        ];
        self.site.provider_run(&words)?;
        self.disturb()?;
        // Submitted again, as somebody does who has not heard.
        self.site.provider_run(&words)?;
        wait::until(id, PATIENCE, || {
            let text = self.site.provider_run(&["task", "show", id, "-o", "json"])?;
            let row: Value = serde_json::from_str(&text)?;
            let open = matches!(
                row.get("state").and_then(Value::as_str),
                Some("queued" | "dispatched" | "running")
            );
            Ok((!open).then_some(row))
        })
    }
}

#[test]
fn what_tasks_do_is_done_once_and_never_said_to_be_done_when_it_was_not() -> Result<()> {
    scene::run("once", |scene, kind| {
        let bench = Bench::new()?;
        let mut site = Site::prepare(scene, kind)?;
        site.activate()?;
        site.set("TASKS__LEASE", "3s");
        site.start_provider()?;
        let agent = site.agent(scene, NODE)?;
        agent.configure(&bench.configuration())?;
        let mut beating = agent.start()?;
        site.wait_state(NODE, "active")?;
        let runs = std::env::var("HPC_TEST_RUNS")
            .ok()
            .and_then(|n| n.parse::<u64>().ok());
        // Two tasks a machine.
        let machines = runs.map_or(8, |n| n.saturating_mul(5) / 2).clamp(8, 250);
        let seed = std::env::var("HPC_TEST_SEED").ok().and_then(|n| n.parse().ok());
        let mut story = Story {
            acting: agent.start_tasks()?,
            site,
            agent: &agent,
            dice: Dice(seed.unwrap_or(0x9e37_79b9_7f4a_7c15)),
            killed: [0; 3],
        };
        // What was issued before its record of tasks begins is refused.
        let record = bench.0.path().join("tasks/authority.json");
        wait::until("the record of tasks", Duration::from_secs(60), || {
            Ok(record.exists().then_some(()))
        })?;
        let (mut done, mut undone) = (0, 0);
        for n in 0..machines {
            let vm = format!("vm-{n}");
            let row = story.task(&format!("launch-{n}"), "vm.launch", &bench.launch(&vm, 3600))?;
            let counted = bench.counted(&vm);
            match (row["state"].as_str(), row["code"].as_str()) {
                (Some("completed"), _) => {
                    let (starts, pid) = counted.with_context(|| format!("{vm} was never started: {row}"))?;
                    ensure!(starts == 1, "{vm} was started {starts} times: {row}");
                    ensure!(lives(pid), "{vm} does not live: {row}");
                    done += 1;
                }
                (Some("failed"), Some("task_interrupted")) => {
                    let (starts, pid) = counted.unwrap_or((0, 0));
                    ensure!(starts <= 1 && !lives(pid), "{vm}: {starts} starts, {row}");
                    undone += 1;
                }
                _ => bail!("{vm}: {row}"),
            }
            let params = format!(r#"{{"vm_id":"{vm}","graceful_timeout_seconds":0}}"#);
            let row = story.task(&format!("end-{n}"), "vm.terminate", &params)?;
            ensure!(row["state"] == "completed", "{row}");
            let after = bench.counted(&vm);
            ensure!(
                after.is_none_or(|(starts, pid)| starts == 1 && !lives(pid)),
                "{vm}: {after:?}"
            );
            ensure!(row["result"]["signature"].is_string(), "{row}");
        }
        let [acting, link, gateway] = story.killed;
        println!(
            "{} tasks; {done} machines made, {undone} undone; killed: task agent {acting}, its link {link}, gateway {gateway} times",
            machines * 2
        );
        // A minute of waiting is for long runs.
        if runs.is_some_and(|n| n >= 20) {
            story.lease_without_agent(&bench)?;
        }
        beating.check_alive()?;
        ensure!(
            bench.counted(OUTSIDE).is_none(),
            "a machine began outside its control group"
        );
        ensure!(
            folders(&bench.0.path().join("tasks/machines"))? == 0,
            "machines are left"
        );
        // And nothing is on the host that no journal has.
        agent.run(&["tasks", "safety", "--config", &agent.path("config.yaml")])?;
        Ok(())
    })
}

fn folders(path: &Path) -> Result<usize> {
    Ok(fs::read_dir(path)?.count())
}
