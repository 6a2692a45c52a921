use std::sync::Arc;
use std::time::Duration;

use hpc_chain::keys::{HsmError, KeyError, SharedSigner};
use tokio::sync::watch;
use tokio::time::sleep;

use super::error::StartError;
use crate::ops::Health;
use crate::settle::Signers;

/// The trouble of a key that does not sign.
const CODE: &str = "key_unusable";
/// How often keys that sign are asked for a signature, and those that do not. An idle gateway may sign nothing for hours, and
/// an HSM that went away meanwhile is to be known before the next report is due; not more often, for each stands in the HSM's
/// own log. A key in a file answers without signing.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The operator key and the paying keys, each once, by their names.
pub(super) fn all(signers: &[Signers]) -> Vec<(String, SharedSigner)> {
    let operator = signers
        .first()
        .map(|s| (s.operator_name.clone(), Arc::clone(&s.operator)));
    let paying = signers
        .iter()
        .filter_map(|s| Some((s.name.clone(), Arc::clone(s.relayer.as_ref()?))));
    operator.into_iter().chain(paying).collect()
}

/// Whether the keys sign. An HSM that is away may come back, so the daemon starts without it and says so; one that does not
/// take the PIN or has another key is a matter for the operator, and a PIN is not tried twice.
///
/// # Errors
/// [`StartError::Unusable`].
pub(super) async fn check(keys: &[(String, SharedSigner)], health: &Health) -> Result<(), StartError> {
    for (name, key) in keys {
        match key.ready().await {
            Ok(()) => {}
            Err(KeyError::Hsm(e @ HsmError::Device(_))) => tell(health, name, Some(&e)),
            Err(source) => {
                let name = name.clone();
                return Err(StartError::Unusable { name, source });
            }
        }
    }
    Ok(())
}

/// Says of each key whether it signs, until `stop`. That it does not is seen where it signs as well.
pub(super) async fn watch(
    keys: Vec<(String, SharedSigner)>,
    health: Arc<Health>,
    mut stop: watch::Receiver<bool>,
) {
    let mut pause = LOOK_AGAIN;
    loop {
        tokio::select! {
            () = sleep(pause) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
        pause = LOOK_EVERY;
        for (name, key) in &keys {
            match key.ready().await {
                Err(KeyError::Hsm(e)) => {
                    pause = LOOK_AGAIN;
                    tell(&health, name, Some(&e));
                }
                _ => tell(&health, name, None),
            }
        }
    }
}

fn tell(health: &Health, name: &str, wrong: Option<&HsmError>) {
    health.set_of(CODE, name, wrong.map(|e| format!("key {name}: {e}")));
}
