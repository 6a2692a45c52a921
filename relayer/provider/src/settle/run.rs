use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::driver::{Driver, DriverError, DriverParts, Shared, Signers};
use super::former::formers;

/// A driver for each of these keys, and for each key that is used no more and has a transaction under way.
///
/// # Errors
/// If the store fails, or does not say whose a transaction is.
pub async fn resume(shared: &Shared, signers: Vec<Signers>) -> Result<Vec<Driver>, DriverError> {
    let accounts: Vec<_> = signers.iter().map(Signers::account).collect();
    let formers = formers(&shared.store, &accounts).await?;
    let mut all = Vec::new();
    if let Some(first) = signers.first() {
        all.extend(formers.into_iter().map(|(name, address)| Signers {
            name,
            relayer: None,
            address,
            operator_name: first.operator_name.clone(),
            operator: Arc::clone(&first.operator),
            prefix: first.prefix.clone(),
            granter: None,
            duties: false,
        }));
    }
    all.extend(signers);
    let mut drivers = Vec::new();
    for signers in all {
        let shared = shared.clone();
        let driver = Driver::resume(DriverParts { shared, signers }).await?;
        driver.claim_outstanding().await?;
        drivers.push(driver);
    }
    Ok(drivers)
}

/// Runs a driver for each key until `stop`.
///
/// # Errors
/// What the first one that cannot go on says; the others end with it.
pub async fn run_all(drivers: Vec<Driver>, stop: watch::Receiver<bool>) -> Result<(), DriverError> {
    let mut running = JoinSet::new();
    for driver in drivers {
        running.spawn(driver.run(stop.clone()));
    }
    let mut outcome = Ok(());
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(Ok(())) if *stop.borrow() => {}
            Ok(Err(e)) => {
                outcome = Err(e);
                break;
            }
            // Ended too early, or panicked: the daemon notices that settlement has stopped.
            Ok(Ok(())) | Err(_) => break,
        }
    }
    // None goes on beside those that may take their place.
    running.shutdown().await;
    outcome
}
