//! AMD's GPUs by the amdgpu driver's files: `/sys/class/drm/card*/device`.

use std::path::Path;

use super::{Gpu, GpuReport};
use crate::probe::source::signed;
use crate::probe::{Roots, line, names_in, pci};

const VENDOR: &str = "0x1002";
const DRIVER: &str = "amdgpu";

/// All of them; empty without any.
#[must_use]
pub(super) fn read(roots: &Roots) -> GpuReport {
    let class = roots.sys.join("class/drm");
    let mut cards: Vec<(u32, Gpu)> = names_in(&class)
        .iter()
        .filter_map(|name| {
            // Not `card0-DP-1`, which is a connector.
            let number: u32 = name.strip_prefix("card")?.parse().ok()?;
            let device = class.join(name).join("device");
            // Another driver's (radeon) is graphics of the board; no driver at all has let go of its card.
            let ours = pci::driver(&device).is_none_or(|d| d == DRIVER);
            (ours && line(&device.join("vendor"))? == VENDOR).then(|| (number, describe(&device)))
        })
        .collect();
    cards.sort_unstable_by_key(|(number, _)| *number);
    let gpus = cards
        .into_iter()
        .zip(0u32..)
        .map(|((_, gpu), index)| Gpu { index, ..gpu })
        .collect();
    GpuReport { driver: None, gpus }
}

fn describe(device: &Path) -> Gpu {
    let number = |path: &Path| {
        line(path)
            .and_then(|t| signed(t.as_bytes()))
            .and_then(|n| u64::try_from(n).ok())
    };
    let own = |file: &str| number(&device.join(file));
    let hwmon = names_in(&device.join("hwmon"))
        .first()
        .map(|n| device.join("hwmon").join(n));
    let sensor = |file: &str| number(&hwmon.as_ref()?.join(file));
    let (corrected, uncorrected) = memory_errors(device);
    let memory_total = own("mem_info_vram_total");
    Gpu {
        vendor: "amd".into(),
        pci: std::fs::canonicalize(device)
            .ok()
            .and_then(|p| Some(p.file_name()?.to_str()?.to_owned())),
        uuid: line(&device.join("unique_id")),
        name: Some(name(device)),
        // The driver has let go of it: its figures are gone while the card is still listed.
        lost: memory_total.is_none(),
        utilization: own("gpu_busy_percent").map(|p| u8::try_from(p.min(100)).unwrap_or(100)),
        memory_total,
        memory_used: own("mem_info_vram_used"),
        // The edge of the die; some cards have the junction only.
        temperature: sensor("temp1_input")
            .or_else(|| sensor("temp2_input"))
            .and_then(|t| i32::try_from(t.saturating_add(500) / 1000).ok()),
        power_mw: sensor("power1_average")
            .or_else(|| sensor("power1_input"))
            .map(|w| w / 1000),
        power_limit_mw: sensor("power1_cap").map(|w| w / 1000),
        ecc_corrected: corrected,
        ecc_uncorrected: uncorrected,
        ..Gpu::default()
    }
}

/// `AMD Instinct MI250X`; some firmware leaves the maker out, older drivers have no name at all.
fn name(device: &Path) -> String {
    match line(&device.join("product_name")) {
        Some(name) if name.starts_with("AMD") => name,
        Some(name) => format!("AMD {name}"),
        None => format!("AMD GPU {}", line(&device.join("device")).unwrap_or_default())
            .trim_end()
            .to_owned(),
    }
}

/// Of high-bandwidth memory: `ue: 0` and `ce: 3`.
fn memory_errors(device: &Path) -> (Option<u64>, Option<u64>) {
    let Ok(text) = crate::files::read_text(&device.join("ras/umc_err_count"), 4096) else {
        return (None, None);
    };
    let find = |key: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(key)?.trim().parse().ok())
    };
    (find("ce:"), find("ue:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::recorded;

    #[test]
    fn graphics_of_the_board_are_no_gpu() {
        let (_dir, roots) = recorded("amd-node");
        let class = roots.sys.join("class/drm");
        let card = names_in(&class).into_iter().find(|n| n == "card1").unwrap();
        let driver = class.join(card).join("device/driver");
        std::fs::remove_file(&driver).ok();
        std::os::unix::fs::symlink("../../bus/pci/drivers/radeon", driver).unwrap();
        assert_eq!(read(&roots).gpus.len(), 2);
    }

    #[test]
    fn a_recorded_node_gives_its_gpus_and_connectors_are_none() {
        let (_dir, roots) = recorded("amd-node");
        let r = read(&roots);
        assert_eq!(r.gpus.len(), 3);
        let g = &r.gpus[0];
        assert_eq!(g.name.as_deref(), Some("AMD Instinct MI250X"));
        assert_eq!(
            (g.utilization, g.temperature, g.power_mw),
            (Some(97), Some(61), Some(412_000))
        );
        assert_eq!(
            (g.memory_total, g.memory_used),
            (Some(68_702_699_520), Some(51_527_024_640))
        );
        assert_eq!(
            (g.ecc_corrected, g.ecc_uncorrected, g.lost),
            (Some(3), Some(0), false)
        );
        assert_eq!(g.pci.as_deref(), Some("0000:c1:00.0"));
        assert_eq!(r.gpus[1].name.as_deref(), Some("AMD GPU 0x740c"));
        assert_eq!((r.gpus[1].ecc_corrected, r.gpus[1].temperature), (None, None));
        assert!(r.gpus[2].lost);
        assert_eq!((r.utilization(), r.memory_utilization()), (Some(49), Some(38)));
        assert!(read(&Roots::below(Path::new("/no/such"))).gpus.is_empty());
    }
}
