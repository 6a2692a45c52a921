//! Keys in devices: a TPM 2.0 (swtpm) and an HSM by PKCS#11 (SoftHSM2), each with a real agent.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gateway::{Gateway, Home, read, until_caught, until_status};
use hpc_schema::key::AgentKey;
use virtengine_node_agent::key::load;

/// What a failure says where a tool is missing.
const REMEDY: &str = "apt-get install swtpm tpm2-tools softhsm2, or scripts/test --install --only agent";

fn free() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Whether somebody listens on the port, as the kernel has it.
fn listens(port: u16) -> bool {
    let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let door = format!(":{port:04X} 00000000:0000 0A ");
    all.contains(&door)
}

/// A software TPM; ends with the test.
struct Tpm {
    child: Child,
    tcti: String,
    state: PathBuf,
}

impl Tpm {
    /// tpm2-tools expect the control port right above the other.
    fn start(state: &Path) -> Self {
        std::fs::create_dir_all(state).unwrap();
        for _ in 0..20 {
            let port = free();
            let mut child = Command::new("swtpm")
                .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
                .arg("--tpmstate")
                .arg(format!("dir={}", state.display()))
                .arg("--server")
                .arg(format!("type=tcp,port={port}"))
                .arg("--ctrl")
                .arg(format!("type=tcp,port={}", port + 1))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect(REMEDY);
            // It ends at once where a port is taken, and takes one connection at a time: it is not asked.
            let begun = Instant::now();
            while child.try_wait().unwrap().is_none() {
                if listens(port) && listens(port + 1) {
                    return Self {
                        child,
                        tcti: format!("swtpm:host=127.0.0.1,port={port}"),
                        state: state.to_owned(),
                    };
                }
                assert!(begun.elapsed() < Duration::from_secs(30), "swtpm listens nowhere");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        panic!("swtpm does not start");
    }
}

impl Drop for Tpm {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A SoftHSM token with a PIN file.
struct Hsm {
    conf: PathBuf,
    pin: PathBuf,
    module: &'static str,
}

impl Hsm {
    fn new(dir: &Path) -> Self {
        let conf = dir.join("softhsm2.conf");
        let tokens = dir.join("tokens");
        std::fs::create_dir_all(&tokens).unwrap();
        std::fs::write(&conf, format!("directories.tokendir = {}\n", tokens.display())).unwrap();
        let out = Command::new("softhsm2-util")
            .env("SOFTHSM2_CONF", &conf)
            .args([
                "--init-token",
                "--free",
                "--label",
                "node",
                "--so-pin",
                "1234",
                "--pin",
                "4321",
            ])
            .output()
            .expect(REMEDY);
        assert!(out.status.success(), "{out:?}");
        let pin = dir.join("pin");
        std::fs::write(&pin, "4321\n").unwrap();
        std::fs::set_permissions(&pin, PermissionsExt::from_mode(0o600)).unwrap();
        let module = [
            "/usr/lib/softhsm/libsofthsm2.so",
            "/usr/lib64/pkcs11/libsofthsm2.so",
        ]
        .into_iter()
        .find(|p| Path::new(p).exists())
        .expect(REMEDY);
        Self { conf, pin, module }
    }

    fn store(&self) -> Vec<String> {
        let words = [
            "--store",
            "pkcs11",
            "--pkcs11-module",
            self.module,
            "--pkcs11-token",
            "node",
        ];
        let mut all: Vec<String> = words.map(str::to_owned).to_vec();
        all.extend(["--pin-file".to_owned(), self.pin.display().to_string()]);
        all
    }
}

fn agent() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"));
    c.env_clear().stdin(Stdio::null());
    c
}

fn run(arguments: &[&str], hsm: Option<&Hsm>) -> Output {
    let mut c = agent();
    c.envs(hsm.map(|h| ("SOFTHSM2_CONF", &h.conf)));
    c.args(arguments).output().unwrap()
}

#[track_caller]
fn good(out: &Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn keygen(home: &Home, store: &[String], hsm: Option<&Hsm>) -> AgentKey {
    let keys = home.path("keys");
    std::fs::remove_dir_all(&keys).ok();
    let mut arguments = vec!["keygen", "--output-dir", keys.to_str().unwrap()];
    arguments.extend(store.iter().map(String::as_str));
    let mut c = agent();
    c.envs(hsm.map(|h| ("SOFTHSM2_CONF", &h.conf)));
    good(
        &c.env("TMPDIR", temporary(home.dir.path()))
            .args(arguments)
            .output()
            .unwrap(),
    );
    read(&keys.join("agent.pub")).trim().parse().unwrap()
}

fn place(home: &Home, hsm: Option<&Hsm>) -> serde_json::Value {
    let key = home.path("keys/agent.key");
    let out = good(&run(
        &["key", "show", "--key", key.to_str().unwrap(), "-o", "json"],
        hsm,
    ));
    serde_json::from_str::<serde_json::Value>(&out).unwrap()["place"].clone()
}

/// The agent as a process; ends with the test.
struct Daemon(Child);

impl Daemon {
    fn start(config: &Path, hsm: Option<&Hsm>) -> Self {
        let mut c = agent();
        c.envs(hsm.map(|h| ("SOFTHSM2_CONF", &h.conf)));
        c.env("TMPDIR", temporary(config.parent().unwrap()));
        c.args(["run", "--heartbeat-interval", "10s", "--config"])
            .arg(config);
        Self(c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// The process that talks to the HSM.
    fn helper(&self) -> Option<i32> {
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let all = std::fs::read_to_string(children).unwrap_or_default();
        all.split_whitespace().find_map(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            line.contains("sign-pkcs11").then(|| pid.parse().unwrap())
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A stopped one would not notice that its agent is gone.
        let helper = self.helper().and_then(rustix::process::Pid::from_raw);
        self.0.kill().ok();
        self.0.wait().ok();
        if let Some(pid) = helper {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        }
    }
}

fn config(home: &Home, gateway: &Gateway, key: &AgentKey) -> PathBuf {
    home.configure(&[gateway.url()], Some(&gateway.token(key)))
}

/// Of this node alone: other tests ask TPMs at the same time.
fn temporary(home: &Path) -> PathBuf {
    let folder = home.join("tmp");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Names of the folders that hold a TPM's files while it is asked.
fn folders_of_tpms(home: &Home) -> Vec<String> {
    let names = std::fs::read_dir(temporary(home.dir.path())).unwrap();
    let names = names.map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|n| n.starts_with("virtengine-tpm-")).collect()
}

#[tokio::test]
async fn a_key_sealed_by_a_tpm_registers_and_beats_and_no_other_tpm_gives_it_away() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let tpm = Tpm::start(&home.path("tpm"));
    let store = ["--store", "tpm", "--tpm-tcti", &tpm.tcti].map(str::to_owned);
    let public = keygen(&home, &store, None);
    let path = home.path("keys/agent.key");
    let text = read(&path);
    assert!(
        !text.contains("PRIVATE KEY") && text.contains("sealed_private"),
        "{text}"
    );
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(place(&home, None)["store"], "tpm2");
    let daemon = Daemon::start(&config(&home, &gateway, &public), None);
    gateway.until_heartbeats(1).await;
    assert_eq!(gateway.seen().keys, [public]);
    drop(daemon);

    // Unsealed at the start alone: the TPM may go while the agent runs. Nothing of it stays behind.
    assert_eq!(folders_of_tpms(&home), Vec::<String>::new());

    // The node has lost its disk, but for what its image holds: the sealed key and a token that is used up.
    for folder in ["state", "tls"] {
        std::fs::remove_dir_all(home.path(folder)).unwrap();
    }
    let count = gateway.seen().heartbeats.len();
    let daemon = Daemon::start(&config(&home, &gateway, &public), None);
    gateway.until_heartbeats(count + 1).await;
    drop(daemon);
    {
        let seen = gateway.seen();
        assert_eq!((seen.recoveries, seen.refusals.len()), (1, 0));
        assert!(
            seen.sequences.windows(2).all(|w| w[0] < w[1]),
            "{:?}",
            seen.sequences
        );
    }

    // A TPM that does not answer: the agent waits for it, and ends when it is told to.
    let pid = |child: &Child| rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid(&tpm.child), rustix::process::Signal::STOP).unwrap();
    let mut daemon = Daemon::start(&config(&home, &gateway, &public), None);
    until_caught(daemon.0.id(), rustix::process::Signal::TERM.as_raw()).await;
    std::thread::sleep(Duration::from_secs(2));
    assert!(daemon.0.try_wait().unwrap().is_none(), "it waits");
    rustix::process::kill_process(pid(&daemon.0), rustix::process::Signal::TERM).unwrap();
    let told = Instant::now();
    let end = loop {
        if let Some(end) = daemon.0.try_wait().unwrap() {
            break end;
        }
        assert!(told.elapsed() < Duration::from_secs(5), "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(end.success(), "{end}");
    rustix::process::kill_process(pid(&tpm.child), rustix::process::Signal::CONT).unwrap();
    let before = folders_of_tpms(&home);

    // Another TPM, as after a change of the mainboard or a theft of the disk.
    let state = tpm.state.clone();
    drop(tpm);
    std::fs::remove_dir_all(&state).unwrap();
    let other = Tpm::start(&state);
    std::fs::write(&path, text.replace(&port_of(&text), &port_of(&other.tcti))).unwrap();
    let e = load(&path).unwrap_err().to_string();
    assert!(e.contains("TPM"), "{e}");
    let mut migrate = agent();
    migrate.env("TMPDIR", temporary(home.dir.path()));
    migrate
        .args(["key", "migrate", "--store", "file", "--key"])
        .arg(&path);
    let out = migrate.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("TPM"), "{said}");
    assert_eq!(folders_of_tpms(&home), before, "nothing of a failure stays");
}

/// The port in a TCTI.
fn port_of(text: &str) -> String {
    let tail = text.split("port=").nth(1).unwrap();
    let digits: String = tail.chars().take_while(char::is_ascii_digit).collect();
    format!("port={digits}")
}

#[tokio::test]
async fn a_key_moves_between_file_and_tpm_and_stays_the_same() {
    let home = Home::new();
    let tpm = Tpm::start(&home.path("tpm"));
    let key = home.path("keys/agent.key");
    let key = key.to_str().unwrap();
    let before = home.key.public();
    let migrate = |words: &[&str]| {
        let mut arguments = vec!["key", "migrate", "--key", key];
        arguments.extend(words);
        run(&arguments, None)
    };
    good(&migrate(&["--store", "tpm", "--tpm-tcti", &tpm.tcti]));
    assert_eq!(
        (
            place(&home, None)["store"].as_str(),
            load(Path::new(key)).unwrap().public()
        ),
        (Some("tpm2"), before)
    );
    good(&migrate(&["--store", "file"]));
    assert_eq!(
        (
            place(&home, None)["store"].as_str(),
            load(Path::new(key)).unwrap().public()
        ),
        (Some("file"), before)
    );
    // Into an HSM no key is moved: it makes its own.
    let hsm = Hsm::new(home.dir.path());
    let words = hsm.store();
    let out = migrate(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(out.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("key rotate"),
        "{out:?}"
    );
}

#[tokio::test]
async fn an_hsm_signs_and_a_lost_session_or_a_hanging_device_is_survived() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let hsm = Hsm::new(home.dir.path());
    let public = keygen(&home, &hsm.store(), Some(&hsm));
    let shown = place(&home, Some(&hsm));
    assert_eq!(
        (&shown["store"], &shown["token"]),
        (&"pkcs11".into(), &"node".into())
    );
    gateway.behaviour().next_heartbeat_seconds = 10;
    let daemon = Daemon::start(&config(&home, &gateway, &public), Some(&hsm));
    gateway.until_heartbeats(1).await;
    assert_eq!(gateway.seen().keys, [public]);
    // The session dies with its process; the next heartbeat is on time all the same.
    let pid = rustix::process::Pid::from_raw(daemon.helper().expect("a helper")).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let start = Instant::now();
    gateway.until_heartbeats(2).await;
    // The interval, and what a busy machine may take for a new session.
    assert!(start.elapsed() < Duration::from_secs(14), "{:?}", start.elapsed());
    // It hangs: the agent gives up within its limit, starts another and goes on.
    let hanging = daemon.helper().expect("another helper");
    let pid = rustix::process::Pid::from_raw(hanging).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // One may have been signed before it was stopped.
    let before = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(before + 2).await;
    assert_ne!(daemon.helper(), Some(hanging));
    assert!(gateway.seen().refusals.is_empty());
}

#[tokio::test]
async fn a_pin_comes_as_a_credential_of_systemd() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let hsm = Hsm::new(home.dir.path());
    std::fs::remove_dir_all(home.path("keys")).unwrap();
    let keys = home.path("keys");
    // As systemd hands it to the unit: a folder of its own, a file that is readable for the unit alone.
    let folder = home.path("credentials");
    std::fs::create_dir(&folder).unwrap();
    std::fs::rename(&hsm.pin, folder.join("hsm-pin")).unwrap();
    let mut words = hsm.store();
    words.truncate(words.len() - 2);
    let make = |with: &[(&str, &Path)]| {
        let mut c = agent();
        c.envs(with.iter().copied()).env("SOFTHSM2_CONF", &hsm.conf);
        c.args(["keygen", "--output-dir"]).arg(&keys).args(&words);
        c.args(["--pin-credential", "hsm-pin"]).output().unwrap()
    };
    let out = make(&[]);
    assert!(!out.status.success());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("LoadCredential=hsm-pin"), "{said}");
    good(&make(&[("CREDENTIALS_DIRECTORY", &folder)]));
    let public: AgentKey = read(&keys.join("agent.pub")).trim().parse().unwrap();
    let mut c = agent();
    c.env("SOFTHSM2_CONF", &hsm.conf)
        .env("CREDENTIALS_DIRECTORY", &folder)
        .args(["run", "--config"])
        .arg(config(&home, &gateway, &public));
    let _daemon = Daemon(c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    gateway.until_heartbeats(1).await;
    assert_eq!(gateway.seen().keys, [public]);
}

#[tokio::test]
async fn a_key_in_a_file_is_rotated_into_an_hsm_that_makes_its_own() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let hsm = Hsm::new(home.dir.path());
    let old = gateway::registered(&gateway, &home).await;
    let config = home.configure(&[gateway.url()], None);
    let config = config.to_str().unwrap();
    let mut prepare = vec!["key", "rotate", "--config", config];
    let words = hsm.store();
    prepare.extend(words.iter().map(String::as_str));
    good(&run(&prepare, Some(&hsm)));
    let next: AgentKey = read(&home.path("keys/agent.next.pub")).trim().parse().unwrap();
    let token = home.path("next-token");
    std::fs::write(&token, gateway.shared.token(&next, "token-2")).unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let rotate = [
        "key",
        "rotate",
        "--config",
        config,
        "--token-file",
        token.to_str().unwrap(),
    ];
    // Not waited for on this thread: the gateway lives on it.
    let out = tokio::process::Command::from(agent())
        .env("SOFTHSM2_CONF", &hsm.conf)
        .args(rotate)
        .output()
        .await
        .unwrap();
    good(&out);
    assert_eq!(place(&home, Some(&hsm))["store"], "pkcs11");
    let _daemon = Daemon::start(Path::new(config), Some(&hsm));
    gateway.until_heartbeats(1).await;
    assert_eq!(gateway.seen().keys, [next]);
    assert_ne!(old.public_key, next);
}

#[tokio::test]
async fn a_refused_pin_ends_no_agent_that_would_be_started_again_to_try_it_again() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let hsm = Hsm::new(home.dir.path());
    let public = keygen(&home, &hsm.store(), Some(&hsm));
    std::fs::write(&hsm.pin, "9999").unwrap();
    let mut daemon = Daemon::start(&config(&home, &gateway, &public), Some(&hsm));
    let told = until_status(&home, "the PIN", |s| s.last_refusal.is_some()).await;
    let refusal = told.last_refusal.unwrap();
    assert_eq!(refusal.code, "pin_refused", "{refusal:?}");
    assert!(refusal.message.contains("PIN") && !refusal.message.contains("9999"));
    assert!(refusal.remedy.contains("restart the agent"), "{refusal:?}");
    assert!(gateway.seen().registrations.is_empty());
    // One that has ended by itself has another exit code than one that was told to.
    let pid = rustix::process::Pid::from_raw(i32::try_from(daemon.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let end = daemon.0.wait().unwrap();
    assert!(end.success(), "{end}");
}

#[tokio::test]
async fn a_pin_that_others_can_read_or_that_is_wrong_is_told_with_its_remedy() {
    let home = Home::new();
    let hsm = Hsm::new(home.dir.path());
    keygen(&home, &hsm.store(), Some(&hsm));
    let said = |out: &Output| String::from_utf8_lossy(&out.stderr).into_owned();
    let dir = home.path("more");
    let mut arguments = vec!["keygen", "--output-dir", dir.to_str().unwrap()];
    let words = hsm.store();
    arguments.extend(words.iter().map(String::as_str));
    std::fs::set_permissions(&hsm.pin, PermissionsExt::from_mode(0o644)).unwrap();
    let out = run(&arguments, Some(&hsm));
    assert!(said(&out).contains("chmod 600"), "{}", said(&out));
    std::fs::set_permissions(&hsm.pin, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(&hsm.pin, "9999").unwrap();
    let out = run(&arguments, Some(&hsm));
    assert!(
        said(&out).contains("PIN") && !said(&out).contains("9999"),
        "{}",
        said(&out)
    );
    let out = run(
        &[
            "keygen",
            "--output-dir",
            dir.to_str().unwrap(),
            "--store",
            "pkcs11",
        ],
        None,
    );
    assert!(said(&out).contains("--pkcs11-module"), "{}", said(&out));
}
