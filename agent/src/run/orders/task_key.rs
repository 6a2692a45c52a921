//! The key that signs orders may have become another one.

use hpc_schema::key::ZebraVerifier;
use hpc_schema::task::{KeyRotation, verify_rotation};

use crate::run::Agent;

impl Agent {
    /// Follows rotations of the task key that the gateway tells beside orders: each signed by the key before.
    pub(in crate::run) fn follow_task_key(&mut self, steps: &[KeyRotation]) {
        let Some(pinned) = self.registration.task_public_key else {
            return;
        };
        let r = &self.registration;
        let of = (r.chain_id.as_str(), r.contract.as_str(), &r.cluster_id);
        let key = match verify_rotation(&pinned, steps, of, &ZebraVerifier) {
            Ok(key) => key,
            Err(e) => return self.warn_once("task_key", &format!("a new task key is not taken over: {e}")),
        };
        if key == pinned {
            return;
        }
        self.registration.task_public_key = Some(key);
        tracing::info!(%key, "the provider has a new task key, which the one before signed");
        self.keep_registration();
    }
}
