//! The lifecycle as pure functions (protocol decisions 12–20). Every threshold is strict (`>`).
//!
//! Each function takes a record by value and answers with the record after it and the arrows it went along,
//! in order. Time is an argument: the block's time in the contract.

use super::transition::{Reason, Transition};
use super::{HealthStatus, HotRecord, NodeState};
use crate::code::Code;
use crate::registry::Params;
use crate::report::{Body, check_sequence, check_time};
use crate::time::UnixSeconds;

/// What a report says that the lifecycle needs; its signature has been verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportView {
    /// Report time, UNIX seconds.
    pub time: u32,
    /// Report sequence.
    pub sequence: u32,
    /// The figures.
    pub body: Body,
}

/// What a report is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The judge's clock: block time.
    pub now: UnixSeconds,
    /// Thresholds.
    pub params: &'a Params,
    /// Whether the node's cluster is active.
    pub cluster_active: bool,
}

/// An accepted report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The record after it.
    pub record: HotRecord,
    /// Arrows taken, in order: first those that silence had made due.
    pub transitions: Vec<Transition>,
    /// [`Code::ClusterInactive`] if the report counts but the node stays PENDING.
    pub notice: Option<Code>,
    /// Set when the report ended OFFLINE: seconds from the former to the new last heartbeat.
    pub downtime: Option<u32>,
}

/// How far silence may step a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// A neighbour of a written page, or a node about to be changed: never beyond OFFLINE.
    Neighbour,
    /// A sweep: DEREGISTERED too, unless a provider's drain protects the node until later than now.
    Sweep {
        /// End of the protection; `None` without a drain.
        drain_until: Option<UnixSeconds>,
    },
}

struct Walk {
    record: HotRecord,
    now: UnixSeconds,
    transitions: Vec<Transition>,
}

impl Walk {
    fn new(record: HotRecord, now: UnixSeconds) -> Self {
        Self {
            record,
            now,
            transitions: Vec::new(),
        }
    }

    fn go(&mut self, to: NodeState, reason: Reason) {
        if to == NodeState::Deregistered {
            // No order outlives the node.
            self.record.drain = false;
        }
        self.transitions.push(Transition {
            from: Some(self.record.state),
            to,
            reason,
        });
        self.record.enter(to, self.now);
    }

    fn silence(&mut self, params: &Params, mode: Silence) {
        let silence = self.record.silence(self.now);
        if self.record.state == NodeState::Active && silence > u64::from(params.heartbeat_timeout) {
            self.go(NodeState::Stale, Reason::Silence);
        }
        let waits = matches!(
            self.record.state,
            NodeState::Stale | NodeState::Draining | NodeState::Drained
        );
        if waits && silence > u64::from(params.offline_threshold) {
            self.go(NodeState::Offline, Reason::Silence);
        }
        if let Silence::Sweep { drain_until } = mode
            && deregistration_due(&self.record, params, self.now)
            && !(self.record.drain && drain_until.is_some_and(|until| self.now < until))
        {
            self.go(NodeState::Deregistered, Reason::Silence);
        }
    }

    /// DRAINING ⇄ DRAINED by whether something runs.
    fn settle_drain(&mut self) {
        match (self.record.state, self.record.has_jobs) {
            (NodeState::Draining, false) => self.go(NodeState::Drained, Reason::JobsDone),
            (NodeState::Drained, true) => self.go(NodeState::Draining, Reason::JobsStarted),
            _ => {}
        }
    }
}

/// Whether OFFLINE has lasted long enough to become DEREGISTERED, a drain aside: silence beyond
/// `deregistration_delay` and OFFLINE on record for `deregistration_delay` − `offline_threshold`, so that a
/// chain that stood still deregisters nobody (decision 15).
#[must_use]
pub fn deregistration_due(record: &HotRecord, params: &Params, now: UnixSeconds) -> bool {
    let on_record = u64::from(
        params
            .deregistration_delay
            .saturating_sub(params.offline_threshold),
    );
    record.silence(now) > u64::from(params.deregistration_delay)
        && record
            .offline_since()
            .is_some_and(|since| now.since(since) >= on_record)
}

/// Steps a node by its silence; idempotent at one `now`. PENDING and DEREGISTERED stay what they are.
#[must_use]
pub fn step_silence(
    record: HotRecord,
    params: &Params,
    now: UnixSeconds,
    mode: Silence,
) -> (HotRecord, Vec<Transition>) {
    let mut walk = Walk::new(record, now);
    walk.silence(params, mode);
    (walk.record, walk.transitions)
}

/// The record as queries show it: what a batch or sweep would record now, except DEREGISTERED (decision 16).
#[must_use]
pub fn effective(record: HotRecord, params: &Params, now: UnixSeconds) -> HotRecord {
    step_silence(record, params, now, Silence::Neighbour).0
}

/// Applies a report whose signature has been verified.
///
/// # Errors
/// In this order: [`Code::InvalidSequence`], [`Code::NodeDeregistered`], [`Code::StaleSequence`],
/// [`Code::TimestampExpired`], [`Code::TimestampInFuture`].
pub fn apply_report(record: HotRecord, report: &ReportView, ctx: &Context<'_>) -> Result<Applied, Code> {
    check_sequence(report.sequence)?;
    if record.state == NodeState::Deregistered {
        return Err(Code::NodeDeregistered);
    }
    if report.sequence <= record.sequence {
        return Err(Code::StaleSequence);
    }
    check_time(report.time, ctx.now)?;

    let mut walk = Walk::new(record, ctx.now);
    walk.silence(ctx.params, Silence::Neighbour);

    let before = walk.record;
    let now = u32::try_from(ctx.now.0).unwrap_or(u32::MAX);
    walk.record.last_heartbeat = before.last_heartbeat.max(report.time.min(now));
    walk.record.take_figures(report.sequence, &report.body);
    let silence = walk.record.silence(ctx.now);
    let status = report.body.status;
    let drained = walk.record.drain || status == HealthStatus::Draining;

    let mut notice = None;
    match before.state {
        NodeState::Pending if !ctx.cluster_active => notice = Some(Code::ClusterInactive),
        NodeState::Pending => walk.go(NodeState::Active, Reason::Heartbeat),
        // The remaining silence alone would make it OFFLINE again: nothing counts.
        NodeState::Offline if silence > u64::from(ctx.params.offline_threshold) => {}
        NodeState::Stale | NodeState::Offline if drained => walk.go(NodeState::Draining, Reason::Recovered),
        // Still too old to be anything but STALE.
        NodeState::Stale if silence > u64::from(ctx.params.heartbeat_timeout) => {}
        NodeState::Stale | NodeState::Offline => walk.go(NodeState::Active, Reason::Recovered),
        NodeState::Draining | NodeState::Drained if !drained && status.is_schedulable() => {
            walk.go(NodeState::Active, Reason::Agent);
        }
        NodeState::Active | NodeState::Draining | NodeState::Drained | NodeState::Deregistered => {}
    }
    if walk.record.state == NodeState::Active && drained {
        let reason = if walk.record.drain {
            Reason::Provider
        } else {
            Reason::Agent
        };
        walk.go(NodeState::Draining, reason);
    }
    walk.settle_drain();
    // The latency shares its bytes with `since` and could not be taken while the record was OFFLINE.
    walk.record.take_figures(report.sequence, &report.body);
    walk.silence(ctx.params, Silence::Neighbour);

    let left = before.state == NodeState::Offline && walk.record.state != NodeState::Offline;
    let downtime = left.then(|| walk.record.last_heartbeat.saturating_sub(before.last_heartbeat));
    Ok(Applied {
        record: walk.record,
        transitions: walk.transitions,
        notice,
        downtime,
    })
}

/// Orders a provider's drain. ACTIVE goes to DRAINING; whether nothing runs any more is for the next report to
/// say. PENDING, STALE and OFFLINE take it up with their next report. Ordering it again changes nothing here.
///
/// # Errors
/// [`Code::NodeDeregistered`].
pub fn drain(
    record: HotRecord,
    params: &Params,
    now: UnixSeconds,
) -> Result<(HotRecord, Vec<Transition>), Code> {
    if record.state == NodeState::Deregistered {
        return Err(Code::NodeDeregistered);
    }
    let mut walk = Walk::new(record, now);
    walk.silence(params, Silence::Neighbour);
    walk.record.drain = true;
    if walk.record.state == NodeState::Active {
        walk.go(NodeState::Draining, Reason::Provider);
    }
    Ok((walk.record, walk.transitions))
}

/// Ends a drain, the provider's or the agent's. DRAINING and DRAINED go to ACTIVE and on by their silence;
/// elsewhere only the order is withdrawn.
///
/// # Errors
/// [`Code::NodeDeregistered`]; [`Code::InvalidState`] if no drain is in force.
pub fn resume(
    record: HotRecord,
    params: &Params,
    now: UnixSeconds,
) -> Result<(HotRecord, Vec<Transition>), Code> {
    if record.state == NodeState::Deregistered {
        return Err(Code::NodeDeregistered);
    }
    let mut walk = Walk::new(record, now);
    walk.silence(params, Silence::Neighbour);
    let draining = matches!(walk.record.state, NodeState::Draining | NodeState::Drained);
    if !draining && !record.drain {
        return Err(Code::InvalidState);
    }
    walk.record.drain = false;
    if draining {
        walk.go(NodeState::Active, Reason::Provider);
        walk.silence(params, Silence::Neighbour);
    }
    Ok((walk.record, walk.transitions))
}

/// Records DEREGISTERED from any other state. One arrow: the state it had on record is left as it is.
///
/// # Errors
/// [`Code::NodeDeregistered`] if it is already.
pub fn deregister(record: HotRecord, now: UnixSeconds) -> Result<(HotRecord, Vec<Transition>), Code> {
    if record.state == NodeState::Deregistered {
        return Err(Code::NodeDeregistered);
    }
    let mut walk = Walk::new(record, now);
    walk.go(NodeState::Deregistered, Reason::Deregistered);
    Ok((walk.record, walk.transitions))
}

/// Starts a new epoch: the sequence begins anew. A node not on record or DEREGISTERED becomes PENDING with no
/// figures and no drain; any other keeps its state.
#[must_use]
pub fn register(record: Option<HotRecord>) -> (HotRecord, Vec<Transition>) {
    let from = match record {
        Some(live) if live.state != NodeState::Deregistered => {
            return (HotRecord { sequence: 0, ..live }, Vec::new());
        }
        Some(old) => Some(old.state),
        None => None,
    };
    let last_heartbeat = record.map_or(0, |r| r.last_heartbeat);
    let transition = Transition {
        from,
        to: NodeState::Pending,
        reason: Reason::Registered,
    };
    (
        HotRecord {
            last_heartbeat,
            ..HotRecord::pending()
        },
        vec![transition],
    )
}

#[cfg(test)]
#[path = "lifecycle_tests/mod.rs"]
mod tests;
