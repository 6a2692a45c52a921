//! A drain as Slurm told it last. It holds until Slurm says otherwise: neither Slurm's silence nor a restart of the agent
//! ends what an administrator has begun.

use hpc_schema::heartbeat::SlurmState;
use serde::{Deserialize, Serialize};

use super::control::drained_by;
use super::node::is_withheld;
use super::{Answer, By, SlurmNode};

/// What Slurm said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// The node's state in Slurm's words.
    pub state: String,
    /// Why.
    pub reason: Option<String>,
    /// For whom the agent drained it; none if somebody else did.
    pub by: Option<By>,
}

impl Drained {
    /// The drain of this node, also of one that is down meanwhile; none if it is not drained.
    #[must_use]
    pub fn of(node: &SlurmNode) -> Option<Self> {
        let drained = node.state == SlurmState::Drain || is_withheld(&node.state_text);
        drained.then(|| Self {
            state: node.state_text.clone(),
            reason: node.reason.clone(),
            by: drained_by(node),
        })
    }

    /// What holds after this answer; `last` held before.
    #[must_use]
    pub fn after(last: Option<Self>, answer: &Answer<SlurmNode>) -> Option<Self> {
        match answer {
            Answer::Silent => last,
            Answer::NotHere => None,
            Answer::Said(node) => Self::of(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::parse;
    use super::*;

    const MIXED: &str = include_str!("../../../fixtures/slurm/node-mixed-22.05.txt");
    const DRAINING: &str = include_str!("../../../fixtures/slurm/node-draining-22.05.txt");

    fn said(text: &str) -> Answer<SlurmNode> {
        Answer::Said(parse(text, "vm").unwrap())
    }

    #[test]
    fn a_drain_holds_through_silence_until_slurm_says_otherwise() {
        let drained = Drained::after(None, &said(DRAINING)).unwrap();
        assert_eq!((drained.state.as_str(), drained.by), ("MIXED+DRAIN", None));
        let silent = Drained::after(Some(drained.clone()), &Answer::Silent);
        assert_eq!(silent, Some(drained.clone()));
        let ends = |answer| Drained::after(Some(drained.clone()), &answer);
        assert_eq!((ends(said(MIXED)), ends(Answer::NotHere)), (None, None));
        // Its slurmd does not answer: drained it is all the same.
        for state in [
            "IDLE*+DRAIN",
            "IDLE*+MAINTENANCE",
            "DOWN+FAIL",
            "IDLE+MAINTENANCE*",
        ] {
            let down = DRAINING.replace("MIXED+DRAIN", state);
            assert_eq!(ends(said(&down)).unwrap().reason, drained.reason, "{state}");
        }
        for state in ["DOWN*", "IDLE*", "DOWN+REBOOT_ISSUED"] {
            assert_eq!(
                ends(said(&DRAINING.replace("MIXED+DRAIN", state))),
                None,
                "{state}"
            );
        }
        assert_eq!(Drained::after(None, &Answer::Silent), None);
    }
}
