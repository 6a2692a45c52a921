//! Results that nobody's node has signed, or not for this task: each refused with its code, and the task's row stays as
//! it was.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use hpc_schema::key::AgentKey;
use hpc_schema::task::{TaskHash, TaskOutcome, TaskResult, TaskState, TaskType, result_message};
use hpc_schema::time::Rfc3339;
use serde_json::value::RawValue;

use super::tests::{NOW, put, store, take, taken, task};
use super::*;
use crate::page::Window;
use crate::store::Store;

/// What a health probe may say.
const PROBED: &str =
    r#"{"status":"pass","checks":[],"kvm_present":true,"vfio_loaded":true,"gpus":[],"fabric_links":[]}"#;

fn node() -> SigningKey {
    SigningKey::from([1; 32])
}

fn public(key: &SigningKey) -> AgentKey {
    AgentKey::from_bytes(VerificationKey::from(key).into()).unwrap()
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// So many seconds after the task was issued.
fn at(seconds: i64) -> Rfc3339 {
    Rfc3339::from_unix((NOW / 1000).saturating_add_signed(seconds), 0).unwrap()
}

fn unsigned(hash: TaskHash) -> TaskResult {
    TaskResult {
        task_hash: hash.to_hex(),
        outcome: TaskOutcome::Completed,
        code: None,
        detail: None,
        result: raw(PROBED),
        started_at: at(0),
        finished_at: at(0),
        signature: String::new(),
    }
}

fn sign(key: &SigningKey, hash: TaskHash, result: &mut TaskResult) {
    result.signature = STANDARD.encode(<[u8; 64]>::from(key.sign(&result_message(hash, result))));
}

/// A good result with something changed after it was signed.
fn changed(hash: TaskHash, change: impl Fn(&mut TaskResult)) -> TaskResult {
    let mut result = unsigned(hash);
    sign(&node(), hash, &mut result);
    change(&mut result);
    result
}

/// The same, signed anew: what is said is false, and the node says it.
fn said(hash: TaskHash, change: impl Fn(&mut TaskResult)) -> TaskResult {
    let mut result = unsigned(hash);
    change(&mut result);
    sign(&node(), hash, &mut result);
    result
}

fn by_hand(hash: TaskHash, other: TaskHash) -> Vec<(TaskResult, Code)> {
    let (forged, malformed) = (Code::SignatureInvalid, Code::Malformed);
    let by = |key: SigningKey, of: TaskHash| {
        let mut result = unsigned(hash);
        sign(&key, of, &mut result);
        result
    };
    vec![
        (by(SigningKey::from([2; 32]), hash), forged),
        (by(node(), other), forged),
        (changed(hash, |r| r.outcome = TaskOutcome::Failed), forged),
        (changed(hash, |r| r.outcome = TaskOutcome::Cancelled), forged),
        (changed(hash, |r| r.outcome = TaskOutcome::Expired), forged),
        (
            changed(hash, |r| r.result = raw(&PROBED.replace(':', ": "))),
            forged,
        ),
        (
            changed(hash, |r| r.result = raw(&PROBED.replace("true", "false"))),
            forged,
        ),
        (changed(hash, |r| r.result = raw("{}")), forged),
        (changed(hash, |r| r.detail = Some("done".to_owned())), forged),
        (changed(hash, |r| r.started_at = at(1)), forged),
        (changed(hash, |r| r.finished_at = at(1)), forged),
        (changed(hash, |r| r.signature = STANDARD.encode([0; 64])), forged),
        (
            changed(hash, |r| r.signature = STANDARD.encode([255; 64])),
            forged,
        ),
        // Its own words about another task.
        (said(other, |_| {}), Code::TaskMismatch),
        (
            changed(hash, |r| r.task_hash = other.to_hex()),
            Code::TaskMismatch,
        ),
        (
            said(hash, |r| r.task_hash = r.task_hash.to_uppercase()),
            Code::TaskMismatch,
        ),
        (said(hash, |r| r.task_hash.truncate(62)), Code::TaskMismatch),
        // Words that no result may have, whoever signed them.
        (said(hash, |r| r.code = Some("task_failed".to_owned())), malformed),
        (
            said(hash, |r| {
                r.outcome = TaskOutcome::Failed;
                r.code = Some("no_such_code".to_owned());
            }),
            malformed,
        ),
        (said(hash, |r| r.detail = Some("x".repeat(1025))), malformed),
        (said(hash, |r| r.result = raw("[]")), malformed),
        (said(hash, |r| r.result = raw("null")), malformed),
        // What is no signature at all.
        (unsigned(hash), malformed),
        (changed(hash, |r| r.signature = "*".to_owned()), malformed),
        (
            changed(hash, |r| r.signature = r.signature.replace('=', "")),
            malformed,
        ),
        (changed(hash, |r| r.signature.push_str("AA==")), malformed),
        // What no completed task of this type can have said, nor when.
        (said(hash, |r| r.result = raw("{}")), Code::InvalidField),
        (
            said(hash, |r| r.result = raw(&PROBED.replace("[]", "{}"))),
            Code::InvalidField,
        ),
        (said(hash, |r| r.finished_at = at(-61)), Code::InvalidField),
        (said(hash, |r| r.finished_at = at(61)), Code::TimestampInFuture),
        (
            said(hash, |r| {
                r.result = raw(&format!("{{\"a\":\"{}\"}}", "x".repeat(262_144)));
            }),
            Code::BodyTooLarge,
        ),
    ]
}

async fn hash_of(store: &Store, id: &str) -> TaskHash {
    let mut conn = store.reader().acquire().await.unwrap();
    let row = find(&mut conn, None, &id.parse::<TaskId>().unwrap())
        .await
        .unwrap()
        .pop()
        .unwrap();
    row.hash
}

async fn refused(store: &Store, id: &str, result: &TaskResult, wanted: Code, case: &str) {
    let mut tx = store.begin().await.unwrap();
    let taken = taken(&mut tx, id, result, &public(&node())).await;
    tx.commit().await.unwrap();
    match taken {
        Taken::Refused(refusal) | Taken::Unusable(refusal) => {
            assert_eq!(refusal.code, wanted, "{case}: {refusal}");
        }
        taken => panic!("{case}: {taken:?}"),
    }
}

#[tokio::test]
async fn a_forged_result_is_refused_with_its_code_and_the_task_stays_under_way() {
    let (_dir, store) = store().await;
    for id in ["t001", "t002"] {
        put(&store, &task(id, TaskType::DiagHealthProbe, "{}")).await;
    }
    take(&store, 4, NOW).await;
    let (hash, other) = (hash_of(&store, "t001").await, hash_of(&store, "t002").await);
    let cases = by_hand(hash, other);
    assert!(cases.len() >= 15, "{}", cases.len());
    for (n, (result, wanted)) in cases.iter().enumerate() {
        refused(&store, "t001", result, *wanted, &format!("case {n}")).await;
    }
    // A task that is not on record, or another node's.
    let good = said(hash, |_| {});
    refused(&store, "t003", &good, Code::UnknownTask, "unknown task").await;
    // Every bit of a signature counts; a sample of them.
    for bit in (0..512).step_by(11) {
        let flipped = changed(hash, |r| {
            let mut bytes = STANDARD.decode(&r.signature).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            r.signature = STANDARD.encode(bytes);
        });
        refused(
            &store,
            "t001",
            &flipped,
            Code::SignatureInvalid,
            &format!("bit {bit}"),
        )
        .await;
    }
    let rows = history(
        store.reader(),
        None,
        Some(TaskState::Dispatched),
        Window::default(),
    )
    .await
    .unwrap()
    .items;
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter()
            .all(|r| r.result.is_none() && r.ended_ms.is_none() && r.code.is_none())
    );
    // The true one is taken, and afterwards no other.
    let mut tx = store.begin().await.unwrap();
    let taken = taken(&mut tx, "t001", &good, &public(&node())).await;
    tx.commit().await.unwrap();
    assert_eq!(taken, Taken::Recorded);
    let second = said(hash, |r| r.result = raw("{}"));
    refused(&store, "t001", &second, Code::TaskMismatch, "a second word").await;
}

#[tokio::test]
async fn what_a_later_agent_says_more_is_taken_and_of_what_was_not_done_whatever_it_says() {
    let (_dir, store) = store().await;
    for id in ["t001", "t002", "t003"] {
        put(&store, &task(id, TaskType::DiagHealthProbe, "{}")).await;
    }
    take(&store, 4, NOW).await;
    let more = PROBED.replace("{", r#"{"of_tomorrow":1,"#);
    let failed = |r: &mut TaskResult| {
        r.outcome = TaskOutcome::Failed;
        r.code = Some("task_failed".to_owned());
        r.result = raw(r#"{"findings":["x"]}"#);
        r.finished_at = at(-800_000_000);
    };
    let more = |r: &mut TaskResult, late: i64| {
        r.result = raw(&more);
        r.finished_at = at(late);
    };
    let said = [
        ("t001", said(hash_of(&store, "t001").await, |r| more(r, 60))),
        ("t002", said(hash_of(&store, "t002").await, |r| more(r, -60))),
        ("t003", said(hash_of(&store, "t003").await, failed)),
    ];
    for (id, result) in said {
        let mut tx = store.begin().await.unwrap();
        let taken = taken(&mut tx, id, &result, &public(&node())).await;
        tx.commit().await.unwrap();
        assert_eq!(taken, Taken::Recorded, "{id}");
    }
}

#[tokio::test]
async fn a_task_whose_result_is_of_no_use_ends_as_unknown_until_a_better_one_comes() {
    let (_dir, store) = store().await;
    put(&store, &task("t001", TaskType::DiagHealthProbe, "{}")).await;
    take(&store, 4, NOW).await;
    let hash = hash_of(&store, "t001").await;
    let row = async || {
        let mut conn = store.reader().acquire().await.unwrap();
        let found = find(&mut conn, None, &"t001".parse::<TaskId>().unwrap()).await;
        found.unwrap().pop().unwrap()
    };
    let early = said(hash, |r| r.finished_at = at(61));
    let mut tx = store.begin().await.unwrap();
    let refusal = match taken(&mut tx, "t001", &early, &public(&node())).await {
        Taken::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal.code, Code::TimestampInFuture);
    let formless = said(hash, |r| r.result = raw("{}"));
    let refusal = match taken(&mut tx, "t001", &formless, &public(&node())).await {
        Taken::Unusable(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    tx.rollback().await.unwrap();
    let before = row().await;
    assert_eq!(before.state, TaskState::Dispatched);
    let mut tx = store.begin().await.unwrap();
    let last = ended_unknown(&before, &refusal, NOW);
    last.execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let unknown = row().await;
    assert_eq!(
        (unknown.state, unknown.code.as_deref(), unknown.result.is_none()),
        (TaskState::Failed, Some("outcome_unknown"), true)
    );
    assert!(unknown.detail.unwrap().contains("missing field"));
    // It is not delivered again.
    assert!(take(&store, 4, NOW + 60_000).await.is_empty());
    let mut tx = store.begin().await.unwrap();
    let good = taken(&mut tx, "t001", &said(hash, |_| {}), &public(&node())).await;
    tx.commit().await.unwrap();
    assert_eq!((good, row().await.state), (Taken::Recorded, TaskState::Completed));
}
