//! From nothing to an active node.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_chain::query::Chain;
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::{ClientOptions, Endpoints};
use hpc_chain::send::{Gas, Pay, SendOptions, send_and_wait};
use hpc_schema::heartbeat::HealthStatus;
use hpc_schema::key::AgentKey;
use hpc_schema::registration::NodeIdentity;
use hpc_schema::registry::ReportGroup;
use hpc_schema::report::batch::{self, Outgoing};
use hpc_schema::report::{Body, Figures, Report, Section, Tag, section_digest};
use hpc_schema::time::Rfc3339;
use serde_json::{Value, json};

use crate::world::{CHAIN_ID, CLUSTER, World};

const NODE: &str = "node-hpc1-compute-042";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Has the provider sign an identity, and relays it with the command line; returns the contract's answer.
fn register(world: &World, contract: &str, agent: &SigningKey) -> Value {
    let public: [u8; 32] = VerificationKey::from(agent).into();
    let identity = NodeIdentity {
        node_id: NODE.parse().unwrap(),
        cluster_id: CLUSTER.parse().unwrap(),
        provider_address: world.owner.address("wasm").unwrap(),
        agent_pubkey: AgentKey::from_bytes(public).unwrap(),
        hostname: Some("compute-042".into()),
        hardware_fingerprint: None,
        registration_nonce: STANDARD.encode([7; 32]),
        registration_timestamp: Rfc3339::from_unix(now(), 0).unwrap(),
    };
    let signature = world
        .owner
        .sign_registration("wasm", CHAIN_ID, contract, &identity)
        .unwrap();
    let file = world.program.path("registration.json");
    let members = json!({
        "node_identity": identity,
        "provider_signature": STANDARD.encode(signature),
        "provider_pubkey": STANDARD.encode(world.owner.public_key()),
    });
    fs::write(&file, members.to_string()).unwrap();
    world.tx(&["hpc", "register-node", &file.display().to_string()])["data"].clone()
}

/// Relays one report that the agent has signed.
fn report(world: &World, contract: &str, agent: &SigningKey, registered: &Value) {
    let figures = Figures {
        running_count: 1,
        cores_available: 48,
        memory_gb_available: 192,
        gpus_available: 4,
        storage_gb_available: 1500,
        avg_cluster_latency_us: 812,
        measurement_count: 3,
    };
    let section = Section {
        cores_total: 64,
        memory_gb_total: 256,
        gpus_total: 4,
        storage_gb_total: 2000,
        agent_version: "0.1.0".into(),
        gpu_type: "A100".into(),
        jobs: Vec::new(),
        jobs_total: 1,
        measurements: Vec::new(),
    }
    .encode();
    let report = Report {
        time: u32::try_from(now()).unwrap(),
        sequence: 1,
        body: Body::saturating(HealthStatus::Healthy, &figures),
        section_digest: section_digest(&section),
        payload_hash: [9; 32],
    };
    let (cluster, node) = (CLUSTER.parse().unwrap(), NODE.parse().unwrap());
    let tag = Tag::derive(
        CHAIN_ID,
        contract,
        &cluster,
        &node,
        registered["epoch"].as_u64().unwrap(),
    );
    let signature: [u8; 64] = agent.sign(&report.message(&tag)).into();
    let number = |key: &str| registered[key].as_u64().unwrap();
    let bytes = batch::encode(&[Outgoing {
        page: u16::try_from(number("page")).unwrap(),
        slot: u8::try_from(number("slot")).unwrap(),
        report: &report,
        signature: &signature,
        section: Some(&section),
    }])
    .unwrap();
    let endpoints = Endpoints::new(&[world.chain.rpc_url()], ClientOptions::default()).unwrap();
    let registry = RegistryClient::new(Chain::new(endpoints), contract);
    let sender = world.owner.address("wasm").unwrap();
    let groups = vec![ReportGroup {
        cluster_id: cluster,
        reports: STANDARD.encode(bytes),
    }];
    let message = registry.submit_reports(&sender, groups).unwrap();
    let options = SendOptions {
        chain_id: CHAIN_ID.into(),
        prefix: "wasm".into(),
        gas: Gas::Fixed(1_000_000),
        pay: Pay::Coins(Vec::new()),
        memo: String::new(),
        deadline: Duration::from_secs(30),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(send_and_wait(
            registry.chain(),
            &world.owner,
            &options,
            vec![message],
        ))
        .unwrap();
}

#[test]
fn a_node_goes_from_registration_to_active_and_is_shown_as_the_specification_shows_it() {
    let world = World::start();
    let contract = world.deploy("0stake")["contract"].as_str().unwrap().to_owned();
    let query = |arguments: &[&str]| world.program.ok(&[&["query", "hpc"], arguments].concat());
    world.tx(&["hpc", "create-cluster", CLUSTER, "--region", "eu-central"]);
    world.tx(&["hpc", "activate-cluster", CLUSTER]);
    let agent = SigningKey::from([3; 32]);
    let registered = register(&world, &contract, &agent);
    assert!(query(&["node", NODE]).contains("state: pending\nlast_heartbeat: never\n"));
    report(&world, &contract, &agent, &registered);

    let text = query(&["node", NODE]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("node_id: node-hpc1-compute-042"));
    assert_eq!(lines.next(), Some("cluster_id: hpc-cluster-1"));
    assert_eq!(lines.next(), Some("state: active"));
    let heartbeat = lines.next().unwrap().strip_prefix("last_heartbeat: ").unwrap();
    let age = now() - heartbeat.parse::<Rfc3339>().unwrap().seconds().0;
    assert!(age < 60, "{heartbeat}");
    for line in [
        "  cpu_cores: 48",
        "  cpu_cores: 64",
        "  gpu_type: A100",
        "schedulable: true",
        "health: healthy",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in {text}");
    }

    let node = world.program.json(&["query", "hpc", "node", NODE]);
    assert_eq!(node["state"], "active");
    assert_eq!(node["sequence"], 1);
    assert_eq!(node["resources"]["memory_gb"], 192);
    assert!(
        query(&[
            "nodes",
            "--state",
            "active",
            "--min-gpus",
            "4",
            "--gpu-type",
            "A100"
        ])
        .contains(NODE)
    );
    assert!(!query(&["nodes", "--min-gpus", "5"]).contains(NODE));
    let sums = world.program.json(&["query", "hpc", "aggregate", CLUSTER]);
    assert_eq!(sums["effective"]["available_gpus"], 4);

    world.tx(&[
        "hpc",
        "drain-node",
        NODE,
        "--reason",
        "new memory: slot 3",
        "--until",
        "2h",
    ]);
    let drained = world.program.json(&["query", "hpc", "node", NODE]);
    assert_eq!(drained["state"], "draining");
    assert_eq!(drained["drain"]["reason"], "new memory: slot 3");
    let until = drained["drain"]["until"].as_u64().unwrap();
    assert!((now() + 7000..=now() + 7200).contains(&until), "{until}");
    world.tx(&["hpc", "resume-node", NODE, "--cluster-id", CLUSTER]);
    assert_eq!(
        world.program.json(&["query", "hpc", "node", NODE])["state"],
        "active"
    );
    world.tx(&["hpc", "deregister-node", NODE]);
    assert!(query(&["node", NODE]).contains("state: deregistered\n"));
}

#[test]
fn deploy_writes_a_profile_that_the_other_commands_use() {
    let world = World::start();
    let deployed = world.deploy("0.01stake");
    assert_eq!(deployed["code_id"], 1);
    assert_eq!(deployed["profile"], CHAIN_ID);
    let contract = deployed["contract"].as_str().unwrap();
    let profile = world.program.json(&["profile", "show"]);
    assert_eq!(profile["contract"], contract);
    assert_eq!(profile["gas_prices"], "0.01stake");
    assert_eq!(profile["in_use"], true);
    assert_eq!(
        crate::world::mode(std::path::Path::new(deployed["profile_path"].as_str().unwrap())),
        0o600
    );
    let config = world.program.json(&["query", "hpc", "config"]);
    assert_eq!(config["chain_id"], CHAIN_ID);
    assert_eq!(config["admin"], world.owner.address("wasm").unwrap());

    // A flag wins over the environment, that over the profile.
    let mut program = crate::world::Program::new();
    program.set("VIRTENGINE_NODE", "http://127.0.0.1:1");
    program.set("VIRTENGINE_CONTRACT", contract);
    assert_eq!(
        program.error(5, &["query", "hpc", "params"])["code"],
        "node_unreachable"
    );
    let url = world.chain.rpc_url();
    assert_eq!(
        program.json(&["query", "hpc", "params", "--node", &url])["heartbeat_interval"],
        30
    );
}

#[test]
fn a_profile_in_a_file_of_its_own_and_several_by_name() {
    let mut world = World::start();
    let file = world.program.path("own/profile.yaml");
    fs::create_dir(file.parent().unwrap()).unwrap();
    world
        .program
        .set("VIRTENGINE_PROFILE", file.display().to_string());
    world.deploy("0stake");
    assert!(file.exists());
    assert_eq!(
        world.program.json(&["query", "hpc", "params"])["heartbeat_interval"],
        30
    );
    world.program.set("VIRTENGINE_PROFILE", "");
    world.program.set("VIRTENGINE_PROFILE", "second");
    world.deploy("0stake");
    world.program.set("VIRTENGINE_PROFILE", "third");
    world.deploy("0stake");
    let list = world.program.json(&["profile", "list"]);
    let names: Vec<&str> = list["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["second", "third"]);
    world.program.ok(&["profile", "use", "second"]);
    let shown = world.program.ok(&["profile", "show", "second"]);
    assert!(shown.starts_with("name: second\n"), "{shown}");
    assert_eq!(
        world.program.error(3, &["profile", "use", "fourth"])["code"],
        "profile_not_found"
    );
}

#[test]
fn deploy_can_set_parameters_and_refuses_bad_ones_before_anything_is_sent() {
    let world = World::start();
    let url = world.chain.rpc_url();
    let file = world.program.path("params.json");
    let base = [
        "deploy",
        "--node",
        &url,
        "--chain-id",
        CHAIN_ID,
        "--from",
        "owner",
        "--params-file",
    ];
    fs::write(&file, r#"{"heartbeat_interval": 5}"#).unwrap();
    let path = file.display().to_string();
    assert_eq!(
        world.program.error(1, &[&base[..], &[&path]].concat())["code"],
        "bad_file"
    );
    fs::write(
        &file,
        r#"{"heartbeat_interval": 20, "cluster_deposit": {"denom": "stake", "amount": "7"}}"#,
    )
    .unwrap();
    world.program.ok(&[&base[..], &[&path]].concat());
    assert_eq!(
        world.program.json(&["query", "hpc", "params"])["heartbeat_interval"],
        20
    );
    let create = ["tx", "hpc", "create-cluster", CLUSTER, "--from", "owner", "--yes"];
    let refused = world.program.error(4, &create);
    assert_eq!(refused["code"], "invalid_deposit");
    world
        .program
        .ok(&[&create[..], &["--deposit", "7stake"]].concat());
}

#[test]
fn administration_is_handed_over_in_two_steps() {
    let world = World::deployed();
    world.program.ok(&["keys", "add", "heir"]);
    world.tx(&["bank", "send", "heir", "1000stake"]);
    let heir = world.program.ok(&["keys", "show", "heir", "-a"]);
    world.tx(&["hpc", "propose-admin", "heir"]);
    let config = world.program.json(&["query", "hpc", "config"]);
    assert_eq!(config["proposed_admin"], heir.trim());
    world
        .program
        .ok(&["tx", "hpc", "accept-admin", "--from", "heir", "--yes"]);
    let params = [
        "tx",
        "hpc",
        "update-params",
        "--heartbeat-interval",
        "25",
        "--yes",
        "--from",
    ];
    assert_eq!(
        world.program.error(4, &[&params[..], &["owner"]].concat())["code"],
        "not_authorized"
    );
    world.program.ok(&[&params[..], &["heir"]].concat());
    world
        .program
        .ok(&["tx", "hpc", "pause-registrations", "--from", "heir", "--yes"]);
    assert_eq!(
        world.program.json(&["query", "hpc", "config"])["registrations_paused"],
        true
    );
    world
        .program
        .ok(&["tx", "hpc", "unpause-registrations", "--from", "heir", "--yes"]);
    assert_eq!(
        world.program.json(&["query", "hpc", "config"])["registrations_paused"],
        false
    );
}
