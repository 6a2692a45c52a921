//! How often is measured, and how long samples stay: the file's word, and over it what the gateway has set. Pure.

use std::time::Duration;

use hpc_schema::gateway::ConfigUpdates;
use hpc_schema::id::NodeId;
use hpc_schema::registry::JobIds;

use super::notices::Notices;
use crate::config::SamplingConfig;
use crate::sample::{Category, max_staleness, minimum};

const INTERVAL: &str = "sampling_interval_seconds";
const RETENTION: &str = "metrics_retention_hours";

/// Both.
#[derive(Debug)]
pub(super) struct Settings {
    file: SamplingConfig,
    /// By the gateway's last word; outlives a reload.
    set: ConfigUpdates,
    /// What of that had to be changed.
    notices: Notices,
}

impl Settings {
    /// The gateway has set nothing yet.
    pub(super) fn new(file: &SamplingConfig) -> Self {
        Self {
            file: file.clone(),
            set: ConfigUpdates::default(),
            notices: Notices::default(),
        }
    }

    /// The file says this from here on.
    pub(super) fn reread(&mut self, file: &SamplingConfig) {
        self.file.clone_from(file);
    }

    /// All that the gateway sets from here on: what is missing it has taken back. Whether that is news.
    pub(super) fn set(&mut self, all: Option<&ConfigUpdates>) -> bool {
        let known = all.map_or_else(|| self.set == ConfigUpdates::default(), |all| *all == self.set);
        if !known {
            self.set = all.cloned().unwrap_or_default();
        }
        !known
    }

    /// What is in force, and what is to be told of it: what is out of range is clamped and said.
    pub(super) fn sampling(&mut self) -> (SamplingConfig, Vec<String>) {
        let (mut sampling, mut told) = (self.file.clone(), Vec::new());
        match self.set.sampling_interval_seconds {
            Some(seconds) => {
                let interval = Duration::from_secs(u64::from(seconds));
                let changes = set_sampling_interval(&mut sampling, interval);
                told.extend(self.notices.note(INTERVAL, seconds, changes));
            }
            None => self.notices.forget(INTERVAL),
        }
        match self.set.metrics_retention_hours {
            Some(hours) => {
                let clamped = hours.clamp(1, 720);
                let change =
                    (clamped != hours).then(|| format!("{hours} is outside 1 to 720; {clamped} is used"));
                told.extend(self.notices.note(RETENTION, hours, change.into_iter().collect()));
                sampling.metrics_retention = Duration::from_secs(u64::from(clamped).saturating_mul(3600));
            }
            None => self.notices.forget(RETENTION),
        }
        (sampling, told)
    }

    /// What had to be changed of what is set now.
    pub(super) fn notices(&self) -> Vec<String> {
        self.notices.all()
    }

    /// Of the peers, those alone; none: all.
    pub(super) fn targets(&self) -> &[NodeId] {
        self.set.latency_probe_targets.as_deref().unwrap_or_default()
    }

    /// What of job ids may become public; none: what the registration says.
    pub(super) fn job_ids(&self) -> Option<JobIds> {
        self.set.job_ids
    }
}

/// Sets the interval of capacity, health, utilisation and GPU figures; gives where it had to be clamped.
fn set_sampling_interval(sampling: &mut SamplingConfig, asked: Duration) -> Vec<String> {
    let mut changes = Vec::new();
    for category in [
        Category::Capacity,
        Category::HealthStatus,
        Category::Utilization,
        Category::Gpu,
    ] {
        let (least, most) = (minimum(category), max_staleness(category));
        let given = asked.clamp(least, most);
        if given != asked {
            changes.push(format!(
                "{asked:?} is outside {least:?} to {most:?}, the limits of {category:?}; {given:?} is used"
            ));
        }
        sampling.set_interval(category, given);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_the_gateway_are_clamped_and_each_bound_is_named() {
        let mut s = SamplingConfig::default();
        let seconds = Duration::from_secs;
        assert_eq!(set_sampling_interval(&mut s, seconds(20)).len(), 0);
        assert_eq!(s.interval(Category::Capacity), seconds(20));
        assert_eq!(s.interval(Category::Latency), seconds(300));
        let changes = set_sampling_interval(&mut s, seconds(7));
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert_eq!(
            (s.interval(Category::Capacity), s.interval(Category::Gpu)),
            (seconds(10), seconds(7))
        );
        set_sampling_interval(&mut s, seconds(45));
        assert_eq!(
            (s.interval(Category::Capacity), s.interval(Category::Gpu)),
            (seconds(45), seconds(30))
        );
    }

    #[test]
    fn a_file_at_its_limits_keeps_no_bound_of_the_gateway_unsaid() {
        let mut s = SamplingConfig::default();
        for category in Category::ALL {
            s.set_interval(category, minimum(category));
        }
        let mut notices = Notices::default();
        let mut asks = |seconds: u32| {
            let interval = Duration::from_secs(u64::from(seconds));
            let changes = set_sampling_interval(&mut s, interval);
            notices.note("sampling_interval_seconds", seconds, changes)
        };
        let told = asks(1);
        assert_eq!(told.len(), 4, "{told:?}");
        let first = told[0].as_str();
        assert!(
            first.contains("sampling_interval_seconds of the gateway: 1s is outside 10s to")
                && first.contains("Capacity; 10s is used"),
            "{first}"
        );
        assert!(asks(1).is_empty());
        assert_eq!(asks(2).len(), 4, "another setting is told anew");
    }

    #[test]
    fn what_the_gateway_sets_no_more_is_the_files_again_and_is_told_anew_once_set_again() {
        let seconds = Duration::from_secs;
        let mut file = SamplingConfig::default();
        file.set_interval(Category::Utilization, seconds(12));
        let mut s = Settings::new(&file);
        assert!(!s.set(None) && !s.set(Some(&ConfigUpdates::default())), "no news");
        let both = ConfigUpdates {
            sampling_interval_seconds: Some(1),
            metrics_retention_hours: Some(9999),
            latency_probe_targets: Some(vec!["node-0003".parse().unwrap()]),
            job_ids: None,
        };
        assert!(s.set(Some(&both)) && !s.set(Some(&both)));
        let (given, told) = s.sampling();
        assert_eq!(given.interval(Category::Utilization), seconds(5));
        assert_eq!(given.metrics_retention, seconds(720 * 3600));
        assert_eq!((told.len(), s.notices().len(), s.targets().len()), (5, 5, 1));
        assert!(s.sampling().1.is_empty(), "told once");
        // The file was read again meanwhile.
        file.set_interval(Category::Utilization, seconds(20));
        s.reread(&file);
        assert_eq!(s.sampling().0, given);
        let interval = ConfigUpdates {
            sampling_interval_seconds: Some(1),
            ..ConfigUpdates::default()
        };
        assert!(s.set(Some(&interval)));
        assert_eq!(s.sampling().0.metrics_retention, file.metrics_retention);
        assert_eq!((s.notices().len(), s.targets().len()), (4, 0));
        assert!(s.set(None));
        assert_eq!(s.sampling(), (file, Vec::new()));
        assert!(s.notices().is_empty());
        assert!(s.set(Some(&interval)));
        assert_eq!(s.sampling().1.len(), 4);
    }
}
