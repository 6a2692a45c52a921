use std::collections::BTreeSet;

use clap::{Command as Clap, CommandFactory as _, Parser as _};

use super::*;

/// Every command without subcommands, with its path.
fn leaves(command: &Clap, path: &str, found: &mut Vec<(String, Clap)>) {
    let path = format!("{path} {}", command.get_name()).trim().to_owned();
    let mut inner = command
        .get_subcommands()
        .filter(|c| c.get_name() != "help")
        .peekable();
    if inner.peek().is_none() {
        found.push((path, command.clone()));
        return;
    }
    for sub in inner {
        leaves(sub, &path, found);
    }
}

fn all() -> Vec<(String, Clap)> {
    let mut found = Vec::new();
    leaves(&Cli::command(), "", &mut found);
    found
}

/// Splits a line as a shell does where it holds only words and single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    let mut empty = Vec::new();
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                // `''` is a word as well.
                empty.push(words.len() - 1);
            }
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    let kept = words.into_iter().enumerate();
    kept.filter(|(i, w)| !w.is_empty() || empty.contains(i))
        .map(|(_, w)| w)
        .collect()
}

#[test]
fn the_definition_of_the_arguments_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_shows_examples_and_every_example_parses() {
    let mut shown = BTreeSet::new();
    for (path, command) in all() {
        let after = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(after.contains("Examples:"), "{path} has no examples");
        for line in after
            .lines()
            .map(str::trim)
            .filter(|l| l.starts_with("virtengine "))
        {
            let line = line.split(" > ").next().unwrap().split(" < ").next().unwrap();
            let line = line.replace("CURSOR", "x");
            Cli::try_parse_from(words(&line)).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(
                line.starts_with(&path),
                "{path}: the example is of another command: {line}"
            );
            shown.insert(path.clone());
        }
    }
    assert_eq!(shown.len(), all().len());
}

#[test]
fn every_message_that_people_send_has_its_command() {
    let commands: BTreeSet<String> = all().into_iter().map(|(path, _)| path).collect();
    for name in [
        "create-cluster",
        "update-cluster",
        "set-task-key",
        "activate-cluster",
        "deactivate-cluster",
        "propose-cluster-owner",
        "accept-cluster-owner",
        "register-node",
        "deregister-node",
        "drain-node",
        "resume-node",
        "sweep",
        "prune",
        "anchor",
        "update-params",
        "propose-admin",
        "accept-admin",
        "pause-registrations",
        "unpause-registrations",
    ] {
        assert!(commands.contains(&format!("virtengine tx hpc {name}")), "{name}");
    }
    for name in [
        "params",
        "config",
        "cluster",
        "clusters",
        "node",
        "nodes",
        "aggregate",
        "jobs-at-risk",
        "anchors",
        "proof",
    ] {
        assert!(
            commands.contains(&format!("virtengine query hpc {name}")),
            "{name}"
        );
    }
}

#[test]
fn options_of_a_group_stand_before_or_after_the_command() {
    for line in [
        "virtengine tx --from a --yes hpc activate-cluster hpc-cluster-1",
        "virtengine tx hpc activate-cluster hpc-cluster-1 --from a --yes",
        "virtengine -o json tx hpc activate-cluster hpc-cluster-1 --from a -y",
        "virtengine tx hpc activate-cluster hpc-cluster-1 --from a --yes -o json",
        "virtengine query hpc node node-1 --node http://x:1 --contract c -o yaml --home /h --profile p",
    ] {
        Cli::try_parse_from(words(line)).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
}

#[test]
fn wrong_usage_is_refused() {
    for line in [
        "virtengine query hpc node",
        "virtengine query hpc node a/b",
        "virtengine query hpc nodes --state sleeping",
        "virtengine query hpc nodes --limit 0",
        "virtengine query hpc nodes --limit 101",
        "virtengine query hpc anchors hpc-cluster-1 --digest ab",
        "virtengine query tx 1234",
        "virtengine tx hpc update-params --from a",
        "virtengine tx hpc propose-admin --from a",
        "virtengine tx hpc propose-admin wasm1x --withdraw",
        "virtengine tx hpc update-cluster hpc-cluster-1 --no-operators --operator a",
        "virtengine tx bank send wasm1x 5",
        "virtengine tx bank send wasm1x 5stake --fees 1stake --gas-prices 1stake",
        "virtengine tx bank send wasm1x 5stake --gas 0",
        "virtengine tx bank send wasm1x 5stake --gas-adjustment 0.5",
        "virtengine tx bank send wasm1x 5stake --timeout 5",
        "virtengine keys add a --keyring-backend os",
        "virtengine completion tcsh",
    ] {
        let e = Cli::try_parse_from(words(line)).expect_err(line);
        assert_eq!(e.exit_code(), 2, "{line}");
    }
}

#[test]
fn a_mnemonic_is_never_an_argument() {
    let twelve = "virtengine keys import owner abandon abandon abandon";
    assert!(Cli::try_parse_from(words(twelve)).is_err());
}
