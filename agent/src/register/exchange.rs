//! The same request until it is answered.

use std::time::Duration;

use hpc_schema::gateway::{
    Problem, REGISTER_PATH, RegisterPending, RegisterRequest, RegisterResponse, WaitingFor,
};

use super::RegisterError;
use super::clock::{Ahead, LIFE, REMEDY, TIME_PATH, left};
use crate::clock::{Clock, instant};
use crate::random;
use crate::uplink::{Answer, Backoff, Client, UplinkError};

/// One try: done, or why not yet and how long to wait.
enum Try {
    Done(Box<RegisterResponse>),
    Again { reason: String, after: Option<Duration> },
}

impl Try {
    fn again(reason: String) -> Self {
        Self::Again { reason, after: None }
    }

    fn unanswered(e: &UplinkError) -> Self {
        let hint = if matches!(e, UplinkError::Tls { .. }) {
            "; the token pins the gateway's CA: is this the gateway that made it?"
        } else {
            ""
        };
        Self::again(format!("{e}{hint}"))
    }
}

/// `tls_key` is the one that the request asks a certificate for.
pub(super) async fn exchange(
    client: &mut Client,
    request: &RegisterRequest,
    wait: Option<Duration>,
    (clock, tls_key): (&Clock, &str),
    progress: &mut impl FnMut(&str),
) -> Result<RegisterResponse, RegisterError> {
    let body = serde_json::to_vec(request).map_err(|e| RegisterError::BadAnswer(e.to_string()))?;
    let start = instant();
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let mut said = String::new();
    let mut ahead = None;
    loop {
        let (reason, after) = match one_try(client, &body, (clock, tls_key), &mut ahead).await? {
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

/// `ahead`: our clock is, as far as is known, of certificates that live so long.
async fn one_try(
    client: &mut Client,
    body: &[u8],
    (clock, tls_key): (&Clock, &str),
    ahead: &mut Option<Duration>,
) -> Result<Try, RegisterError> {
    let off = |client: &mut Client, answer: &Answer, life: Duration| {
        let off = Ahead::look(client, answer, clock, life).err()?;
        Some(Try::again(format!("{off}; {REMEDY}")))
    };
    if let Some(life) = *ahead {
        let answer = client.post(TIME_PATH, b"{}".to_vec()).await;
        let answer = match client.judged(answer) {
            Ok(answer) => answer,
            Err(e) => return Ok(Try::unanswered(&e)),
        };
        if let Some(again) = off(client, &answer, life) {
            return Ok(again);
        }
        // It does not say what the next one's clock says.
        if answer.status >= 500 {
            return Ok(Try::Again {
                reason: format!("HTTP {}: {}", answer.status, answer.shown()),
                after: answer.retry_after,
            });
        }
        *ahead = None;
    }
    let answer = client.post(REGISTER_PATH, body.to_vec()).await;
    let answer = match client.judged(answer) {
        Ok(answer) => answer,
        Err(e) => return Ok(Try::unanswered(&e)),
    };
    if matches!(answer.status, 200 | 202)
        && let Some(again) = off(client, &answer, LIFE)
    {
        *ahead = Some(LIFE);
        return Ok(again);
    }
    match answer.status {
        200 => {
            let response: RegisterResponse =
                serde_json::from_slice(&answer.body).map_err(|e| RegisterError::BadAnswer(e.to_string()))?;
            if let Some(life) = left(&answer, &response.certificate, tls_key)
                && let Some(again) = off(client, &answer, life)
            {
                *ahead = Some(life);
                return Ok(again);
            }
            Ok(Try::Done(Box::new(response)))
        }
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
