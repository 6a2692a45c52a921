//! Any heartbeat that can be.

use proptest::prelude::*;

use super::*;

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
