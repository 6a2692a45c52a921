use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use hpc_chain::query::{FeeGrant, QueryError};
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::RpcError;
use hpc_schema::time::UnixSeconds;
use tokio::time::timeout;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use super::open::StartError;
use crate::config::Config;
use crate::identity::{Ca, SERVER_LIFETIME_SECONDS};
use crate::ops::Health;
use crate::settle::Signers;

/// How long the start waits for the chain.
const PATIENCE: Duration = Duration::from_secs(3);

/// Refuses to start on the wrong chain or contract; an unreachable chain is only noted.
pub(super) async fn chain(
    client: &RegistryClient,
    config: &Config,
    health: &Health,
) -> Result<(), StartError> {
    let unreachable = |e: &dyn std::fmt::Display| {
        health.raise(
            "chain_unreachable",
            format!("{e}; heartbeats are accepted and wait"),
        );
        Ok(())
    };
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
        Ok(Ok(answer)) if answer.value.chain_id == config.chain.id => Ok(()),
        Ok(Ok(answer)) => Err(StartError::Chain(format!(
            "chain.contract: {contract} says that it runs on chain {:?}",
            answer.value.chain_id
        ))),
        Ok(Err(e @ QueryError::Rpc(_))) => unreachable(&e),
        Ok(Err(e)) => Err(StartError::Chain(format!(
            "chain.contract: {contract} is not a registry contract on this chain ({e}); deploy one: virtengine deploy"
        ))),
        Err(_) => unreachable(&"no answer within 3 s"),
    }
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

/// Looks at the gateway's certificate. One that `ca` did not issue is never replaced.
pub(super) fn server_state(pem: &str, ca: &Ca, names: &[String], now: UnixSeconds) -> ServerState {
    let fresh = server_is_fresh(pem, names, now);
    let issued_here = ca.issued_server(pem);
    match (fresh, issued_here) {
        (true, _) => ServerState::Fresh,
        (false, Some(false)) => ServerState::Theirs(
            "gateway/server.crt ends within 30 days or lacks a name of gateway.names, and is not of the daemon's CA; \
             put its successor in place and reload"
                .into(),
        ),
        (false, _) => ServerState::Ours,
    }
}

/// Whether the gateway's certificate has more than a third of its life left and carries all names.
fn server_is_fresh(pem: &str, names: &[String], now: UnixSeconds) -> bool {
    let Some(Ok(block)) = Pem::iter_from_buffer(pem.as_bytes()).next() else {
        return false;
    };
    let Ok(certificate) = block.parse_x509() else {
        return false;
    };
    let until = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    if UnixSeconds(until).since(now) < SERVER_LIFETIME_SECONDS / 3 {
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
    fn a_certificate_of_somebody_else_is_never_issued_anew_here() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let (other, _) = Ca::create(now, [9; 16]).unwrap();
        let names = vec!["gw.example".to_owned()];
        let (theirs, _) = other.issue_server(&names, now, [2; 16]).unwrap();
        let (ours, _) = ca.issue_server(&names, now, [3; 16]).unwrap();
        let late = now.plus(70 * 86_400);
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
    fn an_old_certificate_or_one_without_a_name_is_not_fresh() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let names = vec!["gw.example".to_owned(), "10.0.0.1".to_owned(), "::1".to_owned()];
        let (issued, _) = ca.issue_server(&names, now, [2; 16]).unwrap();
        assert!(server_is_fresh(&issued.pem, &names, now));
        assert!(!server_is_fresh(&issued.pem, &names, now.plus(61 * 86_400)));
        assert!(!server_is_fresh(&issued.pem, &["other.example".to_owned()], now));
        assert!(!server_is_fresh("", &names, now));
    }
}
