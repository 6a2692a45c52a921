use std::path::PathBuf;

use clap::Parser as _;
use serde_json::{Value, json};

use super::*;
use crate::args::{Cli, Command, TxCommand};
use crate::output::{Format, Printer};
use crate::profile::Home;

const OWNER: &str = "wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t";

/// The message that a command line makes, in JSON, and the coins with it.
fn built(line: &str) -> Result<(Value, Vec<String>), Failure> {
    let home = PathBuf::from("/nonexistent");
    let cli = Cli::try_parse_from(format!("virtengine tx hpc {line} --from a").split(' ')).unwrap();
    let Command::Tx(args) = cli.command else {
        panic!("{line}")
    };
    let TxCommand::Hpc(command) = &args.command else {
        panic!("{line}")
    };
    let context = Context {
        printer: Printer { format: Format::Text },
        home: Home::find(Some(&home), |_| None).unwrap(),
        named: None,
    };
    let resolver = Resolver {
        context: &context,
        keyring: &args.keyring,
        prefix: "wasm",
    };
    let (message, funds) = message(&resolver, command)?;
    Ok((
        serde_json::to_value(message).unwrap(),
        funds.iter().map(ToString::to_string).collect(),
    ))
}

#[test]
fn each_command_makes_the_contracts_message() {
    let digest = "ab".repeat(32);
    let cases = [
        (
            format!("create-cluster hpc-1 --operator {OWNER} --region eu --job-ids hashed"),
            json!({"create_cluster": {"cluster_id": "hpc-1", "region": "eu", "operators": [OWNER], "job_ids": "hashed"}}),
        ),
        (
            "update-cluster hpc-1 --no-operators".into(),
            json!({"update_cluster": {"cluster_id": "hpc-1", "operators": []}}),
        ),
        (
            "update-cluster hpc-1 --name N".into(),
            json!({"update_cluster": {"cluster_id": "hpc-1", "name": "N"}}),
        ),
        (
            "activate-cluster hpc-1".into(),
            json!({"activate_cluster": {"cluster_id": "hpc-1"}}),
        ),
        (
            "deactivate-cluster hpc-1".into(),
            json!({"deactivate_cluster": {"cluster_id": "hpc-1"}}),
        ),
        (
            "close-cluster hpc-1".into(),
            json!({"close_cluster": {"cluster_id": "hpc-1"}}),
        ),
        (
            format!("propose-cluster-owner hpc-1 {OWNER}"),
            json!({"propose_cluster_owner": {"cluster_id": "hpc-1", "owner": OWNER}}),
        ),
        (
            "propose-cluster-owner hpc-1 --withdraw".into(),
            json!({"propose_cluster_owner": {"cluster_id": "hpc-1", "owner": null}}),
        ),
        (
            "accept-cluster-owner hpc-1".into(),
            json!({"accept_cluster_owner": {"cluster_id": "hpc-1"}}),
        ),
        (
            "deregister-node node-1".into(),
            json!({"deregister_node": {"node_id": "node-1"}}),
        ),
        (
            "drain-node node-1 --cluster-id hpc-1 --reason r --until 2026-01-30T14:05:00Z".into(),
            json!({"drain_node": {"cluster_id": "hpc-1", "node_id": "node-1", "reason": "r", "until": 1_769_781_900}}),
        ),
        (
            "resume-node node-1".into(),
            json!({"resume_node": {"node_id": "node-1"}}),
        ),
        ("sweep --limit 3".into(), json!({"sweep": {"limit": 3}})),
        ("prune".into(), json!({"prune": {}})),
        (
            format!("anchor hpc-1 audit-head {digest}"),
            json!({"anchor": {"cluster_id": "hpc-1", "kind": "audit-head", "digest": digest}}),
        ),
        (
            "update-params --heartbeat-interval 20 --cluster-creation admin --cluster-deposit 5stake".into(),
            json!({"update_params": {"params": {"heartbeat_interval": 20, "cluster_creation": "admin",
                "cluster_deposit": {"denom": "stake", "amount": "5"}}}}),
        ),
        (
            "propose-admin --withdraw".into(),
            json!({"propose_admin": {"admin": null}}),
        ),
        ("accept-admin".into(), json!({"accept_admin": {}})),
        (
            "pause-registrations".into(),
            json!({"pause_registrations": {"paused": true}}),
        ),
        (
            "unpause-registrations".into(),
            json!({"pause_registrations": {"paused": false}}),
        ),
    ];
    for (line, expected) in cases {
        let (message, funds) = built(&line).unwrap();
        assert_eq!(message, expected, "{line}");
        assert!(funds.is_empty(), "{line}");
    }
}

#[test]
fn a_deposit_goes_with_the_message_that_creates_a_cluster() {
    let (_, funds) = built("create-cluster hpc-1 --deposit 1000000stake").unwrap();
    assert_eq!(funds, ["1000000stake"]);
}

#[test]
fn an_operator_that_is_neither_address_nor_key_is_named() {
    let failure = built("create-cluster hpc-1 --operator bob").unwrap_err();
    assert_eq!(failure.code, "bad_address");
    assert!(failure.message.contains("bob"), "{}", failure.message);
}

#[test]
fn an_update_without_a_change_is_wrong_usage() {
    assert_eq!(built("update-cluster hpc-1").unwrap_err().exit, Exit::Usage);
}

#[test]
fn a_registration_is_read_with_or_without_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let members = json!({
        "node_identity": {
            "node_id": "node-1", "cluster_id": "hpc-1", "provider_address": OWNER,
            "agent_pubkey": "GZ+NkdsQN6tgMsxGMVRVqNKMT0YdYLzR3Xg3qHHRTzg=",
            "registration_nonce": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "registration_timestamp": "2026-01-30T14:05:00Z",
        },
        "provider_signature": "AA==", "provider_pubkey": "AA==",
    });
    for (name, value) in [("a", members.clone()), ("b", json!({ "register_node": members }))] {
        let path = folder.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        let message = registration(&path).unwrap();
        assert!(matches!(message, ExecuteMsg::RegisterNode { .. }));
    }
    let path = folder.path().join("c");
    std::fs::write(&path, r#"{"sweep": {}}"#).unwrap();
    assert_eq!(registration(&path).unwrap_err().code, "bad_file");
}
