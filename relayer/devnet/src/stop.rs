//! The signal to stop.

use tokio::sync::watch;

/// Told to every part that runs on its own.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Waits until the chain is to stop; also if whoever could say so is gone.
    pub(crate) async fn wait(&mut self) {
        drop(self.0.wait_for(|stop| *stop).await);
    }
}
