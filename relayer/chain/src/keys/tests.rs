use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::*;

const WORDS: &str =
    "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about";

fn key() -> LocalKey {
    LocalKey::from_mnemonic(&Mnemonic::parse(WORDS).unwrap(), DEFAULT_PATH).unwrap()
}

fn passphrase(text: &str) -> Result<Passphrase, KeyringError> {
    Ok(Passphrase::new(text.to_owned()))
}

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn addresses_are_those_of_other_cosmos_wallets() {
    let f: serde_json::Value = serde_json::from_str(include_str!("../../fixtures/cosmjs-0.39.json")).unwrap();
    assert_eq!(key().address("wasm").unwrap(), f["address"].as_str().unwrap());
    let art = format!("{} art", ["abandon"; 23].join(" "));
    let key = LocalKey::from_mnemonic(&Mnemonic::parse(&art).unwrap(), DEFAULT_PATH).unwrap();
    assert_eq!(key.address("wasm").unwrap(), f["address24"].as_str().unwrap());
    assert!(key.address("WASM").is_err());
    assert!(key.address("").is_err());
}

#[test]
fn words_are_read_in_any_layout_and_checked() {
    let messy = format!("\n {}\t", WORDS.to_uppercase().replace(' ', "  "));
    assert_eq!(Mnemonic::parse(&messy).unwrap().words().as_str(), WORDS);
    for bad in [
        "",
        "abandon",
        &WORDS.replace("about", "abandon"),
        &WORDS.replace("about", "virtengine"),
    ] {
        assert_eq!(Mnemonic::parse(bad).unwrap_err(), KeyError::Mnemonic, "{bad}");
    }
    let fresh = Mnemonic::generate().unwrap();
    assert_eq!(fresh.words().split(' ').count(), 24);
    assert_ne!(fresh, Mnemonic::generate().unwrap());
}

#[test]
fn an_hd_path_that_is_none_is_refused() {
    let words = Mnemonic::parse(WORDS).unwrap();
    for bad in ["", "44/118", "m/x", "m/44'/118'/0'/0/99999999999"] {
        assert!(
            matches!(LocalKey::from_mnemonic(&words, bad), Err(KeyError::Path(_))),
            "{bad}"
        );
    }
}

#[test]
fn a_test_keyring_gives_back_the_key_and_keeps_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("a/b/keys");
    let ring = Keyring::open(&dir, Backend::Test).unwrap();
    ring.add("provider", &key(), || panic!("no passphrase is asked"))
        .unwrap();
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join("provider.key")), 0o600);
    let opened = ring
        .key("provider", |_| panic!("no passphrase is asked"))
        .unwrap();
    assert_eq!(opened.public_key(), key().public_key());
    assert!(matches!(
        ring.add("provider", &key(), || passphrase("")),
        Err(KeyringError::Exists(_))
    ));
    assert_eq!(ring.list().unwrap().len(), 1);
    assert_eq!(
        ring.info("provider").unwrap().address("wasm").unwrap(),
        key().address("wasm").unwrap()
    );
    let mut left: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, [".lock", "provider.key"], "no temporary file is left");
}

#[test]
fn a_sealed_key_opens_with_its_passphrase_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("keys");
    let ring = Keyring::open(&dir, Backend::File).unwrap();
    let short = ring.add("k", &key(), || passphrase("1234567"));
    assert!(matches!(short, Err(KeyringError::PassphraseShort)));
    ring.add("k", &key(), || passphrase("correct horse\n")).unwrap();
    assert_eq!(
        ring.key("k", |_| passphrase("correct horse"))
            .unwrap()
            .public_key(),
        key().public_key()
    );
    assert!(matches!(
        ring.key("k", |_| passphrase("wrong horse")),
        Err(KeyringError::Passphrase(_))
    ));

    let path = dir.join("k.key");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("argon2id") && text.contains("xchacha20poly1305"));
    // Another name on the same file: the secret is bound to its name.
    fs::write(dir.join("m.key"), text.replace("\"k\"", "\"m\"")).unwrap();
    fs::set_permissions(dir.join("m.key"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(
        ring.key("m", |_| passphrase("correct horse")),
        Err(KeyringError::Passphrase(_))
    ));
}

#[test]
fn files_that_others_may_read_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("keys");
    let ring = Keyring::open(&dir, Backend::Test).unwrap();
    ring.add("k", &key(), || passphrase("")).unwrap();
    fs::set_permissions(dir.join("k.key"), fs::Permissions::from_mode(0o640)).unwrap();
    let refused = ring.key("k", |_| passphrase("")).unwrap_err().to_string();
    assert!(refused.contains("chmod 600"), "{refused}");

    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Keyring::open(&dir, Backend::Test).unwrap_err().to_string();
    assert!(refused.contains("chmod 700"), "{refused}");
}

#[test]
fn a_link_in_place_of_a_key_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("keys");
    let ring = Keyring::open(&dir, Backend::Test).unwrap();
    ring.add("k", &key(), || passphrase("")).unwrap();
    std::os::unix::fs::symlink(dir.join("k.key"), dir.join("l.key")).unwrap();
    assert!(matches!(
        ring.info("l"),
        Err(KeyringError::File(FileError::Kind { .. }))
    ));
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ring = Keyring::open(&dir.path().join("keys"), Backend::Test).unwrap();
    for bad in ["", "../k", "a/b", ".k", "k\0", "ä", &"k".repeat(33)] {
        assert!(matches!(ring.info(bad), Err(KeyringError::Name(_))), "{bad}");
    }
    assert!(matches!(ring.info("absent"), Err(KeyringError::NotFound { .. })));
}

#[test]
fn nothing_secret_is_shown_by_debug() {
    let words = Mnemonic::parse(WORDS).unwrap();
    let shown = format!(
        "{words:?} {:?} {:?}",
        key(),
        Passphrase::new("correct horse".to_owned())
    );
    let secret = hex::encode(key().secret().as_slice());
    for hidden in ["abandon", "horse", secret.as_str()] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[test]
fn a_registration_signature_is_bound_to_chain_and_contract() {
    let identity = serde_json::from_value(serde_json::json!({
        "node_id": "node-hpc1-compute-042",
        "cluster_id": "hpc-cluster-1",
        "provider_address": key().address("wasm").unwrap(),
        "agent_pubkey": "mDNBfrIXvbcwrSQy3ZUwZ0Gk8JYJhS7pF6Qm0nK8l0w=",
        "registration_nonce": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "registration_timestamp": "2026-01-30T14:05:00Z"
    }))
    .unwrap();
    let sign = |chain: &str, contract: &str| {
        key()
            .sign_registration("wasm", chain, contract, &identity)
            .unwrap()
    };
    assert_eq!(sign("chain-1", "wasm1c"), sign("chain-1", "wasm1c"));
    assert_ne!(sign("chain-1", "wasm1c"), sign("chain-2", "wasm1c"));
    assert_ne!(sign("chain-1", "wasm1c"), sign("chain-1", "wasm1d"));
}

#[test]
fn a_keyring_gets_another_passphrase_whole_and_goes_on_where_it_was_broken_off() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let ring = Keyring::open(dir.path(), Backend::File).unwrap();
    let words = |text: &str| Passphrase::new(text.to_owned());
    let (former, next) = (words("correct horse"), words("battery staple"));
    for name in ["operator", "relayer"] {
        ring.add(name, &key(), || Ok(former.clone())).unwrap();
    }
    let plain = Keyring::open(dir.path(), Backend::Test).unwrap();
    plain.add("plain", &key(), || passphrase("")).unwrap();
    assert!(matches!(
        ring.reseal(&former, &words("short")),
        Err(KeyringError::PassphraseShort)
    ));
    // One opens with neither: nothing is written.
    let file = dir.path().join("relayer.key");
    let good = fs::read(&file).unwrap();
    plain.remove("relayer").unwrap();
    ring.add("relayer", &key(), || passphrase("another one")).unwrap();
    assert!(matches!(ring.reseal(&former, &next), Err(KeyringError::Passphrase(name)) if name == "relayer"));
    assert!(ring.key("operator", |_| Ok(former.clone())).is_ok());
    fs::write(&file, &good).unwrap();
    let files = || fs::read_dir(dir.path()).unwrap().count();
    let all = files();
    // All are on disk before the first has its place; let go, nothing has changed.
    let resealed = ring.reseal(&former, &next).unwrap();
    assert_eq!(resealed.names().collect::<Vec<_>>(), ["operator", "relayer"]);
    assert_eq!((resealed.done().len(), files()), (0, all + 2));
    assert_eq!(fs::read(&file).unwrap(), good);
    drop(resealed);
    assert_eq!(files(), all);
    ring.reseal(&former, &next).unwrap().put().unwrap();
    // Broken off before the last: that one alone is sealed anew.
    fs::write(&file, &good).unwrap();
    let resealed = ring.reseal(&former, &next).unwrap();
    assert_eq!(resealed.names().collect::<Vec<_>>(), ["relayer"]);
    assert_eq!(resealed.done(), ["operator"]);
    resealed.put().unwrap();
    assert_eq!(files(), all);
    for name in ["operator", "relayer"] {
        let opened = ring.key(name, |_| Ok(next.clone())).unwrap();
        assert_eq!(opened.public_key(), key().public_key());
        assert!(ring.key(name, |_| Ok(former.clone())).is_err());
        assert_eq!(mode(&dir.path().join(format!("{name}.key"))), 0o600);
    }
    let resealed = ring.reseal(&former, &next).unwrap();
    assert_eq!((resealed.names().count(), resealed.done().len()), (0, 2));
}
