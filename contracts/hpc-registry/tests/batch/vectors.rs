//! The committed vectors, as a relayer would bring them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cosmwasm_std::{Addr, Timestamp};
use ed25519_zebra::SigningKey;
use hpc_schema::code::Code;
use hpc_schema::heartbeat::HeartbeatRequest;
use hpc_schema::report::Report;
use serde_json::Value;

use crate::common::actors::Signed;
use crate::common::*;

fn read(file: &str) -> Value {
    let path = format!("{}/../../schema/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// What the contract makes of a report, in the place and at the time of its vector.
fn judged(context: &Value, now: u64, signed: Signed) -> Result<(), Code> {
    let text = |key: &str| context[key].as_str().unwrap();
    let mut chain = Chain::bare();
    chain.env.block.chain_id = text("chain_id").to_owned();
    chain.env.contract.address = Addr::unchecked(text("contract"));
    chain.env.block.time = Timestamp::from_seconds(now);
    chain.create_cluster(text("cluster_id"));
    // Epochs are drawn from one counter.
    for n in 1..context["epoch"].as_u64().unwrap() {
        chain.register_in(text("cluster_id"), &format!("before-{n}"));
    }
    let mut agent = Agent::new(text("cluster_id"), text("node_id"));
    let seed: [u8; 32] = unhex(&context["agent"]["seed"]).try_into().unwrap();
    agent.key = SigningKey::from(seed);
    let registration = agent.registration(&mut chain);
    agent.placed(&data(&chain.anyone_sends(registration).unwrap()));
    assert_eq!(agent.epoch, context["epoch"].as_u64().unwrap());
    let answer = chain.submit(vec![(&agent, signed)]);
    outcomes(&answer, 1).remove(0)
}

fn signature(text: &str) -> [u8; 64] {
    STANDARD.decode(text).unwrap().try_into().unwrap()
}

#[test]
fn every_accepted_vector_is_accepted_by_the_contract_and_no_other_signature_is() {
    let heartbeats = read("heartbeat.json");
    let mut accepted = 0;
    for case in heartbeats["cases"].as_array().unwrap() {
        if case["result"] != "accepted" {
            continue;
        }
        let request = HeartbeatRequest::parse(case["body"].as_str().unwrap().as_bytes()).unwrap();
        let report = STANDARD.decode(request.auth.report.unwrap()).unwrap();
        // Where the body leaves it out, the gateway has it.
        let section = unhex(&case["derived"]["section"]);
        let signed = Signed {
            report: Report::decode(&report).unwrap(),
            signature: signature(&request.auth.report_signature.unwrap()),
            section: Some(section),
        };
        let now = case["now"].as_u64().unwrap();
        assert_eq!(judged(&heartbeats["context"], now, signed), Ok(()), "{case}");
        accepted += 1;
    }
    let reports = read("report.json");
    let section = unhex(&reports["context"]["section"]);
    for case in reports["cases"].as_array().unwrap() {
        let bytes = unhex(&case["report"]);
        let Ok(report) = Report::decode(&bytes) else {
            continue; // no batch can be made of it; `bytes` has what is done with such
        };
        let signed = Signed {
            report,
            signature: signature(case["signature"].as_str().unwrap()),
            section: Some(section.clone()),
        };
        let outcome = judged(&reports["context"], case["now"].as_u64().unwrap(), signed);
        match case["result"]["code"].as_str() {
            Some(code) => assert_eq!(outcome, Err(Code::from_word(code).unwrap()), "{case}"),
            // Signed well, and more than the node has.
            None if case["name"] == "saturated, draining" => assert_eq!(outcome, Err(Code::InvalidCapacity)),
            None => assert_eq!(outcome, Ok(()), "{case}"),
        }
        accepted += usize::from(outcome.is_ok());
    }
    assert!(accepted >= 5, "{accepted}");
}
