//! Commands, their refusals, and how the program stops.

use serde_json::json;
use tempfile::TempDir;

use crate::process::{Process, output, text};
use crate::support::wallet::Wallet;
use crate::support::{CHAIN_ID, FAR_NUMBER};

/// A home with Alice and, if asked for, an account of a large number.
pub(crate) fn home(extra: &[&str]) -> TempDir {
    let home = TempDir::new().unwrap();
    let alice = format!("{}=1000000000stake", Wallet::new(1).address());
    let mut arguments = vec!["init", "--chain-id", CHAIN_ID, "--genesis-account", &alice];
    arguments.extend(extra);
    let made = output(&arguments, home.path());
    assert!(made.status.success(), "{}", text(&made.stderr));
    home
}

#[test]
fn help_has_examples() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_virtengine-devnet"))
        .arg("--help")
        .output()
        .unwrap();
    let help = text(&help.stdout);
    assert!(
        help.contains("Examples:") && help.contains("--genesis-account"),
        "{help}"
    );
}

#[test]
fn init_makes_a_chain_once_and_refuses_what_does_not_parse() {
    let far = format!("{}=5stake#{FAR_NUMBER}", Wallet::new(3).address());
    let home = home(&["--genesis-account", &far, "--account-numbers", "sdk54"]);
    let genesis = std::fs::read_to_string(home.path().join("genesis.json")).unwrap();
    // As text: readers of JSON in other languages lose bits of larger numbers.
    assert!(
        genesis.contains(&format!("\"{FAR_NUMBER}\"")) && genesis.contains("sdk54"),
        "{genesis}"
    );
    let again = output(&["init"], home.path());
    assert!(!again.status.success());
    assert!(
        text(&again.stderr).contains("exists already"),
        "{}",
        text(&again.stderr)
    );
    let empty = TempDir::new().unwrap();
    for account in ["nonsense", "cosmos1xyz=5stake", "wasm1qq=5stake", "=5stake"] {
        let refused = output(&["init", "--genesis-account", account], empty.path());
        assert!(!refused.status.success(), "{account}");
    }
    let twice = format!("{}=5stake", Wallet::new(1).address());
    let refused = output(
        &["init", "--genesis-account", &twice, "--genesis-account", &twice],
        empty.path(),
    );
    assert!(
        text(&refused.stderr).contains("listed twice"),
        "{}",
        text(&refused.stderr)
    );
    assert!(!empty.path().join("genesis.json").exists());
}

#[test]
fn start_says_what_is_missing_or_not_allowed() {
    let empty = TempDir::new().unwrap();
    let missing = output(&["start"], empty.path());
    assert!(
        text(&missing.stderr).contains("virtengine-devnet init"),
        "{}",
        text(&missing.stderr)
    );
    let home = home(&[]);
    let remote = output(&["start", "--rpc-addr", "0.0.0.0:0"], home.path());
    assert!(
        text(&remote.stderr).contains("--allow-remote"),
        "{}",
        text(&remote.stderr)
    );
    for time in ["0s", "1", "-1s", "1h", "99999s"] {
        assert!(
            !output(&["start", &format!("--block-time={time}")], home.path())
                .status
                .success(),
            "{time}"
        );
    }
}

#[test]
fn two_processes_never_share_a_home() {
    let home = home(&[]);
    let first = Process::start(home.path(), &["--block-on-demand"]);
    for command in [vec!["start", "--rpc-addr", "127.0.0.1:0"], vec!["verify"]] {
        let second = output(&command, home.path());
        assert!(!second.status.success());
        assert!(
            text(&second.stderr).contains("another process uses this home folder"),
            "{}",
            text(&second.stderr)
        );
    }
    // The lock dies with its owner, however that ends.
    first.kill();
    assert!(output(&["verify"], home.path()).status.success());
}

#[test]
fn a_genesis_that_was_changed_afterwards_is_refused() {
    let home = home(&[]);
    assert!(Process::start(home.path(), &[]).signal("TERM").success());
    let path = home.path().join("genesis.json");
    let genesis = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, genesis.replace("1000000000stake", "2000000000stake")).unwrap();
    let refused = output(&["start", "--rpc-addr", "127.0.0.1:0"], home.path());
    assert!(
        text(&refused.stderr).contains("another genesis"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn sigterm_and_sigint_stop_it_in_order() {
    let home = home(&[]);
    for signal in ["TERM", "INT"] {
        let chain = Process::start(home.path(), &["--block-time", "50ms"]);
        assert_eq!(chain.rpc.call("health", &json!({})), json!({}));
        assert!(chain.signal(signal).success(), "SIG{signal}");
    }
    let verified = output(&["verify"], home.path());
    assert!(verified.status.success(), "{}", text(&verified.stderr));
}

#[test]
fn on_demand_a_block_is_made_for_every_transaction_and_for_nothing_else() {
    let home = home(&[]);
    let chain = Process::start(home.path(), &["--block-on-demand"]);
    let alice = Wallet::new(1);
    for _ in 0..3 {
        let tx = alice.sign_next(&[alice.send(&Wallet::new(2).address(), &[(1, "stake")])]);
        assert_eq!(chain.rpc.broadcast(&tx)["code"], 0);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while chain
            .rpc
            .raw("tx", &json!({"hash": base64_hash(&tx)}))
            .get("error")
            .is_some()
        {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let status = chain.rpc.call("status", &json!({}));
    assert_eq!(status["sync_info"]["latest_block_height"], "4");
}

fn base64_hash(tx: &[u8]) -> String {
    base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        <sha2::Sha256 as sha2::Digest>::digest(tx),
    )
}

#[test]
fn empty_blocks_are_small_on_disk() {
    let home = home(&[]);
    let mut config =
        hpc_devnet::Config::ephemeral(hpc_devnet::Genesis::load(&home.path().join("genesis.json")).unwrap());
    config.home = Some(home.path().to_path_buf());
    let chain = hpc_devnet::Devnet::start(config).unwrap();
    let size = || std::fs::metadata(home.path().join("state.redb")).unwrap().len();
    for _ in 0..200 {
        chain.produce_block().unwrap();
    }
    let before = size();
    for _ in 0..2_000 {
        chain.produce_block().unwrap();
    }
    let each = (size() - before) / 2_000;
    assert!(each < 512, "{each} bytes a block");
}
