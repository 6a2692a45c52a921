//! What lies on the host and is in no journal, on real libvirt: seen by its mark, stopped, taken away; and what carries no
//! mark of this task domain is nobody's business.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use virtengine_node_agent::clock::Clock;
use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::task::safety::{Kind, Report, act, judge};
use virtengine_node_agent::task::{Host, Ledger, Policy, TaskDir};

use super::host::{inside, run, text};
use super::phases::place;

/// UUIDs of domains: ours and lost, another task domain's, nobody's.
const DOMAINS: [(&str, &str); 3] = [
    ("lost", "11111111-1111-4111-8111-111111111111"),
    ("theirs", "22222222-2222-4222-8222-222222222222"),
    ("by-hand", "33333333-3333-4333-8333-333333333333"),
];

fn virsh(words: &[&str]) -> String {
    text(&run("virsh", &[&["-q", "-c", "qemu:///system"], words].concat()))
}

/// A domain without a disk; it runs and finds nothing to boot.
fn define(name: &str, uuid: &str, description: &str) {
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><description>{description}</description>\
         <memory unit='MiB'>16</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>\
         <devices><controller type='usb' model='none'/><memballoon model='none'/></devices></domain>"
    );
    let file = format!("/run/{name}.xml");
    fs::write(&file, xml).unwrap();
    virsh(&["define", &file]);
    virsh(&["start", name]);
}

fn state(name: &str) -> String {
    let out = Command::new("virsh")
        .args(["-q", "-c", "qemu:///system", "domstate", name])
        .output()
        .unwrap();
    text(&out).trim().to_owned()
}

fn ahead(host: &mut Host, seconds: u64) {
    host.clock = Clock::new(move || Clock::system().since_epoch() + Duration::from_secs(seconds));
}

#[test]
fn lost_domains_reservations_targets_and_folders_are_stopped_and_taken_away_and_others_are_not() {
    const NAME: &str =
        "safety::lost_domains_reservations_targets_and_folders_are_stopped_and_taken_away_and_others_are_not";
    inside(NAME, || {
        let dir = place("safety", "");
        let policy = fs::read_to_string(dir.join("policy.yaml")).unwrap();
        let more = "safety: {orphans: remove, remove_after_hours: 1}\n";
        fs::write(dir.join("policy.yaml"), policy + more).unwrap();
        let mut host = Host {
            roots: Roots::default(),
            dir: TaskDir::new(&dir.join("tasks"))
                .of(&"hpc-cluster-1".parse().unwrap(), &"node-1".parse().unwrap()),
            policy: Arc::new(Policy::load(&dir.join("policy.yaml")).unwrap()),
            clock: Clock::system(),
        };
        host.dir.create().unwrap();
        let ours = format!("virtengine gone-1/9@{}", host.dir.instance());
        let marks = [ours.as_str(), "virtengine gone-1/9@another", "mine"];
        for ((name, uuid), mark) in DOMAINS.into_iter().zip(marks) {
            define(name, uuid, mark);
        }
        // Folders of reservations and targets may be several nodes', all with the same tasks.dir.
        let other = host
            .dir
            .clone()
            .of(&"hpc-cluster-1".parse().unwrap(), &"node-2".parse().unwrap());
        let (lost, theirs) = (
            format!("virtengine gone-1/9@{}", host.dir.tag()),
            format!("virtengine gone-1/9@{}", other.tag()),
        );
        for (name, mark) in [
            ("slice-lost", lost.as_str()),
            ("slice-theirs", &theirs),
            ("slice-earlier", marks[0]),
            ("site", "by the site"),
        ] {
            fs::write(
                format!("/run/dhcp/{name}"),
                format!("# {mark}\n52:54:00:00:00:01,10.77.0.9\n"),
            )
            .unwrap();
            let target = format!("[{{\"targets\":[],\"labels\":{{\"__virtengine\":\"{mark}\"}}}}]");
            fs::write(format!("/run/telemetry/{name}.json"), target).unwrap();
        }
        let folder = host.dir.slices().join("lost");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("seed.iso"), "x").unwrap();

        let ledger = Ledger::open(host.dir.journal()).unwrap();
        let kinds = |report: &Report| -> Vec<Kind> { report.orphans.iter().map(|o| o.found.kind).collect() };
        let mut report = judge(&host, &ledger, &Report::default());
        assert_eq!(
            kinds(&report),
            [Kind::Slice, Kind::Domain, Kind::Reservation, Kind::Target],
            "{report:#?}"
        );
        assert_eq!(report.orphans[1].found.name, DOMAINS[0].1);
        act(&host, &mut report);
        assert_eq!(state("lost"), "running", "once seen is not enough");
        ahead(&mut host, 20);
        let mut report = judge(&host, &ledger, &report);
        act(&host, &mut report);
        assert_eq!(state("lost"), "paused");
        assert!(!folder.exists());
        assert_eq!(fs::read_dir(host.dir.quarantine()).unwrap().count(), 1);
        ahead(&mut host, 2 * 3600);
        let mut report = judge(&host, &ledger, &report);
        act(&host, &mut report);
        assert!(report.orphans.is_empty(), "{report:#?}");
        assert_eq!(fs::read_dir(host.dir.quarantine()).unwrap().count(), 0);
        let mut names: Vec<String> = virsh(&["list", "--all", "--name"])
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        names.sort();
        assert_eq!(names, ["by-hand", "theirs"]);
        assert_eq!(
            (state("theirs").as_str(), state("by-hand").as_str()),
            ("running", "running")
        );
        let left = |folder: &str| {
            let mut all: Vec<String> = fs::read_dir(Path::new(folder))
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            all.sort();
            all
        };
        assert_eq!(left("/run/dhcp"), ["site", "slice-earlier", "slice-theirs"]);
        assert_eq!(
            left("/run/telemetry"),
            ["site.json", "slice-earlier.json", "slice-theirs.json"]
        );
        let report = judge(&host, &ledger, &report);
        assert!(report.is_clean(), "{report:#?}");
    });
}
