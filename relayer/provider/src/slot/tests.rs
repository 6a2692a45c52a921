use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{Params, SliceSlot, TaskOutcome, TaskResult, TaskType};
use hpc_schema::time::{Rfc3339, UnixSeconds};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::store::Store;
use crate::task::tests::{admitted, claimed};
use crate::task::{self, NewTask, Submitted, TaskRow};

const NOW: u64 = 1_769_781_900_000;

fn of() -> (ClusterId, NodeId) {
    ("hpc-cluster-1".parse().unwrap(), "node-1".parse().unwrap())
}

fn slot(n: u8) -> SliceSlot {
    serde_json::from_value(json!({
        "slot_id": format!("slot-{n}"), "slot_index": n, "pci_address": format!("0000:3b:00.{n}"),
        "nvme_device": format!("/dev/disk/by-id/nvme-{n}"), "vcpu_count": 2, "memory_mib": 512,
        "mac_address": format!("52:54:00:00:00:0{n}"), "private_ip": format!("10.77.0.1{n}"),
    }))
    .unwrap()
}

fn provision(vm: &str, slots: &[SliceSlot]) -> Value {
    json!({
        "allocation_id": "alloc-1", "vm_name": vm, "image_path": "/i/a.img", "image_sha256": "a".repeat(64),
        "default_username": "alice", "ovs_bridge": "br-slice", "slots": slots,
        "ssh_public_keys": [format!("ssh-ed25519 {}", "A".repeat(68))],
    })
}

fn release(allocation: &str, vm: &str, slots: &[SliceSlot]) -> Value {
    json!({"allocation_id": allocation, "vm_name": vm, "slots": slots})
}

fn proof(slots: &[SliceSlot]) -> Value {
    json!({
        "allocation_id": "alloc-1", "vm_name": "vm-1", "existed": true, "hard_stopped": false,
        "slots": slots.iter().map(|s| &s.slot_id).collect::<Vec<_>>(), "slots_free": true, "timings": {},
        "cleanup": {
            "domain_gone": true, "leases_gone": true, "dhcp_gone": true, "telemetry_gone": true, "files_gone": true,
            "devices_rebound": slots.iter().flat_map(SliceSlot::functions).collect::<Vec<_>>(),
            "wiped": slots.iter().map(|s| json!({
                "device": s.nvme_device, "bytes": 1_u64 << 30, "sampled_bytes": 1 << 22, "zero": true,
                "sample_plan": "0".repeat(64),
            })).collect::<Vec<_>>(),
        },
    })
}

struct Desk {
    store: Store,
    _dir: tempfile::TempDir,
}

impl Desk {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        Self { store, _dir: dir }
    }

    async fn add(&self, slot: &SliceSlot) -> Found {
        let (cluster, node) = of();
        let mut tx = self.store.begin().await.unwrap();
        let found = add(&mut tx, (&cluster, &node), slot.clone(), NOW).await.unwrap();
        tx.commit().await.unwrap();
        found
    }

    async fn state(&self, n: u8) -> (SlotState, Option<String>) {
        let (cluster, node) = of();
        let mut conn = self.store.reader().acquire().await.unwrap();
        let id = format!("slot-{n}").parse().unwrap();
        let row = find(&mut conn, (&cluster, &node), &id).await.unwrap().unwrap();
        (row.state, row.note)
    }

    async fn set(&self, n: u8, state: SlotState) {
        let (cluster, node) = of();
        let mut tx = self.store.begin().await.unwrap();
        let id = format!("slot-{n}").parse().unwrap();
        let mut row = find(&mut tx, (&cluster, &node), &id).await.unwrap().unwrap();
        row.state = state;
        put(&mut tx, &row).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Submits, as the admin desk does; why not.
    async fn submit(&self, id: &str, kind: TaskType, params: &Value) -> Result<(), String> {
        let (cluster_id, node_id) = of();
        let params = RawValue::from_string(params.to_string()).unwrap();
        let read = Params::parse(kind, &params).unwrap();
        let new = NewTask {
            task_id: id.parse().unwrap(),
            cluster_id,
            node_id,
            kind,
            params,
            nonce: [1; 16],
            submitted_by: "root".into(),
            scheduled: false,
            issued_at: UnixSeconds(NOW / 1000),
            expires_at: UnixSeconds(NOW / 1000 + 60),
        };
        let mut tx = self.store.begin().await.unwrap();
        assert_eq!(admitted(&mut tx, &new).await, Submitted::Queued);
        let of = (&new.cluster_id, &new.node_id);
        match claim(&mut tx, of, &new.task_id, &read, NOW).await.unwrap() {
            Claimed::Yes => {
                tx.commit().await.unwrap();
                Ok(())
            }
            Claimed::No(why) => Err(why),
        }
    }

    /// The node's word of it.
    async fn ends(&self, id: &str, code: Option<Code>, value: &Value) {
        let (cluster, _) = of();
        let id: TaskId = id.parse().unwrap();
        let mut tx = self.store.begin().await.unwrap();
        let row = task::find(&mut tx, Some(&cluster), &id)
            .await
            .unwrap()
            .pop()
            .unwrap();
        drop(tx);
        self.takes(&row, code, value).await;
    }

    /// The node's word of this task, on record or not any more.
    async fn takes(&self, row: &TaskRow, code: Option<Code>, value: &Value) {
        let mut tx = self.store.begin().await.unwrap();
        let at = Rfc3339::from_unix(NOW / 1000, 0).unwrap();
        let result = TaskResult {
            task_hash: row.hash.to_hex(),
            outcome: if code.is_none() {
                TaskOutcome::Completed
            } else {
                TaskOutcome::Failed
            },
            code: code.map(|c| c.as_str().to_owned()),
            detail: None,
            result: RawValue::from_string(value.to_string()).unwrap(),
            started_at: at.clone(),
            finished_at: at,
            signature: String::new(),
        };
        settle(&mut tx, row, &result, NOW).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_slot_is_let_only_between_a_proof_and_the_next() {
    use SlotState::{Approved, Candidate, Free, Leased, Quarantined, Releasing};
    let desk = Desk::new().await;
    let slots = [slot(0)];
    let give = provision("vm-1", &slots);
    assert_eq!(desk.add(&slots[0]).await, Found::New);
    assert_eq!(desk.add(&slots[0]).await, Found::Same);
    assert_eq!(desk.state(0).await.0, Candidate);
    let no = desk
        .submit("t-01", TaskType::SliceVmProvision, &give)
        .await
        .unwrap_err();
    assert!(no.contains("candidate, not free"), "{no}");
    let wipe = release("first-wipe", "slot-0", &slots);
    let no = desk
        .submit("t-02", TaskType::SliceVmRelease, &wipe)
        .await
        .unwrap_err();
    assert!(no.contains("slot approve"), "{no}");
    desk.set(0, Approved).await;
    desk.submit("t-03", TaskType::SliceVmRelease, &wipe)
        .await
        .unwrap();
    let no = desk
        .submit("t-04", TaskType::SliceVmRelease, &wipe)
        .await
        .unwrap_err();
    assert!(no.contains("a task works"), "{no}");
    desk.ends("t-03", None, &proof(&slots)).await;
    assert_eq!(desk.state(0).await, (Free, None));
    // Another device under the same name is another slot.
    let mut other = slots.clone();
    other[0].nvme_device = "/dev/sda".parse().unwrap();
    let no = desk
        .submit("t-05", TaskType::SliceVmProvision, &provision("vm-1", &other))
        .await;
    assert!(no.unwrap_err().contains("other members"));
    desk.submit("t-06", TaskType::SliceVmProvision, &give)
        .await
        .unwrap();
    let second = provision("vm-2", &slots);
    let no = desk
        .submit("t-07", TaskType::SliceVmProvision, &second)
        .await
        .unwrap_err();
    assert!(no.contains("a task works"), "{no}");
    desk.ends("t-06", None, &json!({})).await;
    assert_eq!(desk.state(0).await.0, Leased);
    let no = desk
        .submit("t-08", TaskType::SliceVmProvision, &second)
        .await
        .unwrap_err();
    assert!(no.contains("leased, not free"), "{no}");
    let foreign = release("alloc-2", "vm-1", &[]);
    let no = desk
        .submit("t-09", TaskType::SliceVmRelease, &foreign)
        .await
        .unwrap_err();
    assert!(no.contains("another allocation"), "{no}");
    let back = release("alloc-1", "vm-1", &[]);
    desk.submit("t-10", TaskType::SliceVmRelease, &back)
        .await
        .unwrap();
    assert_eq!(desk.state(0).await.0, Releasing);
    // Bytes that are not zero are no proof, whatever the flag says.
    let mut short = proof(&slots);
    short["cleanup"]["wiped"][0]["zero"] = false.into();
    desk.ends("t-10", None, &short).await;
    let (state, note) = desk.state(0).await;
    assert_eq!(state, Quarantined);
    assert!(note.unwrap().contains("wiped"));
    desk.submit("t-11", TaskType::SliceVmRelease, &back)
        .await
        .unwrap();
    desk.ends("t-11", None, &proof(&slots)).await;
    assert_eq!(desk.state(0).await, (Free, None));
}

#[tokio::test]
async fn each_gap_of_a_proof_quarantines_the_slot() {
    let slots = [slot(0)];
    let gaps: [(&str, Value); 9] = [
        ("/slots", json!([])),
        ("/cleanup/domain_gone", json!(false)),
        ("/cleanup/leases_gone", json!(false)),
        ("/cleanup/dhcp_gone", json!(false)),
        ("/cleanup/telemetry_gone", json!(false)),
        ("/cleanup/files_gone", json!(false)),
        ("/cleanup/devices_rebound", json!([])),
        ("/cleanup/wiped", json!([])),
        ("/cleanup/wiped/0/sampled_bytes", json!(0)),
    ];
    for (place, value) in gaps {
        let desk = Desk::new().await;
        desk.add(&slots[0]).await;
        desk.set(0, SlotState::Approved).await;
        let wipe = release("first-wipe", "slot-0", &slots);
        desk.submit("t-01", TaskType::SliceVmRelease, &wipe)
            .await
            .unwrap();
        let mut gap = proof(&slots);
        *gap.pointer_mut(place).unwrap() = value;
        desk.ends("t-01", None, &gap).await;
        assert_eq!(desk.state(0).await.0, SlotState::Quarantined, "{place}");
    }
}

#[tokio::test]
async fn a_task_that_fails_gives_its_slots_back_and_one_of_unknown_end_does_not() {
    use SlotState::{Free, Leased, Quarantined};
    let desk = Desk::new().await;
    let slots = [slot(0), slot(1)];
    for (n, slot) in slots.iter().enumerate() {
        desk.add(slot).await;
        desk.set(u8::try_from(n).unwrap(), Free).await;
    }
    let give = provision("vm-1", &slots);
    desk.submit("t-01", TaskType::SliceVmProvision, &give)
        .await
        .unwrap();
    desk.ends("t-01", Some(Code::DigestMismatch), &json!({})).await;
    assert_eq!(desk.state(1).await, (Free, None));
    desk.submit("t-02", TaskType::SliceVmProvision, &give)
        .await
        .unwrap();
    desk.ends("t-02", Some(Code::OutcomeUnknown), &json!({"findings": ["x"]}))
        .await;
    assert_eq!(desk.state(1).await.0, Quarantined);
    // A release that the node refused has changed nothing; one that failed has, in what nobody can tell.
    for (code, state) in [(Code::PolicyDenied, Leased), (Code::TaskFailed, Quarantined)] {
        let desk = Desk::new().await;
        desk.add(&slots[0]).await;
        desk.set(0, Free).await;
        desk.submit(
            "t-01",
            TaskType::SliceVmProvision,
            &provision("vm-1", &slots[..1]),
        )
        .await
        .unwrap();
        desk.ends("t-01", None, &json!({})).await;
        desk.submit("t-02", TaskType::SliceVmRelease, &release("alloc-1", "vm-1", &[]))
            .await
            .unwrap();
        desk.ends("t-02", Some(code), &json!({})).await;
        assert_eq!(desk.state(0).await.0, state, "{code}");
    }
}

#[tokio::test]
async fn a_task_that_ends_without_the_nodes_word_leaves_slots_as_they_were_or_quarantined() {
    use SlotState::{Free, Leased, Quarantined};
    let desk = Desk::new().await;
    let slots = [slot(0)];
    desk.add(&slots[0]).await;
    desk.set(0, Free).await;
    let give = provision("vm-1", &slots);
    // Never delivered.
    desk.submit("t-01", TaskType::SliceVmProvision, &give)
        .await
        .unwrap();
    let late = NOW + 120_000;
    let mut tx = desk.store.begin().await.unwrap();
    task::keep(&mut tx, late).await.unwrap();
    sweep(&mut tx, late).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(desk.state(0).await.0, Free);
    // Delivered, and no word came.
    desk.submit("t-02", TaskType::SliceVmProvision, &give)
        .await
        .unwrap();
    let (cluster, node) = of();
    let mut tx = desk.store.begin().await.unwrap();
    let claimed = claimed(&mut tx, (&cluster, &node), 4, NOW).await;
    assert_eq!(claimed.tasks.len(), 1);
    let very_late = NOW + 5 * 3600 * 1000;
    task::keep(&mut tx, very_late).await.unwrap();
    sweep(&mut tx, very_late).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(desk.state(0).await.0, Quarantined);
    // It comes after all.
    desk.ends("t-02", None, &json!({})).await;
    assert_eq!(desk.state(0).await.0, Leased);
}

#[tokio::test]
async fn a_slot_of_a_task_that_never_said_how_it_ended_can_be_wiped_and_let_again() {
    use SlotState::{Free, Quarantined};
    for forgotten in [false, true] {
        let desk = Desk::new().await;
        let slots = [slot(0)];
        desk.add(&slots[0]).await;
        desk.set(0, Free).await;
        let give = provision("vm-1", &slots);
        desk.submit("t-01", TaskType::SliceVmProvision, &give)
            .await
            .unwrap();
        let (cluster, node) = of();
        let mut tx = desk.store.begin().await.unwrap();
        let of = (&cluster, &node);
        let claimed = claimed(&mut tx, of, 4, NOW).await;
        assert_eq!(claimed.tasks.len(), 1);
        let very_late = NOW + 5 * 3600 * 1000;
        task::keep(&mut tx, very_late).await.unwrap();
        sweep(&mut tx, very_late).await.unwrap();
        let former = task::find(&mut tx, None, &"t-01".parse().unwrap()).await.unwrap();
        if forgotten {
            task::prune(&mut tx, very_late + 1).await.unwrap();
            sweep(&mut tx, very_late + 1).await.unwrap();
        }
        tx.commit().await.unwrap();
        assert_eq!(desk.state(0).await.0, Quarantined);
        let no = desk.submit("t-02", TaskType::SliceVmProvision, &give).await;
        assert!(no.unwrap_err().contains("quarantined, not free"));
        let wipe = release("alloc-1", "vm-1", &slots);
        desk.submit("t-03", TaskType::SliceVmRelease, &wipe)
            .await
            .unwrap();
        // The slot is that task's now: another one has it no more, and the former one's late word changes nothing.
        let no = desk.submit("t-04", TaskType::SliceVmRelease, &wipe).await;
        assert!(no.unwrap_err().contains("a task works"));
        desk.takes(&former[0], None, &json!({})).await;
        assert_eq!(desk.state(0).await.0, Quarantined);
        desk.ends("t-03", None, &proof(&slots)).await;
        assert_eq!(desk.state(0).await, (Free, None));
    }
}

#[tokio::test]
async fn what_discovery_finds_becomes_a_candidate_and_changes_nothing_that_was_approved() {
    let desk = Desk::new().await;
    let found = |gpu: &str| {
        json!({
            "prerequisites": {
                "kvm_available": true, "iommu_group_count": 1, "iommu_kernel_args": [], "cpu_virtualization": [],
                "loaded_modules": {}, "required_commands": {}, "reboot_required": [],
                "slice_network": {"ip_forwarding": true, "ipoib_netplan": [], "ipoib_interfaces": []},
            },
            "gpu_devices": [], "fabric_devices": [], "nvme_devices": [], "approval_required": true,
            "candidate_summary": {"candidates": 2, "blockers": []},
            "candidate_slots": [
                {"slot_id": "slot-0", "slot_index": 0, "pci_address": gpu, "nvme_device": "/dev/disk/by-id/nvme-a",
                 "mac_address": "52:54:00:00:00:01", "private_ip": "10.77.0.16"},
                {"slot_id": "slot-1", "slot_index": 1, "pci_address": "0000:9d:00.0",
                 "mac_address": "52:54:00:00:00:02", "private_ip": "10.77.0.17"},
            ],
        })
    };
    desk.submit("t-01", TaskType::SliceTopologyDiscover, &json!({}))
        .await
        .unwrap();
    desk.ends("t-01", None, &found("0000:3b:00.0")).await;
    assert_eq!(desk.state(0).await.0, SlotState::Candidate);
    // Without a disk it is none.
    let mut conn = desk.store.reader().acquire().await.unwrap();
    assert_eq!(list(&mut conn, None, None).await.unwrap().len(), 1);
    drop(conn);
    desk.set(0, SlotState::Free).await;
    desk.submit("t-02", TaskType::SliceTopologyDiscover, &json!({}))
        .await
        .unwrap();
    desk.ends("t-02", None, &found("0000:3c:00.0")).await;
    let (state, note) = desk.state(0).await;
    assert_eq!(state, SlotState::Free);
    assert!(note.unwrap().contains("other devices"));
    let mut conn = desk.store.reader().acquire().await.unwrap();
    let row = list(&mut conn, None, None).await.unwrap().pop().unwrap();
    assert_eq!(row.slot.pci_address.unwrap().as_str(), "0000:3b:00.0");
}
