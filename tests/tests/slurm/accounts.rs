//! A Slurm that keeps accounts and hides jobs: what the installer gives the agent's user there, what that user can do
//! with it, and what `status` says of what is missing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::process::{self, Process};
use hpc_tests::scene;
use hpc_tests::site::{SETTLED, Site};
use hpc_tests::slurm::{PATIENCE, Slurm};
use hpc_tests::{program, wait};
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";
const USER: &str = "virtengine";

/// The agent on a node of this Slurm.
struct Node<'a> {
    slurm: &'a Slurm,
}

impl Node<'_> {
    fn at(&self, name: &str) -> String {
        self.slurm.path(name).display().to_string()
    }

    /// The agent's program, by root.
    fn agent(&self, words: &[&str]) -> Command {
        let mut command = self.slurm.inside(&self.slurm.path("program"));
        command.args(words);
        command
    }

    /// Any program, by the agent's user.
    fn by_user(&self, words: &[&str]) -> Command {
        let mut command = self.slurm.inside(Path::new("/usr/bin/setpriv"));
        command
            .args([&format!("--reuid={USER}"), &format!("--regid={USER}")])
            .arg("--init-groups")
            .args(words)
            .env("SLURM_CONF", self.slurm.conf());
        command
    }

    /// As packages and `install` do it; what it says of Slurm.
    fn install(&self) -> Result<String> {
        let said = process::output(&mut self.agent(&["install", "--packaged"]))?;
        Ok(said.lines().filter(|l| l.contains("Slurm")).collect())
    }

    fn set_level(&self, level: &str) -> Result<()> {
        let (user, level) = (format!("name={USER}"), format!("adminlevel={level}"));
        let words = ["--immediate", "--quiet", "modify", "user", &user, "set", &level];
        self.slurm.run("sacctmgr", &words).map(drop)
    }

    fn level(&self) -> Result<String> {
        let user = format!("name={USER}");
        let words = [
            "--noheader",
            "--parsable2",
            "show",
            "user",
            &user,
            "format=adminlevel",
        ];
        self.slurm.run("sacctmgr", &words)
    }

    /// A drain as the site's programs make it, by the agent's user.
    fn drains(&self, state: &str) -> Result<String> {
        let node = format!("nodename={}", self.slurm.node);
        let words = ["scontrol", "update", &node, state, "reason=by the agent's user"];
        process::output(&mut self.by_user(&words))
    }

    /// Codes that `status` calls troubles of Slurm; its exit code must go with its verdict.
    fn troubles(&self) -> Result<Vec<String>> {
        let mut status = self.agent(&["status", "-o", "json", "--config", &self.at("node/config.yaml")]);
        let out = status.output()?;
        let said: Value = serde_json::from_slice(&out.stdout)?;
        let problems = said
            .get("problems")
            .and_then(Value::as_array)
            .context("no problems")?;
        ensure!(
            out.status.success() == problems.is_empty(),
            "{:?}: {said}",
            out.status
        );
        let codes = problems.iter().filter_map(|p| p.get("code")?.as_str());
        Ok(codes.map(str::to_owned).collect())
    }

    fn wait_troubles(&self, expected: &[&str]) -> Result<()> {
        wait::until(&format!("troubles {expected:?}"), SETTLED, || {
            let troubles = self.troubles()?;
            ensure!(troubles == expected, "{troubles:?}");
            Ok(Some(()))
        })
    }

    /// The helper, as systemd starts it.
    fn helper(&self) -> Result<Process> {
        let mut helper = self.slurm.inside(Path::new("/usr/bin/systemd-socket-activate"));
        helper
            .args([
                "--accept",
                "--inetd",
                "--listen",
                &self.at("helper.sock"),
                &self.at("program"),
            ])
            .args(["helper", "--user", USER, "--allow", "drain", "--slurm-conf"])
            .arg(self.slurm.conf());
        let helper = Process::start("helper", helper, &self.slurm.path("helper.log"))?;
        let socket = self.slurm.path("helper.sock");
        wait::until("the helper's socket", PATIENCE, || {
            Ok(socket.exists().then_some(()))
        })?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
        let mut give = self.slurm.inside(Path::new("/bin/chown"));
        process::output(give.args([USER, &self.at("helper.sock")]))?;
        Ok(helper)
    }

    /// Keys, certificate and configuration of a registered node, given to the agent's user.
    fn settle(&self, from: &str) -> Result<()> {
        process::output(Command::new("cp").args(["-a", from, &self.at("node")]))?;
        let config = self.slurm.path("node/config.yaml");
        let text = fs::read_to_string(&config)?
            .replace(from, &self.at("node"))
            .replace("slurm:\n  enabled: false\n", "");
        let more = format!(
            "slurm:\n  conf: {}\ncommands:\n  helper: {}\n",
            self.slurm.conf().display(),
            self.at("helper.sock")
        );
        fs::write(&config, text + &more)?;
        let (owner, node) = (format!("{USER}:{USER}"), self.at("node"));
        let mut give = self.slurm.inside(Path::new("/bin/chown"));
        process::output(give.args(["-R", &owner, &node])).map(drop)
    }
}

#[test]
fn the_installer_makes_an_operator_who_sees_hidden_jobs_and_drains_by_the_helper() -> Result<()> {
    scene::run("slurm-accounts", |scene, kind| {
        let dir = tempfile::tempdir()?;
        let slurm = Slurm::start_with_accounts(dir.path())?;
        let node = Node { slurm: &slurm };
        fs::copy(program::path("virtengine-node-agent")?, slurm.path("program"))?;

        // The installer, once and again.
        let said = node.install()?;
        ensure!(said == format!("user {USER} is an operator in Slurm"), "{said}");
        ensure!(node.install()?.is_empty() && node.level()? == "Operator");

        // An operator sees what is hidden from others, and may not drain: Slurm's own word.
        let job = slurm.submit("sleep 600", &[])?;
        let sees = |sees: bool| {
            wait::until(&format!("jobs seen: {sees}"), PATIENCE, || {
                let jobs = process::output(&mut node.by_user(&["squeue", "--noheader"]))?;
                Ok((jobs.contains(&job.to_string()) == sees).then_some(()))
            })
        };
        sees(true)?;
        let refused = node.drains("state=drain").err().context("an operator drains")?;
        ensure!(format!("{refused:#}").contains("Invalid user id"), "{refused:#}");
        slurm.cancel(job)?;

        let site = Site::start(scene, kind)?;
        let agent = site.agent(scene, NODE)?;
        node.settle(agent.path("").trim_end_matches('/'))?;
        let mut run = node.by_user(&[
            &node.at("program"),
            "run",
            "--config",
            &node.at("node/config.yaml"),
        ]);
        run.env_remove("SLURM_CONF");
        let _agent = Process::start("agent", run, &scene.log("agent"))?;
        site.wait_state(NODE, "active")?;
        node.wait_troubles(&["slurm_rights"])?;

        // By the helper it drains and resumes on the provider's order.
        let mut helper = node.helper()?;
        node.wait_troubles(&[])?;
        let chain = |message: &str, more: &[&str]| -> Result<()> {
            let words = ["tx", "hpc", message, NODE, "--from", "owner", "--yes"];
            site.cli.run(&[&words, more].concat()).map(drop)
        };
        chain("drain-node", &["--reason", "new disk"])?;
        let drained = slurm.wait_node("the drain", |n| n.state_text.contains("DRAIN"))?;
        ensure!(
            drained
                .reason
                .as_deref()
                .is_some_and(|r| r.starts_with("virtengine order: new disk")),
            "{drained:?}"
        );
        site.wait_state(NODE, "drained")?;
        chain("resume-node", &[])?;
        slurm.wait_node("the resume", |n| n.state_text == "IDLE")?;
        helper.kill()?;
        fs::remove_file(slurm.path("helper.sock"))?;
        node.wait_troubles(&["slurm_rights"])?;

        // By Slurm's own rights, where a site gives them.
        node.set_level("administrator")?;
        node.wait_troubles(&[])?;
        wait::until("a drain by the user", PATIENCE, || {
            node.drains("state=drain").map(Some)
        })?;
        slurm.wait_node("the drain", |n| n.state_text.contains("DRAIN"))?;
        node.drains("state=resume")?;
        slurm.wait_node("the resume", |n| n.state_text == "IDLE")?;

        // Without any: it sees nothing of others, `status` says so, and the installer mends it.
        node.set_level("none")?;
        let job = slurm.submit("sleep 600", &[])?;
        let hidden = wait::until("hidden jobs", PATIENCE, || {
            let jobs = process::output(&mut node.by_user(&["squeue", "--noheader"]))?;
            Ok((!jobs.contains(&job.to_string())).then_some(jobs))
        })?;
        ensure!(hidden.trim().is_empty(), "{hidden}");
        node.wait_troubles(&["slurm_rights", "slurm_view"])?;
        ensure!(node.install()?.contains("is an operator"));
        node.wait_troubles(&["slurm_rights"])?;
        slurm.cancel(job)
    })
}
