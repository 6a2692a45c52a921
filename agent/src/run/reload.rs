//! Changes while the agent runs: SIGHUP, and what the gateway asks for.

use std::time::Duration;

use hpc_schema::gateway::ConfigUpdates;

use super::Agent;
use super::identity::Places;
use crate::config::{Config, SamplingConfig};
use crate::sample::{Category, Sources, max_staleness, minimum};

impl Agent {
    /// Reads the configuration again; a wrong one leaves the present one in force.
    pub(super) fn reload(&mut self) {
        let Some(reread) = &self.reread else { return };
        let new = match reread() {
            Ok(new) => new,
            Err(e) => {
                tracing::error!("configuration not reloaded, the former one stays in force: {e}");
                return;
            }
        };
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
        // What the gateway has changed stays changed.
        let updates = self.updates.clone();
        self.update_config(&updates);
        self.task_files.again(&self.config);
        self.keeper.bound(&self.config.sampling);
        // Certificates lie in the state directory too, which may hang: the thread that writes there looks for them.
        self.keeper.look_for_certificate(Places {
            config: self.config.clone(),
            state: self.state.clone(),
            registration: self.registration.clone(),
        });
        let identity = self.identity.as_ref();
        match super::identity::tls(&self.config, &self.registration, identity, &self.clock) {
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
            let notices =
                set_sampling_interval(&mut self.config.sampling, Duration::from_secs(u64::from(seconds)));
            for notice in notices {
                tracing::info!("sampling_interval_seconds of the gateway: {notice}");
            }
        }
        if let Some(hours) = updates.metrics_retention_hours {
            let clamped = hours.clamp(1, 720);
            if clamped != hours {
                tracing::info!(
                    "metrics_retention_hours of the gateway: {hours} is outside 1 to 720; {clamped} is used"
                );
            }
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
}

/// Sets the interval of capacity, health, utilisation and GPU figures; says where it had to be clamped. Repeating the
/// same setting says nothing.
fn set_sampling_interval(sampling: &mut SamplingConfig, asked: Duration) -> Vec<String> {
    let mut notices = Vec::new();
    for category in [
        Category::Capacity,
        Category::HealthStatus,
        Category::Utilization,
        Category::Gpu,
    ] {
        let given = asked.clamp(minimum(category), max_staleness(category));
        if given != asked && sampling.interval(category) != given {
            notices.push(format!(
                "{asked:?} is outside the limits of {category:?}; {given:?} is used"
            ));
        }
        sampling.set_interval(category, given);
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_the_gateway_are_clamped_with_a_notice_once() {
        let mut s = SamplingConfig::default();
        let seconds = Duration::from_secs;
        assert_eq!(set_sampling_interval(&mut s, seconds(20)).len(), 0);
        assert_eq!(s.interval(Category::Capacity), seconds(20));
        assert_eq!(s.interval(Category::Latency), seconds(300));
        let notices = set_sampling_interval(&mut s, seconds(7));
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert_eq!(
            (s.interval(Category::Capacity), s.interval(Category::Gpu)),
            (seconds(10), seconds(7))
        );
        assert_eq!(set_sampling_interval(&mut s, seconds(7)).len(), 0);
        set_sampling_interval(&mut s, seconds(45));
        assert_eq!(
            (s.interval(Category::Capacity), s.interval(Category::Gpu)),
            (seconds(45), seconds(30))
        );
    }
}
