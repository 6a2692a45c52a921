//! Draining and resuming this node in Slurm.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use super::by::By;
use super::client::LONGEST_FOR_RECORDS;
use super::node::{self, SlurmNode};
use super::{Answer, Client, SlurmConfig};
use crate::helper::{Helper, Verb};
use crate::probe::Roots;

/// Slurm shows about as much of a reason.
const LONGEST_REASON: usize = 160;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// There is no Slurm on this node.
    NoSlurm,
    /// Slurm drains it now.
    Drained,
    /// Slurm gives it jobs again.
    Resumed,
    /// It was so already.
    Unchanged,
    /// The site's administrator has drained it, for this reason: that stays.
    Administrators(String),
}

impl fmt::Display for Turned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlurm => f.write_str("no Slurm on this node; the agent keeps it in mind"),
            Self::Drained => f.write_str("Slurm drains the node"),
            Self::Resumed => f.write_str("Slurm gives the node jobs again"),
            Self::Unchanged => f.write_str("Slurm had it so already"),
            Self::Administrators(reason) => {
                write!(
                    f,
                    "the site's administrator has drained the node in Slurm: {reason}"
                )
            }
        }
    }
}

/// Tells Slurm, with its own program.
#[derive(Debug)]
pub struct Control {
    client: Client,
    by: By,
    /// The other drain of ours that is in force, with its reason.
    other: Option<(By, String)>,
    /// Who has the right to change the node, if it is not this process.
    helper: PathBuf,
}

impl Control {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(config: SlurmConfig, roots: &Roots, by: By) -> Self {
        Self {
            client: Client::new(config, roots, "scontrol", LONGEST_FOR_RECORDS),
            by,
            other: None,
            helper: PathBuf::new(),
        }
    }

    /// Has changes made by the helper that listens here, if one does.
    #[must_use]
    pub fn by_helper(self, helper: PathBuf) -> Self {
        Self { helper, ..self }
    }

    /// While this other drain of ours is in force, a resume leaves the node drained for it.
    #[must_use]
    pub fn but(self, other: Option<(By, String)>) -> Self {
        Self { other, ..self }
    }

    /// Takes new jobs away from this node. An administrator's drain stays as it is.
    ///
    /// # Errors
    /// Slurm does not answer, or does not do it.
    pub fn drain(&mut self, reason: &str) -> Result<Turned, String> {
        let Some(node) = self.look()? else {
            return Ok(Turned::NoSlurm);
        };
        if is_drained(&node) {
            return Ok(if drained_by(&node).is_some() {
                Turned::Unchanged
            } else {
                Turned::Administrators(node.reason.unwrap_or_default())
            });
        }
        self.tell(self.by, reason)?;
        match self.look()? {
            Some(node) if is_drained(&node) => Ok(Turned::Drained),
            _ => Err("Slurm took the drain and does not show it".to_owned()),
        }
    }

    /// Gives this node jobs again, if it was drained with a reason of ours.
    ///
    /// # Errors
    /// Slurm does not answer, or does not do it.
    pub fn resume(&mut self) -> Result<Turned, String> {
        let Some(node) = self.look()? else {
            return Ok(Turned::NoSlurm);
        };
        if !is_drained(&node) {
            return Ok(Turned::Unchanged);
        }
        match drained_by(&node) {
            None => return Ok(Turned::Administrators(node.reason.unwrap_or_default())),
            Some(by) if by != self.by => return Ok(Turned::Unchanged),
            Some(_) => {}
        }
        if let Some((other, reason)) = self.other.clone() {
            self.tell(other, &reason)?;
            return Ok(Turned::Drained);
        }
        match Helper::at(&self.helper) {
            Some(helper) => helper.ask(&Verb::Resume { by: self.by }).map(drop)?,
            None => self.update(&["state=resume"])?,
        }
        match self.look()? {
            Some(node) if !is_drained(&node) => Ok(Turned::Resumed),
            _ => Err("Slurm took the resume and still drains the node".to_owned()),
        }
    }

    /// As [`Control::drain`], and a drain of ours gets this reason: for the helper, whom a process asks that has looked
    /// itself.
    ///
    /// # Errors
    /// Slurm does not answer, or does not do it.
    pub fn drain_anew(&mut self, reason: &str) -> Result<Turned, String> {
        match self.look()? {
            None => return Ok(Turned::NoSlurm),
            Some(node) if is_drained(&node) && drained_by(&node).is_none() => {
                return Ok(Turned::Administrators(node.reason.unwrap_or_default()));
            }
            Some(_) => {}
        }
        self.tell(self.by, reason)?;
        Ok(Turned::Drained)
    }

    fn tell(&mut self, by: By, reason: &str) -> Result<(), String> {
        if let Some(helper) = Helper::at(&self.helper) {
            let reason = shortened(reason);
            return helper.ask(&Verb::Drain { by, reason }).map(drop);
        }
        let reason = format!("reason={}", worded(by, reason));
        self.update(&["state=drain", &reason])
    }

    /// The node as Slurm has it now; none without Slurm.
    fn look(&mut self) -> Result<Option<SlurmNode>, String> {
        let answer = self.client.ask(Instant::now(), |tool, name| {
            let text = tool.run(&["--oneliner", "--details", "show", "node", name])?;
            Ok(node::parse(&String::from_utf8_lossy(&text), name))
        });
        match answer {
            Answer::NotHere => Ok(None),
            Answer::Silent => Err(self.client.trouble()),
            Answer::Said(node) => Ok(Some(node)),
        }
    }

    fn update(&mut self, what: &[&str]) -> Result<(), String> {
        let answer = self.client.ask(Instant::now(), |tool, name| {
            let mut arguments = vec!["update".to_owned(), format!("nodename={name}")];
            arguments.extend(what.iter().map(|w| (*w).to_owned()));
            tool.run(&arguments).map(Some)
        });
        match answer {
            Answer::Said(_) => Ok(()),
            _ => Err(self.client.trouble()),
        }
    }
}

/// Whether Slurm gives it no new jobs because somebody said so.
fn is_drained(node: &SlurmNode) -> bool {
    node.state_text.contains("DRAIN")
}

/// For whom the agent drained it in Slurm; none if somebody else did.
#[must_use]
pub fn drained_by(node: &SlurmNode) -> Option<By> {
    let reason = node.reason.as_deref()?;
    [By::Order, By::Health]
        .into_iter()
        .find(|by| reason.starts_with(by.words()))
}

/// Printable and short: it becomes an argument, and everybody on the site reads it.
fn shortened(reason: &str) -> String {
    let printable = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(LONGEST_REASON).collect()
}

fn worded(by: By, reason: &str) -> String {
    match shortened(reason).trim() {
        "" => by.words().to_owned(),
        text => format!("{}: {text}", by.words()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// A stand-in that keeps state and reason in a file, as Slurm's controller does.
    fn site(dir: &Path) -> Control {
        let roots = Roots::below(dir);
        fs::create_dir_all(roots.proc.join("sys/kernel")).unwrap();
        fs::write(roots.proc.join("sys/kernel/hostname"), "vm\n").unwrap();
        fs::create_dir_all(dir.join("bin")).unwrap();
        fs::write(dir.join("state"), "IDLE\n").unwrap();
        let text = format!(
            "#!/bin/sh\ncd {}\n\
             if [ \"$1\" = update ]; then\n  echo \"$*\" >> called\n  case $3 in\n  state=drain) echo IDLE+DRAIN > state; echo \"${{4#reason=}}\" > reason;;\n\
             state=resume) echo IDLE > state; : > reason;;\n  esac\n  exit\nfi\n\
             echo \"NodeName=vm CPUTot=2 CPUAlloc=0 RealMemory=4000 AllocMem=0 State=$(cat state) Reason=$(cat reason 2>/dev/null) [root@x]\"\n",
            dir.display()
        );
        let program = dir.join("bin/scontrol");
        crate::stand_in::stand_in(&program, &text);
        let config = SlurmConfig {
            enabled: Some(true),
            bin_dir: Some(dir.join("bin")),
            ..SlurmConfig::default()
        };
        Control::new(config, &roots, By::Order)
    }

    #[test]
    fn a_drain_of_ours_is_made_and_taken_back_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut c = site(dir.path());
        assert_eq!(c.drain("new disk\nx"), Ok(Turned::Drained));
        assert_eq!(c.drain("again"), Ok(Turned::Unchanged));
        assert_eq!(c.resume(), Ok(Turned::Resumed));
        assert_eq!(c.resume(), Ok(Turned::Unchanged));
        assert_eq!(c.drain(""), Ok(Turned::Drained));
        assert_eq!(
            fs::read_to_string(dir.path().join("called")).unwrap(),
            "update nodename=vm state=drain reason=virtengine order: new disk x\nupdate nodename=vm state=resume\n\
             update nodename=vm state=drain reason=virtengine order\n"
        );
    }

    #[test]
    fn an_administrators_drain_is_neither_replaced_nor_ended() {
        let dir = tempfile::tempdir().unwrap();
        let mut c = site(dir.path());
        fs::write(dir.path().join("state"), "MIXED+DRAIN").unwrap();
        fs::write(dir.path().join("reason"), "bad fan").unwrap();
        for turned in [c.drain("x"), c.resume()] {
            assert_eq!(turned, Ok(Turned::Administrators("bad fan [root@x]".into())));
        }
        assert!(!dir.path().join("called").exists());
    }

    #[test]
    fn of_two_drains_of_ours_the_node_stays_drained_until_both_are_over() {
        let dir = tempfile::tempdir().unwrap();
        let order = || site(dir.path());
        let health = || Control {
            by: By::Health,
            ..site(dir.path())
        };
        let reason = || fs::read_to_string(dir.path().join("reason")).unwrap();
        assert_eq!(order().drain("new disk"), Ok(Turned::Drained));
        // As the file says, not as `site` begins it.
        let mut c = health();
        fs::write(dir.path().join("state"), "IDLE+DRAIN").unwrap();
        assert_eq!(c.drain("gpu_lost"), Ok(Turned::Unchanged));
        let mut c = order().but(Some((By::Health, "gpu_lost".into())));
        fs::write(dir.path().join("state"), "IDLE+DRAIN").unwrap();
        assert_eq!(c.resume(), Ok(Turned::Drained));
        assert_eq!(reason(), "virtengine health: gpu_lost\n");
        assert_eq!(
            c.resume(),
            Ok(Turned::Unchanged),
            "it is not the order's any more"
        );
        let mut c = health();
        fs::write(dir.path().join("state"), "IDLE+DRAIN").unwrap();
        assert_eq!(c.resume(), Ok(Turned::Resumed));
    }

    #[test]
    fn without_slurm_nothing_is_asked_and_a_silent_one_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let mut none = Control::new(SlurmConfig::default(), &Roots::below(dir.path()), By::Order);
        assert_eq!(
            (none.drain("x"), none.resume()),
            (Ok(Turned::NoSlurm), Ok(Turned::NoSlurm))
        );
        let mut c = site(dir.path());
        crate::stand_in::stand_in(
            &dir.path().join("bin/scontrol"),
            "#!/bin/sh\necho 'no controller' >&2\nexit 1\n",
        );
        let said = c.drain("x").unwrap_err();
        assert!(said.contains("no controller"), "{said}");
    }
}
