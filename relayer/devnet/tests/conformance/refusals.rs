//! Everything that CheckTx and blocks refuse, with the SDK's codes and texts.

use cosmrs::proto::cosmos::tx::signing::v1beta1::SignMode;
use cosmrs::proto::cosmos::tx::v1beta1::mode_info::{Single, Sum};
use cosmrs::proto::cosmos::tx::v1beta1::{AuthInfo, ModeInfo, TxBody, TxRaw};
use cosmrs::proto::traits::Message;

use crate::support::wallet::{Wallet, any};
use crate::support::{CHAIN_ID, Scene, scene, scene_with};

/// A transaction of Alice that would be accepted, after `change`.
fn altered(scene: &Scene, change: impl FnOnce(&mut TxBody, &mut AuthInfo, &mut TxRaw)) -> Vec<u8> {
    let tx = scene
        .alice
        .sign(&[scene.alice.send(&scene.bob.address(), &[(1, "stake")])]);
    let mut raw = TxRaw::decode(tx.as_slice()).unwrap();
    let mut body = TxBody::decode(raw.body_bytes.as_slice()).unwrap();
    let mut auth = AuthInfo::decode(raw.auth_info_bytes.as_slice()).unwrap();
    change(&mut body, &mut auth, &mut raw);
    raw.body_bytes = body.encode_to_vec();
    raw.auth_info_bytes = auth.encode_to_vec();
    raw.encode_to_vec()
}

fn signature_error(number: u64) -> String {
    format!(
        "signature verification failed; please verify account number ({number}) and chain-id ({CHAIN_ID}): (unable to verify single signer signature): unauthorized"
    )
}

#[test]
fn a_wrong_chain_id_account_number_or_signature_is_code_4() {
    let mut scene = scene();
    let message = scene.alice.send(&scene.bob.address(), &[(1, "stake")]);
    scene.alice.chain_id = "another-chain".to_string();
    scene.refuse(
        &scene.alice.sign(std::slice::from_ref(&message)),
        4,
        &signature_error(0),
    );
    scene.alice.chain_id = CHAIN_ID.to_string();
    scene.alice.number = 1;
    scene.refuse(
        &scene.alice.sign(std::slice::from_ref(&message)),
        4,
        &signature_error(0),
    );
    scene.alice.number = 0;
    let flipped = altered(&scene, |_, _, raw| raw.signatures[0][5] ^= 1);
    scene.refuse(&flipped, 4, &signature_error(0));
    let changed = altered(&scene, |body, _, _| {
        body.memo = "changed after signing".to_string();
    });
    scene.refuse(&changed, 4, &signature_error(0));
    let short = altered(&scene, |_, _, raw| raw.signatures[0].truncate(63));
    scene.refuse(&short, 4, &signature_error(0));
    let none = altered(&scene, |_, _, raw| raw.signatures.clear());
    scene.refuse(&none, 15, "no signatures: no signatures supplied");
    let two = altered(&scene, |_, _, raw| raw.signatures.push(vec![1; 64]));
    scene.refuse(
        &two,
        4,
        "wrong number of signers; expected 1, got 2: unauthorized",
    );
    // Nothing of this changed the check state.
    scene.accept(&scene.alice.sign(&[message]));
}

#[test]
fn a_signature_in_its_malleable_other_form_is_refused() {
    let scene = scene();
    let high = altered(&scene, |_, _, raw| {
        let signature = k256::ecdsa::Signature::from_slice(&raw.signatures[0]).unwrap();
        let (r, s) = signature.split_scalars();
        let negated = k256::ecdsa::Signature::from_scalars(r.to_bytes(), (-*s).to_bytes()).unwrap();
        raw.signatures[0] = negated.to_bytes().to_vec();
    });
    scene.refuse(&high, 4, &signature_error(0));
}

#[test]
fn a_sequence_that_is_not_the_next_is_code_32_and_names_both() {
    let mut scene = scene();
    let message = scene.alice.send(&scene.bob.address(), &[(1, "stake")]);
    scene.alice.sequence.set(3);
    scene.refuse(
        &scene.alice.sign(std::slice::from_ref(&message)),
        32,
        "account sequence mismatch, expected 0, got 3: incorrect account sequence",
    );
    scene.alice.sequence.set(0);
    scene.accept(&scene.alice.sign(std::slice::from_ref(&message)));
    scene.alice.memo = "another".to_string();
    scene.refuse(
        &scene.alice.sign(&[message]),
        32,
        "account sequence mismatch, expected 1, got 0: incorrect account sequence",
    );
}

#[test]
fn bytes_that_are_no_transaction_are_code_2() {
    let scene = scene();
    let answer = scene.rpc.broadcast(&[1, 2, 3]);
    assert_eq!(
        (&answer["code"], &answer["codespace"]),
        (&2.into(), &"sdk".into())
    );
    scene.refuse(&[], 18, "must contain at least one message: invalid request");
    let unknown = altered(&scene, |body, _, _| {
        body.messages[0].type_url = "/cosmos.gov.v1.MsgVote".to_string();
    });
    scene.refuse(
        &unknown,
        2,
        "unable to resolve type URL /cosmos.gov.v1.MsgVote: tx parse error",
    );
    // A field that the message's type does not have, in the message and inside one of its coins.
    for spoil in [
        |value: &mut Vec<u8>| value.extend_from_slice(&[9 << 3, 1]),
        |value: &mut Vec<u8>| value.extend_from_slice(&[3 << 3 | 2, 2, 5 << 3, 1]),
    ] {
        let spoiled = altered(&scene, |body, _, _| spoil(&mut body.messages[0].value));
        let answer = scene.rpc.broadcast(&spoiled);
        assert_eq!(answer["code"], 2, "{answer}");
        let log = answer["log"].as_str().unwrap();
        assert!(log.contains("errUnknownField"), "{log}");
    }
    // Unknown fields that are marked as non-critical are no reason to refuse: the signature is judged next.
    let marked = altered(&scene, |body, _, _| {
        body.messages[0].value.extend_from_slice(&[0x80, 0x40, 1]);
    });
    assert_eq!(scene.rpc.broadcast(&marked)["code"], 4);
    // `unordered: true` (field 4 of the body), which would change what the sequence means.
    let mut raw = TxRaw::decode(altered(&scene, |_, _, _| {}).as_slice()).unwrap();
    raw.body_bytes.extend_from_slice(&[4 << 3, 1]);
    let answer = scene.rpc.broadcast(&raw.encode_to_vec());
    assert_eq!(answer["code"], 2, "{answer}");
    assert!(
        answer["log"].as_str().unwrap().contains("unordered transactions"),
        "{answer}"
    );
}

#[test]
fn the_messages_of_wasm_code_say_that_the_registry_is_linked() {
    let scene = scene();
    scene.refuse(
        &scene.alice.sign(&[scene.alice.store_code()]),
        37,
        "the embedded chain runs no wasm: the registry is linked natively as code id 1, instantiate that: feature not supported",
    );
}

#[test]
fn other_sign_modes_and_keys_are_refused_by_name() {
    let scene = scene();
    let amino = altered(&scene, |_, auth, _| {
        let mode = SignMode::LegacyAminoJson.into();
        auth.signer_infos[0].mode_info = Some(ModeInfo {
            sum: Some(Sum::Single(Single { mode })),
        });
    });
    scene.refuse(
        &amino,
        4,
        "SIGN_MODE_LEGACY_AMINO_JSON: the embedded chain verifies SIGN_MODE_DIRECT only; sign with that mode: unauthorized",
    );
    let other = altered(&scene, |_, auth, _| {
        auth.signer_infos[0].public_key.as_mut().unwrap().type_url =
            "/cosmos.crypto.ed25519.PubKey".to_string();
    });
    scene.refuse(
        &other,
        8,
        "/cosmos.crypto.ed25519.PubKey: the embedded chain knows secp256k1 account keys only: invalid pubkey",
    );
    let stranger = Wallet::new(9);
    let foreign = altered(&scene, |_, auth, _| {
        auth.signer_infos[0].public_key = Some(stranger.key().public_key().into());
    });
    scene.refuse(
        &foreign,
        8,
        &format!(
            "pubKey does not match signer address {} with signer index: 0: invalid pubkey",
            scene.alice.address()
        ),
    );
    let keyless = altered(&scene, |_, auth, _| auth.signer_infos[0].public_key = None);
    scene.refuse(&keyless, 8, "pubkey on account is not set: invalid pubkey");
}

#[test]
fn gas_limits_are_checked_against_need_and_block() {
    let mut scene = scene_with(|config| config.genesis.max_block_gas = Some(1_000_000));
    let message = scene.alice.send(&scene.bob.address(), &[(1, "stake")]);
    scene.alice.gas = 0;
    scene.refuse(
        &scene.alice.sign(std::slice::from_ref(&message)),
        41,
        "must provide positive gas: invalid gas limit",
    );
    scene.alice.gas = 1_000_001;
    scene.refuse(
        &scene.alice.sign(std::slice::from_ref(&message)),
        41,
        "tx gas limit 1000001 exceeds block max gas 1000000: invalid gas limit",
    );
    scene.alice.gas = 1;
    let answer = scene
        .rpc
        .broadcast(&scene.alice.sign(std::slice::from_ref(&message)));
    assert_eq!(answer["code"], 11, "{answer}");
    let log = answer["log"].as_str().unwrap();
    assert!(
        log.starts_with("out of gas in location: txSize; gasWanted: 1, gasUsed: "),
        "{log}"
    );
    // Enough for the ante handler, too little for the message: code 11 in the block, the fee is gone.
    scene.alice.fee = Some((9, "stake"));
    scene.alice.gas = 60_000;
    let result = scene.commit(&scene.alice.sign(&[message]));
    assert_eq!(result["code"], 11, "{result}");
    assert_eq!(scene.balance(&scene.alice.address()), 1_000_000_000 - 9);
    assert_eq!(scene.account(&scene.alice.address()).sequence, 1);
}

#[test]
fn a_block_takes_no_more_than_its_gas() {
    let scene = scene_with(|config| config.genesis.max_block_gas = Some(1_000_000));
    let bob = scene.bob.address();
    for _ in 0..3 {
        let message = scene.alice.send(&bob, &[(1, "stake")]);
        let tx = scene.alice.sign_next(&[message]);
        scene.accept(&tx);
    }
    scene.chain.produce_block().unwrap();
    assert_eq!(scene.chain.mempool_len(), 1);
    scene.chain.produce_block().unwrap();
    assert_eq!(scene.balance(&bob), 1_000_000_003);
}

#[test]
fn fees_and_funds_that_are_not_there_are_code_5() {
    let mut scene = scene();
    let message = scene
        .alice
        .send(&scene.bob.address(), &[(2_000_000_000, "stake")]);
    let result = scene.commit(&scene.alice.sign_next(std::slice::from_ref(&message)));
    assert_eq!(
        (&result["code"], &result["codespace"]),
        (&5.into(), &"sdk".into())
    );
    assert_eq!(
        result["log"],
        "failed to execute message; message index: 0: spendable balance 1000000000stake is smaller than 2000000000stake: insufficient funds"
    );
    scene.alice.fee = Some((2_000_000_000, "stake"));
    let answer = scene.rpc.broadcast(&scene.alice.sign(&[message]));
    assert_eq!(
        (&answer["code"], &answer["codespace"]),
        (&5.into(), &"sdk".into()),
        "{answer}"
    );
    let nobody = Wallet::new(9);
    scene.refuse(
        &nobody.sign(&[nobody.send(&scene.bob.address(), &[(1, "stake")])]),
        9,
        &format!(
            "fee payer address: {} does not exist: unknown address",
            nobody.address()
        ),
    );
}

#[test]
fn a_timeout_height_that_has_passed_is_code_30_before_and_in_a_block() {
    let mut scene = scene();
    let message = scene.alice.send(&scene.bob.address(), &[(1, "stake")]);
    while scene.chain.height().unwrap() < 4 {
        scene.chain.produce_block().unwrap();
    }
    scene.alice.timeout_height = 3;
    scene.refuse(
        &scene.alice.sign(std::slice::from_ref(&message)),
        30,
        "block height: 4, timeout height: 3: tx timeout height",
    );
    // Checked at height 4, included at height 5: the block refuses it, and it leaves no trace in the state.
    scene.alice.timeout_height = 4;
    let late = scene.alice.sign(std::slice::from_ref(&message));
    let result = scene.commit(&late);
    assert_eq!(result["code"], 30, "{result}");
    assert_eq!(result["events"], serde_json::json!([]));
    assert_eq!(scene.account(&scene.alice.address()).sequence, 0);
    // The sequence was not used: a replacement takes it.
    scene.alice.timeout_height = 6;
    assert_eq!(scene.commit(&scene.alice.sign(&[message]))["code"], 0);
}

#[test]
fn a_transaction_that_times_out_in_the_mempool_is_dropped_by_the_recheck() {
    let mut scene = scene_with(|config| config.limits.block_bytes = 0);
    scene.alice.timeout_height = 2;
    let message = scene.alice.send(&scene.bob.address(), &[(1, "stake")]);
    scene.accept(&scene.alice.sign(std::slice::from_ref(&message)));
    scene.chain.produce_block().unwrap();
    assert_eq!(scene.chain.mempool_len(), 1);
    scene.chain.produce_block().unwrap();
    assert_eq!(scene.chain.mempool_len(), 0);
    // Its sequence is free again.
    scene.alice.timeout_height = 9;
    scene.accept(&scene.alice.sign(&[message]));
}

#[test]
fn memo_addresses_and_coins_are_checked() {
    let mut scene = scene();
    let message = scene.alice.send(&scene.bob.address(), &[(1, "stake")]);
    scene.alice.memo = "x".repeat(257);
    scene.refuse(
        &scene.alice.sign(&[message]),
        12,
        "maximum number of characters is 256 but received 257 characters: memo too large",
    );
    scene.alice.memo.clear();
    let bob = scene.bob.address();
    for (amount, text) in [
        (
            vec![(0, "stake")],
            "0stake: the amount must be positive: invalid coins",
        ),
        (
            vec![(1, "token"), (1, "stake")],
            "1stake: denominations must be sorted and unique: invalid coins",
        ),
        (vec![(1, "!")], "1!: invalid denomination: invalid coins"),
        (vec![], "no coins to send: invalid coins"),
    ] {
        scene.refuse(&scene.alice.sign(&[scene.alice.send(&bob, &amount)]), 10, text);
    }
    let answer = scene.rpc.broadcast(
        &scene
            .alice
            .sign(&[scene.alice.send("cosmos1xyz", &[(1, "stake")])]),
    );
    assert_eq!(answer["code"], 7, "{answer}");
    let contract = "wasm14hj2tavq8fpesdwxxcu44rty3hh90vhujrvcmstl4zr3txmfvw9s0phg4d";
    let answer = scene
        .rpc
        .broadcast(&scene.alice.sign(&[scene.alice.execute(contract, "no json", &[])]));
    assert_eq!(
        (&answer["code"], &answer["codespace"]),
        (&14.into(), &"wasm".into()),
        "{answer}"
    );
}

#[test]
fn nobody_signs_for_another_account() {
    let scene = scene();
    // Bob's coins, Alice's signature.
    let theft = scene
        .alice
        .sign(&[scene.bob.send(&scene.alice.address(), &[(1, "stake")])]);
    scene.refuse(
        &theft,
        8,
        &format!(
            "pubKey does not match signer address {} with signer index: 0: invalid pubkey",
            scene.bob.address()
        ),
    );
    let both = scene.alice.sign(&[
        scene.alice.send(&scene.bob.address(), &[(1, "stake")]),
        scene.bob.send(&scene.alice.address(), &[(1, "stake")]),
    ]);
    scene.refuse(
        &both,
        4,
        "wrong number of signers; expected 2, got 1: unauthorized",
    );
}

#[test]
fn fee_grants_and_extensions_are_refused() {
    let scene = scene();
    let bob = scene.bob.address();
    let granted = altered(&scene, |_, auth, _| {
        auth.fee.as_mut().unwrap().granter = bob.clone();
    });
    scene.refuse(&granted, 18, "fee grants are not enabled: invalid request");
    let extended = altered(&scene, |body, _, _| {
        body.extension_options
            .push(any(&cosmrs::proto::cosmos::bank::v1beta1::MsgSend::default()));
    });
    scene.refuse(
        &extended,
        31,
        "the embedded chain knows no extension options: unknown extension options",
    );
    let payer = altered(&scene, |_, auth, _| {
        auth.fee.as_mut().unwrap().payer = bob.clone();
    });
    scene.refuse(
        &payer,
        4,
        "wrong number of signers; expected 2, got 1: unauthorized",
    );
}
