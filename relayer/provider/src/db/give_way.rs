//! SQLite's threads give way.

use std::fs;

use rustix::process::{Pid, getpid, getpriority_process, setpriority_process};

/// What is added to the `nice` of the process, 19 at most: where all CPUs are busy SQLite's threads have about a tenth of the
/// time of one that answers heartbeats, which wait for the intake journal and for nothing of SQLite's. That tenth is several
/// times what taking in every report needs.
const NICER: i32 = 10;
const NICEST: i32 = 19;
/// What sqlx calls them, as far as the system keeps it.
const NAMED: &str = "sqlx-sqlite-wor";

/// Lets SQLite's threads of this process give way to the others, after each time that one may have been made: sqlx starts them
/// itself. They go on all the same where the system does not say which they are.
pub(crate) fn give_way() {
    let Ok(own) = getpriority_process(Some(getpid())) else {
        return;
    };
    let nice = own.saturating_add(NICER).min(NICEST);
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if !name.starts_with(NAMED) {
            continue;
        }
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok());
        if let Some(id) = id.and_then(Pid::from_raw)
            && let Err(error) = setpriority_process(Some(id), nice)
        {
            tracing::debug!(%error, "a thread of the store does not give way");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpid, getpriority_process};

    use crate::store::Store;

    #[test]
    fn the_delivered_unit_allows_it() {
        let unit = include_str!("../../../../deploy/systemd/virtengine-provider.service");
        let filters: Vec<_> = unit
            .lines()
            .filter_map(|l| l.strip_prefix("SystemCallFilter="))
            .collect();
        // What comes later counts.
        assert_eq!(
            filters,
            ["@system-service", "~@privileged @resources", "setpriority"]
        );
    }

    /// The `nice` of each thread of this process, by its name.
    fn threads() -> Vec<(String, i32)> {
        let all = std::fs::read_dir("/proc/self/task").unwrap();
        all.flatten()
            .filter_map(|thread| {
                let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
                let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
                // Field 19 of the line, of which two are before this.
                Some((name.to_owned(), rest.split_whitespace().nth(16)?.parse().ok()?))
            })
            .collect()
    }

    #[tokio::test]
    async fn the_threads_of_a_store_give_way_and_no_other_thread_does() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        // Of the second reader too.
        let _one = store.reader().acquire().await.unwrap();
        let _two = store.reader().acquire().await.unwrap();
        let threads = threads();
        let own = getpriority_process(Some(getpid())).unwrap();
        let of_sqlite = |name: &str| name.starts_with(super::NAMED);
        assert!(threads.iter().filter(|(name, _)| of_sqlite(name)).count() >= 3);
        for (name, nice) in &threads {
            // Another test's may just have been made.
            if !of_sqlite(name) {
                assert_eq!(*nice, own, "{name}");
            }
        }
        let given = threads
            .iter()
            .filter(|(name, nice)| of_sqlite(name) && *nice == (own + super::NICER).min(super::NICEST));
        assert!(given.count() >= 3, "{threads:?}");
    }
}
