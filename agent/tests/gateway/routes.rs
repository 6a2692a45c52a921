use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::{IncomingStream, Listener};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::gateway::{
    CertificateRequest, CertificateResponse, ChainStatus, ChallengeResponse, HeartbeatResponse,
    HeartbeatResponseBody, Notice, Problem, RecoverRequest, RegisterPending, RegisterRequest,
    RegisterResponse, RegistrationRecord, WaitingFor, certificate_uri, parse_certificate_uri,
    recover_message, register_message,
};
use hpc_schema::heartbeat::{Admission, HeartbeatRequest, Registered, verify_heartbeat};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::{AgentKey, Verifier, ZebraVerifier};
use hpc_schema::refusal::Refusal;
use hpc_schema::registration::key_rotation_message;
use hpc_schema::registry::{JobIds, Params};
use hpc_schema::report::Tag;
use hpc_schema::time::Rfc3339;
use hpc_schema::token::verify_token;
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::OID_X509_SERIALNUMBER;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Authority, CHAIN, CLUSTER, CONTRACT, NODE, Shared};
use hpc_schema::time::UnixSeconds;
use virtengine_node_agent::clock::{Clock, instant};
use virtengine_node_agent::uplink::Stream;

/// Cluster and node of the client's certificate.
#[derive(Clone, Debug)]
struct PeerId(Option<(ClusterId, NodeId, u64)>);

struct Accepted {
    streams: mpsc::Receiver<(TlsStream<Box<dyn Stream>>, PeerId)>,
}

impl Listener for Accepted {
    type Io = TlsStream<Box<dyn Stream>>;
    type Addr = PeerId;
    async fn accept(&mut self) -> (Self::Io, PeerId) {
        match self.streams.recv().await {
            Some(stream) => stream,
            None => std::future::pending().await,
        }
    }
    fn local_addr(&self) -> std::io::Result<PeerId> {
        Ok(PeerId(None))
    }
}

impl Connected<IncomingStream<'_, Accepted>> for PeerId {
    fn connect_info(stream: IncomingStream<'_, Accepted>) -> Self {
        stream.remote_addr().clone()
    }
}

pub(super) async fn serve(
    mut incoming: mpsc::Receiver<Box<dyn Stream>>,
    shared: Arc<Shared>,
    (in_trouble, behind): (Arc<AtomicBool>, Arc<AtomicU64>),
) {
    let (sender, streams) = mpsc::channel(64);
    let acceptors = |by: &Authority, another: &Authority| {
        let whole = TlsAcceptor::from(by.server(another, &shared.clock));
        (whole, TlsAcceptor::from(by.bare_server(another, &shared.clock)))
    };
    let ours = acceptors(&shared.authority, &shared.another);
    let anothers = acceptors(&shared.another, &shared.authority);
    let counted = Arc::clone(&shared);
    let clock = shared.clock.clone();
    let router = Router::new()
        .route("/api/v1/hpc/nodes/register", post(register))
        .route("/api/v1/hpc/nodes/{node}/heartbeat", post(heartbeat))
        .route("/api/v1/hpc/nodes/{node}/certificate", post(renew))
        .route("/api/v1/hpc/nodes/{node}/certificate/challenge", post(challenge))
        .route("/api/v1/hpc/nodes/{node}/certificate/recover", post(recover))
        .with_state(shared)
        .layer(from_fn(move |request: Request, next: Next| {
            let fails = in_trouble.load(Ordering::SeqCst);
            let date = date(clock.seconds() - behind.load(Ordering::SeqCst));
            async move {
                let mut response = if fails {
                    problem(503, &Refusal::whole(Code::Unavailable, "told to"))
                } else {
                    next.run(request).await
                };
                response.headers_mut().insert(header::DATE, date);
                response
            }
        }));
    let accept = async {
        while let Some(stream) = incoming.recv().await {
            counted.seen.lock().unwrap().connections += 1;
            let (shows_another, keeps_ca) = {
                let behaviour = counted.behaviour.lock().unwrap();
                (behaviour.shows_another, behaviour.keeps_ca)
            };
            let (whole, bare) = if shows_another { &anothers } else { &ours };
            let acceptor = if keeps_ca { bare.clone() } else { whole.clone() };
            let sender = sender.clone();
            tokio::spawn(async move {
                if let Ok(tls) = acceptor.accept(stream).await {
                    let id = PeerId(identity(&tls));
                    sender.send((tls, id)).await.ok();
                }
            });
        }
    };
    let service = router.into_make_service_with_connect_info::<PeerId>();
    tokio::select! {
        () = accept => {}
        result = axum::serve(Accepted { streams }, service) => result.unwrap(),
    }
}

/// `Date`.
fn date(unix: u64) -> HeaderValue {
    let at = OffsetDateTime::from_unix_timestamp(unix.try_into().unwrap()).unwrap();
    let (weekday, month) = (at.weekday().to_string(), at.month().to_string());
    let text = format!(
        "{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
        &weekday[..3],
        at.day(),
        &month[..3],
        at.year(),
        at.hour(),
        at.minute(),
        at.second()
    );
    text.parse().unwrap()
}

fn identity(tls: &TlsStream<Box<dyn Stream>>) -> Option<(ClusterId, NodeId, u64)> {
    let leaf = tls.get_ref().1.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let epoch = certificate.subject().iter_by_oid(&OID_X509_SERIALNUMBER).next()?;
    let epoch = epoch.as_str().ok()?.parse().ok()?;
    let san = certificate.subject_alternative_name().ok()??;
    let (cluster, node) = san.value.general_names.iter().find_map(|n| match n {
        GeneralName::URI(uri) => parse_certificate_uri(uri),
        _ => None,
    })?;
    Some((cluster, node, epoch))
}

/// Whose certificate it is, if it counts.
fn peer(s: &Shared, peer: PeerId) -> Result<(ClusterId, NodeId), Box<Refusal>> {
    let refused = |what| Box::new(Refusal::whole(Code::IdentityMismatch, what));
    let Some((cluster, node, epoch)) = peer.0 else {
        return Err(refused("a client certificate is required"));
    };
    if epoch != s.epoch.load(Ordering::SeqCst) {
        s.seen.lock().unwrap().replaced += 1;
        return Err(refused(
            "the certificate is of a registration that has been replaced",
        ));
    }
    Ok((cluster, node))
}

fn problem(status: u16, refusal: &Refusal) -> Response {
    (
        StatusCode::from_u16(status).unwrap(),
        Json(Problem::new(status, refusal)),
    )
        .into_response()
}

async fn register(State(s): State<Arc<Shared>>, body: Bytes) -> Response {
    s.seen
        .lock()
        .unwrap()
        .registrations
        .push(serde_json::from_slice(&body).unwrap());
    let request: RegisterRequest = serde_json::from_slice(&body).unwrap();
    let refusal = s.behaviour.lock().unwrap().refuse_registration.pop_front();
    if let Some((status, code)) = refusal {
        return problem(status, &Refusal::whole(code, "told to"));
    }
    let claims = match verify_token(&request.token, &s.token_key.public(), now(&s), &ZebraVerifier) {
        Ok(claims) => claims,
        Err(refusal) => return problem(401, &refusal),
    };
    let der = CertificateSigningRequestDer::from_pem_slice(request.csr.as_bytes()).unwrap();
    let message = register_message(&claims.jti, &der);
    let signature = STANDARD.decode(&request.csr_signature).unwrap();
    if claims.pubkey != request.public_key
        || !ZebraVerifier.verify(&message, &signature, request.public_key.as_bytes())
    {
        return problem(
            401,
            &Refusal::whole(Code::SignatureInvalid, "csr_signature does not verify"),
        );
    }
    {
        let mut behaviour = s.behaviour.lock().unwrap();
        if behaviour.pending_answers > 0 {
            behaviour.pending_answers -= 1;
            let turn = if behaviour.approval {
                WaitingFor::Approval
            } else {
                WaitingFor::Chain
            };
            let pending = Json(RegisterPending::new(Code::RegistrationPending, turn));
            return (StatusCode::ACCEPTED, [(header::RETRY_AFTER, "1")], pending).into_response();
        }
    }
    let mut registered = s.registered.lock().unwrap();
    let used = (request.public_key, request.csr.clone());
    let rotates = registered
        .as_ref()
        .is_some_and(|r| r.0 != used.0 && consents(&r.0, &request));
    if rotates {
        s.epoch.fetch_add(1, Ordering::SeqCst);
    } else if registered.as_ref().is_some_and(|r| *r != used) {
        return problem(
            409,
            &Refusal::field(Code::TokenUsed, "token", "was used with another key or request"),
        );
    }
    *registered = Some(used);
    let (cluster, node) = ids();
    let life = s.behaviour.lock().unwrap().certificate_life;
    let epoch = s.epoch.load(Ordering::SeqCst);
    Json(RegisterResponse {
        certificate: s.authority.issue_for(
            &request.csr,
            &certificate_uri(&cluster, &node),
            epoch,
            life,
            &s.clock,
        ),
        ca: s.authority.pem(),
        cluster_id: cluster,
        node_id: node,
        provider_address: "wasm1provider".into(),
        chain_id: CHAIN.into(),
        contract: CONTRACT.into(),
        epoch,
        last_sequence: 0,
        params: Params::default(),
        job_ids: JobIds::Hashed,
        task_public_key: None,
        task_keys: Vec::new(),
    })
    .into_response()
}

/// Whether the registered key has signed the new one.
fn consents(old: &AgentKey, request: &RegisterRequest) -> bool {
    let (cluster, node) = ids();
    let (Some(nonce), Some(signature)) = (&request.registration_nonce, &request.rotation_signature) else {
        return false;
    };
    let nonce = base64_exact::<32>(nonce).unwrap();
    let signature = base64_exact::<64>(signature).unwrap();
    let message = key_rotation_message(CHAIN, CONTRACT, &cluster, &node, &request.public_key, &nonce);
    ZebraVerifier.verify(&message, &signature, old.as_bytes())
}

fn now(s: &Shared) -> UnixSeconds {
    UnixSeconds(s.clock.seconds())
}

fn ids() -> (ClusterId, NodeId) {
    (CLUSTER.parse().unwrap(), NODE.parse().unwrap())
}

fn has_report(body: &[u8]) -> bool {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    let told = body["acknowledgements"].as_array();
    told.is_some_and(|all| all.iter().any(|a| a["report"].is_string()))
}

async fn heartbeat(
    State(s): State<Arc<Shared>>,
    Path(path): Path<String>,
    ConnectInfo(id): ConnectInfo<PeerId>,
    body: Bytes,
) -> Response {
    while s.behaviour.lock().unwrap().hang {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (cluster, node) = match peer(&s, id) {
        Ok(ids) => ids,
        Err(refusal) => return problem(401, &refusal),
    };
    if let Some(status) = s.behaviour.lock().unwrap().http_errors.pop_front() {
        return problem(status, &Refusal::whole(Code::RateLimited, "told to"));
    }
    if s.behaviour.lock().unwrap().no_reports && has_report(&body) {
        return problem(413, &Refusal::whole(Code::BodyTooLarge, "told to"));
    }
    let key = s.registered.lock().unwrap().as_ref().map(|r| r.0);
    let epoch = s.epoch.load(Ordering::SeqCst);
    let tag = Tag::derive(CHAIN, CONTRACT, &cluster, &node, epoch);
    let registered = key.as_ref().map(|key| Registered {
        key,
        tag: &tag,
        job_ids: JobIds::Hashed,
    });
    let against = Admission {
        path_node_id: &path,
        certificate_node_id: &node,
        certificate_cluster_id: &cluster,
        registered,
        now: now(&s),
    };
    let result = HeartbeatRequest::parse(&body).and_then(|request| {
        let verified = verify_heartbeat(&request, &against, &ZebraVerifier)?;
        Ok((verified, request.auth.section.is_some(), request.acknowledgements))
    });
    let mut behaviour = s.behaviour.lock().unwrap();
    let mut seen = s.seen.lock().unwrap();
    seen.asked.push(instant());
    // Sequence numbers rise within an epoch.
    let same = seen.keys.last() == key.as_ref();
    let highest = seen
        .heartbeats
        .last()
        .filter(|_| same)
        .map_or(0, |h| h.report.sequence);
    let outcome = result.and_then(|(verified, section, acknowledgements)| {
        let refuse = behaviour.refuse.pop_front();
        // As the real one does, which has verified nothing else.
        if refuse.is_none_or(|code| matches!(code, Code::StaleSequence | Code::NonceReused)) {
            behaviour
                .commands
                .retain(|c| !acknowledgements.iter().any(|a| a.command_id == c.command_id));
            seen.acknowledgements.extend(acknowledgements);
        }
        seen.sequences.push(verified.report.sequence);
        if let Some(code) = refuse {
            return Err(Refusal::whole(code, "told to"));
        }
        if verified.report.sequence <= highest {
            return Err(Refusal::whole(
                Code::StaleSequence,
                format_args!("highest is {highest}"),
            ));
        }
        if behaviour.forgets {
            seen.heartbeats.clear();
        }
        seen.heartbeats.push(verified);
        seen.keys.extend(key);
        seen.with_section.push(section);
        seen.arrived.push(instant());
        Ok(())
    });
    if let Err(refusal) = &outcome {
        seen.refusals.push(refusal.to_string());
        if refusal.heartbeat_status() != 200 {
            return problem(refusal.heartbeat_status(), refusal);
        }
    }
    let ack = seen.heartbeats.last().map_or(0, |h| h.report.sequence);
    let clock = i64::try_from(now(&s).0).unwrap() + behaviour.clock_offset;
    let response = HeartbeatResponseBody {
        response: HeartbeatResponse {
            accepted: outcome.is_ok(),
            sequence_ack: u64::from(ack),
            timestamp: Rfc3339::from_unix(clock.try_into().unwrap(), 0).unwrap(),
            next_heartbeat_seconds: behaviour.next_heartbeat_seconds,
            commands: behaviour.commands.clone(),
            task_keys: behaviour.task_keys.clone(),
            config_updates: behaviour.config_updates.clone(),
            errors: outcome.err().iter().map(Notice::from).collect(),
            chain: Some(ChainStatus {
                latency_ms: Some(4),
                height: 100,
                settled_sequence: if behaviour.settles { ack } else { 0 },
                epoch,
                node_state: behaviour.node_state,
            }),
            peers: Vec::new(),
        },
    };
    if behaviour.close {
        ([(header::CONNECTION, "close")], Json(response)).into_response()
    } else {
        Json(response).into_response()
    }
}

async fn renew(
    State(s): State<Arc<Shared>>,
    ConnectInfo(id): ConnectInfo<PeerId>,
    Json(request): Json<CertificateRequest>,
) -> Response {
    let (cluster, node) = match peer(&s, id) {
        Ok(ids) => ids,
        Err(refusal) => return problem(401, &refusal),
    };
    s.seen.lock().unwrap().renewals += 1;
    Json(certificate(&s, &request.csr, &cluster, &node)).into_response()
}

fn certificate(s: &Shared, csr: &str, cluster: &ClusterId, node: &NodeId) -> CertificateResponse {
    let (life, by, names) = {
        let behaviour = s.behaviour.lock().unwrap();
        let by = if behaviour.issue_by_another {
            &s.another
        } else {
            &s.authority
        };
        (behaviour.certificate_life, by, behaviour.names)
    };
    CertificateResponse {
        certificate: by.issue_for(
            csr,
            &certificate_uri(cluster, node),
            s.epoch.load(Ordering::SeqCst),
            life,
            &s.clock,
        ),
        ca: [(names.0, &s.authority), (names.1, &s.another)]
            .iter()
            .filter(|(named, _)| *named)
            .map(|(_, ca)| ca.pem())
            .collect(),
        registration: None,
    }
}

/// What the provider's gateway has on record.
fn record(s: &Shared) -> RegistrationRecord {
    let (cluster_id, node_id) = ids();
    let seen = s.seen.lock().unwrap();
    let fingerprint = &seen.registrations.last().unwrap()["hardware_fingerprint"];
    RegistrationRecord {
        cluster_id,
        node_id,
        provider_address: "wasm1provider".into(),
        chain_id: CHAIN.into(),
        contract: CONTRACT.into(),
        epoch: s.epoch.load(Ordering::SeqCst),
        last_sequence: seen.sequences.iter().copied().max().unwrap_or(0),
        params: Params::default(),
        job_ids: JobIds::Hashed,
        task_public_key: None,
        hardware_fingerprint: fingerprint.as_str().map(str::to_owned),
    }
}

async fn challenge(State(s): State<Arc<Shared>>) -> Response {
    let bytes: [u8; 32] = virtengine_node_agent::random::bytes().unwrap();
    *s.challenge.lock().unwrap() = Some(bytes);
    let expires_at = Rfc3339::from_unix(now(&s).0 + 60, 0).unwrap();
    Json(ChallengeResponse {
        challenge: STANDARD.encode(bytes),
        expires_at,
    })
    .into_response()
}

async fn recover(State(s): State<Arc<Shared>>, Json(request): Json<RecoverRequest>) -> Response {
    let challenge = s.challenge.lock().unwrap().take();
    let der = CertificateSigningRequestDer::from_pem_slice(request.csr.as_bytes()).unwrap();
    let key = s.registered.lock().unwrap().as_ref().map(|r| r.0);
    let good = match (challenge, key, base64_exact::<64>(&request.signature)) {
        (Some(c), Some(key), Some(signature)) => {
            STANDARD.encode(c) == request.challenge
                && ZebraVerifier.verify(&recover_message(&c, &der), &signature, key.as_bytes())
        }
        _ => false,
    };
    if !good {
        return problem(
            403,
            &Refusal::whole(Code::SignatureInvalid, "the challenge is not signed"),
        );
    }
    s.seen.lock().unwrap().recoveries += 1;
    let (cluster, node) = ids();
    Json(CertificateResponse {
        registration: Some(record(&s)),
        ..certificate(&s, &request.csr, &cluster, &node)
    })
    .into_response()
}
