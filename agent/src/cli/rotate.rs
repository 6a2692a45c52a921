use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hpc_schema::token::{AnyClaims, TokenClaims, read_any_token_unverified};
use serde_json::json;

use super::output::{print, say};
use super::register::{exit_code, show};
use super::store::StoreArguments;
use super::{ConfigArguments, Failure, Format, runtime};
use crate::config::{Config, HumanDuration, Token, read_token_file};
use crate::fault;
use crate::key::{
    KeyFileError, Place, SharedSigner, forget_next, load_next, load_registered, prepare_next, promote,
};
use crate::register::{Rotation, rotate};
use crate::state::{Lock, Pending, Registration, StateDir};

/// `key rotate`.
#[derive(Debug, Args)]
pub(super) struct Rotate {
    #[command(flatten)]
    config: ConfigArguments,
    /// File with the registration token for the new key; default: the configured token, if it is for the new key
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Give the new key up that a former run has made
    #[arg(long, conflicts_with = "token_file")]
    abandon: bool,
    #[command(flatten)]
    store: StoreArguments,
    /// How long to try
    #[arg(long, default_value = "10m")]
    wait: HumanDuration,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn key(e: KeyFileError) -> Failure {
    Failure::new(2, e)
}

impl Rotate {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        // A file that root names may be root's alone.
        let named = self.named_token();
        let mut config = self.config.load_as_owner()?;
        let state = StateDir::new(&config.state_dir);
        let registration = Registration::load(&state)
            .map_err(|e| Failure::new(1, e))?
            .ok_or_else(|| {
                Failure::new(
                    3,
                    "this node is not registered; there is no key to rotate: virtengine-node-agent register",
                )
            })?;
        let _lock = Lock::take_at(&state.rotate_lock())
            .map_err(|e| Failure::new(1, e))?
            .ok_or_else(|| Failure::new(2, "another key rotate runs; wait for it"))?;
        // Also finishes one that was cut off after the new key was registered.
        let old = load_registered(&config.key_path, &registration.public_key).map_err(key)?;
        // Where that failed the key lies in agent.key.next: there no other may be made, and none given up.
        promote(&config.key_path, &registration.public_key).map_err(key)?;
        if self.abandon {
            // Keys may live in devices, which take their time: a running agent may have taken the new one over meanwhile.
            let registered = || Registration::load(&state).map(|found| found.map(|r| r.public_key));
            forget_next(&config.key_path, registered).map_err(key)?;
            say!("the registered key stays: {}", old.public());
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(token) = named? {
            config.token = Some(token);
        }
        if self.is_done(&config, &state, &registration)? {
            return self.tell(&registration, &old.place(), true);
        }
        let new = prepare_next(&config.key_path, self.store.store()?).map_err(key)?;
        fault::point("rotate.prepared");
        if !self.has_token_for(&config, &registration, &new)? {
            return self.ask_for_token(&registration, &new);
        }
        let rotation = Rotation {
            old: &old,
            new: &new,
            registration: &registration,
        };
        let progress = |reason: &str| eprintln!("{reason}");
        let registration = runtime()?
            .block_on(rotate(&config, &rotation, Some(self.wait.0), progress))
            .map_err(|e| Failure::new(exit_code(&e), e))?;
        self.tell(&registration, &new.place(), false)
    }

    fn named_token(&self) -> Result<Option<Token>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let text = read_token_file("--token-file", path)?
            .ok_or_else(|| Failure::new(2, format_args!("--token-file {}: no such file", path.display())))?;
        Ok(Some(Token::new(&text)))
    }

    /// The same command again, after it had come to its end: the named token was used for the registered key, and no other
    /// key waits.
    fn is_done(
        &self,
        config: &Config,
        state: &StateDir,
        registration: &Registration,
    ) -> Result<bool, Failure> {
        let named = config.token.as_ref().filter(|_| self.token_file.is_some());
        let Some(claims) = named.and_then(claims_of) else {
            return Ok(false);
        };
        if claims.pubkey != registration.public_key || load_next(&config.key_path).map_err(key)?.is_some() {
            return Ok(false);
        }
        if claims.jti == registration.jti {
            return Ok(true);
        }
        // Cut off before the answer was written down, a running agent has taken the key over: it knows of no token.
        let sent = Pending::load(state).map_err(|e| Failure::new(1, e))?;
        Ok(sent.is_some_and(|p| p.jti == claims.jti && p.public_key == claims.pubkey))
    }

    /// Whether the token is for the new key. One in the configuration may be that of the present registration; one that
    /// was named is meant.
    fn has_token_for(
        &self,
        config: &Config,
        registration: &Registration,
        new: &SharedSigner,
    ) -> Result<bool, Failure> {
        let Some(token) = &config.token else {
            return Ok(false);
        };
        let token_key = claims_of(token).map(|claims| claims.pubkey);
        if token_key == Some(new.public()) {
            return Ok(true);
        }
        if self.token_file.is_some() {
            let whose = match token_key {
                Some(old) if old == registration.public_key => "for the registered key",
                Some(_) => "for another key",
                None => "a join token, or none at all",
            };
            let message = format!(
                "--token-file: the token is {whose}, not for the new key {}; nothing is rotated. Have one made for it: {}",
                new.public(),
                wanted(registration, new)
            );
            return Err(Failure::new(2, message));
        }
        Ok(false)
    }

    fn ask_for_token(&self, r: &Registration, new: &SharedSigner) -> Result<ExitCode, Failure> {
        if self.output != Format::Text {
            let value = json!({
                "rotated": false, "public_key": r.public_key, "next_public_key": new.public(),
                "next_place": new.place(),
            });
            return print(&value, self.output);
        }
        say!("registered key: {}", r.public_key);
        say!("next key:       {}, {}", new.public(), new.place());
        say!("now, at the provider: {}", wanted(r, new));
        say!("then, here: virtengine-node-agent key rotate --token-file FILE");
        Ok(ExitCode::SUCCESS)
    }

    /// `place`: where the key lives; `before`: the named token was used before.
    fn tell(&self, r: &Registration, place: &Place, before: bool) -> Result<ExitCode, Failure> {
        if self.output != Format::Text {
            return print(
                &json!({"rotated": true, "registration": r, "place": place}),
                self.output,
            );
        }
        if before {
            say!("the registered key of {} is {}, {place}", r.node_id, r.public_key);
            show(r);
            say!("this token has been used for it: there is nothing to do");
            return Ok(ExitCode::SUCCESS);
        }
        say!("the key of {} is now {}, {place}", r.node_id, r.public_key);
        show(r);
        say!("a running agent goes on with it by itself");
        Ok(ExitCode::SUCCESS)
    }
}

/// What the provider makes the token with.
fn wanted(r: &Registration, new: &SharedSigner) -> String {
    format!(
        "virtengine-provider node-token create --cluster-id {} --node-id {} --pubkey {}",
        r.cluster_id,
        r.node_id,
        new.public()
    )
}

/// What a token for one key says; none of a join token, which is for any.
fn claims_of(token: &Token) -> Option<Box<TokenClaims>> {
    match read_any_token_unverified(token.secret()) {
        Ok(AnyClaims::Node(claims)) => Some(claims),
        Ok(AnyClaims::Join(_)) | Err(_) => None,
    }
}
