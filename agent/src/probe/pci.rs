//! Accelerators on the PCI bus: tells "this node has no GPU" from "its driver does not answer".

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::kept::Kept;
use super::seen::Seen;
use super::{Roots, line, names_in};

/// How often the bus is walked anew; what hangs on which driver is looked at each time.
const WALK: Duration = Duration::from_secs(3600);
/// How often its names are looked at: with a new one it is walked sooner.
const LIST: Duration = Duration::from_secs(60);
/// What is plugged in counts no sooner where it would be missed: by then its driver has found it, and whoever asks that.
const SETTLES: Duration = Duration::from_secs(120);
/// Drivers that keep a device for a machine of a guest.
pub(super) const PASSED: [&str; 2] = ["vfio-pci", "pci-stub"];

/// Display, 3D and accelerator controllers of NVIDIA and AMD: compute devices.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Gpus {
    /// NVIDIA's that are this host's.
    pub nvidia: u16,
    /// AMD's that are this host's.
    pub amd: u16,
    /// Set aside for guests: no driver of this host sees them.
    pub passed: u16,
    /// Were on the bus once and are not any more.
    pub lost: u16,
}

impl Gpus {
    /// Those that a driver of this host should see; a lost one too.
    #[must_use]
    pub fn driven(self) -> u16 {
        self.nvidia.saturating_add(self.amd).saturating_add(self.lost)
    }

    /// All.
    #[must_use]
    pub fn all(self) -> u16 {
        self.driven().saturating_add(self.passed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    Nvidia,
    Amd,
}

#[derive(Debug)]
struct Device {
    path: PathBuf,
    vendor: Vendor,
    /// A function that another device has made, and may take away again.
    is_virtual: bool,
}

/// What a walk has found.
#[derive(Debug)]
struct Walk {
    at: Instant,
    /// Of all devices, rising.
    names: Vec<String>,
    /// When names were looked at last.
    listed: Instant,
    /// Which there were then, rising.
    seen: Vec<String>,
    /// When the last one came that the walk has not found.
    new: Option<Instant>,
    devices: Option<Vec<Device>>,
}

/// The bus, walked now and then, and for what is plugged in. A device that has left it counts until the next walk: its driver
/// shows the loss.
#[derive(Debug)]
pub struct Bus {
    roots: Roots,
    walk: Option<Walk>,
    /// How long a new device must have been there.
    settles: Duration,
    /// How many devices there were at most.
    seen: Option<Seen<u16>>,
}

impl Bus {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            roots: roots.clone(),
            walk: None,
            settles: Duration::ZERO,
            seen: None,
        }
    }

    /// Keeps how many there were: what leaves the bus is lost, over restarts too. What is plugged in counts a while later, for
    /// its driver is missed once it does.
    #[must_use]
    pub fn remembering(self, kept: Kept) -> Self {
        Self {
            seen: Some(Seen::new(kept)),
            settles: SETTLES,
            ..self
        }
    }

    /// Number of each; none if the bus cannot be read.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> Option<Gpus> {
        let (mut found, mut there) = (Gpus::default(), 0u16);
        for device in self.devices(now)? {
            let driver = driver(&device.path);
            let count = match (driver.as_deref(), device.vendor) {
                (Some(d), _) if PASSED.contains(&d) => &mut found.passed,
                (_, Vendor::Nvidia) => &mut found.nvidia,
                (Some("amdgpu"), Vendor::Amd) => &mut found.amd,
                // On-board graphics of servers (radeon, or nothing) compute nothing; the others have lost their driver.
                (None, Vendor::Amd) if !is_display(&device.path) => &mut found.amd,
                (_, Vendor::Amd) => continue,
            };
            *count = count.saturating_add(1);
            there = there.saturating_add(u16::from(!device.is_virtual));
        }
        if let Some(seen) = &mut self.seen {
            let most = seen.value().max(there);
            found.lost = most.saturating_sub(there);
            seen.keep(most);
        }
        Some(found)
    }

    /// PCI addresses of NVIDIA's that are this host's, rising; empty if the bus cannot be read.
    #[must_use]
    pub fn nvidia(&mut self, now: Instant) -> Vec<String> {
        let is_ours = |d: &&Device| {
            d.vendor == Vendor::Nvidia && driver(&d.path).is_none_or(|name| !PASSED.contains(&name.as_str()))
        };
        let ours = self.devices(now).unwrap_or_default().iter().filter(is_ours);
        ours.filter_map(|d| Some(d.path.file_name()?.to_str()?.to_owned()))
            .collect()
    }

    /// What is on it by the last walk, which is made here if it is time to; none if the bus cannot be read.
    fn devices(&mut self, now: Instant) -> Option<&[Device]> {
        let age = |at: Instant| now.saturating_duration_since(at);
        let dir = devices_of(&self.roots);
        if let Some(walk) = self.walk.as_mut().filter(|w| age(w.listed) >= LIST) {
            walk.listed = now;
            let names = names_in(&dir);
            let in_any = |name| [&walk.names, &walk.seen].map(|all| all.binary_search(name).is_ok());
            if names.iter().any(|name| in_any(name) == [false; 2]) {
                walk.new = Some(now);
            }
            walk.seen = names;
        }
        let settles = self.settles;
        let is_due = |w: &Walk| age(w.at) >= WALK || w.new.is_some_and(|at| age(at) >= settles);
        if self.walk.as_ref().is_none_or(is_due) {
            let names = names_in(&dir);
            self.walk = Some(Walk {
                at: now,
                devices: look(&self.roots, &names),
                seen: names.clone(),
                names,
                listed: now,
                new: None,
            });
        }
        self.walk.as_ref()?.devices.as_deref()
    }
}

/// Name of the driver that a device hangs on.
#[must_use]
pub fn driver(device: &Path) -> Option<String> {
    let link = fs::read_link(device.join("driver")).ok()?;
    link.file_name()?.to_str().map(str::to_owned)
}

fn devices_of(roots: &Roots) -> PathBuf {
    roots.sys.join("bus/pci/devices")
}

/// The GPUs among these.
fn look(roots: &Roots, names: &[String]) -> Option<Vec<Device>> {
    let dir = devices_of(roots);
    if !dir.is_dir() {
        // A machine without any PCI bus (some virtual ones) has no PCI GPU; an unmounted /sys says nothing.
        return roots.sys.join("bus").is_dir().then(Vec::new);
    }
    let gpu = |name: &String| {
        let device = dir.join(name);
        let vendor = match line(&device.join("vendor")).as_deref() {
            Some("0x10de") => Vendor::Nvidia,
            Some("0x1002") => Vendor::Amd,
            _ => return None,
        };
        is_gpu(&device).then(|| Device {
            is_virtual: device.join("physfn").exists(),
            path: device,
            vendor,
        })
    };
    Some(names.iter().filter_map(gpu).collect())
}

fn class(device: &Path) -> String {
    line(&device.join("class")).unwrap_or_default()
}

fn is_gpu(device: &Path) -> bool {
    // 0x0300: VGA, 0x0302: 3D, 0x0380: other display; 0x1200: processing accelerator (MI300).
    let class = class(device);
    ["0x0300", "0x0302", "0x0380", "0x1200"]
        .iter()
        .any(|c| class.starts_with(c))
}

fn is_display(device: &Path) -> bool {
    class(device).starts_with("0x0300")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::probe::recorded;

    fn gpus(roots: &Roots) -> Option<Gpus> {
        Bus::new(roots).read(Instant::now())
    }

    fn device(roots: &Roots, name: &str, vendor: &str, class: &str, driver: Option<&str>) {
        let device = roots.sys.join("bus/pci/devices").join(name);
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
        fs::write(device.join("class"), format!("{class}\n")).unwrap();
        fs::remove_file(device.join("driver")).ok();
        if let Some(driver) = driver {
            symlink(
                format!("../../../bus/pci/drivers/{driver}"),
                device.join("driver"),
            )
            .unwrap();
        }
    }

    #[test]
    fn gpus_are_counted_and_an_unreadable_bus_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        assert_eq!(gpus(&roots), None);
        for (name, vendor, class) in [
            ("0000:00:01.0", "0x8086", "0x030000"),
            ("0000:01:00.0", "0x10de", "0x030200"),
            ("0000:01:00.1", "0x10de", "0x040300"),
            ("0000:02:00.0", "0x1002", "0x120000"),
        ] {
            device(&roots, name, vendor, class, None);
        }
        let expected = Gpus {
            nvidia: 1,
            amd: 1,
            passed: 0,
            lost: 0,
        };
        assert_eq!(gpus(&roots), Some(expected));
        let nvidia = || Bus::new(&roots).nvidia(Instant::now());
        assert_eq!(nvidia(), ["0000:01:00.0"]);
        device(&roots, "0000:01:00.0", "0x10de", "0x030200", Some("vfio-pci"));
        assert!(nvidia().is_empty());
        fs::remove_dir_all(roots.sys.join("bus/pci/devices")).unwrap();
        assert_eq!(gpus(&roots), Some(Gpus::default()));
    }

    #[test]
    fn graphics_of_the_board_are_no_gpu_and_what_a_guest_gets_is_seen_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        // ATI's ES1000 with its driver and without.
        device(&roots, "0000:01:03.0", "0x1002", "0x030000", Some("radeon"));
        device(&roots, "0000:01:04.0", "0x1002", "0x030000", None);
        device(&roots, "0000:c1:00.0", "0x1002", "0x038000", Some("amdgpu"));
        device(&roots, "0000:3b:00.0", "0x10de", "0x030200", Some("nvidia"));
        let mut bus = Bus::new(&roots);
        let now = Instant::now();
        assert_eq!(
            bus.read(now),
            Some(Gpus {
                nvidia: 1,
                amd: 1,
                passed: 0,
                lost: 0
            })
        );
        device(&roots, "0000:3b:00.0", "0x10de", "0x030200", Some("vfio-pci"));
        let set_aside = bus.read(now).unwrap();
        assert_eq!(
            set_aside,
            Gpus {
                nvidia: 0,
                amd: 1,
                passed: 1,
                lost: 0
            }
        );
        assert_eq!((set_aside.driven(), set_aside.all()), (1, 2));
        // Its driver is loaded after the first look.
        device(&roots, "0000:01:04.0", "0x1002", "0x030000", Some("amdgpu"));
        assert_eq!(bus.read(now).unwrap().amd, 2);
        device(&roots, "0000:01:04.0", "0x1002", "0x030000", None);
        // Fallen off the bus: still expected of its driver.
        fs::remove_dir_all(roots.sys.join("bus/pci/devices/0000:3b:00.0")).unwrap();
        assert_eq!(bus.read(now).unwrap().driven(), 2);
    }

    #[test]
    fn one_that_is_plugged_in_is_seen_within_a_minute_and_missed_by_nobody_before_its_driver_has_found_it() {
        let (dir, roots) = recorded("gpu-node");
        let mut asked = Bus::new(&roots);
        let mut kept = Bus::new(&roots).remembering(dir.path().join("gpus.json").into());
        let start = Instant::now();
        let mut at = |seconds| {
            let now = start + Duration::from_secs(seconds);
            [&mut asked, &mut kept].map(|bus| bus.read(now).unwrap().driven())
        };
        assert_eq!(at(0), [8, 8]);
        device(&roots, "0000:d6:00.0", "0x10de", "0x030200", Some("nvidia"));
        // And what is no GPU.
        device(&roots, "0000:d7:00.0", "0x15b3", "0x020700", Some("mlx5_core"));
        assert_eq!(at(59), [8, 8]);
        assert_eq!(at(60), [9, 8]);
        assert_eq!(at(179), [9, 8]);
        assert_eq!(at(180), [9, 9]);
        // One that comes while another settles has time of its own.
        device(&roots, "0000:d9:00.0", "0x15b3", "0x020700", Some("mlx5_core"));
        assert_eq!(at(240), [9, 9]);
        device(&roots, "0000:d8:00.0", "0x1002", "0x120000", Some("amdgpu"));
        assert_eq!(at(300), [10, 9]);
        assert_eq!(at(360), [10, 9]);
        assert_eq!(at(420), [10, 10]);
        // What leaves is shown by its driver.
        fs::remove_dir_all(devices_of(&roots).join("0000:d8:00.0")).unwrap();
        assert_eq!(at(3600), [10, 10]);
        let lost = kept.read(start + Duration::from_secs(420) + WALK).unwrap();
        assert_eq!((lost.amd, lost.lost), (0, 1));
    }

    #[test]
    fn one_that_left_the_bus_is_lost_over_restarts_until_a_person_accepts_it() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let kept = dir.path().join("gpus.json");
        let bus = || Bus::new(&roots).remembering(kept.clone().into());
        let start = Instant::now();
        for name in ["0000:1b:00.0", "0000:3b:00.0", "0000:3b:00.4"] {
            device(&roots, name, "0x10de", "0x030200", Some("nvidia"));
        }
        // A function of the second, for a guest.
        let functions = roots.sys.join("bus/pci/devices");
        symlink("../0000:3b:00.0", functions.join("0000:3b:00.4/physfn")).unwrap();
        let counts = |bus: &mut Bus, at| bus.read(at).map(|g| (g.nvidia, g.lost, g.driven()));
        let mut running = bus();
        assert_eq!(counts(&mut running, start), Some((3, 0, 3)));
        for gone in ["0000:3b:00.0", "0000:3b:00.4"] {
            fs::remove_dir_all(functions.join(gone)).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(counts(&mut bus(), start), Some((1, 1, 2)));
        }
        assert_eq!(counts(&mut running, start + WALK), Some((1, 1, 2)));
        fs::remove_file(&kept).unwrap();
        assert_eq!(counts(&mut running, start + WALK), Some((1, 0, 1)));
        assert_eq!(counts(&mut bus(), start), Some((1, 0, 1)));
    }
}
