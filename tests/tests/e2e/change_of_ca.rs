//! The gateway's CA changes as docs/provider.md says, step by step, while an agent runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hpc_tests::outcome::Outcome;
use hpc_tests::site::Site;
use hpc_tests::{process, program, scene, wait};
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";
/// Of a certificate; it is renewed at two thirds.
const LIFETIME: &str = "30s";
/// Longest wait for two renewals.
const RENEWED: Duration = Duration::from_secs(120);

fn json(file: &str) -> Result<Value> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

#[test]
fn the_gateways_ca_changes_while_an_agent_runs_and_no_node_registers_again() -> Result<()> {
    scene::run("change-of-ca", |scene, kind| {
        let mut site = Site::prepare(scene, kind)?;
        site.set("GATEWAY__CERTIFICATE_LIFETIME", LIFETIME);
        site.activate()?;
        site.start_provider()?;
        let agent = site.agent(scene, NODE)?;
        let mut running = agent.start()?;
        site.wait_state(NODE, "active")?;
        let before = site.node(NODE)?;

        let trusted = || -> Result<Vec<Value>> {
            let registration = json(&agent.path("state/registration.json"))?;
            let trusted = registration.get("trusted").and_then(Value::as_array);
            Ok(trusted.context("no CA is trusted")?.clone())
        };
        let renewed = |what: &str| -> Result<()> {
            let file = agent.path("state/tls/client.pem");
            let former = fs::read(&file)?;
            wait::until(what, RENEWED, || Ok((fs::read(&file)? != former).then_some(())))
        };
        let reload = || site.provider_run(&["reload"]).map(drop);
        let old = trusted()?;
        ensure!(old.len() == 1, "{old:?}");

        // 1 and 2: the next CA counts beside the gateway's own, and the node has renewed.
        let next = scene.path("next");
        let mut init = Command::new(program::path("virtengine-provider")?);
        process::output(init.arg("init").arg("--home").arg(&next))?;
        let home = site.home();
        fs::create_dir_all(home.join("ca/trusted"))?;
        let copy = |from: &Path, file: &str| fs::copy(from, home.join(file)).map(drop);
        copy(&next.join("ca/ca.crt"), "ca/trusted/next.crt")?;
        reload()?;
        let both = wait::until("the next CA to be trusted", RENEWED, || {
            Ok(Some(trusted()?).filter(|t| t.len() == 2))
        })?;
        ensure!(both.starts_with(&old), "{both:?}");

        // 3: the gateway is the next CA's itself, and issues by it.
        copy(&home.join("ca/ca.crt"), "ca/trusted/previous.crt")?;
        for file in [
            "ca/ca.crt",
            "ca/ca.key",
            "gateway/server.crt",
            "gateway/server.key",
        ] {
            copy(&next.join(file), file)?;
        }
        fs::remove_file(home.join("ca/trusted/next.crt"))?;
        reload()?;
        wait::until("a certificate of the next CA", RENEWED, || {
            Ok((trusted()?.first() == both.last()).then_some(()))
        })?;
        renewed("one more")?;

        // 4: the former one goes.
        fs::remove_file(home.join("ca/trusted/previous.crt"))?;
        reload()?;
        wait::until("the former CA to be trusted no more", RENEWED, || {
            let now = trusted()?;
            Ok((both.get(1..) == Some(now.as_slice())).then_some(()))
        })?;

        // All the while the same registration, and no outage.
        site.wait_sequence(NODE, site.sequence(NODE)?.saturating_add(1))?;
        running.check_alive()?;
        let after = site.node(NODE)?;
        ensure!(before.get("epoch").is_some(), "no epoch: {before}");
        ensure!(before.get("epoch") == after.get("epoch"), "{before}\n{after}");
        let config = agent.path("config.yaml");
        let status = agent.run_whatever(&["status", "--config", &config, "-o", "json"])?;
        let status: Value = serde_json::from_str(&status)?;
        ensure!(
            status.get("outages") == Some(&Value::Array(Vec::new())),
            "{status}"
        );
        let mut outcome = Outcome::new(kind, "change-of-ca");
        outcome.set("state after the change", site.state(NODE)?);
        ensure!(running.stop(Duration::from_secs(20))?.success());
        outcome.save()
    })
}
