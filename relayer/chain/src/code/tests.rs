use super::*;

/// Recorded from wasmd 0.70.3: (codespace, code, log).
const CHECK_TX: &[(&str, u32, &str, Verdict)] = &[
    ("", 0, "", Verdict::Accepted),
    (
        "sdk",
        32,
        "account sequence mismatch, expected 7, got 5: incorrect account sequence",
        Verdict::WrongSequence {
            expected: Some(7),
            got: Some(5),
        },
    ),
    (
        "sdk",
        30,
        "block height: 120, timeout height: 110: tx timeout height",
        Verdict::TimeoutHeight,
    ),
    (
        "sdk",
        13,
        "insufficient fees; got: 1stake required: 2000stake: insufficient fee",
        Verdict::InsufficientFee,
    ),
    (
        "sdk",
        5,
        "spendable balance 0stake is smaller than 10stake: insufficient funds",
        Verdict::InsufficientFunds,
    ),
    (
        "sdk",
        4,
        "signature verification failed; please verify account number (0), sequence (0) and chain-id (x): unauthorized",
        Verdict::Unauthorized,
    ),
    (
        "sdk",
        11,
        "out of gas in location: txSize; gasWanted: 10, gasUsed: 2570: out of gas",
        Verdict::OutOfGas,
    ),
    (
        "wasm",
        5,
        "failed to execute message; message index: 0: unknown_cluster: no such cluster: execute wasm contract failed",
        Verdict::ContractError,
    ),
];

#[test]
fn recorded_abci_answers_have_their_verdict() {
    for (codespace, code, log, verdict) in CHECK_TX {
        assert_eq!(&of_abci(codespace, *code, log), verdict, "{log}");
    }
}

#[test]
fn the_code_decides_and_not_the_text() {
    assert_eq!(
        of_abci("sdk", 2, "account sequence mismatch, expected 1, got 2"),
        Verdict::Other
    );
    assert_eq!(of_abci("other", 32, ""), Verdict::Other);
    assert_eq!(
        of_abci("sdk", 32, "gibberish"),
        Verdict::WrongSequence {
            expected: None,
            got: None
        }
    );
}

#[test]
fn recorded_broadcast_errors_have_their_verdict() {
    assert_eq!(
        of_broadcast_error("tx already exists in cache"),
        Verdict::AlreadyInCache
    );
    assert_eq!(
        of_broadcast_error(
            "mempool is full: number of txs 5000 (max: 5000), total txs bytes 1 (max: 67108864)"
        ),
        Verdict::MempoolFull
    );
    assert_eq!(
        of_broadcast_error("Tx too large. Max size is 1048576, but got 2000000"),
        Verdict::TxTooLarge
    );
    assert_eq!(of_broadcast_error("boom"), Verdict::Other);
}

#[test]
fn a_simulation_shows_its_reason_in_the_log() {
    let log = "rpc error: code = Unknown desc = failed to execute message; message index: 0: cluster_exists: choose \
               another: execute wasm contract failed [CosmWasm/wasmd] with gas used: '1': unknown request";
    assert_eq!(of_simulation("sdk", 6, log), Verdict::ContractError);
    assert!(
        contract_message(log).starts_with("cluster_exists: choose"),
        "{}",
        contract_message(log)
    );
    assert_eq!(
        of_simulation(
            "sdk",
            6,
            "account sequence mismatch, expected 3, got 2: incorrect account sequence"
        ),
        Verdict::WrongSequence {
            expected: Some(3),
            got: Some(2)
        }
    );
}

#[test]
fn not_found_and_pruned_are_told_from_other_errors() {
    let log = "rpc error: code = NotFound desc = account wasm1abc not found: key not found";
    assert!(is_not_found("sdk", 22, log));
    assert!(!is_not_found("sdk", 6, "unknown query path"));
    assert!(is_tx_not_found("tx (AB12) not found"));
    assert!(!is_tx_not_found("transaction indexing is disabled"));
    assert_eq!(
        pruned_below("height 3 is not available, lowest height is 51"),
        Some(51)
    );
    assert_eq!(
        pruned_below("height 9 must be less than or equal to the current blockchain height 5"),
        None
    );
}

#[test]
fn every_refusal_has_a_class_and_a_remedy() {
    for (_, _, _, verdict) in CHECK_TX {
        assert_eq!(verdict.class().is_none(), *verdict == Verdict::Accepted);
        assert!(!verdict.remedy().is_empty());
    }
}
