//! Gateways by whose clock ours is ahead of every certificate: of two clocks that differ either may be wrong. Pure.

/// Who has said so since heartbeats or certificates were last taken.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    first: Option<String>,
    told: bool,
}

impl Doubt {
    /// `gateway` says so, beside which there are `others` or none: whether ours is taken for wrong, as another has said the
    /// same or cannot.
    pub(super) fn says(&mut self, gateway: &str, others: bool) -> bool {
        let first = self.first.get_or_insert_with(|| gateway.to_owned());
        self.told |= !others || first.as_str() != gateway;
        self.told
    }

    /// It is over; whether ours was taken for wrong.
    pub(super) fn ends(&mut self) -> bool {
        std::mem::take(self).told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gateway_of_several_is_no_proof_however_often_it_says_it() {
        let mut doubt = Doubt::default();
        assert!(!doubt.says("a", true) && !doubt.says("a", true));
        assert!(doubt.says("b", true) && doubt.says("a", true));
        assert!(doubt.ends() && !doubt.ends());
        // What was said before counts no more.
        assert!(!doubt.says("b", true) && !doubt.ends());
        assert!(doubt.says("a", false));
    }
}
