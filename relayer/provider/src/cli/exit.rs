//! What the exit code says of an error, after sysexits.h; the table stands in docs/provider.md.

use std::io::{self, ErrorKind};

use hpc_chain::keys::{FileError, KeyError, KeyringError};
use hpc_chain::query::QueryError;

use super::output::Unwritten;
use crate::admin::AdminError;
use crate::backup::BackupError;
use crate::config::ConfigError;
use crate::daemon::{NextError, StartError};
use crate::identity::{CaError, SeedError};
use crate::store::StoreError;

/// It cannot be as it is asked for.
const REFUSED: u8 = 1;
/// Somebody else does not do it.
const SERVICE: u8 = 69;
/// What is to be read or written cannot be.
const DISK: u8 = 74;
/// Configuration, keys, the directory.
const CONFIG: u8 = 78;

pub(super) fn exit_code(e: &anyhow::Error) -> u8 {
    if let Some(e) = e.downcast_ref::<StartError>() {
        return e.exit_code();
    }
    if let Some(e) = e.downcast_ref::<AdminError>() {
        return match e {
            AdminError::Chain(_) | AdminError::Unknown { .. } | AdminError::Unreachable(_) => SERVICE,
            AdminError::Home(_) => CONFIG,
            AdminError::Store(_) | AdminError::Random(_) => DISK,
            AdminError::Refused(_) | AdminError::Missing(_) | AdminError::OnChain(_) => REFUSED,
        };
    }
    if let Some(e) = e.downcast_ref::<KeyringError>() {
        return of_keyring(e);
    }
    if let Some(e) = e.downcast_ref::<BackupError>() {
        return of_backup(e);
    }
    if let Some(e) = e.downcast_ref::<FileError>() {
        return of_secret(e);
    }
    if let Some(NextError::File(e)) = e.downcast_ref::<NextError>() {
        return of_secret(e);
    }
    if let Some(e) = e.downcast_ref::<io::Error>() {
        return if is_elsewhere(e) { REFUSED } else { DISK };
    }
    if let Some(e) = e.downcast_ref::<QueryError>() {
        return if matches!(e, QueryError::Contract { .. }) {
            REFUSED
        } else {
            SERVICE
        };
    }
    if let Some(SeedError::File { source, .. }) = e.downcast_ref::<SeedError>() {
        return if is_elsewhere(source) { CONFIG } else { DISK };
    }
    if e.is::<StoreError>() || e.is::<Unwritten>() {
        return DISK;
    }
    let config = e.is::<ConfigError>() || e.is::<SeedError>() || e.is::<CaError>();
    if config || e.is::<KeyError>() || e.is::<NextError>() {
        return CONFIG;
    }
    REFUSED
}

fn of_keyring(e: &KeyringError) -> u8 {
    match e {
        KeyringError::File(e) => of_secret(e),
        // Another name would do.
        KeyringError::NotFound { .. }
        | KeyringError::Exists(_)
        | KeyringError::Busy(_)
        | KeyringError::Name(_)
        | KeyringError::CredentialName(_) => REFUSED,
        KeyringError::Format(_)
        | KeyringError::Passphrase(_)
        | KeyringError::PassphraseNeeded(_)
        | KeyringError::PassphraseShort
        | KeyringError::Elsewhere(_)
        | KeyringError::Credential { .. }
        | KeyringError::CredentialWords { .. }
        | KeyringError::OtherKey { .. }
        | KeyringError::Key(_) => CONFIG,
    }
}

fn of_backup(e: &BackupError) -> u8 {
    match e {
        BackupError::Used(_) => CONFIG,
        BackupError::File { source, .. } => match source.kind() {
            ErrorKind::AlreadyExists => REFUSED,
            // The passphrase does not open it.
            ErrorKind::InvalidData => CONFIG,
            _ => DISK,
        },
        BackupError::Store(_) | BackupError::Content(_) | BackupError::Room(_) => DISK,
    }
}

/// A file that holds a secret: it is another one, not there, or open to others, unless the disk fails.
fn of_secret(e: &FileError) -> u8 {
    match e {
        FileError::Io { source, .. } if !is_elsewhere(source) => DISK,
        _ => CONFIG,
    }
}

/// What is wrong is the file that is named, not the disk.
fn is_elsewhere(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidData
            | ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn keys_and_passphrases_are_78_a_disk_that_fails_74_and_a_name_that_is_taken_1() {
        let io = |kind: ErrorKind| io::Error::from(kind);
        let secret = |kind| FileError::Io {
            path: "passphrase".into(),
            source: io(kind),
        };
        let name = || "relayer".to_owned();
        let backup = |kind| BackupError::File {
            path: "site.backup".into(),
            source: io(kind),
        };
        let seed = |kind| SeedError::File {
            path: "token.key".into(),
            source: io(kind),
        };
        let contract = QueryError::Contract {
            code: None,
            message: "no".to_owned(),
        };
        let unknown = AdminError::Unknown {
            what: "no end was found".into(),
            tx: [7_u8; 32].into(),
            last_block: 120,
        };
        let all: [(anyhow::Error, u8); 20] = [
            (KeyringError::PassphraseNeeded(name()).into(), 78),
            (KeyringError::Passphrase(name()).into(), 78),
            (KeyringError::File(secret(ErrorKind::NotFound)).into(), 78),
            (KeyringError::File(secret(ErrorKind::StorageFull)).into(), 74),
            (KeyringError::Exists(name()).into(), 1),
            (NextError::Text.into(), 78),
            (NextError::File(secret(ErrorKind::NotFound)).into(), 78),
            (AdminError::Home("no passphrase".into()).into(), 78),
            (AdminError::Chain("no funds".into()).into(), 69),
            (unknown.into(), 69),
            (BackupError::Used("home".into()).into(), 78),
            (backup(ErrorKind::InvalidData).into(), 78),
            (backup(ErrorKind::AlreadyExists).into(), 1),
            (BackupError::Room("make room".into()).into(), 74),
            (io(ErrorKind::StorageFull).into(), 74),
            (io(ErrorKind::NotFound).into(), 1),
            (io(ErrorKind::InvalidData).into(), 1),
            (seed(ErrorKind::StorageFull).into(), 74),
            (seed(ErrorKind::PermissionDenied).into(), 78),
            (contract.into(), 1),
        ];
        for (e, code) in all {
            assert_eq!(exit_code(&e), code, "{e}");
            // Where it happened does not hide it.
            let e = Err::<(), _>(e).context("keyring").unwrap_err();
            assert_eq!(exit_code(&e), code, "{e:#}");
        }
    }
}
