//! What a receiver is told next. Pure.

use std::collections::BTreeMap;

use super::book::Alert;

/// What a receiver has been told of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Told {
    Nothing,
    Firing,
    Resolved,
}

/// What a message says of its alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Firing,
    Resolved,
}

impl Status {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }
}

/// Alerts of one name and cluster that are told together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) status: Status,
    pub(super) alerts: Vec<Alert>,
}

/// What is still to be said of an alert, and since when. That something began and ended within `wait_ms` is not said at all;
/// of something that lasted longer both is, in this order.
fn open(alert: &Alert, told: Told, wait_ms: u64) -> Option<(Status, u64)> {
    match (told, alert.ended_at) {
        (Told::Nothing | Told::Resolved, None) => Some((Status::Firing, alert.raised_at)),
        (Told::Nothing, Some(ended)) => {
            let lasted = ended.saturating_sub(alert.started_at) >= wait_ms;
            lasted.then_some((Status::Firing, alert.raised_at))
        }
        (Told::Firing, Some(_)) => Some((Status::Resolved, alert.cleared_at.unwrap_or(0))),
        (Told::Firing, None) | (Told::Resolved, Some(_)) => None,
    }
}

/// The group that has waited the longest, if one has waited for `wait_ms`; at most `most` alerts of it, the oldest first. What
/// is of a time to come has waited.
pub(super) fn choose(alerts: Vec<(Alert, Told)>, wait_ms: u64, most: usize, now_ms: u64) -> Option<Group> {
    let mut groups: BTreeMap<(String, String, Status), Vec<(u64, Alert)>> = BTreeMap::new();
    for (alert, told) in alerts {
        if let Some((status, mut since)) = open(&alert, told, wait_ms) {
            // By a clock that has been put back since: how long ago nobody knows. Another gateway's may be a little ahead.
            if since > now_ms.saturating_add(wait_ms) {
                since = 0;
            }
            let key = (alert.name.clone(), alert.cluster.clone(), status);
            groups.entry(key).or_default().push((since, alert));
        }
    }
    let oldest = |group: &[(u64, Alert)]| group.iter().map(|(since, _)| *since).min().unwrap_or(u64::MAX);
    let ((_, _, status), mut group) = groups.into_iter().min_by_key(|(_, group)| oldest(group))?;
    if oldest(&group).saturating_add(wait_ms) > now_ms {
        return None;
    }
    group.sort_by(|(a, x), (b, y)| (a, &x.key).cmp(&(b, &y.key)));
    group.truncate(most);
    Some(Group {
        status,
        alerts: group.into_iter().map(|(_, alert)| alert).collect(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alert(name: &str, node: u64, raised_at: u64, ended_at: Option<u64>) -> Alert {
        Alert {
            key: format!("{name}/c/{node}"),
            name: name.into(),
            cluster: "c".into(),
            node: format!("node-{node}"),
            instance: String::new(),
            severity: "warning".into(),
            summary: String::new(),
            started_at: raised_at,
            raised_at,
            ended_at,
            cleared_at: ended_at,
        }
    }

    #[test]
    fn what_comes_within_the_wait_is_told_together_and_other_kinds_apart() {
        let all = || {
            vec![
                (alert("node_stale", 1, 100, None), Told::Nothing),
                (alert("node_stale", 2, 105, None), Told::Nothing),
                (alert("node_offline", 3, 103, None), Told::Nothing),
            ]
        };
        assert_eq!(choose(all(), 10, 100, 109), None);
        let group = choose(all(), 10, 100, 110).unwrap();
        assert_eq!((group.status, group.alerts.len()), (Status::Firing, 2));
        assert!(group.alerts.iter().all(|a| a.name == "node_stale"));
    }

    #[test]
    fn what_was_over_soon_is_not_told_and_what_lasted_is_told_twice() {
        let short = vec![(alert("a", 1, 100, Some(109)), Told::Nothing)];
        assert_eq!(choose(short, 10, 100, 1_000), None);
        let long = alert("a", 1, 100, Some(110));
        let group = choose(vec![(long.clone(), Told::Nothing)], 10, 100, 1_000).unwrap();
        assert_eq!(group.status, Status::Firing, "though it has ended");
        let group = choose(vec![(long.clone(), Told::Firing)], 10, 100, 1_000).unwrap();
        assert_eq!(group.status, Status::Resolved);
        assert_eq!(choose(vec![(long, Told::Resolved)], 10, 100, 1_000), None);
    }

    #[test]
    fn what_was_raised_by_a_clock_that_was_ahead_does_not_wait_for_that_time() {
        let ahead = (alert("a", 1, 3_600_000, None), Told::Nothing);
        let waits = (alert("b", 2, 1_000, None), Told::Nothing);
        let group = choose(vec![waits, ahead], 10, 100, 1_005).unwrap();
        assert_eq!(group.alerts[0].name, "a");
        let ended = (alert("a", 1, 900, Some(3_600_000)), Told::Firing);
        let group = choose(vec![ended], 10, 100, 1_005).unwrap();
        assert_eq!(group.status, Status::Resolved);
        // A little ahead is another gateway's.
        let other = || vec![(alert("a", 1, 1_010, None), Told::Nothing)];
        assert_eq!(choose(other(), 10, 100, 1_005), None);
        assert!(choose(other(), 10, 100, 1_020).is_some());
    }

    proptest! {
        /// However alerts come and go, and however late a receiver is: of each it is told firing and resolved in turns, and
        /// in the end what is so.
        #[test]
        fn a_receiver_is_told_of_each_alert_in_turns(
            steps in proptest::collection::vec((0u64..4, any::<bool>(), 0u64..30, any::<bool>()), 1..80),
        ) {
            let (wait, mut now) = (10, 1_000);
            let mut book: BTreeMap<u64, Alert> = BTreeMap::new();
            let mut told: BTreeMap<u64, Told> = BTreeMap::new();
            let last = |book: &BTreeMap<u64, Alert>, told: &mut BTreeMap<u64, Told>, now: u64| {
                let rows = book.iter().map(|(n, a)| (a.clone(), *told.get(n).unwrap_or(&Told::Nothing))).collect();
                let Some(group) = choose(rows, wait, 100, now) else { return false };
                for a in group.alerts {
                    let n = a.node.trim_start_matches("node-").parse().unwrap();
                    let now_told = match group.status { Status::Firing => Told::Firing, Status::Resolved => Told::Resolved };
                    let was = told.insert(n, now_told).unwrap_or(Told::Nothing);
                    assert!(was != now_told && (was != Told::Nothing || now_told == Told::Firing));
                }
                true
            };
            for (node, wrong, pass, looks) in steps {
                now += pass;
                match (book.get_mut(&node), wrong) {
                    (None, true) => { book.insert(node, alert("a", node, now, None)); }
                    (Some(a), true) if a.ended_at.is_some() => *a = alert("a", node, now, None),
                    (Some(a), false) if a.ended_at.is_none() => { a.ended_at = Some(now); a.cleared_at = Some(now); }
                    _ => {}
                }
                if looks { last(&book, &mut told, now); }
            }
            now += 100;
            while last(&book, &mut told, now) {}
            for (n, a) in &book {
                let told = told.get(n).unwrap_or(&Told::Nothing);
                prop_assert_eq!(*told == Told::Firing, a.ended_at.is_none());
            }
        }
    }
}
