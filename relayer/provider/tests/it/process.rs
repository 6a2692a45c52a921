//! The daemon as a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hpc_schema::gateway::{HeartbeatResponseBody, heartbeat_path};
use reqwest::Client;
use serde_json::Value;
use virtengine_provider::clock;

use crate::agent::Agent;
use crate::site::Site;

/// The daemon as a process of its own.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) port: u16,
    pub(crate) ops: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Process {
    pub(crate) fn start(site: &Site, fault: Option<&str>) -> Self {
        Self::start_with(site, fault, &[])
    }

    /// With further variables of the environment.
    pub(crate) fn start_with(site: &Site, fault: Option<&str>, env: &[(&str, &str)]) -> Self {
        Self::start_at(&site.home(), site, fault, env)
    }

    /// On another directory than the site's.
    pub(crate) fn start_at(home: &Path, site: &Site, fault: Option<&str>, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_virtengine-provider"));
        command.arg("run").arg("--home").arg(home).envs(site.env());
        command
            .env("VIRTENGINE_PROVIDER__LOG__FORMAT", "json")
            .stderr(Stdio::piped());
        command.envs(env.iter().copied());
        if let Some(step) = fault {
            command.env("VIRTENGINE_FAULT", step);
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (port, ops) = loop {
            let line = lines.next().expect("the daemon ended before it was up").unwrap();
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            if let Some(addr) = value["gateway"].as_str() {
                let port = addr.rsplit(':').next().unwrap().parse().unwrap();
                break (port, value["ops"].as_str().unwrap().to_owned());
            }
        };
        // The rest must be read, or the daemon would block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port, ops }
    }

    /// SIGHUP, as a service manager reloads it.
    pub(crate) fn hang_up(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    pub(crate) async fn ready(&self) -> String {
        let url = format!("http://{}/readyz", self.ops);
        reqwest::get(url).await.unwrap().text().await.unwrap()
    }

    pub(crate) fn is_dead(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

/// Sends a heartbeat; whether its acceptance was answered.
pub(crate) async fn beat(agent: &Agent, client: &Client, port: u16, sequence: u32) -> bool {
    let url = format!(
        "https://localhost:{port}{}",
        heartbeat_path(&agent.node.parse().unwrap())
    );
    let body = agent.heartbeat_text(sequence, clock::now_ms());
    let answer = async {
        let text = client.post(url).body(body).send().await?.text().await?;
        Ok::<_, reqwest::Error>(text)
    };
    let text = match answer.await {
        Ok(text) => text,
        Err(e) => {
            // Shown where the test that asked fails.
            println!("no answer to {} of {}: {e:?}", sequence, agent.node);
            return false;
        }
    };
    let accepted = serde_json::from_str(&text).is_ok_and(|b: HeartbeatResponseBody| b.response.accepted);
    if !accepted {
        println!("{} of {} is not accepted: {text}", sequence, agent.node);
    }
    accepted
}
