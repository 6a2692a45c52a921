//! Registration and rotation: who may bring a node in, and what replaces a key.
// Helpers outside of test functions may fail as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value
)]

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::actors::key_of;
use common::*;
use hpc_schema::code::Code;
use hpc_schema::node::NodeState;
use hpc_schema::registry::{Event, RegisterAnswer};
use hpc_schema::time::Rfc3339;
use serde_json::json;

#[test]
fn a_registration_says_where_the_node_is_and_tells_of_it() {
    let mut chain = Chain::new();
    let agent = Agent::new(CLUSTER, "node-0001");
    let msg = agent.registration(&mut chain);
    let response = chain.anyone_sends(msg).unwrap();
    assert_eq!(
        data::<RegisterAnswer>(&response),
        RegisterAnswer {
            epoch: 1,
            page: 0,
            slot: 0
        }
    );
    let events = events(&response);
    assert!(matches!(&events[0], Event::Registered { epoch: 1, kind, .. } if kind == "new"));
    assert_eq!(arrows(&response), ["node-0001: unknown pending registered"]);
    let node = chain.node("node-0001");
    assert_eq!(node.hostname.as_deref(), Some("node-0001.example.org"));
    assert_eq!(node.provider_address, chain.provider.address(&chain).as_str());
    assert_eq!(
        (node.last_heartbeat, node.health_status, node.totals),
        (None, None, None)
    );
}

#[test]
fn only_the_owners_or_an_operators_signature_over_these_very_fields_counts() {
    let mut chain = Chain::new();
    let agent = Agent::new(CLUSTER, "node-0001");
    let identity = agent.identity(&mut chain);
    let stranger = Provider::new(9);
    assert_eq!(
        code(chain.anyone_sends(stranger.vouch(&chain, &identity))),
        Code::NotAuthorized
    );

    // The owner's key, but somebody else's signature; the owner's signature, but one field changed.
    let owner = chain.provider.clone();
    let mut forged = owner.vouch(&chain, &identity);
    forged["register_node"]["provider_signature"] = STANDARD.encode(stranger.sign(&chain, &identity)).into();
    assert_eq!(code(chain.anyone_sends(forged)), Code::SignatureInvalid);
    let mut changed = owner.vouch(&chain, &identity);
    changed["register_node"]["node_identity"]["hostname"] = "evil".into();
    assert_eq!(code(chain.anyone_sends(changed)), Code::SignatureInvalid);
    for (field, value) in [("provider_signature", "AAAA"), ("provider_pubkey", "AAAA")] {
        let mut short = owner.vouch(&chain, &identity);
        short["register_node"][field] = value.into();
        assert_eq!(code(chain.anyone_sends(short)), Code::InvalidField);
    }
    let mut other_owner = identity.clone();
    other_owner.provider_address = stranger.address(&chain).into_string();
    assert_eq!(
        code(chain.anyone_sends(owner.vouch(&chain, &other_owner))),
        Code::InvalidField
    );

    // An operator may, once the owner has named one.
    let operator = stranger.address(&chain);
    chain
        .provider_sends(json!({"update_cluster": {"cluster_id": CLUSTER, "operators": [operator]}}))
        .unwrap();
    chain.anyone_sends(stranger.vouch(&chain, &identity)).unwrap();
}

#[test]
fn a_signature_serves_one_contract_on_one_chain() {
    let mut chain = Chain::new();
    let agent = Agent::new(CLUSTER, "node-0001");
    let msg = agent.registration(&mut chain);
    for change in [
        |env: &mut cosmwasm_std::Env| env.block.chain_id = "other-chain".to_owned(),
        |env: &mut cosmwasm_std::Env| env.contract.address = cosmwasm_std::Addr::unchecked("wasm1other"),
    ] {
        let env = chain.env.clone();
        change(&mut chain.env);
        assert_eq!(code(chain.anyone_sends(msg.clone())), Code::SignatureInvalid);
        chain.env = env;
    }
    chain.anyone_sends(msg).unwrap();
}

#[test]
fn a_nonce_is_burnt_and_a_timestamp_lasts_a_day() {
    let mut chain = Chain::new();
    let agent = Agent::new(CLUSTER, "node-0001");
    let mut identity = agent.identity(&mut chain);
    let provider = chain.provider.clone();
    for (offset, expected) in [
        (-86_401, Code::RegistrationExpired),
        (86_401, Code::RegistrationExpired),
    ] {
        let at = u64::try_from(i64::try_from(chain.now()).unwrap() + offset).unwrap();
        identity.registration_timestamp = Rfc3339::from_unix(at, 0).unwrap();
        assert_eq!(
            code(chain.anyone_sends(provider.vouch(&chain, &identity))),
            expected
        );
    }
    identity.registration_timestamp = Rfc3339::from_unix(chain.now() + 86_400, 0).unwrap();
    chain.anyone_sends(provider.vouch(&chain, &identity)).unwrap();
    assert_eq!(
        code(chain.anyone_sends(provider.vouch(&chain, &identity))),
        Code::RegistrationNonceUsed
    );
    // The same nonce under another timestamp and another name is the same nonce.
    identity.node_id = "node-0002".parse().unwrap();
    identity.registration_timestamp = Rfc3339::from_unix(chain.now(), 0).unwrap();
    assert_eq!(
        code(chain.anyone_sends(provider.vouch(&chain, &identity))),
        Code::RegistrationNonceUsed
    );
    // Prune forgets it only when its registration can no longer be sent.
    for (wait, code_after) in [
        (2 * 86_400, Code::RegistrationNonceUsed),
        (1, Code::RegistrationExpired),
    ] {
        chain.advance(wait);
        chain.anyone_sends(json!({"prune": {}})).unwrap();
        identity.registration_timestamp = if code_after == Code::RegistrationNonceUsed {
            Rfc3339::from_unix(chain.now(), 0).unwrap()
        } else {
            Rfc3339::from_unix(T0 + 86_400, 0).unwrap()
        };
        assert_eq!(
            code(chain.anyone_sends(provider.vouch(&chain, &identity))),
            code_after
        );
    }
}

#[test]
fn nobody_can_burn_a_nonce_of_another_cluster() {
    let mut chain = Chain::new();
    let identity = Agent::new(CLUSTER, "node-0001").identity(&mut chain);
    // A stranger has seen the identity on its way and is first, in a cluster of their own.
    let (provider, stranger) = (chain.provider.clone(), Provider::new(9));
    chain.provider = stranger.clone();
    chain.create_cluster("strangers");
    let mut copy = Agent::new("strangers", "node-0001").identity(&mut chain);
    copy.registration_nonce.clone_from(&identity.registration_nonce);
    chain.anyone_sends(stranger.vouch(&chain, &copy)).unwrap();
    chain.provider = provider.clone();
    let msg = provider.vouch(&chain, &identity);
    chain.anyone_sends(msg.clone()).unwrap();
    assert_eq!(code(chain.anyone_sends(msg)), Code::RegistrationNonceUsed);
}

/// A key off the curve would spoil the common check of every batch that its reports come in.
#[test]
fn weak_keys_and_keys_off_the_curve_are_no_keys() {
    let mut chain = Chain::new();
    let agent = Agent::new(CLUSTER, "node-0001");
    let mut one = [0u8; 32];
    one[0] = 1;
    let off_curve = (2u8..)
        .map(|n| [n; 32])
        .find(|bytes| ed25519_zebra::VerificationKey::try_from(*bytes).is_err())
        .unwrap();
    for (bytes, why) in [(one, "weak"), (off_curve, "no point")] {
        let mut msg = agent.registration(&mut chain);
        msg["register_node"]["node_identity"]["agent_pubkey"] = STANDARD.encode(bytes).into();
        let refused = serde_json::from_value::<hpc_schema::registry::ExecuteMsg>(msg).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

/// Fault 3: whoever posted `/register` again took over a node's key.
#[test]
fn only_the_old_keys_word_or_being_offline_lets_another_key_in() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    chain.beat(&mut agent);
    let mut thief = agent.clone();
    thief.key = key_of("thief");
    let msg = thief.registration(&mut chain);
    assert_eq!(code(chain.anyone_sends(msg)), Code::NodeExists);
    // With a rotation signature by the wrong key.
    let mut forged = thief.rotation(&mut chain, key_of("other"));
    assert_eq!(code(chain.anyone_sends(forged.clone())), Code::SignatureInvalid);
    forged["register_node"]["rotation_signature"] = "AAAA".into();
    assert_eq!(code(chain.anyone_sends(forged)), Code::SignatureInvalid);
    assert_eq!(chain.node("node-0001").agent_pubkey, agent.public_key());

    // With the old key's word: the state stays, the count of reports begins anew.
    let msg = agent.rotation(&mut chain, key_of("second"));
    let response = chain.anyone_sends(msg).unwrap();
    assert!(matches!(&events(&response)[0], Event::Registered { kind, epoch: 2, .. } if kind == "rotated"));
    assert_eq!(arrows(&response), Vec::<String>::new());
    agent.placed(&data(&response));
    let node = chain.node("node-0001");
    assert_eq!(
        (node.recorded_state, node.sequence, node.epoch),
        (NodeState::Active, 0, 2)
    );
    assert_eq!(chain.beat(&mut agent).accepted, 1);

    // A node that is recorded OFFLINE has lost its say.
    chain.advance(301);
    chain.sweep();
    let mut replaced = agent.clone();
    replaced.key = key_of("third");
    let msg = replaced.registration(&mut chain);
    let response = chain.anyone_sends(msg).unwrap();
    replaced.placed(&data(&response));
    assert_eq!(chain.recorded("node-0001"), NodeState::Offline);
    assert_eq!(chain.beat(&mut replaced).accepted, 1);
    assert_eq!(chain.recorded("node-0001"), NodeState::Active);
}

#[test]
fn the_same_key_may_register_again_and_gets_a_new_epoch() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    chain.beat(&mut agent);
    let msg = agent.registration(&mut chain);
    let response = chain.anyone_sends(msg).unwrap();
    assert!(matches!(&events(&response)[0], Event::Registered { kind, epoch: 2, .. } if kind == "renewed"));
}

/// Fault 9, first half: provider B overwrote provider A's node.
#[test]
fn two_clusters_may_have_a_node_of_one_name_and_never_meet() {
    let mut chain = Chain::new();
    let mut first = chain.register("node-0001");
    chain.beat(&mut first);
    let owner = chain.provider.clone();
    chain.provider = Provider::new(2);
    chain.create_cluster("hpc-cluster-2");
    // B cannot register into A's cluster …
    let foreign = Agent::new(CLUSTER, "node-0001");
    let msg = foreign.registration(&mut chain);
    assert_eq!(code(chain.anyone_sends(msg)), Code::InvalidField);
    // … nor take its id, but may use the node's name in its own.
    let again = chain.provider_sends(json!({"create_cluster": {"cluster_id": CLUSTER}}));
    assert_eq!(code(again), Code::ClusterExists);
    let mut second = chain.register_in("hpc-cluster-2", "node-0001");
    chain.beat(&mut second);
    assert_eq!(
        chain.node_in(CLUSTER, "node-0001").agent_pubkey,
        first.public_key()
    );
    assert_eq!(
        chain.node_in("hpc-cluster-2", "node-0001").agent_pubkey,
        second.public_key()
    );
    // The name alone is ambiguous now, and the answer names the clusters.
    let bare = chain
        .query::<serde_json::Value>(json!({"node": {"node_id": "node-0001"}}))
        .unwrap_err();
    assert_eq!(bare.code(), Some(Code::AmbiguousNode));
    assert!(
        bare.to_string().contains("hpc-cluster-1, hpc-cluster-2"),
        "{bare}"
    );
    let drain = json!({"drain_node": {"node_id": "node-0001"}});
    assert_eq!(code(chain.provider_sends(drain)), Code::AmbiguousNode);
    // A's report in B's cluster is worth nothing.
    let mut stray = first.clone();
    stray.cluster = "hpc-cluster-2".to_owned();
    let report = first.healthy(chain.now());
    let answer = chain.submit(vec![(&stray, report)]);
    assert_eq!(outcomes(&answer, 1), [Err(Code::SectionMissing)]);
    chain.provider = owner;
}

#[test]
fn one_machine_is_one_live_node() {
    let mut chain = Chain::new();
    let fingerprint = "ab".repeat(32);
    let mut first = Agent::new(CLUSTER, "node-0001");
    first.fingerprint = Some(fingerprint.clone());
    let msg = first.registration(&mut chain);
    chain.anyone_sends(msg).unwrap();
    let mut second = Agent::new(CLUSTER, "node-0002");
    second.fingerprint = Some(fingerprint);
    let msg = second.registration(&mut chain);
    assert_eq!(code(chain.anyone_sends(msg.clone())), Code::DuplicateHardware);
    // The refused registration has not burnt its nonce.
    chain
        .provider_sends(json!({"deregister_node": {"node_id": "node-0001"}}))
        .unwrap();
    chain.anyone_sends(msg).unwrap();
    // Now the first cannot come back with it, but without it or with another it can.
    let msg = first.registration(&mut chain);
    assert_eq!(code(chain.anyone_sends(msg)), Code::DuplicateHardware);
    first.fingerprint = Some("cd".repeat(32));
    let msg = first.registration(&mut chain);
    chain.anyone_sends(msg).unwrap();
    // The second may renew itself, and let go of it.
    second.fingerprint = None;
    let msg = second.registration(&mut chain);
    chain.anyone_sends(msg).unwrap();
    first.fingerprint = Some("ab".repeat(32));
    let msg = first.registration(&mut chain);
    chain.anyone_sends(msg).unwrap();
}

#[test]
fn a_pause_stops_registrations_and_nothing_else() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    let admin = chain.admin.clone();
    chain
        .send(&admin, json!({"pause_registrations": {"paused": true}}))
        .unwrap();
    let msg = Agent::new(CLUSTER, "node-0002").registration(&mut chain);
    assert_eq!(code(chain.anyone_sends(msg.clone())), Code::RegistrationsPaused);
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    chain
        .send(&admin, json!({"pause_registrations": {"paused": false}}))
        .unwrap();
    chain.anyone_sends(msg).unwrap();
}

/// Fault 6: no message may cost more the more nodes there are; pages fill in order and are all that grows.
#[test]
fn a_batch_reads_and_writes_its_own_pages_however_many_others_there_are() {
    let cost = |nodes: usize| {
        let mut chain = Chain::new();
        let mut agents = chain.register_many(CLUSTER, nodes);
        // All of page 0 have reported, so that its size is the same.
        for chunk in agents.chunks_mut(64).take(1) {
            let reports: Vec<_> = chunk.iter_mut().map(|a| (a.clone(), a.healthy(T0))).collect();
            chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect());
        }
        let report = agents[0].healthy(T0);
        let msg = batch(vec![(&agents[0], report)]);
        chain.deps.storage.take_gas();
        chain.anyone_sends(msg).unwrap();
        chain.deps.storage.take_gas()
    };
    let (small, large) = (cost(64), cost(640));
    // The sums' counts need a byte more each.
    assert!(large - small <= 33 * 4, "{small} {large}");
}
