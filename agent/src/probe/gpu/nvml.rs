//! NVIDIA's GPUs by NVML. Runs in a child process only: the library costs tens of megabytes, and a wedged driver hangs
//! whoever asks it.

use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_REMAPPED_COR, NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING,
    NVML_FI_DEV_REMAPPED_UNC,
};
use nvml_wrapper::{Device, Nvml};

use super::{Gpu, GpuReport, Links, POWER_CAP, Remapped};

/// What drivers install; the name without a number comes with development packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// More than any node has.
const MOST: u32 = 64;
/// NVLinks of a GPU.
const LINKS: u32 = 18;
/// MIG instances of a GPU.
const INSTANCES: u32 = 8;

const REASONS: [(ThrottleReasons, &str); 5] = [
    (ThrottleReasons::SW_POWER_CAP, POWER_CAP),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "temperature (software)"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "temperature (hardware)"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
];

/// Asks the library once. May hang as long as the driver does.
///
/// # Errors
/// No library, no driver, or the driver refuses, in its words.
pub(super) fn read(library: Option<&Path>) -> Result<GpuReport, String> {
    let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
    let nvml = Nvml::builder()
        .lib_path(path)
        .init()
        .map_err(|e| format!("{}{}: {e}", remedy(&e), path.display()))?;
    let count = nvml.device_count().map_err(|e| e.to_string())?;
    let gpus = (0..count.min(MOST))
        .map(|index| match nvml.device_by_index(index) {
            Ok(device) => describe(&device, index),
            // It was counted, so it is there, and nothing can be asked of it; that may be our fault (no permission).
            Err(e) => Gpu {
                vendor: "nvidia".into(),
                index,
                lost: is_broken(&e),
                refused: (!is_broken(&e)).then(|| format!("{}{e}", remedy(&e))),
                ..Gpu::default()
            },
        })
        .collect();
    Ok(GpuReport {
        driver: nvml.sys_driver_version().ok(),
        gpus,
    })
}

/// What helps where a reboot does not. It goes first: a long message is cut.
const fn remedy(e: &NvmlError) -> &'static str {
    match e {
        NvmlError::LibloadingError(_) if cfg!(target_feature = "crt-static") => {
            "no reboot helps: install the agent that is not static, which alone can load NVIDIA's library; "
        }
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
            "no reboot helps: install NVIDIA's driver, or keep its GPUs for guests (vfio-pci); "
        }
        NvmlError::DriverNotLoaded => "no reboot helps: load NVIDIA's driver (modprobe nvidia); ",
        NvmlError::NoPermission => "no reboot helps: let the agent's user open its device; ",
        _ => "",
    }
}

/// Whether it is the GPU itself that does not answer any more.
fn is_broken(e: &NvmlError) -> bool {
    is_gone(e) || matches!(e, NvmlError::IrqIssue | NvmlError::Unknown)
}

fn is_gone(e: &NvmlError) -> bool {
    matches!(e, NvmlError::GpuLost | NvmlError::ResetRequired)
}

fn describe(device: &Device<'_>, index: u32) -> Gpu {
    let mut lost = false;
    let lost = &mut lost;
    let memory = ask(lost, device.memory_info());
    let mut gpu = Gpu {
        vendor: "nvidia".into(),
        index,
        // `00000000:1B:00.0`: the kernel writes four digits of the domain.
        pci: ask(lost, device.pci_info())
            .map(|p| p.bus_id.to_lowercase())
            .map(|id| {
                id.strip_prefix("0000")
                    .filter(|r| r.len() > 11)
                    .map(str::to_owned)
                    .unwrap_or(id)
            }),
        uuid: ask(lost, device.uuid()),
        name: ask(lost, device.name()),
        utilization: ask(lost, device.utilization_rates())
            .map(|u| u8::try_from(u.gpu.min(100)).unwrap_or(100)),
        memory_total: memory.as_ref().map(|m| m.total),
        memory_used: memory.as_ref().map(|m| m.used),
        temperature: ask(lost, device.temperature(TemperatureSensor::Gpu))
            .and_then(|t| i32::try_from(t).ok()),
        power_mw: ask(lost, device.power_usage()).map(u64::from),
        power_limit_mw: ask(lost, device.enforced_power_limit()).map(u64::from),
        ecc_corrected: ask(
            lost,
            device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile),
        ),
        ecc_uncorrected: ask(
            lost,
            device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile),
        ),
        remapped: remapped(lost, device),
        links: links(lost, device),
        throttled_by: ask(lost, device.current_throttle_reasons())
            .map(|now| {
                REASONS
                    .iter()
                    .filter(|(r, _)| now.contains(*r))
                    .map(|(_, name)| (*name).to_owned())
                    .collect()
            })
            .unwrap_or_default(),
        mig_instances: mig(lost, device),
        processes: ask(lost, device.running_compute_processes_count()),
        lost: false,
        refused: None,
    };
    gpu.lost = *lost;
    gpu
}

/// The value, if there is one; notices when the GPU itself is gone.
fn ask<T>(lost: &mut bool, result: Result<T, NvmlError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) => {
            *lost |= is_gone(&e);
            None
        }
    }
}

fn remapped(lost: &mut bool, device: &Device<'_>) -> Option<Remapped> {
    let fields = [
        NVML_FI_DEV_REMAPPED_COR,
        NVML_FI_DEV_REMAPPED_UNC,
        NVML_FI_DEV_REMAPPED_PENDING,
        NVML_FI_DEV_REMAPPED_FAILURE,
    ]
    .map(FieldId);
    let answers = ask(lost, device.field_values_for(&fields))?;
    let mut numbers = answers.into_iter().map(|a| match a.ok()?.value.ok()? {
        SampleValue::U32(n) => Some(n),
        SampleValue::U64(n) => u32::try_from(n).ok(),
        SampleValue::I64(n) => u32::try_from(n).ok(),
        SampleValue::F64(_) => None,
    });
    let mut next = || numbers.next().flatten();
    Some(Remapped {
        corrected: next()?,
        uncorrected: next()?,
        pending: next()? != 0,
        failed: next()? != 0,
    })
}

fn links(lost: &mut bool, device: &Device<'_>) -> Option<Links> {
    let mut all = Links::default();
    for number in 0..LINKS {
        let link = device.link_wrapper_for(number);
        let Some(active) = ask(lost, link.is_active()) else {
            continue;
        };
        all.total = all.total.saturating_add(1);
        if !active {
            continue;
        }
        all.active = all.active.saturating_add(1);
        for counter in [
            ErrorCounter::DlReplay,
            ErrorCounter::DlRecovery,
            ErrorCounter::DlCrcFlit,
        ] {
            all.errors = all
                .errors
                .saturating_add(ask(lost, link.error_counter(counter)).unwrap_or(0));
        }
    }
    (all.total > 0).then_some(all)
}

fn mig(lost: &mut bool, device: &Device<'_>) -> Option<u32> {
    ask(lost, device.mig_mode()).filter(|m| m.current == 1)?;
    let most = ask(lost, device.mig_device_count())?.min(INSTANCES);
    let there = (0..most)
        .filter(|i| device.mig_device_by_index(*i).is_ok())
        .count();
    u32::try_from(there).ok()
}
