//! Lists, formats, pipes.

use std::io::Read as _;

use crate::world::{Program, World};

#[test]
fn lists_come_in_pages_or_whole() {
    let world = World::deployed();
    for n in 1..=5 {
        world.tx(&["hpc", "create-cluster", &format!("cluster-{n}")]);
    }
    let ids = |list: &serde_json::Value| -> Vec<String> {
        list["clusters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["cluster_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = world.program.json(&["query", "hpc", "clusters", "--limit", "2"]);
    assert_eq!(ids(&first), ["cluster-1", "cluster-2"]);
    let next = first["next"].as_str().unwrap();
    let second = world
        .program
        .json(&["query", "hpc", "clusters", "--limit", "2", "--start-after", next]);
    assert_eq!(ids(&second), ["cluster-3", "cluster-4"]);
    let all = world
        .program
        .json(&["query", "hpc", "clusters", "--limit", "2", "--all"]);
    assert_eq!(
        ids(&all),
        ["cluster-1", "cluster-2", "cluster-3", "cluster-4", "cluster-5"]
    );
    assert!(all.get("next").is_none());

    let text = world.program.run(&["query", "hpc", "clusters", "--limit", "2"]);
    assert_eq!(text.out.lines().count(), 3, "{}", text.out);
    assert!(
        text.err.contains(&format!("more: --start-after {next}")),
        "{}",
        text.err
    );
    let yaml: serde_yaml_ng::Value =
        serde_yaml_ng::from_str(&world.program.ok(&["query", "hpc", "clusters", "-o", "yaml"])).unwrap();
    assert_eq!(yaml["clusters"][4]["cluster_id"], "cluster-5");
    let owner = world.owner.address("wasm").unwrap();
    assert_eq!(
        ids(&world
            .program
            .json(&["query", "hpc", "clusters", "--owner", &owner, "--all"]))
        .len(),
        5
    );
}

#[test]
fn an_anchor_is_found_by_its_digest() {
    let world = World::deployed();
    world.tx(&["hpc", "create-cluster", "cluster-1"]);
    let digest = "ab".repeat(32);
    world.tx(&["hpc", "anchor", "cluster-1", "audit-head", &digest]);
    let list = world.program.json(&["query", "hpc", "anchors", "cluster-1"]);
    assert_eq!(list["anchors"][0]["digest"], digest);
    let find = |digest: &str| {
        [
            "query",
            "hpc",
            "anchors",
            "cluster-1",
            "--kind",
            "audit-head",
            "--digest",
            digest,
        ]
        .map(str::to_owned)
    };
    let found = find(&digest);
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(
        world.program.json(&found)["sender"],
        world.owner.address("wasm").unwrap()
    );
    let never = find(&"cd".repeat(32));
    let never: Vec<&str> = never.iter().map(String::as_str).collect();
    assert_eq!(world.program.error(3, &never)["code"], "anchor_not_found");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let program = Program::new();
    for arguments in [&["completion", "bash"][..], &["--help"], &["tx", "hpc", "--help"]] {
        let mut child = program.command(arguments).spawn().unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{arguments:?}: {err}");
        assert_eq!(err, "", "{arguments:?}");
    }
}

#[test]
fn completion_scripts_name_the_commands() {
    let program = Program::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = program.ok(&["completion", shell]);
        assert!(script.contains("activate-cluster"), "{shell}");
    }
}

#[test]
fn help_tells_the_exit_codes_and_version_is_one_line() {
    let program = Program::new();
    let help = program.ok(&["--help"]);
    for line in [
        "0  done",
        "2  wrong usage",
        "3  not found",
        "4  refused",
        "5  the node",
        "6  no outcome",
    ] {
        assert!(help.contains(line), "{line} is missing in {help}");
    }
    assert_eq!(
        program.ok(&["version"]),
        format!("virtengine {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(program.json(&["version"])["version"], env!("CARGO_PKG_VERSION"));
}
