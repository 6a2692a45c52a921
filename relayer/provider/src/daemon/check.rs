use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use hpc_chain::code::is_unknown_path;
use hpc_chain::query::{FeeGrant, QueryError};
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::RpcError;
use hpc_schema::registry::ConfigAnswer;
use hpc_schema::time::UnixSeconds;
use tokio::time::{sleep, timeout};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use super::error::StartError;
use crate::config::Config;
use crate::identity::Ca;
use crate::ops::Health;
use crate::settle::Signers;

/// By which cw2 knows the registry's code.
const CODE: &str = "crates.io:hpc-registry";
/// How soon a chain that could not be reached is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the start waits for the chain.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether the chain has said that it is the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// It has.
    Right,
    /// It could not be asked, for this.
    Unreachable(String),
}

/// Refuses to start on the wrong chain or contract; an unreachable chain is only noted.
pub(super) async fn chain(
    client: &RegistryClient,
    config: &Config,
    health: &Health,
) -> Result<Asked, StartError> {
    let asked = ask(client, config).await?;
    if let Asked::Unreachable(why) = &asked {
        health.raise(
            "chain_unreachable",
            format!("{why}; heartbeats are accepted and wait"),
        );
    }
    Ok(asked)
}

/// Asks a chain that could not be reached at the start until it answers. Ends only if it is the wrong one.
pub(super) async fn chain_later(asked: Asked, client: RegistryClient, config: Config) -> StartError {
    let mut asked = asked;
    while asked != Asked::Right {
        sleep(AGAIN).await;
        asked = match ask(&client, &config).await {
            Ok(asked) => asked,
            Err(e) => return e,
        };
    }
    std::future::pending().await
}

async fn ask(client: &RegistryClient, config: &Config) -> Result<Asked, StartError> {
    let unreachable = |e: &dyn std::fmt::Display| Ok(Asked::Unreachable(e.to_string()));
    let id = match timeout(PATIENCE, client.chain().chain_id()).await {
        Ok(Ok(id)) => id,
        Ok(Err(QueryError::Rpc(RpcError::WrongChain { found, .. }))) => found,
        Ok(Err(e)) => return unreachable(&e),
        Err(_) => return unreachable(&"no answer within 3 s"),
    };
    if id != config.chain.id {
        let message = format!(
            "chain.id: configured is {:?}, the endpoint is of chain {id:?}",
            config.chain.id
        );
        return Err(StartError::Chain(message));
    }
    let contract = &config.chain.contract;
    match timeout(PATIENCE, client.config()).await {
        Ok(Ok(answer)) => code(config, &answer.value)
            .map(|()| Asked::Right)
            .map_err(StartError::Chain),
        Ok(Err(e)) if says_nothing(&e) => unreachable(&e),
        Ok(Err(e)) => Err(StartError::Chain(format!(
            "chain.contract: {contract} is not a registry contract on this chain ({e}); deploy one: virtengine deploy"
        ))),
        Err(_) => unreachable(&"no answer within 3 s"),
    }
}

/// Whether it says nothing of the contract: wasmd that has just come up may break off in a question until its first block.
fn says_nothing(e: &QueryError) -> bool {
    match e {
        QueryError::Rpc(_) => true,
        // What was asked is wrong, such as an address that is none; or the chain has no contracts at all.
        QueryError::Refused {
            codespace, code, log, ..
        } => (codespace.as_str(), *code) != ("sdk", 18) && !is_unknown_path(codespace, *code, log),
        QueryError::Contract { .. }
        | QueryError::NotFound { .. }
        | QueryError::NoSimulation
        | QueryError::Malformed { .. } => false,
    }
}

/// Whether the contract is one that this daemon was made for: its name, the line of its version, its chain.
fn code(config: &Config, answer: &ConfigAnswer) -> Result<(), String> {
    let contract = &config.chain.contract;
    if answer.chain_id != config.chain.id {
        return Err(format!(
            "chain.contract: {contract} says that it runs on chain {:?}",
            answer.chain_id
        ));
    }
    if answer.contract != CODE {
        return Err(format!(
            "chain.contract: {contract} has the code of {:?}, not of {CODE}; deploy one: virtengine deploy",
            answer.contract
        ));
    }
    let ours = env!("CARGO_PKG_VERSION");
    if line(&answer.version).is_none() || line(&answer.version) != line(ours) {
        return Err(format!(
            "chain.contract: {contract} is of version {}, this daemon of {ours}, which does not know it; \
             run the daemon of the contract's version, or migrate the contract",
            answer.version
        ));
    }
    Ok(())
}

/// What versions that understand each other have in common: the major number, before 1.0 the minor one too.
fn line(version: &str) -> Option<(u64, u64)> {
    let numbers = version.split(['-', '+']).next()?;
    let mut numbers = numbers.split('.').map(|n| n.parse::<u64>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    Some((major, if major == 0 { minor } else { 0 }))
}

/// Refuses to start where fees are to be paid by grants and the chain knows none; a grant that is missing is only noted.
pub(super) async fn fee_grants(
    client: &RegistryClient,
    signers: &[Signers],
    health: &Health,
) -> Result<(), StartError> {
    for signer in signers {
        let Some(granter) = &signer.granter else { continue };
        match timeout(PATIENCE, client.chain().fee_grant(granter, &signer.address)).await {
            Ok(Ok(FeeGrant::NoModule)) => {
                return Err(StartError::Chain(
                    "chain.fee_granter: this chain has no fee grants (x/feegrant); leave the key out, then each key pays for itself"
                        .into(),
                ));
            }
            Ok(Ok(FeeGrant::Missing)) => health.raise_of(
                "insufficient_funds",
                &signer.name,
                format!(
                    "chain.fee_granter: {granter} has granted {} no fees; let it send: wasmd tx feegrant grant",
                    signer.address
                ),
            ),
            Ok(Ok(FeeGrant::Granted) | Err(_)) | Err(_) => {}
        }
    }
    Ok(())
}

/// What is to be done about the gateway's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerState {
    /// Nothing.
    Fresh,
    /// It is of our CA, or unreadable: it is issued anew.
    Ours,
    /// Somebody else has issued it, and will have to do so again: this is why.
    Theirs(String),
}

/// A certificate of ours is issued anew in the last third of its life.
const OUR_PART: u64 = 3;
/// So are others, by most tools; in the last sixth that has failed.
const THEIR_PART: u64 = 6;

/// Looks at the gateway's certificate. One that `ca` did not issue is never replaced.
pub(super) fn server_state(pem: &str, ca: &Ca, names: &[String], now: UnixSeconds) -> ServerState {
    let issued_here = ca.issued_server(pem);
    let theirs = issued_here == Some(false);
    let fresh = server_is_fresh(pem, names, now, if theirs { THEIR_PART } else { OUR_PART });
    match (fresh, issued_here) {
        (true, _) => ServerState::Fresh,
        (false, Some(false)) => ServerState::Theirs(
            "gateway/server.crt is in the last sixth of its life or lacks a name of gateway.names, and is not of the \
             daemon's CA; put its successor in place and reload"
                .into(),
        ),
        (false, _) => ServerState::Ours,
    }
}

/// Whether the gateway's certificate has this part of its own life left, however long that is, and carries all names.
fn server_is_fresh(pem: &str, names: &[String], now: UnixSeconds, part: u64) -> bool {
    let Some(Ok(block)) = Pem::iter_from_buffer(pem.as_bytes()).next() else {
        return false;
    };
    let Ok(certificate) = block.parse_x509() else {
        return false;
    };
    let seconds = |at: i64| UnixSeconds(u64::try_from(at).unwrap_or(0));
    let from = seconds(certificate.validity().not_before.timestamp());
    let until = seconds(certificate.validity().not_after.timestamp());
    if until <= now || until.since(now) < until.since(from) / part {
        return false;
    }
    let Ok(Some(san)) = certificate.subject_alternative_name() else {
        return false;
    };
    let has: BTreeSet<String> = san
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => ip(bytes).map(|ip| ip.to_string()),
            _ => None,
        })
        .collect();
    names.iter().all(|name| {
        let canonical = name
            .parse::<IpAddr>()
            .map_or_else(|_| name.clone(), |ip| ip.to_string());
        has.contains(&canonical)
    })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_another_name_chain_or_line_of_versions_is_refused_and_a_later_patch_is_not() {
        let yaml = "chain: {id: hpc-1, contract: wasm1x}";
        let config: Config = serde_yaml_ng::from_str(yaml).unwrap();
        let answer = |contract: &str, version: &str, chain: &str| {
            let answer = serde_json::json!({
                "admin": "wasm1a", "registrations_paused": false, "contract": contract, "version": version,
                "layout": 1, "chain_id": chain, "block": { "height": 1, "time": 1 },
            });
            code(&config, &serde_json::from_value(answer).unwrap())
        };
        let ours = env!("CARGO_PKG_VERSION");
        assert_eq!(answer(CODE, ours, "hpc-1"), Ok(()));
        assert_eq!(answer(CODE, &format!("{ours}-rc.1"), "hpc-1"), Ok(()));
        let other = answer(CODE, "99.0.0", "hpc-1").unwrap_err();
        assert!(other.contains("99.0.0") && other.contains("migrate"), "{other}");
        assert!(answer(CODE, "", "hpc-1").is_err());
        assert!(answer(CODE, ours, "hpc-2").unwrap_err().contains("hpc-2"));
        let foreign = answer("crates.io:cw20-base", ours, "hpc-1").unwrap_err();
        assert!(foreign.contains("cw20-base"), "{foreign}");
        assert_eq!((line("0.1.9"), line("0.1.0+build")), (Some((0, 1)), Some((0, 1))));
        assert_eq!(
            (line("0.2.0"), line("2.7.1"), line("2")),
            (Some((0, 2)), Some((2, 0)), None)
        );
    }

    #[test]
    fn a_certificate_of_somebody_else_is_never_issued_anew_here() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let (other, _) = Ca::create(now, [9; 16]).unwrap();
        let names = vec!["gw.example".to_owned()];
        let (theirs, _) = other.issue_server(&names, now, [2; 16]).unwrap();
        let (ours, _) = ca.issue_server(&names, now, [3; 16]).unwrap();
        let late = now.plus(80 * 86_400);
        assert_eq!(server_state(&theirs.pem, &ca, &names, now), ServerState::Fresh);
        assert!(matches!(
            server_state(&theirs.pem, &ca, &names, late),
            ServerState::Theirs(_)
        ));
        assert_eq!(server_state(&ours.pem, &ca, &names, late), ServerState::Ours);
        assert_eq!(
            server_state("nothing readable", &ca, &names, now),
            ServerState::Ours
        );
    }

    #[test]
    fn a_certificate_is_judged_by_its_own_life_be_it_a_day_or_a_year() {
        const HOUR: u64 = 3600;
        const DAY: u64 = 24 * HOUR;
        let from = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(from, [1; 16]).unwrap();
        let names = vec!["gw.example".to_owned()];
        let key = rcgen::KeyPair::generate().unwrap();
        let at =
            |t: UnixSeconds| time::OffsetDateTime::from_unix_timestamp(i64::try_from(t.0).unwrap()).unwrap();
        for (life, age, fresh, fresh_of_theirs) in [
            (DAY, 0, true, true),
            (DAY, HOUR, true, true),
            (DAY, 15 * HOUR, true, true),
            (DAY, 17 * HOUR, false, true),
            (DAY, 19 * HOUR, false, true),
            (DAY, 21 * HOUR, false, false),
            (DAY, DAY, false, false),
            (365 * DAY, 0, true, true),
            (365 * DAY, 240 * DAY, true, true),
            (365 * DAY, 250 * DAY, false, true),
            (365 * DAY, 310 * DAY, false, false),
            (365 * DAY, 366 * DAY, false, false),
        ] {
            let mut params = rcgen::CertificateParams::new(names.clone()).unwrap();
            (params.not_before, params.not_after) = (at(from), at(from.plus(life)));
            let pem = params.self_signed(&key).unwrap().pem();
            let now = from.plus(age);
            assert_eq!(
                server_is_fresh(&pem, &names, now, OUR_PART),
                fresh,
                "{life} {age}"
            );
            let theirs = matches!(server_state(&pem, &ca, &names, now), ServerState::Theirs(_));
            assert_eq!(theirs, !fresh_of_theirs, "{life} {age}");
        }
    }

    #[test]
    fn an_old_certificate_or_one_without_a_name_is_not_fresh() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let names = vec!["gw.example".to_owned(), "10.0.0.1".to_owned(), "::1".to_owned()];
        let (issued, _) = ca.issue_server(&names, now, [2; 16]).unwrap();
        let fresh = |pem: &str, names: &[String], now| server_is_fresh(pem, names, now, OUR_PART);
        assert!(fresh(&issued.pem, &names, now));
        assert!(!fresh(&issued.pem, &names, now.plus(61 * 86_400)));
        assert!(!fresh(&issued.pem, &["other.example".to_owned()], now));
        assert!(!fresh("", &names, now));
    }
}
