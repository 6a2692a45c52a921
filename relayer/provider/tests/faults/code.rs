//! A contract of another code: the daemon does not work for it, whenever it gets to know.

use std::time::Duration;

use crate::process::Process;
use crate::proxy::{Fault, Proxy, SMART, query_fails};
use crate::site::{Site, eventually, run};

const VERSION: &str = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");
const NAME: &str = "crates.io:hpc-registry";
const CASES: [(&str, &str, &str); 2] = [
    (NAME, "crates.io:cw9-registry", "cw9-registry"),
    (VERSION, "\"9.1.0\"", "is of version 9.1.0"),
];

async fn scene() -> (Site, Proxy) {
    let site = Site::prepare().await;
    let proxy = Proxy::start(site.devnet.rpc_url()).await;
    (site, proxy)
}

/// What the daemon says as it ends by itself, and its exit code.
async fn ends(site: &Site, proxy: &Proxy) -> (String, i32) {
    let (home, mut env) = (site.home(), site.env());
    env.push((
        "VIRTENGINE_PROVIDER__CHAIN__RPC".into(),
        format!("[{:?}]", proxy.url()),
    ));
    let ended = tokio::task::spawn_blocking(move || run(&home, &env, &["run"]));
    let (_, said, code) = ended.await.unwrap();
    (said, code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contract_of_another_name_or_version_refuses_to_start() {
    let (site, proxy) = scene().await;
    for (is, says, error) in CASES {
        proxy.always(SMART, Some(Fault::Replaced(is, says)));
        let (said, code) = ends(&site, &proxy).await;
        assert!(said.contains("chain.contract") && said.contains(error), "{said}");
        assert_eq!(code, 78, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_chain_that_has_no_contracts_the_daemon_does_not_start() {
    let (site, proxy) = scene().await;
    let unknown = query_fails(6, "unknown query path: unknown request");
    proxy.always(SMART, Some(Fault::Instead(unknown)));
    let (said, code) = ends(&site, &proxy).await;
    assert!(
        said.contains("is not a registry contract on this chain"),
        "{said}"
    );
    assert_eq!(code, 78, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_was_away_at_the_start_is_asked_for_its_contract_when_it_comes_back() {
    let (site, proxy) = scene().await;
    for (is, says, _) in CASES {
        proxy.always(SMART, Some(Fault::Replaced(is, says)));
        proxy.always("status", Some(Fault::ResetBefore));
        let url = format!("[{:?}]", proxy.url());
        let mut process = tokio::task::block_in_place(|| {
            let env = [("VIRTENGINE_PROVIDER__CHAIN__RPC", url.as_str())];
            Process::start_with(&site, None, &env)
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!process.is_dead(), "it waits for the chain");
        proxy.always("status", None);
        let mut code = None;
        eventually("the end", async || {
            code = process.child.try_wait().unwrap();
            code.is_some()
        })
        .await;
        assert_eq!(code.unwrap().code(), Some(78));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_breaks_off_at_the_start_says_nothing_of_the_contract_and_is_asked_again() {
    let (site, proxy) = scene().await;
    // As wasmd may until its first block.
    let breaks = Fault::Instead(query_fails(6, "panic: unknown request"));
    proxy.always(SMART, Some(breaks));
    let url = format!("[{:?}]", proxy.url());
    let mut process = tokio::task::block_in_place(|| {
        let env = [("VIRTENGINE_PROVIDER__CHAIN__RPC", url.as_str())];
        Process::start_with(&site, None, &env)
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!process.is_dead(), "it waits for the chain");
    let (is, says, _) = CASES[0];
    proxy.always(SMART, Some(Fault::Replaced(is, says)));
    let mut code = None;
    eventually("the end", async || {
        code = process.child.try_wait().unwrap();
        code.is_some()
    })
    .await;
    assert_eq!(code.unwrap().code(), Some(78));
}
