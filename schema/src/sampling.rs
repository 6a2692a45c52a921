//! How often an agent measures (specification 000 "Metrics Sampling Intervals").

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::heartbeat::Percent;

/// A group of figures that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetricCategory {
    /// Totals, available, allocated.
    Capacity,
    /// `health.status` and what it rests on.
    HealthStatus,
    /// CPU and memory in use.
    Utilization,
    /// All of GPUs.
    Gpu,
    /// Round trips to peers.
    Latency,
    /// Running, pending, completed, failed.
    JobCounts,
    /// CPU temperature.
    Temperature,
}

/// One row of the specification's table, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingLimits {
    /// Not measured more often.
    pub min_seconds: u32,
    /// The default.
    pub recommended_seconds: u32,
    /// An older figure counts as unknown.
    pub max_staleness_seconds: u32,
}

impl MetricCategory {
    /// Every category, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Capacity,
        Self::HealthStatus,
        Self::Utilization,
        Self::Gpu,
        Self::Latency,
        Self::JobCounts,
        Self::Temperature,
    ];

    /// The category's row.
    #[must_use]
    pub fn limits(self) -> SamplingLimits {
        let (min_seconds, recommended_seconds, max_staleness_seconds) = match self {
            Self::Capacity | Self::HealthStatus => (10, 30, 60),
            Self::Utilization | Self::Gpu => (5, 15, 30),
            Self::Latency => (60, 300, 600),
            Self::JobCounts => (30, 60, 120),
            Self::Temperature => (30, 60, 300),
        };
        SamplingLimits {
            min_seconds,
            recommended_seconds,
            max_staleness_seconds,
        }
    }

    /// [`adaptive_interval`], kept between the category's minimum and its longest staleness.
    #[must_use]
    pub fn interval(self, base: Duration, cpu_utilization: Percent, state_changed: bool) -> Duration {
        let limits = self.limits();
        adaptive_interval(base, cpu_utilization, state_changed).clamp(
            Duration::from_secs(u64::from(limits.min_seconds)),
            Duration::from_secs(u64::from(limits.max_staleness_seconds)),
        )
    }
}

/// The specification's adaptive sampling, without its category's limits: above 90 % CPU twice the base,
/// above 75 % one and a half, else half of it during a change of state.
#[must_use]
pub fn adaptive_interval(base: Duration, cpu_utilization: Percent, state_changed: bool) -> Duration {
    match cpu_utilization.get() {
        91.. => base.saturating_mul(2),
        76.. => base.saturating_add(base / 2),
        _ if state_changed => base / 2,
        _ => base,
    }
}

/// `sampling_config` of the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SamplingConfig {
    /// Interval of heartbeats: 10–120.
    #[schemars(range(min = 10, max = 120))]
    pub base_interval_seconds: u32,
    /// Of [`MetricCategory::Capacity`]: 10–60.
    #[schemars(range(min = 10, max = 60))]
    pub capacity_interval_seconds: u32,
    /// Of [`MetricCategory::HealthStatus`]: 10–60.
    #[schemars(range(min = 10, max = 60))]
    pub health_interval_seconds: u32,
    /// Of [`MetricCategory::Utilization`]: 5–30.
    #[schemars(range(min = 5, max = 30))]
    pub utilization_interval_seconds: u32,
    /// Of [`MetricCategory::Latency`]: 60–600.
    #[schemars(range(min = 60, max = 600))]
    pub latency_interval_seconds: u32,
    /// Probes to each peer: 1–16.
    #[schemars(range(min = 1, max = 16))]
    pub latency_probe_count: u32,
    /// A probe without an answer is lost after this: 10–10000 ms.
    #[schemars(range(min = 10, max = 10_000))]
    pub latency_probe_timeout_ms: u32,
    /// Samples kept while the gateway cannot be reached: 1–10000.
    #[schemars(range(min = 1, max = 10_000))]
    pub metrics_buffer_size: u32,
    /// How often the gateway submits a batch: 1–300.
    #[schemars(range(min = 1, max = 300))]
    pub batch_submit_interval_seconds: u32,
    /// Reports in one batch: 1–1024.
    #[schemars(range(min = 1, max = 1024))]
    pub batch_max_size: u32,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            base_interval_seconds: 30,
            capacity_interval_seconds: 30,
            health_interval_seconds: 30,
            utilization_interval_seconds: 15,
            latency_interval_seconds: 300,
            latency_probe_count: 3,
            latency_probe_timeout_ms: 1000,
            metrics_buffer_size: 100,
            batch_submit_interval_seconds: 60,
            batch_max_size: 50,
        }
    }
}

/// A setting outside its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be {min} to {max}, is {value}; set it within that range")]
pub struct SamplingError {
    /// Name of the setting.
    pub field: &'static str,
    /// Lowest allowed.
    pub min: u32,
    /// Highest allowed.
    pub max: u32,
    /// What was given.
    pub value: u32,
}

impl SamplingConfig {
    /// Lowest and highest [`Self::batch_submit_interval_seconds`].
    pub const BATCH_SUBMIT_INTERVAL_SECONDS: (u32, u32) = (1, 300);
    /// Lowest and highest [`Self::batch_max_size`].
    pub const BATCH_MAX_SIZE: (u32, u32) = (1, 1024);

    /// Checks every range: intervals between the minimum and the longest staleness of their category.
    ///
    /// # Errors
    /// The first setting outside its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        // Destructured, so that a new setting cannot be forgotten here.
        let Self {
            base_interval_seconds,
            capacity_interval_seconds,
            health_interval_seconds,
            utilization_interval_seconds,
            latency_interval_seconds,
            latency_probe_count,
            latency_probe_timeout_ms,
            metrics_buffer_size,
            batch_submit_interval_seconds,
            batch_max_size,
        } = *self;
        let of = |category: MetricCategory| {
            let limits = category.limits();
            (limits.min_seconds, limits.max_staleness_seconds)
        };
        for (field, value, (min, max)) in [
            ("base_interval_seconds", base_interval_seconds, (10, 120)),
            (
                "capacity_interval_seconds",
                capacity_interval_seconds,
                of(MetricCategory::Capacity),
            ),
            (
                "health_interval_seconds",
                health_interval_seconds,
                of(MetricCategory::HealthStatus),
            ),
            (
                "utilization_interval_seconds",
                utilization_interval_seconds,
                of(MetricCategory::Utilization),
            ),
            (
                "latency_interval_seconds",
                latency_interval_seconds,
                of(MetricCategory::Latency),
            ),
            ("latency_probe_count", latency_probe_count, (1, 16)),
            ("latency_probe_timeout_ms", latency_probe_timeout_ms, (10, 10_000)),
            ("metrics_buffer_size", metrics_buffer_size, (1, 10_000)),
            (
                "batch_submit_interval_seconds",
                batch_submit_interval_seconds,
                Self::BATCH_SUBMIT_INTERVAL_SECONDS,
            ),
            ("batch_max_size", batch_max_size, Self::BATCH_MAX_SIZE),
        ] {
            if !(min..=max).contains(&value) {
                return Err(SamplingError {
                    field,
                    min,
                    max,
                    value,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn percent(n: u8) -> Percent {
        Percent::try_from(n).unwrap()
    }

    #[test]
    fn defaults_are_the_specifications_and_pass() {
        let text = r#"{"base_interval_seconds": 30, "capacity_interval_seconds": 30,
            "health_interval_seconds": 30, "utilization_interval_seconds": 15,
            "latency_interval_seconds": 300, "latency_probe_count": 3, "latency_probe_timeout_ms": 1000,
            "metrics_buffer_size": 100, "batch_submit_interval_seconds": 60, "batch_max_size": 50}"#;
        let read: SamplingConfig = serde_json::from_str(text).unwrap();
        assert_eq!(read, SamplingConfig::default());
        assert_eq!(serde_json::from_str::<SamplingConfig>("{}").unwrap(), read);
        read.check().unwrap();
    }

    #[test]
    fn an_interval_below_its_minimum_is_refused_by_name() {
        for (name, min) in [
            ("base_interval_seconds", 10),
            ("capacity_interval_seconds", 10),
            ("health_interval_seconds", 10),
            ("utilization_interval_seconds", 5),
            ("latency_interval_seconds", 60),
        ] {
            let with = |n: u32| {
                let mut v = serde_json::to_value(SamplingConfig::default()).unwrap();
                v[name] = n.into();
                serde_json::from_value::<SamplingConfig>(v).unwrap()
            };
            with(min).check().unwrap();
            let refused = with(min - 1).check().unwrap_err();
            assert_eq!((refused.field, refused.min), (name, min));
            assert!(refused.to_string().starts_with(name));
        }
    }

    #[test]
    fn the_interval_follows_the_specifications_thresholds() {
        let base = Duration::from_secs(15);
        for (cpu, changed, millis) in [
            (0, false, 15_000),
            (75, false, 15_000),
            (75, true, 7_500),
            (76, true, 22_500),
            (90, false, 22_500),
            (91, true, 30_000),
            (100, false, 30_000),
        ] {
            let got = adaptive_interval(base, percent(cpu), changed);
            assert_eq!(got, Duration::from_millis(millis), "{cpu} {changed}");
        }
        assert_eq!(
            MetricCategory::Utilization.interval(Duration::from_secs(5), percent(0), true),
            Duration::from_secs(5)
        );
        assert_eq!(
            MetricCategory::Capacity.interval(Duration::from_secs(60), percent(100), false),
            Duration::from_secs(60)
        );
    }

    proptest! {
        #[test]
        fn no_interval_leaves_its_category(base: u64, cpu in 0u8..=100, changed: bool) {
            for category in MetricCategory::ALL {
                let limits = category.limits();
                let s = category.interval(Duration::from_secs(base), percent(cpu), changed).as_secs();
                prop_assert!(s >= u64::from(limits.min_seconds));
                prop_assert!(s <= u64::from(limits.max_staleness_seconds));
            }
        }
    }
}
