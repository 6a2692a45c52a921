//! The keyring, seen from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::world::{Program, mode, words};

fn allow(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_key_comes_back_from_the_words_in_its_file() {
    let program = Program::new();
    let added = program.json(&["keys", "add", "a", "--mnemonic-file", "a.words"]);
    let file = program.path("a.words");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(fs::read_to_string(&file).unwrap().split_whitespace().count(), 24);
    let imported = program.json(&["keys", "import", "b", "--mnemonic-file", "a.words"]);
    assert_eq!(added["address"], imported["address"]);
    let other = program.json(&[
        "keys",
        "import",
        "c",
        "--mnemonic-file",
        "a.words",
        "--hd-path",
        "m/44'/118'/1'/0/0",
    ]);
    assert_ne!(added["address"], other["address"]);
    allow(&file, 0o644);
    let refused = program.error(1, &["keys", "import", "d", "--mnemonic-file", "a.words"]);
    assert_eq!(refused["code"], "unsafe_file");
}

#[test]
fn words_are_shown_once_on_standard_error_and_never_on_standard_output() {
    let program = Program::new();
    let ran = program.run(&["keys", "add", "a", "-o", "json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let shown = ran
        .err
        .lines()
        .find(|l| l.split_whitespace().count() == 24)
        .unwrap();
    // Two words side by side, in a line or in a list: one alone may be a field's name ("name", "key").
    let each: Vec<&str> = shown.split_whitespace().collect();
    let letters = ran.out.split(|c: char| !c.is_ascii_lowercase());
    let told: Vec<&str> = letters.filter(|w| !w.is_empty()).collect();
    assert!(
        !each
            .windows(2)
            .any(|pair| told.windows(2).any(|seen| seen == pair)),
        "{ran:?}"
    );
    let again = program.feed(&["keys", "import", "b"], shown);
    assert_eq!(again.code, 0, "{again:?}");
    let address = |name: &str| program.ok(&["keys", "show", name, "--address"]);
    assert_eq!(address("a"), address("b"));
    assert_eq!(program.ok(&["keys", "show", "a"]).lines().next(), Some("name: a"));
}

#[test]
fn an_imported_key_has_the_address_that_every_cosmos_tool_gives_it() {
    let program = Program::new();
    program.feed(&["keys", "import", "zero"], &words());
    // As the wasmd command line derives it from the same words (`wasmd keys add --recover`).
    let address = program.ok(&["keys", "show", "zero", "--address"]);
    assert_eq!(address, "wasm1r5v5srda7xfth3hn2s26txvrcrntldju3hkw75\n");
    let cosmos = program.json(&["keys", "show", "zero", "--prefix", "cosmos"]);
    assert!(
        cosmos["address"]
            .as_str()
            .unwrap()
            .starts_with("cosmos1r5v5srda7xfth3hn2s26txvrcrntldju"),
        "{cosmos}"
    );
}

#[test]
fn names_are_taken_once_listed_in_order_and_deleted_only_on_confirmation() {
    let program = Program::new();
    for name in ["b", "a"] {
        program.ok(&["keys", "add", name]);
    }
    assert_eq!(program.error(1, &["keys", "add", "a"])["code"], "key_exists");
    let list = program.json(&["keys", "list"]);
    assert_eq!(list["keys"][0]["name"], "a");
    assert_eq!(list["keys"][1]["name"], "b");
    assert_eq!(
        program.error(2, &["keys", "delete", "a"])["code"],
        "confirmation_needed"
    );
    program.ok(&["keys", "show", "a"]);
    program.ok(&["keys", "delete", "a", "--yes"]);
    assert_eq!(program.error(3, &["keys", "show", "a"])["code"], "key_not_found");
    assert_eq!(program.error(2, &["keys", "add", "../a"])["code"], "bad_key_name");
}

#[test]
fn a_keyring_that_others_may_enter_is_refused() {
    let program = Program::new();
    program.ok(&["keys", "add", "a"]);
    let folder = program.path("home/keyring");
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("a.key")), 0o600);
    allow(&folder, 0o755);
    let refused = program.error(1, &["keys", "list"]);
    assert_eq!(refused["code"], "unsafe_file");
    assert!(
        refused["message"].as_str().unwrap().contains("chmod 700"),
        "{refused}"
    );
    allow(&folder, 0o700);
    allow(&folder.join("a.key"), 0o640);
    assert_eq!(program.error(1, &["keys", "show", "a"])["code"], "unsafe_file");
}

#[test]
fn the_file_backend_wants_its_passphrase_from_a_private_file() {
    let mut program = Program::new();
    program.set("VIRTENGINE_KEYRING_BACKEND", "file");
    let file = program.path("passphrase");
    fs::write(&file, "correct horse\n").unwrap();
    program.set("VIRTENGINE_KEYRING_PASSPHRASE_FILE", file.display().to_string());
    allow(&file, 0o644);
    assert_eq!(program.error(1, &["keys", "add", "a"])["code"], "unsafe_file");
    allow(&file, 0o600);
    program.ok(&["keys", "add", "a"]);
    let stored = fs::read_to_string(program.path("home/keyring/a.key")).unwrap();
    assert!(stored.contains("argon2id"), "{stored}");
    // Showing needs no passphrase; signing does.
    fs::write(&file, "wrong horse\n").unwrap();
    program.ok(&["keys", "show", "a"]);
    let sign = [
        "tx",
        "bank",
        "send",
        "a",
        "1stake",
        "--from",
        "a",
        "--chain-id",
        "x",
        "--node",
        "http://127.0.0.1:1",
        "--yes",
    ];
    assert_eq!(program.error(1, &sign)["code"], "wrong_passphrase");
    fs::write(&file, "correct horse\n").unwrap();
    assert_eq!(program.error(5, &sign)["code"], "node_unreachable");
    fs::write(&file, "short\n").unwrap();
    assert_eq!(
        program.error(2, &["keys", "add", "b"])["code"],
        "passphrase_short"
    );
}

#[test]
fn the_test_backend_is_loud() {
    let ran = Program::new().run(&["keys", "add", "a"]);
    assert!(ran.err.contains("WARNING"), "{}", ran.err);
}

#[test]
fn what_are_no_words_is_refused() {
    let program = Program::new();
    for bad in [
        "",
        "abandon",
        "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon",
    ] {
        let ran = program.feed(&["keys", "import", "a"], bad);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("error[bad_key]"), "{}", ran.err);
    }
}

#[test]
fn what_a_killed_call_has_left_goes_with_the_next_one() {
    let program = Program::new();
    program.ok(&["keys", "add", "a"]);
    let folder = program.path("home/keyring");
    let (left, other) = (folder.join("a.key.4711.tmp"), folder.join("notes.tmp"));
    for file in [&left, &other] {
        fs::write(file, "{}").unwrap();
    }
    program.ok(&["keys", "list"]);
    assert!(!left.exists() && other.exists());
    program.ok(&["keys", "show", "a"]);
}
