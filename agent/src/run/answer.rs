//! What follows from the gateway's answer to a heartbeat. Pure.

use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::gateway::HeartbeatResponse;

use super::world::Timing;
use crate::sequence::BLOCK;

/// Highest acknowledgement that is believed; see [`effects`].
const MAX_CREDIBLE_ACK: u32 = 32_000_000;
/// First pause where a gateway does not know the node: it may not have read a new registration yet.
const UNKNOWN_FIRST: Duration = Duration::from_secs(3);

/// What the agent does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects {
    /// The interval agreed on from now on.
    pub interval: Duration,
    /// Pause until the next heartbeat, before jitter.
    pub pause: Duration,
    /// Whether `pause` may be shortened by jitter: not when it was set for this heartbeat alone.
    pub jitter: bool,
    /// Continue above this sequence number.
    pub raise_sequence: Option<u32>,
    /// Send the second section again.
    pub section_missing: bool,
    /// Answers in a row, with this one, that do not know the node.
    pub unknown: u32,
    /// The refusal, if it was one.
    pub refusal: Option<Refused>,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The code's word.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Follows `response`. `out_of_turn` says that this heartbeat was itself sent out of turn: then the next one keeps
/// the interval, so that two sides that do not understand each other do not chatter. `unknown` answers in a row before this
/// one did not know the node.
#[must_use]
pub fn effects(response: &HeartbeatResponse, out_of_turn: bool, unknown: u32, timing: &Timing) -> Effects {
    let interval = Duration::from_secs(u64::from(response.next_heartbeat_seconds))
        .clamp(timing.shortest_interval, timing.longest_interval);
    let codes = || {
        response
            .errors
            .iter()
            .filter_map(hpc_schema::gateway::Notice::code)
    };
    let section_missing = codes().any(|c| c == Code::SectionMissing);
    let mut out = Effects {
        interval,
        pause: interval,
        jitter: true,
        raise_sequence: None,
        section_missing,
        unknown: 0,
        refusal: None,
    };
    if response.accepted {
        return out;
    }
    let first = response.errors.first();
    let code = first.and_then(hpc_schema::gateway::Notice::code);
    out.refusal = Some(Refused {
        code: first.map_or_else(|| "refused".to_owned(), |n| n.code.clone()),
        message: first.map_or_else(|| "refused without a reason".to_owned(), |n| n.message.clone()),
        remedy: code.map_or_else(|| "see the gateway's log".to_owned(), |c| c.remedy().to_owned()),
    });
    let soon = if out_of_turn { interval } else { timing.out_of_turn };
    match code {
        Some(Code::StaleSequence) => {
            // The counter was lost, or another process used it: a block beyond what the gateway has seen.
            let ack = u32::try_from(response.sequence_ack).unwrap_or(u32::MAX);
            // One answer must not burn the whole space: a gateway that has been taken over could silence the node
            // until it is registered again. At the shortest interval this many are ten years of heartbeats.
            out.raise_sequence = (ack <= MAX_CREDIBLE_ACK).then(|| ack.saturating_add(BLOCK));
            (out.pause, out.jitter) = (soon, out_of_turn);
        }
        Some(Code::SectionMissing | Code::NonceReused) => (out.pause, out.jitter) = (soon, out_of_turn),
        Some(Code::UnknownNode) => {
            let grown = UNKNOWN_FIRST.saturating_mul(2u32.saturating_pow(unknown));
            out.pause = grown.min(timing.refused.max(interval));
            out.unknown = unknown.saturating_add(1);
        }
        Some(
            Code::KeyMismatch
            | Code::NodeDeregistered
            | Code::NodeDisabled
            | Code::SupersededByRotation
            | Code::ClusterMismatch
            | Code::IdentityMismatch
            | Code::UnsupportedVersion,
        ) => out.pause = timing.refused.max(interval),
        _ => {}
    }
    out
}

/// Whether the gateway has verified the heartbeat: of one that it has not, it takes no acknowledgement either.
#[must_use]
pub(super) fn verified(response: &HeartbeatResponse) -> bool {
    let repeated = |code: Option<Code>| matches!(code, Some(Code::StaleSequence | Code::NonceReused));
    response.accepted || response.errors.iter().any(|n| repeated(n.code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(accepted: bool, code: Option<Code>, next: u32) -> HeartbeatResponse {
        HeartbeatResponse {
            accepted,
            sequence_ack: 500,
            timestamp: "2026-01-30T14:05:00Z".parse().unwrap(),
            next_heartbeat_seconds: next,
            commands: Vec::new(),
            task_keys: Vec::new(),
            config_updates: None,
            errors: code
                .map(|c| hpc_schema::gateway::Notice::new(c, "it is so"))
                .into_iter()
                .collect(),
            chain: None,
            peers: Vec::new(),
        }
    }

    #[test]
    fn the_interval_is_obeyed_within_the_protocols_bounds() {
        let t = Timing::default();
        for (asked, given) in [(15, 15), (30, 30), (0, 10), (5, 10), (600, 120)] {
            let e = effects(&response(true, None, asked), false, 0, &t);
            assert_eq!(
                (e.pause, e.jitter, e.refusal),
                (Duration::from_secs(given), true, None)
            );
        }
    }

    #[test]
    fn acknowledgements_are_heard_with_a_heartbeat_that_was_verified_alone() {
        for (accepted, code, heard) in [
            (true, None, true),
            (true, Some(Code::SectionMissing), true),
            (false, Some(Code::StaleSequence), true),
            (false, Some(Code::NonceReused), true),
            (false, Some(Code::SignatureInvalid), false),
            (false, Some(Code::NodeDisabled), false),
            (false, None, false),
        ] {
            assert_eq!(
                verified(&response(accepted, code, 30)),
                heard,
                "{accepted} {code:?}"
            );
        }
    }

    #[test]
    fn a_stale_sequence_continues_a_block_above_and_at_once_but_only_once() {
        let t = Timing::default();
        let e = effects(&response(false, Some(Code::StaleSequence), 30), false, 0, &t);
        assert_eq!((e.raise_sequence, e.pause), (Some(500 + BLOCK), t.out_of_turn));
        let e = effects(&response(false, Some(Code::StaleSequence), 30), true, 0, &t);
        assert_eq!(e.pause, Duration::from_secs(30));
    }

    #[test]
    fn a_missing_section_is_sent_again_and_a_notice_of_it_counts_too() {
        let t = Timing::default();
        let e = effects(&response(false, Some(Code::SectionMissing), 30), false, 0, &t);
        assert!(e.section_missing && e.pause == t.out_of_turn && e.refusal.is_some());
        let e = effects(&response(true, Some(Code::SectionMissing), 30), false, 0, &t);
        assert!(e.section_missing && e.pause == Duration::from_secs(30) && e.refusal.is_none());
    }

    #[test]
    fn a_gateway_that_does_not_know_the_node_yet_is_asked_again_soon_and_then_ever_more_slowly() {
        let t = Timing::default();
        let answer = response(false, Some(Code::UnknownNode), 30);
        let (mut unknown, mut pauses) = (0, Vec::new());
        for _ in 0..7 {
            let e = effects(&answer, false, unknown, &t);
            pauses.push(e.pause.as_secs());
            unknown = e.unknown;
        }
        assert_eq!(pauses, [3, 6, 12, 24, 48, 60, 60]);
        assert_eq!(effects(&answer, false, u32::MAX, &t).pause, t.refused);
        assert_eq!(effects(&response(true, None, 30), false, unknown, &t).unknown, 0);
    }

    #[test]
    fn what_only_a_person_can_mend_is_repeated_slowly_with_its_remedy() {
        let t = Timing::default();
        for code in [Code::NodeDeregistered, Code::KeyMismatch, Code::NodeDisabled] {
            let e = effects(&response(false, Some(code), 30), false, 0, &t);
            assert_eq!(e.pause, t.refused);
            assert_eq!(e.refusal.unwrap().remedy, code.remedy());
        }
        let mut unknown = response(false, None, 30);
        unknown.errors = Vec::new();
        assert_eq!(effects(&unknown, false, 0, &t).refusal.unwrap().code, "refused");
    }
}
