use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

use super::*;

/// What a TPM (swtpm) wrote by tpm2-tools: its key, a quote of PCRs 0, 1 and 7 over 32 times aa, the signature.
const PUBLIC: &str = "0023000b00050472000000100018000b0003001000202769662e64d21a9c1986572a6886df3d12fc31f8a6e8e99f7d82\
     fac31b80a1c70020daab27105a9f22a7d342b4726d8f03e2adcae0520886ecaad6b39044f0889103";
const QUOTE: &str = "ff54434780180022000b1d0f72965622bba73e01ea748570666637343af79fbb11c0fcea621b2ffbb7690020aaaaaaaa\
     aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa0000000000000287000000010000000001201910\
     230016363600000001000b038300000020dabc104d9d362ec192379aa1fdf1d15694c3109d807fcb5482044852793902\
     32";
const SIGNATURE: &str = "3044022045975eacadc15d19eb9d0ff5284c7b5831673b44ff2a16eec9285613ddb2c03802203ea57ac72d86fcc41fc9\
     bab1488d76c3c0af38f007d99a49600414f12ccb817d";
const PCR_7: &str = "5c85955f709283ecce2b74f1b1552918819f390911816e7bb466805a38ab87f3";

fn bytes(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

fn pcr(index: u8, sha256: &str) -> Pcr {
    Pcr {
        index,
        sha256: sha256.to_owned(),
    }
}

fn recorded() -> Attestation {
    let zero = "00".repeat(32);
    Attestation {
        public: STANDARD.encode(bytes(PUBLIC)),
        quote: STANDARD.encode(bytes(QUOTE)),
        signature: STANDARD.encode(bytes(SIGNATURE)),
        pcrs: vec![pcr(0, &zero), pcr(1, &zero), pcr(7, PCR_7)],
    }
}

/// A key outside of any TPM, and what it could sign.
struct Forger {
    key: EcdsaKeyPair,
    area: Vec<u8>,
}

impl Forger {
    fn new(attributes: u32) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let mut area = bytes("0023000b");
        area.extend(attributes.to_be_bytes());
        area.extend(bytes("000000100018000b00030010"));
        let point = &key.public_key().as_ref()[1..];
        for half in point.chunks(32) {
            area.extend([0, 32]);
            area.extend(half);
        }
        Self { key, area }
    }

    fn quote(&self, magic: &str, data: &[u8; 32], pcrs: Vec<Pcr>) -> Attestation {
        let name = Sha256::digest(&self.area);
        let qualified = Sha256::new()
            .chain_update(ENDORSEMENT)
            .chain_update(NAME)
            .chain_update(name)
            .finalize();
        let mut digest = Sha256::new();
        let mut selected = [0u8; 3];
        for p in &pcrs {
            selected[usize::from(p.index / 8)] |= 1 << (p.index % 8);
            digest.update(bytes(&p.sha256));
        }
        let mut quote = bytes(magic);
        quote.extend(bytes("80180022000b"));
        quote.extend(qualified);
        quote.extend([0, 32]);
        quote.extend(data);
        quote.extend([0; 25]);
        quote.extend(bytes("00000001000b03"));
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

const RESTRICTED: u32 = 0x0005_0472;
const DATA: [u8; 32] = [0xaa; 32];

#[test]
fn what_a_tpm_has_written_is_good_for_its_own_registration_alone() {
    let quoted = verify(&recorded(), &DATA).unwrap();
    assert_eq!(
        quoted.key,
        "1e241f177087e4e33676df15863a2e06705c3f38db6622fc97982ee06a02f75c"
    );
    assert_eq!(quoted.pcrs.len(), 3);
    assert_eq!(verify(&recorded(), &[0xab; 32]), Err(BadQuote::Data));
}

#[test]
fn other_registers_signers_and_statements_are_refused() {
    let mut a = recorded();
    a.pcrs[2].sha256 = "11".repeat(32);
    assert_eq!(verify(&a, &DATA), Err(BadQuote::Digest));
    let mut a = recorded();
    a.pcrs.swap(0, 1);
    assert_eq!(verify(&a, &DATA), Err(BadQuote::Pcrs));
    let mut a = recorded();
    a.pcrs.pop();
    assert_eq!(verify(&a, &DATA), Err(BadQuote::Pcrs));
    let mut a = recorded();
    a.pcrs[2].sha256 = a.pcrs[2].sha256.to_uppercase();
    assert_eq!(verify(&a, &DATA), Err(BadQuote::Pcrs));

    let forger = Forger::new(RESTRICTED);
    let good = forger.quote("ff544347", &DATA, recorded().pcrs);
    assert!(verify(&good, &DATA).is_ok(), "the forger writes as a TPM does");
    // Another key's quote does not pass for this one's.
    let mut a = recorded();
    a.quote.clone_from(&good.quote);
    a.signature.clone_from(&good.signature);
    assert_eq!(verify(&a, &DATA), Err(BadQuote::Signature));
    let mut a = good;
    a.public = recorded().public;
    assert_eq!(verify(&a, &DATA), Err(BadQuote::Signature));
    // Nor does a statement that names another signer than the key it is checked with.
    let other = Forger::new(RESTRICTED);
    let named = Forger {
        key: forger.key,
        area: other.area,
    };
    let mut a = named.quote("ff544347", &DATA, recorded().pcrs);
    a.public = STANDARD.encode(&forger.area);
    assert_eq!(verify(&a, &DATA), Err(BadQuote::Signer));
}

#[test]
fn keys_that_sign_anything_and_words_that_no_tpm_says_are_refused() {
    let unreadable = |a: &Attestation| match verify(a, &DATA) {
        Err(BadQuote::Unreadable(field, _)) => field,
        other => panic!("{other:?}"),
    };
    // Not restricted; not bound to its TPM; made outside; one that decrypts.
    for attributes in [0x0004_0472, 0x0005_0470, 0x0005_0452, 0x0007_0472] {
        let a = Forger::new(attributes).quote("ff544347", &DATA, recorded().pcrs);
        assert_eq!(unreadable(&a), "public", "{attributes:#x}");
    }
    let a = Forger::new(RESTRICTED).quote("ff544348", &DATA, recorded().pcrs);
    assert_eq!(unreadable(&a), "quote");
    for (change, field) in [
        (
            (|a: &mut Attestation| a.public = "x".into()) as fn(&mut Attestation),
            "public",
        ),
        (|a| a.quote = "A".repeat(MOST + 4), "quote"),
        (|a| a.signature = "=".into(), "signature"),
    ] {
        let mut a = recorded();
        change(&mut a);
        assert_eq!(verify(&a, &DATA), Err(BadQuote::Base64(field)));
    }
}

#[test]
fn every_cut_and_every_changed_byte_is_noticed() {
    let (area, quote) = (bytes(PUBLIC), bytes(QUOTE));
    for n in 0..area.len() {
        assert!(parse::public(&area[..n]).is_err(), "{n}");
    }
    for n in 0..quote.len() {
        assert!(parse::quote(&quote[..n]).is_err(), "{n}");
    }
    for n in 0..quote.len() {
        let mut changed = quote.clone();
        changed[n] ^= 1;
        let a = Attestation {
            quote: STANDARD.encode(changed),
            ..recorded()
        };
        assert!(verify(&a, &DATA).is_err(), "byte {n} of the quote");
    }
    for n in 0..area.len() {
        let mut changed = area.clone();
        changed[n] ^= 1;
        let a = Attestation {
            public: STANDARD.encode(changed),
            ..recorded()
        };
        assert!(verify(&a, &DATA).is_err(), "byte {n} of the key");
    }
}

proptest! {
    #[test]
    fn garbage_is_refused_in_words(area in any::<Vec<u8>>(), quote in any::<Vec<u8>>(), index in any::<u8>(), text in ".*") {
        let a = Attestation {
            public: STANDARD.encode(&area),
            quote: STANDARD.encode(&quote),
            signature: text.clone(),
            pcrs: vec![pcr(index, &text)],
        };
        prop_assert!(!verify(&a, &DATA).unwrap_err().to_string().is_empty());
        // Behind a good beginning too.
        let behind = |of: &str, n: usize, garbage: &[u8]| [&bytes(of)[..n.min(bytes(of).len())], garbage].concat();
        parse::public(&behind(PUBLIC, area.len(), &quote)).ok();
        parse::quote(&behind(QUOTE, usize::from(index), &area)).ok();
    }
}

#[test]
fn a_pinned_machine_stays_until_the_operator_says_otherwise() {
    let (one, two) = (Some("1"), Some("2"));
    let key = |k: &str| Expected::Key(k.to_owned());
    // Nothing pinned, nothing asked for: with or without.
    assert!(judge(None, None, None).is_ok() && judge(one, None, None).is_ok());
    // Pinned: this machine alone.
    assert!(judge(one, None, Some("1")).is_ok());
    assert!(judge(two, None, Some("1")).unwrap_err().contains("another TPM"));
    assert!(judge(None, None, Some("1")).unwrap_err().contains("no quote"));
    // What the token says counts more.
    assert!(judge(two, Some(&key("2")), Some("1")).is_ok());
    assert!(judge(one, Some(&key("2")), Some("1")).is_err());
    assert!(judge(None, Some(&key("2")), None).is_err());
    assert!(judge(two, Some(&Expected::New), Some("1")).is_ok());
    assert!(judge(None, Some(&Expected::New), Some("1")).is_err());
    assert_eq!(Expected::parse("new"), Some(Expected::New));
    assert_eq!(Expected::parse(&"a1".repeat(32)), Some(key(&"a1".repeat(32))));
    assert!(Expected::parse("A1").is_none() && Expected::parse(&"A1".repeat(32)).is_none());
}
