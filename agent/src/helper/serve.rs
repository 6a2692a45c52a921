//! The helper's side: one request, one answer, the end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::{Answer, LONGEST, Verb};
use crate::probe::Roots;
use crate::probe::slurm::{By, Control, SlurmConfig};
use crate::probe::tool::Tool;

/// How long the one who asks may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// `systemctl poweroff` returns once it is under way.
const POWEROFF: Duration = Duration::from_secs(20);

/// A verb that root has allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Allowed {
    /// Draining this node in Slurm, and ending that.
    Drain,
    /// Switching the host off.
    Poweroff,
}

/// What root says of it: by the unit's command line, which nobody else can write. The agent's configuration belongs to
/// the agent's user and counts for nothing here.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Who may ask, beside root.
    pub user: u32,
    /// For what.
    pub allowed: Vec<Allowed>,
    /// Slurm here.
    pub slurm: SlurmConfig,
    /// The program that switches the host off.
    pub systemctl: PathBuf,
}

/// Who is at the other end, by the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub u32);

/// Who is at the other end of a connection.
///
/// # Errors
/// It is no UNIX socket, or this system does not say.
#[cfg(target_os = "linux")]
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(Peer(credentials.uid.as_raw()))
}

/// Elsewhere there is no helper.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn peer(_stream: &UnixStream) -> io::Result<Peer> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Answers the one request of a connection. True if it was done.
///
/// # Errors
/// The connection fails before there is an answer.
pub fn serve(mut stream: UnixStream, peer: Peer, rules: &Rules) -> io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    BufReader::new((&stream).take(LONGEST)).read_until(b'\n', &mut line)?;
    let answer = match decide(&line, peer, rules) {
        Ok(verb) => {
            tracing::info!(uid = peer.0, "asked for {verb:?}");
            carry_out(&verb, rules)
        }
        Err(detail) => {
            tracing::warn!(uid = peer.0, "refused: {detail}");
            Answer::Failed { detail }
        }
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    Ok(matches!(answer, Answer::Done { .. }))
}

/// The verb, if this peer may ask for it. Pure.
fn decide(line: &[u8], Peer(uid): Peer, rules: &Rules) -> Result<Verb, String> {
    if uid != rules.user && uid != 0 {
        return Err(format!(
            "user {uid} may not ask; the agent's user is {}",
            rules.user
        ));
    }
    let Some(line) = line.strip_suffix(b"\n") else {
        return Err("not a whole line".to_owned());
    };
    let verb: Verb = serde_json::from_slice(line).map_err(|e| format!("not a verb: {e}"))?;
    let needed = match verb {
        Verb::Drain { .. } | Verb::Resume { .. } => Allowed::Drain,
        Verb::Poweroff {} => Allowed::Poweroff,
    };
    if rules.allowed.contains(&needed) {
        Ok(verb)
    } else {
        Err("this verb is not allowed here; --allow of the unit virtengine-node-helper@.service says which are".to_owned())
    }
}

fn carry_out(verb: &Verb, rules: &Rules) -> Answer {
    let control = |by: By| Control::new(rules.slurm.clone(), &Roots::default(), by);
    let done = match verb {
        Verb::Drain { by, reason } => control(*by).drain_anew(reason).map(|t| t.to_string()),
        Verb::Resume { by } => control(*by).resume().map(|t| t.to_string()),
        Verb::Poweroff {} => Tool::new(rules.systemctl.clone(), POWEROFF, 4096)
            .run(&["poweroff"])
            .map(|_| "the host shuts down".to_owned())
            .map_err(|e| e.to_string()),
    };
    match done {
        Ok(detail) => Answer::Done { detail },
        Err(detail) => Answer::Failed { detail },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::helper::Helper;

    fn rules(dir: &Path, allowed: &[Allowed]) -> Rules {
        Rules {
            user: 990,
            allowed: allowed.to_vec(),
            slurm: SlurmConfig {
                enabled: Some(true),
                bin_dir: Some(dir.to_owned()),
                node_name: Some("here".into()),
                ..SlurmConfig::default()
            },
            systemctl: dir.join("systemctl"),
        }
    }

    fn program(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        crate::stand_in::stand_in(&path, &format!("#!/bin/sh\ncd {}\n{text}\n", dir.display()));
    }

    /// Answers one request as that user.
    fn answering(dir: &Path, uid: u32, allowed: &[Allowed]) -> (Helper, std::thread::JoinHandle<bool>) {
        let socket = dir.join("helper.sock");
        fs::remove_file(&socket).ok();
        let door = UnixListener::bind(&socket).unwrap();
        let rules = rules(dir, allowed);
        let thread = std::thread::spawn(move || serve(door.accept().unwrap().0, Peer(uid), &rules).unwrap());
        (Helper::at(&socket).unwrap(), thread)
    }

    #[test]
    fn only_the_agents_user_and_root_may_ask_and_only_for_what_root_allows() {
        let dir = tempfile::tempdir().unwrap();
        let all = [Allowed::Drain, Allowed::Poweroff];
        let line = |verb: &Verb| [serde_json::to_vec(verb).unwrap(), b"\n".to_vec()].concat();
        let poweroff = line(&Verb::Poweroff {});
        let resume = line(&Verb::Resume { by: By::Health });
        for uid in [990, 0] {
            assert_eq!(
                decide(&poweroff, Peer(uid), &rules(dir.path(), &all)),
                Ok(Verb::Poweroff {})
            );
        }
        for uid in [1000, 65534] {
            let said = decide(&poweroff, Peer(uid), &rules(dir.path(), &all)).unwrap_err();
            assert!(said.contains("may not ask"), "{said}");
        }
        let only = rules(dir.path(), &[Allowed::Drain]);
        assert!(
            decide(&poweroff, Peer(990), &only)
                .unwrap_err()
                .contains("--allow")
        );
        assert!(decide(&resume, Peer(990), &only).is_ok());
        assert!(decide(&resume, Peer(990), &rules(dir.path(), &[])).is_err());
        for bad in [
            &b"{\"verb\":\"poweroff\"}"[..],
            b"{\"verb\":\"reboot\"}\n",
            b"{\"verb\":\"resume\",\"by\":\"somebody\"}\n",
            b"{\"verb\":\"poweroff\",\"program\":\"/bin/sh\"}\n",
            b"{\"verb\":\"drain\",\"by\":\"order\",\"reason\":\"x\",\"node\":\"other\"}\n",
            b"poweroff\n",
            b"\n",
        ] {
            decide(bad, Peer(990), &rules(dir.path(), &all)).unwrap_err();
        }
    }

    #[test]
    fn the_host_is_switched_off_over_the_socket_and_a_stranger_gets_nothing_done() {
        let dir = tempfile::tempdir().unwrap();
        program(dir.path(), "systemctl", "echo \"$# $*\" >> called");
        let (helper, thread) = answering(dir.path(), 1000, &[Allowed::Poweroff]);
        assert!(
            helper
                .ask(&Verb::Poweroff {})
                .unwrap_err()
                .contains("may not ask")
        );
        assert!(!thread.join().unwrap() && !dir.path().join("called").exists());
        let (helper, thread) = answering(dir.path(), 990, &[Allowed::Poweroff]);
        assert_eq!(helper.ask(&Verb::Poweroff {}), Ok("the host shuts down".into()));
        assert!(thread.join().unwrap());
        assert_eq!(
            fs::read_to_string(dir.path().join("called")).unwrap(),
            "1 poweroff\n"
        );
    }

    #[test]
    fn drains_of_ours_are_made_reworded_and_ended_and_an_administrators_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("state"), "IDLE\n").unwrap();
        program(
            dir.path(),
            "scontrol",
            "if [ \"$1\" = update ]; then\n  echo \"$*\" >> called\n  case $3 in\n  \
             state=drain) echo IDLE+DRAIN > state; echo \"${4#reason=}\" > reason;;\n  \
             state=resume) echo IDLE > state; : > reason;;\n  esac\n  exit\nfi\n\
             echo \"NodeName=here CPUTot=2 CPUAlloc=0 RealMemory=4000 AllocMem=0 State=$(cat state) Reason=$(cat reason 2>/dev/null) [root@x]\"",
        );
        let ask = |verb: &Verb| {
            let (helper, thread) = answering(dir.path(), 990, &[Allowed::Drain]);
            let said = helper.ask(verb);
            thread.join().unwrap();
            said
        };
        let drain = |by, reason: &str| Verb::Drain {
            by,
            reason: reason.into(),
        };
        assert_eq!(
            ask(&drain(By::Order, "new disk")),
            Ok("Slurm drains the node".into())
        );
        assert_eq!(
            ask(&drain(By::Health, "gpu_lost\nx")),
            Ok("Slurm drains the node".into())
        );
        // The other's drain stays.
        assert_eq!(
            ask(&Verb::Resume { by: By::Order }),
            Ok("Slurm had it so already".into())
        );
        assert_eq!(
            ask(&Verb::Resume { by: By::Health }),
            Ok("Slurm gives the node jobs again".into())
        );
        fs::write(at("state"), "IDLE+DRAIN\n").unwrap();
        fs::write(at("reason"), "bad fan\n").unwrap();
        for verb in [drain(By::Order, "x"), Verb::Resume { by: By::Order }] {
            assert!(ask(&verb).unwrap().contains("administrator"));
        }
        assert_eq!(
            fs::read_to_string(at("called")).unwrap(),
            "update nodename=here state=drain reason=virtengine order: new disk\n\
             update nodename=here state=drain reason=virtengine health: gpu_lost x\n\
             update nodename=here state=resume\n"
        );
    }

    #[test]
    fn a_helper_that_is_not_there_is_said_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        assert_eq!(Helper::at(&socket), None);
        drop(UnixListener::bind(&socket).unwrap());
        let said = Helper::at(&socket).unwrap().ask(&Verb::Poweroff {}).unwrap_err();
        assert!(
            said.contains("does not answer") && said.contains("virtengine-node-helper.socket"),
            "{said}"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_said_nothing_is_allowed_that_root_has_not(line in prop::collection::vec(any::<u8>(), 0..200), uid in 0u32..2000) {
            let none = rules(Path::new("/nonexistent"), &[]);
            prop_assert!(decide(&line, Peer(uid), &none).is_err());
        }
    }
}
