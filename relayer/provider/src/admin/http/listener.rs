use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::guard::Caller;
use super::{Api, routes};
use crate::gateway::Tls;
use crate::unread;

/// Connections at a time: more than there are places, whatever they wait for.
const MAX_CONNECTIONS: usize = 128;
/// TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// From the end of one request to the end of the next one's head.
const HEAD: Duration = Duration::from_secs(30);
/// Longest life of a connection.
const LIFE: Duration = Duration::from_secs(3600);
/// Largest request head.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// How long open requests may take once told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves the admin listener until `stop` turns true; with TLS where it is given, which is then the gateway's.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    api: Arc<Api>,
    mut stop: watch::Receiver<bool>,
) {
    let router = routes::router(api);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
            _ = stop.wait_for(|s| *s) => break,
        };
        match accepted {
            Ok((stream, from)) => {
                // Beyond the cap a connection is closed at once.
                if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                    let (router, tls) = (router.clone(), tls.clone());
                    open.spawn(async move {
                        if timeout(LIFE, connection(stream, from, tls, router))
                            .await
                            .is_err()
                        {
                            tracing::debug!(%from, "an admin connection has lived long enough");
                        }
                        drop(place);
                    });
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    let all = async { while open.join_next().await.is_some() {} };
    if timeout(DRAIN, all).await.is_err() {
        open.abort_all();
    }
}

async fn connection(stream: TcpStream, from: SocketAddr, tls: Option<Arc<Tls>>, router: Router) {
    let ip = from.ip().to_canonical();
    let Some(tls) = tls else {
        let caller = Caller {
            ip,
            certificate: false,
        };
        return talk(stream, caller, router).await;
    };
    let acceptor = TlsAcceptor::from(tls.current());
    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(tls)) => {
            let certificate = tls.get_ref().1.peer_certificates().is_some_and(|c| !c.is_empty());
            talk(tls, Caller { ip, certificate }, router).await;
        }
        Ok(Err(error)) => tracing::debug!(%from, %error, "an admin connection's TLS handshake failed"),
        Err(_) => tracing::debug!(%from, "an admin connection's TLS handshake did not end in time"),
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, caller: Caller, router: Router) {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(caller);
        let mut router = router.clone();
        unread::answered(request, async move |request| router.call(request).await)
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD_BYTES)
        .half_close(false);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "an admin connection ended");
    }
}
