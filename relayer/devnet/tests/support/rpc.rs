//! A raw JSON-RPC client: nothing that the server writes is interpreted on the way.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cosmrs::proto::traits::Message;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(crate) struct Rpc {
    pub(crate) addr: String,
}

/// Status and body of an HTTP answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }
}

impl Rpc {
    pub(crate) fn new(url: impl AsRef<str>) -> Self {
        Self {
            addr: url.as_ref().trim_start_matches("http://").to_string(),
        }
    }

    /// One HTTP/1.1 request on a connection of its own.
    pub(crate) fn http(&self, method: &str, path: &str, body: &[u8]) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(&self.addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.addr,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        // A server that refuses a large body early may close before all of it is written.
        drop(stream.write_all(body));
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let broken = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the answer is not whole");
        let split = bytes
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .ok_or_else(broken)?;
        let head = String::from_utf8_lossy(&bytes[..split]).to_lowercase();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .ok_or_else(broken)?;
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let body = bytes[split + 4..].to_vec();
        if length.is_some_and(|length| length != body.len()) {
            return Err(broken());
        }
        Ok(Answer { status, body })
    }

    /// The whole envelope.
    pub(crate) fn raw(&self, method: &str, params: &Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 17, "method": method, "params": params});
        let answer = self
            .http("POST", "/", request.to_string().as_bytes())
            .unwrap()
            .json();
        assert_eq!(answer["id"], 17, "{answer}");
        assert_eq!(answer["jsonrpc"], "2.0");
        answer
    }

    pub(crate) fn call(&self, method: &str, params: &Value) -> Value {
        let answer = self.raw(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Code, message and data of an expected error.
    pub(crate) fn error(&self, method: &str, params: &Value) -> (i64, String, String) {
        let answer = self.raw(method, params);
        let error = &answer["error"];
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_string();
        assert!(error["code"].is_i64(), "{method}: {answer}");
        (error["code"].as_i64().unwrap(), text("message"), text("data"))
    }

    pub(crate) fn broadcast(&self, tx: &[u8]) -> Value {
        self.call("broadcast_tx_sync", &json!({"tx": STANDARD.encode(tx)}))
    }

    pub(crate) fn broadcast_error(&self, tx: &[u8]) -> (i64, String, String) {
        self.error("broadcast_tx_sync", &json!({"tx": STANDARD.encode(tx)}))
    }

    pub(crate) fn tx(&self, tx: &[u8]) -> Value {
        self.call(
            "tx",
            &json!({"hash": STANDARD.encode(Sha256::digest(tx)), "prove": true}),
        )
    }

    /// The `response` of an `abci_query`.
    pub(crate) fn abci(&self, path: &str, request: &impl Message) -> Value {
        let data = hex::encode(request.encode_to_vec());
        self.call("abci_query", &json!({"path": path, "data": data, "prove": false}))["response"].clone()
    }

    /// The decoded value of an `abci_query` that must succeed.
    pub(crate) fn query<A: Message + Default>(&self, path: &str, request: &impl Message) -> A {
        let response = self.abci(path, request);
        assert_eq!(response["code"], 0, "{path}: {response}");
        let value = response["value"]
            .as_str()
            .map(|v| STANDARD.decode(v).unwrap())
            .unwrap_or_default();
        A::decode(value.as_slice()).unwrap()
    }
}

/// Hash of a transaction as the RPC writes it.
pub(crate) fn hash(tx: &[u8]) -> String {
    hex::encode_upper(Sha256::digest(tx))
}

/// The first attribute of that event and key.
pub(crate) fn attribute(result: &Value, event: &str, key: &str) -> Option<String> {
    let events = result["events"].as_array()?;
    events.iter().filter(|e| e["type"] == event).find_map(|e| {
        let found = e["attributes"].as_array()?.iter().find(|a| a["key"] == key)?;
        Some(found["value"].as_str()?.to_string())
    })
}
