//! What is refused has a stable code and leaves nothing behind.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hpc_tests::ledger::Ledger;
use hpc_tests::outcome::Outcome;
use hpc_tests::raw::{Draft, RawAgent, Registration, key, public};
use hpc_tests::site::{SETTLED, Site};
use hpc_tests::{raw, scene, wait};

const NODE: &str = "node-hpc1-compute-042";
const UNKNOWN: &str = "node-hpc1-compute-999";

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
        assert_eq!(site.state(NODE)?, "pending");

        let first = agent.draft(7)?;
        raw::expect(&agent.send(&first)?, "accepted")?;
        assert_eq!(site.wait_sequence(NODE, 1)?, 7);
        let replayed = agent.send(&first)?;
        outcome.set("replayed", replayed.word());
        let repeated = agent.send(&agent.draft(7)?)?;
        raw::expect(&repeated, "200 stale_sequence")?;
        outcome.set("replayed sequence", repeated.word());

        // One more passes, and by then all that was stored would have come to its end.
        raw::expect(&agent.send(&agent.draft(8)?)?, "accepted")?;
        assert_eq!(site.wait_sequence(NODE, 8)?, 8);
        only(&site, NODE, &[7, 8])?;
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

        // Under another name than that of its certificate, known or not, nobody gets as far as being looked up.
        let mut draft = agent.draft(5)?;
        draft.node = UNKNOWN.parse()?;
        let answer = agent.send(&draft)?;
        raw::expect(&answer, "403 identity_mismatch")?;
        outcome.set("an unknown node's name", answer.word());

        // A certificate of this site's CA, rightly used, of a node that is not on record.
        let stranger = agent.certified_as(UNKNOWN)?;
        let answer = stranger.send(&stranger.draft(5)?)?;
        raw::expect(&answer, "200 unknown_node")?;
        outcome.set("a node that is not on record", answer.word());
        assert!(site.node(UNKNOWN).is_err());
        let said = site.cli.fails(&["query", "hpc", "node", UNKNOWN])?;
        assert!(said.contains("unknown_node"), "{said}");
        assert_eq!(site.state(NODE)?, "pending");
        assert_eq!(site.state(other.node.as_str())?, "pending");

        // Each can speak for itself, and nothing else was ever stored of either.
        for (agent, sequence) in [(&agent, 2), (&other, 3)] {
            raw::expect(&agent.send(&agent.draft(sequence)?)?, "accepted")?;
            assert_eq!(site.wait_sequence(agent.node.as_str(), sequence)?, sequence);
            only(&site, agent.node.as_str(), &[u32::try_from(sequence)?])?;
        }
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

/// Of this node exactly these reports were stored: the provider's record has no other, and no block.
fn only(site: &Site, node: &str, sequences: &[u32]) -> Result<()> {
    let epoch = wait::until("an end of the last report on record", SETTLED, || {
        let (epoch, ends) = site.ends(node)?;
        let mut ended: Vec<u32> = ends.iter().map(|e| e.sequence).collect();
        ended.sort_unstable();
        ensure!(ended == sequences, "{node}: {ends:?} instead of {sequences:?}");
        ensure!(
            ends.iter().all(|e| e.superseded_from.is_none()),
            "{node}: {ends:?}"
        );
        Ok(Some(epoch))
    })?;
    let ledger = Ledger::read(&site.chain.rpc(), &site.contract)?;
    let names = ledger.names().filter(|n| n.node == node);
    let found: Vec<_> = names.map(|n| (n.epoch, n.sequence)).collect();
    let expected: Vec<_> = sequences.iter().map(|s| (epoch, *s)).collect();
    ensure!(
        found == expected,
        "{node}: in blocks {found:?} instead of {expected:?}"
    );
    Ok(())
}

fn register(scene: &hpc_tests::scene::Scene, site: &Site, node: &str, number: u8) -> Result<RawAgent> {
    let key = key(number);
    let token = site.token(node, &public(&key), "1h")?;
    site.gateway().register(scene, &token, &key)
}
