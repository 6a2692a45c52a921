//! A body as agents write it is read in one pass, and says there what it says to the reader of any body.

use proptest::prelude::*;
use serde_json::json;

use super::properties::{ODD, places};
use super::*;
use crate::command::{Acknowledgement, AcknowledgementStatus};
use crate::heartbeat::{HeartbeatAuth, usual};

/// Whether it is read in one pass. If so, it says what it says to those who read any body, and any payload.
fn in_one_pass(body: &[u8]) -> bool {
    let Some((payload, auth, acknowledgements)) = usual::read::<HeartbeatAuth>(body) else {
        return false;
    };
    let any = HeartbeatRequest::any(body).unwrap();
    assert_eq!(payload.get(), any.heartbeat.get());
    assert_eq!((auth, acknowledgements), (any.auth, any.acknowledgements));
    let in_parts = Opened::in_parts(payload.get()).and_then(Opened::finish);
    assert_eq!(payload.heartbeat(), Some(&in_parts.unwrap()));
    assert!(any.heartbeat.heartbeat().is_none());
    true
}

fn any_auth() -> impl Strategy<Value = HeartbeatAuth> {
    let text = || prop::option::of("[A-Za-z0-9+/=]{1,88}");
    (
        ("[A-Za-z0-9+/]{86}==", "\\PC{1,24}", any::<Option<i64>>()),
        (prop::option::of("\\PC{1,64}"), text(), text(), text(), text()),
    )
        .prop_map(
            |((signature, nonce, timestamp), (node_id, public_key, report, report_signature, section))| {
                HeartbeatAuth {
                    signature,
                    nonce,
                    timestamp,
                    node_id,
                    public_key,
                    report,
                    report_signature,
                    section,
                }
            },
        )
}

fn any_acknowledgements() -> impl Strategy<Value = Vec<Acknowledgement>> {
    let one = ("[a-z0-9-]{1,20}", prop::option::of("\\PC{0,40}")).prop_map(|(command_id, detail)| {
        Acknowledgement {
            command_id,
            status: AcknowledgementStatus::Done,
            code: None,
            detail,
            report: None,
        }
    });
    prop::collection::vec(one, 0..4)
}

prop_compose! {
    /// A body as agents write it.
    fn any_body()(hb in any_heartbeat(), auth in any_auth(), acknowledgements in any_acknowledgements()) -> String {
        let heartbeat = serde_json::value::to_raw_value(&hb).unwrap().into();
        serde_json::to_string(&HeartbeatRequest { heartbeat, auth, acknowledgements }).unwrap()
    }
}

/// What may stand where it should not.
const BITS: [&[u8]; 18] = [
    b"",
    b" ",
    b"\n",
    b"\0",
    b"\xff",
    b"\xc3\xa4",
    b",",
    b":",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"0",
    b"null",
    b"\"x\":\"\xff\",",
    b",\"auth\":{\"signature\":\"a\",\"nonce\":\"b\"}",
];

/// The places around which a body falls into its parts.
fn seams(body: &str) -> Vec<usize> {
    let parts = ["{\"heartbeat\":", ",\"auth\":", ",\"acknowledgements\":"];
    let found = parts
        .iter()
        .filter_map(|part| Some((body.find(part)?, part.len())));
    let mut seams: Vec<_> = found
        .flat_map(|(at, len)| [at, at + 1, at + len, at + len + 1])
        .collect();
    seams.extend([body.len() - 1, body.len()]);
    seams
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_agents_write_is_read_in_one_pass(body in any_body()) {
        prop_assert!(in_one_pass(body.as_bytes()));
        prop_assert!(HeartbeatRequest::parse(body.as_bytes()).unwrap().heartbeat.heartbeat().is_some());
    }

    #[test]
    fn a_damaged_body_says_nothing_in_one_pass_that_it_does_not_say_to_the_reader_of_any(
        body in any_body(),
        damage in prop::collection::vec(
            (any::<bool>(), any::<prop::sample::Index>(), 0usize..3, prop::sample::select(BITS.to_vec())),
            1..3,
        ),
    ) {
        let seams = seams(&body);
        let mut bytes = body.into_bytes();
        for (at_a_seam, at, gone, bit) in damage {
            let at = if at_a_seam { seams[at.index(seams.len())] } else { at.index(bytes.len() + 1) };
            let at = at.min(bytes.len());
            let end = bytes.len().min(at + gone);
            bytes.splice(at..end, bit.iter().copied());
        }
        in_one_pass(&bytes);
    }

    #[test]
    fn odd_values_in_any_place_of_a_body_are_read_alike(
        place in any::<prop::sample::Index>(),
        value in prop::sample::select(ODD.to_vec()),
    ) {
        let mut v = json!({
            "heartbeat": healthy(),
            "auth": {"signature": "a", "nonce": "b", "timestamp": 1, "node_id": "n", "section": "", "x": {}},
            "acknowledgements": [{"command_id": "c", "status": "done", "code": "x", "y": []}],
        });
        let mut all = Vec::new();
        places(&v, "", &mut all);
        all.remove(0);
        *v.pointer_mut(&all[place.index(all.len())]).unwrap() = json!("@");
        let [heartbeat, auth, acknowledgements] = ["heartbeat", "auth", "acknowledgements"].map(|name| &v[name]);
        let body = format!(r#"{{"heartbeat":{heartbeat},"auth":{auth},"acknowledgements":{acknowledgements}}}"#);
        in_one_pass(body.replacen("\"@\"", value, 1).as_bytes());
    }
}

#[test]
fn only_the_usual_body_is_read_in_one_pass_and_the_others_all_the_same() {
    let heartbeat = healthy().to_string();
    let auth = r#"{"signature":"a","nonce":"b","tomorrow":[{}]}"#;
    let usual = format!(r#"{{"heartbeat":{heartbeat},"auth":{auth}}}"#);
    for body in [
        usual.clone(),
        format!("{usual} \r\n\t"),
        format!(r#"{{"heartbeat":{heartbeat},"auth":{auth},"acknowledgements":null}}"#),
        format!(r#"{{"heartbeat":{heartbeat},"auth":{auth},"acknowledgements":[]}}"#),
    ] {
        assert!(in_one_pass(body.as_bytes()), "{body}");
    }
    for body in [
        format!(r#"{{"auth":{auth},"heartbeat":{heartbeat}}}"#),
        format!(r#"{{ "heartbeat":{heartbeat},"auth":{auth}}}"#),
        format!(r#"{{"heartbeat": {heartbeat},"auth":{auth}}}"#),
        format!(r#"{{"heartbeat":{heartbeat} ,"auth":{auth}}}"#),
        format!(r#"{{"heartbeat":{heartbeat},"auth":{auth} }}"#),
        format!(r#"{{"heartbeat":{heartbeat},"auth":{auth},"tomorrow":1}}"#),
        format!(
            r#"{{"heartbeat":{},"auth":{auth}}}"#,
            heartbeat.replacen('{', r#"{"tomorrow":1,"#, 1)
        ),
        usual.replacen("\"cpu_cores_available\":32", "\"cpu_cores_available\":65", 1),
        usual.replacen("145823", "0", 1),
    ] {
        assert!(body != usual && !in_one_pass(body.as_bytes()), "{body}");
        let request = HeartbeatRequest::parse(body.as_bytes()).unwrap();
        assert!(request.heartbeat.heartbeat().is_none());
    }
    for body in [
        format!(r#"{{"heartbeat":{heartbeat},"auth":{auth},"auth":{auth}}}"#),
        format!(r#"{{"heartbeat":{heartbeat},"auth":{auth},"acknowledgements":[7]}}"#),
        format!(r#"{{"heartbeat":{heartbeat},"auth":{auth}"#),
    ] {
        assert!(HeartbeatRequest::parse(body.as_bytes()).is_err(), "{body}");
    }
}

#[test]
fn the_body_of_the_vectors_is_read_in_one_pass() {
    let vectors: Value = serde_json::from_str(include_str!("../../../vectors/heartbeat.json")).unwrap();
    let mut cases = vectors["cases"].as_array().unwrap().iter();
    let accepted = cases.find(|case| case["name"] == "accepted").unwrap();
    assert!(in_one_pass(accepted["body"].as_str().unwrap().as_bytes()));
}
