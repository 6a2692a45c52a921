//! Registration: token and certificate request out, certificate and the chain's record in; a rotation is one with the
//! old key's consent, and a node that has lost its disk gets both back by its key.

mod claims;
mod clock;
mod csr;
mod error;
mod examine;
mod exchange;
mod install;
mod lost;
mod recover;
mod request;
mod rotate;
mod same;

use std::time::Duration;

pub(crate) use clock::{LIFE, TIME_PATH};
pub use csr::{Csr, CsrError};
pub use error::RegisterError;
pub use examine::{Examined, examine};
pub(crate) use recover::{RecoverError, read, recover};
pub use rotate::{Rotation, rotate};
pub use same::{OtherNode, same_node};

use self::claims::Claims;
use self::exchange::exchange;
use self::install::install;
use self::lost::{Lost, is_spent};
use self::request::{Consent, pending, request};
use crate::clock::Clock;
use crate::config::Config;
use crate::key::{SharedSigner, Signer};
use crate::probe::{fingerprint, host};
use crate::state::{Pending, Registration, StateDir};
use crate::uplink::{Client, Dial, Trust, client_config};

/// How a registration ended well.
#[derive(Debug)]
pub enum Outcome {
    /// Registered just now.
    Registered(Registration),
    /// Registered before with the same token and key; nothing was sent.
    Already(Registration),
    /// Registered before, and forgotten here: the key has brought it back.
    Recovered(Registration),
}

impl Outcome {
    /// The registration.
    #[must_use]
    pub fn into_registration(self) -> Registration {
        let (Self::Registered(r) | Self::Already(r) | Self::Recovered(r)) = self;
        r
    }
}

/// Whether there is something to register with: a token, or what lets a node without a disk be recognised by its key.
///
/// # Errors
/// Why there is nothing.
pub fn can_register(config: &Config) -> Result<(), RegisterError> {
    if config.token.is_some() {
        return Ok(());
    }
    Lost::of(config).map(drop)
}

/// Registers this node and writes certificate, CA and state. Repeats until the registration is on chain, at most for
/// `wait` (none: for ever). `progress` hears what is being waited for.
///
/// # Errors
/// See [`RegisterError`].
pub async fn register(
    config: &Config,
    key: &SharedSigner,
    wait: Option<Duration>,
    progress: impl FnMut(&str),
) -> Result<Outcome, RegisterError> {
    register_by(config, key, wait, (&Clock::system(), &Dial::tcp()), progress).await
}

/// The same by another clock and another way to the gateway.
///
/// # Errors
/// See [`RegisterError`].
pub async fn register_by(
    config: &Config,
    key: &SharedSigner,
    wait: Option<Duration>,
    way: (&Clock, &Dial),
    progress: impl FnMut(&str),
) -> Result<Outcome, RegisterError> {
    enrol(config, &**key, None, wait, way, progress).await
}

async fn enrol(
    config: &Config,
    key: &dyn Signer,
    consent: Option<&Consent<'_>>,
    wait: Option<Duration>,
    way: (&Clock, &Dial),
    mut progress: impl FnMut(&str),
) -> Result<Outcome, RegisterError> {
    let state = StateDir::new(&config.state_dir);
    let before = Registration::load(&state)?;
    // Only what is lost is recovered.
    let lost = before.is_none() && consent.is_none();
    let ours = before.filter(|r| r.public_key == key.public());
    let Some(token) = &config.token else {
        return match (ours, Lost::of(config)) {
            (Some(r), _) => {
                same_node(config, &r)?;
                Ok(Outcome::Already(r))
            }
            (None, Ok(node)) if lost => {
                if let Some(path) = &config.token_file_missing {
                    progress(&format!(
                        "agent.registration_token_file: {} does not exist; asking by the agent's key",
                        path.display()
                    ));
                }
                node.recover(config, key, wait, way, &mut progress)
                    .await
                    .map(Outcome::Recovered)
            }
            (None, Err(e)) if lost => Err(e),
            (None, _) => Err(RegisterError::no_token(config)),
        };
    };
    let host = host::hostname(&config.roots);
    let claims = Claims::read(token.secret(), config, &key.public(), host.as_deref())?;
    if let Some(r) = ours.filter(|r| r.jti == claims.jti) {
        return Ok(Outcome::Already(r));
    }
    state.create()?;
    let (clock, dial) = way;
    let pending = pending(&state, &claims, key, consent).await?;
    let fingerprint = fingerprint::read(&config.roots);
    let hostname = config.hostname.clone().or(host);
    let request = request(
        config,
        token,
        &claims,
        key,
        &pending,
        (hostname, fingerprint.as_ref()),
    )
    .await?;
    // Trusts the CA that the token names, and no other.
    let tls = client_config(Trust::new(vec![claims.ca], &config.tls.ca_cert), None, clock)?;
    let mut client = Client::new(config.endpoints.clone(), tls, config.request_timeout).dialing(dial.clone());
    let with = (clock, pending.tls_key.as_str());
    let answer = match exchange(&mut client, &request, wait, with, &mut progress).await {
        Err(refused) if lost && is_spent(&refused) => {
            let node = Lost::from(&claims);
            return match node.recover(config, key, wait, way, &mut progress).await {
                Ok(r) => {
                    Pending::remove(&state);
                    Ok(Outcome::Recovered(r))
                }
                Err(RegisterError::NotRecovered { stranger: true, .. }) => Err(refused),
                Err(e) => Err(e),
            };
        }
        other => other?,
    };
    let registration = install(
        config,
        &state,
        &claims,
        &pending,
        answer,
        fingerprint,
        clock.seconds(),
    )?;
    // The machine is registered as it is now; another key says nothing of it.
    if consent.is_none() {
        state.forget_devices();
    }
    Ok(Outcome::Registered(registration))
}
