use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::beside::{Beside, News, Word};
use super::budget::Held;
use super::connection::Connection;
use super::handshake::failed;
use super::overdue::Limits;
use super::pace::Paced;
use super::places::{member, stranger};
use super::shown::{Shown, Trusting, distrusted, note_outside, shown};
use super::tls::Tls;
use super::turns::Turns;
use super::{Gateway, router};
use crate::clock;

/// Largest request head that the HTTP layer reads; what is smaller and still too large is refused with a code.
const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_HEADERS: usize = 128;
/// Connections that are being closed while their places are taken already.
const SLACK: usize = 256;

/// Accepts agents until `stop` turns true; then lets requests under way end within the configured time.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<Tls>,
    gateway: Arc<Gateway>,
    mut stop: watch::Receiver<bool>,
) {
    let limits = &gateway.config.gateway;
    // Places are given up rather than refused, so this is reached only while connections are being closed.
    let slots = Arc::new(Semaphore::new(
        limits.max_connections + limits.max_anonymous + SLACK,
    ));
    let router = router::router(Arc::clone(&gateway));
    let mut connections = JoinSet::new();
    loop {
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            () = stopped(&mut stop) => break,
        };
        let Ok(slot) = slot else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, from)) => {
                // Before the TLS configuration: what changes between the two is heard of.
                let trusting = gateway.trusting();
                let acceptor = TlsAcceptor::from(tls.current());
                let (gateway, router, stop) = (Arc::clone(&gateway), router.clone(), stop.clone());
                connections.spawn(async move {
                    gateway.metrics.connections.inc();
                    connection(stream, from, (acceptor, trusting), router, &gateway, stop).await;
                    gateway.metrics.connections.dec();
                    drop(slot);
                });
            }
            Err(e) => {
                // Out of file descriptors, most likely: some will close.
                tracing::warn!(error = %e, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    gateway.waiting.end();
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(gateway.config.stop.intake.duration(), all).await.is_err() {
        connections.abort_all();
    }
}

/// One connection: a stranger until its handshake has shown a certificate that counts.
async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    by: (TlsAcceptor, Trusting),
    router: Router,
    gateway: &Arc<Gateway>,
    stop: watch::Receiver<bool>,
) {
    // What a handshake needs is given back before a connection that may wait for hours begins to.
    if let Some(met) = Box::pin(meet(stream, from, by, gateway)).await {
        talk(met, router, gateway, stop).await;
    }
}

/// A connection whose other end is known.
struct Met<'a> {
    tls: Box<TlsStream<TcpStream>>,
    info: Arc<Connection>,
    time: Limits,
    /// When its place is needed, or its certificate or that one's CA counts no more.
    ended: Word<'a, Outside>,
}

async fn meet(
    stream: TcpStream,
    from: SocketAddr,
    (acceptor, trusting): (TlsAcceptor, Trusting),
    gateway: &Arc<Gateway>,
) -> Option<Met<'_>> {
    let live = gateway.live.get();
    let limits = &live.gateway;
    let mut place = stranger(gateway, from.ip());
    // Small answers should not wait for more.
    drop(stream.set_nodelay(true));
    let shaken = tokio::select! {
        shaken = timeout(limits.handshake_timeout.duration(), acceptor.accept(stream)) => shaken,
        () = place.taken() => return None,
    };
    let tls = match shaken {
        Ok(Ok(tls)) => Box::new(tls),
        Ok(Err(e)) => {
            gateway.metrics.handshakes_failed.inc();
            tracing::debug!(%from, error = %e, "TLS handshake failed");
            gateway.log_once(from.ip(), failed(&e));
            return None;
        }
        Err(_) => {
            gateway.metrics.handshakes_failed.inc();
            gateway.log_once(from.ip(), "a TLS handshake that does not end in time");
            return None;
        }
    };
    let head = limits.header_timeout.duration();
    match shown(&tls) {
        Err(e) => {
            tracing::debug!(%from, "connection closed: {e}");
            gateway.log_once(from.ip(), "a certificate that names no node");
            None
        }
        Ok(None) => Some(Met {
            tls,
            info: Arc::new(Connection::bare(from)),
            time: Limits {
                idle: limits.handshake_timeout.duration(),
                head,
            },
            ended: Box::pin(async move {
                place.taken().await;
                Outside::Ended
            }),
        }),
        Ok(Some(Shown { peer, issuer, chain })) => {
            let peer = Arc::new(peer);
            drop(place);
            // What is revoked from here on ends the connection, what was before is told to its first request.
            let revocations = gateway.controls.revocations();
            let noted = note_outside(gateway, &peer, &issuer, from.ip()).await;
            let known = Arc::clone(&peer);
            let now = clock::now();
            let info = Arc::new(Connection::shows(from, peer, noted, now));
            let refused = info.refused;
            // With one that does not count it stays a stranger, and takes no place of its node's.
            let counts = info.member(gateway, now).is_some();
            let idle = if counts && refused.is_none() {
                limits.idle_timeout
            } else {
                limits.handshake_timeout
            };
            let taken: Held = if counts {
                member(gateway, &known).held()
            } else {
                stranger(gateway, from.ip()).held()
            };
            Some(Met {
                tls,
                info,
                time: Limits {
                    idle: idle.duration(),
                    head,
                },
                ended: Box::pin(async move {
                    tokio::select! {
                        () = taken => {}
                        // One that is refused from the start is told why instead.
                        () = gateway.controls.revokes(&known, revocations), if refused.is_none() => {}
                        () = distrusted(&chain, &known, trusting) => {}
                    }
                    Outside::Ended
                }),
            })
        }
    }
}

/// What a connection may be told from outside.
enum Outside {
    /// That it is no more.
    Ended,
    /// To end with the request under way.
    Stopping,
}

/// HTTP on a connection, until it ends, its time is over, or its place is needed.
async fn talk(met: Met<'_>, router: Router, gateway: &Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let Met {
        tls,
        info,
        time,
        ended,
    } = met;
    let from = info.from;
    let pace = Arc::clone(&info.pace);
    let service = {
        let gateway = Arc::clone(gateway);
        service_fn(move |request: Request<Incoming>| {
            info.pace.serving();
            let answer = router::answer(&gateway, &router, &info, request);
            let info = Arc::clone(&info);
            async move {
                let response = answer.await;
                info.pace.idle();
                Ok::<_, Infallible>(response)
            }
        })
    };
    let mut http = hyper::server::conn::http1::Builder::new();
    http.header_read_timeout(None)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .half_close(false);
    let stream = Paced::new(tls, Arc::clone(&pace));
    let serving = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let stopping: Word<'_, Outside> = Box::pin(async move {
        stopped(&mut stop).await;
        Outside::Stopping
    });
    let turns = Turns::new(&pace);
    let mut beside = Beside::new(pace, time, vec![ended, stopping]);
    loop {
        // In this order: whoever serves says first what phase it is, and what it has to wait for.
        tokio::select! {
            biased;
            over = poll_fn(|cx| turns.poll(serving.as_mut(), cx)) => {
                if let Err(e) = over {
                    tracing::debug!(%from, error = %e, "connection ended");
                }
                return;
            }
            news = poll_fn(|cx| beside.poll(cx)) => match news {
                News::Overdue(what) => {
                    gateway.log_once(from.ip(), what);
                    return;
                }
                News::Late => {}
                News::Word(Outside::Ended) => return,
                News::Word(Outside::Stopping) => serving.as_mut().graceful_shutdown(),
            },
        }
    }
}

/// Ends when the daemon stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop as well.
    drop(stop.wait_for(|s| *s).await);
}
