use std::sync::Mutex;
use std::time::{Duration, Instant};

use virtengine_node_agent::clock::unix_seconds;
use virtengine_node_agent::machine::accel::{Accel, Prober};
use virtengine_node_agent::task::{Host, Stop};

use super::guest::guest;
use super::node::{Node, launch, left, place};

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

fn prober(memory: &std::path::Path) -> Prober {
    Prober::new(
        "/proc".as_ref(),
        QEMU.as_ref(),
        Some(&guest().kernel),
        "/boot".as_ref(),
        memory,
    )
    .unwrap()
}

fn stop() -> Stop {
    Stop::after(Duration::from_secs(300))
}

/// Lets a node know what one probe has seen: it is the same host.
pub(crate) fn remember(host: &Host) {
    static SEEN: Mutex<Option<Vec<u8>>> = Mutex::new(None);
    let mut seen = SEEN.lock().unwrap();
    let bytes = seen.get_or_insert_with(|| {
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("accel.json");
        let tcg = prober(&memory).evidence(Accel::Tcg, unix_seconds(), &stop());
        assert!(tcg.unwrap().works);
        std::fs::read(&memory).unwrap()
    });
    std::fs::create_dir_all(host.dir.path()).unwrap();
    std::fs::write(host.dir.path().join("accel.json"), bytes).unwrap();
}

#[test]
fn an_accelerator_counts_when_a_stock_kernel_ran_by_it_and_is_tried_once() {
    let dir = tempfile::tempdir().unwrap();
    let memory = dir.path().join("accel.json");
    let now = unix_seconds();
    let tcg = prober(&memory).evidence(Accel::Tcg, now, &stop()).unwrap();
    println!("tcg: {tcg:?}");
    assert!(tcg.works, "{tcg:?}");
    let begun = Instant::now();
    let again = prober(&memory).evidence(Accel::Tcg, now + 9, &stop());
    assert_eq!(again.unwrap(), tcg);
    assert!(begun.elapsed().as_secs() < 10);
    // QEMU for Linux has no NVMM, whatever it lists.
    let e = prober(&memory)
        .select(Accel::Nvmm, now, &stop())
        .unwrap_err()
        .to_string();
    assert!(
        e.starts_with("selected_accel not supported by host: nvmm: "),
        "{e}"
    );
    // /dev/kvm may be there, may be deceptive, may be good: what counts is what was seen.
    let kvm = prober(&memory).evidence(Accel::Kvm, now, &stop()).unwrap();
    println!(
        "/dev/kvm: {}; kvm: {kvm:?}",
        std::path::Path::new("/dev/kvm").exists()
    );
    let chosen = prober(&memory).select(Accel::Auto, now, &stop()).unwrap();
    assert_eq!(chosen, if kvm.works { Accel::Kvm } else { Accel::Tcg });
    let asked = prober(&memory).select(Accel::Kvm, now, &stop());
    assert_eq!(asked.is_ok(), kvm.works);
    // A task that was taken back has seen nothing, and leaves nothing to be believed.
    let untried = dir.path().join("untried.json");
    let taken_back = stop();
    taken_back.cancel();
    let e = prober(&untried)
        .evidence(Accel::Tcg, now, &taken_back)
        .unwrap_err();
    assert!(
        e.to_string().contains("task_cancelled") && !untried.exists(),
        "{e}"
    );
    // Without a kernel nothing is claimed.
    let none = Prober::new("/proc".as_ref(), QEMU.as_ref(), None, dir.path(), &memory)
        .unwrap_err()
        .to_string();
    assert!(
        none.contains("no stock kernel") && none.contains("probe_kernel"),
        "{none}"
    );
}

#[test]
fn a_launch_by_what_does_not_work_here_is_refused_in_the_runbooks_words() {
    let dir = place();
    let node = Node::start(dir.path());
    let result = node.run(
        "task-1",
        "vm.launch",
        &launch("vm-n", &serde_json::json!({"accel": "nvmm"})),
    );
    assert_eq!(result.code.as_deref(), Some("not_supported"));
    assert!(
        result
            .detail
            .unwrap()
            .contains("selected_accel not supported by host")
    );
    assert!(left(&node.host, "vm-n").is_empty());
}
