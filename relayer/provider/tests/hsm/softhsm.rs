//! SoftHSM2 with tokens of its own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a failure says where it is missing.
const REMEDY: &str = "apt-get install softhsm2, or scripts/test --install --only agent";
pub(crate) const PIN: &str = "4321";

pub(crate) struct Hsm {
    dir: tempfile::TempDir,
}

impl Hsm {
    pub(crate) fn with(tokens: &[&str]) -> Self {
        let hsm = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(hsm.tokens()).unwrap();
        let conf = format!("directories.tokendir = {}\n", hsm.tokens().display());
        std::fs::write(hsm.conf(), conf).unwrap();
        for token in tokens {
            hsm.initialise(token);
        }
        hsm.write_pin(PIN);
        hsm
    }

    fn initialise(&self, token: &str) {
        let out = Command::new("softhsm2-util")
            .env("SOFTHSM2_CONF", self.conf())
            .args(["--init-token", "--free", "--so-pin", "1234", "--pin", PIN])
            .args(["--label", token])
            .output()
            .expect(REMEDY);
        assert!(out.status.success(), "{out:?}");
    }

    pub(crate) fn write_pin(&self, pin: &str) {
        std::fs::write(self.pin(), format!("{pin}\n")).unwrap();
        self.let_others_read_the_pin(false);
    }

    pub(crate) fn let_others_read_the_pin(&self, others: bool) {
        let mode = if others { 0o644 } else { 0o600 };
        std::fs::set_permissions(self.pin(), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.dir.path().join("softhsm2.conf")
    }

    pub(crate) fn pin(&self) -> PathBuf {
        self.dir.path().join("pin")
    }

    fn tokens(&self) -> PathBuf {
        self.dir.path().join("tokens")
    }

    /// As if somebody pulled it.
    pub(crate) fn pull(&self) {
        std::fs::rename(self.tokens(), self.dir.path().join("pulled")).unwrap();
        std::fs::create_dir(self.tokens()).unwrap();
    }

    pub(crate) fn put_back(&self) {
        std::fs::remove_dir(self.tokens()).unwrap();
        std::fs::rename(self.dir.path().join("pulled"), self.tokens()).unwrap();
    }

    /// Private keys sign, or sign no more, as one whose use was withdrawn: they are found all the same.
    pub(crate) fn let_sign(&self, so: bool) {
        // CKA_SIGN, a boolean, in the token's own files: type and kind of 8 bytes each, big-endian, then the value.
        let sign = [0x108u64.to_be_bytes(), 1u64.to_be_bytes()].concat();
        let mut changed = 0;
        for token in std::fs::read_dir(self.tokens()).unwrap() {
            for file in std::fs::read_dir(token.unwrap().path()).unwrap() {
                let file = file.unwrap().path();
                let mut bytes = std::fs::read(&file).unwrap();
                let Some(at) = bytes.windows(sign.len()).position(|w| w == sign) else {
                    continue;
                };
                bytes[at + sign.len()] = u8::from(so);
                std::fs::write(&file, bytes).unwrap();
                changed += 1;
            }
        }
        assert!(changed > 0, "no key has the attribute");
    }

    pub(crate) fn module() -> &'static str {
        let places = [
            "/usr/lib/softhsm/libsofthsm2.so",
            "/usr/lib64/pkcs11/libsofthsm2.so",
        ];
        places.into_iter().find(|p| Path::new(p).exists()).expect(REMEDY)
    }
}
