//! What holds whatever comes in.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// What two readers might take for different things.
pub(super) const ODD: [&str; 25] = [
    "null",
    "\"\"",
    "true",
    "0",
    "-0",
    "1",
    "1.0",
    "1e0",
    "1e999",
    "-1",
    "100",
    "101",
    "2147483648",
    "9223372036854775808",
    "18446744073709551616",
    "[]",
    "{}",
    "[null]",
    "[\"\"]",
    "\"5\"",
    "\"\\u0035\"",
    "[\"node-1\",120,0,\"2026-01-01T00:00:00Z\"]",
    "[64,32,32,512,200,312,8,3,5,\"A100\",7680,4200,3480]",
    "{\"cpu_cores_total\":2,\"cpu_cores_available\":1,\"memory_gb_total\":2,\"memory_gb_available\":1}",
    "{\"status\":\"healthy\",\"slurm_state\":null,\"load_average_1m\":\"\",\"last_error_message\":\"\\u00e4\"}",
];

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

/// What is read in one pass is what is read field by field, and passes every rule there.
fn read_alike(text: &str) {
    if let Some(whole) = whole::read(text) {
        let in_parts = Opened::in_parts(text).and_then(Opened::finish);
        assert_eq!(in_parts, Ok(Arc::new(whole)), "{text}");
    }
}

/// Every place of the healthy example, as JSON pointers.
pub(super) fn places(value: &Value, at: &str, out: &mut Vec<String>) {
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
        prop_assert!(whole::read(&text).is_some());
        prop_assert_eq!(Heartbeat::parse(&payload(text)), Ok(hb));
    }

    #[test]
    fn arbitrary_json_in_any_place_never_panics(place: prop::sample::Index, value in any_json()) {
        let mut v = healthy();
        let mut all = Vec::new();
        places(&v, "", &mut all);
        *v.pointer_mut(&all[place.index(all.len())]).unwrap() = value;
        read_alike(&v.to_string());
        match parse(&v) {
            // What passes is in range whatever was put in.
            Ok(hb) => prop_assert!(hb.check().is_ok() && hb.sequence_number.get() > 0),
            Err(refusal) => prop_assert!(refusal.message.ends_with(refusal.code.remedy())),
        }
    }

    #[test]
    fn one_pass_takes_nothing_that_field_by_field_is_refused_or_read_otherwise(
        place in any::<prop::sample::Index>(),
        value in prop::sample::select(ODD.to_vec()),
    ) {
        let mut v = healthy();
        let mut all = Vec::new();
        places(&v, "", &mut all);
        *v.pointer_mut(&all[place.index(all.len())]).unwrap() = json!("@");
        read_alike(&v.to_string().replacen("\"@\"", value, 1));
    }

    #[test]
    fn a_key_that_stands_twice_is_taken_by_neither(
        object in any::<prop::sample::Index>(),
        key in any::<prop::sample::Index>(),
        (escaped, unknown) in any::<(bool, bool)>(),
    ) {
        let mut v = healthy();
        let mut all = Vec::new();
        places(&v, "", &mut all);
        all.retain(|at| v.pointer(at).is_some_and(Value::is_object));
        let map = v.pointer_mut(&all[object.index(all.len())]).unwrap().as_object_mut().unwrap();
        if unknown {
            map.insert("unknown".to_owned(), json!(1));
        }
        let names: Vec<_> = map.keys().cloned().collect();
        let name = if unknown { "unknown" } else { names[key.index(names.len())].as_str() };
        let again = if escaped { format!("\\u{:04x}{}", name.as_bytes()[0], &name[1..]) } else { name.to_owned() };
        let value = map[name].to_string();
        map.insert("@".to_owned(), json!("@"));
        let once = v.to_string().replacen("\"@\":\"@\"", "\"other\":1", 1);
        prop_assert!(Heartbeat::parse(&payload(once)).is_ok(), "what is unknown is passed over");
        let twice = v.to_string().replacen("\"@\":\"@\"", &format!("\"{again}\":{value}"), 1);
        prop_assert!(whole::read(&twice).is_none());
        let refusal = Heartbeat::parse(&payload(twice)).unwrap_err();
        prop_assert_eq!(refusal.kind, RefusalKind::Malformed, "{}", refusal);
    }

    #[test]
    fn lists_that_are_null_are_empty_in_one_pass(of in prop::sample::select(vec!["/latency/measurements", "/jobs/active_job_ids"])) {
        let mut v = healthy();
        *v.pointer_mut(of).unwrap() = Value::Null;
        prop_assert!(whole::read(&v.to_string()).is_some());
        read_alike(&v.to_string());
    }

    #[test]
    fn arbitrary_bytes_are_never_a_request(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(HeartbeatRequest::parse(&bytes).is_err());
    }
}
