use super::check::{ServerState, server_state};
use crate::clock;
use crate::gateway::{Gateway, ServerCertificate};
use crate::home::Home;
use crate::ops::Health;

/// What is said of the gateway's certificate.
const CODE: &str = "server_certificate";
/// What is said where its successor lies there and was not taken into use.
const UNUSED: &str = "certificate_unused";

/// Issues the gateway's certificate anew when its time has come, or says that somebody else has to; open connections stay.
pub(super) fn renew(home: &Home, health: &Health, gateway: &Gateway, certificate: &ServerCertificate) {
    let (names, now) = (&gateway.config.gateway.names, clock::now());
    let ca = gateway.ca();
    let pem = std::fs::read_to_string(home.server_cert()).unwrap_or_default();
    let state = server_state(&pem, &ca, names, now);
    let unused = state == ServerState::Fresh && !certificate.shows(&pem);
    let why = "gateway/server.crt is not the certificate in use, and agents are shut out when that one ends; reload takes it";
    health.set(UNUSED, unused.then(|| why.to_owned()));
    match state {
        ServerState::Fresh => {
            // However long it lasts, agents may not take it.
            let wrong = certificate.check(&gateway.anchors(), names, now).err();
            return health.set(CODE, wrong.map(|why| why.to_string()));
        }
        ServerState::Theirs(why) => return health.raise(CODE, why),
        ServerState::Ours => {}
    }
    let renewed = clock::random().map_err(|e| e.to_string()).and_then(|serial| {
        let (issued, key) = ca.issue_server(names, now, serial).map_err(|e| e.to_string())?;
        super::store_server(home, &issued.pem, &key).map_err(|e| e.to_string())?;
        certificate.replace(&issued.pem, &key).map_err(|e| e.to_string())
    });
    match renewed {
        Ok(()) => {
            health.clear(CODE);
            tracing::info!("the gateway's certificate was issued anew");
        }
        Err(e) => health.raise(CODE, format!("cannot be issued anew: {e}")),
    }
}
