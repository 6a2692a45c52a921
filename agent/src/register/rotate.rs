//! A new key for a registered node: registered with the old key's consent, then put in its place.
//!
//! The new key is on the disk before anything is sent, and the old one until the registration of the new one is. Cut
//! off anywhere, the key that the chain knows is there: the running agent, whose certificate then no longer counts,
//! tries both (`run/certificate.rs`).

use std::time::Duration;

use hpc_schema::code::Code;

use super::request::Consent;
use super::{RegisterError, enrol};
use crate::clock::Clock;
use crate::config::Config;
use crate::fault;
use crate::key::{SharedSigner, promote};
use crate::state::{Pending, Registration, StateDir};
use crate::uplink::Dial;

/// Draws of the registration's nonce before something else is wrong.
const NONCES: u32 = 3;

/// Who hands over to whom.
#[derive(Debug)]
pub struct Rotation<'a> {
    /// The registered key.
    pub old: &'a SharedSigner,
    /// The key to come; the token is made for it.
    pub new: &'a SharedSigner,
    /// The present registration.
    pub registration: &'a Registration,
}

/// Registers the new key and puts it in the place of the old one. A running agent goes on with it by itself.
///
/// # Errors
/// See [`RegisterError`].
pub async fn rotate(
    config: &Config,
    rotation: &Rotation<'_>,
    wait: Option<Duration>,
    mut progress: impl FnMut(&str),
) -> Result<Registration, RegisterError> {
    let state = StateDir::new(&config.state_dir);
    let consent = Consent {
        old: &**rotation.old,
        registration: rotation.registration,
    };
    let mut draws = 0u32;
    let outcome = loop {
        draws = draws.saturating_add(1);
        let way = (&Clock::system(), &Dial::tcp());
        let result = enrol(config, &**rotation.new, Some(&consent), wait, way, &mut progress).await;
        match result {
            // Practically impossible; the protocol asks for another draw.
            Err(e) if e.is_refusal(Code::RegistrationNonceUsed) && draws < NONCES => Pending::remove(&state),
            other => break other?,
        }
    };
    let registration = outcome.into_registration();
    fault::point("rotate.registered");
    promote(&config.key_path, &registration.public_key)?;
    fault::point("rotate.promoted");
    Ok(registration)
}
