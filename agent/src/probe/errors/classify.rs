//! What a kernel message means for the node's health. Pure.

use super::xid;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Machine check.
    Mce,
    /// Memory controller.
    Edac,
    /// Out of memory.
    Oom,
    /// Block device.
    Io,
    /// File system of this machine's disks.
    FileSystem,
    /// File server: the network's file systems.
    FileServer,
    /// NVIDIA GPU.
    Xid,
    /// NVSwitch.
    NvSwitch,
    /// PCI Express.
    Pcie,
    /// Too hot.
    Thermal,
    /// A task hangs in the kernel, or a CPU does.
    Hang,
    /// A network or InfiniBand link.
    Link,
    /// A service, from the journal.
    Service,
    /// Anything else the kernel calls an error or a warning.
    Other,
}

impl Class {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mce => "mce",
            Self::Edac => "edac",
            Self::Oom => "oom",
            Self::Io => "io",
            Self::FileSystem => "filesystem",
            Self::FileServer => "file_server",
            Self::Xid => "xid",
            Self::NvSwitch => "nvswitch",
            Self::Pcie => "pcie",
            Self::Thermal => "thermal",
            Self::Hang => "hang",
            Self::Link => "link",
            Self::Service => "service",
            Self::Other => "other",
        }
    }

    /// One incident writes many lines: those within a second are one.
    #[must_use]
    pub fn comes_in_bursts(self) -> bool {
        matches!(
            self,
            Self::Mce | Self::Hang | Self::Other | Self::Pcie | Self::Link
        )
    }
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Something failed.
    Error,
    /// Something was corrected, or a program's own fault.
    Warning,
}

/// How NFS's client begins what it says of a server.
const NFS: &str = "nfs: server ";

/// Class and weight of a kernel message of `level` (0 emergency … 7 debug); none if it is neither error nor warning.
#[must_use]
pub fn classify(level: u8, text: &str) -> Option<(Class, Weight)> {
    use Weight::{Error, Warning};
    let has = |needle: &str| text.contains(needle);
    let error_if = |c: bool| if c { Error } else { Warning };
    if has("NVRM: Xid (") {
        let blamed = xid::parse(text).and_then(|(_, code)| xid::look_up(code));
        return Some((
            Class::Xid,
            error_if(blamed.is_none_or(|x| x.action != xid::Action::None)),
        ));
    }
    if has("nvidia-nvswitch") && has("SXid") {
        return Some((Class::NvSwitch, error_if(!has("Non-fatal"))));
    }
    if has("[Hardware Error]") || text.starts_with("mce: ") {
        let corrected = has("orrected") && !has("ncorrected");
        return (level < 6 || has("events logged"))
            .then_some((Class::Mce, error_if(level <= 3 && !corrected)));
    }
    if text.starts_with("EDAC ") && (has(" CE ") || has(" UE ")) {
        return Some((Class::Edac, error_if(has(" UE "))));
    }
    if has("ut of memory: Killed process") || has("ut of memory and no killable processes") {
        // A job that outgrew its own limit is that job's trouble.
        return Some((Class::Oom, error_if(!has("Memory cgroup out of memory"))));
    }
    if has("I/O error, dev ")
        || has("Buffer I/O error")
        || has("critical medium error")
        || has("critical target error")
    {
        return Some((Class::Io, Error));
    }
    if text.starts_with("nvme nvme")
        && (has("controller is down")
            || has("timeout, reset controller")
            || has("Removing after probe failure"))
    {
        return Some((Class::Io, Error));
    }
    if has("EXT4-fs error")
        || has("Remounting filesystem read-only")
        || has("BTRFS critical")
        || has("BTRFS error")
        || (text.starts_with("XFS (") && (has("orruption") || has("nternal error") || has("I/O error")))
    {
        return Some((Class::FileSystem, Error));
    }
    if is_of_a_server(text) {
        return Some((Class::FileServer, Error));
    }
    if has("AER: ") && (has("orrected") || has("atal")) {
        return Some((
            Class::Pcie,
            error_if(has("ncorrected") || (has("atal") && !has("on-fatal"))),
        ));
    }
    if has("cpu clock throttled") || has("temperature above threshold") {
        return Some((Class::Thermal, Warning));
    }
    if has("blocked for more than")
        || has("soft lockup")
        || has("hard LOCKUP")
        || has("detected stall")
        || has("self-detected stall")
    {
        return Some((Class::Hang, Error));
    }
    if has("NETDEV WATCHDOG") {
        return Some((Class::Link, Error));
    }
    if (has("mlx5_core") || has("mlx4_") || has("ib0") || has("hfi1")) && has("ink down") {
        return Some((Class::Link, Warning));
    }
    // Drivers of network cards, by one of two words of the kernel's own.
    if has("ink is down") || has("ink is Down") {
        return Some((Class::Link, Warning));
    }
    match level {
        0..=3 => Some((Class::Other, Error)),
        4 => Some((Class::Other, Warning)),
        _ => None,
    }
}

/// Whether a client of a file server says that something failed there. Pure.
#[must_use]
pub(super) fn is_of_a_server(text: &str) -> bool {
    text.contains("LustreError:") || (text.starts_with(NFS) && text.contains("not responding"))
}

/// The server of which a message of [`Class::FileServer`] speaks, or one that says that it answers again: the name that NFS
/// has for it, or the address in Lustre's network; without one, Lustre as such. Pure.
#[must_use]
pub(super) fn server_in(text: &str) -> &str {
    if let Some(rest) = text.strip_prefix(NFS) {
        return rest.split_whitespace().next().unwrap_or_default();
    }
    // `… to node 10.0.0.1@o2ib failed: rc = -107`, `Connection restored to fs-OST0001 (at 10.0.0.1@o2ib)`.
    let mut words = text
        .split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';'))
        .map(|w| w.trim_end_matches([':', '.']));
    let is_address = |w: &str| {
        w.split_once('@').is_some_and(|(host, net)| {
            !host.is_empty() && (net.starts_with("o2ib") || net.starts_with("tcp"))
        })
    };
    words.rfind(|w| is_address(w)).unwrap_or("Lustre")
}

/// The server that answers again, as the file system's client says. Pure.
#[must_use]
pub(super) fn answers_again(text: &str) -> Option<&str> {
    let nfs = text.starts_with(NFS) && text.trim_end().ends_with(" OK");
    let lustre = text.contains("Lustre: ") && text.contains("Connection restored to ");
    (nfs || lustre).then(|| server_in(text))
}

/// The interface of which a message of [`Class::Link`] speaks, or its device; none if it names none. Pure.
#[must_use]
pub(super) fn interface_in(text: &str) -> Option<&str> {
    const WATCHDOG: &str = "NETDEV WATCHDOG";
    // `tg3 0000:02:00.0 eth0: Link is down`, `igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down`.
    let said = text.find(WATCHDOG).or_else(|| {
        let ink = text.rfind("ink is ").or_else(|| text.rfind("ink down"))?;
        ink.checked_sub(1)
    });
    let before = said.and_then(|at| text.get(..at)).unwrap_or_default();
    let head = before.trim_end().trim_end_matches("NIC").trim_end();
    let head = head.trim_end_matches(':');
    if let Some(name) = head.split_whitespace().next_back() {
        return Some(name);
    }
    // `NETDEV WATCHDOG: eth0 (e1000e): transmit queue 0 timed out`.
    let (_, after) = text.split_once(WATCHDOG)?;
    let name = after.trim_start_matches(':').split_whitespace().next()?;
    Some(name.trim_end_matches(':')).filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_links_message_names_its_interface() {
        for (text, name) in [
            ("tg3 0000:02:00.0 eth0: Link is down", "eth0"),
            ("ice 0000:98:00.0 ens1f0: NIC Link is Down", "ens1f0"),
            ("igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down", "eno1"),
            ("e1000e: eth3 NIC Link is Down", "eth3"),
            ("mlx5_core 0000:0c:00.0 ibp12s0: Link down", "ibp12s0"),
            ("mlx5_core 0000:0c:00.0: link down", "0000:0c:00.0"),
            ("ib0: link down", "ib0"),
            (
                "NETDEV WATCHDOG: eth0 (e1000e): transmit queue 0 timed out",
                "eth0",
            ),
            (
                "e1000e 0000:00:1f.6 eth1: NETDEV WATCHDOG: CPU: 1: transmit queue 0 timed out",
                "eth1",
            ),
        ] {
            assert_eq!(interface_in(text), Some(name), "{text}");
        }
        for text in ["Link is down", "NETDEV WATCHDOG", "NETDEV WATCHDOG: :", ""] {
            assert_eq!(interface_in(text), None, "{text}");
        }
    }

    #[test]
    fn a_file_servers_message_names_it_and_says_when_it_answers_again() {
        let lost = "LustreError: 11-0: fs-OST0001-osc-ffff: operation ost_statfs to node 10.0.0.1@o2ib failed: rc = -107";
        for (text, server) in [
            (
                "nfs: server filer.site not responding, still trying",
                "filer.site",
            ),
            ("nfs: server 10.0.0.7 not responding, timed out", "10.0.0.7"),
            (lost, "10.0.0.1@o2ib"),
            (
                "LustreError: 167-0: fs-OST0001-osc-ffff: This client was evicted by fs-OST0001; in progress",
                "Lustre",
            ),
        ] {
            assert_eq!((server_in(text), answers_again(text)), (server, None), "{text}");
        }
        for (text, server) in [
            ("nfs: server filer.site OK", "filer.site"),
            (
                "Lustre: fs-OST0001-osc-ffff: Connection restored to fs-OST0001 (at 10.0.0.1@o2ib)",
                "10.0.0.1@o2ib",
            ),
            (
                "Lustre: fs-OST0001-osc-ffff: Connection restored to 10.0.0.1@tcp1 (at 10.0.0.1@tcp1)",
                "10.0.0.1@tcp1",
            ),
        ] {
            assert_eq!(answers_again(text), Some(server), "{text}");
        }
        assert_eq!(
            (server_in("nfs: server "), answers_again("usb 1-1: OK")),
            ("", None)
        );
    }

    #[test]
    fn messages_are_known_whatever_level_they_come_with() {
        use Class as C;
        use Weight::{Error, Warning};
        for (level, text, expected) in [
            (
                4,
                "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
                Some((C::Xid, Error)),
            ),
            (
                4,
                "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, Ch 00000008",
                Some((C::Xid, Warning)),
            ),
            (4, "NVRM: Xid (PCI:0000:3b:00): 777, pid=1", Some((C::Xid, Error))),
            (
                3,
                "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32",
                Some((C::NvSwitch, Warning)),
            ),
            (
                3,
                "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
                Some((C::NvSwitch, Error)),
            ),
            (
                0,
                "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 8800004000310e0f",
                Some((C::Mce, Error)),
            ),
            (
                6,
                "mce: [Hardware Error]: Machine check events logged",
                Some((C::Mce, Warning)),
            ),
            (6, "mce: CPU0: Thermal monitoring enabled (TM1)", None),
            (
                4,
                "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
                Some((C::Edac, Warning)),
            ),
            (
                3,
                "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0",
                Some((C::Edac, Error)),
            ),
            (
                3,
                "Out of memory: Killed process 4711 (python) total-vm:1kB",
                Some((C::Oom, Error)),
            ),
            (
                3,
                "Memory cgroup out of memory: Killed process 4711 (python)",
                Some((C::Oom, Warning)),
            ),
            (
                3,
                "blk_update_request: I/O error, dev sdb, sector 2048 op 0x0:(READ)",
                Some((C::Io, Error)),
            ),
            (
                4,
                "nvme nvme0: controller is down; will reset: CSTS=0xffffffff",
                Some((C::Io, Error)),
            ),
            (
                2,
                "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls",
                Some((C::FileSystem, Error)),
            ),
            (
                6,
                "nfs: server filer not responding, still trying",
                Some((C::FileServer, Error)),
            ),
            (5, "nfs: server filer OK", None),
            (
                3,
                "LustreError: 11-0: fs-OST0001-osc-ffff: operation ost_statfs to node 10.0.0.1@o2ib failed: rc = -107",
                Some((C::FileServer, Error)),
            ),
            (
                2,
                "XFS (nvme0n1p1): Internal error xfs_trans_cancel at line 1",
                Some((C::FileSystem, Error)),
            ),
            (
                4,
                "pcieport 0000:00:03.0: AER: Corrected error received: 0000:04:00.0",
                Some((C::Pcie, Warning)),
            ),
            (
                3,
                "pcieport 0000:00:03.0: AER: Uncorrected (Fatal) error received",
                Some((C::Pcie, Error)),
            ),
            (
                2,
                "CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)",
                Some((C::Thermal, Warning)),
            ),
            (
                3,
                "INFO: task cp:812 blocked for more than 120 seconds.",
                Some((C::Hang, Error)),
            ),
            (
                6,
                "mlx5_core 0000:0c:00.0 ibp12s0: Link down",
                Some((C::Link, Warning)),
            ),
            (
                6,
                "ice 0000:98:00.0 ens1f0: NIC Link is Down",
                Some((C::Link, Warning)),
            ),
            (
                6,
                "ixgbe 0000:01:00.1 eth1: NIC Link is Down",
                Some((C::Link, Warning)),
            ),
            (
                3,
                "bnxt_en 0000:41:00.0 eth2: NIC Link is Down",
                Some((C::Link, Warning)),
            ),
            (6, "tg3 0000:02:00.0 eth0: Link is down", Some((C::Link, Warning))),
            (
                6,
                "ice 0000:98:00.0 ens1f0: NIC Link is up 25 Gbps Full Duplex",
                None,
            ),
            (6, "ata3: SATA link down (SStatus 0 SControl 300)", None),
            (
                3,
                "usb 1-1: device descriptor read/64, error -71",
                Some((C::Other, Error)),
            ),
            (4, "ACPI: video: something odd", Some((C::Other, Warning))),
            (6, "Linux version 6.18", None),
        ] {
            assert_eq!(classify(level, text), expected, "{text}");
        }
    }
}
