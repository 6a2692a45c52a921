use hpc_chain::rpc::Follower;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::driver::{Driver, DriverError};

/// Runs a driver for each key until `stop`, and for as long the follower that tells them of new blocks.
///
/// # Errors
/// What the first one that cannot go on says; the others end with it.
pub async fn run_all(
    drivers: Vec<Driver>,
    follower: Follower,
    stop: watch::Receiver<bool>,
) -> Result<(), DriverError> {
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
    drop(follower);
    outcome
}
