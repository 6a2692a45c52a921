//! A machine is known again by its TPM: real agents with software TPMs, the gateway, its pin. Gone wrong in each way.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use hpc_tests::agent::Agent;
use hpc_tests::process;
use hpc_tests::scene;
use hpc_tests::site::{CLUSTER, Site};
use serde_json::{Value, json};

const NODE: &str = "node-hpc1-compute-042";

/// A software TPM; ends with the test.
struct Tpm {
    child: Child,
    tcti: String,
}

impl Tpm {
    /// tpm2-tools expect the control port right above the other.
    fn start(state: &Path) -> Result<Self> {
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut child = Command::new("swtpm")
                .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
                .arg("--tpmstate")
                .arg(format!("dir={}", state.display()))
                .arg("--server")
                .arg(format!("type=tcp,port={port}"))
                .arg("--ctrl")
                .arg(format!("type=tcp,port={}", port.saturating_add(1)))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .context("apt-get install swtpm tpm2-tools")?;
            // It ends at once where a port is taken, and takes one connection at a time.
            let tcti = format!("swtpm:host=127.0.0.1,port={port}");
            for _ in 0..100 {
                std::thread::sleep(Duration::from_millis(100));
                if child.try_wait()?.is_some() {
                    break;
                }
                let mut asks = Command::new("tpm2_pcrread");
                asks.arg("sha256:0").env("TPM2TOOLS_TCTI", &tcti);
                if process::output(&mut asks).is_ok() {
                    return Ok(Self { child, tcti });
                }
            }
            child.kill().ok();
            child.wait().ok();
        }
        bail!("swtpm does not start")
    }

    fn extend(&self, pcr: u8) -> Result<()> {
        let mut command = Command::new("tpm2_pcrextend");
        command
            .arg(format!("{pcr}:sha256={}", "ab".repeat(32)))
            .env("TPM2TOOLS_TCTI", &self.tcti);
        process::output(&mut command).map(drop)
    }
}

impl Drop for Tpm {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A fresh key, sealed by this TPM, in the agent's folder; the state of before is gone with the machine.
fn keygen(agent: &Agent, tpm: &Tpm) -> Result<String> {
    let keys = agent.path("keys");
    let seal = ["--force", "--store", "tpm", "--tpm-tcti", &tpm.tcti];
    agent.run(&[&["keygen", "--output-dir", &keys][..], &seal].concat())?;
    for gone in ["state", "client.crt", "client.key", "ca.crt"] {
        let path = agent.path(gone);
        fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).ok();
    }
    Ok(fs::read_to_string(agent.path("keys/agent.pub"))?
        .trim()
        .to_owned())
}

/// A token that asks for this attestation key, in the agent's file.
fn token(site: &Site, agent: &Agent, public: &str, attestation: Option<&str>) -> Result<()> {
    let mut arguments = vec![
        "node-token",
        "create",
        "--cluster-id",
        CLUSTER,
        "--node-id",
        NODE,
        "--pubkey",
        public,
    ];
    if let Some(key) = attestation {
        arguments.extend(["--attestation-key", key]);
    }
    agent.write_token("token", site.provider_run(&arguments)?.trim())
}

fn register(agent: &Agent) -> Result<String> {
    agent.run(&[
        "register",
        "--config",
        &agent.path("config.yaml"),
        "--wait",
        "60s",
    ])
}

/// The code that it is refused with.
fn refused(agent: &Agent, code: &str, word: &str) -> Result<()> {
    let Err(e) = register(agent) else {
        bail!("it is registered")
    };
    let said = format!("{e:#}");
    ensure!(said.contains(code) && said.contains(word), "{said}");
    Ok(())
}

/// What `node show` has of the TPM.
fn pinned(site: &Site) -> Result<Value> {
    let shown: Value =
        serde_json::from_str(&site.provider_run(&["node", "show", NODE, "--output", "json"])?)?;
    Ok(shown.get("attestation").cloned().unwrap_or(Value::Null))
}

/// So that the chain would take anybody.
fn deregister(site: &Site) -> Result<()> {
    site.cli
        .run(&["tx", "hpc", "deregister-node", NODE, "--from", "owner", "--yes"])?;
    site.wait_state(NODE, "deregistered")
}

fn quotes(agent: &Agent, quote: bool) -> Result<()> {
    let path = agent.path("config.yaml");
    let text = fs::read_to_string(&path)?.replace("  tpm: {quote: true}\n", "");
    let text = match quote {
        true => text.replace("agent:\n", "agent:\n  tpm: {quote: true}\n"),
        false => text,
    };
    Ok(fs::write(path, text)?)
}

#[test]
fn a_node_is_known_again_by_its_tpm_and_another_machine_does_not_take_its_place() -> Result<()> {
    scene::run("attestation", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let (one, two) = (
            Tpm::start(&scene.folder("tpm-1")?)?,
            Tpm::start(&scene.folder("tpm-2")?)?,
        );
        one.extend(0)?;
        let agent = site.agent_with(scene, NODE, "none")?;
        quotes(&agent, true)?;
        // A key that lies in a file has no TPM to speak for it.
        let public = fs::read_to_string(agent.path("keys/agent.pub"))?;
        token(&site, &agent, public.trim(), None)?;
        refused(&agent, "agent.tpm.quote", "key migrate --store tpm")?;

        // Registered, reporting, and known.
        let public = keygen(&agent, &one)?;
        token(&site, &agent, &public, None)?;
        register(&agent)?;
        let key = |agent: &Agent| -> Result<String> {
            let said = agent.run(&[
                "key",
                "show",
                "--key",
                &agent.path("keys/agent.key"),
                "--attestation",
            ])?;
            Ok(said.trim().to_owned())
        };
        let first = key(&agent)?;
        let shown = pinned(&site)?;
        ensure!(shown.get("key") == Some(&json!(first)), "{first}: {shown}");
        let registers = shown.get("pcrs").and_then(Value::as_array).context("no PCRs")?;
        let zero = json!("00".repeat(32));
        ensure!(registers.len() == 8, "{shown}");
        ensure!(
            registers
                .iter()
                .filter(|p| p.get("sha256") == Some(&zero))
                .count()
                == 7,
            "{shown}"
        );
        let mut running = agent.start()?;
        site.wait_state(NODE, "active")?;
        ensure!(running.stop(Duration::from_secs(20))?.success());

        // The gateway takes this machine alone.
        deregister(&site)?;
        let public = keygen(&agent, &two)?;
        token(&site, &agent, &public, None)?;
        refused(&agent, "key_mismatch", "another TPM")?;
        quotes(&agent, false)?;
        refused(&agent, "key_mismatch", "no quote")?;
        quotes(&agent, true)?;
        // One that the operator names, and it is not this one.
        token(&site, &agent, &public, Some(&first))?;
        refused(&agent, "key_mismatch", "another TPM")?;
        ensure!(pinned(&site)? == shown, "a refusal changes nothing");
        // The machine was replaced, and the operator says so.
        token(&site, &agent, &public, Some("new"))?;
        register(&agent)?;
        let second = key(&agent)?;
        ensure!(second != first);
        ensure!(pinned(&site)?.get("key") == Some(&json!(second)));

        // The same machine with other firmware: it is let in, and the registers are those of now.
        two.extend(3)?;
        deregister(&site)?;
        let public = keygen(&agent, &two)?;
        token(&site, &agent, &public, Some(&second))?;
        register(&agent)?;
        let now = pinned(&site)?;
        let registers = now.get("pcrs").and_then(Value::as_array).context("no PCRs")?;
        let other = registers.iter().find(|p| p.get("sha256") != Some(&zero));
        ensure!(other.and_then(|p| p.get("index")) == Some(&json!(3)), "{now}");
        Ok(())
    })
}
