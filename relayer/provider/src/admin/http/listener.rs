use std::net::{IpAddr, SocketAddr};
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
use crate::admission::network;
use crate::clock;
use crate::gateway::{Budget, Held, Seldom, Tls, failed};
use crate::unread;

/// Connections at a time that have not shown a credential that counts. A newcomer always gets in: the oldest of the address that
/// has the most goes.
const STRANGERS: usize = 128;
/// The same of those that have, by credential: more than there are places, whatever they wait for.
const KNOWN: usize = 128;
/// Connections that are being closed while their places are taken already.
const SLACK: usize = 32;
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

/// Places of connections, and who hears of them.
struct Doors {
    api: Arc<Api>,
    strangers: Arc<Budget<IpAddr>>,
    known: Arc<Budget<String>>,
    crowded: Seldom,
}

impl Doors {
    /// A place of an address.
    fn stranger(&self, from: IpAddr) -> Held {
        let (place, victim) = self.strangers.take(network(from));
        if let Some(victim) = victim {
            self.api.log_once(
                victim,
                "more admin connections without a credential than it may have",
            );
        }
        place.held()
    }

    /// A place of a credential.
    fn known(&self, from: IpAddr, credential: String) -> Held {
        let (place, victim) = self.known.take(credential);
        if let Some(credential) = victim
            && let Some(others) = self.crowded.note(clock::steady())
        {
            tracing::warn!(%credential, %from, others,
                "an admin connection of this credential is closed for a newer one; others since the last such line");
        }
        place.held()
    }
}

/// Serves the admin listener until `stop` turns true; with TLS where it is given, which is then the gateway's.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    api: Arc<Api>,
    mut stop: watch::Receiver<bool>,
) {
    let router = routes::router(Arc::clone(&api));
    let doors = Arc::new(Doors {
        api,
        strangers: Budget::new(STRANGERS, STRANGERS),
        known: Budget::new(KNOWN, KNOWN),
        crowded: Seldom::new(),
    });
    // Places are given up rather than refused, so this is reached only while connections are being closed.
    let slots = Arc::new(Semaphore::new(STRANGERS + KNOWN + SLACK));
    let mut open = JoinSet::new();
    loop {
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            _ = stop.wait_for(|s| *s) => break,
        };
        let Ok(slot) = slot else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|s| *s) => break,
        };
        while open.try_join_next().is_some() {}
        match accepted {
            Ok((stream, from)) => {
                let (router, tls, doors) = (router.clone(), tls.clone(), Arc::clone(&doors));
                // Here, not in its task: places are in the order in which connections came.
                let place = doors.stranger(from.ip().to_canonical());
                open.spawn(async move {
                    if timeout(LIFE, connection(stream, from, tls, place, router, &doors))
                        .await
                        .is_err()
                    {
                        tracing::debug!(%from, "an admin connection has lived long enough");
                    }
                    drop(slot);
                });
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

/// One connection: a stranger until a request has shown a credential that counts.
async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    tls: Option<Arc<Tls>>,
    mut place: Held,
    router: Router,
    doors: &Doors,
) {
    let ip = from.ip().to_canonical();
    let Some(tls) = tls else {
        return talk(stream, (ip, false), place, router, doors).await;
    };
    let acceptor = TlsAcceptor::from(tls.current());
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE, acceptor.accept(stream)) => shaken,
        () = &mut place => return,
    };
    match shaken {
        Ok(Ok(tls)) => {
            let certificate = tls.get_ref().1.peer_certificates().is_some_and(|c| !c.is_empty());
            talk(tls, (ip, certificate), place, router, doors).await;
        }
        Ok(Err(error)) => {
            tracing::debug!(%from, %error, "an admin connection's TLS handshake failed");
            doors.api.log_once(ip, failed(&error));
        }
        Err(_) => doors.api.log_once(
            ip,
            "a TLS handshake at the admin listener that does not end in time",
        ),
    }
}

/// HTTP on a connection, until it ends or its place is needed.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    (ip, certificate): (IpAddr, bool),
    mut place: Held,
    router: Router,
    doors: &Doors,
) {
    let (credential, mut shown) = watch::channel(None);
    let caller = Caller {
        ip,
        certificate,
        credential,
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(caller.clone());
        let mut router = router.clone();
        unread::answered(request, async move |request| router.call(request).await)
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD_BYTES)
        .half_close(false);
    let serving = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    loop {
        // In this order: whoever has just shown a credential is no stranger any more.
        tokio::select! {
            biased;
            over = serving.as_mut() => {
                if let Err(error) = over {
                    tracing::debug!(%ip, %error, "an admin connection ended");
                    if error.is_timeout() && shown.borrow().is_none() {
                        let what = "an admin connection without a credential on which no request comes in time";
                        doors.api.log_once(ip, what);
                    }
                }
                return;
            }
            Ok(()) = shown.changed() => {
                let last = shown.borrow_and_update().clone();
                if let Some(credential) = last {
                    place = doors.known(ip, credential);
                }
            }
            () = &mut place => return,
        }
    }
}
