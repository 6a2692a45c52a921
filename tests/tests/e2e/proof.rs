//! A heartbeat proven to somebody who asks nobody: the file holds, and nothing in it can be changed.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::outcome::Outcome;
use hpc_tests::scene;
use hpc_tests::site::{SETTLED, Site};
use hpc_tests::wait;
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";

/// Paths of every scalar in a JSON value.
fn scalars(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(k, v)| scalars(v, &format!("{at}/{k}"), found)),
        Value::Array(list) => (0..)
            .zip(list)
            .for_each(|(i, v): (usize, _)| scalars(v, &format!("{at}/{i}"), found)),
        Value::Null => {}
        _ => found.push(at.to_owned()),
    }
}

/// The same kind of value, another one.
fn spoil(value: &mut Value) {
    match value {
        Value::String(text) => {
            let other = |c: char| match c {
                '9' => '8',
                '0'..='8' => char::from_u32(u32::from(c) + 1).unwrap_or('1'),
                'A' => 'B',
                'a' => 'b',
                c if c.is_ascii_uppercase() => 'A',
                _ => 'a',
            };
            // In the middle: the last character of base64 may hold bits that nobody reads.
            let middle = text.chars().count() / 2;
            let at = text
                .char_indices()
                .skip(middle)
                .find(|(_, c)| c.is_ascii_alphanumeric());
            match at {
                Some((i, c)) => text.replace_range(i..i + 1, &other(c).to_string()),
                None => text.push('1'),
            }
        }
        Value::Number(n) => *value = Value::from(n.as_u64().unwrap_or(0) + 1),
        Value::Bool(b) => *value = Value::from(!*b),
        Value::Null | Value::Array(_) | Value::Object(_) => {}
    }
}

#[test]
fn a_heartbeat_is_proven_offline_and_every_change_of_the_proof_is_refused() -> Result<()> {
    scene::run("proof", |scene, kind| {
        let mut site = Site::start(scene, kind)?;
        let agent = site.agent(scene, NODE)?;
        let process = agent.start()?;
        site.wait_state(NODE, "active")?;
        let file = scene.path("proof.json");
        let name = file.display().to_string();
        wait::until("a proof", SETTLED, || {
            Ok(site
                .provider_run(&["heartbeat", "prove", NODE, "--file", &name])
                .ok())
        })?;
        drop(process);
        // Whoever checks it needs neither chain nor gateway.
        site.kill_provider()?;
        let found = site.cli.json(&["proof", "verify", &name])?;
        ensure!(found["node_id"] == NODE && found["signed_power"] == found["total_power"]);
        ensure!(found["proven"].as_array().is_some_and(|p| p.len() == 5));
        let hash = found["validators_hash"].as_str().context("validators_hash")?;
        let key = found["agent_key"].as_str().context("agent_key")?;
        let trusting = [
            "proof",
            "verify",
            &name,
            "--validators-hash",
            hash,
            "--agent-key",
            key,
        ];
        let known = site.cli.json(&trusting)?;
        ensure!(
            known["not_proven"].as_array().is_some_and(|p| p.len() == 1),
            "{known}"
        );
        let error = site
            .cli
            .fails(&["proof", "verify", &name, "--validators-hash", &"0".repeat(64)])?;
        ensure!(error.contains("proof_not_trusted"), "{error}");

        let proof: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        let mut all = Vec::new();
        scalars(&proof, "", &mut all);
        // What validators take turns by is no part of what they sign.
        all.retain(|at| !at.ends_with("/proposer_priority"));
        ensure!(all.len() > 40, "{all:?}");
        let spoilt = scene.path("spoilt.json");
        let mut passed = Vec::new();
        for at in &all {
            let mut proof = proof.clone();
            spoil(proof.pointer_mut(at).context("pointer")?);
            fs::write(&spoilt, proof.to_string())?;
            let refused = site
                .cli
                .fails(&["proof", "verify", &spoilt.display().to_string()]);
            if !refused.is_ok_and(|said| said.contains("proof_")) {
                passed.push(at);
            }
        }
        ensure!(passed.is_empty(), "changed, and not refused: {passed:?}");
        // Cut off anywhere, it is no proof at all.
        let text = fs::read(&file)?;
        for part in [0, 1, text.len() / 2, text.len().saturating_sub(3)] {
            fs::write(&spoilt, text.get(..part).context("part")?)?;
            let said = site
                .cli
                .fails(&["proof", "verify", &spoilt.display().to_string()])?;
            ensure!(said.contains("proof_unreadable"), "{part}: {said}");
        }
        let mut outcome = Outcome::new(kind, "proof");
        outcome.set("proven", found["proven"].clone());
        outcome.save()
    })
}
