//! The jobs of this node: lines of `squeue --noheader --all --states=all --format=%A|%T|%e|%N|%n|%Y`.
//!
//! Everything the controller remembers is listed and picked from here: `--nodelist` would leave out what waits, and the
//! controller sends its whole list anyway ([`super::listed`]).

use std::collections::BTreeMap;

use super::hostlist;

/// `--format`: id, state, end, nodes, required nodes, scheduled nodes.
pub(super) const FORMAT: &str = "--format=%A|%T|%e|%N|%n|%Y";
/// More on one node is not believed.
const MOST: usize = 4096;
/// Ends that are looked at to find the middle one.
const ENDS: usize = 65_536;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// `COMPLETED`.
    Completed,
    /// Failed, timed out, out of memory, its node failed, …
    Failed,
    /// Cancelled, preempted, revoked: somebody wanted that.
    Withdrawn,
}

/// The jobs of one node at one moment.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Ids of jobs that hold resources here (running, suspended, completing, …), rising.
    pub active: Vec<u64>,
    /// Jobs that wait for this very node.
    pub pending: u32,
    /// Jobs that ended here and are still remembered: id → how, UNIX seconds.
    pub ended: BTreeMap<u64, (End, u64)>,
    /// How many jobs were listed, of all nodes.
    pub all: usize,
    /// When those among them ended that have, in UNIX seconds.
    pub ends: Vec<u64>,
}

enum Phase {
    Pending,
    Active,
    Ended(End),
}

impl Queue {
    /// Takes one line; what cannot be read, or is another node's, is left out.
    pub fn add(&mut self, line: &[u8], node: &str) {
        self.all = self.all.saturating_add(1);
        if self.active.len().saturating_add(self.ended.len()) < MOST {
            self.try_add(line, node);
        }
    }

    /// The middle one of all ends. It is about half as old as what the controller forgets next; the oldest may be older than
    /// that by far: the first job of an array is kept until all others of it have ended.
    pub(super) fn middle_end(&mut self) -> Option<u64> {
        if self.ends.is_empty() {
            return None;
        }
        let middle = self.ends.len() / 2;
        let (_, at, _) = self.ends.select_nth_unstable(middle);
        Some(*at)
    }

    fn try_add(&mut self, line: &[u8], node: &str) -> Option<()> {
        let mut fields = std::str::from_utf8(line).ok()?.split('|').map(str::trim);
        let id: u64 = fields.next()?.parse().ok()?;
        let phase = phase(fields.next()?)?;
        let end = fields.next()?;
        if matches!(phase, Phase::Ended(_))
            && self.ends.len() < ENDS
            && let Ok(at) = end.parse()
        {
            self.ends.push(at);
        }
        let here = |list: Option<&str>| list.is_some_and(|l| hostlist::contains(l, node));
        let (on, required, scheduled) = (here(fields.next()), here(fields.next()), here(fields.next()));
        match phase {
            Phase::Pending if required || scheduled => self.pending = self.pending.saturating_add(1),
            Phase::Active if on => {
                if let Err(at) = self.active.binary_search(&id) {
                    self.active.insert(at, id);
                }
            }
            Phase::Ended(how) if on => {
                self.ended.insert(id, (how, end.parse().ok()?));
            }
            _ => {}
        }
        Some(())
    }
}

/// Slurm's job states (`squeue --help`, JOB STATE CODES); none for one of tomorrow.
fn phase(state: &str) -> Option<Phase> {
    Some(match state {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => {
            Phase::Pending
        }
        "RUNNING" | "SUSPENDED" | "COMPLETING" | "CONFIGURING" | "STOPPED" | "SIGNALING" | "STAGE_OUT"
        | "RESIZING" => Phase::Active,
        "COMPLETED" => Phase::Ended(End::Completed),
        "FAILED" | "TIMEOUT" | "NODE_FAIL" | "OUT_OF_MEMORY" | "BOOT_FAIL" | "DEADLINE" | "LAUNCH_FAILED"
        | "RECONFIG_FAIL" => Phase::Ended(End::Failed),
        "CANCELLED" | "PREEMPTED" | "REVOKED" => Phase::Ended(End::Withdrawn),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slurm 22.05.8: array 4 was cancelled while its first task ran, 8 asks for node vm, 9 is an array that waits.
    const RECORDED: &str = include_str!("../../../fixtures/slurm/queue-22.05.txt");

    fn read(text: &str, node: &str) -> Queue {
        let mut q = Queue::default();
        text.lines().for_each(|l| q.add(l.as_bytes(), node));
        q
    }

    #[test]
    fn a_recorded_queue_is_read() {
        let mut q = read(RECORDED, "vm");
        assert_eq!(q.active, [7]);
        assert_eq!(q.pending, 1);
        assert_eq!(
            q.ended.clone().into_iter().collect::<Vec<_>>(),
            [
                (1, (End::Completed, 1_795_303_666)),
                (2, (End::Failed, 1_795_303_626)),
                (3, (End::Completed, 1_795_303_629)),
                (6, (End::Withdrawn, 1_795_303_765)),
            ]
        );
        assert_eq!(
            (q.all, q.ends.len(), q.middle_end()),
            (RECORDED.lines().count(), 6, Some(1_795_303_765))
        );
        assert!(is_empty(&read(RECORDED, "other")));
    }

    #[test]
    fn the_middle_end_counts_whatever_the_oldest_is() {
        assert_eq!(Queue::default().middle_end(), None);
        let text = "1|COMPLETED|5|a||\n2|FAILED|900|b||\n3|RUNNING|990|a||\n4|COMPLETED|870|a||\n";
        let mut q = read(text, "a");
        assert_eq!((q.ends.len(), q.middle_end()), (3, Some(870)));
    }

    fn is_empty(q: &Queue) -> bool {
        q.active.is_empty() && q.pending == 0 && q.ended.is_empty()
    }

    #[test]
    fn jobs_of_many_nodes_count_where_they_are() {
        let text = "9|RUNNING|1795303666|gpu[01-04]||\n9|RUNNING|NONE|gpu[01-04]||\n\
                    10|COMPLETING|NONE|gpu[03,07]||\n11|PENDING|NONE|||gpu[02-03]\n12|TIMEOUT|5|gpu03||\n";
        let q = read(text, "gpu03");
        assert_eq!((q.active, q.pending), (vec![9, 10], 1));
        assert_eq!(q.ended.get(&12), Some(&(End::Failed, 5)));
        assert_eq!(read(text, "gpu02").active, [9]);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        for bad in [
            "",
            "x",
            "1",
            "1|RUNNING",
            "x|RUNNING|1|vm",
            "1|NEW_STATE|1|vm",
            "1|COMPLETED|NONE|vm",
            "\u{fffd}|||",
        ] {
            let q = read(bad, "vm");
            assert!(is_empty(&q) && q.ends.is_empty(), "{bad}");
        }
        assert_eq!(read("1|RUNNING|NONE|vm", "vm").active, [1]);
    }
}
