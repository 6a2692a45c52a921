use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use hpc_chain::keys::{Backend, Keyring, Passphrase};
use serde_json::Value;

use crate::agent::Agent;
use crate::site::deadline::Deadline;
use crate::site::{CHAIN_ID, Site, run};

const BIN: &str = env!("CARGO_BIN_EXE_virtengine-provider");
/// An address of a contract that nobody asks.
const CONTRACT: &str = "wasm1qg5ega6dykkxc307y25pecuufrjkxkaggkkxh7nad0vhyhtuhw3sqaa3c5";

fn modes(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        if entry.metadata().unwrap().is_dir() {
            assert_eq!(mode, 0o700, "{:?}", entry.path());
            modes(&entry.path());
        } else {
            assert_eq!(mode, 0o600, "{:?}", entry.path());
        }
    }
}

#[test]
fn init_makes_private_files_once_and_never_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("provider");
    let (out, err, code) = run(
        &home,
        &[],
        &[
            "init",
            "--hostname",
            "gateway.example.com",
            "--address",
            "203.0.113.7",
            "-o",
            "json",
        ],
    );
    assert_eq!(code, 0, "{err}");
    let made: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(made["operator_address"].as_str().unwrap().starts_with("wasm1"));
    assert_ne!(made["operator_address"], made["relayer_address"]);
    modes(&home);
    let before = std::fs::read(home.join("ca/ca.key")).unwrap();
    let (_, err, code) = run(&home, &[], &["init"]);
    assert!(code == 78 && err.contains("never overwrites"), "{err}");
    assert_eq!(std::fs::read(home.join("ca/ca.key")).unwrap(), before);
    assert!(
        !std::fs::read_dir(&home).unwrap().any(|e| e
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(".init"))
    );
    let config = std::fs::read_to_string(home.join("config.yaml")).unwrap();
    assert!(config.contains("https://gateway.example.com:8443"), "{config}");
    // Bad flags leave nothing behind.
    let other = dir.path().join("other");
    assert_ne!(run(&other, &[], &["init", "--hostname", "a b"]).2, 0);
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
}

#[test]
fn a_given_mnemonic_makes_the_paying_key() {
    let dir = tempfile::tempdir().unwrap();
    let words = dir.path().join("words");
    std::fs::write(&words, "abandon ".repeat(11) + "about\n").unwrap();
    std::fs::set_permissions(&words, std::fs::Permissions::from_mode(0o600)).unwrap();
    let home = dir.path().join("provider");
    let (_, err, code) = run(&home, &[], &["init", "--import", words.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    let (address, ..) = run(
        &home,
        &[],
        &["keys", "show", "relayer", "--address", "--prefix", "cosmos"],
    );
    // Known from every Cosmos wallet: m/44'/118'/0'/0/0 of these words.
    assert_eq!(address.trim(), "cosmos19rl4cm2hmr8afy4kldpxz3fka4jguq0auqdal4");
}

#[test]
fn one_key_as_operator_and_as_payer_is_refused_under_whatever_names() {
    let dir = tempfile::tempdir().unwrap();
    let words = dir.path().join("words");
    std::fs::write(&words, "abandon ".repeat(11) + "about\n").unwrap();
    std::fs::set_permissions(&words, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (home, words) = (dir.path().join("provider"), words.to_str().unwrap());
    let init = ["init", "--chain-id", CHAIN_ID, "--contract", CONTRACT];
    let same = ["--import-operator", words, "--import", words];
    let (_, err, code) = run(&home, &[], &[&init[..], &same[..]].concat());
    assert_eq!(code, 0, "{err}");
    // Two names of one account: seen where the keys are opened.
    for command in [&["config", "check"][..], &["run"][..]] {
        let (_, err, code) = run(&home, &[], command);
        assert_eq!(code, 78, "{err}");
        assert!(
            err.contains("keys.operator") && err.contains("keys.relayer names"),
            "{err}"
        );
        assert!(err.contains("virtengine-provider keys add NAME"), "{err}");
    }
    let env = [(
        "VIRTENGINE_PROVIDER__KEYS__RELAYER".to_owned(),
        "operator".to_owned(),
    )];
    let (_, err, code) = run(&home, &env, &["config", "check"]);
    assert_eq!(code, 78, "{err}");
    assert!(
        err.contains("keys.operator") && err.contains("keys.relayer names"),
        "{err}"
    );
}

#[test]
fn bad_configuration_refuses_to_start_with_exit_code_78() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("provider");
    assert_eq!(run(&home, &[], &["run"]).2, 78, "no directory");
    assert_eq!(run(&home, &[], &["init"]).2, 0);
    let (_, err, code) = run(&home, &[], &["config", "check"]);
    assert_eq!(code, 78);
    assert!(err.contains("chain.id"), "{err}");
    let env = [("VIRTENGINE_PROVIDER__CHAIN__CONTRAKT".to_owned(), "x".to_owned())];
    let (_, err, code) = run(&home, &env, &["run"]);
    assert_eq!(code, 78);
    assert!(err.contains("did you mean `contract`?"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_any_ca_speaks_plain_http_to_chain_and_receivers() {
    let site = Site::prepare().await;
    let with = |alertmanager: &str, command: &[&str]| {
        let mut env = site.env();
        let alertmanagers = format!("[{{url: '{alertmanager}'}}]");
        env.extend(
            [
                ("SSL_CERT_FILE", "/dev/null"),
                ("SSL_CERT_DIR", "/dev/null"),
                ("VIRTENGINE_PROVIDER__ALERTS__ALERTMANAGERS", &alertmanagers),
                ("VIRTENGINE_PROVIDER__CHAIN__ID", "other-chain-1"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        run(&site.home(), &env, command)
    };
    let (_, err, code) = with("http://alerts.example.com", &["config", "check"]);
    assert_eq!(code, 0, "{err}");
    let (_, err, code) = with("https://alerts.example.com", &["config", "check"]);
    assert_eq!(code, 78, "{err}");
    assert!(err.contains("No CA certificates"), "{err}");
    // What the chain says of itself.
    let (_, err, code) = with("http://alerts.example.com", &["run"]);
    assert_eq!(code, 78, "{err}");
    assert!(err.contains(CHAIN_ID), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_chain_or_a_missing_contract_refuses_to_start() {
    let site = Site::prepare().await;
    assert_eq!(site.run(&["config", "check"]).2, 0);
    // What `run` would refuse, the check refuses: a secret that others can read.
    let secret = site.home().join("keys/token.key");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (_, err, code) = site.run(&["config", "check"]);
    assert_eq!(code, 78, "{err}");
    assert!(err.contains("token.key"), "{err}");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let with = |key: &str, value: &str| {
        let mut env = site.env();
        env.push((format!("VIRTENGINE_PROVIDER__{key}"), value.to_owned()));
        run(&site.home(), &env, &["run"])
    };
    let (_, err, code) = with("CHAIN__ID", "other-chain-1");
    assert_eq!(code, 78, "{err}");
    assert!(err.contains("chain.id") && err.contains(CHAIN_ID), "{err}");
    let (_, err, code) = with("CHAIN__CONTRACT", CONTRACT);
    assert_eq!(code, 78, "{err}");
    assert!(err.contains("virtengine deploy"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_nodes_are_managed_while_the_daemon_runs() {
    let site = Site::start().await;
    let agent = Agent::new("node-0001");
    let args = [
        "node-token",
        "create",
        "--cluster-id",
        crate::site::CLUSTER,
        "--node-id",
        "node-0001",
        "--pubkey",
    ];
    let (out, err, code) = site.run(&[&args[..], &[&agent.public()]].concat());
    assert_eq!(code, 0, "{err}");
    // Nothing but the token, on one line.
    assert_eq!(out.lines().count(), 1);
    assert_eq!(out.trim().split('.').count(), 3);
    let list = site.run(&["node-token", "list"]).0;
    assert!(list.contains("open") && list.contains("node-0001"), "{list}");
    assert!(!list.contains(out.trim()), "the token itself is not stored");
    let mut agent = agent;
    agent.register(&site, out.trim()).await;
    let nodes: serde_json::Value =
        serde_json::from_str(&site.run(&["node", "list", "-o", "json"]).0).unwrap();
    assert_eq!(nodes[0]["node_id"], "node-0001");
    assert_eq!(nodes[0]["state"], "pending");
    let (out, _, code) = site.run(&["status", "-o", "json"]);
    assert_eq!(code, 0);
    assert!(out.contains("\"reports_waiting\": 0"), "{out}");
    // A second daemon on the directory would sign with the same key.
    let (_, err, code) = site.run(&["run"]);
    assert_eq!(code, 69, "{err}");
    assert!(err.contains("another virtengine-provider"), "{err}");
    let (_, err, code) = site.run(&["node", "show", "node-none"]);
    assert!(code == 1 && err.contains("not on record"), "{err}");
}

#[test]
fn the_keyrings_passphrase_is_changed_by_a_verb_and_the_former_one_opens_nothing() {
    let _deadline = Deadline::of_test();
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("provider");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let (former, next) = (
        file("former", "correct horse\n"),
        file("next", "battery staple\n"),
    );
    let env = |path: &str| [("VIRTENGINE_KEYRING_PASSPHRASE_FILE".to_owned(), path.to_owned())];
    let (_, err, code) = run(&home, &env(&former), &["init"]);
    assert_eq!(code, 0, "{err}");
    let change = ["keys", "passphrase", "--new", &next];
    let (_, err, code) = run(&home, &[], &change);
    assert!(
        code == 78 && err.contains("VIRTENGINE_KEYRING_PASSPHRASE_FILE"),
        "{err}"
    );
    let (_, err, code) = run(&home, &env(&file("wrong", "incorrect horse\n")), &change);
    assert!(code == 78 && err.contains("wrong passphrase"), "{err}");
    let (said, err, code) = run(&home, &env(&former), &change);
    assert!(code == 0 && said.contains("2 keys"), "{said}{err}");
    let keyring = Keyring::open(&home.join("keys/keyring"), Backend::File).unwrap();
    let secret = |text: &str| Passphrase::new(text.to_owned());
    let opens = |name: &str, text: &str| keyring.key(name, |_| Ok(secret(text))).is_ok();
    for name in ["operator", "relayer"] {
        assert!(
            opens(name, "battery staple") && !opens(name, "correct horse"),
            "{name}"
        );
    }
    let (said, err, code) = run(&home, &env(&next), &change);
    assert!(
        code == 0 && said.contains("all 2 keys") && said.contains("already"),
        "{said}{err}"
    );
    // What a killed call has left goes with the next verb; two at once are one too many.
    let left = home.join("keys/keyring/relayer.key.4711.tmp");
    fs::write(&left, "{}").unwrap();
    let resealed = keyring.reseal(&secret("battery staple"), &secret("a third one"));
    let (_, err, code) = run(&home, &env(&next), &change);
    assert!(
        code == 1 && err.contains("invalid_state") && err.contains("keyring"),
        "{err}"
    );
    assert!(left.exists(), "it may be the other call's");
    drop(resealed.unwrap());
    let (_, err, code) = run(&home, &[], &["keys", "list"]);
    assert!(code == 0 && !left.exists(), "{err}");
    // By names of credentials as well, and back.
    let mut credentials = env(&next).to_vec();
    credentials.push(("CREDENTIALS_DIRECTORY".into(), dir.path().display().to_string()));
    let back = ["keys", "passphrase", "--new-credential", "former"];
    let (said, err, code) = run(&home, &credentials, &back);
    assert!(code == 0 && opens("operator", "correct horse"), "{said}{err}");
    let log = run(&home, &[], &["audit", "export"]).0;
    let rows = log.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let rows: Vec<Value> = rows.filter(|r| r["action"] == "keys.passphrase").collect();
    let results: Vec<&str> = rows.iter().map(|r| r["result"].as_str().unwrap()).collect();
    let ends = [
        ["failed", "failed"],
        ["begun", "done"],
        ["begun", "done"],
        ["failed", "begun"],
    ];
    assert_eq!(results, [&ends.concat()[..], &["done"]].concat());
    assert!(
        rows[2].to_string().contains("operator") && rows[2].to_string().contains("relayer"),
        "{log}"
    );
    assert!(!log.contains("staple") && !log.contains("horse"), "{log}");
}

#[test]
fn a_completion_script_that_cannot_be_written_is_no_panic_and_one_that_is_read_no_more_no_error() {
    let _deadline = Deadline::of_test();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let to = |out: Stdio| {
        let mut command = Command::new(BIN);
        command
            .args(["completions", "bash"])
            .stdout(out)
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let out = to(full.into()).wait_with_output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(74), "{err}");
    assert!(err.contains("standard output"), "{err}");
    let mut unread = to(Stdio::piped());
    drop(unread.stdout.take());
    let out = unread.wait_with_output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success() && err.is_empty(), "{err}");
}

#[test]
fn a_credential_is_made_only_where_its_file_can_be_and_a_bare_name_is_one() {
    let _deadline = Deadline::of_test();
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("provider");
    let (_, err, code) = run(&home, &[], &["init"]);
    assert_eq!(code, 0, "{err}");
    let create = |more: &[&str]| {
        let mut command = Command::new(BIN);
        command.args(["admin-token", "create", "--name", "alice", "--role", "viewer"]);
        command
            .args(more)
            .arg("--home")
            .arg(&home)
            .current_dir(dir.path());
        let out = command.output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let made = || {
        let list = run(&home, &[], &["admin-token", "list", "-o", "json"]).0;
        serde_json::from_str::<Value>(&list)
            .unwrap()
            .as_array()
            .unwrap()
            .len()
    };
    let (code, err) = create(&["--token-file", "absent/alice.token"]);
    assert!(code == Some(1) && err.contains("absent/alice.token"), "{err}");
    let (code, err) = create(&["--token-file", "alice.token", "--expires", "400d"]);
    assert!(code == Some(1) && err.contains("expires"), "{err}");
    assert_eq!((made(), dir.path().join("alice.token").exists()), (0, false));
    let (code, err) = create(&["--token-file", "alice.token", "--expires", "7d"]);
    assert_eq!(code, Some(0), "{err}");
    let file = dir.path().join("alice.token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).unwrap().is_empty());
    let (code, err) = create(&["--token-file", "alice.token"]);
    assert!(code == Some(1) && err.contains("is there already"), "{err}");
    assert_eq!(made(), 1);
}

#[test]
fn what_is_wrong_with_keys_and_certificates_is_told_with_its_key_or_file_and_what_helps() {
    let _deadline = Deadline::of_test();
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("provider");
    let init = ["init", "--chain-id", CHAIN_ID, "--contract", CONTRACT];
    let (_, err, code) = run(&home, &[], &init);
    assert_eq!(code, 0, "{err}");
    let with = |key: &str, value: &str, args: &[&str]| {
        let env = [(format!("VIRTENGINE_PROVIDER__{key}"), value.to_owned())];
        run(&home, &env, args)
    };
    let check = ["config", "check"];
    let (_, err, code) = with("ALERTS__CERTIFICATE_BEFORE", "14d", &check);
    assert_eq!(code, 0, "{err}");
    let (_, err, code) = with("LOG__LEVEL", "inof", &check);
    assert!(
        code == 78 && err.contains("log.level") && err.contains("inof"),
        "{err}"
    );
    let (_, err, code) = with("KEYS__RELAYER", "relayer-3", &check);
    assert!(
        code == 78 && err.contains("keys.relayer") && err.contains("virtengine-provider keys add relayer-3"),
        "{err}"
    );
    // What it says helps, with the configuration as it is.
    let (_, err, code) = with("KEYS__RELAYER", "relayer-3", &["keys", "add", "relayer-3"]);
    assert_eq!(code, 0, "{err}");
    let (_, err, code) = with("KEYS__RELAYER", "relayer-3", &check);
    assert_eq!(code, 0, "{err}");
    let key = home.join("gateway/server.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let (_, err, code) = run(&home, &[], &check);
    assert!(
        code == 78 && err.contains("gateway/server.key") && err.matches("mode 640").count() == 1,
        "{err}"
    );
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, fs::read(home.join("ca/ca.key")).unwrap()).unwrap();
    let (_, err, code) = run(&home, &[], &check);
    assert!(
        code == 78 && err.contains("gateway/server.key: is not the key"),
        "{err}"
    );
    // Nobody hears it.
    let (out, err, code) = run(&home, &[], &["reload"]);
    assert!(code == 69 && err.contains("no daemon runs on"), "{out}{err}");
}

#[test]
fn what_root_makes_in_the_home_of_another_user_belongs_to_that_user() {
    const SERVICE: u32 = 4711;
    let _deadline = Deadline::of_test();
    let dir = tempfile::tempdir().unwrap();
    if dir.path().metadata().unwrap().uid() != 0 {
        // Nobody else's files can be made.
        return;
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let home = dir.path().join("provider");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(SERVICE), Some(SERVICE)).unwrap();
    for command in [
        &["init"][..],
        &["keys", "add", "relayer-2"],
        &["keys", "task", "--cluster-id", "hpc-cluster-1"],
        &["keys", "rotate-token"],
    ] {
        let (_, err, code) = run(&home, &[], command);
        assert_eq!(code, 0, "{command:?}: {err}");
        assert!(err.contains("as user id 4711"), "{err}");
    }
    let mut folders = vec![home.clone()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            assert_eq!(meta.uid(), SERVICE, "{:?}", entry.path());
            if meta.is_dir() {
                folders.push(entry.path());
            }
            files += 1;
        }
    }
    assert!(files > 10, "{files}");
    // What is root's alone is not open to it, which is said.
    let ours = dir.path().join("ours");
    fs::create_dir(&ours).unwrap();
    fs::set_permissions(&ours, fs::Permissions::from_mode(0o700)).unwrap();
    let file = ours.join("alice.token");
    let create = ["admin-token", "create", "--name", "alice", "--role", "viewer"];
    let to = ["--token-file", file.to_str().unwrap()];
    let (_, err, code) = run(&home, &[], &[&create[..], &to[..]].concat());
    assert!(code == 1 && err.contains("must be open to user id 4711"), "{err}");
    // So is what root has left in the home.
    let lock = home.join("lock");
    fs::write(&lock, "").unwrap();
    chown(&lock, Some(0), Some(0)).unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
    let (_, err, code) = run(&home, &[], &["reload"]);
    assert!(code == 78 && err.contains("chown -R 4711:4711"), "{err}");
    // The daemon stays root; it ends for want of a chain.
    let (_, err, code) = run(&home, &[], &["run"]);
    assert!(code == 78 && !err.contains("user id 4711"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slip_in_a_clusters_name_makes_neither_a_token_nor_a_task_key() {
    const SLIP: &str = "hpc-cluster-l";
    let site = Site::prepare().await;
    let public = Agent::new("node-0001").public();
    let keys = site.home().join("keys/tasks");
    let create = [
        "node-token",
        "create",
        "--node-id",
        "node-0001",
        "--pubkey",
        &public,
    ];
    let join = ["node-token", "join", "--uses", "2"];
    let cluster = ["--cluster-id", SLIP];
    for command in [&create[..], &join[..]] {
        let (out, err, code) = site.run(&[command, &cluster[..]].concat());
        assert!(code == 1 && out.is_empty(), "{out}{err}");
        assert!(err.contains(SLIP) && err.contains("chain.clusters"), "{err}");
    }
    assert_eq!(fs::read_dir(&keys).unwrap().count(), 0);
    // One that is to come is named.
    let mut env = site.env();
    env.push((
        "VIRTENGINE_PROVIDER__CHAIN__CLUSTERS".to_owned(),
        format!("[{SLIP}]"),
    ));
    let (_, err, code) = run(&site.home(), &env, &[&join[..], &cluster[..]].concat());
    assert_eq!(code, 0, "{err}");
    // A rotation that the chain refuses leaves no key beside the present one.
    let (_, err, code) = site.run(&[&["keys", "rotate-task"][..], &cluster[..]].concat());
    assert_ne!(code, 0, "{err}");
    let names: Vec<String> = fs::read_dir(&keys)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, [format!("{SLIP}.key")]);
}
