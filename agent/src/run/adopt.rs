//! A registration that has been replaced while the agent ran: it goes on under the new one, as a certificate tells it, or
//! as another process has written it.

use std::sync::Arc;
use std::time::Duration;

use super::Agent;
use super::anew::Anew;
use super::hardware::Hardware;
use super::identity::{Places, tls};
use crate::clock::instant;
use crate::fault;
use crate::heartbeat::SectionTracker;
use crate::key::{SharedSigner, is_kept, promote};
use crate::sequence::Sequence;
use crate::state::Registration;
use crate::uplink::Trust;

/// Between two tries to take a registration over.
const AGAIN: Duration = Duration::from_secs(30);

impl Agent {
    /// Goes on with `key` in `epoch`: both stand in a certificate that the gateway has just issued. The registration on
    /// the disk names the key that counts, so it comes first; whatever cuts this off, the next start finds that key.
    pub(super) fn adopt(&mut self, key: SharedSigner, epoch: u64) -> Result<(), String> {
        if self.sequence.is_under_way() || !self.keeps() {
            return Err("the state directory does not answer".to_owned());
        }
        let found = Registration {
            epoch,
            public_key: key.public(),
            last_sequence: 0,
            ..self.registration.clone()
        };
        let registration = found.or_of_this_epoch(&self.state).map_err(|e| e.to_string())?;
        fault::point("adopt.saved");
        // The service may not be allowed to write there; the command that rotates does it too.
        if let Err(e) = promote(&self.config.key_path, &registration.public_key) {
            tracing::warn!("the new key stays beside the old one for now: {e}");
        }
        // Given up on the disk while the gateway was asked with it.
        if !is_kept(&self.config.key_path, &registration.public_key) {
            tracing::error!(
                key = %registration.public_key,
                "the registered key lies in no file any more, and is lost when this agent ends: restore agent.key_path, or register again with a new token"
            );
        }
        fault::point("adopt.promoted");
        self.go_on(key, registration)
    }

    fn go_on(&mut self, key: SharedSigner, registration: Registration) -> Result<(), String> {
        let epoch = registration.epoch;
        // The chain's count restarts with the epoch.
        self.sequence = Sequence::open(&self.state.sequence(), epoch, registration.last_sequence)
            .map_err(|e| e.to_string())?;
        self.tag = registration.tag();
        self.section = SectionTracker::default();
        self.peers.sign_with(Arc::clone(&key));
        self.key = key;
        self.registration = registration;
        // It names the hardware anew.
        self.hardware = Hardware::new();
        self.keeper.goes_by(self.places());
        tracing::info!(epoch, key = %self.key.public(), "registered anew: this agent goes on under that registration");
        Ok(())
    }

    /// Where what belongs to the present registration lies.
    pub(super) fn places(&self) -> Places {
        Places {
            config: self.config.clone(),
            state: self.state.clone(),
            registration: self.registration.clone(),
        }
    }

    /// Goes on under a registration that another process has written, with the CAs that it trusts: no gateway of the
    /// former ones need answer. What fails is tried again, with all as it was until then.
    pub(super) fn take_anew(&mut self) {
        let now = instant();
        let due = self
            .anew
            .as_ref()
            .is_some_and(|a| a.not_before.is_none_or(|at| now >= at));
        let free = due && !self.leaves && !self.sequence.is_under_way() && self.keeps();
        let Some(mut anew) = self.anew.take_if(|_| free) else {
            return;
        };
        let r = &anew.registration;
        // A certificate may have told of a newer one meanwhile.
        if !r.replaces(&self.registration) {
            return;
        }
        if (&r.cluster_id, &r.node_id) != (&self.registration.cluster_id, &self.registration.node_id) {
            tracing::error!(
                "the new registration cannot be taken over, restart the agent: it is of node {} in cluster {}",
                r.node_id,
                r.cluster_id
            );
            return;
        }
        match self.go_on_as(&mut anew) {
            Ok(()) => self.over("anew", "the new registration has been taken over"),
            Err(e) => {
                self.warn_once(
                    "anew",
                    &format!("the new registration cannot be taken over yet, which is tried again: {e}"),
                );
                anew.not_before = now.checked_add(AGAIN);
                self.anew = Some(anew);
            }
        }
    }

    fn go_on_as(&mut self, anew: &mut Anew) -> Result<(), String> {
        let registration = anew.registration.clone();
        let epoch = registration.epoch;
        let key = anew.key.clone().unwrap_or_else(|| Arc::clone(&self.key));
        // A certificate may have told of its epoch before: numbers go on.
        let told = epoch == self.registration.epoch
            && key.public() == self.key.public()
            && registration.tag() == self.tag;
        // One that was recovered meanwhile serves on.
        let recovered = self.identity.as_ref().is_some_and(|id| id.epoch() == Some(epoch));
        let identity = if recovered { &self.identity } else { &anew.identity };
        // What is known already may be all that there is of its CAs.
        let anchors = Trust {
            pins: registration.pins(),
            known: Arc::clone(&self.known),
        };
        let known = anchors.with_file(&anew.known);
        // What can fail comes first.
        let tls = tls(&known, &registration, identity.as_ref(), &self.clock).map_err(|e| e.to_string())?;
        if told {
            self.registration = registration;
            self.keeper.goes_by(self.places());
        } else {
            self.go_on(key, registration)?;
        }
        if !recovered {
            self.identity = anew.identity.take();
        }
        self.known = known;
        // A list of the former registration may be on its way into the file.
        self.keep_trusted(&self.anchors());
        self.client.set_tls(tls);
        self.status.heartbeat_timeout = Some(self.registration.params.heartbeat_timeout);
        self.certificate_refused = false;
        self.renew_backoff.reset();
        self.note_certificate();
        self.backoff.reset();
        self.begins_anew = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::registered;
    use super::*;
    use crate::state::a_registration;

    #[tokio::test(start_paused = true)]
    async fn a_registration_that_cannot_be_taken_over_yet_is_tried_again_each_30_s_with_all_as_it_was() {
        let (_dir, mut agent) = registered();
        let state = agent.state.clone();
        agent.anew = Some(Anew {
            registration: a_registration("token-2", agent.registration.public_key, 8),
            key: None,
            identity: None,
            known: Arc::default(),
            not_before: None,
        });
        let now_by = |agent: &Agent| (agent.registration.epoch, agent.begins_anew, agent.anew.is_some());
        let former = agent.tag;
        // In the place of the counter stands what can be no file.
        std::fs::remove_file(state.sequence()).unwrap();
        std::fs::create_dir(state.sequence()).unwrap();
        for _ in 0..2 {
            agent.take_anew();
            assert_eq!(now_by(&agent), (7, false, true));
            tokio::time::advance(AGAIN).await;
        }
        agent.take_anew();
        std::fs::remove_dir(state.sequence()).unwrap();
        tokio::time::advance(AGAIN - Duration::from_millis(1)).await;
        agent.take_anew();
        assert_eq!(now_by(&agent), (7, false, true));
        assert!(!state.sequence().exists(), "it is not tried before its time");
        tokio::time::advance(Duration::from_millis(1)).await;
        agent.take_anew();
        assert_eq!(now_by(&agent), (8, true, false));
        assert!(agent.tag != former && state.sequence().exists());
    }
}
