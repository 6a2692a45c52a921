//! The TypeScript types of `schema/ts` (`tests/interop/types`): those that the generator makes of the JSON Schemas, and good
//! enough that a client written with them compiles and drives a chain.

use anyhow::{Context, Result};
use hpc_tests::chain::{Chain, Kind};
use hpc_tests::cli::Cli;
use hpc_tests::{node, process, scene};
use serde_json::{Value, json};

#[test]
fn the_typescript_types_are_those_of_the_schemas_and_drive_a_chain() -> Result<()> {
    scene::run("types", |scene, _| {
        let mut check = node::script("types", "generate.mjs")?;
        process::output(check.arg("--check"))?;
        process::output(&mut node::script("types", "node_modules/typescript/bin/tsc")?)
            .context("the client does not compile against schema/ts")?;

        let cli = Cli::new(&scene.folder("operator")?);
        let address = cli.add_key("alice")?;
        let chain = Chain::start(scene, Kind::Embedded, &[&address])?;
        let mut client = node::script("types", "out/tests/interop/types/client.js")?;
        client
            .env("RPC", chain.rpc())
            .env("MNEMONIC", std::fs::read_to_string(cli.words("alice"))?)
            .env("CLUSTER_ID", "hpc-cluster-1");
        let seen = node::run(&mut client)?;
        for (field, value) in [
            ("owner", json!(address)),
            ("region", json!("eu-central")),
            ("job_ids", json!("hashed")),
            ("active", json!(true)),
            ("interval", json!(20)),
            ("registrations_paused", json!(false)),
            ("clusters", json!(["hpc-cluster-1"])),
            ("total_nodes", json!(0)),
            ("nodes", json!(0)),
            ("next", Value::Null),
            ("anchored", json!([1, true, true])),
        ] {
            assert_eq!(seen.get(field), Some(&value), "{field} of {seen}");
        }
        for (refusal, code) in ["unknown_node", "cluster_exists"].iter().enumerate() {
            let text = seen
                .pointer(&format!("/refused/{refusal}"))
                .and_then(Value::as_str);
            assert!(text.is_some_and(|t| t.contains(code)), "{code}: {seen}");
        }
        Ok(())
    })
}
