//! Tasks that are not what they should be: each refused with its code, none leaves a trace on the host.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::code::Code;
use hpc_schema::task::{Delivered, Task, TaskOutcome};
use hpc_schema::time::Rfc3339;
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::super::domain::{Input, Output};
use super::bench::*;
use crate::clock::Clock;

pub(super) const PROBE: &str = "diag.health_probe";

pub(super) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

pub(super) fn at(offset: i64) -> Rfc3339 {
    let now = i64::try_from(Clock::system().seconds()).unwrap();
    Rfc3339::from_unix(u64::try_from(now + offset).unwrap(), 0).unwrap()
}

/// Ways in which a task comes again that was done.
pub(super) const REPLAYED: [&str; 16] = [
    "as it was",
    "with another lease",
    "without a lease",
    "as a second attempt",
    "as the last attempt that there can be",
    "twice at once",
    "thirty times",
    "after the gateway was away",
    "after the gateway has heard of it",
    "after a restart",
    "after a second restart, at once",
    "after it was taken back",
    "after rotations that are none",
    "after another task had its machine",
    "after its machine's name was asked for in vain",
    "after a task that was refused",
];
/// Other tasks under its id.
pub(super) const OTHERS: [&str; 3] = ["vm.launch", "vm.terminate", PROBE];

/// Delivers each, and expects its code, and no journal, machine or lease afterwards.
pub(super) fn all_refused(node: &Node, class: &str, cases: Vec<(Task, Code)>) {
    assert!(cases.len() >= 15, "{class} has {} cases", cases.len());
    for (number, (task, wanted)) in cases.into_iter().enumerate() {
        // Each meets a node that has refused nothing so far: what was refused once is refused with the same word.
        let dir = tempfile::tempdir().unwrap();
        let mut host = node.host.clone();
        host.dir = super::super::TaskDir::new(&dir.path().join("tasks"));
        let node = Node::with(host, node.site.clone());
        let result = node.run(&task);
        assert_eq!(
            code(&result),
            Some(wanted),
            "{class} {number}: {:?} {}",
            result.detail,
            task.params.get()
        );
        assert_ne!(result.outcome, TaskOutcome::Completed);
        assert!(left(&node.host).is_empty(), "{class} {number}");
        let journal = node.host.dir.journal().join(format!("{}.log", task.task_id));
        assert!(!journal.exists(), "{class} {number} left a journal");
    }
}

pub(super) fn forged(site: &Site) -> Vec<(Task, Code)> {
    let good = site.task("good", PROBE, "{}");
    let sealed = |change: &dyn Fn(&mut Task)| {
        let mut task = good.clone();
        change(&mut task);
        task
    };
    let signature = STANDARD.decode(&good.signature).unwrap();
    let flipped = |bit: usize| {
        let mut bytes = signature.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        STANDARD.encode(bytes)
    };
    let forged = Code::TaskSignatureInvalid;
    let mut cases: Vec<(Task, Code)> = vec![
        (sealed(&|t| t.task_id = "other-id".parse().unwrap()), forged),
        (
            sealed(&|t| t.task_type = "slice.topology_discover".into()),
            forged,
        ),
        (sealed(&|t| t.task_type = "diag.health_probe ".into()), forged),
        (sealed(&|t| t.params = raw("{ }")), forged),
        (sealed(&|t| t.params = raw(r#"{"checks":["gpu"]}"#)), forged),
        (sealed(&|t| t.issued_at = at(-1000)), forged),
        (sealed(&|t| t.expires_at = at(3600)), forged),
        (sealed(&|t| t.nonce = STANDARD.encode([9; 16])), forged),
        (sealed(&|t| t.signature = STANDARD.encode([0; 64])), forged),
        (sealed(&|t| t.signature = STANDARD.encode([255; 64])), forged),
        (sealed(&|t| t.signature = String::new()), Code::Malformed),
        (sealed(&|t| t.signature = "AAAA".into()), Code::Malformed),
        (
            sealed(&|t| t.signature = t.signature.replace('=', "")),
            Code::Malformed,
        ),
        (sealed(&|t| t.signature.push_str("AA==")), Code::Malformed),
        (sealed(&|t| t.signature = "-".repeat(88)), Code::Malformed),
    ];
    for bit in [0, 7, 100, 255, 256, 300, 510] {
        cases.push((sealed(&|t| t.signature = flipped(bit)), forged));
    }
    // By a key that is not the cluster's.
    let other = Site::of_another_key();
    cases.push((other.task("good", PROBE, "{}"), forged));
    cases
}

#[test]
fn a_task_whose_signature_is_not_the_task_keys_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let cases = forged(&node.site);
    all_refused(&node, "signature", cases);
}

pub(super) fn elsewhere(site: &Site) -> Vec<(Task, Code)> {
    let mut cases = Vec::new();
    for name in ["node-2", "node-10", "Node-1", "node-1.", "xnode-1"] {
        let mut site = site.clone();
        site.authority.node_id = name.parse().unwrap();
        cases.push((site.task("good", PROBE, "{}"), Code::TaskSignatureInvalid));
    }
    for name in ["hpc-cluster-2", "hpc-cluster-", "Hpc-cluster-1", "hpc-cluster-11"] {
        let mut site = site.clone();
        site.authority.cluster_id = name.parse().unwrap();
        cases.push((site.task("good", PROBE, "{}"), Code::TaskSignatureInvalid));
    }
    for (chain, contract) in [
        ("hpc-2", "wasm1abc"),
        ("hpc-", "1wasm1abc"),
        ("hpc-1wasm1abc", ""),
        ("", "hpc-1wasm1abc"),
        ("hpc-1", "wasm1abd"),
        ("HPC-1", "wasm1abc"),
        ("hpc-1 ", "wasm1abc"),
    ] {
        let mut site = site.clone();
        site.authority.chain_id = chain.into();
        site.authority.contract = contract.into();
        cases.push((site.task("good", PROBE, "{}"), Code::TaskSignatureInvalid));
    }
    cases
}

#[test]
fn a_task_of_another_node_cluster_contract_or_chain_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let cases = elsewhere(&node.site);
    all_refused(&node, "other node", cases);
}

pub(super) fn untimely(site: &Site) -> Vec<(Task, Code)> {
    let mut cases = Vec::new();
    let timed = |issued: i64, expires: i64, kind: &str, params: &str| {
        let mut task = site.task("timed", kind, params);
        task.issued_at = at(issued);
        task.expires_at = at(expires);
        site.sign(&mut task);
        task
    };
    for expired in [
        -2,
        -3,
        -5,
        -10,
        -30,
        -60,
        -120,
        -600,
        -1800,
        -3600,
        -7200,
        -86_400,
        -604_800,
        -5_000_000,
        -100_000_000,
    ] {
        cases.push((timed(expired - 10, expired, PROBE, "{}"), Code::TaskExpired));
    }
    for ahead in [120, 300, 3600, 86_400] {
        cases.push((timed(ahead, ahead + 60, PROBE, "{}"), Code::TimestampInFuture));
    }
    for life in [604_801, 1_000_000, 100_000_000] {
        cases.push((timed(0, life, PROBE, "{}"), Code::TaskExpired));
    }
    cases
}

#[test]
fn a_task_that_is_too_old_too_new_or_too_long_lived_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path());
    let cases = untimely(&node.site);
    all_refused(&node, "time", cases);
    // Issued before this node remembers: a task that changes nothing is carried out all the same.
    node.domain.stop();
    node.site.authority.since = Clock::system().seconds();
    let node = Node::with(node.host, node.site);
    let mut old = launch(&node.site, "old-1", "vm-1");
    old.issued_at = at(-30);
    node.site.sign(&mut old);
    assert_eq!(code(&node.run(&old)), Some(Code::OutcomeUnknown));
    let mut old = node.site.task("old-2", PROBE, "{}");
    old.issued_at = at(-30);
    node.site.sign(&mut old);
    assert_eq!(code(&node.run(&old)), None);
}

#[test]
fn a_task_that_is_replayed_is_answered_with_what_it_was_and_never_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path());
    let task = launch(&node.site, "task-1", "vm-1");
    let first = node.run(&task);
    node.run(&terminate(&node.site, "task-2", "vm-1"));
    for (number, way) in REPLAYED.into_iter().enumerate() {
        let mut again = Delivered {
            task: task.clone(),
            lease_seconds: 30,
            attempt: 1,
        };
        let mut times = 1;
        match way {
            "with another lease" => again.lease_seconds = 1,
            "without a lease" => again.lease_seconds = 0,
            "as a second attempt" => again.attempt = 2,
            "as the last attempt that there can be" => again.attempt = u32::MAX,
            "twice at once" => times = 2,
            "thirty times" => times = 30,
            "after the gateway was away" => assert!(node.domain.tell(Input::Hello)),
            "after the gateway has heard of it" => node.heard(&task.task_id),
            "after a restart" | "after a second restart, at once" => {
                node.domain.stop();
                node = Node::with(node.host, node.site);
            }
            "after it was taken back" => {
                assert!(node.domain.tell(Input::Cancel(node.site.cancellation(&task))));
            }
            "after rotations that are none" => assert!(node.domain.tell(Input::Keys { steps: Vec::new() })),
            "after another task had its machine" => {
                assert_eq!(code(&node.run(&launch(&node.site, "task-3", "vm-1"))), None);
                assert_eq!(code(&node.run(&terminate(&node.site, "task-4", "vm-1"))), None);
            }
            "after its machine's name was asked for in vain" => {
                node.run(&launch(&node.site, "task-5", "fails-1"));
            }
            "after a task that was refused" => {
                assert_eq!(
                    code(&node.run(&node.site.task("task-6", "exec.shell", "{}"))),
                    Some(Code::UnknownType)
                );
            }
            _ => {}
        }
        for _ in 0..times {
            assert!(node.domain.tell(Input::Deliver(Box::new(again.clone()))));
            let said = node.result(&task);
            assert_eq!(said.signature, first.signature, "{number} {way}");
        }
        assert!(left(&node.host).is_empty(), "nothing came back {way}");
    }
    // Another task under the same id is not that task.
    for (number, kind) in OTHERS.into_iter().enumerate() {
        let other = match kind {
            "vm.launch" => launch(&node.site, "task-1", &format!("vm-{number}x")),
            "vm.terminate" => terminate(&node.site, "task-1", "vm-1"),
            _ => node.site.task("task-1", kind, "{}"),
        };
        assert_eq!(code(&node.run(&other)), Some(Code::TaskMismatch));
    }
    assert!(left(&node.host).is_empty());
}

pub(super) fn unknown(site: &Site) -> Vec<(Task, Code)> {
    let kinds = [
        "exec.shell",
        "exec.task",
        "shell",
        "",
        " ",
        "diag.health_probe\0",
        "DIAG.HEALTH_PROBE",
        "diag.health_probe;id",
        "diag",
        "diag.",
        ".health_probe",
        "slice.vm_provision.v2",
        "vm.*",
        "*",
        "../vm.launch",
        "vm.launch\nvm.terminate",
        "terminal.open",
        "oci.run",
    ];
    kinds
        .map(|k| (site.task("kind", k, "{}"), Code::UnknownType))
        .to_vec()
}

#[test]
fn a_type_that_is_not_in_the_catalogue_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let cases = unknown(&node.site);
    all_refused(&node, "type", cases);
}

pub(super) fn oversized(site: &Site) -> Vec<(Task, Code)> {
    let big = |n: usize| "x".repeat(n);
    let keys = (0..40)
        .map(|n| format!("\"ssh-ed25519 {}{n:02}\"", "A".repeat(66)))
        .collect::<Vec<_>>();
    let sha = "a".repeat(64);
    let launch = |more: &str| {
        format!(
            r#"{{"vm_id":"vm-1","image_path":"/i/a","image_sha256":"{sha}","vcpu_count":2,"memory_mib":512,"lease_seconds":600{more}}}"#
        )
    };
    let (large, field) = (Code::BodyTooLarge, Code::InvalidField);
    let case = |kind: &str, params: String, wanted| (site.task("large", kind, &params), wanted);
    vec![
        case(PROBE, format!(r#"{{"checks":["{}"]}}"#, big(70_000)), large),
        case(PROBE, format!(r#"{{"{}":1}}"#, big(66_000)), large),
        case(PROBE, format!("{{{}}}", " ".repeat(65_536)), large),
        case(
            PROBE,
            format!("{{\"a\":{}1{}}}", "[".repeat(40_000), "]".repeat(40_000)),
            large,
        ),
        case(
            PROBE,
            format!("{{\"a\":{}1{}}}", "[".repeat(1000), "]".repeat(1000)),
            field,
        ),
        case(
            PROBE,
            format!(r#"{{"checks":[{}]}}"#, ["\"gpu\""; 7].join(",")),
            field,
        ),
        case("vm.terminate", format!(r#"{{"vm_id":"{}"}}"#, big(49)), field),
        case("vm.terminate", format!(r#"{{"vm_id":"{}"}}"#, big(60_000)), field),
        case(
            "vm.terminate",
            r#"{"vm_id":"vm-1","graceful_timeout_seconds":901}"#.into(),
            field,
        ),
        case(
            "vm.terminate",
            r#"{"vm_id":"vm-1","graceful_timeout_seconds":4294967296}"#.into(),
            field,
        ),
        case("vm.launch", launch(r#","disk_gib":65537"#), field),
        case("vm.launch", launch("").replace("512", "99999999"), field),
        case("vm.launch", launch("").replace(":2,", ":1025,"), field),
        case("vm.launch", launch("").replace("600", "2592001"), field),
        case("vm.launch", launch("").replace("600", "-1"), field),
        case("vm.launch", launch("").replace("600", "1e9"), field),
        case(
            "vm.launch",
            launch(&format!(
                r#","default_username":"alice","ssh_public_keys":[{}]"#,
                keys.join(",")
            )),
            field,
        ),
        case(
            "vm.launch",
            launch("").replace("/i/a", &format!("/{}", big(1024))),
            field,
        ),
    ]
}

#[test]
fn a_task_that_is_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let cases = oversized(&node.site);
    all_refused(&node, "size", cases);
}

pub(super) fn traversing(site: &Site) -> Vec<(Task, Code)> {
    let sha = "a".repeat(64);
    let image = |path: &str| {
        let path = serde_json::to_string(path).unwrap();
        let params = format!(
            r#"{{"vm_id":"vm-1","image_path":{path},"image_sha256":"{sha}","vcpu_count":2,"memory_mib":512,"lease_seconds":600}}"#
        );
        (site.task("path", "vm.launch", &params), Code::InvalidField)
    };
    let id = |id: &str| {
        let params = format!(r#"{{"vm_id":{}}}"#, serde_json::to_string(id).unwrap());
        (site.task("path", "vm.terminate", &params), Code::InvalidField)
    };
    vec![
        image("../../etc/shadow"),
        image("/var/lib/libvirt/images/../../../../etc/shadow"),
        image("/var/lib/libvirt/images/.."),
        image("/var/lib/libvirt/images/./a.img"),
        image("/var/lib//libvirt/images/a.img"),
        image("/var/lib/libvirt/images/"),
        image("var/lib/libvirt/images/a.img"),
        image("/var/lib/libvirt/images/a.img\0.qcow2"),
        image("/var/lib/libvirt/images/a\n.img"),
        image(""),
        image("/"),
        image("file:///etc/shadow"),
        image("~/a.img"),
        id("../../etc"),
        id("/etc/passwd"),
        id(".."),
        id("."),
        id(".ssh"),
        id("a/../../b"),
        id("a\0b"),
    ]
}

#[test]
fn a_path_that_leads_elsewhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let cases = traversing(&node.site);
    all_refused(&node, "path", cases);
}

pub(super) fn injecting(site: &Site) -> Vec<(Task, Code)> {
    let sha = "a".repeat(64);
    let id = |id: &str| {
        let params = format!(r#"{{"vm_id":{}}}"#, serde_json::to_string(id).unwrap());
        (site.task("argument", "vm.terminate", &params), Code::InvalidField)
    };
    let with = |more: &str| {
        let params = format!(
            r#"{{"vm_id":"vm-1","image_path":"/i/a","image_sha256":"{sha}","vcpu_count":2,"memory_mib":512,"lease_seconds":600{more}}}"#
        );
        (site.task("argument", "vm.launch", &params), Code::InvalidField)
    };
    vec![
        id("-drive"),
        id("--help"),
        id("-"),
        id("vm-1 -monitor stdio"),
        id("vm-1,id=x"),
        id("$(reboot)"),
        id("`reboot`"),
        id("vm;reboot"),
        id("vm|cat"),
        id("vm\nreboot"),
        id("vm'\""),
        id("vm*"),
        id("%n"),
        with(r#","command":"id""#),
        with(r#","qemu_args":["-monitor","stdio"]"#),
        with(r#","accel":"tcg,thread=multi""#),
        with(r#","accel":"kvm -device x""#),
        with(r#","network":"user,hostfwd=::22-:22""#),
        with(r#","default_username":"root -o x""#),
        with(r#","default_username":"-alice""#),
        with(r#","default_username":"alice","ssh_public_keys":["command=\"id\" ssh-ed25519 AAAA"]"#),
        with(r#","default_username":"alice","ssh_public_keys":["ssh-ed25519 AAAA\nssh-rsa BBBB"]"#),
    ]
}

#[test]
fn what_a_program_could_take_for_an_option_or_a_shell_for_a_command_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let cases = injecting(&node.site);
    all_refused(&node, "argument", cases);
}

#[test]
fn tasks_of_the_other_mode_and_those_that_the_site_does_not_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let user = |name: &str| format!(r#"{{"allocation_id":"a-1","username":"{name}"}}"#);
    for name in ["alice", "root", "daemon"] {
        let task = node.site.task("mode", "allocation.deprovision_user", &user(name));
        assert_eq!(code(&node.run(&task)), Some(Code::WrongMode));
    }
    let install = node.site.task(
        "mode",
        "node.prerequisites_install",
        r#"{"packages":["qemu-utils"]}"#,
    );
    assert_eq!(code(&node.run(&install)), Some(Code::PolicyDenied));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn no_changed_byte_of_a_signed_task_is_taken(place in any::<prop::sample::Index>(), bit in 0u8..7) {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path());
        let task = launch(&node.site, "task-1", "vm-1");
        let mut bytes = serde_json::to_vec(&task).unwrap();
        let at = place.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // What is no task any more was refused before.
        if let Ok(changed) = serde_json::from_slice::<Task>(&bytes) {
            let hash = |t: &Task| super::super::verify::hash_of(t, &node.site.authority);
            // Fractions of seconds are not signed.
            let same = changed.signature == task.signature && hash(&changed) == hash(&task);
            node.deliver(&changed);
            let probe = node.site.task("probe-1", PROBE, "{}");
            node.deliver(&probe);
            let (probed, forged) = node.wait_for("the probe's result", |said| match said {
                Output::Result { task_id, result } if task_id == probe.task_id => Some((result.outcome, false)),
                Output::Result { result, .. } if !same && result.outcome == TaskOutcome::Completed => {
                    Some((result.outcome, true))
                }
                _ => None,
            });
            prop_assert!(!forged);
            prop_assert_eq!(probed, TaskOutcome::Completed);
            prop_assert!(same || left(&node.host).is_empty());
        }
    }
}
