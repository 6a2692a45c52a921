//! What holds whatever comes in.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| json!(f)),
        "\\PC{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,12}", inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Every place of the healthy example, as JSON pointers.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| places(v, &format!("{at}/{k}"), out)),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(i, v)| places(v, &format!("{at}/{i}"), out)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_reads_back_equal(hb in any_heartbeat()) {
        hb.check().unwrap();
        let text = serde_json::to_string(&hb).unwrap();
        prop_assert!(!text.contains(":null"));
        prop_assert_eq!(Heartbeat::parse(&RawValue::from_string(text).unwrap()), Ok(hb));
    }

    #[test]
    fn arbitrary_json_in_any_place_never_panics(place: prop::sample::Index, value in any_json()) {
        let mut v = healthy();
        let mut all = Vec::new();
        places(&v, "", &mut all);
        *v.pointer_mut(&all[place.index(all.len())]).unwrap() = value;
        match parse(&v) {
            // What passes is in range whatever was put in.
            Ok(hb) => prop_assert!(hb.check().is_ok() && hb.sequence_number.get() > 0),
            Err(refusal) => prop_assert!(refusal.message.ends_with(refusal.code.remedy())),
        }
    }

    #[test]
    fn arbitrary_bytes_are_never_a_request(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(HeartbeatRequest::parse(&bytes).is_err());
    }
}
