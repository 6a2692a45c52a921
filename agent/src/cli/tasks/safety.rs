use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::super::output::{print, say};
use super::super::{ConfigArguments, Failure, Format};
use super::dir;
use crate::clock::Clock;
use crate::state::Lock;
use crate::task::safety::{Report, act, judge};
use crate::task::{Authority, Host, Ledger, Policy};

/// Between the two looks that an orphan must be seen in.
const BETWEEN: Duration = Duration::from_secs(2);

pub(super) fn run(arguments: &ConfigArguments, apply: bool, output: Format) -> Result<ExitCode, Failure> {
    let config = arguments.load()?;
    let dir = dir(&config)?;
    let failed = |e: &dyn std::fmt::Display| Failure::new(1, e);
    // Before the first task nothing is ours.
    let dir = match Authority::kept(&dir).map_err(|e| failed(&e.detail))? {
        Some(a) => dir.of(&a.cluster_id, &a.node_id),
        None => dir,
    };
    let policy = match config.tasks.as_ref().and_then(|t| t.policy.as_ref()) {
        Some(path) => Policy::load(path).map_err(|e| failed(&e))?,
        None => Policy::default(),
    };
    let held = Lock::is_held_at(&dir.lock());
    let lock = match apply {
        true => {
            let what = "the task agent runs, and does this by itself as far as safety of the policy goes; stop it to do it by hand";
            let lock = Lock::take_at(&dir.lock()).map_err(|e| failed(&e))?;
            Some(lock.filter(|_| !held).ok_or_else(|| Failure::new(2, what))?)
        }
        false => None,
    };
    let host = Host {
        roots: config.roots.clone(),
        policy: Arc::new(policy),
        clock: Clock::system(),
        dir,
    };
    let kept = Report::load(&host.dir)
        .map_err(|e| failed(&e))?
        .unwrap_or_default();
    let look = |before: &Report| {
        let ledger = Ledger::read(host.dir.journal()).map_err(|e| failed(&e))?;
        Ok::<_, Failure>(judge(&host, &ledger, before))
    };
    let mut report = look(&kept)?;
    if lock.is_some() {
        std::thread::sleep(BETWEEN);
        report = look(&report)?;
        act(&host, &mut report);
        report.save(&host.dir).map_err(|e| failed(&e))?;
    }
    let code = if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    if output != Format::Text {
        let shown = serde_json::to_value(&report).map_err(|e| failed(&e))?;
        print(&shown, output)?;
        return Ok(code);
    }
    tell(&report);
    Ok(code)
}

fn tell(report: &Report) {
    if report.is_clean() {
        say!("all that is ours on this host is in a journal, and all that the journals hold is there");
    }
    for orphan in &report.orphans {
        let aside = if orphan.set_aside.is_some() {
            ", set aside"
        } else {
            ""
        };
        say!("orphan, in no journal{aside}: {}", orphan.found);
        if let Some(trouble) = &orphan.trouble {
            say!("  {trouble}");
        }
    }
    for found in &report.unclear {
        say!("not touched, may be a task's whose journal cannot be read: {found}");
    }
    for (word, all) in [
        ("could not be undone yet", &report.left),
        ("journal", &report.damaged),
        ("held, and not there", &report.missing),
    ] {
        for what in all {
            say!("{word}: {what}");
        }
    }
}
