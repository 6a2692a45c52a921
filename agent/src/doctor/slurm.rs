//! What the agent's user may do and see in Slurm.

use std::time::Duration;

use super::Check;
use super::user::User;
use crate::config::Config;
use crate::files::Owner;
use crate::probe::process::Processes;
use crate::probe::slurm::setting;

const DEADLINE: Duration = Duration::from_secs(5);
const LIMIT: usize = 256 << 10;
/// Draining this node.
const RIGHTS: &str = "slurm_rights";
/// Seeing what others run on it.
const VIEW: &str = "slurm_view";
const HELPER: &str = "systemctl enable --now virtengine-node-helper.socket";

/// What Slurm says of itself and of the user.
struct Said {
    /// `scontrol show config`.
    config: String,
    /// `AdminLevel`, in lower case, empty for a user whom Slurm does not know; none where it keeps no accounts.
    level: Option<String>,
}

/// Whether it may drain this node, and whether it sees all jobs here.
pub(super) fn checks(config: &Config, user: &User) -> [Check; 2] {
    let slurm = &config.slurm;
    let here = slurm.enabled.unwrap_or_else(|| {
        slurm.is_configured(&config.roots.etc)
            || slurm.seen.as_ref().is_some_and(|path| path.exists())
            || !Processes::named("slurmd").find(&config.roots).is_empty()
    });
    if !here {
        return [RIGHTS, VIEW].map(|code| Check::skipped(code, "no Slurm on this node"));
    }
    if user.uid == 0 {
        return [RIGHTS, VIEW].map(|code| Check::good(code, "the agent runs as root"));
    }
    let said = ask(config, user);
    let view = match &said {
        Ok(said) => view(user, said),
        Err(_) => Check::skipped(VIEW, "Slurm does not tell"),
    };
    let rights = match said {
        _ if super::helper::listens(config, user) => Check::good(
            RIGHTS,
            format!("by the helper at {}", config.commands.helper.display()),
        ),
        Ok(said) => rights(user, &said),
        Err(wrong) => wrong,
    };
    [rights, view]
}

fn ask(config: &Config, user: &User) -> Result<Said, Check> {
    let slurm = &config.slurm;
    let program = |name: &str| {
        // The configuration that names them may be the service's: root runs them as the service.
        let other = Owner {
            uid: user.uid,
            gid: user.gids().first().copied().unwrap_or(user.uid),
        };
        let root = rustix::process::geteuid().is_root();
        let other =
            (root && user.uid != 0 && (slurm.bin_dir.is_some() || slurm.conf.is_some())).then_some(other);
        let tool = slurm.tool(name, DEADLINE, LIMIT);
        tool.map(|tool| tool.as_user(other))
    };
    let none = || {
        let what = "install slurm-client, or set slurm.bin_dir";
        Check::wrong(RIGHTS, "there is no scontrol", what)
    };
    let mut scontrol = program("scontrol").ok_or_else(none)?;
    let shown = scontrol.run(&["show", "config"]).map_err(|e| {
        let what = "check slurmctld, munge, and slurm.conf";
        Check::wrong(RIGHTS, format!("Slurm does not answer: {e}"), what)
    })?;
    let name = format!("name={}", user.name);
    let ask = [
        "--noheader",
        "--parsable2",
        "show",
        "user",
        name.as_str(),
        "format=adminlevel",
    ];
    let level = program("sacctmgr").and_then(|mut tool| tool.run(&ask).ok());
    Ok(Said {
        config: String::from_utf8_lossy(&shown).into_owned(),
        level: level.map(|text| String::from_utf8_lossy(&text).trim().to_lowercase()),
    })
}

/// Slurm lets root, its own user and its administrators change a node (`update`, slurmctld's `validate_super_user`); an
/// operator may do much with accounts and reservations, and not that.
fn rights(user: &User, said: &Said) -> Check {
    let name = &user.name;
    if setting(&said.config, "SlurmUser").and_then(|v| v.split('(').next()) == Some(name.as_str()) {
        return Check::good(RIGHTS, format!("{name} is Slurm's own user"));
    }
    match said.level.as_deref() {
        Some("administrator") => Check::good(RIGHTS, format!("{name} is an administrator in Slurm")),
        Some(_) => Check::wrong(
            RIGHTS,
            format!("{name} may not drain this node: Slurm lets its administrators alone, and no operator"),
            format!("{HELPER}; or sacctmgr --immediate modify user name={name} set adminlevel=administrator"),
        ),
        None => Check::wrong(
            RIGHTS,
            format!(
                "{name} may not drain this node: Slurm keeps no accounts, so that only root and SlurmUser may"
            ),
            HELPER,
        ),
    }
}

/// Where `PrivateData` hides jobs or nodes, operators see them all the same.
fn view(user: &User, said: &Said) -> Check {
    let name = &user.name;
    let sees = matches!(said.level.as_deref(), Some("operator" | "administrator"));
    if sees {
        return Check::good(VIEW, format!("{name} is an operator in Slurm"));
    }
    let hidden: Vec<&str> = setting(&said.config, "PrivateData")
        .unwrap_or_default()
        .split(',')
        .filter(|word| matches!(*word, "jobs" | "nodes"))
        .collect();
    if hidden.is_empty() {
        return Check::good(VIEW, "Slurm hides neither jobs nor nodes (PrivateData)");
    }
    let what = format!("Slurm hides {} from {name} (PrivateData)", hidden.join(" and "));
    if said.level.is_none() {
        return Check::wrong(VIEW, what, "take jobs and nodes out of PrivateData in slurm.conf");
    }
    let make = format!("sacctmgr --immediate add user {name} account=root adminlevel=operator");
    Check::wrong(VIEW, what, make)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    const CONFIG: &str = "Configuration data as of 2026\nPrivateData             = jobs,usage\nSlurmUser               = slurm(64030)\nSlurmdUser = root(0)\n";

    fn named(name: &str) -> User {
        User::find(4242, &format!("{name}:x:4242:4242::/:/bin/sh\n"), "")
    }

    fn said(config: &str, level: Option<&str>) -> Said {
        Said {
            config: config.to_owned(),
            level: level.map(str::to_owned),
        }
    }

    #[test]
    fn slurms_own_user_and_administrators_may_drain_and_operators_see_what_is_hidden() {
        let user = named("virtengine");
        assert_eq!(setting(CONFIG, "SlurmUser"), Some("slurm(64030)"));
        assert_eq!(setting("x", "SlurmUser"), None);
        let own = rights(&named("slurm"), &said(CONFIG, None));
        assert_eq!(own.grade, Grade::Good);
        for (level, drains, sees) in [
            (Some("administrator"), Grade::Good, Grade::Good),
            (Some("operator"), Grade::Wrong, Grade::Good),
            (Some("none"), Grade::Wrong, Grade::Wrong),
            (Some(""), Grade::Wrong, Grade::Wrong),
            (None, Grade::Wrong, Grade::Wrong),
        ] {
            let c = rights(&user, &said(CONFIG, level));
            assert_eq!(c.grade, drains, "{c:?}");
            assert!(drains == Grade::Good || c.remedy.unwrap().contains("virtengine-node-helper.socket"));
            let c = view(&user, &said(CONFIG, level));
            assert_eq!(c.grade, sees, "{c:?}");
        }
        let open = "PrivateData = none\n";
        assert_eq!(view(&user, &said(open, Some(""))).grade, Grade::Good);
        assert_eq!(view(&user, &said(open, None)).grade, Grade::Good);
    }
}
