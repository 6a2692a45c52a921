mod committed;
mod histories;
mod rules;

use super::*;
use crate::report::Figures;

const T0: u32 = 1_800_000_000;

fn at(seconds: u32) -> UnixSeconds {
    UnixSeconds(u64::from(T0 + seconds))
}

fn body(status: HealthStatus, running_count: u64) -> Body {
    Body::saturating(
        status,
        &Figures {
            running_count,
            cores_available: 8,
            avg_cluster_latency_us: 500,
            measurement_count: 3,
            ..Figures::default()
        },
    )
}

fn active() -> HotRecord {
    HotRecord {
        sequence: 1,
        last_heartbeat: T0,
        state: NodeState::Active,
        status: Some(HealthStatus::Healthy),
        ..HotRecord::pending()
    }
}

fn report(record: HotRecord, time: u32, now: u32, status: HealthStatus, jobs: u64) -> Applied {
    let params = Params::default();
    let ctx = Context {
        now: at(now),
        params: &params,
        cluster_active: true,
    };
    let view = ReportView {
        time: T0 + time,
        sequence: record.sequence + 1,
        body: body(status, jobs),
    };
    apply_report(record, &view, &ctx).unwrap()
}

fn sweep(record: HotRecord, now: u32) -> HotRecord {
    step_silence(
        record,
        &Params::default(),
        at(now),
        Silence::Sweep { drain_until: None },
    )
    .0
}
