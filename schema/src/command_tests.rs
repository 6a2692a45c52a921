use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};

use super::*;
use crate::key::ZebraVerifier;

const NOW: UnixSeconds = UnixSeconds(1_769_781_900);

fn task_key() -> (SigningKey, AgentKey) {
    let sk = SigningKey::from([11; 32]);
    let vk: [u8; 32] = VerificationKey::from(&sk).into();
    (sk, AgentKey::from_bytes(vk).unwrap())
}

fn ids() -> (ClusterId, NodeId) {
    (
        "hpc-cluster-1".parse().unwrap(),
        "node-hpc1-compute-042".parse().unwrap(),
    )
}

fn scope<'a>(ids: &'a (ClusterId, NodeId)) -> CommandScope<'a> {
    CommandScope {
        chain_id: "chain-1",
        contract: "wasm1contract",
        cluster_id: &ids.0,
        node_id: &ids.1,
    }
}

fn signed(command_type: &str, parameters: &str) -> Command {
    let mut command = Command {
        command_id: "cmd-1".into(),
        command_type: command_type.into(),
        parameters: RawValue::from_string(parameters.into()).unwrap(),
        deadline: "2026-01-30T14:10:00Z".parse().unwrap(),
        issued_at: "2026-01-30T14:05:00Z".parse().unwrap(),
        nonce: STANDARD.encode([2; 16]),
        signature: String::new(),
    };
    sign(&mut command);
    command
}

fn sign(command: &mut Command) {
    let message = command_message(&scope(&ids()), command, &[2; 16]);
    let signature: [u8; 64] = task_key().0.sign(&message).into();
    command.signature = STANDARD.encode(signature);
}

fn verify(command: &Command, now: UnixSeconds) -> Result<CommandType, Code> {
    verify_command(command, &scope(&ids()), &task_key().1, now, &ZebraVerifier).map_err(|r| r.code)
}

#[test]
fn a_signed_command_passes_over_the_wire_with_its_parameters_bytes() {
    for command_type in CommandType::ALL {
        let text = serde_json::to_string(&signed(command_type.as_str(), r#"{ "grace":  60 }"#)).unwrap();
        assert!(text.contains(r#"{ "grace":  60 }"#));
        let read: Command = serde_json::from_str(&text).unwrap();
        assert_eq!(verify(&read, NOW), Ok(command_type));
    }
}

#[test]
fn the_message_is_the_documented_one() {
    let (command, ids) = (signed("drain", "{}"), ids());
    let mut expected = b"hpc-command-v1".to_vec();
    for text in [
        "chain-1",
        "wasm1contract",
        "hpc-cluster-1",
        "node-hpc1-compute-042",
        "cmd-1",
        "drain",
    ] {
        expected.extend_from_slice(&u16::try_from(text.len()).unwrap().to_be_bytes());
        expected.extend_from_slice(text.as_bytes());
    }
    expected.extend_from_slice(&Sha256::digest(b"{}"));
    expected.extend_from_slice(&1_769_781_900_u64.to_be_bytes());
    expected.extend_from_slice(&1_769_782_200_u64.to_be_bytes());
    expected.extend_from_slice(&[2; 16]);
    assert_eq!(command_message(&scope(&ids), &command, &[2; 16]), expected);
}

#[test]
fn a_command_for_another_node_or_with_any_field_changed_is_refused() {
    let good = signed("drain", r#"{"grace": 60}"#);
    type Change = fn(&mut Command);
    let changes: [Change; 7] = [
        |c| c.command_id.push('2'),
        |c| c.command_type = "shutdown".into(),
        |c| c.parameters = RawValue::from_string(r#"{"grace":60}"#.into()).unwrap(),
        |c| c.deadline = "2026-01-31T14:10:00Z".parse().unwrap(),
        |c| c.issued_at = "2026-01-30T14:05:01Z".parse().unwrap(),
        |c| c.nonce = STANDARD.encode([3; 16]),
        |c| c.signature = STANDARD.encode([0; 64]),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut changed = good.clone();
        change(&mut changed);
        assert_eq!(
            verify(&changed, NOW),
            Err(Code::TaskSignatureInvalid),
            "change {i}"
        );
    }
    let ids = ids();
    for other in [
        CommandScope {
            chain_id: "chain-2",
            ..scope(&ids)
        },
        CommandScope {
            contract: "wasm1other",
            ..scope(&ids)
        },
        CommandScope {
            node_id: &"node-hpc1-compute-043".parse().unwrap(),
            ..scope(&ids)
        },
        CommandScope {
            cluster_id: &"hpc-cluster-2".parse().unwrap(),
            ..scope(&ids)
        },
    ] {
        let refusal = verify_command(&good, &other, &task_key().1, NOW, &ZebraVerifier).unwrap_err();
        assert_eq!(refusal.code, Code::TaskSignatureInvalid);
    }
}

#[test]
fn a_command_ends_after_its_deadline_and_does_not_start_in_the_future() {
    let command = signed("drain", "{}");
    assert_eq!(
        verify(&command, UnixSeconds(1_769_782_200)),
        Ok(CommandType::Drain)
    );
    assert_eq!(
        verify(&command, UnixSeconds(1_769_782_201)),
        Err(Code::TaskExpired)
    );
    assert_eq!(verify(&command, NOW.minus(60)), Ok(CommandType::Drain));
    assert_eq!(verify(&command, NOW.minus(61)), Err(Code::TimestampInFuture));
}

#[test]
fn forms_and_types_that_are_not_known_are_refused() {
    let mut long = signed("drain", "{}");
    long.command_id = "x".repeat(65);
    sign(&mut long);
    assert_eq!(verify(&long, NOW), Err(Code::Malformed));
    assert_eq!(verify(&signed("drain", "[]"), NOW), Err(Code::Malformed));
    assert_eq!(
        verify(&signed("reboot", "{}"), NOW),
        Err(Code::UnsupportedVersion)
    );
    let mut nonce = signed("drain", "{}");
    nonce.nonce = STANDARD.encode([2; 12]);
    assert_eq!(verify(&nonce, NOW), Err(Code::Malformed));
}
