use std::sync::Arc;
use std::time::Duration;

use super::host::Host;
use super::ledger::Ledger;

/// Looks after what completed tasks have left on the host: leases that end, machines that die.
pub trait Steward: Send {
    /// A name for its thread and for messages.
    fn name(&self) -> &'static str;

    /// Looks once: first when all that was interrupted is known, while it is being undone. The answer is when to look again; it runs on
    /// a thread of its own and may block.
    fn look(&mut self, host: &Host, ledger: &Arc<Ledger>) -> Duration;
}

/// The shortest pause between two looks.
const SHORTEST: Duration = Duration::from_millis(20);

/// Until nobody has the ledger any more.
pub(super) fn start(mut steward: Box<dyn Steward>, host: Arc<Host>, ledger: &Arc<Ledger>) {
    let ledger = Arc::downgrade(ledger);
    let name = steward.name();
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        while let Some(ledger) = ledger.upgrade() {
            let pause = steward.look(&host, &ledger);
            drop(ledger);
            std::thread::sleep(pause.max(SHORTEST));
        }
    });
    if let Err(e) = spawned {
        tracing::error!("{name} cannot be looked after: {e}");
    }
}
