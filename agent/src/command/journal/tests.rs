use hpc_schema::time::Rfc3339;
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

fn command(id: &str, issued: u64, deadline: u64) -> Command {
    Command {
        command_id: id.to_owned(),
        command_type: String::new(),
        parameters: RawValue::from_string("{}".to_owned()).unwrap(),
        deadline: Rfc3339::from_unix(deadline, 0).unwrap(),
        issued_at: Rfc3339::from_unix(issued, 0).unwrap(),
        nonce: String::new(),
        signature: String::new(),
    }
}

fn ready(_: &Entry) -> bool {
    true
}

fn statuses(j: &Journal) -> Vec<(String, &'static str)> {
    j.acknowledgements()
        .into_iter()
        .map(|a| (a.command_id, a.status.as_str()))
        .collect()
}

#[test]
fn an_order_is_taken_once_and_heard_until_the_gateway_has_its_outcome() {
    let mut j = Journal::new(100);
    let c = command("c1", 100, 200);
    assert_eq!(j.take(&c, CommandType::Drain, 110), Taken::New);
    assert_eq!(statuses(&j), [("c1".to_owned(), "accepted")]);
    let told = j.acknowledgements();
    assert!(j.heard(&told) && !j.heard(&told) && statuses(&j).is_empty() && !j.has_news());
    assert_eq!(j.next(ready).unwrap().command_id, "c1");
    j.begin("c1");
    j.finish("c1", Outcome::done(120, "drained"));
    j.finish("c1", Outcome::failed(121, "late"));
    assert!(j.next(ready).is_none() && j.has_news());
    assert_eq!(statuses(&j), [("c1".to_owned(), "done")]);
    j.heard(&j.clone().acknowledgements());
    assert!(statuses(&j).is_empty());
    // The gateway forgot it: it is told again, and not carried out again.
    assert_eq!(
        j.take(&command("c1", 100, 900), CommandType::Drain, 130),
        Taken::Known
    );
    assert_eq!(statuses(&j), [("c1".to_owned(), "done")]);
    assert!(j.next(ready).is_none());
}

#[test]
fn the_last_word_on_draining_counts_in_whatever_order_words_arrive() {
    let mut j = Journal::new(0);
    j.take(&command("drain", 10, 999), CommandType::Drain, 20);
    j.take(&command("resume", 30, 999), CommandType::Resume, 40);
    assert_eq!(j.next(ready).unwrap().command_id, "resume");
    assert_eq!(
        j.entries()
            .next()
            .unwrap()
            .outcome
            .as_ref()
            .unwrap()
            .code
            .as_deref(),
        Some("invalid_state")
    );
    j.take(&command("old", 20, 999), CommandType::Drain, 50);
    assert_eq!(j.next(ready).unwrap().command_id, "resume");
}

#[test]
fn after_a_lost_journal_only_what_does_no_harm_twice_is_carried_out() {
    let mut j = Journal::new(100);
    for (id, kind) in [("s", CommandType::Shutdown), ("u", CommandType::UpdateAgent)] {
        j.take(&command(id, 99, 999), kind, 101);
    }
    assert!(j.next(ready).is_none() && j.has_news());
    j.take(&command("d", 99, 999), CommandType::Drain, 102);
    j.take(&command("s2", 100, 999), CommandType::Shutdown, 103);
    assert_eq!(j.next(ready).unwrap().command_id, "d");
}

#[test]
fn the_journal_is_bounded_by_number_and_time() {
    let mut j = Journal::new(0);
    for n in 0..LIMIT {
        assert_eq!(
            j.take(&command(&n.to_string(), 1, 100), CommandType::RunDiagnostic, 50),
            Taken::New
        );
    }
    assert_eq!(
        j.take(&command("x", 1, 100), CommandType::RunDiagnostic, 50),
        Taken::Full
    );
    let later = 101 + REMEMBERED;
    assert_eq!(
        j.take(&command("x", 1, later), CommandType::RunDiagnostic, later),
        Taken::New
    );
    assert_eq!(j.entries().count(), 1);
}

#[test]
fn finished_orders_make_room_diagnostics_first_and_what_does_harm_is_not_begun_again() {
    let mut j = Journal::new(0);
    let take = |j: &mut Journal, id: &str, issued, kind| j.take(&command(id, issued, 10_000), kind, 50);
    take(&mut j, "drain", 1, CommandType::Drain);
    take(&mut j, "shutdown", 2, CommandType::Shutdown);
    for id in ["drain", "shutdown"] {
        j.finish(id, Outcome::done(50, ""));
    }
    for n in 2..LIMIT {
        let id = format!("d{n}");
        take(&mut j, &id, 3, CommandType::RunDiagnostic);
        j.finish(&id, Outcome::done(50, ""));
    }
    // d3 was heard, d2 was not.
    j.find("d3").unwrap().heard = Heard::Outcome;
    let there = |j: &Journal, id: &str| j.entries().any(|e| e.command_id == id);
    assert_eq!(take(&mut j, "u1", 4, CommandType::UpdateAgent), Taken::New);
    assert!(!there(&j, "d3") && there(&j, "d2"));
    for n in 2..LIMIT {
        take(&mut j, &format!("u{n}"), 5, CommandType::UpdateAgent);
    }
    // Open orders are never forgotten, nor is the last word on draining.
    assert!(there(&j, "u1") && there(&j, "drain") && !there(&j, "shutdown"));
    assert_eq!(take(&mut j, "x", 6, CommandType::RunDiagnostic), Taken::Full);
    j.finish("u1", Outcome::done(50, ""));
    assert_eq!(take(&mut j, "shutdown", 2, CommandType::Shutdown), Taken::New);
    let told_again = j.entries().next_back().unwrap().outcome.as_ref().unwrap();
    assert_eq!(told_again.code.as_deref(), Some("invalid_state"));
}

#[test]
fn drain_and_resume_go_first_and_a_shutdown_waits_for_all_but_updates() {
    let mut j = Journal::new(0);
    for (id, issued, kind) in [
        ("shutdown", 1, CommandType::Shutdown),
        ("update", 2, CommandType::UpdateAgent),
        ("diagnostic", 3, CommandType::RunDiagnostic),
        ("drain", 4, CommandType::Drain),
    ] {
        j.take(&command(id, issued, 999), kind, 10);
    }
    let next = |j: &Journal, not: &[&str]| {
        let ready = |e: &Entry| !not.contains(&e.command_id.as_str());
        j.next(ready).map(|e| e.command_id.clone())
    };
    assert_eq!(next(&j, &[]).as_deref(), Some("drain"));
    assert_eq!(next(&j, &["drain"]).as_deref(), Some("update"));
    assert_eq!(next(&j, &["drain", "update"]).as_deref(), Some("diagnostic"));
    assert_eq!(next(&j, &["drain", "update", "diagnostic"]), None);
    j.finish("drain", Outcome::done(11, ""));
    j.finish("diagnostic", Outcome::done(11, ""));
    assert_eq!(next(&j, &["update"]).as_deref(), Some("shutdown"));
}

#[test]
fn a_report_that_the_gateway_refuses_is_left_out_and_said_to_be() {
    let mut j = Journal::new(0);
    j.take(&command("d", 1, 999), CommandType::RunDiagnostic, 10);
    j.finish(
        "d",
        Outcome::done(11, "all well").with_report(&serde_json::json!({"a": 1})),
    );
    let told = j.acknowledgements();
    assert!(told[0].report.is_some() && j.too_large(&told));
    let again = j.acknowledgements();
    let detail = again[0].detail.clone().unwrap();
    assert!(
        again[0].report.is_none() && detail.contains("413") && detail.ends_with("all well"),
        "{detail}"
    );
    assert!(!j.too_large(&again));
}

proptest! {
    /// Whatever is told again, and wherever the process is killed after the journal was kept: each order that
    /// does not turn the node is begun until it has one outcome, and that outcome never changes.
    #[test]
    fn no_order_has_two_outcomes(steps in proptest::collection::vec((0u8..6, 0u8..4, any::<bool>()), 1..80)) {
        let mut j = Journal::new(0);
        let mut ended = std::collections::BTreeMap::new();
        for (now, (id, step, killed)) in steps.into_iter().enumerate() {
            let now = u64::try_from(now).unwrap() + 1;
            let id = format!("c{id}");
            match step {
                0 | 1 => { j.take(&command(&id, 1, 1000), CommandType::RunDiagnostic, now); }
                2 => if let Some(next) = j.next(ready).map(|e| e.command_id.clone()) {
                    prop_assert!(!ended.contains_key(&next));
                    j.begin(&next);
                    j.finish(&next, Outcome::done(now, &format!("at {now}")));
                    ended.insert(next, format!("at {now}"));
                },
                _ => { let told = j.acknowledgements(); j.heard(&told); }
            }
            if killed {
                j = serde_json::from_str(&serde_json::to_string(&j).unwrap()).unwrap();
            }
            for e in j.entries() {
                let said = e.outcome.as_ref().and_then(|o| o.detail.clone());
                prop_assert_eq!(said.as_ref(), ended.get(&e.command_id));
            }
        }
    }
}
