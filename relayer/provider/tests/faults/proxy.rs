//! A scriptable proxy in front of an RPC port. It knows JSON-RPC over POST and nothing else: a client that asks for the
//! websocket has to poll.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// What becomes of a call.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It arrives, and no answer ever comes.
    NoAnswer,
    /// It does not arrive, and no answer ever comes.
    Swallow,
    /// It arrives, and the connection breaks.
    Reset,
    /// The connection breaks before it arrives.
    ResetBefore,
    /// It arrives twice; the second answer comes.
    Twice,
    /// It arrives; this answer comes instead.
    ArrivesAnd(Value),
    /// It does not arrive; this answer comes.
    Instead(Value),
    /// It arrives; in the bytes that a query gave, this stands for that, which has the same length.
    Replaced(&'static str, &'static str),
    /// It does not arrive and this answer comes, if the call's parameters have more characters than this; others pass.
    IfLonger(usize, Value),
}

/// The name under which a call is scripted: queries by their path.
pub(crate) const SIMULATE: &str = "/cosmos.tx.v1beta1.Service/Simulate";

/// The same of questions to a contract.
pub(crate) const SMART: &str = "/cosmwasm.wasm.v1.Query/SmartContractState";

/// What a query that fails answers.
pub(crate) fn query_fails(code: u32, log: &str) -> Value {
    json!({ "result": { "response": { "code": code, "log": log, "codespace": "sdk", "height": "0" } } })
}

/// A JSON-RPC error with this text, as CometBFT gives it.
pub(crate) fn error(data: &str) -> Value {
    json!({ "error": { "code": -32603, "message": "Internal error", "data": data } })
}

/// What CheckTx answers.
pub(crate) fn check_tx(code: u32, log: &str) -> Value {
    json!({ "result": { "code": code, "data": "", "log": log, "codespace": "sdk", "hash": "" } })
}

#[derive(Debug, Default)]
struct Script {
    /// For the next calls of a method, in order.
    next: HashMap<String, VecDeque<Fault>>,
    /// For every call of a method that nothing else is said of.
    always: HashMap<String, Fault>,
    /// Every answer is that of the moment when it froze.
    frozen: bool,
    /// Added to the block time in `status`, seconds.
    skew: i64,
    /// Chain id in `status`, instead of its own.
    chain_id: Option<String>,
    /// It says in `status` that it keeps no index, and answers so.
    index_off: bool,
    /// The newest answer to each question.
    last: HashMap<String, Value>,
    /// Bytes of every transaction that was offered, base64.
    offered: Vec<String>,
    /// How long each simulation's question was, in characters.
    simulated: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    addr: SocketAddr,
    script: Arc<Mutex<Script>>,
    task: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if Arc::strong_count(&self.script) <= 2 {
            self.task.abort();
        }
    }
}

impl Proxy {
    pub(crate) async fn start(upstream: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(Script::default()));
        let shared = Arc::clone(&script);
        let http = hpc_chain::http::client(&upstream, Duration::from_secs(60), None).unwrap();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, http, upstream) = (Arc::clone(&shared), http.clone(), upstream.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let (script, http, upstream) = (Arc::clone(&script), http.clone(), upstream.clone());
                        async move { answer(&script, &http, &upstream, request).await }
                    });
                    // A reset is an error of the service, and ends the connection.
                    drop(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        Self {
            addr,
            script,
            task: task.abort_handle(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What becomes of the next calls of a method.
    pub(crate) fn next(&self, method: &str, faults: impl IntoIterator<Item = Fault>) {
        let mut script = self.script.lock().unwrap();
        script.next.entry(method.to_owned()).or_default().extend(faults);
    }

    /// What becomes of every call of a method from here on.
    pub(crate) fn always(&self, method: &str, fault: Option<Fault>) {
        let mut script = self.script.lock().unwrap();
        match fault {
            Some(fault) => script.always.insert(method.to_owned(), fault),
            None => script.always.remove(method),
        };
    }

    pub(crate) fn freeze(&self, frozen: bool) {
        self.script.lock().unwrap().frozen = frozen;
    }

    pub(crate) fn skew(&self, seconds: i64) {
        self.script.lock().unwrap().skew = seconds;
    }

    pub(crate) fn set_chain_id(&self, chain_id: Option<&str>) {
        self.script.lock().unwrap().chain_id = chain_id.map(str::to_owned);
    }

    /// An index of transactions, or none.
    pub(crate) fn set_index(&self, kept: bool) {
        self.script.lock().unwrap().index_off = !kept;
        let off = Fault::Instead(error("transaction indexing is disabled"));
        self.always("tx", (!kept).then_some(off));
    }

    /// Bytes of every transaction that was offered, base64.
    pub(crate) fn offered(&self) -> Vec<String> {
        self.script.lock().unwrap().offered.clone()
    }

    /// How long each simulation's question was, in characters.
    pub(crate) fn simulated(&self) -> Vec<usize> {
        self.script.lock().unwrap().simulated.clone()
    }
}

type Answer = Result<Response<Full<Bytes>>, std::io::Error>;

async fn answer(
    script: &Mutex<Script>,
    http: &reqwest::Client,
    upstream: &str,
    request: Request<Incoming>,
) -> Answer {
    if request.method() != hyper::Method::POST {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    }
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    let call: Value = serde_json::from_slice(&body).unwrap();
    let method = call["method"].as_str().unwrap().to_owned();
    let question = format!("{method} {}", call["params"]);
    let name = call["params"]["path"].as_str().unwrap_or(&method).to_owned();
    let (fault, frozen) = {
        let mut script = script.lock().unwrap();
        if let Some(tx) = call["params"]["tx"].as_str() {
            script.offered.push(tx.to_owned());
        }
        if name == SIMULATE {
            script.simulated.push(question.len());
        }
        let mut of = |name: &str| script.next.get_mut(name).and_then(VecDeque::pop_front);
        let fault = of(&name).or_else(|| of(&method));
        let always = || {
            script
                .always
                .get(&name)
                .or_else(|| script.always.get(&method))
                .cloned()
        };
        let fault = fault.or_else(always);
        let fault = match fault {
            Some(Fault::IfLonger(most, _)) if question.len() <= most => None,
            other => other,
        };
        let frozen = script.frozen.then(|| script.last.get(&question).cloned());
        (fault, frozen)
    };
    if let Some(known) = frozen {
        let unknown = error("the endpoint is behind and has not seen this");
        return Ok(envelope(&call, known.unwrap_or(unknown)));
    }
    let forward = || async {
        let response = http.post(upstream).body(body.clone()).send().await;
        let response = response.map_err(std::io::Error::other)?;
        response.json::<Value>().await.map_err(std::io::Error::other)
    };
    let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let value = match fault {
        None => forward().await?,
        Some(Fault::NoAnswer) => {
            forward().await?;
            never().await
        }
        Some(Fault::Swallow) => never().await,
        Some(Fault::Reset) => {
            forward().await?;
            return Err(broken());
        }
        Some(Fault::ResetBefore) => return Err(broken()),
        Some(Fault::Twice) => {
            forward().await?;
            forward().await?
        }
        Some(Fault::ArrivesAnd(value)) => {
            forward().await?;
            value
        }
        Some(Fault::Replaced(from, to)) => replaced(forward().await?, from, to),
        Some(Fault::Instead(value) | Fault::IfLonger(_, value)) => value,
    };
    Ok(envelope(&call, colour(script, &method, question, value)))
}

fn replaced(mut value: Value, from: &str, to: &str) -> Value {
    assert_eq!(from.len(), to.len());
    let place = &mut value["result"]["response"]["value"];
    let Some(text) = place.as_str() else { return value };
    let mut bytes = STANDARD.decode(text).unwrap();
    let at = bytes.windows(from.len()).position(|w| w == from.as_bytes());
    if let Some(at) = at {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    *place = json!(STANDARD.encode(bytes));
    value
}

/// Changes what the script says, and remembers the answer.
fn colour(script: &Mutex<Script>, method: &str, question: String, mut value: Value) -> Value {
    let mut script = script.lock().unwrap();
    if method == "status" && value.get("result").is_some() {
        if let Some(id) = &script.chain_id {
            value["result"]["node_info"]["network"] = json!(id);
        }
        if script.index_off {
            value["result"]["node_info"]["other"]["tx_index"] = json!("off");
        }
        if script.skew != 0 {
            let time = value["result"]["sync_info"]["latest_block_time"]
                .as_str()
                .unwrap();
            let time: hpc_schema::time::Rfc3339 = time.parse().unwrap();
            let seconds = time.seconds().0.checked_add_signed(script.skew).unwrap();
            let time = hpc_schema::time::Rfc3339::from_unix(seconds, 0).unwrap();
            value["result"]["sync_info"]["latest_block_time"] = json!(time);
        }
    }
    script.last.insert(question, value.clone());
    value
}

fn envelope(call: &Value, mut value: Value) -> Response<Full<Bytes>> {
    value["jsonrpc"] = json!("2.0");
    value["id"] = call["id"].clone();
    Response::new(Full::from(value.to_string()))
}

async fn never() -> Value {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    Value::Null
}
