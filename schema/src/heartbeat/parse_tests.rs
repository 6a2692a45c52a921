use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::heartbeat::{
    ContainerRuntime, FixedPoint6, HealthStatus, HeartbeatRequest, JobId, LatencyMeasurement, Percent,
    SlurmState, Text, check_window,
};
use crate::refusal::RefusalKind;

const HEALTHY: &str = include_str!("../../fixtures/healthy.json");
const DEGRADED: &str = include_str!("../../fixtures/degraded.json");

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

pub(crate) fn healthy() -> Value {
    serde_json::from_str::<Value>(HEALTHY).unwrap()["heartbeat"].take()
}

fn parse(value: &Value) -> Result<Heartbeat, Refusal> {
    Heartbeat::parse(&raw(value))
}

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
        let refusal = Heartbeat::parse(&RawValue::from_string(text.into()).unwrap()).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.kind),
            (Code::Malformed, RefusalKind::Malformed),
            "{text}"
        );
    }
    let text = healthy()
        .to_string()
        .replacen(r#""status":"#, r#""status":"offline","status":"#, 1);
    let refusal = Heartbeat::parse(&RawValue::from_string(text).unwrap()).unwrap_err();
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

fn label<const N: usize>() -> impl Strategy<Value = Label<N>> {
    "[A-Za-z0-9][A-Za-z0-9 ._:+-]{0,20}".prop_map(|s| s.parse().unwrap())
}

fn time() -> impl Strategy<Value = Rfc3339> {
    (0u64..4_000_000_000, 0u32..1_000_000_000).prop_map(|(s, n)| Rfc3339::from_unix(s, n).unwrap())
}

fn quad() -> impl Strategy<Value = (u32, u32, u32)> {
    (1u32..=2_147_483_647)
        .prop_flat_map(|total| (Just(total), 0..=total))
        .prop_flat_map(|(total, available)| (Just(total), Just(available), 0..=total - available))
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let some = prop::option::of(quad());
    (
        quad(),
        quad(),
        some,
        prop::option::of(label()),
        prop::option::of(quad()),
    )
        .prop_map(|(cpu, memory, gpu, gpu_type, storage)| Capacity {
            cpu_cores_total: cpu.0,
            cpu_cores_available: cpu.1,
            cpu_cores_allocated: Some(cpu.2),
            memory_gb_total: memory.0,
            memory_gb_available: memory.1,
            memory_gb_allocated: None,
            gpus_total: gpu.map(|g| g.0),
            gpus_available: gpu.map(|g| g.1),
            gpus_allocated: gpu.map(|g| g.2),
            gpu_type,
            storage_gb_total: storage.map(|s| s.0),
            storage_gb_available: storage.map(|s| s.1),
            storage_gb_allocated: storage.map(|s| s.2),
        })
}

fn health() -> impl Strategy<Value = Health> {
    let percent = || prop::option::of((0u8..=100).prop_map(|n| Percent::try_from(n).unwrap()));
    (
        prop::sample::select(HealthStatus::ALL.to_vec()),
        prop::option::of(0..i64::MAX as u64),
        prop::option::of((0u64..1_000_000_000).prop_map(FixedPoint6::from_millionths)),
        (percent(), percent(), percent()),
        prop::option::of(any::<i32>()),
        prop::option::of(0u32..=2_147_483_647),
        prop::option::of("\\PC{1,256}".prop_map(|s| Text::cut(&s).unwrap())),
        prop::option::of(prop::sample::select(vec![SlurmState::Idle, SlurmState::Unknown])),
    )
        .prop_map(
            |(status, uptime, load, (cpu, memory, gpu), temperature, errors, message, slurm_state)| Health {
                uptime_seconds: uptime,
                load_average_1m: load,
                cpu_utilization_percent: cpu,
                memory_utilization_percent: memory,
                gpu_utilization_percent: gpu,
                temperature_celsius: temperature,
                error_count_24h: errors,
                last_error_message: message,
                slurm_state,
                ..Health::of(status)
            },
        )
}

fn latency() -> impl Strategy<Value = Latency> {
    let one =
        ("[a-z0-9][a-z0-9._-]{3,40}", 0u64..1 << 40, 0u8..=100, time()).prop_map(|(id, us, loss, at)| {
            LatencyMeasurement {
                target_node_id: id.parse().unwrap(),
                latency_us: (loss < 100).then_some(us),
                packet_loss_percent: Percent::try_from(loss).unwrap(),
                measured_at: at,
            }
        });
    (prop::collection::vec(one, 0..20), prop::option::of(0u64..1 << 40)).prop_map(|(measurements, avg)| {
        Latency {
            measurements,
            gateway_latency_us: avg,
            chain_latency_ms: None,
            avg_cluster_latency_us: avg,
        }
    })
}

fn jobs() -> impl Strategy<Value = Jobs> {
    (
        prop::option::of(0u32..=2_147_483_647),
        prop::collection::vec(label::<64>(), 0..80),
    )
        .prop_map(|(running_count, active_job_ids): (_, Vec<JobId>)| Jobs {
            running_count,
            active_job_ids,
            ..Jobs::default()
        })
}

pub(crate) fn any_heartbeat() -> impl Strategy<Value = Heartbeat> {
    (
        (
            "[a-z0-9][a-z0-9._-]{3,40}",
            "[a-z0-9][a-z0-9._-]{3,40}",
            1u32..,
            time(),
            prop::option::of(label()),
        ),
        capacity(),
        health(),
        prop::option::of(latency()),
        prop::option::of(jobs()),
        prop::option::of(any::<bool>()),
    )
        .prop_map(
            |(
                (node, cluster, sequence, timestamp, agent_version),
                capacity,
                health,
                latency,
                jobs,
                slurmd,
            )| {
                Heartbeat {
                    node_id: node.parse().unwrap(),
                    cluster_id: cluster.parse().unwrap(),
                    sequence_number: NonZeroU32::new(sequence).unwrap(),
                    timestamp,
                    agent_version,
                    capacity,
                    health,
                    latency,
                    jobs,
                    services: slurmd.map(|b| Services {
                        slurmd_running: Some(b),
                        container_runtime: Some(ContainerRuntime::Podman),
                        ..Services::default()
                    }),
                }
            },
        )
}

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
