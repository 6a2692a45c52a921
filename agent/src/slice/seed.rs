//! What cloud-init reads at the first start of a slice's machine.

use hpc_schema::task::{DriverStrategy, PackageName, SliceVmProvision};
use serde_json::{Map, Value, json};

use super::keys::SshKey;

/// What the guest makes when all is set up (specification 003).
pub const READY_FILE: &str = "/var/lib/gpuaas/slice-ready";

/// What goes into the seed beside the parameters.
#[derive(Debug, Clone, Copy)]
pub struct Seed<'a> {
    /// The machine's mark.
    pub uuid: &'a str,
    /// By which this host's terminal logs in.
    pub terminal: &'a SshKey,
    /// By which the machine is known: nobody can stand in its place.
    pub machine: &'a SshKey,
    /// What a GPU's driver consists of.
    pub driver: &'a [PackageName],
}

/// JSON is YAML.
#[must_use]
pub fn user_data(p: &SliceVmProvision, seed: Seed<'_>) -> String {
    let mut keys: Vec<String> = p.ssh_public_keys.iter().map(ToString::to_string).collect();
    keys.push(seed.terminal.public.clone());
    let user = json!({
        "name": p.default_username, "lock_passwd": true, "shell": "/bin/bash",
        "sudo": "ALL=(ALL) NOPASSWD:ALL", "ssh_authorized_keys": keys,
    });
    let mut all = Map::new();
    all.insert("users".to_owned(), json!([user]));
    all.insert("ssh_pwauth".to_owned(), false.into());
    all.insert("disable_root".to_owned(), true.into());
    all.insert("ssh_deletekeys".to_owned(), true.into());
    let host = json!({ "ed25519_private": seed.machine.secret, "ed25519_public": seed.machine.public });
    all.insert("ssh_keys".to_owned(), host);
    if p.driver_strategy == DriverStrategy::CloudInit && !seed.driver.is_empty() {
        all.insert("package_update".to_owned(), true.into());
        all.insert("packages".to_owned(), json!(seed.driver));
    }
    let folder = READY_FILE.rsplit_once('/').map_or("/", |(folder, _)| folder);
    let done = json!([["mkdir", "-p", folder], ["touch", READY_FILE]]);
    all.insert("runcmd".to_owned(), done);
    format!("#cloud-config\n{}\n", Value::Object(all))
}

/// The other document.
#[must_use]
pub fn meta_data(p: &SliceVmProvision, uuid: &str) -> String {
    format!(
        "{}\n",
        json!({ "instance-id": uuid, "local-hostname": p.vm_name })
    )
}
