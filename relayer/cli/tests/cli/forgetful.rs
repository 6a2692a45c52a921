//! A node that keeps neither an index of transactions nor the results of blocks; everything else it asks another one.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};

/// Its address. It answers until the suite has ended.
pub(crate) fn forgetful(node: SocketAddr) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            // One that hangs up is none of its business.
            std::thread::spawn(move || drop(answer(&client, node)));
        }
    });
    url
}

/// One call of a connection.
fn answer(mut client: &TcpStream, node: SocketAddr) -> io::Result<()> {
    let body = body(client)?;
    let call: Value = serde_json::from_slice(&body)?;
    let refusal = match call["method"].as_str() {
        Some("tx") => "transaction indexing is disabled",
        Some("block_results") => "node is not persisting finalize block responses",
        _ => {
            let mut node = TcpStream::connect(node)?;
            write!(
                node,
                "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n",
                body.len()
            )?;
            node.write_all(&body)?;
            io::copy(&mut node, &mut client)?;
            return Ok(());
        }
    };
    let error = json!({ "code": -32603, "message": "Internal error", "data": refusal });
    let text = json!({ "jsonrpc": "2.0", "id": call["id"], "error": error }).to_string();
    write!(
        client,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

fn body(client: &TcpStream) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(client);
    let mut length = 0_usize;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}
