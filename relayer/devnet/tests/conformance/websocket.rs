//! Subscriptions over the websocket.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::support::rpc::hash;
use crate::support::{Scene, scene, scene_with};

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(scene: &Scene) -> Self {
        Self(connect_async(scene.chain.websocket_url()).await.unwrap().0)
    }

    async fn send(&mut self, id: u64, method: &str, params: Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.0.send(Message::text(request.to_string())).await.unwrap();
    }

    /// The next JSON message.
    async fn next(&mut self) -> Value {
        loop {
            let message = tokio::time::timeout(Duration::from_secs(10), self.0.next())
                .await
                .unwrap();
            match message.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn call(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(id, method, params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

#[test]
fn a_waiting_client_gets_its_transaction_as_wasmd_gets_it() {
    run(async {
        let scene = scene();
        let messages = [scene.alice.send(&scene.bob.address(), &[(1, "stake")])];
        let (first, second) = (scene.alice.sign_next(&messages), scene.alice.sign_next(&messages));
        let mut socket = Socket::open(&scene).await;
        let query = format!("tm.event='Tx' AND tx.hash='{}'", hash(&second));
        let answer = socket.call(1, "subscribe", json!({"query": query})).await;
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        scene.accept(&first);
        scene.accept(&second);
        scene.chain.produce_block().unwrap();
        let event = socket.next().await;
        assert_eq!(event["id"], 1);
        let result = &event["result"];
        assert_eq!(result["query"], query);
        assert_eq!(result["data"]["type"], "tendermint/event/Tx");
        let tx = &result["data"]["value"]["TxResult"];
        assert_eq!((&tx["height"], &tx["index"]), (&json!("2"), &json!(1)));
        assert_eq!(tx["tx"], STANDARD.encode(&second));
        assert_eq!(tx["result"], scene.rpc.tx(&second)["tx_result"]);
        assert_eq!(result["events"]["tx.hash"], json!([hash(&second)]));
        assert_eq!(result["events"]["tm.event"], json!(["Tx"]));
        // Only that transaction, and nothing after unsubscribing.
        assert_eq!(
            socket.call(2, "unsubscribe_all", json!({})).await["result"],
            json!({})
        );
    });
}

#[test]
fn index_0_is_left_out_as_go_leaves_it_out() {
    run(async {
        let scene = scene();
        let mut socket = Socket::open(&scene).await;
        socket
            .call(1, "subscribe", json!({"query": "tm.event='Tx'"}))
            .await;
        let messages = [scene.alice.send(&scene.bob.address(), &[(1, "stake")])];
        scene.commit(&scene.alice.sign_next(&messages));
        let event = socket.next().await;
        assert!(
            event["result"]["data"]["value"]["TxResult"]
                .get("index")
                .is_none(),
            "{event}"
        );
    });
}

#[test]
fn every_block_is_announced_in_order_the_empty_ones_too() {
    run(async {
        let scene = scene();
        let mut socket = Socket::open(&scene).await;
        socket
            .call(7, "subscribe", json!({"query": "tm.event='NewBlock'"}))
            .await;
        for height in 2..=5 {
            scene.chain.produce_block().unwrap();
            let event = socket.next().await;
            assert_eq!(event["id"], 7);
            let data = &event["result"]["data"];
            assert_eq!(data["type"], "tendermint/event/NewBlock");
            let by_call = scene.rpc.call("block", &json!({"height": height.to_string()}));
            assert_eq!(data["value"]["block"], by_call["block"]);
            assert_eq!(data["value"]["block_id"], by_call["block_id"]);
            assert!(data["value"]["result_finalize_block"].is_object());
        }
    });
}

#[test]
fn open_websockets_are_bounded_and_freed() {
    run(async {
        let scene = scene_with(|config| config.limits.websockets = 2);
        let first = Socket::open(&scene).await;
        let _second = Socket::open(&scene).await;
        let third = connect_async(scene.chain.websocket_url()).await;
        assert!(third.is_err_and(|error| error.to_string().contains("503")));
        drop(first);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while connect_async(scene.chain.websocket_url()).await.is_err() {
            assert!(
                tokio::time::Instant::now() < deadline,
                "a closed websocket is not freed"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn subscriptions_are_bounded_unique_and_can_be_given_up() {
    run(async {
        let scene = scene();
        let mut socket = Socket::open(&scene).await;
        let data = |answer: &Value| answer["error"]["data"].as_str().unwrap_or_default().to_string();
        let none = socket.call(1, "unsubscribe_all", json!({})).await;
        assert_eq!(data(&none), "subscription not found");
        for n in 0..5 {
            let query = format!("tm.event='Tx' AND tx.height={n}");
            assert_eq!(
                socket.call(n, "subscribe", json!({"query": query})).await["result"],
                json!({})
            );
        }
        let sixth = socket
            .call(9, "subscribe", json!({"query": "tm.event='NewBlock'"}))
            .await;
        assert_eq!(data(&sixth), "max_subscriptions_per_client 5 reached");
        let query = json!({"query": "tm.event='Tx' AND tx.height=1"});
        assert_eq!(
            socket.call(10, "unsubscribe", query.clone()).await["result"],
            json!({})
        );
        assert_eq!(
            data(&socket.call(11, "unsubscribe", query).await),
            "subscription not found"
        );
        let again = socket
            .call(12, "subscribe", json!({"query": "tm.event='Tx' AND tx.height=2"}))
            .await;
        assert_eq!(data(&again), "already subscribed");
        for query in [
            "tm.event='Vote'",
            "tx.height=3",
            "tm.event='NewBlock' AND tx.height=3",
            "nonsense",
        ] {
            let refused = socket.call(13, "subscribe", json!({"query": query})).await;
            assert!(data(&refused).starts_with("failed to parse query"), "{refused}");
        }
    });
}

#[test]
fn all_methods_work_over_the_websocket_and_broken_json_is_answered() {
    run(async {
        let scene = scene();
        let mut socket = Socket::open(&scene).await;
        let status = socket.call(1, "status", json!({})).await;
        assert_eq!(status["result"], scene.rpc.call("status", &json!({})));
        let unknown = socket.call(2, "nope", json!({})).await;
        assert_eq!(unknown["error"]["code"], -32601);
        socket.0.send(Message::text("{")).await.unwrap();
        assert_eq!(socket.next().await["error"]["code"], -32700);
        socket.0.close(None).await.unwrap();
        // The closing handshake is completed, or clients take it for a failure and connect again.
        assert!(matches!(
            socket.0.next().await,
            Some(Ok(Message::Close(_))) | None
        ));
    });
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_the_chain_goes_on() {
    run(async {
        let mut scene = scene_with(|config| config.limits.mempool_txs = 10_000);
        let mut socket = Socket::open(&scene).await;
        for n in 0..5 {
            // Five subscriptions that all match, so that the buffers of the connection fill soon.
            let query = format!("tm.event='Tx' AND tx.height>{n}");
            socket.call(n, "subscribe", json!({"query": query})).await;
        }
        scene.alice.memo = "x".repeat(256);
        let bob = scene.bob.address();
        let messages = vec![scene.alice.send(&bob, &[(1, "stake")]); 100];
        scene.alice.gas = 5_000_000;
        for _ in 0..300 {
            let tx = scene.alice.sign_next(&messages);
            scene.accept(&tx);
            scene.chain.produce_block().unwrap();
        }
        assert_eq!(scene.balance(&bob), 1_000_030_000);
        // What was buffered can still be read; then the connection ends.
        let drained = tokio::time::timeout(Duration::from_secs(30), async {
            while let Some(Ok(message)) = socket.0.next().await {
                if matches!(message, Message::Close(_)) {
                    break;
                }
            }
        });
        drained.await.unwrap();
    });
}
