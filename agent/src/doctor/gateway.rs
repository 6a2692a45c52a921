//! Each gateway: reached, of a CA that is trusted, with our clock.

use hpc_schema::key::AgentKey;

use super::Check;
use crate::clock::Clock;
use crate::config::{Config, Endpoint};
use crate::probe::host;
use crate::register::{TIME_PATH, examine};
use crate::state::{Registration, StateDir};
use crate::status::SKEW_MS;
use crate::uplink::{CaPin, Client, Trust, UplinkError, client_config};

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let Some(pins) = pins(config) else {
        return vec![Check::skipped(
            "gateway",
            "neither registration nor token: its CA is not known",
        )];
    };
    let mut all = Vec::new();
    for endpoint in &config.endpoints {
        all.extend(one(config, endpoint, pins.clone()).await);
    }
    all
}

/// The CAs of the registration, else that of the token.
fn pins(config: &Config) -> Option<Vec<CaPin>> {
    let registered = Registration::load(&StateDir::new(&config.state_dir))
        .ok()
        .flatten();
    registered.map(|r| r.pins()).or_else(|| {
        let key: AgentKey = crate::key::describe(&config.key_path).ok()?.0;
        let host = host::hostname(&config.roots);
        let claims = examine(config.token.as_ref()?, config, &key, host.as_deref()).ok()?;
        Some(vec![claims.ca])
    })
}

async fn one(config: &Config, endpoint: &Endpoint, pins: Vec<CaPin>) -> Vec<Check> {
    let clock = Clock::system();
    let tls = match client_config(Trust::new(pins, &config.tls.ca_cert), None, &clock) {
        Ok(tls) => tls,
        Err(e) => return vec![Check::wrong("gateway", e, "reinstall the agent")],
    };
    let mut client = Client::new(vec![endpoint.clone()], tls, config.request_timeout);
    // What is looked at is who says that there is no such path, and when.
    let answer = client.post(TIME_PATH, b"{}".to_vec()).await;
    match answer {
        Err(e) => vec![unreached(&e)],
        Ok(answer) => {
            let ms = answer.latency.as_millis();
            let reached = Check::good("gateway", format!("{endpoint} answers in {ms} ms"));
            let skew = answer.date.map(|theirs| signed(theirs, clock.seconds()));
            vec![reached, judge(skew)]
        }
    }
}

fn unreached(e: &UplinkError) -> Check {
    let code = match e.code() {
        "tls_failed" => "tls_failed",
        "clock_or_certificate" => "clock_or_certificate",
        _ => "gateway",
    };
    Check::wrong(code, e, e.remedy())
}

/// Theirs minus ours, in seconds.
fn signed(theirs: u64, ours: u64) -> i64 {
    let gap = i64::try_from(theirs.abs_diff(ours)).unwrap_or(i64::MAX);
    if theirs >= ours { gap } else { gap.saturating_neg() }
}

fn judge(skew: Option<i64>) -> Check {
    let code = "clock_skew";
    match skew {
        None => Check::skipped(code, "the gateway does not say what time it is"),
        Some(s) if s.unsigned_abs() > SKEW_MS / 1000 => {
            let way = if s > 0 { "behind" } else { "ahead of" };
            Check::wrong(
                code,
                format!("this clock is {} s {way} the gateway's", s.unsigned_abs()),
                "synchronise it (NTP): heartbeats more than 5 min old or 1 min ahead are refused",
            )
        }
        Some(s) => Check::good("clock", format!("{s:+} s to the gateway's")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    #[test]
    fn a_clock_that_is_off_is_told_with_its_way() {
        assert_eq!(judge(Some(10)).grade, Grade::Good);
        let c = judge(Some(signed(1000, 1400)));
        assert_eq!(c.grade, Grade::Wrong);
        assert!(c.message.contains("400 s ahead of"), "{}", c.message);
        assert!(judge(Some(11)).message.contains("11 s behind"));
        assert_eq!(judge(None).grade, Grade::Skipped);
    }
}
