//! Faults of GPUs that are remembered: each once, and what a program caused never in place of what a card needs. Pure.

use super::told::XidSeen;
use super::xid::{self, Action};
use crate::probe::window::DAY;

/// More than sixteen cards bring that fail in several ways.
const MOST: usize = 64;

/// Takes one more of `device`. Where there are too many, that goes which needs the least, and of those the oldest.
pub(super) fn remember(all: &mut Vec<XidSeen>, device: &str, code: u32, at: u64, now: u64) {
    let mut seen = XidSeen {
        at,
        device: device.to_owned(),
        code,
        count: 1,
    };
    all.retain(|x| {
        let recent = x.at.saturating_add(DAY) > now;
        let same = x.code == code && x.device == device;
        if recent && same {
            seen.at = seen.at.max(x.at);
            seen.count = seen.count.saturating_add(x.count);
        }
        recent && !same
    });
    all.push(seen);
    if all.len() > MOST {
        let needs = |x: &XidSeen| xid::look_up(x.code).map_or(Action::None, |known| known.action);
        let least = all.iter().enumerate().min_by_key(|(_, x)| (needs(x), x.at));
        if let Some(least) = least.map(|(index, _)| index) {
            all.remove(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_303_803;

    #[test]
    fn a_fault_is_kept_once_with_its_newest_time_and_its_count() {
        let mut all = Vec::new();
        for (device, code, at) in [
            ("a", 13, 1),
            ("b", 13, 2),
            ("a", 13, 5),
            ("a", 13, 3),
            ("a", 31, 4),
        ] {
            remember(&mut all, device, code, NOW + at, NOW + 5);
        }
        let seen: Vec<_> = all
            .iter()
            .map(|x| (x.device.as_str(), x.code, x.at - NOW, x.count))
            .collect();
        assert_eq!(seen, [("b", 13, 2, 1), ("a", 13, 5, 3), ("a", 31, 4, 1)]);
        // Of yesterday's nothing is left.
        remember(&mut all, "a", 13, NOW + 5 + DAY, NOW + 5 + DAY);
        assert_eq!((all.len(), all[0].count), (1, 1));
    }

    #[test]
    fn what_programs_cause_pushes_out_nothing_that_a_card_needs() {
        let mut all = Vec::new();
        remember(&mut all, "bad", 79, NOW, NOW);
        remember(&mut all, "worn", 64, NOW, NOW);
        for n in 0..1000 {
            remember(&mut all, &format!("gpu{n}"), 31, NOW + n, NOW + n);
        }
        assert_eq!(all.len(), MOST);
        assert!(all.iter().any(|x| x.code == 79) && all.iter().any(|x| x.code == 64));
        assert!(
            all.iter().any(|x| x.device == "gpu999"),
            "the newest of the others"
        );
        // Where all need something, the least goes, were it the new one.
        for n in 0..1000 {
            remember(&mut all, &format!("gpu{n}"), 79, NOW + n, NOW + n);
        }
        remember(&mut all, "late", 31, NOW + 1000, NOW + 1000);
        assert!(all.iter().all(|x| x.code != 31) && all.iter().any(|x| x.code == 64));
    }
}
