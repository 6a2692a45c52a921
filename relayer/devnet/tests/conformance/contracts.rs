//! Contracts through transactions: how they end, and who may change them.

use serde_json::Value;

use crate::support::rpc::attribute;
use crate::support::scene;

#[test]
fn a_panicking_contract_fails_its_transaction_and_nothing_else() {
    let mut scene = scene();
    let contract = scene.instantiate();
    let message = scene.alice.execute(&contract, r#"{"panic":{}}"#, &[]);
    let result = scene.commit(&scene.alice.sign_next(&[message]));
    assert_eq!(
        (&result["code"], &result["codespace"]),
        (&29.into(), &"wasm".into()),
        "{result}"
    );
    assert_eq!(
        result["log"],
        "failed to execute message; message index: 0: Aborted: panicked: on purpose: wasmvm error"
    );
    assert_eq!(scene.count(&contract), 7);
    let message = scene.alice.execute(&contract, r#"{"increment":{"by":1}}"#, &[]);
    assert_eq!(scene.commit(&scene.alice.sign(&[message]))["code"], 0);
}

#[test]
fn a_contract_pays_from_what_it_has_and_no_more() {
    let mut scene = scene();
    let contract = scene.instantiate();
    let pay = |scene: &crate::support::Scene, funds: &[(u128, &str)]| {
        let message = scene.alice.execute(&contract, r#"{"pay":{}}"#, funds);
        scene.commit(&scene.alice.sign_next(&[message]))
    };
    let before = scene.balance(&scene.alice.address());
    let result = pay(&scene, &[]);
    assert_eq!(
        (&result["code"], &result["codespace"]),
        (&5.into(), &"sdk".into()),
        "{result}"
    );
    let result = pay(&scene, &[(3, "stake")]);
    assert_eq!(result["code"], 0, "{result}");
    assert_eq!(
        attribute(&result, "coin_spent", "amount").as_deref(),
        Some("3stake")
    );
    assert_eq!(
        (scene.balance(&contract), scene.balance(&scene.alice.address())),
        (2, before - 2)
    );
}

#[test]
fn submessages_are_refused_not_forgotten() {
    let mut scene = scene();
    let contract = scene.instantiate();
    let result = scene.commit(
        &scene
            .alice
            .sign(&[scene.alice.execute(&contract, r#"{"burn":{}}"#, &[])]),
    );
    assert_eq!(
        (&result["code"], &result["codespace"]),
        (&10.into(), &"wasm".into()),
        "{result}"
    );
    assert!(
        result["log"]
            .as_str()
            .unwrap()
            .contains("bank sends without reply alone"),
        "{result}"
    );
}

#[test]
fn missing_contracts_and_codes_have_wasmds_codes() {
    let scene = scene();
    let nowhere = "wasm1qg5ega6dykkxc307y25pecuufrjkxkaggkkxh7nad0vhyhtuhw3sq29c3m";
    let message = scene.alice.execute(nowhere, "{}", &[]);
    let result = scene.commit(&scene.alice.sign_next(&[message]));
    assert_eq!(
        (&result["code"], &result["codespace"]),
        (&22.into(), &"wasm".into()),
        "{result}"
    );
    let message = scene.alice.instantiate(9, "{}", "nine", &[]);
    let result = scene.commit(&scene.alice.sign_next(&[message]));
    assert_eq!(
        result["log"],
        "failed to execute message; message index: 0: code id 9: no such code"
    );
    assert_eq!(
        (&result["code"], &result["codespace"]),
        (&28.into(), &"wasm".into())
    );
    let message = scene.alice.instantiate(1, r#"{"nope":1}"#, "bad", &[]);
    let result = scene.commit(&scene.alice.sign_next(&[message]));
    assert_eq!(
        (&result["code"], &result["codespace"]),
        (&4.into(), &"wasm".into()),
        "{result}"
    );
    assert!(
        result["log"]
            .as_str()
            .unwrap()
            .ends_with(": instantiate wasm contract failed"),
        "{result}"
    );
    let message = scene.alice.instantiate(1, r#"{"count":1}"#, "", &[]);
    let answer = scene.rpc.broadcast(&scene.alice.sign(&[message]));
    assert_eq!(
        (&answer["code"], &answer["codespace"]),
        (&12.into(), &"wasm".into()),
        "{answer}"
    );
}

#[test]
fn instances_have_addresses_of_their_own_and_a_failed_one_uses_none() {
    let mut scene = scene();
    let first = scene.instantiate();
    let message = scene.alice.instantiate(1, r#"{"nope":1}"#, "bad", &[]);
    scene.commit(&scene.alice.sign_next(&[message]));
    let second = scene.instantiate();
    assert_ne!(first, second);
    // The second instance of code 1 on every wasmd.
    assert_eq!(
        second,
        "wasm1suhgf5svhu4usrurvxzlgn54ksxmn8gljarjtxqnapv8kjnp4nrss5maay"
    );

    let message = scene.alice.execute(&first, r#"{"increment":{"by":1}}"#, &[]);
    scene.commit(&scene.alice.sign_next(&[message]));
    assert_eq!((scene.count(&first), scene.count(&second)), (8, 7));
}

#[test]
fn only_the_admin_migrates_and_hands_on() {
    let mut scene = scene();
    let contract = scene.instantiate();
    let bobs = scene.bob.migrate(&contract, r#"{"count":1}"#);
    let result = scene.commit(&scene.bob.sign_next(&[bobs]));
    assert_eq!(
        result["log"],
        "failed to execute message; message index: 0: can not migrate: unauthorized"
    );
    let update = scene.alice.update_admin(&contract, &scene.bob.address());
    let result = scene.commit(&scene.alice.sign_next(&[update]));
    assert_eq!(
        attribute(&result, "update_contract_admin", "new_admin_address"),
        Some(scene.bob.address())
    );
    let migrate = scene.bob.migrate(&contract, r#"{"count":42}"#);
    let result = scene.commit(&scene.bob.sign_next(&[migrate]));
    assert_eq!(result["code"], 0, "{result}");
    assert_eq!(attribute(&result, "migrate", "code_id").as_deref(), Some("1"));
    assert_eq!(attribute(&result, "wasm", "migrated").as_deref(), Some("yes"));
    assert_eq!(scene.count(&contract), 42);
    let again = scene.alice.update_admin(&contract, &scene.alice.address());
    let result = scene.commit(&scene.alice.sign(&[again]));
    assert_eq!(
        result["log"],
        "failed to execute message; message index: 0: can not modify contract: unauthorized"
    );
}

#[test]
fn a_contract_sees_block_time_and_real_cryptography() {
    let mut scene = scene();
    let contract = scene.instantiate();
    scene.chain.set_time(4_000_000_000);
    scene.chain.produce_block().unwrap();
    assert_eq!(
        scene.smart(&contract, r#"{"time":{}}"#),
        Value::from(4_000_000_000u64)
    );
    let key = ed25519_zebra::SigningKey::from([7; 32]);
    let public: [u8; 32] = ed25519_zebra::VerificationKey::from(&key).into();
    let mut signature = key.sign(b"hello").to_bytes();
    let base64 = |bytes: &[u8]| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
    for valid in ["true", "false"] {
        let verify = format!(
            r#"{{"verify":{{"message":"{}","signature":"{}","key":"{}"}}}}"#,
            base64(b"hello"),
            base64(&signature),
            base64(&public)
        );
        let message = scene.alice.execute(&contract, &verify, &[]);
        let result = scene.commit(&scene.alice.sign_next(&[message]));
        assert_eq!(
            attribute(&result, "wasm", "valid").as_deref(),
            Some(valid),
            "{result}"
        );
        signature[3] ^= 1;
    }
}
