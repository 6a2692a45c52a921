//! A new key for a node that runs: nothing is lost, whatever is killed on the way.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use gateway::{Gateway, Home, Running, quick, read, registered, status};
use hpc_schema::key::AgentKey;
use tokio::process::{Child, Command};
use virtengine_node_agent::fault::STEPS;
use virtengine_node_agent::key::load;
use virtengine_node_agent::state::{Outages, Registration, StateDir};
use virtengine_node_agent::uplink::{CaPin, certificates};

fn command(home: &Home, arguments: &[&str], fault: Option<&str>) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"));
    c.args(arguments)
        .args(["--config", home.path("config.yaml").to_str().unwrap()])
        .env_clear()
        .envs(fault.map(|step| ("VIRTENGINE_AGENT_FAULT", step)))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    c
}

async fn rotate(home: &Home, token: Option<&Path>, fault: Option<&str>) -> Output {
    let mut arguments = vec!["key", "rotate"];
    if let Some(token) = token {
        arguments.extend(["--token-file", token.to_str().unwrap()]);
    }
    command(home, &arguments, fault).output().await.unwrap()
}

/// The first half: a key to come, and the token that the provider makes for it.
async fn prepared(gateway: &Gateway, home: &Home) -> (AgentKey, std::path::PathBuf) {
    let out = rotate(home, None, None).await;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let public = read(&home.path("keys/agent.next.pub"));
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(
        said.contains(public.trim()) && said.contains("node-token create"),
        "{said}"
    );
    let next: AgentKey = public.trim().parse().unwrap();
    let token = home.path("next-token");
    std::fs::write(&token, gateway.shared.token(&next, "token-2")).unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    (next, token)
}

fn on_disk(home: &Home) -> Registration {
    Registration::load(&StateDir::new(&home.path("state")))
        .unwrap()
        .unwrap()
}

fn daemon(home: &Home, fault: Option<&str>) -> Child {
    let mut c = command(home, &["run"], fault);
    c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn a_running_agent_goes_on_with_the_new_key_and_loses_no_heartbeat() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let old = registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(3).await;
    let (next, token) = prepared(&gateway, &home).await;
    // Nothing has changed so far.
    assert_eq!(
        load(&home.path("keys/agent.key")).unwrap().public(),
        old.public_key
    );
    let out = rotate(&home, Some(&token), None).await;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 3).await;
    agent.stop().await;
    {
        let seen = gateway.seen();
        assert!(seen.refusals.is_empty(), "{:?}", seen.refusals);
        assert_eq!((seen.keys[0], *seen.keys.last().unwrap()), (old.public_key, next));
        // The new epoch counts from 1; the old certificate was shown once and not again.
        let first = seen.keys.iter().position(|k| *k == next).unwrap();
        assert_eq!(seen.heartbeats[first].report.sequence, 1);
        // None, where it has found the new registration on the disk before.
        let shown = (seen.replaced, seen.recoveries);
        assert!(matches!(shown, (1, 1) | (0, 0)), "{shown:?}");
        let gaps = seen.arrived.windows(2).map(|w| w[1] - w[0]);
        // No heartbeat of ten seconds would be late.
        assert!(gaps.max().unwrap() < Duration::from_secs(9));
    }
    let s = status(&home);
    assert_eq!((s.failed, s.last_refusal, s.last_error), (0, None, None));
    assert_eq!(
        Outages::load(&StateDir::new(&home.path("state"))).iter().count(),
        0
    );
    // What a person and the next start find.
    let r = on_disk(&home);
    assert_eq!(
        (r.public_key, r.epoch, r.jti.as_str()),
        (next, old.epoch + 1, "token-2")
    );
    assert_eq!(load(&home.path("keys/agent.key")).unwrap().public(), next);
    assert_eq!(read(&home.path("keys/agent.pub")).trim(), next.to_base64());
    let mut names: Vec<_> = std::fs::read_dir(home.path("keys"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["agent.key", "agent.key.lock", "agent.pub"]);
    // The same command again changes nothing and is no error.
    let requests = gateway.seen().registrations.len();
    let out = rotate(&home, Some(&token), None).await;
    assert!(String::from_utf8(out.stdout).unwrap().contains(&next.to_base64()));
    assert_eq!(gateway.seen().registrations.len(), requests);
    let agent = Running::start(&home, &[gateway.url()], quick());
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 1).await;
    agent.stop().await;
}

/// Waits for a heartbeat of a freshly started agent.
async fn beats(gateway: &Gateway, home: &Home, what: &str) -> AgentKey {
    let n = gateway.seen().heartbeats.len();
    let start = Instant::now();
    let mut agent = daemon(home, None);
    gateway.until(what, |s| s.heartbeats.len() > n).await;
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{what}: {:?}",
        start.elapsed()
    );
    agent.kill().await.unwrap();
    *gateway.seen().keys.last().unwrap()
}

#[tokio::test]
async fn killed_at_any_step_either_the_old_or_the_new_key_works() {
    for step in STEPS.iter().filter(|s| !s.starts_with("adopt")) {
        let gateway = Gateway::start().await;
        let home = Home::new();
        let old = registered(&gateway, &home).await;
        home.configure(&[gateway.url()], None);
        let (next, token) = prepared(&gateway, &home).await;
        let out = rotate(&home, Some(&token), Some(step)).await;
        assert_eq!(out.status.signal(), Some(9), "{step}: {out:?}");
        // What the gateway knows decides which of them it is.
        let replaced = gateway.shared.epoch.load(std::sync::atomic::Ordering::SeqCst) > old.epoch;
        let expected = if replaced { next } else { old.public_key };
        assert_eq!(beats(&gateway, &home, step).await, expected, "{step}");
        // The command is repeated and comes to its end.
        let out = rotate(&home, Some(&token), None).await;
        assert!(
            out.status.success(),
            "{step}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert_eq!(beats(&gateway, &home, step).await, next, "{step}");
        assert!(gateway.seen().refusals.is_empty(), "{step}");
        assert_eq!(
            load(&home.path("keys/agent.key")).unwrap().public(),
            next,
            "{step}"
        );
    }
}

#[tokio::test]
async fn an_agent_that_dies_while_it_takes_the_new_key_over_comes_back_with_it() {
    for step in STEPS.iter().filter(|s| s.starts_with("adopt")) {
        let gateway = Gateway::start().await;
        let home = Home::new();
        registered(&gateway, &home).await;
        home.configure(&[gateway.url()], None);
        let (next, token) = prepared(&gateway, &home).await;
        // Registered at the gateway, and nothing of it written down.
        let out = rotate(&home, Some(&token), Some("register.answered")).await;
        assert_eq!(out.status.signal(), Some(9), "{out:?}");
        let died = daemon(&home, Some(step)).wait().await.unwrap();
        assert_eq!(died.signal(), Some(9), "{step}");
        assert_eq!(beats(&gateway, &home, step).await, next, "{step}");
    }
}

#[tokio::test]
async fn a_registration_that_is_cut_off_leaves_the_former_one_and_its_ca_and_one_that_ends_its_own_alone() {
    let (before, gateway) = (Gateway::start().await, Gateway::start().await);
    gateway.shared.epoch.store(8, std::sync::atomic::Ordering::SeqCst);
    let home = Home::new();
    let old = registered(&before, &home).await;
    // The node has to know either CA.
    before.behaviour().keeps_ca = true;
    let token = gateway.shared.token(&home.key.public(), "token-2");
    home.configure(&[gateway.url()], Some(&token));
    let out = command(&home, &["register"], Some("register.certified"))
        .output()
        .await
        .unwrap();
    assert_eq!(out.status.signal(), Some(9), "{out:?}");
    assert_eq!(on_disk(&home).jti, old.jti);
    home.configure(&[before.url()], None);
    beats(&before, &home, "the former registration").await;
    home.configure(&[gateway.url()], Some(&token));
    let out = command(&home, &["register"], None).output().await.unwrap();
    assert!(out.status.success(), "{out:?}");
    assert_eq!(on_disk(&home).jti, "token-2");
    let held = certificates(&read(&home.path("tls/ca.crt")));
    let held: Vec<String> = held.iter().map(|c| CaPin::of(c).to_string()).collect();
    assert_eq!(held, [gateway.shared.authority.fingerprint()]);
    gateway.behaviour().keeps_ca = true;
    home.configure(&[gateway.url()], None);
    beats(&gateway, &home, "the new registration").await;
}

#[tokio::test]
async fn a_place_that_is_named_after_the_key_to_come_was_made_is_refused_and_a_key_is_not_moved_below_it() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let old = registered(&gateway, &home).await;
    home.configure(&[gateway.url()], None);
    let (next, token) = prepared(&gateway, &home).await;
    let key = home.path("keys/agent.key");
    let token = token.to_str().unwrap();
    let rotate = ["key", "rotate", "--store", "tpm", "--token-file", token];
    let out = command(&home, &rotate, None).output().await.unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("key rotate --abandon"), "{said}");
    assert_eq!(on_disk(&home).public_key, old.public_key);
    let out = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
        .args(["key", "migrate", "--store", "file", "--key"])
        .arg(&key)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("agent.key.next"), "{said}");
    // Where the new one lives is told.
    let rotate = ["key", "rotate", "--token-file", token];
    let out = command(&home, &rotate, None).output().await.unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains(&format!("is now {next}, in its file")), "{out:?}");
}

#[tokio::test]
async fn a_token_for_another_key_rotates_nothing_and_the_right_one_then_does() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let old = registered(&gateway, &home).await;
    home.configure(&[gateway.url()], None);
    let (next, token) = prepared(&gateway, &home).await;
    let right = read(&token);
    let to_make = format!("--pubkey {next}");
    // Of another node's key; of the registered one; the very one that this was registered with.
    for (key, jti, whose) in [
        (Home::new().key.public(), "token-2", "for another key"),
        (old.public_key, "token-2", "for the registered key"),
        (old.public_key, old.jti.as_str(), "for the registered key"),
    ] {
        std::fs::write(&token, gateway.shared.token(&key, jti)).unwrap();
        let out = rotate(&home, Some(&token), None).await;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{said}");
        for part in [
            whose,
            "not for the new key",
            "nothing is rotated",
            to_make.as_str(),
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(out.stdout.is_empty(), "{out:?}");
        assert_eq!(on_disk(&home).public_key, old.public_key);
    }
    std::fs::write(&token, &right).unwrap();
    let out = rotate(&home, Some(&token), None).await;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(on_disk(&home).public_key, next);
    // A rotation that begins anew is not the one that this token has ended.
    let out = rotate(&home, None, None).await;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = rotate(&home, Some(&token), None).await;
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}

#[tokio::test]
async fn a_token_for_the_registered_key_is_no_rotation_though_no_other_key_waits() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let old = registered(&gateway, &home).await;
    home.configure(&[gateway.url()], None);
    let token = home.path("next-token");
    // The very one that this was registered with: nothing is left to do, and no key is made.
    std::fs::write(&token, gateway.shared.token(&old.public_key, &old.jti)).unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let out = rotate(&home, Some(&token), None).await;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{out:?}");
    assert!(
        said.contains("there is nothing to do") && !said.contains("is now"),
        "{said}"
    );
    std::fs::write(&token, gateway.shared.token(&old.public_key, "token-2")).unwrap();
    let out = rotate(&home, Some(&token), None).await;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{said}");
    let next = read(&home.path("keys/agent.next.pub"));
    assert!(said.contains(&format!("--pubkey {}", next.trim())), "{said}");
    assert_eq!(on_disk(&home).public_key, old.public_key);
}

#[tokio::test]
async fn a_rotation_can_be_given_up_and_a_token_for_another_key_is_refused() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let old = registered(&gateway, &home).await;
    home.configure(&[gateway.url()], None);
    let (_, token) = prepared(&gateway, &home).await;
    std::fs::write(&token, gateway.token(&Home::new().key.public())).unwrap();
    let out = rotate(&home, Some(&token), None).await;
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("not for the new key"));
    let out = command(&home, &["key", "rotate", "--abandon"], None)
        .output()
        .await
        .unwrap();
    assert!(out.status.success());
    assert!(!home.path("keys/agent.key.next").exists() && !home.path("keys/agent.next.pub").exists());
    assert_eq!(beats(&gateway, &home, "the old key").await, old.public_key);
}
