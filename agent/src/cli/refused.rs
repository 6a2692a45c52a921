//! A registration that came to nothing: what `status` says of it, and what must not be tried again.

use hpc_schema::code::Code;
use tokio::sync::mpsc;

use crate::clock::unix_seconds;
use crate::register::RegisterError;
use crate::run::Signal;
use crate::state::Problem;

/// For `status`.
pub(super) fn refusal(e: &RegisterError) -> Problem {
    let (code, remedy) = match e {
        RegisterError::Refused(r) => (r.code.as_str().to_owned(), r.code.remedy()),
        RegisterError::RefusedByGateway { code, message } => {
            let remedy = match Code::from_word(code).map(Code::remedy) {
                Some(remedy) if !message.ends_with(remedy) => "do what the gateway says",
                remedy => remedy.unwrap_or("see the gateway's log"),
            };
            (code.clone(), remedy)
        }
        RegisterError::NotRecovered { code, .. } => {
            let remedy = Code::from_word(code).map_or("see the gateway's log", Code::remedy);
            (code.clone(), remedy)
        }
        e if pin_refused(e) => (
            "pin_refused".to_owned(),
            "correct the PIN in its file or credential, then restart the agent: until then none is tried",
        ),
        _ => ("not_registered".to_owned(), "see the agent's log"),
    };
    Problem {
        at: unix_seconds(),
        code,
        message: e.to_string(),
        remedy: remedy.to_owned(),
    }
}

/// Whether the HSM has refused the PIN of the agent's key.
pub(super) fn pin_refused(e: &RegisterError) -> bool {
    matches!(e, RegisterError::Signing(e) if e.pin_refused)
}

/// Does nothing more until the agent is told to stop.
pub(super) async fn until_stopped(e: &RegisterError, signals: &mut mpsc::Receiver<Signal>) {
    tracing::error!("{e}; this node does not register before the agent is restarted with the right PIN");
    while let Some(Signal::Reload) = signals.recv().await {
        tracing::warn!("not reloaded: the PIN that was refused is not tried again; restart the agent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SigningError;

    #[test]
    fn a_refusal_is_told_with_its_codes_remedy_unless_the_gateway_has_another_one() {
        let told = |code: &str, message: &str| {
            let (code, message) = (code.to_owned(), message.to_owned());
            refusal(&RegisterError::RefusedByGateway { code, message }).remedy
        };
        let (expired, elsewhere) = (Code::TokenExpired, Code::NotAuthorized);
        let message = format!("the token has expired; {}", expired.remedy());
        assert_eq!(told(expired.as_str(), &message), expired.remedy());
        let message = "the token does not serve 192.0.2.7; register from a network that it serves";
        assert_eq!(told(elsewhere.as_str(), message), "do what the gateway says");
        assert_eq!(told("http_error", "HTTP 404"), "see the gateway's log");
    }

    #[tokio::test]
    async fn a_refused_pin_is_told_with_what_to_do_and_ends_nothing_until_the_agent_is_stopped() {
        let e = |pin_refused| {
            RegisterError::Signing(SigningError {
                place: "in the HSM".to_owned(),
                message: "no such PIN".to_owned(),
                pin_refused,
            })
        };
        assert!(pin_refused(&e(true)) && !pin_refused(&e(false)));
        let told = refusal(&e(true));
        assert_eq!(told.code, "pin_refused");
        assert!(told.remedy.contains("restart the agent"), "{}", told.remedy);
        let (sender, mut signals) = mpsc::channel(2);
        sender.send(Signal::Reload).await.unwrap();
        sender.send(Signal::Stop).await.unwrap();
        until_stopped(&e(true), &mut signals).await;
        assert!(signals.try_recv().is_err(), "both were taken");
    }
}
