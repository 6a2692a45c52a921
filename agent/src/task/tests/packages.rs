//! Packages: only what the policy names, and nothing that is there already is touched.

use std::path::Path;
use std::sync::Arc;

use hpc_schema::code::Code;
use hpc_schema::task::{NodeMode, TaskType};

use super::super::*;
use super::bench::*;

fn node(dir: &Path) -> Node {
    let policy = Policy {
        mode: Some(NodeMode::Slice),
        types: Some(vec![TaskType::NodePrerequisitesInstall]),
        packages: ["coreutils"].map(|p| p.parse().unwrap()).into(),
        ..Policy::default()
    };
    let host = Host {
        policy: Arc::new(policy),
        ..host(dir)
    };
    Node::with(host, Site::new())
}

fn install(node: &Node, id: &str, package: &str) -> hpc_schema::task::TaskResult {
    let params = format!(r#"{{"packages": ["{package}"]}}"#);
    node.run(&node.site.task(id, "node.prerequisites_install", &params))
}

#[test]
fn a_package_that_the_policy_does_not_name_is_refused_and_one_that_is_there_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let refused = install(&node, "task-1", "nmap");
    assert_eq!(code(&refused), Some(Code::PolicyDenied));
    let there = install(&node, "task-2", "coreutils");
    assert_eq!(code(&there), None, "{:?}", there.detail);
    let there = value(&there);
    assert_eq!(there["present"][0], "coreutils");
    assert!(there["installed"].as_array().unwrap().is_empty(), "{there}");
}
