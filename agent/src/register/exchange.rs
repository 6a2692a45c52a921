//! The same request until it is answered.

use std::time::Duration;

use hpc_schema::gateway::{
    Problem, REGISTER_PATH, RegisterPending, RegisterRequest, RegisterResponse, WaitingFor,
};

use super::RegisterError;
use crate::clock::instant;
use crate::random;
use crate::uplink::{Backoff, Client, UplinkError};

/// One try: done, or why not yet and how long to wait.
enum Try {
    Done(Box<RegisterResponse>),
    Again { reason: String, after: Option<Duration> },
}

pub(super) async fn exchange(
    client: &mut Client,
    request: &RegisterRequest,
    wait: Option<Duration>,
    progress: &mut impl FnMut(&str),
) -> Result<RegisterResponse, RegisterError> {
    let body = serde_json::to_vec(request).map_err(|e| RegisterError::BadAnswer(e.to_string()))?;
    let start = instant();
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let mut said = String::new();
    loop {
        let (reason, after) = match one_try(client, &body).await? {
            Try::Done(response) => return Ok(*response),
            Try::Again { reason, after } => (reason, after),
        };
        let pause = match after {
            Some(after) => after.clamp(Duration::from_secs(1), Duration::from_secs(60)),
            None => backoff.next(random::up_to),
        };
        if reason != said {
            progress(&reason);
            said.clone_from(&reason);
        }
        if let Some(wait) = wait
            && instant().saturating_duration_since(start).saturating_add(pause) > wait
        {
            return Err(RegisterError::TimedOut {
                waited: wait,
                last: reason,
            });
        }
        tokio::time::sleep(pause).await;
    }
}

async fn one_try(client: &mut Client, body: &[u8]) -> Result<Try, RegisterError> {
    let answer = match client.post(REGISTER_PATH, body.to_vec()).await {
        Ok(answer) => answer,
        Err(e @ UplinkError::Tls { .. }) => {
            return Ok(Try::Again {
                reason: format!("{e}; the token pins the gateway's CA: is this the gateway that made it?"),
                after: None,
            });
        }
        Err(e) => {
            return Ok(Try::Again {
                reason: e.to_string(),
                after: None,
            });
        }
    };
    match answer.status {
        200 => serde_json::from_slice(&answer.body)
            .map(|r| Try::Done(Box::new(r)))
            .map_err(|e| RegisterError::BadAnswer(e.to_string())),
        202 => {
            let reason = match serde_json::from_slice::<RegisterPending>(&answer.body) {
                Ok(p) if p.waiting_for == Some(WaitingFor::Approval) => {
                    "waiting for the operator's approval (virtengine-provider node-token approve)".to_owned()
                }
                Ok(p) => format!("waiting for the chain ({})", p.code),
                Err(_) => "waiting for the chain".to_owned(),
            };
            Ok(Try::Again {
                reason,
                after: Some(answer.retry_after.unwrap_or(Duration::from_secs(2))),
            })
        }
        status => {
            let shown = answer.shown();
            let problem = serde_json::from_slice::<Problem>(&answer.body).ok();
            let (code, message) = problem.map_or_else(
                || ("http_error".to_owned(), format!("HTTP {status}: {shown}")),
                |p| (p.code, p.detail),
            );
            if matches!(status, 408 | 425 | 429) || status >= 500 {
                Ok(Try::Again {
                    reason: format!("{code}: {message}"),
                    after: answer.retry_after,
                })
            } else {
                tracing::error!(status, body = %shown, "the gateway refused the registration");
                Err(RegisterError::RefusedByGateway { code, message })
            }
        }
    }
}
