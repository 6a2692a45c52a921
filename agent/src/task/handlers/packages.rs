//! `node.prerequisites_install`: packages of the distribution that the site's policy names, by apt or dnf.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::task::{PackageName, Params, PrerequisitesInstalled};
use serde_json::Value;

use crate::probe::tool::find;
use crate::task::context::Context;
use crate::task::exec::Program;
use crate::task::failure::Failure;
use crate::task::handler::{Handler, Recovery};
use crate::task::jail::Jail;
use crate::task::policy::Policy;

/// How long the manager may take.
const LIMIT: Duration = Duration::from_secs(3000);

/// The handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Install;

impl Handler for Install {
    /// What is installed is not installed again.
    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    fn allow(&self, params: &Params, policy: &Policy) -> Result<(), Failure> {
        let Params::PrerequisitesInstall(p) = params else {
            return Ok(());
        };
        match p.packages.iter().find(|name| !policy.packages.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let what = format!("packages: {name} is not among packages of the policy");
                Err(Failure::new(Code::PolicyDenied, what))
            }
        }
    }

    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure> {
        let Params::PrerequisitesInstall(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        context.phase("install")?;
        serde_json::to_value(install(context, &p.packages)?).map_err(Failure::failed)
    }
}

/// The distribution's package manager.
enum Manager {
    Apt { get: PathBuf, query: PathBuf },
    Dnf { dnf: PathBuf, rpm: PathBuf },
}

impl Manager {
    fn find() -> Result<Self, Failure> {
        if let (Some(get), Some(query)) = (find("apt-get", None), find("dpkg-query", None)) {
            return Ok(Self::Apt { get, query });
        }
        if let (Some(dnf), Some(rpm)) = (find("dnf", None), find("rpm", None)) {
            return Ok(Self::Dnf { dnf, rpm });
        }
        let what = "neither apt-get nor dnf is installed; install the packages by hand";
        Err(Failure::new(Code::NotSupported, what))
    }

    fn has(&self, c: &Context<'_>, name: &PackageName) -> Result<bool, Failure> {
        Ok(match self {
            Self::Apt { query, .. } => {
                let program = Program::new(query)
                    .flag("--show")
                    .flag("--showformat=${db:Status-Status}");
                let out = program.value(name.as_str())?.ask(c.stop())?;
                out.code == 0 && out.stdout == b"installed"
            }
            Self::Dnf { rpm, .. } => {
                let out = Program::new(rpm)
                    .flag("--query")
                    .value(name.as_str())?
                    .ask(c.stop())?;
                out.code == 0
            }
        })
    }

    fn install(&self, c: &Context<'_>, names: &[PackageName]) -> Result<(), Failure> {
        let program = match self {
            Self::Apt { get, .. } => Program::new(get)
                .flag("--quiet")
                .flag("--yes")
                .flag("--no-install-recommends")
                .flag("-o")
                .flag("Dpkg::Options::=--force-confold")
                .flag("-o")
                .flag("DPkg::Lock::Timeout=300")
                .flag("install"),
            Self::Dnf { dnf, .. } => Program::new(dnf)
                .flag("--quiet")
                .flag("--assumeyes")
                .flag("install"),
        };
        let program = names.iter().try_fold(program, |p, n| p.value(n.as_str()))?;
        // Packages bring kernels' images along: their scripts write to /boot.
        c.run(program.within(LIMIT).jailed(Jail::Acting))?;
        Ok(())
    }
}

/// Installs those that are missing, and looks whether they are there.
pub(super) fn install(c: &Context<'_>, names: &[PackageName]) -> Result<PrerequisitesInstalled, Failure> {
    let manager = Manager::find()?;
    let (mut present, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        if manager.has(c, name)? {
            present.push(name.clone());
        } else {
            missing.push(name.clone());
        }
    }
    if !missing.is_empty() {
        c.say("packages are installed");
        manager.install(c, &missing)?;
    }
    for name in &missing {
        if !manager.has(c, name)? {
            return Err(Failure::failed(format!("{name} was installed and is not there")));
        }
    }
    Ok(PrerequisitesInstalled {
        manager: match manager {
            Manager::Apt { .. } => "apt",
            Manager::Dnf { .. } => "dnf",
        }
        .to_owned(),
        present,
        installed: missing,
        reboot_required: ["/run/reboot-required", "/run/reboot-needed"]
            .iter()
            .any(|p| Path::new(p).exists()),
    })
}
