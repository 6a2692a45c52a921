//! Which second section the chain holds: it is sent until a settled report carried it (protocol decision 8). Pure.

use std::collections::VecDeque;

use hpc_schema::report::SectionDigest;

/// Sections under way at once; they change rarely.
const LIMIT: usize = 64;

/// Follows the sections of the reports sent.
#[derive(Debug, Default, Clone)]
pub struct SectionTracker {
    settled: Option<SectionDigest>,
    /// First sequence number of each run of reports with the same section.
    sent: VecDeque<(u32, SectionDigest)>,
}

impl SectionTracker {
    /// Digest of the section that the chain is known to hold.
    #[must_use]
    pub fn settled(&self) -> Option<SectionDigest> {
        self.settled
    }

    /// A report with this section was sent.
    pub fn sent(&mut self, sequence: u32, digest: SectionDigest) {
        if self.sent.back().is_some_and(|(_, last)| *last == digest) {
            return;
        }
        if self.sent.len() >= LIMIT {
            // What is forgotten is sent again.
            self.sent.pop_front();
        }
        self.sent.push_back((sequence, digest));
    }

    /// The chain holds the report with this number.
    pub fn covered(&mut self, settled_sequence: u32) {
        while let Some((first, digest)) = self
            .sent
            .front()
            .copied()
            .filter(|(first, _)| *first <= settled_sequence)
        {
            self.settled = Some(digest);
            // The newest run stays: later reports continue it.
            if self.sent.len() == 1 {
                self.sent = VecDeque::from([(first, digest)]);
                break;
            }
            self.sent.pop_front();
        }
    }

    /// The gateway misses the section: send it again.
    pub fn missing(&mut self) {
        self.settled = None;
        self.sent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SectionDigest = [1; 16];
    const B: SectionDigest = [2; 16];

    #[test]
    fn a_section_is_settled_once_a_report_that_carried_it_is() {
        let mut t = SectionTracker::default();
        for n in 5..8 {
            t.sent(n, A);
        }
        t.covered(4);
        assert_eq!(t.settled(), None);
        t.covered(6);
        assert_eq!(t.settled(), Some(A));
        t.sent(8, B);
        t.covered(7);
        assert_eq!(t.settled(), Some(A));
        t.sent(9, A);
        t.covered(8);
        assert_eq!(t.settled(), Some(B));
        t.covered(9);
        assert_eq!(t.settled(), Some(A));
        t.covered(9);
        assert_eq!(t.settled(), Some(A));
    }

    #[test]
    fn a_missing_section_is_sent_until_it_settles_again() {
        let mut t = SectionTracker::default();
        t.sent(1, A);
        t.covered(1);
        t.missing();
        assert_eq!(t.settled(), None);
        // The old report settling again says nothing.
        t.covered(1);
        assert_eq!(t.settled(), None);
        t.sent(2, A);
        t.covered(2);
        assert_eq!(t.settled(), Some(A));
    }

    #[test]
    fn memory_is_bounded_however_long_the_chain_is_down() {
        let mut t = SectionTracker::default();
        for n in 0..1000u32 {
            t.sent(n, if n % 2 == 0 { A } else { B });
        }
        assert!(t.sent.len() <= LIMIT);
        t.covered(1000);
        assert_eq!(t.settled(), Some(B));
    }
}
