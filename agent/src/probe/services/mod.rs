//! Daemons and container runtime of the node, with versions.

mod places;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hpc_schema::heartbeat::{ContainerRuntime, Label, Services};

use super::Roots;
use super::process::Daemon;
use super::slurm::SlurmConfig;
use super::tool::{Tool, find};
use places::Places;

/// `--version` of a program.
const DEADLINE: Duration = Duration::from_secs(5);
/// Where no such program is installed and there is no Slurm, the process is looked for only this often; so is a program asked
/// that has failed.
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
    roots: Roots,
    slurm: SlurmConfig,
    /// slurmd has run here.
    slurm_seen: bool,
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
    /// slurmd is in Slurm's `bin_dir` (or in `sbin` beside it), if not where programs usually are.
    #[must_use]
    pub fn new(roots: &Roots, slurm: &SlurmConfig) -> Self {
        Self {
            roots: roots.clone(),
            slurm: slurm.clone(),
            slurm_seen: false,
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
        let (roots, slurm) = (&self.roots, &self.slurm);
        let folder = slurm.bin_dir.as_deref();
        let configured = folder.is_some() || slurm.is_configured(&roots.etc);
        let here = |seen: bool| slurm.enabled != Some(false) && (seen || configured);
        let by_now = here(self.slurm_seen);
        let (slurmd_running, slurmd_version) = self.slurmd.look(roots, folder, by_now, places, now);
        self.slurm_seen |= slurmd_running == Some(true);
        let by_now = here(self.slurm_seen);
        let (munge_running, munge_version) = self.munged.look(roots, None, by_now, places, now);
        let installed = self.runtimes.iter_mut().find_map(|(kind, v)| {
            let version = v.installed(None, places, now)?;
            let kind = if v.is_podman() {
                ContainerRuntime::Podman
            } else {
                *kind
            };
            Some((kind, version))
        });
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
    /// When it was looked for in vain, and whether it is known not to run.
    missed: Option<(Instant, Option<bool>)>,
}

impl Service {
    fn new(name: &'static str, flag: &'static str) -> Self {
        Self {
            daemon: Daemon::new(name),
            version: Version::new(name, flag),
            missed: None,
        }
    }

    /// Whether it runs, and its version. Its process, once found, is looked at each time; `/proc` is walked seldom where
    /// nothing says that it should run.
    fn look(
        &mut self,
        roots: &Roots,
        folder: Option<&Path>,
        slurm_here: bool,
        places: &mut Places,
        now: Instant,
    ) -> (Option<bool>, Option<String>) {
        let version = self.version.installed(folder, places, now);
        if version.is_none()
            && !slurm_here
            && let Some((then, running)) = self.missed
            && now.saturating_duration_since(then) < RARELY
        {
            return (running, None);
        }
        let running = self.daemon.runs(roots);
        self.missed = (running != Some(true)).then_some((now, running));
        (running, version.flatten())
    }
}

/// A program's version, asked again when its file changes, and some time after the program has failed.
#[derive(Debug)]
struct Version {
    name: &'static str,
    flag: &'static str,
    known: Option<Known>,
}

/// What a program says of itself.
#[derive(Debug)]
struct Known {
    of: Identity,
    version: Option<String>,
    /// `docker` does, where it is podman's stand-in.
    says_podman: bool,
    /// When it has failed. One that cannot be killed is not started a second time.
    failed: Option<(Instant, Tool)>,
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
    fn installed(
        &mut self,
        folder: Option<&Path>,
        places: &mut Places,
        now: Instant,
    ) -> Option<Option<String>> {
        let (path, meta) = match folder {
            Some(folder) => {
                // Slurm's own installation puts its daemons there.
                let beside = || find(self.name, Some(&folder.join("../sbin")));
                let path = find(self.name, Some(folder)).or_else(beside)?;
                let meta = std::fs::metadata(&path).ok()?;
                (path, meta)
            }
            None => places.find(self.name)?,
        };
        let of = (path, meta.ino(), meta.mtime(), meta.len());
        let known = self.known.take().filter(|k| k.of == of);
        let holds = |k: &Known| {
            let failed = k.failed.as_ref();
            failed.is_none_or(|(then, _)| now.saturating_duration_since(*then) < RARELY)
        };
        let known = match known {
            Some(known) if holds(&known) => known,
            known => {
                let former = known.and_then(|k| k.failed).map(|(_, tool)| tool);
                let tool = former.unwrap_or_else(|| Tool::new(of.0.clone(), DEADLINE, 4096));
                self.ask(of, tool, now)
            }
        };
        Some(self.known.insert(known).version.clone())
    }

    fn ask(&self, of: Identity, mut tool: Tool, now: Instant) -> Known {
        let answer = tool.run(&[self.flag]);
        if let Err(e) = &answer {
            tracing::debug!("{e}");
        }
        let failed = answer.is_err().then_some((now, tool));
        let text = answer.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        Known {
            of,
            version: version_in(&text),
            says_podman: text.starts_with("podman"),
            failed,
        }
    }

    /// Whether it has said that it is, whatever its name.
    fn is_podman(&self) -> bool {
        self.known.as_ref().is_some_and(|k| k.says_podman)
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

    fn with_folder(folder: &Path) -> SlurmConfig {
        SlurmConfig {
            bin_dir: Some(folder.to_owned()),
            ..SlurmConfig::default()
        }
    }

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
        let (mut places, now) = (Places::usual(), Instant::now());
        let mut v = Version::new("slurmd", "-V");
        assert_eq!(v.installed(Some(dir.path()), &mut places, now), None);
        install("23.11.4");
        assert_eq!(
            v.installed(Some(dir.path()), &mut places, now),
            Some(Some("23.11.4".into()))
        );
        assert_eq!(
            v.installed(Some(dir.path()), &mut places, now),
            Some(Some("23.11.4".into()))
        );
        assert_eq!(fs::read_to_string(&calls).unwrap().lines().count(), 1);
        install("24.05.10");
        assert_eq!(
            v.installed(Some(dir.path()), &mut places, now),
            Some(Some("24.05.10".into()))
        );
    }

    #[test]
    fn a_version_that_could_not_be_told_is_asked_for_again_ten_minutes_later() {
        let dir = tempfile::tempdir().unwrap();
        let calls = dir.path().join("calls");
        let text = format!(
            "#!/bin/sh\necho x >> {0}\n[ $(wc -l < {0}) -gt 1 ] || exit 1\necho slurm 23.11.4\n",
            calls.display()
        );
        crate::stand_in::stand_in(&dir.path().join("slurmd"), &text);
        let (mut v, start) = (Version::new("slurmd", "-V"), Instant::now());
        let mut at = |seconds| {
            let now = start + Duration::from_secs(seconds);
            let version = v.installed(Some(dir.path()), &mut Places::usual(), now).unwrap();
            (version, fs::read_to_string(&calls).unwrap().lines().count())
        };
        let told = Some("23.11.4".to_owned());
        assert_eq!([at(0), at(599)], [(None, 1), (None, 1)]);
        assert_eq!([at(600), at(6000)], [(told.clone(), 2), (told, 2)]);
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
                ..ServicesProbe::new(&roots, &with_folder(&programs))
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
        install("docker", "podman version 4.9.4");
        fs::remove_file(programs.join("podman")).unwrap();
        assert_eq!(
            told(),
            (ContainerRuntime::Podman, Some("4.9.4".into())),
            "as podman-docker has it"
        );
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
            ..ServicesProbe::new(&roots, &with_folder(&programs))
        };
        let found = probe.read(Instant::now());
        let slurmd = found.services.slurmd_version.map(|v| v.as_str().to_owned());
        assert_eq!(
            (slurmd.as_deref(), found.munge_version.as_deref()),
            (Some("22.05.8"), Some("0.5.15"))
        );
    }

    #[test]
    fn a_daemon_is_found_in_sbin_beside_the_folder_of_programs() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, sbin) = (dir.path().join("bin"), dir.path().join("sbin"));
        fs::create_dir(&bin).unwrap();
        fs::create_dir(&sbin).unwrap();
        crate::stand_in::stand_in(&sbin.join("slurmd"), "#!/bin/sh\necho slurm 24.05.4\n");
        let mut v = Version::new("slurmd", "-V");
        let version = v.installed(Some(&bin), &mut Places::usual(), Instant::now());
        assert_eq!(version, Some(Some("24.05.4".into())));
    }

    /// A node of which nothing is known but who runs there.
    struct Node(tempfile::TempDir);

    impl Node {
        fn new() -> Self {
            let node = Self(tempfile::tempdir().unwrap());
            node.runs(1, "systemd");
            node
        }

        fn roots(&self) -> Roots {
            Roots::below(self.0.path())
        }

        fn runs(&self, pid: u32, name: &str) {
            let process = self.roots().proc.join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("comm"), format!("{name}\n")).unwrap();
        }

        fn configure(&self) {
            fs::create_dir_all(self.roots().etc.join("slurm")).unwrap();
            fs::write(self.roots().etc.join("slurm/slurm.conf"), "").unwrap();
        }

        fn ends(&self, pid: u32) {
            fs::remove_dir_all(self.roots().proc.join(pid.to_string())).unwrap();
        }

        /// Whether slurmd and munged run, at this second. Neither is installed where programs are looked for.
        fn looks(&self, slurm: &SlurmConfig) -> impl FnMut(u64) -> [Option<bool>; 2] {
            let start = Instant::now();
            let mut probe = ServicesProbe {
                places: Places::new([self.0.path().join("none")]),
                ..ServicesProbe::new(&self.roots(), slurm)
            };
            move |seconds| {
                let found = probe.read(start + Duration::from_secs(seconds)).services;
                assert_eq!(found.slurmd_version, None);
                [found.slurmd_running, found.munge_running]
            }
        }
    }

    #[test]
    fn without_slurm_a_service_that_is_not_installed_is_looked_for_rarely() {
        let node = Node::new();
        let mut s = Service::new("munged", "--version");
        let mut places = Places::new([node.0.path().join("none")]);
        let start = Instant::now();
        let mut at = |seconds| {
            let now = start + Duration::from_secs(seconds);
            s.look(&node.roots(), None, false, &mut places, now).0
        };
        assert_eq!(at(0), Some(false));
        node.runs(9, "munged");
        assert_eq!(at(60), Some(false));
        assert_eq!(at(600), Some(true));
        // From then on it is looked at each time.
        node.ends(9);
        assert_eq!(at(660), Some(false));
    }

    #[test]
    fn without_slurm_what_cannot_be_told_of_a_service_is_looked_for_as_rarely() {
        let (node, unknown) = (Node::new(), SlurmConfig::default());
        // Others' processes are hidden.
        node.ends(1);
        let mut at = node.looks(&unknown);
        assert_eq!(at(0), [None; 2]);
        node.runs(1, "systemd");
        assert_eq!((at(60), at(540)), ([None; 2], [None; 2]));
        assert_eq!(at(600), [Some(false); 2]);
        // Somebody's process has the name.
        if rustix::process::geteuid().is_root() {
            let node = Node::new();
            node.runs(9, "munged");
            let process = node.roots().proc.join("9");
            std::os::unix::fs::chown(&process, Some(1001), None).unwrap();
            let mut at = node.looks(&unknown);
            assert_eq!(at(0), [Some(false), None]);
            std::os::unix::fs::chown(&process, Some(0), None).unwrap();
            assert_eq!(at(60), [Some(false), None]);
            assert_eq!(at(600), [Some(false), Some(true)]);
        }
    }

    #[test]
    fn on_a_node_that_has_left_slurm_its_daemons_are_looked_for_rarely() {
        let node = Node::new();
        node.configure();
        let left = SlurmConfig {
            enabled: Some(false),
            ..with_folder(Path::new("/none"))
        };
        let mut at = node.looks(&left);
        assert_eq!(at(0), [Some(false); 2]);
        node.runs(8, "slurmd");
        node.runs(9, "munged");
        assert_eq!(at(60), [Some(false); 2]);
        assert_eq!(at(600), [Some(true); 2]);
    }

    #[test]
    fn where_slurm_is_its_daemons_are_looked_at_each_time_wherever_their_programs_lie() {
        let here = [Some(true); 2];
        let gone = [Some(false); 2];
        let by = [
            with_folder(Path::new("/none")),
            SlurmConfig {
                conf: Some("/none/slurm.conf".into()),
                ..SlurmConfig::default()
            },
            SlurmConfig {
                enabled: Some(true),
                ..SlurmConfig::default()
            },
            SlurmConfig::default(),
        ];
        for slurm in by {
            let node = Node::new();
            if slurm == SlurmConfig::default() {
                node.configure();
            }
            let mut at = node.looks(&slurm);
            assert_eq!(at(0), gone);
            node.runs(8, "slurmd");
            node.runs(9, "munged");
            assert_eq!(at(60), here);
            node.ends(8);
            node.ends(9);
            assert_eq!(at(120), gone);
            node.runs(8, "slurmd");
            assert_eq!(at(180), [Some(true), Some(false)]);
        }
        // Without any configuration its daemon says that it is here.
        let node = Node::new();
        node.runs(8, "slurmd");
        let unknown = SlurmConfig::default();
        let mut at = node.looks(&unknown);
        assert_eq!(at(0), [Some(true), Some(false)]);
        node.ends(8);
        node.runs(9, "munged");
        assert_eq!(at(60), [Some(false), Some(true)]);
        node.runs(8, "slurmd");
        assert_eq!(at(120), here);
    }
}
