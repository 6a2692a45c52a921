//! Changes while the agent runs: SIGHUP, and what the gateway asks for.

use hpc_schema::gateway::ConfigUpdates;

use super::Agent;
use crate::config::Config;
use crate::register::same_node;
use crate::sample::Sources;

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
        if let Err(e) = same_node(&new, &self.registration) {
            tracing::warn!("the next start is refused: {e}");
        }
        if let Some(log) = &self.log {
            log.apply(&new.logging);
        }
        let memory_dir = self.config.state_dir.clone();
        let sources = Sources {
            memory_dir,
            ..new.sources()
        };
        self.sources = (sources != self.sampled).then_some(sources);
        self.client
            .set_endpoints(new.endpoints.clone(), new.request_timeout);
        self.config = Config {
            state_dir: self.config.state_dir.clone(),
            key_path: self.config.key_path.clone(),
            ..new
        };
        self.unjudged = true;
        // What the gateway has changed stays changed.
        self.settings.reread(&self.config.sampling);
        self.apply_settings();
        self.task_files.again(&self.config);
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

    /// Collectors by the new configuration, which know what the former ones did. Not while the state directory hangs: a new
    /// attendant would not know it.
    pub(super) fn resample(&mut self) {
        if self.sources.is_none() || !self.keeps() {
            return;
        }
        if let Some(sources) = self.sources.take() {
            let attendant = self.keeper.attendant(&self.state, &self.config.sampling);
            let next = (self.world.sampler)(&sources).with_attendant(attendant);
            let former = std::mem::replace(&mut self.sampler, next);
            self.sampler.take_over(former, &self.sampled, &sources);
            self.sampler.attend_soon();
            self.sampled = sources;
        }
    }

    /// Takes over all that the gateway sets with an answer, unless it is in force: what is missing is as the file has it.
    pub(super) fn take_updates(&mut self, all: Option<&ConfigUpdates>) {
        if self.settings.set(all) {
            self.apply_settings();
        }
    }

    /// Has it written as soon as the state directory answers.
    pub(super) fn keep_registration(&mut self) {
        self.keeper.registration(&self.registration);
        self.sampler.attend();
    }

    /// The file's settings with what the gateway has set over them. What is out of range is clamped and said.
    fn apply_settings(&mut self) {
        let (sampling, told) = self.settings.sampling();
        for notice in told {
            tracing::warn!("{notice}");
        }
        self.status.notices = self.settings.notices();
        self.config.sampling = sampling;
        self.keeper.bound(&self.config.sampling);
        self.peers.target(self.settings.targets());
        if let Some(job_ids) = self.settings.job_ids()
            && job_ids != self.registration.job_ids
        {
            tracing::info!(?job_ids, "what of job ids becomes public has changed");
            self.registration.job_ids = job_ids;
            self.keep_registration();
        }
    }
}
