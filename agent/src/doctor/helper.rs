//! Whether somebody here has the rights that the agent has not.

use super::Check;
use super::user::User;
use crate::config::{Config, Shutdown};
use crate::helper::REMEDY;

/// Whether the helper listens, for the agent's user.
pub(super) fn listens(config: &Config, user: &User) -> bool {
    user.may(&config.commands.helper, 2) == Some(true)
}

/// A provider that may switch the host off can.
pub(super) fn shutdown(config: &Config, user: &User) -> Check {
    let code = "shutdown_rights";
    match &config.commands.shutdown {
        Shutdown::Agent | Shutdown::Refuse => {
            Check::skipped(code, "the provider may not switch this host off")
        }
        Shutdown::Host(_) if user.uid == 0 => Check::good(code, "the agent runs as root"),
        Shutdown::Host(_) if listens(config, user) => Check::good(
            code,
            format!("the helper at {}", config.commands.helper.display()),
        ),
        Shutdown::Host(_) => Check::wrong(
            code,
            format!(
                "commands.shutdown is host, and {} may not switch it off",
                user.name
            ),
            REMEDY,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    #[test]
    fn a_host_that_the_provider_may_switch_off_needs_somebody_who_can() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("helper.sock");
        let config = |shutdown: &str| {
            let text = format!(
                "provider_daemon: {{endpoint: 'https://a:1'}}\ncommands: {{shutdown: {shutdown}, helper: {}}}",
                socket.display()
            );
            let file = crate::config::parse(&text, std::path::Path::new("f"));
            crate::config::resolve(file.unwrap()).unwrap()
        };
        let mut user = User::of_service(&config("agent"));
        let mut grade = |shutdown: &str, uid| {
            user.uid = uid;
            let c = super::shutdown(&config(shutdown), &user);
            assert!(c.grade != Grade::Wrong || c.remedy.unwrap().contains("virtengine-node-helper.socket"));
            c.grade
        };
        assert_eq!(grade("agent", 4242), Grade::Skipped);
        assert_eq!(grade("host", 0), Grade::Good);
        assert_eq!(grade("host", 4242), Grade::Wrong);
        std::fs::write(&socket, "").unwrap();
        let mode = |bits| {
            let bits = std::os::unix::fs::PermissionsExt::from_mode(bits);
            std::fs::set_permissions(&socket, bits).unwrap();
        };
        mode(0o600);
        assert_eq!(grade("host", 4242), Grade::Wrong, "it is not this user's");
        mode(0o666);
        assert_eq!(grade("host", 4242), Grade::Good);
    }
}
