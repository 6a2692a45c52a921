//! Which keys' tokens count: the one that signs, the one that is about to, and former ones until their time is over.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use hpc_schema::key::AgentKey;
use hpc_schema::time::UnixSeconds;

use super::token::read_any;
use super::{Seed, SeedError, Token, TokenError};
use crate::clock;
use crate::home::{self, Home};

/// The keys by which a gateway checks tokens; others may take their place while it runs.
#[derive(Debug)]
pub struct TokenKeys(RwLock<Arc<Verifying>>);

/// The public keys whose tokens count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verifying {
    /// Those without an end.
    present: Vec<AgentKey>,
    /// Those that were replaced, each with its end.
    former: Vec<(UnixSeconds, AgentKey)>,
}

impl TokenKeys {
    /// With these keys.
    #[must_use]
    pub fn new(keys: Verifying) -> Self {
        Self(RwLock::new(Arc::new(keys)))
    }

    /// Takes other keys into use.
    pub fn replace(&self, keys: Verifying) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// The claims of either kind of token that this gateway made, whatever its age.
    ///
    /// # Errors
    /// Everything but [`TokenError::Expired`].
    pub fn read_any(&self, token: &str, chain_id: &str, contract: &str) -> Result<Token, TokenError> {
        let keys = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        read_any(token, &keys.at(clock::now()), chain_id, contract)
    }
}

impl Verifying {
    /// Of this directory.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn load(home: &Home) -> Result<Self, SeedError> {
        // Before the present one: what has left this file by then is in that one.
        let next = Seed::load_drawn(&home.next_token_key())?;
        let mut present = vec![*Seed::load(&home.token_key())?.public()];
        // Drawn, and not yet in use: it signs soon, and what it signs counts here then.
        present.extend(next.map(|key| *key.public()).filter(|key| !present.contains(key)));
        let former = load_former(&home.former_token_keys())?;
        Ok(Self { present, former })
    }

    /// The keys that count at `now`.
    fn at(&self, now: UnixSeconds) -> Vec<AgentKey> {
        let former = self.former.iter().filter(|(until, _)| now < *until);
        let former = former.map(|(_, key)| *key);
        self.present.iter().copied().chain(former).collect()
    }

    /// The key that was replaced last.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn last_retired(home: &Home) -> Result<Option<AgentKey>, SeedError> {
        let former = load_former(&home.former_token_keys())?;
        Ok(former.last().map(|(_, key)| *key))
    }

    /// Has `key` count until then when another takes its place, and says until when it does: one whose time was over
    /// before does not count again. Others whose time was over at `now` are forgotten.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn retire(
        home: &Home,
        key: &AgentKey,
        until: UnixSeconds,
        now: UnixSeconds,
    ) -> Result<UnixSeconds, SeedError> {
        let path = home.former_token_keys();
        let mut former = load_former(&path)?;
        let over = former.iter().find(|(end, other)| other == key && *end <= now);
        let until = over.map_or(until, |(end, _)| *end);
        former.retain(|(end, other)| now < *end && other != key);
        former.push((until, *key));
        let line = |(until, key): &(UnixSeconds, AgentKey)| format!("{} {}\n", until.0, key.to_base64());
        let text: String = former.iter().map(line).collect();
        home::replace_private(&path, text.as_bytes()).map_err(|source| SeedError::File { path, source })?;
        Ok(until)
    }
}

/// Public keys, each behind the second at which it ends; none without the file.
fn load_former(path: &Path) -> Result<Vec<(UnixSeconds, AgentKey)>, SeedError> {
    let text = match fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|source| SeedError::File {
            path: path.to_owned(),
            source,
        })?,
    };
    let line = |line: &str| {
        let (until, key) = line.split_once(' ')?;
        Some((UnixSeconds(until.parse().ok()?), key.parse().ok()?))
    };
    let all: Option<Vec<_>> = text.lines().map(line).collect();
    all.ok_or_else(|| SeedError::Lines {
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_key_counts_until_its_end_and_one_that_is_drawn_counts_already() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        home::make_private_dir(&dir.path().join("keys")).unwrap();
        let first = Seed::create(&home.token_key(), &[1; 32]).unwrap();
        let keys = Verifying::load(&home).unwrap();
        assert_eq!(keys.at(UnixSeconds(0)), [*first.public()]);
        let next = Seed::create(&home.next_token_key(), &[2; 32]).unwrap();
        let keys = Verifying::load(&home).unwrap();
        assert_eq!(keys.at(UnixSeconds(0)), [*first.public(), *next.public()]);
        let retire = |key: &Seed, until, now| {
            Verifying::retire(&home, key.public(), UnixSeconds(until), UnixSeconds(now)).unwrap();
        };
        // Twice: the first try was broken off before the new key had the file.
        retire(&first, 50, 10);
        retire(&first, 100, 10);
        let keys = Verifying::load(&home).unwrap();
        assert!(
            keys.at(UnixSeconds(500)).contains(first.public()),
            "it still signs"
        );
        home::copy_private(&home.next_token_key(), &home.token_key()).unwrap();
        for broken_off in [true, false] {
            let keys = Verifying::load(&home).unwrap();
            assert_eq!(keys.at(UnixSeconds(99)), [*next.public(), *first.public()]);
            assert_eq!(keys.at(UnixSeconds(100)), [*next.public()]);
            if broken_off {
                home::remove(&home.next_token_key()).unwrap();
            }
        }
        assert_eq!(Verifying::last_retired(&home).unwrap(), Some(*first.public()));
        retire(&next, 300, 200);
        let text = fs::read_to_string(home.former_token_keys()).unwrap();
        assert_eq!(text, format!("300 {}\n", next.public().to_base64()));
        // Ended at once: a call that goes on with a longer overlap does not bring it back.
        let ends = |until, now| {
            Verifying::retire(&home, next.public(), UnixSeconds(until), UnixSeconds(now)).unwrap()
        };
        assert_eq!([ends(250, 250), ends(900, 251)], [UnixSeconds(250); 2]);
        assert!(
            !Verifying::load(&home)
                .unwrap()
                .former
                .iter()
                .any(|(end, _)| end.0 > 250)
        );
        fs::write(home.former_token_keys(), "soon").unwrap();
        let e = Verifying::load(&home).unwrap_err().to_string();
        assert!(e.contains("token.former") && e.contains("UNIX seconds"), "{e}");
        home::create_private(&home.next_token_key(), b"no key").unwrap();
        let e = Verifying::load(&home).unwrap_err().to_string();
        assert!(e.contains("token.key.next") && e.contains("remove it"), "{e}");
    }
}
