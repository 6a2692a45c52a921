//! What tasks hold on this node, as the task domain publishes it: another process, perhaps another user's.

use std::path::PathBuf;

use hpc_schema::heartbeat::{JobId, Label};

use super::capacity::Held;
use crate::files::{FileError, at, read_text};
use crate::task::TaskDir;
use crate::task::domain::{Holdings, Running};

/// Some thousand holdings.
const LIMIT: u64 = 4 << 20;

/// What tasks hold and what they have left unproven.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TaskHoldings {
    /// What is not free.
    pub held: Held,
    /// What runs here because of it: `slice-…`, `vm-…`, `alloc-…`.
    pub work: Vec<JobId>,
    /// Slots that nobody has proven clean.
    pub unproven_slots: u32,
}

/// Reads them again and again.
#[derive(Debug, Clone)]
pub struct HoldingsFile {
    path: Option<PathBuf>,
    last: TaskHoldings,
}

impl HoldingsFile {
    /// In the task domain's folder; none where the node takes no tasks.
    #[must_use]
    pub fn new(dir: Option<&std::path::Path>) -> Self {
        Self {
            path: dir.map(|d| TaskDir::new(d).holdings()),
            last: TaskHoldings::default(),
        }
    }

    /// The same; this ran when an agent last looked.
    #[must_use]
    pub fn knowing(mut self, work: Vec<JobId>) -> Self {
        self.last.work = work;
        self
    }

    /// What was read last.
    #[must_use]
    pub fn last(&self) -> &TaskHoldings {
        &self.last
    }

    /// Reads them; what cannot be read stays as it was.
    ///
    /// # Errors
    /// IO, form. A file that is not there yet says that nothing is held.
    pub fn read(&mut self) -> Result<&TaskHoldings, FileError> {
        let Some(path) = &self.path else {
            return Ok(&self.last);
        };
        self.last = match path.try_exists().map_err(at("read", path))? {
            // Whoever takes tasks writes it when it starts; a file server may not be there.
            false => TaskHoldings {
                work: std::mem::take(&mut self.last.work),
                ..TaskHoldings::default()
            },
            true => {
                let text = read_text(path, LIMIT)?;
                let read = serde_json::from_str::<Holdings>(&text);
                let read = read.map_err(|e| at("read", path)(e.into()))?;
                let runs = read.running.as_ref();
                TaskHoldings {
                    work: match runs.map(|all| all.iter().filter_map(work).collect()) {
                        Some(work) => work,
                        // An older version's: its successor says more in a moment.
                        None => std::mem::take(&mut self.last.work),
                    },
                    ..total(&read)
                }
            }
        };
        Ok(&self.last)
    }
}

/// A user goes by its allocation, for names of people do not belong on a chain.
fn work(runs: &Running) -> Option<JobId> {
    let (kind, name) = match runs.kind.as_str() {
        "user" => ("alloc", runs.allocation_id.as_ref().unwrap_or(&runs.task_id)),
        kind => (kind, &runs.name),
    };
    let own = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
    Label::lossy(&format!("{kind}-{}", own.unwrap_or(name)))
}

/// The sum. A tenant's user has the whole node.
fn total(holdings: &Holdings) -> TaskHoldings {
    let (mut cores, mut mib, mut gpus, mut unproven) = (0u64, 0u64, 0u64, 0u64);
    for held in &holdings.holdings {
        if held.kind == "user" {
            (cores, mib, gpus) = (u64::MAX, u64::MAX, u64::MAX);
        }
        let fact = |name: &str| {
            held.facts
                .get(name)
                .and_then(serde_json::Value::as_u64)
                .unwrap_or(0)
        };
        cores = cores.saturating_add(fact("vcpus"));
        mib = mib.saturating_add(fact("memory_mib"));
        gpus = gpus.saturating_add(fact("gpus"));
        unproven = unproven.saturating_add(fact("unproven_slots"));
    }
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    TaskHoldings {
        held: Held {
            cores: count(cores),
            // What is given away in part is not free.
            memory_gb: count(mib.div_ceil(1024)),
            gpus: count(gpus),
        },
        work: Vec::new(),
        unproven_slots: count(unproven),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(dir: &tempfile::TempDir, value: &serde_json::Value) -> TaskHoldings {
        let mut file = HoldingsFile::new(Some(dir.path()));
        std::fs::write(dir.path().join("holdings.json"), value.to_string()).unwrap();
        file.read().unwrap().clone()
    }

    fn held(kind: &str, facts: &serde_json::Value) -> serde_json::Value {
        json!({"kind": kind, "name": "x", "task_id": "task-1", "since": 1, "facts": facts})
    }

    #[test]
    fn machines_and_slices_hold_what_they_may_take_and_a_tenants_user_holds_all() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = HoldingsFile::new(Some(dir.path()));
        assert_eq!(*file.read().unwrap(), TaskHoldings::default());
        assert_eq!(*HoldingsFile::new(None).read().unwrap(), TaskHoldings::default());
        let some = json!({"holdings": [
            held("vm", &json!({"vcpus": 2, "memory_mib": 1500, "ends_at": 9})),
            held("slice", &json!({"vcpus": 12, "memory_mib": 65_536, "gpus": 1, "unproven_slots": 1})),
        ]});
        let all = read(&dir, &some);
        assert_eq!(
            all.held,
            Held {
                cores: 14,
                memory_gb: 66,
                gpus: 1
            }
        );
        assert_eq!(all.unproven_slots, 1);
        let user = read(&dir, &json!({"holdings": [held("user", &json!({}))]}));
        assert_eq!((user.held.cores, user.held.gpus), (u32::MAX, u32::MAX));
        // What cannot be read stays as it was.
        let mut file = HoldingsFile::new(Some(dir.path()));
        file.read().unwrap();
        std::fs::write(dir.path().join("holdings.json"), "{").unwrap();
        assert!(file.read().is_err());
        assert_eq!(*file.last(), user);
    }

    #[test]
    fn what_runs_here_because_of_tasks_is_work_under_nobodys_name() {
        let dir = tempfile::tempdir().unwrap();
        let runs = |kind: &str, name: &str| json!({"kind": kind, "name": name, "task_id": "task-1"});
        let mut alice = runs("user", "alice");
        alice["allocation_id"] = "alloc-42".into();
        let running = [
            runs("vm", "vm-7"),
            runs("slice", "train-3"),
            alice,
            runs("user", "bob"),
        ];
        let held = [held("slice", &json!({"vcpus": 1, "unproven_slots": 1}))];
        let work = read(&dir, &json!({"holdings": held, "running": running})).work;
        let ids: Vec<&str> = work.iter().map(JobId::as_str).collect();
        assert_eq!(ids, ["vm-7", "slice-train-3", "alloc-42", "alloc-task-1"]);
        assert!(
            read(&dir, &json!({"holdings": held, "running": []}))
                .work
                .is_empty()
        );
    }

    #[test]
    fn what_ran_goes_on_running_until_somebody_says_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let before = vec![Label::lossy("vm-7").unwrap()];
        let mut file = HoldingsFile::new(Some(dir.path())).knowing(before.clone());
        assert_eq!(file.read().unwrap().work, before, "no file yet");
        for silent in ["{", r#"{"holdings": []}"#] {
            std::fs::write(dir.path().join("holdings.json"), silent).unwrap();
            drop(file.read().cloned());
            assert_eq!(file.last().work, before, "{silent}");
        }
        std::fs::write(
            dir.path().join("holdings.json"),
            r#"{"holdings": [], "running": []}"#,
        )
        .unwrap();
        assert!(file.read().unwrap().work.is_empty());
    }
}
