//! A machine that runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Image;
use super::image::file_system;
use crate::process::Process;
use crate::wait;

/// What a machine gets.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Processors.
    pub cpus: u32,
    /// Size of the payload's disk.
    pub payload_size: String,
    /// Further arguments of QEMU: devices, disks.
    pub arguments: Vec<String>,
    /// Further words for the kernel.
    pub kernel: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_mb: 512,
            cpus: 2,
            payload_size: "256M".to_owned(),
            arguments: Vec::new(),
            kernel: String::new(),
        }
    }
}

/// A running machine. Dropping it ends it. It reaches this machine's loopback address at 10.0.2.2.
#[derive(Debug)]
pub struct Machine {
    qemu: Process,
    console: PathBuf,
    said: PathBuf,
}

impl Machine {
    /// Boots a copy of `image` with `payload` (which has a program `run`) as its second disk; its logs lie in `folder`.
    ///
    /// # Errors
    /// If QEMU is missing or does not start.
    pub fn start(image: &Image, payload: &Path, folder: &Path, options: &Options) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let (console, said, disk) = (
            folder.join("console.log"),
            folder.join("said.log"),
            folder.join("payload.raw"),
        );
        file_system(payload, &disk, &options.payload_size)?;
        let words = format!(
            "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=false net.ifnames=1 {}",
            options.kernel
        );
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "qemu64"])
            .args(["-nodefaults", "-display", "none", "-no-reboot"])
            .args([
                "-m",
                &options.memory_mb.to_string(),
                "-smp",
                &options.cpus.to_string(),
            ])
            .arg("-kernel")
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(&image.initrd)
            .args(["-append", words.trim()])
            .args(["-drive", &drive(&image.disk, "snapshot=on")])
            .args(["-drive", &drive(&disk, "readonly=on")])
            .args([
                "-netdev",
                "user,id=net",
                "-device",
                "virtio-net-pci,netdev=net,romfile=",
            ])
            .args(["-device", "virtio-rng-pci"])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-serial", &format!("file:{}", said.display())])
            .args(&options.arguments);
        let qemu = Process::start("qemu", qemu, &folder.join("qemu.log"))
            .context("Remedy: apt-get install qemu-system-x86")?;
        Ok(Self { qemu, console, said })
    }

    /// Waits for a line of the payload that begins so; the rest of it.
    ///
    /// # Errors
    /// If it does not come in time, or the payload or the machine has ended before.
    pub fn wait(&mut self, word: &str, limit: Duration) -> Result<String> {
        let find = |text: &str| {
            // Of a line that is still being written only a part may be there.
            text.split_inclusive('\n')
                .find_map(|l| Some(l.strip_suffix('\n')?.strip_prefix(word)?.trim().to_owned()))
        };
        let found = wait::until(&format!("{word:?} of the machine"), limit, || {
            let text = self.said();
            if let Some(rest) = find(&text) {
                return Ok(Some(Ok(rest)));
            }
            let over = text.lines().any(|l| l.starts_with("end ")) || self.qemu.check_alive().is_err();
            Ok(over.then_some(Err(())))
        });
        match found {
            // It may have come with the last words.
            Ok(Err(())) => {
                find(&self.said()).with_context(|| format!("{word:?} never came:\n{}", self.tail()))
            }
            Ok(Ok(rest)) => Ok(rest),
            Err(e) => bail!("{e:#}:\n{}", self.tail()),
        }
    }

    /// Waits for the end of the payload, which must be a good one; everything that it said.
    ///
    /// # Errors
    /// If it does not end in time, or badly.
    pub fn finish(mut self, limit: Duration) -> Result<String> {
        let code = self.wait("end ", limit)?;
        if code != "0" {
            bail!("the payload ended with {code}:\n{}", self.tail());
        }
        Ok(self.said())
    }

    /// Waits until the machine has switched itself off, before its payload came to an end.
    ///
    /// # Errors
    /// If it does not in time, or the payload ended.
    pub fn gone(mut self, limit: Duration) -> Result<()> {
        let off = wait::until("the machine to be off", limit, || {
            Ok(self.qemu.check_alive().is_err().then_some(()))
        });
        off.with_context(|| self.tail())?;
        if self.said().lines().any(|l| l.starts_with("end ")) {
            bail!("the payload ended:\n{}", self.tail());
        }
        Ok(())
    }

    /// What the payload has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        read(&self.said).replace('\r', "")
    }

    fn tail(&self) -> String {
        let console = read(&self.console);
        let lines: Vec<&str> = console.lines().collect();
        let last = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default();
        format!("{}\n--- console\n{}", self.said(), last.join("\n"))
    }
}

fn drive(file: &Path, how: &str) -> String {
    // QEMU takes a doubled comma for one of the name.
    let name = file.display().to_string().replace(',', ",,");
    format!("file={name},format=raw,if=virtio,{how}")
}

fn read(file: &Path) -> String {
    fs::read(file)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default()
}
