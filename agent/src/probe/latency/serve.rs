//! The responder's socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::Responder;
use super::packet::HELLO;
use super::responder::Known;

/// Opens the port: on `address`, or on all of IPv6 and IPv4 (IPv4 alone where the kernel has no IPv6).
///
/// # Errors
/// The port is taken, or may not be opened.
pub async fn bind(address: Option<IpAddr>, port: u16) -> io::Result<UdpSocket> {
    match address {
        Some(address) => UdpSocket::bind(SocketAddr::new(address, port)).await,
        None => match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).await {
            Err(e) if e.kind() != io::ErrorKind::AddrInUse => {
                UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).await
            }
            other => other,
        },
    }
}

/// Answers until the task is ended. `known` holds the keys that the gateway named last.
pub async fn serve(
    socket: UdpSocket,
    mut responder: Responder,
    known: watch::Receiver<Known>,
    unix: fn() -> u64,
) {
    let mut buffer = [0u8; HELLO + 1];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((n, from)) => {
                let answer = buffer
                    .get(..n)
                    .and_then(|b| responder.answer(b, from, &known.borrow(), Instant::now(), unix()));
                if let Some(answer) = answer {
                    // A full socket loses it, as the network may.
                    socket.try_send_to(&answer, from).ok();
                }
            }
            // An error report for an earlier answer. A broken socket must not spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
