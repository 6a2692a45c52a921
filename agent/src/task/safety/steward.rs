use std::sync::Arc;
use std::time::Duration;

use super::act::settle;
use super::{Report, judge};
use crate::task::host::Host;
use crate::task::ledger::Ledger;
use crate::task::steward::Steward;

/// The second look follows the first soon: only what is an orphan in both is touched.
const AGAIN: Duration = Duration::from_secs(10);

/// Looks at the host on start and from time to time.
#[derive(Debug, Default)]
pub struct Safety {
    last: Option<Report>,
}

impl Steward for Safety {
    fn name(&self) -> &'static str {
        "safety"
    }

    fn look(&mut self, host: &Host, ledger: &Arc<Ledger>) -> Duration {
        let first = self.last.is_none();
        let before = self.last.take().unwrap_or_else(|| {
            let kept = Report::load(&host.dir);
            // A report that cannot be read is no report: what it knew is found again.
            kept.ok().flatten().unwrap_or_default()
        });
        let mut report = judge(host, ledger, &before);
        for orphan in &report.orphans {
            if !before.orphans.iter().any(|o| o.found == orphan.found) {
                tracing::warn!("an orphan, in no journal: {}", orphan.found);
            }
        }
        settle(host, &mut report);
        if let Err(e) = report.save(&host.dir) {
            tracing::warn!("{e}");
        }
        let fresh = report.orphans.iter().any(|o| o.since >= report.at);
        self.last = Some(report);
        let minutes = u64::from(host.policy.safety.every_minutes.max(1));
        let pause = Duration::from_secs(minutes.saturating_mul(60));
        if first || fresh { AGAIN.min(pause) } else { pause }
    }
}
