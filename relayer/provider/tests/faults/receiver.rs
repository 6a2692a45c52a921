//! A receiver of alerts that fails, hangs and restarts as told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hpc_schema::time::Rfc3339;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What it does with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Takes,
    Fails,
    Hangs,
    /// It calls the first message that ever came unfit, and takes the others.
    RefusesFirst,
}

/// A delivery.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) taken: bool,
    pub(crate) id: String,
    pub(crate) signature: String,
    pub(crate) text: String,
    pub(crate) body: Value,
}

#[derive(Debug)]
struct Inner {
    mode: Mode,
    got: Vec<Got>,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    addr: SocketAddr,
    inner: Arc<Mutex<Inner>>,
    task: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start(mode: Mode) -> Self {
        let inner = Arc::new(Mutex::new(Inner {
            mode,
            got: Vec::new(),
        }));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (addr, task) = serve(any, Arc::clone(&inner)).await;
        Self { addr, inner, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.inner.lock().unwrap().mode = mode;
    }

    /// Ends, with every open connection, and comes up again at the same address.
    pub(crate) async fn restart(&mut self, mode: Mode) {
        self.task.abort();
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.set(mode);
        self.task = serve(self.addr, Arc::clone(&self.inner)).await.1;
    }

    /// Everything that arrived.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.inner.lock().unwrap().got.clone()
    }

    /// Deliveries that were taken, each id once: what a receiver has that keeps to the protocol.
    pub(crate) fn taken(&self) -> Vec<Got> {
        let mut taken: Vec<Got> = Vec::new();
        for got in self.got().into_iter().filter(|g| g.taken) {
            match taken.iter().find(|g| g.id == got.id) {
                Some(same) => assert_eq!(same.text, got.text, "the same bytes under the same id"),
                None => taken.push(got),
            }
        }
        taken
    }
}

async fn serve(addr: SocketAddr, inner: Arc<Mutex<Inner>>) -> (SocketAddr, JoinHandle<()>) {
    let until = Instant::now() + Duration::from_secs(60);
    let listener = loop {
        match TcpListener::bind(addr).await {
            Ok(listener) => break listener,
            Err(e) => assert!(Instant::now() < until, "{addr}: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let addr = listener.local_addr().unwrap();
    let router = Router::new().fallback(take).with_state(inner);
    let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (addr, task)
}

/// Whether an Alertmanager would take this, if it is for one: labels that say something, a beginning and an end that are
/// times, and in this order.
fn is_fit(body: &Value) -> bool {
    let Some(alerts) = body.as_array() else {
        return true;
    };
    alerts.iter().all(|alert| {
        let time = |name: &str| {
            let time: Rfc3339 = alert[name].as_str()?.parse().ok()?;
            Some((time.seconds(), time.subsec_nanos()))
        };
        let labels = alert["labels"].as_object();
        let named = labels.is_some_and(|labels| {
            !labels.is_empty() && labels.values().all(|v| v.as_str().is_some_and(|v| !v.is_empty()))
        });
        let in_order =
            matches!((time("startsAt"), time("endsAt")), (Some(starts), Some(ends)) if starts <= ends);
        named && in_order
    })
}

async fn take(State(inner): State<Arc<Mutex<Inner>>>, headers: HeaderMap, text: String) -> StatusCode {
    let header = |name: &str| {
        headers
            .get(name)
            .map_or_else(String::new, |v| v.to_str().unwrap().to_owned())
    };
    let body: Value = serde_json::from_str(&text).unwrap();
    let fit = is_fit(&body);
    let mode = {
        let mut inner = inner.lock().unwrap();
        let mode = inner.mode;
        let id = header("x-virtengine-delivery");
        let mode = match (mode, inner.got.first()) {
            (Mode::RefusesFirst, Some(first)) if first.id != id => Mode::Takes,
            (mode, _) => mode,
        };
        inner.got.push(Got {
            taken: mode == Mode::Takes && fit,
            id,
            signature: header("x-virtengine-signature"),
            body,
            text,
        });
        mode
    };
    match mode {
        Mode::Takes if !fit => StatusCode::BAD_REQUEST,
        Mode::Takes => StatusCode::NO_CONTENT,
        Mode::Fails => StatusCode::INTERNAL_SERVER_ERROR,
        Mode::RefusesFirst => StatusCode::UNPROCESSABLE_ENTITY,
        Mode::Hangs => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            StatusCode::OK
        }
    }
}
