use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::code::Code;
use hpc_schema::gateway::{
    Problem, REGISTER_PATH, RegisterPending, RegisterRequest, RegisterResponse, register_message,
};
use hpc_schema::refusal::Refusal;
use hpc_schema::token::{TokenClaims, read_token_unverified};

use super::install::install;
use super::{Csr, CsrError};
use crate::clock::{Clock, instant};
use crate::config::{Config, Token};
use crate::files::FileError;
use crate::key::NodeKey;
use crate::probe::{fingerprint, host};
use crate::random;
use crate::state::{Pending, Registration, StateDir};
use crate::uplink::{
    Backoff, CaPin, Client, Dial, IdentityError, IssuedError, TlsError, Trust, UplinkError, client_config,
};

/// How a registration ended well.
#[derive(Debug)]
pub enum Outcome {
    /// Registered just now.
    Registered(Registration),
    /// Registered before with the same token and key; nothing was sent.
    Already(Registration),
}

/// How it did not.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Neither registered nor a token to do it with.
    #[error(
        "no registration token; have one made (virtengine-provider node-token create --pubkey …) and set agent.registration_token or agent.registration_token_file"
    )]
    NoToken,
    /// The token cannot be used, or the gateway said no: repeating does not help.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The gateway said no with a code of its own.
    #[error("the gateway refused: {code}: {message}")]
    RefusedByGateway {
        /// The code's word.
        code: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// The gateway answers something that cannot be right.
    #[error("the gateway's answer cannot be used: {0}")]
    BadAnswer(String),
    /// Not within the time given.
    #[error(
        "not registered within {waited:?}: {last}; check provider_daemon.endpoint and that the gateway runs there, then register again"
    )]
    TimedOut {
        /// How long it was tried.
        waited: Duration,
        /// What stood in the way last.
        last: String,
    },
    /// IO.
    #[error(transparent)]
    File(#[from] FileError),
    /// The certificate request failed.
    #[error(transparent)]
    Csr(#[from] CsrError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What came back is no usable certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// What came back is another node's, or another CA's.
    #[error("the gateway's answer cannot be used: {0}")]
    Issued(#[from] IssuedError),
}

impl RegisterError {
    /// Whether repeating the same command may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

/// Registers this node and writes certificate, CA and state. Repeats until the registration is on chain, at most for
/// `wait` (none: for ever). `progress` hears what is being waited for.
///
/// # Errors
/// See [`RegisterError`].
pub async fn register(
    config: &Config,
    key: &NodeKey,
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
    key: &NodeKey,
    wait: Option<Duration>,
    (clock, dial): (&Clock, &Dial),
    mut progress: impl FnMut(&str),
) -> Result<Outcome, RegisterError> {
    let state = StateDir::new(&config.state_dir);
    let before = Registration::load(&state)?;
    let Some(token) = &config.token else {
        return match before.filter(|r| r.public_key == key.public()) {
            Some(r) => Ok(Outcome::Already(r)),
            None => Err(RegisterError::NoToken),
        };
    };
    let claims = read_token_unverified(token.secret())?;
    if let Some(r) = before.filter(|r| r.jti == claims.jti && r.public_key == key.public()) {
        return Ok(Outcome::Already(r));
    }
    check_claims(&claims, config, key)?;
    state.create()?;
    let pending = pending(&state, &claims, key)?;
    let fingerprint = fingerprint::read(&config.roots);
    let request = request(config, token, &claims, key, &pending, fingerprint.as_ref())?;
    let mut client = client(config, &claims, clock)?.dialing(dial.clone());
    let answer = exchange(&mut client, &request, wait, &mut progress).await?;
    let registration = install(
        config,
        &state,
        &claims,
        &pending,
        answer,
        fingerprint,
        clock.seconds(),
    )?;
    Ok(Outcome::Registered(registration))
}

/// What the gateway would refuse anyway is said here, before anything is sent.
fn check_claims(claims: &TokenClaims, config: &Config, key: &NodeKey) -> Result<(), Refusal> {
    if claims.pubkey != key.public() {
        return Err(Refusal::field(
            Code::KeyMismatch,
            "agent.registration_token",
            format_args!(
                "is for key {}, agent.key_path holds {}",
                claims.pubkey,
                key.public()
            ),
        ));
    }
    if config.node_id.as_ref().is_some_and(|id| *id != claims.sub) {
        return Err(Refusal::field(
            Code::IdentityMismatch,
            "node.id",
            format_args!("is not the token's {}", claims.sub),
        ));
    }
    if config
        .cluster_id
        .as_ref()
        .is_some_and(|id| *id != claims.cluster_id)
    {
        return Err(Refusal::field(
            Code::ClusterMismatch,
            "node.cluster_id",
            format_args!("is not the token's {}", claims.cluster_id),
        ));
    }
    Ok(())
}

/// The request of an interrupted registration, or a new one; on the disk before it is sent.
fn pending(state: &StateDir, claims: &TokenClaims, key: &NodeKey) -> Result<Pending, RegisterError> {
    let same = |p: &Pending| p.jti == claims.jti && p.public_key == key.public();
    if let Some(pending) = Pending::load(state)?.filter(same) {
        return Ok(pending);
    }
    let csr = Csr::generate(claims.sub.as_str())?;
    let pending = Pending {
        jti: claims.jti.clone(),
        public_key: key.public(),
        csr: csr.pem,
        tls_key: csr.key_pem.to_string(),
    };
    pending.save(state)?;
    Ok(pending)
}

fn request(
    config: &Config,
    token: &Token,
    claims: &TokenClaims,
    key: &NodeKey,
    pending: &Pending,
    fingerprint: Option<&fingerprint::Fingerprint>,
) -> Result<RegisterRequest, RegisterError> {
    let signature = key.sign(&register_message(&claims.jti, &Csr::der(&pending.csr)?));
    Ok(RegisterRequest {
        token: token.secret().to_owned(),
        public_key: key.public(),
        csr: pending.csr.clone(),
        csr_signature: STANDARD.encode(signature),
        hostname: config.hostname.clone().or_else(|| host::hostname(&config.roots)),
        hardware_fingerprint: fingerprint.map(|f| f.value.clone()),
        agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        probe_port: config.responder.port,
        node_id: None,
        registration_nonce: None,
        rotation_signature: None,
    })
}

/// Trusts the CA that the token names, and no other.
fn client(config: &Config, claims: &TokenClaims, clock: &Clock) -> Result<Client, RegisterError> {
    let trust = Trust::new(pin(claims)?, &config.tls.ca_cert);
    let tls = client_config(trust, None, clock)?;
    Ok(Client::new(config.endpoints.clone(), tls, config.request_timeout))
}

/// The CA's fingerprint in the token.
pub(super) fn pin(claims: &TokenClaims) -> Result<CaPin, Refusal> {
    let pin = claims.ca_sha256.parse();
    pin.map_err(|e| Refusal::field(Code::TokenInvalid, "token.ca_sha256", e))
}

/// One try: done, or why not yet and how long to wait.
enum Try {
    Done(Box<RegisterResponse>),
    Again { reason: String, after: Option<Duration> },
}

async fn exchange(
    client: &mut Client,
    request: &RegisterRequest,
    wait: Option<Duration>,
    progress: &mut impl FnMut(&str),
) -> Result<RegisterResponse, RegisterError> {
    let body = serde_json::to_vec(request).map_err(|e| RegisterError::BadAnswer(e.to_string()))?;
    let start = instant();
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let mut said = String::new();
    loop {
        let (reason, after) = match one_try(client, &body).await? {
            Try::Done(response) => return Ok(*response),
            Try::Again { reason, after } => (reason, after),
        };
        let pause = match after {
            Some(after) => after.clamp(Duration::from_secs(1), Duration::from_secs(60)),
            None => backoff.next(random::up_to),
        };
        if reason != said {
            progress(&reason);
            said.clone_from(&reason);
        }
        if let Some(wait) = wait
            && instant().saturating_duration_since(start).saturating_add(pause) > wait
        {
            return Err(RegisterError::TimedOut {
                waited: wait,
                last: reason,
            });
        }
        tokio::time::sleep(pause).await;
    }
}

async fn one_try(client: &mut Client, body: &[u8]) -> Result<Try, RegisterError> {
    let answer = match client.post(REGISTER_PATH, body.to_vec()).await {
        Ok(answer) => answer,
        Err(e @ UplinkError::Tls { .. }) => {
            return Ok(Try::Again {
                reason: format!("{e}; the token pins the gateway's CA: is this the gateway that made it?"),
                after: None,
            });
        }
        Err(e) => {
            return Ok(Try::Again {
                reason: e.to_string(),
                after: None,
            });
        }
    };
    match answer.status {
        200 => serde_json::from_slice(&answer.body)
            .map(|r| Try::Done(Box::new(r)))
            .map_err(|e| RegisterError::BadAnswer(e.to_string())),
        202 => {
            let code = serde_json::from_slice::<RegisterPending>(&answer.body)
                .map_or_else(|_| "registration_pending".to_owned(), |p| p.code);
            let reason = format!("waiting for the chain ({code})");
            Ok(Try::Again {
                reason,
                after: Some(answer.retry_after.unwrap_or(Duration::from_secs(2))),
            })
        }
        status => {
            let problem = serde_json::from_slice::<Problem>(&answer.body).ok();
            let (code, message) = problem.map_or_else(
                || ("http_error".to_owned(), format!("HTTP {status}")),
                |p| (p.code, p.detail),
            );
            if matches!(status, 408 | 425 | 429) || status >= 500 {
                Ok(Try::Again {
                    reason: format!("{code}: {message}"),
                    after: answer.retry_after,
                })
            } else {
                Err(RegisterError::RefusedByGateway { code, message })
            }
        }
    }
}
