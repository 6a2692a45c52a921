//! The specification's examples, and each rule broken.

use serde_json::json;

use super::*;

#[test]
fn the_specifications_examples_validate_at_a_clock_set_to_their_timestamps() {
    for (text, sequence, status) in [
        (HEALTHY, 145_823, HealthStatus::Healthy),
        (DEGRADED, 89_421, HealthStatus::Degraded),
    ] {
        let request = HeartbeatRequest::parse(text.as_bytes()).unwrap();
        let hb = Heartbeat::parse(&request.heartbeat).unwrap();
        hb.check().unwrap();
        assert_eq!((hb.sequence_number.get(), hb.health.status), (sequence, status));
        check_window(hb.timestamp.seconds(), hb.timestamp.seconds()).unwrap();
        // Nothing is lost and nothing is made up: what is written again is what came in.
        let again: Value = serde_json::to_value(&hb).unwrap();
        assert_eq!(
            again,
            serde_json::from_str::<Value>(request.heartbeat.get()).unwrap()
        );
    }
}

#[test]
fn the_degraded_example_has_no_storage_and_none_is_made_up() {
    let request = HeartbeatRequest::parse(DEGRADED.as_bytes()).unwrap();
    let hb = Heartbeat::parse(&request.heartbeat).unwrap();
    assert_eq!(hb.capacity.storage_gb_total, None);
    assert!(!serde_json::to_string(&hb).unwrap().contains("storage"));
}

#[test]
fn what_is_required_is_required_and_the_rest_is_not() {
    let least = json!({
        "node_id": "node-1", "cluster_id": "cluster-1", "sequence_number": 1,
        "timestamp": "2026-01-30T14:05:00Z",
        "capacity": {"cpu_cores_total": 1, "cpu_cores_available": 0, "memory_gb_total": 1, "memory_gb_available": 1},
        "health": {"status": "offline"}
    });
    let hb = parse(&least).unwrap();
    assert_eq!(serde_json::to_value(&hb).unwrap(), least);
    for (pointer, code) in [
        ("/node_id", Code::InvalidField),
        ("/cluster_id", Code::InvalidField),
        ("/sequence_number", Code::InvalidSequence),
        ("/timestamp", Code::InvalidField),
        ("/capacity", Code::InvalidCapacity),
        ("/capacity/cpu_cores_total", Code::InvalidCapacity),
        ("/capacity/cpu_cores_available", Code::InvalidCapacity),
        ("/capacity/memory_gb_total", Code::InvalidCapacity),
        ("/capacity/memory_gb_available", Code::InvalidCapacity),
        ("/health", Code::InvalidHealth),
        ("/health/status", Code::InvalidHealth),
    ] {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let mut without = least.clone();
        without
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(key);
        let mut null = least.clone();
        *null.pointer_mut(pointer).unwrap() = Value::Null;
        for value in [without, null] {
            let refusal = parse(&value).unwrap_err();
            assert_eq!(refusal.code, code, "{pointer}");
            assert_eq!(
                refusal.field.as_deref(),
                Some(pointer[1..].replace('/', ".").as_str())
            );
            assert!(refusal.message.ends_with(code.remedy()), "{refusal}");
            assert_eq!(refusal.kind, RefusalKind::Semantic);
        }
    }
}

#[test]
fn unknown_fields_are_ignored_and_nulls_and_empty_texts_are_absent() {
    let mut v = healthy();
    v["tomorrow"] = json!({"deep": [[[]]]});
    v["health"]["gpu_utilization_percent"] = Value::Null;
    v["health"]["last_error_message"] = json!("");
    v["capacity"]["gpu_type"] = json!("");
    v["latency"]["measurements"] = Value::Null;
    let hb = parse(&v).unwrap();
    assert_eq!(hb.health.gpu_utilization_percent, None);
    assert_eq!(hb.health.last_error_message, None);
    assert_eq!(hb.capacity.gpu_type, None);
    assert!(!serde_json::to_string(&hb).unwrap().contains("null"));
}

#[test]
fn whatever_is_optional_may_be_null_or_the_empty_text() {
    let full = healthy();
    let (mut all, mut optional) = (Vec::new(), 0);
    properties::places(&full, "", &mut all);
    for at in all {
        let Some((parent, key)) = at.rsplit_once('/') else {
            continue;
        };
        let mut without = full.clone();
        let Some(object) = without.pointer_mut(parent).unwrap().as_object_mut() else {
            continue;
        };
        object.remove(key);
        let Ok(expected) = parse(&without) else {
            continue;
        };
        for absent in [Value::Null, json!("")] {
            let mut v = full.clone();
            *v.pointer_mut(&at).unwrap() = absent;
            assert_eq!(parse(&v).as_ref(), Ok(&expected), "{at}");
        }
        optional += 1;
    }
    assert!(optional > 30, "{optional}");
}

#[test]
fn what_a_number_must_be_is_told() {
    let written = "must be an integer from 1 to 4294967295, without quotes, fraction or exponent";
    for (pointer, bad, says) in [
        ("/sequence_number", Value::Null, "is required"),
        ("/sequence_number", json!("13"), written),
        ("/sequence_number", json!(14.0), written),
        ("/sequence_number", json!(0), "must be 1 to 4294967295"),
        (
            "/health/load_average_1m",
            json!("1234567890123456"),
            "must be an integer of at most 15 digits as a string",
        ),
    ] {
        let mut v = healthy();
        *v.pointer_mut(pointer).unwrap() = bad.clone();
        let refusal = parse(&v).unwrap_err();
        let says = format!("{}: {says}", path_of(pointer));
        assert!(refusal.message.starts_with(&says), "{bad}: {refusal}");
    }
}

#[test]
fn every_rule_is_refused_with_its_code_and_field() {
    let long = "x".repeat(65);
    let cases: Vec<(&str, Value, Code)> = vec![
        ("/node_id", json!("abc"), Code::InvalidField),
        ("/node_id", json!(7), Code::InvalidField),
        ("/cluster_id", json!("a cluster"), Code::InvalidField),
        ("/sequence_number", json!(0), Code::InvalidSequence),
        ("/sequence_number", json!(-1), Code::InvalidSequence),
        (
            "/sequence_number",
            json!(4_294_967_296_u64),
            Code::InvalidSequence,
        ),
        ("/sequence_number", json!(u64::MAX), Code::InvalidSequence),
        ("/sequence_number", json!("7"), Code::InvalidSequence),
        ("/sequence_number", json!(1.5), Code::InvalidSequence),
        ("/timestamp", json!("yesterday"), Code::InvalidField),
        ("/timestamp", json!(1_769_781_900), Code::InvalidField),
        (
            "/timestamp",
            json!("2026-01-30T14:05:00+0000"),
            Code::InvalidField,
        ),
        ("/agent_version", json!("v".repeat(33)), Code::InvalidField),
        ("/capacity", json!([]), Code::InvalidCapacity),
        ("/capacity/cpu_cores_total", json!(0), Code::InvalidCapacity),
        ("/capacity/cpu_cores_total", json!(-64), Code::InvalidCapacity),
        ("/capacity/cpu_cores_total", json!("64"), Code::InvalidCapacity),
        ("/capacity/cpu_cores_total", json!(64.0), Code::InvalidCapacity),
        (
            "/capacity/cpu_cores_total",
            json!(2_147_483_648_u64),
            Code::InvalidCapacity,
        ),
        ("/capacity/cpu_cores_available", json!(65), Code::InvalidCapacity),
        ("/capacity/cpu_cores_available", json!(-1), Code::InvalidCapacity),
        ("/capacity/cpu_cores_allocated", json!(33), Code::InvalidCapacity),
        ("/capacity/memory_gb_total", json!(0), Code::InvalidCapacity),
        ("/capacity/memory_gb_available", json!(257), Code::InvalidCapacity),
        ("/capacity/memory_gb_allocated", json!(129), Code::InvalidCapacity),
        ("/capacity/gpus_available", json!(5), Code::InvalidCapacity),
        ("/capacity/gpus_allocated", json!(3), Code::InvalidCapacity),
        ("/capacity/gpus_total", Value::Null, Code::InvalidCapacity),
        ("/capacity/gpu_type", json!(long), Code::InvalidCapacity),
        ("/capacity/gpu_type", json!("A\"100"), Code::InvalidCapacity),
        (
            "/capacity/storage_gb_available",
            json!(2001),
            Code::InvalidCapacity,
        ),
        (
            "/capacity/storage_gb_allocated",
            json!(501),
            Code::InvalidCapacity,
        ),
        ("/health", json!("healthy"), Code::InvalidHealth),
        ("/health/status", json!("fine"), Code::InvalidHealth),
        ("/health/status", json!("Healthy"), Code::InvalidHealth),
        ("/health/uptime_seconds", json!(-1), Code::InvalidHealth),
        ("/health/load_average_1m", json!("16.5"), Code::InvalidHealth),
        ("/health/load_average_5m", json!(16.5), Code::InvalidHealth),
        ("/health/load_average_15m", json!("-1"), Code::InvalidHealth),
        ("/health/cpu_utilization_percent", json!(101), Code::InvalidHealth),
        ("/health/cpu_utilization_percent", json!(-1), Code::InvalidHealth),
        ("/health/cpu_utilization_percent", json!(356), Code::InvalidHealth),
        (
            "/health/memory_utilization_percent",
            json!(101),
            Code::InvalidHealth,
        ),
        ("/health/gpu_utilization_percent", json!(101), Code::InvalidHealth),
        (
            "/health/gpu_memory_utilization_percent",
            json!(101),
            Code::InvalidHealth,
        ),
        (
            "/health/disk_io_utilization_percent",
            json!(101),
            Code::InvalidHealth,
        ),
        (
            "/health/network_utilization_percent",
            json!(101),
            Code::InvalidHealth,
        ),
        ("/health/temperature_celsius", json!(1e10), Code::InvalidHealth),
        (
            "/health/gpu_temperature_celsius",
            json!("hot"),
            Code::InvalidHealth,
        ),
        ("/health/error_count_24h", json!(-1), Code::InvalidHealth),
        ("/health/warning_count_24h", json!(-1), Code::InvalidHealth),
        (
            "/health/last_error_message",
            json!("e".repeat(257)),
            Code::InvalidHealth,
        ),
        ("/health/slurm_state", json!("busy"), Code::InvalidHealth),
        ("/latency", json!(1), Code::InvalidField),
        ("/latency/gateway_latency_us", json!(-1), Code::InvalidField),
        ("/latency/chain_latency_ms", json!("1"), Code::InvalidField),
        (
            "/latency/avg_cluster_latency_us",
            json!(9_223_372_036_854_775_808_u64),
            Code::InvalidField,
        ),
        ("/latency/measurements", json!({}), Code::InvalidField),
        ("/latency/measurements", json!(vec![0; 65]), Code::InvalidField),
        ("/latency/measurements/0", json!(1), Code::InvalidField),
        (
            "/latency/measurements/1/target_node_id",
            json!(""),
            Code::InvalidField,
        ),
        (
            "/latency/measurements/1/latency_us",
            Value::Null,
            Code::InvalidField,
        ),
        (
            "/latency/measurements/1/packet_loss_percent",
            json!(101),
            Code::InvalidField,
        ),
        (
            "/latency/measurements/1/measured_at",
            json!("now"),
            Code::InvalidField,
        ),
        ("/jobs", json!(true), Code::InvalidField),
        ("/jobs/running_count", json!(-1), Code::InvalidField),
        ("/jobs/active_job_ids", json!(vec!["j"; 513]), Code::InvalidField),
        ("/jobs/active_job_ids/0", json!(long), Code::InvalidField),
        ("/jobs/active_job_ids/1", json!("a\nb"), Code::InvalidField),
        ("/jobs/active_job_ids/1", json!(5), Code::InvalidField),
        ("/services", json!([]), Code::InvalidField),
        ("/services/slurmd_running", json!("yes"), Code::InvalidField),
        ("/services/slurmd_version", json!("\u{7}"), Code::InvalidField),
        ("/services/container_runtime", json!("lxc"), Code::InvalidField),
    ];
    for (pointer, bad, code) in cases {
        let mut v = healthy();
        v["health"]["last_error_message"] = json!("GPU ECC error corrected on device 2");
        *v.pointer_mut(pointer).unwrap() = bad.clone();
        let refusal = parse(&v).expect_err(pointer);
        assert_eq!(refusal.code, code, "{pointer} = {bad}");
        assert_eq!(refusal.field, Some(path_of(pointer)), "{pointer} = {bad}");
        assert_eq!(refusal.kind, RefusalKind::Semantic, "{pointer} = {bad}");
    }
}

/// `/a/0/b` as refusals write it: `a[0].b`.
fn path_of(pointer: &str) -> String {
    pointer[1..]
        .split('/')
        .fold(String::new(), |path, part| match part.parse::<u8>() {
            Ok(i) => format!("{path}[{i}]"),
            Err(_) if path.is_empty() => part.to_owned(),
            Err(_) => format!("{path}.{part}"),
        })
}

#[test]
fn a_key_that_stands_twice_and_a_payload_that_is_no_object_are_malformed() {
    for text in [
        r#"{"node_id": "node-1", "node_id": "node-2"}"#,
        r#"{"node_id": "node-1", "node\u005fid": "node-2"}"#,
        "[]",
        "null",
        "7",
    ] {
        let refusal = Heartbeat::parse(&payload(text)).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.kind),
            (Code::Malformed, RefusalKind::Malformed),
            "{text}"
        );
    }
    let text = healthy()
        .to_string()
        .replacen(r#""status":"#, r#""status":"offline","status":"#, 1);
    let refusal = Heartbeat::parse(&payload(text)).unwrap_err();
    assert_eq!(refusal.field.as_deref(), Some("health"));
    assert_eq!(refusal.kind, RefusalKind::Malformed);
}

#[test]
fn a_peer_that_lost_every_packet_has_no_latency() {
    let mut v = healthy();
    v["latency"]["measurements"][0] = json!({"target_node_id": "node-2", "packet_loss_percent": 100,
        "measured_at": "2026-01-30T14:04:55Z"});
    assert_eq!(
        parse(&v).unwrap().latency.unwrap().measurements[0].latency_us,
        None
    );
}
