//! Raw bytes at the entry points, as a chain hands them over: whatever stands in a transaction.

use cosmwasm_std::testing::message_info;
use cosmwasm_std::{Response, from_json};
use hpc_registry::contract;
use hpc_registry::error::ContractError;
use hpc_schema::registry::{InstantiateMsg, MigrateMsg};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::check::refused;
use crate::common::cases;
use crate::world::{Beginning, World};
use crate::{invariants, message};

/// How bytes that were a message are spoilt.
#[derive(Debug, Clone)]
enum Spoil {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    /// The value at the nth place of the document becomes another.
    Replace(prop::sample::Index, Value),
    /// Brackets, deeper than any parser's patience.
    Nest(u16),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,12}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn spoil() -> impl Strategy<Value = Spoil> {
    prop_oneof![
        1 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, by)| Spoil::Flip(at, by)),
        1 => any::<prop::sample::Index>().prop_map(Spoil::Cut),
        1 => (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(at, bytes)| Spoil::Insert(at, bytes)),
        4 => (any::<prop::sample::Index>(), value()).prop_map(|(at, v)| Spoil::Replace(at, v)),
        1 => any::<u16>().prop_map(Spoil::Nest),
    ]
}

/// All values of a document, itself first.
fn places<'a>(value: &'a mut Value, n: &mut usize) -> Option<&'a mut Value> {
    if *n == 0 {
        return Some(value);
    }
    *n -= 1;
    match value {
        Value::Array(all) => all.iter_mut().find_map(|v| places(v, n)),
        Value::Object(all) => all.values_mut().find_map(|v| places(v, n)),
        _ => None,
    }
}

fn spoilt(msg: &Value, spoils: &[Spoil]) -> Vec<u8> {
    let mut msg = msg.clone();
    for spoil in spoils {
        if let Spoil::Replace(at, new) = spoil {
            let mut n = at.index(12);
            if let Some(place) = places(&mut msg, &mut n) {
                *place = new.clone();
            }
        }
    }
    let mut bytes = msg.to_string().into_bytes();
    for spoil in spoils {
        match spoil {
            Spoil::Flip(at, by) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] ^= by;
            }
            Spoil::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
            Spoil::Insert(at, new) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, new.iter().copied());
            }
            Spoil::Nest(depth) => {
                let depth = usize::from(*depth);
                bytes = [vec![b'['; depth], bytes, vec![b']'; depth]].concat();
            }
            _ => {}
        }
    }
    bytes
}

fn documents() -> impl Strategy<Value = Vec<Value>> {
    let update = json!({"admin": null, "params": {"retention": 86_400, "cluster_deposit": {"denom": "stake", "amount": "1"}}});
    (message::execute(), message::query()).prop_map(move |(execute, query)| {
        vec![
            update.clone(),
            serde_json::to_value(execute).unwrap(),
            serde_json::to_value(query).unwrap(),
            json!({}),
        ]
    })
}

/// What the wasm exports do with bytes: read them, call the function, or say that they cannot be read.
fn enter(world: &mut World, bytes: &[u8]) {
    let judge = |outcome: Result<Response, ContractError>| {
        if let Err(error) = outcome {
            refused(&error);
        }
    };
    if let Ok(msg) = from_json(bytes) {
        let sender = world.chain.admin.clone();
        world.execute(&sender, &[], msg).ok();
        world.check();
    }
    if let Ok(msg) = from_json(bytes) {
        world.ask(&msg);
    }
    let mut chain = crate::common::Chain::bare();
    if let Ok(msg) = from_json::<InstantiateMsg>(bytes) {
        let mut fresh = cosmwasm_std::testing::mock_dependencies();
        let info = message_info(&chain.admin, &[]);
        judge(contract::instantiate(
            fresh.as_mut(),
            chain.env.clone(),
            info,
            msg,
        ));
    }
    if let Ok(msg) = from_json::<MigrateMsg>(bytes) {
        judge(contract::migrate(chain.deps.as_mut(), chain.env.clone(), msg));
        invariants::check(&chain.deps.storage.map);
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn raw_bytes_at_the_entry_points_never_panic(
        noise in prop::collection::vec(any::<u8>(), 0..200), documents in documents(),
        spoils in prop::collection::vec(spoil(), 0..3), step in crate::step::step()
    ) {
        let mut world = World::new(Beginning::default());
        world.step(&step);
        enter(&mut world, &noise);
        for document in &documents {
            enter(&mut world, &spoilt(document, &spoils));
        }
    }
}
