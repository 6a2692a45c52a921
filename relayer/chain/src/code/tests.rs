use super::*;

/// Recorded from wasmd 0.70.3 (SDK 0.54.0): (codespace, code, log), of CheckTx and of results in blocks.
const ABCI: &[(&str, u32, &str, Verdict)] = &[
    ("", 0, "", Verdict::Accepted),
    (
        "sdk",
        32,
        "account sequence mismatch, expected 2, got 1: incorrect account sequence",
        Verdict::WrongSequence {
            expected: Some(2),
            got: Some(1),
        },
    ),
    (
        "sdk",
        30,
        "block height: 956, timeout height: 1: tx timeout height",
        Verdict::TimeoutHeight,
    ),
    (
        "sdk",
        5,
        "spendable balance 999999999999stake is smaller than 9000000000000000stake: insufficient funds: insufficient \
         funds",
        Verdict::InsufficientFunds,
    ),
    (
        "sdk",
        4,
        "signature verification failed; please verify account number (1) and chain-id (testing-1): (unable to verify \
         single signer signature): unauthorized",
        Verdict::Unauthorized,
    ),
    (
        "sdk",
        11,
        "out of gas in location: ReadFlat; gasWanted: 10, gasUsed: 1000: out of gas",
        Verdict::OutOfGas,
    ),
    (
        "sdk",
        11,
        "out of gas in location: Loading CosmWasm module: execute; gasWanted: 90000, gasUsed: 97078: out of gas",
        Verdict::OutOfGas,
    ),
    (
        "sdk",
        2,
        "expected 2 wire type, got 7: tx parse error: tx parse error",
        Verdict::Other,
    ),
    ("wasm", 5, DELIVERED, Verdict::ContractError),
];

/// Written by the SDK's ante handler where the node has a minimum gas price.
const LOW_FEE: &str = "insufficient fees; got: 1stake required: 2000stake: insufficient fee";
const DELIVERED: &str = "failed to execute message; message index: 0: unknown_cluster: cluster_id nope-1 is not on record; \
                         create the cluster first: virtengine tx hpc create-cluster: execute wasm contract failed";
const ASKED: &str = "unknown_cluster: cluster_id nope-1 is not on record; create the cluster first: virtengine tx hpc \
                     create-cluster: query wasm contract failed: unknown request";
const SIMULATED: &str = "rpc error: code = Unknown desc = failed to execute message; message index: 0: unknown_cluster: \
                         cluster_id nope-1 is not on record; create the cluster first: virtengine tx hpc create-cluster: \
                         execute wasm contract failed [!cosm!wasm/wasmd@v0.70.3/x/wasm/keeper/keeper.go:452] with gas used: '96560': \
                         unknown request";

#[test]
fn recorded_abci_answers_have_their_verdict() {
    for (codespace, code, log, verdict) in ABCI {
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
    assert_eq!(
        of_broadcast_error("error reading request body: http: request body too large"),
        Verdict::TxTooLarge
    );
    assert_eq!(of_broadcast_error("boom"), Verdict::Other);
}

#[test]
fn a_fee_that_is_too_low_is_told_from_missing_funds() {
    assert_eq!(of_abci("sdk", 13, LOW_FEE), Verdict::InsufficientFee);
}

#[test]
fn a_refusal_for_its_fee_says_what_would_do() {
    let asks = |log: &str| {
        let fees = required_fees(log);
        fees.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(asks(LOW_FEE), "2000stake");
    let several = "insufficient fees; got:  required: 2000stake,3ibc/AB:C: insufficient fee";
    assert_eq!(asks(several), "2000stake 3ibc/AB:C");
    for none in [
        "",
        "required: ",
        "required: 0.5stake: insufficient fee",
        "got: 1stake",
    ] {
        assert_eq!(asks(none), "", "{none}");
    }
}

#[test]
fn a_simulation_shows_its_reason_in_the_log() {
    assert_eq!(of_simulation("sdk", 6, SIMULATED), Verdict::ContractError);
    let sequence = "rpc error: code = Unknown desc = account sequence mismatch, expected 2, got 8: incorrect account \
                    sequence [cosmos/cosmos-sdk@v0.54.0/x/auth/ante/sigverify.go:364] with gas used: '15456': unknown \
                    request";
    let verdict = Verdict::WrongSequence {
        expected: Some(2),
        got: Some(8),
    };
    assert_eq!(of_simulation("sdk", 6, sequence), verdict);
    let funds = "rpc error: code = Unknown desc = failed to execute message; message index: 0: spendable balance \
                 999999999998stake is smaller than 9000000000000000stake: insufficient funds \
                 [cosmos/cosmos-sdk@v0.54.0/x/bank/keeper/send.go:324] with gas used: '35754': unknown request";
    assert_eq!(of_simulation("sdk", 6, funds), Verdict::InsufficientFunds);
    let grant = "rpc error: code = Unknown desc = wasm1granter does not allow to pay fees for wasm1payer: fee-grant not \
                 found: not found [cosmos/cosmos-sdk@v0.54.0/x/feegrant/keeper/keeper.go:134] with gas used: '2117': \
                 unknown request";
    assert_eq!(of_simulation("sdk", 6, grant), Verdict::FeeGrant);
    let limit = "wasm1granter does not allow to pay fees for wasm1payer: fee limit exceeded";
    assert_eq!(of_abci("feegrant", 2, limit), Verdict::FeeGrant);
    assert_eq!(of_abci("sdk", 38, grant), Verdict::FeeGrant);
}

#[test]
fn the_contracts_own_words_and_code_are_found_in_every_frame() {
    let words = "unknown_cluster: cluster_id nope-1 is not on record; create the cluster first: virtengine tx hpc \
                 create-cluster";
    for log in [DELIVERED, ASKED, SIMULATED] {
        assert!(is_contract_text(log), "{log}");
        assert_eq!(contract_message(log), words);
        assert_eq!(contract_code(log), Some(hpc_schema::code::Code::UnknownCluster));
    }
    assert!(!is_contract_text("out of gas"));
    assert_eq!(
        contract_code("kind: Serialization, error: unknown variant `nope`"),
        None
    );
}

#[test]
fn not_found_and_pruned_are_told_from_other_errors() {
    let log = "rpc error: code = NotFound desc = account wasm1r5v5srda7xfth3hn2s26txvrcrntldju3hkw75 not found: key not \
               found";
    assert!(is_not_found("sdk", 22, log));
    let log = "address wasm1r5v5srda7xfth3hn2s26txvrcrntldju3hkw75: no such contract: unknown request";
    assert!(is_not_found("sdk", 6, log));
    assert!(is_unknown_path("sdk", 6, "unknown query path: unknown request"));
    assert!(!is_unknown_path("sdk", 6, log));
    assert!(!is_not_found("sdk", 6, "unknown query path"));
    assert!(is_tx_not_found("tx (AB12) not found"));
    assert!(!is_tx_not_found("transaction indexing is disabled"));
    assert!(is_index_off("transaction indexing is disabled") && !is_index_off("tx (AB12) not found"));
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
fn results_that_are_gone_are_told_from_those_that_are_not_there_yet() {
    for gone in [
        "height 3 is not available, lowest height is 51",
        "node is not persisting finalize block responses",
        "node is not persisting abci responses",
    ] {
        assert!(is_not_kept(gone) && !is_results_absent(gone), "{gone}");
    }
    let absent = "could not find results for height #9";
    assert!(is_results_absent(absent) && !is_not_kept(absent));
    for other in [
        "height 9 must be less than or equal to the current blockchain height 5",
        "busy",
        "",
    ] {
        assert!(!is_not_kept(other) && !is_results_absent(other), "{other}");
    }
}

#[test]
fn a_node_before_its_first_block_is_told_from_what_a_contract_says() {
    let simulated = "rpc error: code = Unknown desc = recovered: Block (unix) time must never be empty or negative \nstack:\n\
                     goroutine 117 [running]:\nruntime/debug.Stack()\n: panic \
                     [cosmos/cosmos-sdk@v0.54.0/baseapp/recovery.go:72] with gas used: '97397': unknown request";
    assert!(is_not_ready(simulated));
    assert_eq!(
        without_stack(simulated),
        "rpc error: code = Unknown desc = recovered: Block (unix) time must never be empty or negative"
    );
    assert!(is_not_ready(
        "wasmd is not ready; please wait for first block: invalid height"
    ));
    for log in [DELIVERED, ASKED, SIMULATED, LOW_FEE] {
        assert!(!is_not_ready(log));
        assert_eq!(without_stack(log), log);
    }
    let quoted = format!("bad_name: {simulated}: execute wasm contract failed");
    assert!(!is_not_ready(&quoted), "its own words");
}

#[test]
fn a_signature_that_a_node_checks_before_its_first_block_is_told_from_a_bad_one() {
    let log = |number: u64| {
        format!(
            "signature verification failed; please verify account number ({number}) and chain-id (testing-1): (unable to \
             verify single signer signature): unauthorized"
        )
    };
    let is = |number, own| is_checked_too_early(&of_abci("sdk", 4, &log(number)), &log(number), own);
    assert!(is(0, 1) && is(0, u64::MAX));
    assert!(!is(0, 0), "its number, and a bad signature");
    assert!(!is(1, 1) && !is(10, 10));
    assert!(!is_checked_too_early(&Verdict::Other, &log(0), 1));
}

#[test]
fn every_refusal_has_a_class_and_a_remedy() {
    for (_, _, _, verdict) in ABCI {
        assert_eq!(verdict.class().is_none(), *verdict == Verdict::Accepted);
        assert!(!verdict.remedy().is_empty());
    }
}
