use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hpc_chain::keys::{
    FileError, KeyringError, PASSPHRASE_FILE_ENV, Passphrase, read_credential, read_private,
};

/// Name of the systemd credential (`LoadCredential=`) that holds the keyring's passphrase.
const CREDENTIAL: &str = "keyring-passphrase";
/// Where systemd puts credentials.
const CREDENTIALS_ENV: &str = "CREDENTIALS_DIRECTORY";
/// Longest passphrase file.
const MAX_BYTES: u64 = 4096;

/// The passphrase of the keyring: from the file that the environment names, else from the service's credential.
pub(crate) fn passphrase(key: &str) -> Result<Passphrase, KeyringError> {
    let file = std::env::var_os(PASSPHRASE_FILE_ENV);
    from(file, std::env::var_os(CREDENTIALS_ENV), key)
}

/// The passphrase that is to take its place: of this file, or of the credential of this name.
pub(crate) fn next_passphrase(
    file: Option<&Path>,
    credential: Option<&str>,
) -> Result<Passphrase, NextError> {
    next_from(file, credential, std::env::var_os(CREDENTIALS_ENV))
}

/// A new passphrase that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NextError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is no text.
    #[error("the new passphrase is no text")]
    Text,
    /// There is no such credential.
    #[error("--new-credential: let systemd start this with LoadCredential={0}:/path")]
    Credential(String),
}

fn next_from(
    file: Option<&Path>,
    credential: Option<&str>,
    credentials: Option<OsString>,
) -> Result<Passphrase, NextError> {
    let bytes = match (file, credential.unwrap_or_default()) {
        (Some(path), _) => read_private(path, MAX_BYTES)?,
        (None, name) => {
            let plain = Path::new(name).file_name() == Some(name.as_ref());
            let path = credentials.map(|dir| PathBuf::from(dir).join(name));
            let path = path.filter(|path| plain && path.exists());
            read_credential(
                &path.ok_or_else(|| NextError::Credential(name.to_owned()))?,
                MAX_BYTES,
            )?
        }
    };
    let text = String::from_utf8(bytes).map_err(|_| NextError::Text)?;
    Ok(Passphrase::new(text))
}

fn from(
    file: Option<OsString>,
    credentials: Option<OsString>,
    key: &str,
) -> Result<Passphrase, KeyringError> {
    let credential = credentials.map(|dir| PathBuf::from(dir).join(CREDENTIAL));
    let bytes = match (file, credential) {
        (Some(path), _) => read_private(path.as_ref(), MAX_BYTES)?,
        (None, Some(path)) if path.exists() => read_credential(&path, MAX_BYTES)?,
        _ => return Err(KeyringError::PassphraseNeeded(key.to_owned())),
    };
    let text = String::from_utf8(bytes).map_err(|_| KeyringError::Passphrase(key.to_owned()))?;
    Ok(Passphrase::new(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_services_credential_opens_the_keyring_and_a_named_file_goes_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let credentials = || Some(dir.path().as_os_str().to_owned());
        assert!(matches!(
            from(None, credentials(), "relayer"),
            Err(KeyringError::PassphraseNeeded(key)) if key == "relayer"
        ));
        std::fs::write(dir.path().join(CREDENTIAL), "from systemd\n").unwrap();
        let expected = |text: &str| Passphrase::new(text.into());
        assert!(
            from(None, credentials(), "relayer")
                .unwrap()
                .matches(&expected("from systemd"))
        );
        let file = dir.path().join("file");
        std::fs::write(&file, "from a file").unwrap();
        let named = || Some(file.clone().into_os_string());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            from(named(), credentials(), "relayer").is_err(),
            "others may read it"
        );
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(
            from(named(), credentials(), "relayer")
                .unwrap()
                .matches(&expected("from a file"))
        );
        assert!(from(None, None, "relayer").is_err());
        // The next one likewise, by its own name.
        let next = |name: &str| next_from(None, Some(name), credentials());
        std::fs::write(dir.path().join("next"), "the next\n").unwrap();
        assert!(next("next").unwrap().matches(&expected("the next")));
        let above = format!("../{}/next", dir.path().file_name().unwrap().display());
        for name in ["none", "", above.as_str()] {
            let e = next(name).unwrap_err().to_string();
            assert!(e.contains("LoadCredential="), "{e}");
        }
        assert!(next_from(None, Some("next"), None).is_err());
        let own = next_from(Some(&dir.path().join("next")), None, None);
        assert!(own.is_err(), "others may read it");
    }

    #[test]
    fn what_is_longer_than_a_passphrase_may_be_is_refused_and_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        let credentials = || Some(dir.path().as_os_str().to_owned());
        let put = |name: &str, bytes: usize| {
            let path = dir.path().join(name);
            std::fs::write(&path, "x".repeat(bytes)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        let (credential, file) = (put(CREDENTIAL, 4096), put("file", 4096));
        let named = || Some(file.clone().into_os_string());
        let all = Passphrase::new("x".repeat(4096));
        assert!(from(None, credentials(), "relayer").unwrap().matches(&all));
        assert!(from(named(), None, "relayer").unwrap().matches(&all));
        put(CREDENTIAL, 4097);
        put("file", 4097);
        let next = |file: Option<&Path>, name| next_from(file, name, credentials()).unwrap_err().to_string();
        for (said, path) in [
            (
                from(None, credentials(), "relayer").unwrap_err().to_string(),
                &credential,
            ),
            (from(named(), None, "relayer").unwrap_err().to_string(), &file),
            (next(None, Some(CREDENTIAL)), &credential),
            (next(Some(&file), None), &file),
        ] {
            let names = said.contains(&path.display().to_string());
            assert!(names && said.contains("longer than 4096 bytes"), "{said}");
        }
    }
}
