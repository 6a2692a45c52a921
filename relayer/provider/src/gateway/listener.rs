use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
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

use super::budget::network;
use super::connection::Connection;
use super::pace::{Limits, Overdue, Paced, Phase};
use super::tls::Tls;
use super::{Gateway, router};
use crate::identity::PeerIdentity;
use crate::{clock, enrol};

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
                let acceptor = TlsAcceptor::from(tls.current());
                let (gateway, router, stop) = (Arc::clone(&gateway), router.clone(), stop.clone());
                connections.spawn(async move {
                    gateway.metrics.connections.inc();
                    connection(stream, from, &acceptor, router, &gateway, stop).await;
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
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(gateway.config.stop.intake.duration(), all).await.is_err() {
        connections.abort_all();
    }
}

/// One connection: a stranger until its handshake has shown a certificate.
async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    acceptor: &TlsAcceptor,
    router: Router,
    gateway: &Arc<Gateway>,
    stop: watch::Receiver<bool>,
) {
    let live = gateway.live.get();
    let limits = &live.gateway;
    let (mut place, victim) = gateway.strangers.take(network(from.ip()));
    if let Some(victim) = victim {
        gateway.metrics.connections_evicted.inc();
        gateway.log_once(victim, "more connections without a certificate than it may have");
    }
    // Small answers should not wait for more.
    drop(stream.set_nodelay(true));
    let shaken = tokio::select! {
        shaken = timeout(limits.handshake_timeout.duration(), acceptor.accept(stream)) => shaken,
        () = place.taken() => return,
    };
    let tls = match shaken {
        Ok(Ok(tls)) => tls,
        Ok(Err(e)) => {
            gateway.metrics.handshakes_failed.inc();
            tracing::debug!(%from, error = %e, "TLS handshake failed");
            gateway.log_once(from.ip(), "a TLS handshake that fails");
            return;
        }
        Err(_) => {
            gateway.metrics.handshakes_failed.inc();
            gateway.log_once(from.ip(), "a TLS handshake that does not end in time");
            return;
        }
    };
    match peer_of(&tls) {
        Err(e) => {
            tracing::debug!(%from, "connection closed: {e}");
            gateway.log_once(from.ip(), "a certificate that names no node");
        }
        Ok(None) => {
            let time = Limits {
                idle: limits.handshake_timeout.duration(),
                head: limits.header_timeout.duration(),
            };
            let info = Connection { from, peer: None };
            let ended = async move { place.taken().await };
            talk(tls, info, router, gateway, time, ended, stop).await;
        }
        Ok(Some(peer)) => {
            let peer = Arc::new(peer);
            drop(place);
            note_outside(gateway, &tls, &peer).await;
            let (mut place, victim) = gateway
                .members
                .take((peer.cluster_id.clone(), peer.node_id.clone()));
            if let Some((cluster, node)) = victim {
                gateway.metrics.connections_evicted.inc();
                tracing::debug!(%cluster, %node, "the node's oldest connection is closed for a newer one");
            }
            let time = Limits {
                idle: limits.idle_timeout.duration(),
                head: limits.header_timeout.duration(),
            };
            let info = Connection {
                from,
                peer: Some(Arc::clone(&peer)),
            };
            let ended = async move {
                tokio::select! {
                    () = place.taken() => {}
                    () = counts_no_more(gateway, &peer) => {}
                }
            };
            talk(tls, info, router, gateway, time, ended, stop).await;
        }
    }
}

fn peer_of(tls: &TlsStream<TcpStream>) -> Result<Option<PeerIdentity>, crate::identity::PeerError> {
    let chain = tls.get_ref().1.peer_certificates();
    let leaf = chain.and_then(|chain| chain.first());
    leaf.map(|der| PeerIdentity::from_der(der)).transpose()
}

/// What an outside CA has issued to a node on record is noted, so that it can be revoked.
async fn note_outside(gateway: &Gateway, tls: &TlsStream<TcpStream>, peer: &PeerIdentity) {
    let chain = tls.get_ref().1.peer_certificates();
    let Some(leaf) = chain.and_then(|chain| chain.first()) else {
        return;
    };
    let known = gateway.registry.node(&peer.cluster_id, &peer.node_id).is_some();
    if known
        && !gateway.ca().is_issuer_of(leaf)
        && let Err(error) = enrol::record_outside(&gateway.store, peer, clock::now()).await
    {
        tracing::warn!(%error, node = %peer.node_id, "a certificate of an outside CA is not on record; it cannot be revoked");
    }
}

/// Ends when an operator's decision concerns this certificate. A request gets to know why; an idle connection just ends.
async fn counts_no_more(gateway: &Gateway, peer: &PeerIdentity) {
    let mut changes = gateway.controls.changes();
    loop {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
        if gateway.controls.is_revoked(&peer.serial) {
            tracing::info!(cluster = %peer.cluster_id, node = %peer.node_id, serial = %peer.serial,
                "a connection with a revoked certificate is closed");
            return;
        }
    }
}

/// HTTP on a connection, until it ends, its time is over, or its place is needed.
async fn talk(
    tls: TlsStream<TcpStream>,
    info: Connection,
    router: Router,
    gateway: &Arc<Gateway>,
    time: Limits,
    ended: impl Future<Output = ()>,
    mut stop: watch::Receiver<bool>,
) {
    let from = info.from;
    let phase = Arc::new(Phase::default());
    let service = {
        let phase = Arc::clone(&phase);
        service_fn(move |request: Request<Incoming>| {
            phase.serving();
            let (phase, gateway) = (Arc::clone(&phase), Arc::clone(gateway));
            let (router, info) = (router.clone(), info.clone());
            async move {
                let response = router::answer(&gateway, router, info, request.map(Body::new)).await;
                phase.idle();
                Ok::<_, Infallible>(response)
            }
        })
    };
    let mut http = hyper::server::conn::http1::Builder::new();
    http.header_read_timeout(None)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .half_close(false);
    let stream = Paced::new(tls, Arc::clone(&phase));
    let serving = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::pin!(ended);
    let mut overdue = Overdue::new(phase, time);
    let mut stopping = false;
    loop {
        // In this order: whoever serves says first what phase it is.
        tokio::select! {
            biased;
            over = serving.as_mut() => {
                if let Err(e) = over {
                    tracing::debug!(%from, error = %e, "connection ended");
                }
                return;
            }
            what = &mut overdue => {
                gateway.log_once(from.ip(), what);
                return;
            }
            () = ended.as_mut() => return,
            () = stopped(&mut stop), if !stopping => {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Ends when the daemon stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop as well.
    drop(stop.wait_for(|s| *s).await);
}
