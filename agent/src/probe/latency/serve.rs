//! The responder's socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_ipv6_v6only;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::packet::HELLO;
use super::responder::{Known, Reply, Responder};
use crate::key::SharedSigner;

/// Opens the port: on `address`, or on all of IPv6 and IPv4 (IPv4 alone where the kernel has no IPv6).
///
/// # Errors
/// The port is taken, or may not be opened.
pub async fn bind(address: Option<IpAddr>, port: u16) -> io::Result<UdpSocket> {
    match address {
        Some(address) => UdpSocket::bind(SocketAddr::new(address, port)).await,
        None => match bind_both(port) {
            Err(e) if e.kind() != io::ErrorKind::AddrInUse => {
                UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).await
            }
            other => other,
        },
    }
}

/// One socket for IPv6 and IPv4, also where the host makes those of IPv6 its own (`net.ipv6.bindv6only`).
fn bind_both(port: u16) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None)?;
    set_ipv6_v6only(&fd, false)?;
    rustix::net::bind(&fd, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    UdpSocket::from_std(fd.into())
}

/// Answers until the task is ended; `key` signs welcomes beside everything else. `known` holds the keys that the
/// gateway named last.
pub async fn serve(
    socket: UdpSocket,
    mut responder: Responder,
    key: watch::Receiver<SharedSigner>,
    known: watch::Receiver<Known>,
    unix: fn() -> u64,
) {
    let mut buffer = [0u8; HELLO + 1];
    // Bounded by the responder.
    let mut signing = JoinSet::new();
    loop {
        let (answer, to) = tokio::select! {
            received = socket.recv_from(&mut buffer) => match received {
                Ok((n, from)) => {
                    let reply = buffer
                        .get(..n)
                        .and_then(|b| responder.answer(b, from, &known.borrow(), Instant::now(), unix()));
                    match reply {
                        Some(Reply::Send(answer)) => (answer, from),
                        Some(Reply::Sign(welcome)) => {
                            let key = Arc::clone(&key.borrow());
                            signing.spawn(async move {
                                let signature = key.sign(&welcome.message()).await;
                                (welcome, signature)
                            });
                            continue;
                        }
                        None => continue,
                    }
                }
                // An error report for an earlier answer. A broken socket must not spin.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            Some(Ok((welcome, signature))) = signing.join_next() => {
                let to = welcome.from();
                let Ok(signature) = signature else {
                    responder.forget(&welcome);
                    continue;
                };
                match responder.welcome(*welcome, &signature, Instant::now()) {
                    Some(answer) => (answer, to),
                    None => continue,
                }
            }
        };
        // A full socket loses it, as the network may.
        socket.try_send_to(&answer, to).ok();
    }
}
