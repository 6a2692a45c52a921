//! A stand-in of an endpoint, for tests.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers each request, once a connection, with what `answer` says to its text; the connection breaks where that is none.
pub(crate) async fn endpoint(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                // Head and body may come apart.
                let (mut asked, mut buffer) = (String::new(), [0u8; 65_536]);
                while !asked.ends_with('}') {
                    let read = socket.read(&mut buffer).await.unwrap_or(0);
                    if read == 0 {
                        break;
                    }
                    asked.push_str(&String::from_utf8_lossy(&buffer[..read]));
                }
                let Some(body) = answer(&asked) else { return };
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                socket.write_all(head.as_bytes()).await.ok();
                socket.write_all(body.as_bytes()).await.ok();
            });
        }
    });
    url
}

/// An address at which nobody listens: no port that the system would give to another stand-in.
pub(crate) fn nobody() -> String {
    "http://127.0.0.1:1".to_owned()
}

/// Whether a request is for this method, or has this text in quotes otherwise.
pub(crate) fn asks(request: &str, text: &str) -> bool {
    request.contains(&format!("\"{text}\""))
}

/// The answer to `status` of a node of chain-1 that has the blocks from `lowest` to `height`.
pub(crate) fn status(lowest: u64, height: u64) -> Value {
    json!({ "result": {
        "node_info": { "network": "chain-1" },
        "sync_info": {
            "latest_block_height": height.to_string(), "latest_block_time": "2026-01-30T14:05:00Z",
            "earliest_block_height": lowest.to_string(), "catching_up": false
        }
    } })
}
