//! What a transaction's end means for each report in it: pure.

use hpc_schema::code::Code;
use hpc_schema::registry::SubmitAnswer;

/// What becomes of one report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It counts on chain, perhaps with a notice.
    OnChain(Option<Code>),
    /// The contract refused it.
    Refused(Code),
    /// Not told: ask the contract for the node's sequence.
    Unknown,
}

/// The outcome of each of `count` reports by the contract's answer; `group_ends[g]` is the number of items up
/// to and with group `g`.
#[must_use]
pub fn of_answer(answer: &SubmitAnswer, group_ends: &[usize], count: usize) -> Vec<Outcome> {
    let mut out = vec![Outcome::OnChain(None); count];
    let mut put = |item: u32, outcome: Outcome| {
        if let Some(slot) = usize::try_from(item).ok().and_then(|i| out.get_mut(i)) {
            *slot = outcome;
        }
    };
    for (item, number) in &answer.notices {
        put(*item, Outcome::OnChain(Code::from_number(*number)));
    }
    for (item, number) in &answer.refused {
        put(
            *item,
            match Code::from_number(*number) {
                // Somebody has relayed this one, or a later one of the node: that is what we wanted.
                Some(Code::StaleSequence) => Outcome::OnChain(Some(Code::StaleSequence)),
                Some(code) => Outcome::Refused(code),
                None => Outcome::Refused(Code::UnsupportedVersion),
            },
        );
    }
    // Items of a group that could not be read to its end were not all counted, so the numbers of later
    // groups' items are not certain either.
    let first_bad = answer.bad_groups.iter().map(|(group, _)| *group).min();
    if let Some(group) = first_bad.and_then(|g| usize::try_from(g).ok()) {
        let from = group
            .checked_sub(1)
            .and_then(|g| group_ends.get(g))
            .copied()
            .unwrap_or(0);
        for slot in out.iter_mut().skip(from) {
            *slot = Outcome::Unknown;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_contract_does_not_list_counts() {
        let answer = SubmitAnswer {
            accepted: 3,
            refused: vec![
                (1, Code::TimestampExpired.number()),
                (3, Code::StaleSequence.number()),
            ],
            notices: vec![(0, Code::ClusterInactive.number())],
            bad_groups: vec![],
        };
        assert_eq!(
            of_answer(&answer, &[5], 5),
            [
                Outcome::OnChain(Some(Code::ClusterInactive)),
                Outcome::Refused(Code::TimestampExpired),
                Outcome::OnChain(None),
                Outcome::OnChain(Some(Code::StaleSequence)),
                Outcome::OnChain(None),
            ]
        );
    }

    #[test]
    fn a_group_that_could_not_be_read_leaves_its_items_and_later_ones_open() {
        let answer = SubmitAnswer {
            bad_groups: vec![(1, Code::Malformed.number())],
            ..SubmitAnswer::default()
        };
        let got = of_answer(&answer, &[2, 4, 5], 5);
        assert_eq!(got[..2], [Outcome::OnChain(None); 2]);
        assert_eq!(got[2..], [Outcome::Unknown; 3]);
    }

    #[test]
    fn numbers_beyond_the_batch_and_unknown_codes_harm_nobody_else() {
        let answer = SubmitAnswer {
            refused: vec![(9, 1), (0, 255)],
            ..SubmitAnswer::default()
        };
        let got = of_answer(&answer, &[2], 2);
        assert_eq!(
            got,
            [Outcome::Refused(Code::UnsupportedVersion), Outcome::OnChain(None)]
        );
    }
}
