//! Changes while the agent runs: SIGHUP, and what the gateway asks for.

use std::time::Duration;

use hpc_schema::gateway::ConfigUpdates;

use super::Agent;
use crate::config::{Config, SamplingConfig};
use crate::sample::{Category, Sources, max_staleness, minimum};

impl Agent {
    /// Has the configuration read again; a wrong one, or one that does not come, leaves the present one in force.
    pub fn reload(&mut self) {
        if self.reread.is_some() {
            self.rereading.ask();
            self.take_reread();
        }
    }

    /// Takes over a configuration that was read again, if there is one by now.
    pub(super) fn take_reread(&mut self) {
        let reread = self.reread.as_ref();
        if let Some(new) = reread.and_then(|r| self.rereading.answer(r, &self.config)) {
            self.take_config(new);
        }
    }

    fn take_config(&mut self, new: Config) {
        for (key, changed) in [
            ("agent.state_dir", new.state_dir != self.config.state_dir),
            ("agent.key_path", new.key_path != self.config.key_path),
            ("probe", new.responder.bound() != self.config.responder.bound()),
            ("api", new.api != self.config.api),
        ] {
            if changed {
                tracing::warn!("{key} has changed; it takes effect at the next start");
            }
        }
        if new.responder.advertised != self.config.responder.advertised {
            tracing::warn!(
                "probe.advertise_address has changed; peers are told it once the node registers again"
            );
        }
        if let Some(log) = &self.log {
            log.apply(&new.logging);
        }
        let memory_dir = self.config.state_dir.clone();
        let sources = Sources {
            memory_dir,
            ..new.sources()
        };
        if sources != self.config.sources() {
            self.sources = Some(sources);
        }
        self.client
            .set_endpoints(new.endpoints.clone(), new.request_timeout);
        self.config = Config {
            state_dir: self.config.state_dir.clone(),
            key_path: self.config.key_path.clone(),
            ..new
        };
        self.unjudged = true;
        // What the gateway has changed stays changed.
        let updates = self.updates.clone();
        self.update_config(&updates);
        self.task_files.again(&self.config);
        self.keeper.bound(&self.config.sampling);
        // Certificates lie in the state directory too, which may hang: the thread that writes there looks for them.
        self.keeper.look_for_certificate(self.places());
        self.keeper.goes_by(self.places());
        self.keeper.look_at_ca(&self.config.tls.ca_cert);
        let identity = self.identity.as_ref();
        match super::identity::tls(&self.known, &self.registration, identity, &self.clock) {
            Ok(tls) => self.client.set_tls(tls),
            Err(e) => tracing::error!("{e}"),
        }
        self.resample();
        self.sampler.attend();
        tracing::info!("configuration reloaded");
    }

    /// Collectors by the new configuration. Not while the state directory hangs: a new attendant would not know it.
    pub(super) fn resample(&mut self) {
        if self.sources.is_none() || !self.keeps() {
            return;
        }
        if let Some(sources) = self.sources.take() {
            let attendant = self.keeper.attendant(&self.state, &self.config.sampling);
            self.sampler = (self.world.sampler)(&sources).with_attendant(attendant);
            self.sampler.attend_soon();
        }
    }

    /// Takes over settings of the gateway, unless they are those in force.
    pub(super) fn take_updates(&mut self, updates: &ConfigUpdates) {
        let ConfigUpdates {
            sampling_interval_seconds,
            latency_probe_targets,
            metrics_retention_hours,
            job_ids,
        } = updates.clone();
        let known = self.updates.clone();
        let merged = ConfigUpdates {
            sampling_interval_seconds: sampling_interval_seconds.or(known.sampling_interval_seconds),
            latency_probe_targets: latency_probe_targets.or(known.latency_probe_targets),
            metrics_retention_hours: metrics_retention_hours.or(known.metrics_retention_hours),
            job_ids: job_ids.or(known.job_ids),
        };
        if merged != self.updates {
            self.updates = merged;
            self.update_config(updates);
            self.keeper.bound(&self.config.sampling);
        }
    }

    /// Has it written as soon as the state directory answers.
    pub(super) fn keep_registration(&mut self) {
        self.keeper.registration(&self.registration);
        self.sampler.attend();
    }

    /// What is out of range is clamped and said.
    fn update_config(&mut self, updates: &ConfigUpdates) {
        if let Some(seconds) = updates.sampling_interval_seconds {
            let interval = Duration::from_secs(u64::from(seconds));
            let changes = set_sampling_interval(&mut self.config.sampling, interval);
            self.note_clamped("sampling_interval_seconds", seconds, changes);
        }
        if let Some(hours) = updates.metrics_retention_hours {
            let clamped = hours.clamp(1, 720);
            let change =
                (clamped != hours).then(|| format!("{hours} is outside 1 to 720; {clamped} is used"));
            self.note_clamped("metrics_retention_hours", hours, change.into_iter().collect());
            self.config.sampling.metrics_retention =
                Duration::from_secs(u64::from(clamped).saturating_mul(3600));
        }
        if let Some(targets) = &updates.latency_probe_targets {
            self.peers.target(targets);
        }
        if let Some(job_ids) = updates.job_ids
            && job_ids != self.registration.job_ids
        {
            tracing::info!(?job_ids, "what of job ids becomes public has changed");
            self.registration.job_ids = job_ids;
            self.keep_registration();
        }
    }

    /// What of a setting of the gateway had to be changed: told once, and shown by `status`.
    fn note_clamped(&mut self, key: &'static str, asked: u32, changes: Vec<String>) {
        for notice in self.notices.note(key, asked, changes) {
            tracing::warn!("{notice}");
        }
        self.status.notices = self.notices.all();
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
    use crate::run::notices::Notices;

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
}
