//! A registration that has been replaced while the agent ran: it goes on under the new one.

use std::sync::Arc;

use super::Agent;
use super::hardware::Hardware;
use crate::fault;
use crate::heartbeat::SectionTracker;
use crate::key::{SharedSigner, promote};
use crate::sequence::Sequence;
use crate::state::Registration;

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
        fault::point("adopt.promoted");
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
        tracing::info!(epoch, key = %self.key.public(), "registered anew: this agent goes on under that registration");
        Ok(())
    }
}
