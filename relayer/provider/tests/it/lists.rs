//! Lists that are longer than a page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use reqwest::Method;
use serde_json::Value;
use virtengine_provider::identity::Seed;

use crate::admin::{credential, request};
use crate::agent::problem;
use crate::site::{CLUSTER, Site};

const TOKENS: usize = 2_300;

async fn page(site: &Site, path: &str, token: &str) -> Value {
    let answer = request(site, Method::GET, path, token).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_comes_in_bounded_pages_that_neither_repeat_nor_pass_over_a_row_while_others_come() {
    let site = Site::start().await;
    let key = Seed::from_bytes(&[3; 32]).unwrap().public().to_base64();
    let mut csv = String::new();
    for n in 0..TOKENS {
        writeln!(csv, "node-{n:05},{key}").unwrap();
    }
    let file = site.home().join("nodes.csv");
    std::fs::write(&file, csv).unwrap();
    let create = |args: &[&str]| {
        let all = [&["node-token", "create", "--cluster-id", CLUSTER], args].concat();
        let (out, err, code) = site.run(&all);
        assert_eq!(code, 0, "{err}");
        out
    };
    assert_eq!(
        create(&["--from-file", file.to_str().unwrap()]).lines().count(),
        TOKENS
    );
    let viewer = credential(&site, "viewer", "1h");
    let (mut seen, mut known) = (BTreeSet::new(), 0);
    let (mut sizes, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/node-tokens?limit=1000{after}");
        let found = page(&site, &path, &viewer).await;
        let items = found["items"].as_array().unwrap();
        sizes.push(items.len());
        for row in items {
            let (id, node) = (row["jti"].as_str().unwrap(), row["node_id"].as_str().unwrap());
            assert!(seen.insert(id.to_owned()), "{row} comes twice");
            known += usize::from(node != "node-late");
        }
        // One that comes meanwhile moves none of the others.
        create(&["--node-id", "node-late", "--pubkey", &key]);
        match found["next"].as_str() {
            Some(next) => after = format!("&after={}", next.replace('/', "%2F")),
            None => break,
        }
    }
    assert_eq!((known, sizes.len()), (TOKENS, 3));
    assert!(sizes.iter().all(|n| *n <= 1000), "{sizes:?}");
    // The command line follows the pages.
    let list: Value = serde_json::from_str(&site.run(&["node-token", "list", "-o", "json"]).0).unwrap();
    assert_eq!(list.as_array().unwrap().len(), TOKENS + sizes.len());
    // No page has more than a thousand, whatever is asked for.
    let most = page(&site, "/node-tokens?limit=100000", &viewer).await;
    assert_eq!(most["items"].as_array().unwrap().len(), 1000);
    for path in [
        "/nodes?after=x",
        "/node-tokens?after=x",
        "/join-tokens?after=1",
        "/registrations?after=x",
        "/certificates?after=%2F",
        "/commands?after=1%2F",
        "/tasks?after=1%2Fx",
        "/slots?after=a%2Fb",
        "/alerts?after=yesterday",
    ] {
        let refused = request(&site, Method::GET, path, &viewer).send().await.unwrap();
        assert_eq!(problem(refused).await, (400, "invalid_field".into()), "{path}");
    }
}
