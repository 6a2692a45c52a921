//! The catalogue of findings: what each weighs, what to do, when it is found, how long it stays after it was last seen.

use std::fmt::Write as _;
use std::time::Duration;

use super::Severity;

/// What helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing yet.
    Watch,
    /// Start the job again.
    RestartJob,
    /// Reset or restart the part that is named.
    Reset,
    /// Look why a driver is silent; most causes outlive a reboot.
    Driver,
    /// Reboot the node.
    Reboot,
    /// Replace the part that is named.
    Replace,
}

impl Action {
    /// One word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::RestartJob => "restart the job",
            Self::Reset => "reset",
            Self::Driver => "look at the driver",
            Self::Reboot => "reboot",
            Self::Replace => "replace",
        }
    }

    /// For people.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Watch => "watch it",
            Self::RestartJob => "restart the job that it hit",
            Self::Reset => "reset or restart what is named",
            Self::Driver => {
                "look at `nvidia-smi`, `dmesg`, the versions of the driver's package and of the module that is loaded, and `virtengine-node-agent doctor`; reboot the node only if none of them says what else helps"
            }
            Self::Reboot => "reboot the node",
            Self::Replace => "have what is named replaced",
        }
    }
}

/// A line of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Stable word.
    pub code: &'static str,
    /// Its weight.
    pub severity: Severity,
    /// What helps.
    pub action: Action,
    /// When it is found.
    pub when: &'static str,
    /// How many seconds it stays after it was last seen, so that what comes and goes is one trouble.
    stays: u32,
    /// How many seconds it must last before it drains the node by policy; none if it does not.
    drains: Option<u32>,
}

impl Kind {
    /// How long it must last before it drains the node, where the site's policy follows the catalogue.
    #[must_use]
    pub fn drains(&self) -> Option<Duration> {
        self.drains.map(|s| Duration::from_secs(u64::from(s)))
    }

    const fn drains_after(mut self, seconds: u32) -> Self {
        self.drains = Some(seconds);
        self
    }

    /// How long it stays after it was last seen.
    #[must_use]
    pub fn stays(&self) -> Duration {
        Duration::from_secs(u64::from(self.stays))
    }
}

const fn k(code: &'static str, severity: Severity, action: Action, stays: u32, when: &'static str) -> Kind {
    Kind {
        code,
        severity,
        action,
        when,
        stays,
        drains: None,
    }
}

use Action::{Driver, Reboot, Replace, Reset, RestartJob, Watch};
use Severity::{Degraded, Draining, Notice, Unhealthy};

/// Every finding.
#[rustfmt::skip] // One line each: it is a table.
pub static CATALOGUE: [Kind; 43] = [
    k("clock_skew", Degraded, Watch, 60, "this clock is more than 10 s from the gateway's"),
    k("collector_stuck", Degraded, Watch, 0, "a source of figures does not answer within its deadline"),
    k("cpu_hot", Degraded, Watch, 300, "a CPU has 95 °C or more"),
    k("disk_errors", Degraded, Replace, 0, "an error of a disk in the kernel's log within the hour"),
    k("file_server_errors", Degraded, Watch, 0, "an error of NFS or Lustre in the kernel's log within the hour, and no word since that the server answers again"),
    k("filesystem_errors", Degraded, Watch, 0, "an error of a disk's file system in the kernel's log within the hour").drains_after(60),
    k("gpu_ecc_uncorrected", Degraded, Reset, 0, "a GPU has seen uncorrected memory errors since its driver was loaded").drains_after(60),
    k("gpu_hot", Degraded, Watch, 300, "a GPU has 90 °C or more"),
    k("gpu_lost", Degraded, Reboot, 300, "a GPU that was there does not answer its driver, or has left the bus").drains_after(60),
    k("gpu_memory_worn", Degraded, Replace, 0, "a GPU could not replace a row of its memory").drains_after(60),
    k("gpu_reset_due", Degraded, Reset, 0, "a GPU waits for a reset to replace a row of its memory"),
    k("gpu_throttled", Degraded, Watch, 300, "heat or a power brake slows a GPU down; its power limit (`power cap`) is no finding"),
    k("gpu_xid_reboot", Degraded, Reboot, 0, "an Xid of the last 24 h and this boot that needs a reboot (38, 79, 143)").drains_after(60),
    k("gpu_xid_replace", Degraded, Replace, 0, "an Xid of the last 24 h and this boot that needs another card (64)").drains_after(60),
    k("gpu_xid_reset", Degraded, Reset, 0, "an Xid of the last 24 h and this boot that needs a reset (46, 48, 61, 62, 74, 95, 109, 119, 120, 140)"),
    k("gpu_xid_restart", Notice, RestartJob, 0, "an Xid of the last 24 h and this boot that ended work (32, 69, 94)"),
    k("gpus_unknown", Degraded, Driver, 120, "there are GPUs on the bus and their driver does not answer, or refuses to tell of one").drains_after(300),
    k("hardware_changed", Degraded, Watch, 0, "the machine is not the one that was registered (by its network devices: at two looks a minute apart); register it again"),
    k("io_stalled", Degraded, Watch, 120, "all tasks waited for disks in 50 % of the last minute (PSI)"),
    k("kernel_hung", Degraded, Reboot, 0, "a task or CPU that hangs in the kernel's log within the hour"),
    k("link_flapping", Degraded, Replace, 0, "three messages of one network interface's driver (link down, transmit queue timed out), or three drops of one InfiniBand link (`link_downed`), within 24 h, the last within the hour"),
    k("link_lost", Degraded, Reset, 120, "an InfiniBand port that was active is not any more, or is gone").drains_after(300),
    k("machine_checks", Notice, Watch, 0, "machine checks in the kernel's log within 24 h"),
    k("memory_corrected", Notice, Watch, 0, "a memory controller has corrected errors since boot (EDAC)"),
    k("memory_exhausted", Unhealthy, RestartJob, 60, "less than 1 % of memory is available"),
    k("memory_killed", Notice, RestartJob, 0, "the kernel ended processes for want of memory within 24 h"),
    k("memory_stalled", Degraded, RestartJob, 120, "all tasks waited for memory in 20 % of the last minute (PSI)"),
    k("memory_uncorrected", Degraded, Replace, 0, "a memory controller has seen uncorrected errors since boot (EDAC)").drains_after(60),
    k("nvlink_down", Degraded, Reset, 120, "some of a GPU's NVLinks are up and some are down").drains_after(300),
    k("out_of_service", Draining, Watch, 0, "a finding that drains has lasted, and the node has not proven itself since"),
    k("pcie_errors", Notice, Watch, 0, "PCI Express errors in the kernel's log within 24 h"),
    k("sensor_critical", Degraded, Watch, 300, "a sensor is at the limit that its maker names"),
    k("service_down", Degraded, Reset, 60, "Slurm is here, and slurmd or munged does not run"),
    k("service_errors", Notice, Watch, 0, "ten errors or warnings of services in the journal within 24 h"),
    k("site_check_degraded", Degraded, Watch, 300, "a check of the site ended with 1"),
    k("site_check_failed", Unhealthy, Watch, 300, "a check of the site ended with 2 or more, not in time, or cannot be trusted").drains_after(60),
    k("slurm_down", Unhealthy, Watch, 0, "Slurm has this node down"),
    k("slurm_drain", Draining, Watch, 0, "Slurm drains this node, and not on the provider's order"),
    k("slurm_silent", Degraded, Watch, 0, "Slurm does not answer"),
    k("storage_full", Degraded, Watch, 60, "less than 1 % of `agent.storage_path` is available").drains_after(600),
    k("task_journal_damaged", Degraded, Watch, 0, "a task's journal cannot be read, so that nobody knows what the task has left"),
    k("task_leftovers", Degraded, Watch, 0, "a task has left what could not be taken away, or lies in no journal (`tasks safety`)"),
    k("task_probe_failed", Degraded, Watch, 0, "the last `diag.health_probe`, within 24 h, failed"),
];

/// The line of `code`.
#[must_use]
pub fn kind(code: &str) -> Option<&'static Kind> {
    CATALOGUE.iter().find(|k| k.code == code)
}

/// The catalogue as the page shows it.
#[must_use]
pub fn table() -> String {
    let mut out = String::from(
        "| finding | when | the node is | what to do | stays | drains after |\n|---|---|---|---|---|---|\n",
    );
    for k in &CATALOGUE {
        let severity = match k.severity {
            Notice => "healthy",
            Degraded => "degraded",
            Unhealthy => "unhealthy",
            Draining => "draining",
        };
        let stays = match k.stays {
            0 => "–".to_owned(),
            s => format!("{s} s"),
        };
        let drains = k.drains.map_or_else(|| "–".to_owned(), |s| format!("{s} s"));
        // Writing to a String does not fail.
        writeln!(
            out,
            "| `{}` | {} | {severity} | {} | {stays} | {drains} |",
            k.code,
            k.when,
            k.action.as_str()
        )
        .ok();
    }
    out
}
