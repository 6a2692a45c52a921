//! Daemons and container runtime of the node, with versions.

mod places;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hpc_schema::heartbeat::{ContainerRuntime, Label, Services};

use super::Roots;
use super::process::Daemon;
use super::tool::{Tool, find};
use places::Places;

/// `--version` of a program.
const DEADLINE: Duration = Duration::from_secs(5);
/// Where no such program is installed, the process is looked for only this often.
const RARELY: Duration = Duration::from_secs(600);
/// In the order of preference on an HPC node.
const RUNTIMES: [(&str, ContainerRuntime); 4] = [
    ("apptainer", ContainerRuntime::Singularity),
    ("singularity", ContainerRuntime::Singularity),
    ("docker", ContainerRuntime::Docker),
    ("podman", ContainerRuntime::Podman),
];

/// Looks for slurmd, munged and a container runtime.
#[derive(Debug)]
pub struct ServicesProbe {
    proc: PathBuf,
    folder: Option<PathBuf>,
    places: Places,
    slurmd: Service,
    munged: Service,
    runtimes: Vec<(ContainerRuntime, Version)>,
}

/// What was found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ServicesFound {
    /// For the heartbeat.
    pub services: Services,
    /// Version of munge, which the heartbeat has no field for.
    pub munge_version: Option<String>,
}

impl ServicesProbe {
    /// `slurm_folder`: where slurmd is if not where programs usually are.
    #[must_use]
    pub fn new(roots: &Roots, slurm_folder: Option<PathBuf>) -> Self {
        Self {
            proc: roots.proc.clone(),
            folder: slurm_folder,
            places: Places::usual(),
            slurmd: Service::new("slurmd", "-V"),
            munged: Service::new("munged", "--version"),
            runtimes: RUNTIMES
                .iter()
                .map(|(name, kind)| (*kind, Version::new(name, "--version")))
                .collect(),
        }
    }

    /// Looks. Programs are run only when they have changed since.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> ServicesFound {
        let places = &mut self.places;
        places.look(now);
        let folder = self.folder.as_deref();
        let (slurmd_running, slurmd_version) = self.slurmd.look(&self.proc, folder, places, now);
        let (munge_running, munge_version) = self.munged.look(&self.proc, None, places, now);
        let installed = self
            .runtimes
            .iter_mut()
            .find_map(|(kind, v)| Some((*kind, v.installed(None, places)?)));
        let (runtime, version) = match installed {
            Some((kind, version)) => (kind, version),
            None => (ContainerRuntime::None, None),
        };
        ServicesFound {
            services: Services {
                slurmd_running,
                slurmd_version: slurmd_version.as_deref().and_then(Label::lossy),
                munge_running,
                container_runtime: Some(runtime),
                container_runtime_version: version.as_deref().and_then(Label::lossy),
            },
            munge_version,
        }
    }
}

#[derive(Debug)]
struct Service {
    daemon: Daemon,
    version: Version,
    absent: Option<(Instant, Option<bool>)>,
}

impl Service {
    fn new(name: &'static str, flag: &'static str) -> Self {
        Self {
            daemon: Daemon::new(name),
            version: Version::new(name, flag),
            absent: None,
        }
    }

    fn look(
        &mut self,
        proc: &Path,
        folder: Option<&Path>,
        places: &mut Places,
        now: Instant,
    ) -> (Option<bool>, Option<String>) {
        if let Some(version) = self.version.installed(folder, places) {
            return (self.daemon.runs(proc), version);
        }
        match self.absent {
            Some((at, running)) if now.saturating_duration_since(at) < RARELY => (running, None),
            _ => {
                let running = self.daemon.runs(proc);
                self.absent = Some((now, running));
                (running, None)
            }
        }
    }
}

/// A program's version, asked again when its file changes.
#[derive(Debug)]
struct Version {
    name: &'static str,
    flag: &'static str,
    known: Option<(Identity, Option<String>)>,
}

/// Path, inode, modification time, size.
type Identity = (PathBuf, u64, i64, u64);

impl Version {
    fn new(name: &'static str, flag: &'static str) -> Self {
        Self {
            name,
            flag,
            known: None,
        }
    }

    /// None: not installed. Inner none: installed, but it does not tell its version.
    fn installed(&mut self, folder: Option<&Path>, places: &mut Places) -> Option<Option<String>> {
        let (path, meta) = match folder {
            Some(folder) => {
                let path = find(self.name, Some(folder))?;
                let meta = std::fs::metadata(&path).ok()?;
                (path, meta)
            }
            None => places.find(self.name)?,
        };
        let identity = (path, meta.ino(), meta.mtime(), meta.len());
        if let Some((known, version)) = &self.known
            && *known == identity
        {
            return Some(version.clone());
        }
        let answer = Tool::new(identity.0.clone(), DEADLINE, 4096).run(&[self.flag]);
        if let Err(e) = &answer {
            tracing::debug!("{e}");
        }
        let version = answer
            .ok()
            .and_then(|text| version_in(&String::from_utf8_lossy(&text)));
        self.known = Some((identity, version.clone()));
        Some(version)
    }
}

/// `slurm-wlm 22.05.8`, `munge-0.5.15 (2022-06-22)`, `apptainer version 1.3.4`, `Docker version 20.10.24+dfsg1, build
/// 297e128`: what begins with a digit and has a dot.
fn version_in(text: &str) -> Option<String> {
    text.lines()
        .next()?
        .split(|c: char| c.is_whitespace() || c == ',' || c == '(' || c == ')')
        .filter_map(|w| w.find(|c: char| c.is_ascii_digit()).and_then(|i| w.get(i..)))
        .find(|w| w.contains('.'))
        .map(|w| w.chars().take(64).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say_of_themselves() {
        for (text, version) in [
            ("slurm-wlm 22.05.8\n", "22.05.8"),
            ("slurm 23.11.4", "23.11.4"),
            ("munge-0.5.15 (2022-06-22)", "0.5.15"),
            ("apptainer version 1.3.4-1.el9", "1.3.4-1.el9"),
            ("singularity-ce version 4.1.0", "4.1.0"),
            ("Docker version 20.10.24+dfsg1, build 297e128", "20.10.24+dfsg1"),
            ("podman version 4.3.1", "4.3.1"),
        ] {
            assert_eq!(version_in(text).as_deref(), Some(version));
        }
        assert_eq!(version_in(""), None);
        assert_eq!(version_in("usage: x"), None);
    }

    #[test]
    fn a_version_is_asked_once_until_the_program_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slurmd");
        let calls = dir.path().join("calls");
        let install = |version: &str| {
            let text = format!("#!/bin/sh\necho x >> {}\necho slurm {version}\n", calls.display());
            crate::stand_in::stand_in(&path, &text);
        };
        let mut places = Places::usual();
        let mut v = Version::new("slurmd", "-V");
        assert_eq!(v.installed(Some(dir.path()), &mut places), None);
        install("23.11.4");
        assert_eq!(
            v.installed(Some(dir.path()), &mut places),
            Some(Some("23.11.4".into()))
        );
        assert_eq!(
            v.installed(Some(dir.path()), &mut places),
            Some(Some("23.11.4".into()))
        );
        assert_eq!(fs::read_to_string(&calls).unwrap().lines().count(), 1);
        install("24.05.10");
        assert_eq!(
            v.installed(Some(dir.path()), &mut places),
            Some(Some("24.05.10".into()))
        );
    }

    #[test]
    fn the_first_runtime_that_is_installed_is_told_with_its_version_and_none_is_told_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: dir.path().to_owned(),
            ..Roots::default()
        };
        let programs = dir.path().join("bin");
        fs::create_dir(&programs).unwrap();
        let install = |name: &str, says: &str| {
            crate::stand_in::stand_in(&programs.join(name), &format!("#!/bin/sh\necho '{says}'\n"));
        };
        let told = || {
            let mut probe = ServicesProbe {
                places: Places::new([&programs]),
                ..ServicesProbe::new(&roots, Some(programs.clone()))
            };
            let found = probe.read(Instant::now()).services;
            let version = found.container_runtime_version.map(|v| v.as_str().to_owned());
            (found.container_runtime.unwrap(), version)
        };
        assert_eq!(told(), (ContainerRuntime::None, None));
        install("podman", "podman version 4.3.1");
        assert_eq!(told(), (ContainerRuntime::Podman, Some("4.3.1".into())));
        install("docker", "Docker version 20.10.24+dfsg1, build 297e128");
        assert_eq!(told(), (ContainerRuntime::Docker, Some("20.10.24+dfsg1".into())));
        install("apptainer", "nothing of the kind");
        assert_eq!(
            told(),
            (ContainerRuntime::Singularity, None),
            "no version is no other runtime"
        );
        fs::remove_file(programs.join("apptainer")).unwrap();
        install("singularity", "singularity-ce version 4.1.0");
        assert_eq!(told(), (ContainerRuntime::Singularity, Some("4.1.0".into())));
    }

    #[test]
    fn the_versions_of_slurm_and_munge_are_told_with_what_runs() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: dir.path().to_owned(),
            ..Roots::default()
        };
        let programs = dir.path().join("bin");
        fs::create_dir(&programs).unwrap();
        for (name, says) in [
            ("slurmd", "slurm-wlm 22.05.8"),
            ("munged", "munge-0.5.15 (2022-06-22)"),
        ] {
            crate::stand_in::stand_in(&programs.join(name), &format!("#!/bin/sh\necho '{says}'\n"));
        }
        let mut probe = ServicesProbe {
            places: Places::new([&programs]),
            ..ServicesProbe::new(&roots, Some(programs.clone()))
        };
        let found = probe.read(Instant::now());
        let slurmd = found.services.slurmd_version.map(|v| v.as_str().to_owned());
        assert_eq!(
            (slurmd.as_deref(), found.munge_version.as_deref()),
            (Some("22.05.8"), Some("0.5.15"))
        );
    }

    #[test]
    fn a_service_that_is_not_installed_is_looked_for_rarely() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("bin");
        fs::create_dir_all(dir.path().join("1")).unwrap();
        fs::write(dir.path().join("1/comm"), "systemd\n").unwrap();
        let mut s = Service::new("slurmd", "-V");
        let mut places = Places::usual();
        let now = Instant::now();
        assert_eq!(
            s.look(dir.path(), Some(&none), &mut places, now),
            (Some(false), None)
        );
        fs::create_dir_all(dir.path().join("9")).unwrap();
        fs::write(dir.path().join("9/comm"), "slurmd\n").unwrap();
        assert_eq!(
            s.look(
                dir.path(),
                Some(&none),
                &mut places,
                now + Duration::from_secs(60)
            ),
            (Some(false), None)
        );
        assert_eq!(
            s.look(dir.path(), Some(&none), &mut places, now + RARELY),
            (Some(true), None)
        );
    }
}
