//! A failure, and SIGKILL, in each of the seventeen phases: nothing is left on the host.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hpc_schema::task::TaskOutcome;

use super::host::{Slot, inside, know, left, policy, provision, remember, tenant};
use super::node::{Apart, Node, task, until};

const PHASES: [&str; 17] = [
    "lease_acquire",
    "host_dependencies",
    "host_passthrough_check",
    "vfio_bind_check",
    "image_stat_download",
    "image_digest_verify",
    "cloud_init_dir",
    "terminal_key",
    "guest_telemetry_register",
    "cloud_init_seed_files",
    "cloud_localds",
    "runtime_validate",
    "dhcp_reservation",
    "image_write_convert",
    "virt_install",
    "readiness",
    "performance_probe",
];

fn full() -> bool {
    let runs = std::env::var("HPC_TEST_RUNS")
        .ok()
        .and_then(|r| r.parse::<u64>().ok());
    runs.is_some_and(|r| r >= 100)
}

/// A node's folder, for libvirt's user to pass through.
pub(crate) fn place(name: &str, more: &str) -> PathBuf {
    let dir = Path::new("/run/nodes").join(name);
    fs::create_dir_all(&dir).unwrap();
    for path in [Path::new("/run/nodes"), &dir] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(dir.join("policy.yaml"), policy(more)).unwrap();
    fs::set_permissions(dir.join("policy.yaml"), fs::Permissions::from_mode(0o644)).unwrap();
    know(&dir.join("tasks"));
    dir
}

#[test]
fn a_failure_or_sigkill_in_any_phase_leaves_nothing_on_the_host() {
    const NAME: &str = "phases::a_failure_or_sigkill_in_any_phase_leaves_nothing_on_the_host";
    inside(NAME, || {
        let slot = Slot::new(NAME);
        let (_, key) = tenant();
        let params = provision(&slot, &key);
        let some = ["cloud_localds", "virt_install"];
        let phases: Vec<&str> = PHASES
            .into_iter()
            .filter(|p| full() || some.contains(p))
            .collect();
        for phase in phases {
            for way in ["fails", "dies"] {
                let dir = place(&format!("{way}-{phase}"), "");
                let make = task("task-1", "slice.vm_provision", &params);
                let mut apart = Apart::start(&dir, &format!("{way}:{phase}"));
                apart.deliver(&make);
                let result = apart.result();
                apart.kill();
                let said = match result {
                    Some(said) => said,
                    // The gateway delivers it again: what is on record is said, nothing is done twice.
                    None => Node::start(&dir).run(&make),
                };
                println!("{way} in {phase}: {:?} {:?}", said.outcome, said.code);
                assert_eq!(said.outcome, TaskOutcome::Failed, "{way} {phase}");
                let wanted = if way == "fails" {
                    "task_failed"
                } else {
                    "task_interrupted"
                };
                assert_eq!(
                    said.code.as_deref(),
                    Some(wanted),
                    "{way} {phase}: {:?}",
                    said.detail
                );
                let left = left(&dir.join("tasks"));
                assert!(left.is_empty(), "{way} {phase}: {left:?}");
                assert!(slot.is_zero(), "{way} {phase}: the disk is not zero");
                remember(&dir.join("tasks"));
            }
        }
    });
}

/// A process of this name that a task has started.
fn started(name: &str) -> bool {
    fs::read_dir("/proc").unwrap().any(|e| {
        let process = e.unwrap().path();
        let read = |file: &str| {
            String::from_utf8_lossy(&fs::read(process.join(file)).unwrap_or_default()).into_owned()
        };
        read("cmdline").contains(name) && read("environ").contains("VIRTENGINE_TASK=")
    })
}

#[test]
fn what_the_agent_has_started_when_it_is_killed_is_ended_before_its_work_is_undone() {
    const NAME: &str =
        "phases::what_the_agent_has_started_when_it_is_killed_is_ended_before_its_work_is_undone";
    inside(NAME, || {
        let slot = Slot::new(NAME);
        let (_, key) = tenant();
        let params = provision(&slot, &key);
        for program in ["qemu-img", "virt-install"] {
            let dir = place(program, "");
            let make = task("task-1", "slice.vm_provision", &params);
            let mut apart = Apart::start(&dir, "none");
            apart.deliver(&make);
            until(program, Duration::from_secs(200), || started(program));
            apart.kill();
            let said = Node::start(&dir).run(&make);
            println!("killed beside {program}: {:?} {:?}", said.outcome, said.code);
            assert_eq!(
                said.code.as_deref(),
                Some("task_interrupted"),
                "{program}: {:?}",
                said.detail
            );
            let left = left(&dir.join("tasks"));
            assert!(left.is_empty(), "{program}: {left:?}");
            assert!(slot.is_zero(), "{program}: the disk is not zero");
            remember(&dir.join("tasks"));
        }
    });
}

/// The journal is written twice a record, before and after: each number is one moment.
#[test]
fn killed_at_any_moment_of_a_provision_nothing_is_left() {
    const NAME: &str = "phases::killed_at_any_moment_of_a_provision_nothing_is_left";
    inside(NAME, || {
        let slot = Slot::new(NAME);
        let (_, key) = tenant();
        let params = provision(&slot, &key);
        // The last moments before the guest is waited for; the others with all phases.
        let moments: Vec<u32> = if full() { (5..=118).collect() } else { vec![108] };
        let mut interrupted = 0;
        for n in moments {
            let dir = place(&format!("moment-{n}"), "");
            let make = task("task-1", "slice.vm_provision", &params);
            let mut apart = Apart::start(&dir, &format!("task.journal:{n}"));
            apart.deliver(&make);
            let died = apart.result().is_none();
            apart.kill();
            let node = Node::start(&dir);
            let said = node.run(&make);
            println!("moment {n}: {:?} {:?}", said.outcome, said.code);
            if said.outcome == TaskOutcome::Completed {
                let end = serde_json::json!({"allocation_id": "alloc-1", "vm_name": "vm-1", "graceful_timeout_seconds": 30});
                let ended = node.run(&task("task-2", "slice.vm_release", &end));
                assert_eq!(ended.outcome, TaskOutcome::Completed, "{:?}", ended.detail);
            } else {
                assert_eq!(
                    said.code.as_deref(),
                    Some("task_interrupted"),
                    "{n}: {:?}",
                    said.detail
                );
                interrupted += u32::from(died);
            }
            let left = left(&dir.join("tasks"));
            assert!(left.is_empty(), "moment {n}: {left:?}");
            assert!(slot.is_zero(), "moment {n}: the disk is not zero");
            remember(&dir.join("tasks"));
        }
        assert!(interrupted > 0);
    });
}

/// Of a block device: for this process alone.
const O_EXCL: i32 = 0o200;

/// What a node says of slots that nobody has proven clean.
fn unproven(dir: &Path) -> u64 {
    let text = fs::read_to_string(dir.join("tasks/holdings.json")).unwrap_or_default();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let slots = |h: &serde_json::Value| h["facts"]["unproven_slots"].as_u64().unwrap_or(0);
    all["holdings"].as_array().into_iter().flatten().map(slots).sum()
}

#[test]
fn a_disk_that_cannot_be_wiped_keeps_its_slot_from_others_until_it_is() {
    const NAME: &str = "phases::a_disk_that_cannot_be_wiped_keeps_its_slot_from_others_until_it_is";
    inside(NAME, || {
        let slot = Slot::new(NAME);
        let (_, key) = tenant();
        let params = provision(&slot, &key);
        let dir = place("unproven", "");
        let make = task("task-1", "slice.vm_provision", &params);
        let mut apart = Apart::start(&dir, "dies:image_write_convert");
        apart.deliver(&make);
        assert!(apart.result().is_none());
        apart.kill();
        // Somebody has it for itself alone, as a mounted file system has.
        let holder = fs::OpenOptions::new()
            .read(true)
            .custom_flags(O_EXCL)
            .open(&slot.device)
            .unwrap();
        let node = Node::start(&dir);
        let said = node.run(&make);
        assert_eq!(said.code.as_deref(), Some("outcome_unknown"), "{:?}", said.detail);
        until("the slot counts as unproven", Duration::from_secs(60), || {
            unproven(&dir) == 1
        });
        let lease = dir.join("tasks/leases/slot-0.json");
        assert!(lease.exists() && !slot.is_zero());
        let second = node.run(&task("task-2", "slice.vm_provision", &params));
        assert_eq!(
            second.code.as_deref(),
            Some("resource_busy"),
            "{:?}",
            second.detail
        );
        drop(holder);
        // It is tried again by itself.
        until("the slot is clean", Duration::from_secs(60), || {
            unproven(&dir) == 0
        });
        assert!(slot.is_zero() && !lease.exists());
        let left = left(&dir.join("tasks"));
        assert!(left.is_empty(), "{left:?}");
        remember(&dir.join("tasks"));
    });
}
