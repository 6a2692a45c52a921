//! What the gateway makes of quotes. By a key of the test's own, which writes as a TPM does: that one is a TPM's, only the
//! operator's list can say (docs/adr/0009-keys-in-devices.md). With software TPMs: tests/tests/e2e/attestation.rs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::gateway::{Attestation, Pcr, REGISTER_PATH, attestation_data, register_message};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use virtengine_provider::db;

use crate::agent::{Agent, client, der, post, problem, registered};
use crate::site::{CLUSTER, Site, eventually};
use crate::tokens::{join_body, join_token};

/// A key outside of any TPM, and what it could sign.
struct Writer {
    key: EcdsaKeyPair,
    area: Vec<u8>,
}

impl Writer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let mut area = hex::decode("0023000b").unwrap();
        area.extend(0x0005_0472_u32.to_be_bytes());
        area.extend(hex::decode("000000100018000b00030010").unwrap());
        let point = &key.public_key().as_ref()[1..];
        for half in point.chunks(32) {
            area.extend([0, 32]);
            area.extend(half);
        }
        Self { key, area }
    }

    fn quote(&self, data: &[u8; 32], pcrs: Vec<Pcr>) -> Attestation {
        let name = Sha256::digest(&self.area);
        let qualified = Sha256::new()
            .chain_update(0x4000_000b_u32.to_be_bytes())
            .chain_update([0, 11])
            .chain_update(name)
            .finalize();
        let mut digest = Sha256::new();
        let mut selected = [0u8; 3];
        for p in &pcrs {
            selected[usize::from(p.index / 8)] |= 1 << (p.index % 8);
            digest.update(hex::decode(&p.sha256).unwrap());
        }
        let mut quote = hex::decode("ff544347").unwrap();
        quote.extend(hex::decode("80180022000b").unwrap());
        quote.extend(qualified);
        quote.extend([0, 32]);
        quote.extend(data);
        quote.extend([0; 25]);
        quote.extend(hex::decode("00000001000b03").unwrap());
        quote.extend(selected);
        quote.extend([0, 32]);
        quote.extend(digest.finalize());
        let signature = self.key.sign(&SystemRandom::new(), &quote).unwrap();
        Attestation {
            public: STANDARD.encode(&self.area),
            quote: STANDARD.encode(quote),
            signature: STANDARD.encode(signature),
            pcrs,
        }
    }
}

fn registers(value: &str) -> Vec<Pcr> {
    vec![Pcr {
        index: 7,
        sha256: value.repeat(32),
    }]
}

/// A request with a quote over what it should be over.
fn quoted(agent: &Agent, token: &str, by: &Writer, pcrs: Vec<Pcr>) -> Value {
    quoting(agent.register_body(token, &agent.csr), agent, by, pcrs)
}

/// The request with a quote beside it.
fn quoting(mut body: Value, agent: &Agent, by: &Writer, pcrs: Vec<Pcr>) -> Value {
    let token = body["token"].as_str().unwrap();
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(claims)
        .unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let request = body["csr"].as_str().unwrap();
    let message = register_message(claims["jti"].as_str().unwrap(), &der(request));
    let data = attestation_data(agent.seed.public(), &message);
    body["attestation"] = json!(by.quote(&data, pcrs));
    body
}

fn pinned(site: &Site, node: &str) -> Value {
    let shown: Value = serde_json::from_str(&site.run(&["node", "show", node, "-o", "json"]).0).unwrap();
    shown["attestation"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn quotes_are_checked_and_the_first_machine_is_pinned_once_it_is_on_chain() {
    let site = Site::start().await;
    let agent = Agent::new("node-0001");
    let token = site.token(&agent.node, &agent.public(), "1h");
    let (one, two) = (Writer::new(), Writer::new());
    let open = client(&site.ca(), None);
    let answer = async |body: &Value| problem(post(&open, &site, REGISTER_PATH, body).await).await;
    let good = quoted(&agent, &token, &one, registers("00"));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = good.clone();
        change(&mut body["attestation"]);
        body
    };
    let signature = (403, "signature_invalid".to_owned());
    let malformed = (400, "malformed".to_owned());
    // Tampered registers; another key's; of another node's request; none of a TPM's words.
    let body = with(&|a| a["pcrs"][0]["sha256"] = json!("11".repeat(32)));
    assert_eq!(answer(&body).await, signature);
    let body = with(&|a| a["public"] = json!(STANDARD.encode(&two.area)));
    assert_eq!(answer(&body).await, signature);
    let other = Agent::new("node-0002");
    let elsewhere = site.token(&other.node, &other.public(), "1h");
    let foreign = quoted(&other, &elsewhere, &one, registers("00"))["attestation"].clone();
    assert_eq!(answer(&with(&|a| a.clone_from(&foreign))).await, signature);
    for garbage in ["", "AAAA", "/w==", "not base64", &"A".repeat(8000)] {
        for field in ["public", "quote"] {
            let body = with(&|a| a[field] = json!(garbage));
            assert_eq!(answer(&body).await, malformed, "{field} {garbage}");
        }
    }
    assert_eq!(answer(&with(&|a| a["pcrs"] = json!([]))).await, malformed);
    // Nothing of these was kept.
    registered(&open, &site, &good).await;
    let shown = pinned(&site, "node-0001");
    assert_eq!(shown["pcrs"], json!([{ "index": 7, "sha256": "00".repeat(32) }]));
    assert_eq!(shown["key"], json!(hex::encode(Sha256::digest(&one.area))));

    // The next registration of this node comes from that machine, with the registers of now, or by the operator's word.
    let again = |attestation: Option<&str>| {
        let public = agent.public();
        let mut create = vec!["node-token", "create", "--cluster-id", CLUSTER];
        create.extend(["--node-id", "node-0001", "--pubkey", &public]);
        if let Some(key) = attestation {
            create.extend(["--attestation-key", key]);
        }
        let (token, _, code) = site.run(&create);
        assert_eq!(code, 0);
        token.trim().to_owned()
    };
    let token = again(None);
    let mismatch = (403, "key_mismatch".to_owned());
    assert_eq!(answer(&agent.register_body(&token, &agent.csr)).await, mismatch);
    assert_eq!(
        answer(&quoted(&agent, &token, &two, registers("00"))).await,
        mismatch
    );
    assert_eq!(pinned(&site, "node-0001"), shown);
    let name = hex::encode(Sha256::digest(&two.area));
    let wrong = [
        "node-token",
        "create",
        "--cluster-id",
        CLUSTER,
        "--node-id",
        "node-0001",
    ];
    let public = agent.public();
    let wrong = [&wrong[..], &["--pubkey", &public, "--attestation-key", "AB"]].concat();
    assert_ne!(site.run(&wrong).2, 0);
    let token = again(Some(&name));
    assert_eq!(
        answer(&quoted(&agent, &token, &one, registers("00"))).await,
        mismatch
    );
    // Another machine by the operator's word: from then on the token is that machine's, and neither a copy of it nor the
    // former machine's request takes the place again.
    let token = again(Some("new"));
    let body = quoted(&agent, &token, &two, registers("00"));
    registered(&open, &site, &body).await;
    assert_eq!(pinned(&site, "node-0001")["key"], json!(name));
    let three = Writer::new();
    assert_eq!(
        answer(&quoted(&agent, &token, &three, registers("00"))).await,
        mismatch
    );
    assert_eq!(answer(&good).await, (403, "token_used".to_owned()));
    assert_eq!(pinned(&site, "node-0001")["key"], json!(name));
    // A node without any pin needs none.
    let plain = Agent::enrolled(&site, "node-0003").await;
    assert_eq!(pinned(&site, &plain.node), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_waits_is_judged_again_by_the_tpm_that_was_pinned_meanwhile() {
    let site = Site::start().await;
    let join = join_token(&site, &["--uses", "3", "--approval"]);
    let open = client(&site.ca(), None);
    let machine = Writer::new();
    let (plain, same) = (Agent::new("node-0001"), Agent::new("node-0002"));
    let old = Agent::new("node-0003");
    let (waits, before) = (join_body(&plain, &join), join_body(&old, &join));
    let quotes = quoting(join_body(&same, &join), &same, &machine, registers("00"));
    for body in [&waits, &quotes, &before] {
        assert_eq!(post(&open, &site, REGISTER_PATH, body).await.status(), 202);
    }
    // Meanwhile both come by tokens of their own, from a machine that is pinned with that.
    for agent in [&plain, &same, &old] {
        let token = site.token(&agent.node, &agent.public(), "1h");
        registered(&open, &site, &quoted(agent, &token, &machine, registers("00"))).await;
    }
    let epoch = site.node("node-0001").await.epoch;
    // Of one that is from before quotes were kept nothing is known: as it was judged when it came.
    let store = site.store().await;
    let mut tx = store.begin().await.unwrap();
    db::query("UPDATE registration SET attestation_key = NULL WHERE node_id = ? AND attestation_key = ''")
        .bind(&old.node)
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for node in ["node-0001", "node-0002", "node-0003"] {
        assert_eq!(site.run(&["node-token", "approve", node]).2, 0);
    }
    // The gateway would refuse the same request by itself: the store says what became of it.
    let ended = async |agent: &Agent, request: &Value| -> String {
        let row = db::query("SELECT state, detail FROM registration WHERE node_id = ? AND csr = ?")
            .bind(&agent.node)
            .bind(der(request["csr"].as_str().unwrap()))
            .fetch_one(store.reader())
            .await
            .unwrap();
        let (state, detail): (String, Option<String>) =
            (row.try_get("state").unwrap(), row.try_get("detail").unwrap());
        format!("{state} {}", detail.unwrap_or_default())
    };
    eventually("all have ended", async || {
        let refused = ended(&plain, &waits).await;
        assert!(
            !refused.starts_with("sent") && !refused.starts_with("on_chain"),
            "{refused}"
        );
        let there = async |agent: &Agent, body: &Value| ended(agent, body).await.starts_with("on_chain");
        refused.contains("no quote") && there(&same, &quotes).await && there(&old, &before).await
    })
    .await;
    assert_eq!(
        site.node("node-0001").await.epoch,
        epoch,
        "nothing of it is on chain"
    );
}
