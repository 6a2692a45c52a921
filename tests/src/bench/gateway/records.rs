//! TLS records alone: a connection in memory whose server side opens requests and seals answers, as one beyond the
//! network would.

use std::io::{Cursor, Read as _, Write as _};
use std::sync::Arc;

use anyhow::{Result, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::host::thread_cpu_ns;

/// Nanoseconds of CPU that the server side takes for each of these requests, answered with `answer`.
///
/// # Errors
/// If a handshake or a record fails.
pub fn cost(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    requests: &[Vec<u8>],
    answer: &[u8],
) -> Result<u64> {
    let mut client = ClientConnection::new(client, ServerName::try_from("localhost")?)?;
    let mut server = ServerConnection::new(server)?;
    shake(&mut client, &mut server)?;
    // The client's side is not counted: its records are there before the clock runs.
    let mut sealed = Vec::new();
    for request in requests {
        client.writer().write_all(request)?;
        let mut record = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut record)?;
        }
        sealed.push(record);
    }
    let mut opened = vec![0; requests.iter().map(Vec::len).max().unwrap_or(0)];
    let mut out = Vec::with_capacity(answer.len() + 128);
    let before = thread_cpu_ns()?;
    for (record, request) in sealed.iter().zip(requests) {
        let mut record = Cursor::new(record);
        while usize::try_from(record.position())? < record.get_ref().len() {
            server.read_tls(&mut record)?;
        }
        server.process_new_packets()?;
        let mut read = 0;
        while read < request.len() {
            read += server.reader().read(opened.get_mut(read..).unwrap_or_default())?;
        }
        server.writer().write_all(answer)?;
        out.clear();
        while server.wants_write() {
            server.write_tls(&mut out)?;
        }
    }
    let spent = thread_cpu_ns()?.saturating_sub(before);
    ensure!(
        requests.last().is_none_or(|r| opened.starts_with(r)),
        "what was opened is not what was sealed"
    );
    Ok(spent / u64::try_from(requests.len().max(1))?)
}

fn shake(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<()> {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        while client.wants_write() {
            client.write_tls(&mut to_server)?;
        }
        let mut bytes = Cursor::new(std::mem::take(&mut to_server));
        while usize::try_from(bytes.position())? < bytes.get_ref().len() {
            server.read_tls(&mut bytes)?;
        }
        server.process_new_packets()?;
        while server.wants_write() {
            server.write_tls(&mut to_client)?;
        }
        let mut bytes = Cursor::new(std::mem::take(&mut to_client));
        while usize::try_from(bytes.position())? < bytes.get_ref().len() {
            client.read_tls(&mut bytes)?;
        }
        client.process_new_packets()?;
    }
    ensure!(
        !client.is_handshaking() && !server.is_handshaking(),
        "the handshake does not end"
    );
    Ok(())
}
