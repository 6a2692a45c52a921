//! What is refused has a stable code and leaves nothing behind.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use hpc_tests::outcome::Outcome;
use hpc_tests::raw::{Draft, RawAgent, Registration, key, public};
use hpc_tests::site::Site;
use hpc_tests::{raw, scene};

const NODE: &str = "node-hpc1-compute-042";

/// One wrong heartbeat: how it differs from a right one, and what it must be answered.
type Wrong = (&'static str, fn(&mut Draft), &'static str);

const WRONG: [Wrong; 8] = [
    (
        "wrong signature",
        |d| d.break_signature = true,
        "200 signature_invalid",
    ),
    (
        "wrong signature of the report",
        |d| d.break_report_signature = true,
        "200 signature_invalid",
    ),
    ("wrong key", |d| d.key = key(99), "200 signature_invalid"),
    ("sequence 0", |d| d.sequence = 0, "200 invalid_sequence"),
    (
        "clock 6 minutes behind",
        |d| d.time -= 360,
        "200 timestamp_expired",
    ),
    (
        "clock 2 minutes ahead",
        |d| d.time += 120,
        "200 timestamp_in_future",
    ),
    (
        "a body of 10 MB",
        |d| d.padding = 10_000_000,
        "413 body_too_large",
    ),
    (
        "more cores available than there are",
        |d| d.cores_available = 65,
        "200 invalid_capacity",
    ),
];

#[test]
fn a_refused_heartbeat_has_its_code_and_stores_nothing() -> Result<()> {
    scene::run("refused-heartbeats", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let mut outcome = Outcome::new(kind, "refused-heartbeats");
        let agent = register(scene, &site, NODE, 1)?;
        // Each wrong one has a higher sequence than the chain knows: if it were stored, it would show.
        for (at, (name, spoil, word)) in (100..).zip(WRONG) {
            let mut draft = agent.draft(at)?;
            spoil(&mut draft);
            let answer = agent.send(&draft)?;
            raw::expect(&answer, word).with_context(|| name.to_owned())?;
            outcome.set(name, answer.word());
        }
        sleep(Duration::from_secs(5));
        assert_eq!(site.state(NODE)?, "pending");

        let first = agent.draft(7)?;
        raw::expect(&agent.send(&first)?, "accepted")?;
        assert_eq!(site.wait_sequence(NODE, 1)?, 7);
        let replayed = agent.send(&first)?;
        outcome.set("replayed", replayed.word());
        let repeated = agent.send(&agent.draft(7)?)?;
        raw::expect(&repeated, "200 stale_sequence")?;
        outcome.set("replayed sequence", repeated.word());
        sleep(Duration::from_secs(3));
        assert_eq!(site.sequence(NODE)?, 7);
        outcome.save()
    })
}

#[test]
fn a_node_can_only_speak_for_itself() -> Result<()> {
    scene::run("foreign-identity", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let mut outcome = Outcome::new(kind, "foreign-identity");
        let agent = register(scene, &site, NODE, 1)?;
        let other = register(scene, &site, "node-hpc1-compute-043", 2)?;

        let mut draft = agent.draft(5)?;
        draft.node = other.node.clone();
        draft.key = other.key;
        let answer = agent.send(&draft)?;
        raw::expect(&answer, "403 identity_mismatch")?;
        outcome.set("another node's certificate", answer.word());

        // No certificate names a node that was never registered.
        let mut draft = agent.draft(5)?;
        draft.node = "node-hpc1-compute-999".parse()?;
        let answer = agent.send(&draft)?;
        raw::expect(&answer, "403 identity_mismatch")?;
        outcome.set("unknown node in the path", answer.word());
        assert!(site.node("node-hpc1-compute-999").is_err());
        let said = site
            .cli
            .fails(&["query", "hpc", "node", "node-hpc1-compute-999"])?;
        assert!(said.contains("unknown_node"), "{said}");
        sleep(Duration::from_secs(3));
        assert_eq!(site.state(NODE)?, "pending");
        assert_eq!(site.state("node-hpc1-compute-043")?, "pending");
        outcome.save()
    })
}

#[test]
fn a_token_serves_one_key_once_and_in_time() -> Result<()> {
    scene::run("tokens", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let mut outcome = Outcome::new(kind, "tokens");
        let gateway = site.gateway();

        let expired = site.token(NODE, &public(&key(1)), "1s")?;
        sleep(Duration::from_secs(3));
        let answer = gateway.register_once(&Registration::new(&expired, &key(1))?)?;
        assert_eq!(answer.code(), "token_expired", "{answer:?}");
        outcome.set("expired", answer.word());

        let token = site.token(NODE, &public(&key(1)), "1h")?;
        let stranger = gateway.register_once(&Registration::new(&token, &key(2))?)?;
        assert_eq!(stranger.code(), "key_mismatch", "{stranger:?}");
        outcome.set("another key", stranger.word());
        assert!(site.node(NODE).is_err());

        gateway.register(scene, &token, &key(1))?;
        let again = gateway.register_once(&Registration::new(&token, &key(1))?)?;
        assert_eq!(again.code(), "token_used", "{again:?}");
        outcome.set("used, another request", again.word());
        outcome.set("state", site.state(NODE)?);
        outcome.save()
    })
}

fn register(scene: &hpc_tests::scene::Scene, site: &Site, node: &str, number: u8) -> Result<RawAgent> {
    let key = key(number);
    let token = site.token(node, &public(&key), "1h")?;
    site.gateway().register(scene, &token, &key)
}
