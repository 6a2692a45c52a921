//! QEMU's argument vector. Pure: what was asked for goes in as JSON strings or numbers, nothing is spliced.

use std::path::Path;

use hpc_schema::task::{Accel, ImageFormat, VmNetwork};
use serde_json::{Value, json};

use super::folder::Folder;

/// QEMU's own jail: no other program, no new rights, no scheduling tricks, no obsolete calls.
pub(super) const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
/// What is kept of the serial console, in bytes.
pub const CONSOLE: u32 = 64 << 10;

/// All that QEMU is told.
#[derive(Debug, Clone, Copy)]
pub struct Guest<'a> {
    /// Its name in the process list.
    pub name: &'a str,
    /// Its mark: no other process bears it.
    pub uuid: &'a str,
    /// How it runs.
    pub accel: Accel,
    /// Processors.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// The base image, opened for reading only.
    pub base: &'a Path,
    /// Its format.
    pub format: ImageFormat,
    /// What it reaches.
    pub network: VmNetwork,
    /// Port of this host that leads to its SSH port.
    pub ssh_port: Option<u16>,
    /// The machine's folder.
    pub folder: &'a Folder,
}

/// Arguments that every machine has, the probe's guest too: what was probed is what is run.
#[must_use]
pub(super) fn common(accel: Accel, vcpus: u32, memory_mib: u32) -> Vec<String> {
    let accelerator = match accel {
        Accel::Kvm => "kvm",
        Accel::Nvmm => "nvmm",
        Accel::Tcg | Accel::Auto => "tcg,thread=multi,tb-size=128",
    };
    let cpu = match accel {
        Accel::Kvm | Accel::Nvmm => "host",
        // Five levels of page tables cost time under emulation and gain nothing.
        Accel::Tcg | Accel::Auto => "max,la57=off",
    };
    [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-sandbox",
        SANDBOX,
        "-machine",
        "q35,vmport=off,usb=off",
        "-accel",
        accelerator,
        "-cpu",
        cpu,
        "-smp",
        &vcpus.to_string(),
        "-m",
        &memory_mib.to_string(),
    ]
    .into_iter()
    .map(str::to_owned)
    .collect()
}

/// The whole vector of a machine. It starts paused; paths are UTF-8 ([`Folder::new`] sees to it).
#[must_use]
pub fn arguments(g: &Guest<'_>) -> Vec<String> {
    let path = |p: &Path| p.display().to_string();
    let mut all = common(g.accel, g.vcpus, g.memory_mib);
    let mut add = |words: &[&str]| all.extend(words.iter().map(|w| (*w).to_owned()));
    let name = format!("guest=virtengine-{},debug-threads=on", g.name);
    add(&["-name", &name, "-uuid", g.uuid, "-S"]);
    // Two monitors: one is listened to as long as the machine is, the other is for whoever has something to say.
    for (monitor, socket) in [("events", g.folder.events()), ("control", g.folder.control())] {
        let socket = escaped(&path(&socket));
        add(&[
            "-chardev",
            &format!("socket,id={monitor},path={socket},server=on,wait=off"),
        ]);
        add(&["-mon", &format!("chardev={monitor},mode=control")]);
    }
    add(&[
        "-chardev",
        &format!("ringbuf,id=console,size={CONSOLE}"),
        "-serial",
        "chardev:console",
    ]);
    let base = json!({
        "driver": g.format.as_str(), "read-only": true,
        "file": {"driver": "file", "filename": path(g.base), "read-only": true},
    });
    let base = without_backing(base, g.format);
    let disk = json!({
        "node-name": "disk", "driver": "qcow2", "discard": "unmap",
        "file": {"driver": "file", "filename": path(&g.folder.disk())},
        "backing": base,
    });
    let seed = json!({
        "node-name": "seed", "driver": "raw", "read-only": true,
        "file": {"driver": "file", "filename": path(&g.folder.seed()), "read-only": true},
    });
    add(&[
        "-blockdev",
        &disk.to_string(),
        "-device",
        "virtio-blk-pci,drive=disk,bootindex=0",
    ]);
    add(&[
        "-blockdev",
        &seed.to_string(),
        "-device",
        "virtio-blk-pci,drive=seed",
    ]);
    add(&["-device", "virtio-rng-pci"]);
    if g.network != VmNetwork::None {
        let mut backend = "user,id=net".to_owned();
        if g.network == VmNetwork::Isolated {
            backend.push_str(",restrict=on");
        }
        if let Some(port) = g.ssh_port {
            backend.push_str(&format!(",hostfwd=tcp:127.0.0.1:{port}-:22"));
        }
        add(&[
            "-netdev",
            &backend,
            "-device",
            "virtio-net-pci,netdev=net,romfile=",
        ]);
    }
    all
}

/// A second image below the base is not opened, whatever its header says.
fn without_backing(mut base: Value, format: ImageFormat) -> Value {
    if let (ImageFormat::Qcow2, Some(map)) = (format, base.as_object_mut()) {
        map.insert("backing".to_owned(), Value::Null);
    }
    base
}

/// A comma ends an option's value; two are one comma.
fn escaped(text: &str) -> String {
    text.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(machines: &str) -> Folder {
        Folder::new(Path::new(machines), &"vm-1".parse().unwrap()).unwrap()
    }

    fn guest(folder: &Folder) -> Guest<'_> {
        Guest {
            name: "vm-1",
            uuid: "0000",
            accel: Accel::Tcg,
            vcpus: 2,
            memory_mib: 512,
            base: Path::new("/i/a,b\".qcow2"),
            format: ImageFormat::Qcow2,
            network: VmNetwork::None,
            ssh_port: None,
            folder,
        }
    }

    fn text(g: &Guest<'_>) -> String {
        arguments(g).join("\u{1f}")
    }

    #[test]
    fn odd_paths_stay_within_their_strings_and_the_base_has_no_backing() {
        let folder = folder("/s,t");
        let g = guest(&folder);
        let t = text(&g);
        assert!(t.contains("path=/s,,t/vm-1/run/events,server=on"), "{t}");
        let block = arguments(&g)
            .iter()
            .filter_map(|w| serde_json::from_str::<Value>(w).ok())
            .find(|v| v["node-name"] == "disk")
            .unwrap();
        assert_eq!(block["backing"]["file"]["filename"], "/i/a,b\".qcow2");
        assert!(block["backing"]["backing"].is_null() && block["backing"].get("backing").is_some());
        assert_eq!(block["backing"]["read-only"], true);
        assert!(t.contains(SANDBOX) && t.contains("-nodefaults"));
    }

    #[test]
    fn there_is_no_network_unless_it_is_asked_for() {
        let folder = folder("/m");
        assert!(!text(&guest(&folder)).contains("netdev"));
        let isolated = Guest {
            network: VmNetwork::Isolated,
            ssh_port: Some(2222),
            ..guest(&folder)
        };
        assert!(text(&isolated).contains("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:2222-:22"));
        let user = Guest {
            network: VmNetwork::User,
            ..guest(&folder)
        };
        assert!(text(&user).contains("user,id=net\u{1f}"));
    }
}
