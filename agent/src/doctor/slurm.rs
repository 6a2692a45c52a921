//! Whether the agent may drain this node in Slurm.

use std::time::Duration;

use super::Check;
use super::user::User;
use crate::config::Config;
use crate::probe::process::Processes;
use crate::probe::tool::{Tool, find};

const DEADLINE: Duration = Duration::from_secs(5);
const LIMIT: usize = 256 << 10;
const CODE: &str = "slurm_rights";

/// Operator's rights, the rights of Slurm's own user, or root's.
pub(super) fn rights(config: &Config, user: &User) -> Check {
    let slurm = &config.slurm;
    let here = slurm.enabled.unwrap_or_else(|| {
        config.roots.etc.join("slurm/slurm.conf").exists()
            || !Processes::named("slurmd").find(&config.roots.proc).is_empty()
    });
    if !here {
        return Check::skipped(CODE, "no Slurm on this node");
    }
    if user.uid == 0 {
        return Check::good(CODE, "the agent runs as root");
    }
    if super::helper::listens(config, user) {
        return Check::good(
            CODE,
            format!("by the helper at {}", config.commands.helper.display()),
        );
    }
    let program = |name: &str| {
        let tool = find(name, slurm.bin_dir.as_deref()).map(|p| Tool::new(p, DEADLINE, LIMIT));
        match &slurm.conf {
            Some(conf) => tool.map(|t| t.with("SLURM_CONF", conf)),
            None => tool,
        }
    };
    let Some(mut scontrol) = program("scontrol") else {
        return Check::wrong(
            CODE,
            "there is no scontrol",
            "install slurm-client, or set slurm.bin_dir",
        );
    };
    let shown = match scontrol.run(&["show", "config"]) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(e) => {
            return Check::wrong(
                CODE,
                format!("Slurm does not answer: {e}"),
                "check slurmctld, munge, and slurm.conf",
            );
        }
    };
    if slurm_user(&shown) == Some(user.name.as_str()) {
        return Check::good(CODE, format!("{} is Slurm's own user", user.name));
    }
    let level = program("sacctmgr").and_then(|mut tool| {
        let name = format!("name={}", user.name);
        let text = tool
            .run(&[
                "--noheader",
                "--parsable2",
                "show",
                "user",
                name.as_str(),
                "format=adminlevel",
            ])
            .ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_lowercase())
    });
    judge(&user.name, level.as_deref())
}

fn judge(name: &str, level: Option<&str>) -> Check {
    match level {
        Some("operator" | "administrator") => Check::good(CODE, format!("{name} is an operator")),
        Some(_) => Check::wrong(
            CODE,
            format!("{name} may not drain this node: it is no operator in Slurm"),
            format!("sacctmgr --immediate add user {name} account=root adminlevel=operator"),
        ),
        None => Check::wrong(
            CODE,
            format!(
                "{name} may not drain this node: Slurm keeps no accounts, so that only root and SlurmUser may"
            ),
            format!(
                "systemctl enable --now virtengine-node-helper.socket; or slurmdbd and sacctmgr --immediate add user {name} account=root adminlevel=operator"
            ),
        ),
    }
}

/// `SlurmUser               = slurm(64030)`.
fn slurm_user(config: &str) -> Option<&str> {
    let line = config.lines().find_map(|l| l.trim().strip_prefix("SlurmUser"))?;
    line.trim_start().strip_prefix('=')?.trim().split('(').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    #[test]
    fn slurms_own_user_and_operators_may_drain() {
        let text =
            "Configuration data as of 2026\nSlurmUser               = slurm(64030)\nSlurmdUser = root(0)\n";
        assert_eq!(slurm_user(text), Some("slurm"));
        assert_eq!(slurm_user("x"), None);
        assert_eq!(judge("virtengine", Some("operator")).grade, Grade::Good);
        for level in [Some("none"), Some(""), None] {
            let c = judge("virtengine", level);
            assert_eq!(c.grade, Grade::Wrong);
            assert!(c.remedy.unwrap().contains("adminlevel=operator"));
        }
    }
}
