//! The 70-byte report and what is signed.

use super::body::{BODY_LEN, Body};
use super::bytes::Reader;
use super::section::{SectionDigest, section_digest};
use super::tag::{TAG_LEN, Tag};
use crate::code::Code;
use crate::key::{AgentKey, Verifier};
use crate::time::UnixSeconds;

/// Bytes of a report as the agent transmits it (`auth.report`).
pub const REPORT_LEN: usize = 70;
/// Bytes of the signed message, tag ‖ report.
pub const MESSAGE_LEN: usize = TAG_LEN + REPORT_LEN;
/// A report may be this many seconds older than the judge's clock (protocol decision 22).
pub const MAX_AGE_SECONDS: u64 = 300;
/// A report may be this many seconds ahead of the judge's clock.
pub const MAX_AHEAD_SECONDS: u64 = 60;

/// time u32 ‖ sequence u32 ‖ body 14 ‖ section digest 16 ‖ payload hash 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// `heartbeat.timestamp` in whole UNIX seconds, rounded down.
    pub time: u32,
    /// `heartbeat.sequence_number`.
    pub sequence: u32,
    /// The figures.
    pub body: Body,
    /// Digest of the node's present second section.
    pub section_digest: SectionDigest,
    /// SHA-256 of the raw bytes of the `heartbeat` JSON value.
    pub payload_hash: [u8; 32],
}

impl Report {
    /// The 70 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REPORT_LEN] {
        encode_parts(
            self.time,
            self.sequence,
            &self.body.encode(),
            &self.section_digest,
            &self.payload_hash,
        )
    }

    /// Reads exactly 70 bytes.
    ///
    /// # Errors
    /// [`Code::Malformed`] for another length or set reserved bits, [`Code::InvalidHealth`] for no status.
    pub fn decode(bytes: &[u8]) -> Result<Self, Code> {
        let bytes: &[u8; REPORT_LEN] = bytes.try_into().map_err(|_| Code::Malformed)?;
        let mut r = Reader::new(bytes);
        let mut read = || {
            Some((
                r.u32()?,
                r.u32()?,
                r.array::<BODY_LEN>()?,
                *r.array()?,
                *r.array()?,
            ))
        };
        let (time, sequence, body, section_digest, payload_hash) = read().ok_or(Code::Malformed)?;
        Ok(Self {
            time,
            sequence,
            body: Body::decode(body)?,
            section_digest,
            payload_hash,
        })
    }

    /// What the agent signs: tag ‖ report.
    #[must_use]
    pub fn message(&self, tag: &Tag) -> [u8; MESSAGE_LEN] {
        message(
            tag,
            self.time,
            self.sequence,
            &self.body.encode(),
            &self.section_digest,
            &self.payload_hash,
        )
    }

    /// Whether `section` is the one whose digest stands in the report.
    #[must_use]
    pub fn covers(&self, section: &[u8]) -> bool {
        self.section_digest == section_digest(section)
    }

    /// The judge's checks that need no record of the node, in the order that all judges keep:
    /// sequence range, time window, signature.
    ///
    /// # Errors
    /// [`Code::InvalidSequence`], [`Code::TimestampExpired`], [`Code::TimestampInFuture`],
    /// [`Code::SignatureInvalid`].
    pub fn check(
        &self,
        verifier: &impl Verifier,
        tag: &Tag,
        key: &AgentKey,
        signature: &[u8],
        now: UnixSeconds,
    ) -> Result<(), Code> {
        check_sequence(self.sequence)?;
        check_time(self.time, now)?;
        if verifier.verify(&self.message(tag), signature, key.as_bytes()) {
            Ok(())
        } else {
            Err(Code::SignatureInvalid)
        }
    }
}

/// 1 ≤ sequence ≤ 2³²−1 (protocol decision 5).
///
/// # Errors
/// [`Code::InvalidSequence`] for 0.
pub fn check_sequence(sequence: u32) -> Result<(), Code> {
    if sequence == 0 {
        Err(Code::InvalidSequence)
    } else {
        Ok(())
    }
}

/// Not older than five minutes, not more than one minute ahead of `now`.
///
/// # Errors
/// [`Code::TimestampExpired`], [`Code::TimestampInFuture`].
pub fn check_time(time: u32, now: UnixSeconds) -> Result<(), Code> {
    let time = UnixSeconds(u64::from(time));
    if now.since(time) > MAX_AGE_SECONDS {
        Err(Code::TimestampExpired)
    } else if time.since(now) > MAX_AHEAD_SECONDS {
        Err(Code::TimestampInFuture)
    } else {
        Ok(())
    }
}

/// The signed message from its parts, for a judge that holds body bytes but has not judged them yet.
#[must_use]
pub fn message(
    tag: &Tag,
    time: u32,
    sequence: u32,
    body: &[u8; BODY_LEN],
    section_digest: &SectionDigest,
    payload_hash: &[u8; 32],
) -> [u8; MESSAGE_LEN] {
    let mut out = [0; MESSAGE_LEN];
    let (head, tail) = out.split_at_mut(TAG_LEN);
    head.copy_from_slice(tag.as_bytes());
    tail.copy_from_slice(&encode_parts(time, sequence, body, section_digest, payload_hash));
    out
}

fn encode_parts(
    time: u32,
    sequence: u32,
    body: &[u8; BODY_LEN],
    section_digest: &SectionDigest,
    payload_hash: &[u8; 32],
) -> [u8; REPORT_LEN] {
    let mut out = [0; REPORT_LEN];
    let mut rest = &mut out[..];
    for part in [
        &time.to_be_bytes()[..],
        &sequence.to_be_bytes(),
        &body[..],
        &section_digest[..],
        &payload_hash[..],
    ] {
        // The parts are 4 + 4 + 14 + 16 + 32 = 70 bytes: the split never fails.
        if let Some((to, left)) = std::mem::take(&mut rest).split_at_mut_checked(part.len()) {
            to.copy_from_slice(part);
            rest = left;
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::super::body::tests::any_body;
    use super::*;

    pub(crate) fn any_report() -> impl Strategy<Value = Report> {
        (
            any::<u32>(),
            any::<u32>(),
            any_body(),
            any::<SectionDigest>(),
            any::<[u8; 32]>(),
        )
            .prop_map(|(time, sequence, body, section_digest, payload_hash)| Report {
                time,
                sequence,
                body,
                section_digest,
                payload_hash,
            })
    }

    proptest! {
        #[test]
        fn reports_survive_the_round_trip(report in any_report()) {
            prop_assert_eq!(Report::decode(&report.encode()), Ok(report));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..140)) {
            if let Ok(report) = Report::decode(&bytes) {
                prop_assert_eq!(&report.encode()[..], &bytes[..]);
            }
        }

        #[test]
        fn the_message_is_tag_then_report(report in any_report(), tag: [u8; TAG_LEN]) {
            let message = report.message(&Tag::from_bytes(tag));
            prop_assert_eq!(&message[..TAG_LEN], &tag[..]);
            prop_assert_eq!(&message[TAG_LEN..], &report.encode()[..]);
        }
    }

    #[test]
    fn five_minutes_old_and_one_minute_ahead_are_the_limits() {
        let now = UnixSeconds(1_000_000);
        assert_eq!(check_time(999_700, now), Ok(()));
        assert_eq!(check_time(999_699, now), Err(Code::TimestampExpired));
        assert_eq!(check_time(1_000_060, now), Ok(()));
        assert_eq!(check_time(1_000_061, now), Err(Code::TimestampInFuture));
        assert_eq!(check_sequence(0), Err(Code::InvalidSequence));
        assert_eq!(check_sequence(u32::MAX), Ok(()));
    }

    #[test]
    fn lengths_add_up() {
        assert_eq!(REPORT_LEN, 4 + 4 + BODY_LEN + 16 + 32);
        assert_eq!(MESSAGE_LEN, 86);
    }
}
