//! Who may drain a node of a real Slurm: nobody without its rights, and the helper for those who have none.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hpc_tests::process::{self, Process};
use hpc_tests::slurm::{PATIENCE, Slurm};
use hpc_tests::{program, wait};
use serde_json::Value;
use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::probe::slurm::{By, Control, Turned};

/// Debian's `nobody`: no right anywhere.
const NOBODY: u32 = 65534;

/// The check of the rights in Slurm, as `doctor` gives it to a service of `nobody`.
fn rights(config: &str) -> Result<Value> {
    let mut doctor = Command::new(program::path("virtengine-node-agent")?);
    let out = doctor
        .args(["doctor", "--output", "json", "--config", config])
        .output()?;
    let said: Value = serde_json::from_slice(&out.stdout)?;
    let checks = said
        .get("checks")
        .and_then(Value::as_array)
        .context("no checks")?;
    let is = |c: &&Value| c.get("code").and_then(Value::as_str) == Some("slurm_rights");
    checks.iter().find(is).cloned().context("no such check")
}

fn grade(check: &Value) -> &str {
    check.get("grade").and_then(Value::as_str).unwrap_or_default()
}

#[test]
fn whoever_has_no_right_in_slurm_is_told_so_and_drains_by_the_helper() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let slurm = Slurm::start(dir.path())?;
    let at = |name: &str| slurm.path(name).display().to_string();
    let node = format!("nodename={}", slurm.node);
    // Slurm itself refuses.
    let mut denied = Command::new("setpriv");
    denied
        .args([
            &format!("--reuid={NOBODY}"),
            &format!("--regid={NOBODY}"),
            "--clear-groups",
        ])
        .args(["scontrol", "update", &node, "state=drain", "reason=x"])
        .env("SLURM_CONF", slurm.conf());
    let said = format!(
        "{:#}",
        process::output(&mut denied).err().context("Slurm took it")?
    );
    ensure!(
        said.contains("Invalid user id") || said.contains("denied"),
        "{said}"
    );

    // Doctor says so before anything is tried.
    let state = slurm.path("agent-state");
    fs::create_dir_all(&state)?;
    chown(&state, Some(NOBODY), Some(NOBODY))?;
    let (config, door) = (at("agent.yaml"), at("helper.sock"));
    fs::write(
        &config,
        format!(
            "provider_daemon: {{endpoint: 'https://127.0.0.1:1', request_timeout: 1s}}\nagent: {{state_dir: {}, key_path: {}}}\n\
             slurm: {{conf: {}}}\ncommands: {{helper: {door}}}\n",
            state.display(),
            at("none"),
            slurm.conf().display()
        ),
    )?;
    let check = rights(&config)?;
    ensure!(
        grade(&check) == "wrong" && check.to_string().contains("virtengine-node-helper.socket"),
        "{check}"
    );

    // The helper, as systemd starts it: by connection, which is its standard input.
    let mut helper = Command::new("systemd-socket-activate");
    helper
        .args(["--accept", "--inetd", "--listen", &door])
        .arg(program::path("virtengine-node-agent")?)
        .args(["helper", "--user", "nobody", "--allow", "drain"])
        .args(["--slurm-conf", &slurm.conf().display().to_string()]);
    let _helper = Process::start("helper", helper, &slurm.path("helper.log"))?;
    let socket = slurm.path("helper.sock");
    wait::until("the helper's socket", PATIENCE, || {
        Ok(socket.exists().then_some(()))
    })?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
    chown(&socket, Some(NOBODY), Some(NOBODY))?;
    let check = rights(&config)?;
    ensure!(grade(&check) == "good", "{check}");
    let control = |by| Control::new(slurm.config(), &Roots::default(), by).by_helper(socket.clone());
    let turned = |t: Result<Turned, String>| t.map_err(anyhow::Error::msg);
    ensure!(turned(control(By::Health).drain("gpu_lost: GPU 3"))? == Turned::Drained);
    let drained = slurm.wait_node("the drain", |n| n.state_text.contains("DRAIN"))?;
    let reason = drained.reason.unwrap_or_default();
    ensure!(
        reason.starts_with("virtengine health: gpu_lost: GPU 3"),
        "{reason}"
    );
    // Handed over to the provider's drain, and ended by it alone.
    let other = Some((By::Order, "new disk".to_owned()));
    ensure!(turned(control(By::Health).but(other).resume())? == Turned::Drained);
    ensure!(turned(control(By::Health).resume())? == Turned::Unchanged);
    ensure!(turned(control(By::Order).resume())? == Turned::Resumed);
    slurm.wait_node("the resume", |n| n.state_text == "IDLE")?;
    // What its unit does not allow it does not do.
    let poweroff = virtengine_node_agent::helper::Helper::at(&socket).context("no socket")?;
    let refused = poweroff.ask(&virtengine_node_agent::helper::Verb::Poweroff {});
    ensure!(
        refused.as_ref().is_err_and(|e| e.contains("--allow")),
        "{refused:?}"
    );
    Ok(())
}
