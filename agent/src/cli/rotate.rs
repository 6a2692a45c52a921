use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hpc_schema::token::{AnyClaims, read_any_token_unverified};
use serde_json::json;

use super::output::{print, say};
use super::register::{exit_code, show};
use super::store::StoreArguments;
use super::{ConfigArguments, Failure, Format, runtime};
use crate::config::{Config, HumanDuration, Token, read_token_file};
use crate::fault;
use crate::key::{KeyFileError, SharedSigner, forget_next, load_registered, prepare_next};
use crate::register::{Rotation, rotate};
use crate::state::{Lock, Registration, StateDir};

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
        if self.abandon {
            forget_next(&config.key_path).map_err(key)?;
            say!("the registered key stays: {}", old.public());
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(token) = named? {
            config.token = Some(token);
        }
        if self.is_done(&config, &registration) {
            return self.tell(&registration);
        }
        let new = prepare_next(&config.key_path, self.store.store()?).map_err(key)?;
        fault::point("rotate.prepared");
        if !self.has_token_for(&config, &new)? {
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
        self.tell(&registration)
    }

    fn named_token(&self) -> Result<Option<Token>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let text = read_token_file("--token-file", path)?
            .ok_or_else(|| Failure::new(2, format_args!("--token-file {}: no such file", path.display())))?;
        Ok(Some(Token::new(&text)))
    }

    /// The same command again, after it had come to its end.
    fn is_done(&self, config: &Config, registration: &Registration) -> bool {
        let named = config.token.as_ref().filter(|_| self.token_file.is_some());
        named.is_some_and(|t| key_of(t) == Some(registration.public_key))
    }

    /// Whether the token is for the new key. One in the configuration may be that of the present registration; one that
    /// was named is meant.
    fn has_token_for(&self, config: &Config, new: &SharedSigner) -> Result<bool, Failure> {
        let Some(token) = &config.token else {
            return Ok(false);
        };
        if key_of(token) == Some(new.public()) {
            return Ok(true);
        }
        if self.token_file.is_some() {
            let message = format!(
                "--token-file: the token is not for the new key {}; have one made: virtengine-provider node-token create --pubkey {}",
                new.public(),
                new.public()
            );
            return Err(Failure::new(3, message));
        }
        Ok(false)
    }

    fn ask_for_token(&self, r: &Registration, new: &SharedSigner) -> Result<ExitCode, Failure> {
        if self.output != Format::Text {
            let value =
                json!({"rotated": false, "public_key": r.public_key, "next_public_key": new.public()});
            return print(&value, self.output);
        }
        say!("registered key: {}", r.public_key);
        say!("next key:       {}", new.public());
        say!(
            "now, at the provider: virtengine-provider node-token create --cluster-id {} --node-id {} --pubkey {}",
            r.cluster_id,
            r.node_id,
            new.public()
        );
        say!("then, here: virtengine-node-agent key rotate --token-file FILE");
        Ok(ExitCode::SUCCESS)
    }

    fn tell(&self, r: &Registration) -> Result<ExitCode, Failure> {
        if self.output != Format::Text {
            return print(&json!({"rotated": true, "registration": r}), self.output);
        }
        say!("the key of {} is now {}", r.node_id, r.public_key);
        show(r);
        say!("a running agent goes on with it by itself");
        Ok(ExitCode::SUCCESS)
    }
}

/// The key that a token is for.
fn key_of(token: &Token) -> Option<hpc_schema::key::AgentKey> {
    match read_any_token_unverified(token.secret()) {
        Ok(AnyClaims::Node(claims)) => Some(claims.pubkey),
        Ok(AnyClaims::Join(_)) | Err(_) => None,
    }
}
