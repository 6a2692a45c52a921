use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::connection::Connection;
use super::{Gateway, router};
use crate::identity::PeerIdentity;

/// Largest request head.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// Accepts agents until `stop` turns true; then lets requests under way end within the configured time.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    gateway: Arc<Gateway>,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let slots = Arc::new(Semaphore::new(gateway.config.gateway.max_connections));
    let router = router::router(Arc::clone(&gateway));
    let mut connections = JoinSet::new();
    loop {
        // Without a free slot nothing is accepted: the kernel's queue holds the rest.
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
                let (gateway, acceptor, router) = (Arc::clone(&gateway), acceptor.clone(), router.clone());
                let stop = stop.clone();
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

async fn connection(
    stream: TcpStream,
    from: std::net::SocketAddr,
    acceptor: &TlsAcceptor,
    router: Router,
    gateway: &Gateway,
    mut stop: watch::Receiver<bool>,
) {
    let limits = &gateway.config.gateway;
    // Small answers should not wait for more.
    drop(stream.set_nodelay(true));
    let tls = match timeout(limits.handshake_timeout.duration(), acceptor.accept(stream)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(e)) => {
            gateway.metrics.handshakes_failed.inc();
            tracing::debug!(%from, error = %e, "TLS handshake failed");
            return;
        }
        Err(_) => {
            gateway.metrics.handshakes_failed.inc();
            tracing::debug!(%from, "TLS handshake took too long");
            return;
        }
    };
    let leaf = tls
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first());
    let peer = match leaf.map(|der| PeerIdentity::from_der(der)).transpose() {
        Ok(peer) => peer,
        Err(e) => {
            tracing::warn!(%from, "connection closed: {e}");
            return;
        }
    };
    // The time for a request's head runs from the end of the one before, so it is also the idle time:
    // long for nodes, which come every half minute, short for strangers.
    let idle = if peer.is_some() {
        limits.idle_timeout
    } else {
        limits.handshake_timeout
    };
    let info = Connection { from, peer };
    let service = service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(info.clone());
        router.call(request)
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(idle.duration())
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .half_close(false);
    let serving = http.serve_connection(TokioIo::new(tls), service);
    tokio::pin!(serving);
    let early = tokio::select! {
        ended = serving.as_mut() => Some(ended),
        () = stopped(&mut stop) => None,
    };
    let ended = match early {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!(%from, error = %e, "connection ended");
    }
}

/// Ends when the daemon stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop as well.
    drop(stop.wait_for(|s| *s).await);
}
