//! Hostile tasks by their number: what is written by hand in each class, and what is drawn on top. Forged results are the
//! gateway's to refuse: `relayer/provider/src/task/forged.rs` has their class.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::code::Code;
use hpc_schema::task::{Task, TaskOutcome};

use super::bench::*;
use super::drawn::{DONE, Dice, LAID, REPLAYS, SWAPPED};
use super::hostile::{
    OTHERS, PROBE, REPLAYED, all_refused, at, elsewhere, forged, injecting, oversized, raw, traversing,
    unknown, untimely,
};
use super::races::{BEFORE, MEANWHILE};

/// Drawn in each class.
const DRAWN: usize = 24;

fn json(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Each with an id of its own.
fn drawn(site: &Site, class: &str, n: usize, dice: &mut Dice) -> (Task, Code) {
    let id = format!("{class}-{n}");
    let good = || site.task(&id, PROBE, "{}");
    match class {
        "signature" => {
            let mut task = good();
            match dice.below(3) {
                0 => {
                    let mut bytes = STANDARD.decode(&task.signature).unwrap();
                    let bit = dice.below(512);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    task.signature = STANDARD.encode(bytes);
                }
                1 => task.params = raw(&format!("{{{}}}", " ".repeat(1 + dice.below(50)))),
                _ => task.issued_at = at(-1 - i64::try_from(dice.below(500)).unwrap()),
            }
            (task, Code::TaskSignatureInvalid)
        }
        "elsewhere" => {
            let (mut site, word) = (site.clone(), dice.word());
            match dice.below(4) {
                0 => site.authority.node_id = format!("node-1{word}").parse().unwrap(),
                1 => site.authority.cluster_id = format!("hpc-cluster-1{word}").parse().unwrap(),
                2 => site.authority.chain_id.push_str(&word),
                _ => site.authority.contract.push_str(&word),
            }
            (site.task(&id, PROBE, "{}"), Code::TaskSignatureInvalid)
        }
        "time" => {
            let mut task = good();
            let far = i64::try_from(100 + dice.below(1_000_000)).unwrap();
            let (issued, expires, code) = match dice.below(2) {
                0 => (-far - 10, -far, Code::TaskExpired),
                _ => (far, far + 60, Code::TimestampInFuture),
            };
            task.issued_at = at(issued);
            task.expires_at = at(expires);
            site.sign(&mut task);
            (task, code)
        }
        "type" => {
            let known = ["diag.health_probe", "vm.launch", "slice.vm_release", "exec"];
            let tail = dice.one(&[".", " ", "/", ";", "-x", "\t", "é"]);
            let kind = format!("{}{tail}{}", dice.one(&known), dice.word());
            (site.task(&id, &kind, "{}"), Code::UnknownType)
        }
        "size" => {
            let params = format!(
                "{{\"{}\":\"{}\"}}",
                dice.word(),
                "x".repeat(65_600 + dice.below(9000))
            );
            (site.task(&id, PROBE, &params), Code::BodyTooLarge)
        }
        "path" => {
            let parts = ["..", ".", "", "etc", "shadow", "images", "a\u{0}b", "x\n"];
            let mut path: Vec<&str> = (0..=dice.below(5)).map(|_| dice.one(&parts)).collect();
            // Whatever the rest is, one part of it leads elsewhere.
            path.insert(dice.below(path.len() + 1), dice.one(&["..", ".", "a\u{0}b"]));
            let params = format!(
                r#"{{"vm_id":"vm-1","image_path":{},"image_sha256":"{}","vcpu_count":2,"memory_mib":512,"lease_seconds":600}}"#,
                json(&format!("/{}", path.join("/"))),
                "a".repeat(64)
            );
            (site.task(&id, "vm.launch", &params), Code::InvalidField)
        }
        "argument" => {
            let bad = dice.one(&[
                "$(id)", "`id`", ";id", "|id", " -x", "\n", ",x=y", "&", "'", "\"", "*", "%n",
            ]);
            let name = format!("{}{bad}{}", dice.word(), dice.word());
            let params = format!(r#"{{"vm_id":{}}}"#, json(&name));
            (site.task(&id, "vm.terminate", &params), Code::InvalidField)
        }
        _ => panic!("no class {class}"),
    }
}

#[test]
fn three_hundred_hostile_tasks_are_refused_each_with_its_code_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let classes = [
        ("signature", forged(&node.site)),
        ("elsewhere", elsewhere(&node.site)),
        ("time", untimely(&node.site)),
        ("type", unknown(&node.site)),
        ("size", oversized(&node.site)),
        ("path", traversing(&node.site)),
        ("argument", injecting(&node.site)),
    ];
    // These have tests of their own, each with what lies on the host before and afterwards.
    const { assert!(BEFORE.len() + MEANWHILE.len() >= 15 && REPLAYED.len() >= 15) };
    const { assert!(LAID + DONE + SWAPPED >= DRAWN && REPLAYS >= DRAWN) };
    let mut all = BEFORE.len() + MEANWHILE.len() + LAID + DONE + SWAPPED;
    all += REPLAYED.len() + OTHERS.len() + REPLAYS;
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for (class, by_hand) in classes {
        assert!(by_hand.len() >= 15, "{class} has {} by hand", by_hand.len());
        all += by_hand.len();
        all_refused(&node, class, by_hand);
        let drawn: Vec<_> = (0..DRAWN)
            .map(|n| drawn(&node.site, class, n, &mut dice))
            .collect();
        for (n, (task, wanted)) in drawn.into_iter().enumerate() {
            let result = node.run(&task);
            assert_eq!(
                code(&result),
                Some(wanted),
                "{class} {n}: {:?} {}",
                result.detail,
                task.params.get()
            );
            assert_ne!(result.outcome, TaskOutcome::Completed);
            all += 1;
        }
    }
    assert!(all >= 400, "{all}");
    assert!(left(&node.host).is_empty());
    let journals = std::fs::read_dir(node.host.dir.journal()).unwrap().count();
    assert_eq!(journals, 0, "a hostile task left a journal");
    println!("{all} hostile tasks");
}
