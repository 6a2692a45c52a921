use std::io::Read;
use std::path::Path;

use hpc_schema::key::AgentKey;
use zeroize::Zeroizing;

use super::private::open_private;
use super::stored::Stored;
use super::{KeyFileError, Place, SharedSigner};
use crate::files::at;

/// A PKCS#8 file has 119 bytes, a sealed blob about a thousand; anything far beyond is not a key.
const LIMIT: u64 = 4096;

/// The signer of a key file, if nobody else can read or replace it. A sealed key is unsealed now.
///
/// Root may read a key that belongs to the owner of its directory (`sudo … register` for a service user).
///
/// # Errors
/// IO, wrong mode, wrong owner, not a key, a device that refuses.
pub fn load(path: &Path) -> Result<SharedSigner, KeyFileError> {
    read(path)?.open()
}

/// The public half and where the private one lives, without a look at any device.
///
/// # Errors
/// IO, wrong mode, wrong owner, not a key.
pub fn describe(path: &Path) -> Result<(AgentKey, Place), KeyFileError> {
    let stored = read(path)?;
    Ok((stored.public(), stored.place()))
}

/// What is in the file.
pub(super) fn read(path: &Path) -> Result<Stored, KeyFileError> {
    let file = open_private(path)?;
    let mut text = Zeroizing::new(String::with_capacity(4096));
    file.take(LIMIT)
        .read_to_string(&mut text)
        .map_err(at("read", path))?;
    Stored::parse(&text).ok_or_else(|| KeyFileError::Format {
        path: path.display().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::key::generate;

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate(dir.path(), false).unwrap();
        assert_eq!(load(&made.key_path).unwrap().public(), made.public);
        for mode in [0o640, 0o604, 0o660, 0o666] {
            fs::set_permissions(&made.key_path, fs::Permissions::from_mode(mode)).unwrap();
            let e = load(&made.key_path).unwrap_err();
            assert!(matches!(e, KeyFileError::Mode { .. }), "{e}");
            assert!(e.to_string().contains("chmod 600"), "{e}");
        }
    }

    #[test]
    fn a_key_of_another_owner_is_refused() {
        if !rustix::process::geteuid().is_root() {
            // An ordinary user cannot give a file away; a file of root's stands in.
            assert!(matches!(
                load(Path::new("/etc/shadow")),
                Err(KeyFileError::File(_) | KeyFileError::Owner { .. } | KeyFileError::Mode { .. })
            ));
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let made = generate(dir.path(), false).unwrap();
        std::os::unix::fs::chown(&made.key_path, Some(4711), None).unwrap();
        let e = load(&made.key_path).unwrap_err();
        assert!(matches!(e, KeyFileError::Owner { owner: 4711, .. }), "{e}");
        // Root reads the key of a service user, when the directory is that user's too.
        std::os::unix::fs::chown(dir.path(), Some(4711), None).unwrap();
        assert!(load(&made.key_path).is_ok());
    }

    #[test]
    fn what_is_not_a_key_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.key");
        fs::write(&path, "hello").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load(&path), Err(KeyFileError::Format { .. })));
        assert!(matches!(
            load(&dir.path().join("none")),
            Err(KeyFileError::Missing { .. })
        ));
    }
}
