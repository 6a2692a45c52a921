//! Against a server of raw bytes: what the wire may bring, also from a hostile one.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;

use super::stand_in::{asks, endpoint, nobody, status};
use super::*;
use crate::code::{Class, Verdict};
use crate::hash::TxHash;
use crate::query::{Chain, QueryError};
use crate::settle::{Action, EndpointId, Inclusion, Input, State, io};

/// Answers every request with this body.
async fn server(body: String) -> String {
    endpoint(move |_| Some(body.clone())).await
}

/// A node of chain-1 at `height`: the first of these texts that a request has in quotes decides how it is answered; it knows
/// nothing else but `status`.
async fn node(height: u64, answers: &[(&'static str, serde_json::Value)]) -> String {
    node_without("", None, height, answers).await
}

/// The same, but that calls of `method` never reach it: this comes, or the connection breaks.
async fn node_without(
    method: &'static str,
    instead: Option<&'static str>,
    height: u64,
    answers: &[(&'static str, serde_json::Value)],
) -> String {
    let mut answers = answers.to_vec();
    answers.push(("status", status(1, height)));
    endpoint(move |request| {
        if !method.is_empty() && asks(request, method) {
            return instead.map(str::to_owned);
        }
        let known = answers.iter().find(|(text, _)| asks(request, text));
        let answer = known.map_or_else(|| error("no such method"), |(_, answer)| answer.clone());
        Some(answer.to_string())
    })
    .await
}

async fn client(body: serde_json::Value) -> Client {
    Client::new(&server(body.to_string()).await, ClientOptions::default()).unwrap()
}

fn result(value: &serde_json::Value) -> serde_json::Value {
    json!({ "jsonrpc": "2.0", "id": 1, "result": value })
}

fn error(data: &str) -> serde_json::Value {
    json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32603, "message": "Internal error", "data": data } })
}

#[tokio::test]
async fn status_is_read_with_its_numbers_as_text() {
    let client = client(result(&json!({
        "node_info": { "network": "testing-1", "version": "0.38.21", "other": { "tx_index": "on" } },
        "sync_info": {
            "latest_block_height": "4684", "latest_block_time": "2026-01-30T14:05:00.987654321Z",
            "earliest_block_height": "1", "catching_up": false
        }
    })))
    .await;
    let status = client.status().await.unwrap();
    assert_eq!(
        (status.chain_id.as_str(), status.height, status.tx_index),
        ("testing-1", 4684, true)
    );
    assert_eq!(status.block_time_ms, 1_769_781_900_987);
}

#[tokio::test]
async fn a_repeated_broadcast_is_told_by_text_alone() {
    let client = client(error("tx already exists in cache")).await;
    assert_eq!(
        client.broadcast_tx_sync(b"tx").await.unwrap().verdict,
        Verdict::AlreadyInCache
    );
}

#[tokio::test]
async fn the_code_of_check_tx_is_looked_at() {
    let client = client(result(&json!({
        "code": 32, "codespace": "sdk", "hash": "AB",
        "log": "account sequence mismatch, expected 7, got 5: incorrect account sequence"
    })))
    .await;
    let answer = client.broadcast_tx_sync(b"tx").await.unwrap();
    assert_eq!(
        answer.verdict,
        Verdict::WrongSequence {
            expected: Some(7),
            got: Some(5)
        }
    );
}

#[tokio::test]
async fn a_transaction_that_the_index_does_not_have_is_none() {
    let hash = TxHash::of(b"tx");
    let absent = client(error(&format!("tx ({hash}) not found"))).await;
    assert_eq!(absent.tx(hash).await, Ok(None));
    let no_index = client(error("transaction indexing is disabled")).await;
    assert!(matches!(no_index.tx(hash).await, Err(RpcError::NotKept { .. })));
}

#[tokio::test]
async fn an_index_that_lacks_a_transaction_says_nothing_for_the_others() {
    let hash = TxHash::of(b"tx");
    let found = result(&json!({
        "hash": hash.to_string(), "height": "5", "index": 0, "tx": "dHg=", "tx_result": { "code": 0 }
    }));
    let up = async |answer: &serde_json::Value| server(answer.to_string()).await;
    let absent = error(&format!("tx ({hash}) not found"));
    let (lacks, also, has) = (up(&absent).await, up(&absent).await, up(&found).await);
    let off = up(&error("transaction indexing is disabled")).await;
    let dead = nobody();
    for (urls, height) in [
        (vec![&lacks, &has], Some(5)),
        (vec![&has, &lacks], Some(5)),
        (vec![&off, &lacks, &dead, &has], Some(5)),
        (vec![&lacks, &also], None),
        (vec![&lacks, &off], None),
        (vec![&lacks, &dead], None),
    ] {
        let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
        let asked = endpoints.find_tx(hash).await.unwrap();
        assert_eq!(asked.map(|tx| tx.height), height, "{urls:?}");
        let best = endpoints.best().unwrap();
        assert_eq!(best.name(), urls[0], "to lack it is no failure");
    }
    let endpoints = Endpoints::new(&[&off, &dead], ClientOptions::default()).unwrap();
    assert!(
        endpoints.find_tx(hash).await.is_err(),
        "nobody says that it has none"
    );
}

#[tokio::test]
async fn of_results_that_are_not_there_it_is_told_whether_they_will_be() {
    let gone = client(error("node is not persisting finalize block responses")).await;
    assert!(matches!(
        gone.kept_results(5).await,
        Err(RpcError::NotKept { .. })
    ));
    // Neither says for how long.
    for other in ["too many requests", "could not find results for height #5"] {
        let refuses = client(error(other)).await;
        let refused = refuses.kept_results(5).await;
        assert!(matches!(refused, Err(RpcError::Response { .. })), "{refused:?}");
    }
    let there = client(result(&json!({ "txs_results": null }))).await;
    assert_eq!(there.kept_results(5).await, Ok(Vec::new()));
}

#[tokio::test]
async fn another_transaction_than_the_one_asked_for_is_refused() {
    let client = client(result(&json!({
        "hash": "00", "height": "5", "index": 0, "tx": "b3RoZXI=", "tx_result": { "code": 0 }
    })))
    .await;
    assert!(matches!(
        client.tx(TxHash::of(b"tx")).await,
        Err(RpcError::Malformed { .. })
    ));
}

#[tokio::test]
async fn null_results_of_an_empty_block_are_none() {
    let client = client(result(&json!({ "height": "100", "txs_results": null }))).await;
    assert_eq!(client.block_results(100).await, Ok(Vec::new()));
}

#[tokio::test]
async fn an_answer_beyond_the_bound_is_not_read() {
    let url = server(" ".repeat(200_000)).await;
    let options = ClientOptions {
        max_answer: 100_000,
        ..ClientOptions::default()
    };
    let answer = Client::new(&url, options).unwrap().status().await;
    assert!(
        matches!(answer, Err(RpcError::TooLarge { limit: 100_000, .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn what_is_no_json_rpc_is_transient() {
    for body in ["", "<html>502</html>", "{}", "[]", "{\"result\":{}}"] {
        let client = Client::new(&server(body.to_owned()).await, ClientOptions::default()).unwrap();
        let failed = client.status().await.unwrap_err();
        assert!(matches!(failed, RpcError::Malformed { .. }), "{body}: {failed:?}");
        assert_eq!(failed.class(), Class::Transient);
    }
}

#[tokio::test]
async fn a_silent_endpoint_is_given_up_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = ClientOptions {
        timeout: Duration::from_millis(200),
        ..ClientOptions::default()
    };
    let answer = Client::new(&url, options).unwrap().status().await;
    assert!(
        matches!(answer, Err(RpcError::Timeout { millis: 200, .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn the_next_endpoint_is_asked_when_one_is_down() {
    let dead = nobody();
    let alive = server(result(&json!({ "txs_results": null })).to_string()).await;
    let endpoints = Endpoints::new(&[dead, alive.clone()], ClientOptions::default()).unwrap();
    let ask = |c: Client| async move { c.block_results(1).await };
    assert_eq!(endpoints.ask(ask).await, Ok(Vec::new()));
    assert_eq!(
        endpoints.best().unwrap().name(),
        alive,
        "the one that failed is asked last from now on"
    );
}

#[tokio::test]
async fn an_endpoint_that_simulates_nothing_is_passed_over_and_has_not_failed() {
    let log = "unknown query path: unknown request";
    let lacks = json!({ "response": { "code": 6, "codespace": "sdk", "log": log, "height": "0" } });
    // 7 gas used.
    let simulates = json!({ "response": { "code": 0, "value": "CgIQBw==", "height": "5" } });
    let up = async |answer: &serde_json::Value| server(result(answer).to_string()).await;
    let (first, second, good) = (up(&lacks).await, up(&lacks).await, up(&simulates).await);
    let dead = nobody();
    for (urls, simulated) in [
        ([&first, &good], Ok(7)),
        ([&dead, &good], Ok(7)),
        ([&first, &second], Err(QueryError::NoSimulation)),
        ([&first, &dead], Err(QueryError::NoSimulation)),
        ([&dead, &first], Err(QueryError::NoSimulation)),
    ] {
        let chain = Chain::new(Endpoints::new(&urls, ClientOptions::default()).unwrap());
        assert_eq!(chain.simulate(vec![1]).await, simulated, "{urls:?}");
        let best = chain.endpoints().best().unwrap();
        let up = urls.into_iter().find(|url| **url != dead).unwrap();
        assert_eq!(best.name(), up, "it answers as well as before");
    }
}

#[tokio::test]
async fn what_one_endpoint_refuses_another_is_asked_and_the_first_refusal_is_told_where_none_answers() {
    let answers = server(result(&json!({ "txs_results": null })).to_string()).await;
    let refuses = async |why: &str| server(error(why).to_string()).await;
    let (pruned, limited) = (
        refuses("height 1 is not available, lowest height is 51").await,
        refuses("too many requests").await,
    );
    let ask = |c: Client| async move { c.block_results(1).await };
    for urls in [[&pruned, &answers], [&answers, &limited], [&limited, &answers]] {
        let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
        assert_eq!(endpoints.ask(ask).await, Ok(Vec::new()), "{urls:?}");
    }
    let endpoints = Endpoints::new(&[&pruned, &limited], ClientOptions::default()).unwrap();
    let refused = endpoints.ask(ask).await.unwrap_err();
    assert!(refused.to_string().contains("lowest height is 51"), "{refused}");
}

/// Down for good, as far as anybody knows.
const LONG: Duration = Duration::from_secs(301);

/// Two endpoints, of which the second keeps nothing; what they give together where the first one answers so.
async fn ask_both(endpoints: &Endpoints, first: &Result<u8, RpcError>) -> Result<u8, RpcError> {
    let ask = |c: Client| {
        let answer = match c.name() {
            "http://127.0.0.1:1" => first.clone(),
            endpoint => Err(RpcError::NotKept {
                endpoint: endpoint.to_owned(),
                what: "this",
                reason: "pruned".to_owned(),
                unheard: Vec::new(),
            }),
        };
        async move { answer }
    };
    endpoints.ask(ask).await
}

fn two() -> Endpoints {
    let urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
    Endpoints::new(&urls, ClientOptions::default()).unwrap()
}

fn silent() -> RpcError {
    silence_of("http://127.0.0.1:1")
}

fn silence_of(endpoint: &str) -> RpcError {
    RpcError::Unreachable {
        endpoint: endpoint.to_owned(),
        reason: "refused".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_keep_no_more_is_said_once_one_is_given_up_and_it_is_named() {
    let endpoints = two();
    assert_eq!(ask_both(&endpoints, &Err(silent())).await, Err(silent()));
    tokio::time::advance(LONG).await;
    let kept_no_more = ask_both(&endpoints, &Err(silent())).await.unwrap_err();
    assert_eq!(kept_no_more.unheard(), ["http://127.0.0.1:1"]);
    let said = kept_no_more.to_string();
    assert!(
        said.contains(
            "2: does not keep this (pruned), and http://127.0.0.1:1 did not say: without an answer for five minutes"
        ),
        "{said}"
    );
    // It is there again and has not come so far; then it keeps it no more either.
    let behind = RpcError::Behind {
        endpoint: "http://127.0.0.1:1".to_owned(),
        height: 1,
        wanted: 2,
    };
    let kept_no_more = ask_both(&endpoints, &Err(behind)).await.unwrap_err();
    assert_eq!(kept_no_more.unheard(), ["http://127.0.0.1:1"]);
    let also = RpcError::NotKept {
        endpoint: "http://127.0.0.1:1".to_owned(),
        what: "this",
        reason: "pruned".to_owned(),
        unheard: Vec::new(),
    };
    let kept_no_more = ask_both(&endpoints, &Err(also)).await.unwrap_err();
    assert!(matches!(&kept_no_more, RpcError::NotKept { unheard, .. } if unheard.is_empty()));
    assert!(!kept_no_more.to_string().contains("is away"));
}

#[tokio::test(start_paused = true)]
async fn what_others_keep_no_more_is_said_beside_one_that_refuses_and_it_is_named() {
    let refusal = RpcError::Response {
        endpoint: "http://127.0.0.1:1".to_owned(),
        method: "block_results",
        code: -32603,
        message: "Internal error".to_owned(),
        data: "too many requests".to_owned(),
    };
    let kept_no_more = ask_both(&two(), &Err(refusal.clone())).await.unwrap_err();
    assert!(matches!(kept_no_more, RpcError::NotKept { .. }), "{kept_no_more}");
    assert_eq!(kept_no_more.unheard(), ["http://127.0.0.1:1"]);
    // A third one is away, and waited for.
    let urls = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"];
    let three = Endpoints::new(&urls, ClientOptions::default()).unwrap();
    let ask = |c: Client| {
        let answer: Result<u8, RpcError> = Err(match c.name() {
            "http://127.0.0.1:1" => refusal.clone(),
            "http://127.0.0.1:3" => silence_of(c.name()),
            _ => kept_no_more.clone(),
        });
        async move { answer }
    };
    assert_eq!(three.ask(ask).await, Err(silence_of(urls[2])));
    tokio::time::advance(LONG).await;
    let kept_no_more = three.ask(ask).await.unwrap_err();
    assert_eq!(kept_no_more.unheard(), [urls[0], urls[2]]);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_says_whatever_it_may_is_not_away() {
    let endpoint = || "http://127.0.0.1:1".to_owned();
    let answers = [
        Ok(1),
        Err(RpcError::Behind {
            endpoint: endpoint(),
            height: 1,
            wanted: 2,
        }),
        Err(RpcError::NotReady { endpoint: endpoint() }),
        Err(RpcError::NoService { endpoint: endpoint() }),
        Err(RpcError::NotKept {
            endpoint: endpoint(),
            what: "this",
            reason: String::new(),
            unheard: Vec::new(),
        }),
        Err(RpcError::TooLarge {
            endpoint: endpoint(),
            method: "tx",
            limit: 1,
        }),
    ];
    for answer in answers {
        let endpoints = two();
        assert_eq!(ask_both(&endpoints, &Err(silent())).await, Err(silent()));
        tokio::time::advance(LONG).await;
        drop(ask_both(&endpoints, &answer).await);
        // Away since now, and waited for.
        assert_eq!(
            ask_both(&endpoints, &Err(silent())).await,
            Err(silent()),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_to_say_how_far_it_is_has_failed_and_is_not_away() {
    let refuses = server(error("too many requests").to_string()).await;
    let keeps_none = server(error("node is not persisting finalize block responses").to_string()).await;
    let endpoints = Endpoints::new(&[&refuses, &keeps_none], ClientOptions::default()).unwrap();
    for _ in 0..2 {
        let head = endpoints.head(EndpointId(0)).await.unwrap();
        assert!(matches!(head.status, Err(RpcError::Response { .. })), "{head:?}");
        tokio::time::pause();
        tokio::time::advance(LONG).await;
        tokio::time::resume();
    }
    assert_eq!(endpoints.best().unwrap().name(), keeps_none);
    let ask = |c: Client| {
        let silence = (c.name() == refuses).then(|| silence_of(c.name()));
        async move {
            match silence {
                Some(silence) => Err(silence),
                None => c.kept_results(5).await,
            }
        }
    };
    let failed = endpoints.ask(ask).await.unwrap_err();
    assert!(matches!(failed, RpcError::Unreachable { .. }), "{failed}");
}

/// What comes of looking for a transaction in these blocks; nothing while it is to be looked for again.
async fn look(endpoints: &Endpoints, from: u64, to: u64) -> Vec<Input> {
    let hash = TxHash::of(b"tx");
    let scan = Action::ScanBlocks { hash, from, to };
    let chain = Chain::new(endpoints.clone());
    io::perform(&chain, "", &State::default(), &scan).await
}

/// Blocks without a result of it.
fn no_result(from: u64, to: u64, gone: &[u64], unread: bool) -> Input {
    Input::Scanned {
        hash: TxHash::of(b"tx"),
        from,
        to,
        inclusions: Vec::new(),
        gone: gone.to_vec(),
        unread,
    }
}

/// A block with the transaction looked for, or without one.
fn block(height: u64, with_it: bool) -> serde_json::Value {
    let txs: &[&str] = if with_it { &["dHg="] } else { &[] };
    let header = json!({
        "chain_id": "chain-1", "height": height.to_string(), "time": "2026-01-30T14:05:00Z"
    });
    result(&json!({ "block": { "header": header, "data": { "txs": txs } } }))
}

#[tokio::test]
async fn one_that_refuses_or_stands_still_holds_up_no_key_where_the_others_keep_no_results() {
    let there = ("block", block(100, true));
    let no_index = ("tx", error("transaction indexing is disabled"));
    let no_results = error("node is not persisting finalize block responses");
    let forgets = [there.clone(), no_index.clone(), ("block_results", no_results)];
    let gone = no_result(100, 100, &[100], false);
    let alone = [node(101, &forgets).await];
    let alone = Endpoints::new(&alone, ClientOptions::default()).unwrap();
    assert_eq!(
        look(&alone, 100, 100).await,
        std::slice::from_ref(&gone),
        "all have said so"
    );

    let limited = error("too many requests");
    let late = error("height 100 must be less than or equal to the current blockchain height 50");
    let lacks = error(&format!("tx ({}) not found", TxHash::of(b"tx")));
    let stands_still = [("block", late.clone()), ("block_results", late), ("tx", lacks)];
    for (height, looks_again) in [(119, true), (120, false)] {
        let other = node(height, &forgets).await;
        let results_limited = ("block_results", limited.clone());
        let odd = [
            node(height, &[there.clone(), no_index.clone(), results_limited]).await,
            server(limited.to_string()).await,
            node(50, &stands_still).await,
        ];
        for odd in odd {
            for urls in [[&odd, &other], [&other, &odd]] {
                let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
                let looked = look(&endpoints.of_chain("chain-1"), 100, 100).await;
                let wanted = if looks_again { vec![] } else { vec![gone.clone()] };
                assert_eq!(looked, wanted, "{urls:?} at {height}");
            }
        }
    }
}

#[tokio::test]
async fn one_that_answers_all_but_one_method_is_waited_for_five_minutes_and_holds_up_no_key() {
    let there = ("block", block(100, true));
    let no_index = ("tx", error("transaction indexing is disabled"));
    let no_results = (
        "block_results",
        error("node is not persisting finalize block responses"),
    );
    let answers = [there, no_index, no_results];
    let good = node(130, &answers).await;
    let html = Some("<html>404 Not Found</html>");
    for (method, instead) in [("tx", None), ("tx", html), ("block_results", None)] {
        let odd = node_without(method, instead, 130, &answers).await;
        for urls in [[&odd, &good], [&good, &odd]] {
            let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
            let endpoints = endpoints.of_chain("chain-1");
            for _ in 0..2 {
                assert!(look(&endpoints, 100, 100).await.is_empty(), "{method}: {urls:?}");
                // It says its newest block all the while.
                let heads = endpoints.heads().await;
                assert!(heads.iter().all(|h| h.status.is_ok()), "{heads:?}");
                tokio::time::pause();
                tokio::time::advance(LONG / 2).await;
                tokio::time::resume();
            }
            let gone = no_result(100, 100, &[100], false);
            assert_eq!(look(&endpoints, 100, 100).await, [gone], "{method}: {urls:?}");
            let told: Vec<_> = endpoints
                .iter()
                .map(|(_, c)| (c.name(), c.unanswered()))
                .filter(|(_, told)| !told.is_empty())
                .collect();
            assert_eq!(told.len(), 1, "{told:?}");
            let (name, unanswered) = &told[0];
            assert_eq!((*name, unanswered[0].method), (odd.as_str(), method));
            assert!(unanswered[0].why.contains(method), "{unanswered:?}");
        }
    }
}

#[tokio::test]
async fn one_that_leaves_a_method_unanswered_is_asked_last_for_a_minute_but_for_those_far_behind() {
    let results = [("block_results", result(&json!({ "txs_results": null })))];
    let ask = |c: Client| async move { c.block_results(1).await };
    let ahead = node_without("block_results", None, 700, &results).await;
    let catching_up = node(690, &results).await;
    let endpoints = Endpoints::new(&[&ahead, &catching_up], ClientOptions::default()).unwrap();
    let endpoints = endpoints.of_chain("chain-1");
    assert_eq!(endpoints.ask(ask).await, Ok(Vec::new()));
    endpoints.heads().await;
    assert_eq!(
        endpoints.best().unwrap().name(),
        ahead,
        "the other is ten blocks behind"
    );
    assert_eq!(endpoints.highest(), 700);
    let odd = node_without("block_results", None, 9, &results).await;
    let good = node(7, &results).await;
    let endpoints = Endpoints::new(&[&odd, &good], ClientOptions::default()).unwrap();
    let endpoints = endpoints.of_chain("chain-1");
    assert_eq!(endpoints.best().unwrap().name(), odd);
    assert_eq!(endpoints.ask(ask).await, Ok(Vec::new()));
    endpoints.heads().await;
    assert_eq!(endpoints.best().unwrap().name(), good);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(endpoints.best().unwrap().name(), odd, "it has the newest block");
}

#[tokio::test]
async fn a_connection_that_breaks_is_told_with_the_call_and_is_not_called_one_that_nobody_takes() {
    let breaks = Client::new(&endpoint(|_| None).await, ClientOptions::default()).unwrap();
    let broken = breaks.block(None).await.unwrap_err();
    assert!(
        matches!(broken, RpcError::Broken { method: "block", .. }),
        "{broken:?}"
    );
    assert_eq!(broken.class(), Class::Transient);
    let nobody = Client::new(&nobody(), ClientOptions::default()).unwrap();
    let nobody = nobody.block(None).await.unwrap_err();
    assert!(matches!(nobody, RpcError::Unreachable { .. }), "{nobody:?}");
}

#[test]
fn an_endpoint_without_a_block_or_without_what_was_asked_for_is_not_said_to_be_at_height_0() {
    let said = |height, wanted| {
        let endpoint = "http://a".to_owned();
        RpcError::Behind {
            endpoint,
            height,
            wanted,
        }
        .to_string()
    };
    assert!(said(4, 5).contains("is at height 4, and the answer must be of 5"));
    assert!(said(0, 5).starts_with("http://a: has no block yet"));
    assert!(said(0, 0).starts_with("http://a: does not have this"));
}

#[tokio::test]
async fn blocks_that_one_has_pruned_are_waited_for_where_another_is_away_for_a_moment() {
    let pruned = error("height 100 is not available, lowest height is 250");
    let pruned = node(300, &[("block", pruned)]).await;
    let dead = nobody();
    for urls in [[&dead, &pruned], [&pruned, &dead]] {
        let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
        assert!(look(&endpoints, 100, 101).await.is_empty(), "{urls:?}");
        tokio::time::pause();
        tokio::time::advance(LONG).await;
        tokio::time::resume();
        let unread = no_result(100, 101, &[], true);
        assert_eq!(look(&endpoints, 100, 101).await, [unread], "{urls:?}");
    }
}

#[tokio::test]
async fn blocks_that_one_has_pruned_and_another_refuses_are_waited_for_twenty_blocks() {
    let pruned = error("height 100 is not available, lowest height is 110");
    let limited = server(error("too many requests").to_string()).await;
    for (height, looked) in [(119, vec![]), (120, vec![no_result(100, 101, &[], true)])] {
        let pruned = node(height, &[("block", pruned.clone())]).await;
        for urls in [[&limited, &pruned], [&pruned, &limited]] {
            let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
            assert_eq!(look(&endpoints, 100, 101).await, looked, "{urls:?} at {height}");
        }
    }
}

#[tokio::test]
async fn of_several_that_have_pruned_blocks_the_one_that_goes_back_furthest_is_read() {
    let lowest = |lowest: u64| error(&format!("height 100 is not available, lowest height is {lowest}"));
    let since_150 = node(300, &[("block", lowest(150))]).await;
    let results = result(&json!({ "txs_results": [{ "code": 0, "gas_used": "7" }] }));
    let since_102 = [
        ("block_results", results),
        ("102", block(102, true)),
        ("103", block(103, false)),
        ("block", lowest(102)),
    ];
    let since_102 = node(300, &since_102).await;
    let found = Input::Scanned {
        hash: TxHash::of(b"tx"),
        from: 100,
        to: 103,
        inclusions: vec![Inclusion {
            hash: TxHash::of(b"tx"),
            height: 102,
            code: 0,
            codespace: String::new(),
            log: String::new(),
            gas_used: 7,
        }],
        gone: Vec::new(),
        unread: true,
    };
    for urls in [[&since_150, &since_102], [&since_102, &since_150]] {
        let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
        assert_eq!(
            look(&endpoints, 100, 103).await,
            std::slice::from_ref(&found),
            "{urls:?}"
        );
    }
}

#[tokio::test]
async fn blocks_that_are_pruned_are_not_said_to_have_been_read() {
    let pruned = server(error("height 101 is not available, lowest height is 103").to_string()).await;
    let endpoints = Endpoints::new(&[pruned], ClientOptions::default()).unwrap();
    let unread = no_result(101, 102, &[], true);
    assert_eq!(look(&endpoints, 101, 102).await, [unread]);
}

#[tokio::test]
async fn endpoints_that_are_replaced_keep_their_numbers_and_what_is_known_of_them() {
    let answer = result(&json!({ "txs_results": null })).to_string();
    let (first, second) = (server(answer.clone()).await, server(answer).await);
    let endpoints = Endpoints::new(std::slice::from_ref(&first), ClientOptions::default()).unwrap();
    let other = endpoints.clone();
    let names = |e: &Endpoints| {
        e.iter()
            .map(|(id, c)| (id.0, c.name().to_owned()))
            .collect::<Vec<_>>()
    };
    let mut changes = endpoints.changes();
    endpoints.seen(EndpointId(0), 7);
    for bad in [vec![], vec!["localhost:1".to_owned()]] {
        assert!(endpoints.prepare(&bad).is_err());
    }
    assert_eq!(names(&other), [(0, first.clone())]);
    endpoints.replace(endpoints.prepare(&[second.clone(), first.clone()]).unwrap());
    assert!(changes.has_changed().unwrap());
    changes.borrow_and_update();
    // Every copy knows; the one that stayed is asked first, for its block is known.
    assert_eq!(names(&other), [(0, first.clone()), (1, second.clone())]);
    assert_eq!(other.best().unwrap().name(), first);
    endpoints.replace(endpoints.prepare(std::slice::from_ref(&second)).unwrap());
    assert_eq!(names(&other), [(1, second.clone())]);
    let ask = |c: Client| async move { c.block_results(1).await };
    assert_eq!(other.ask(ask).await, Ok(Vec::new()));
    // One that comes back has its number, and nothing of before counts.
    endpoints.replace(endpoints.prepare(&[first.clone(), second.clone()]).unwrap());
    assert_eq!(names(&other), [(0, first), (1, second)]);
    let many: Vec<String> = (1..100).map(|n| format!("http://127.0.0.1:{n}")).collect();
    assert!(matches!(endpoints.prepare(&many), Err(RpcError::TooMany)));
}

#[test]
fn an_address_that_is_none_is_refused_and_credentials_are_never_shown() {
    for bad in ["", "localhost:26657", "ftp://x", "http://", "26657"] {
        assert!(Client::new(bad, ClientOptions::default()).is_err(), "{bad}");
    }
    let client = Client::new(
        "https://user:hunter2@node.example/key123?token=t",
        ClientOptions::default(),
    )
    .unwrap();
    let shown = format!("{client:?} {}", client.name());
    assert!(
        !shown.contains("hunter2") && !shown.contains("key123") && !shown.contains("token"),
        "{shown}"
    );
    assert!(Client::new("tcp://127.0.0.1:26657", ClientOptions::default()).is_ok());
    assert!(Endpoints::new::<&str>(&[], ClientOptions::default()).is_err());
}
