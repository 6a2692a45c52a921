//! What cloud-init reads at the first start: a NoCloud seed, an ISO 9660 image labelled `cidata`.

use std::path::Path;

use hpc_schema::task::VmLaunch;
use serde_json::{Map, Value, json};

/// Both documents: user-data and meta-data. JSON is YAML.
#[must_use]
pub fn documents(parameters: &VmLaunch, uuid: &str) -> (String, String) {
    let user = match &parameters.user_data {
        Some(text) => text.clone(),
        None => format!("#cloud-config\n{}\n", Value::Object(cloud_config(parameters))),
    };
    let meta = json!({ "instance-id": uuid, "local-hostname": parameters.vm_id.as_str() });
    (user, format!("{meta}\n"))
}

fn cloud_config(parameters: &VmLaunch) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("ssh_pwauth".to_owned(), false.into());
    all.insert("disable_root".to_owned(), true.into());
    let keys = json!(parameters.ssh_public_keys);
    if let Some(name) = &parameters.default_username {
        let user = json!({
            "name": name, "lock_passwd": true, "shell": "/bin/bash", "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "ssh_authorized_keys": keys,
        });
        all.insert("users".to_owned(), json!([user]));
    } else if !parameters.ssh_public_keys.is_empty() {
        all.insert("ssh_authorized_keys".to_owned(), keys);
    }
    all
}

/// Arguments of the program that writes the seed from both documents in `folder`; `{}` stands for the file to write.
#[must_use]
pub fn writer(iso: &Path, folder: &Path) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    if iso.file_name().is_some_and(|n| n == "xorriso") {
        all.extend(["-as", "mkisofs"].map(str::to_owned));
    }
    all.extend(["-quiet", "-volid", "cidata", "-joliet", "-rock", "-output", "{}"].map(str::to_owned));
    all.extend(["user-data", "meta-data"].map(|name| folder.join(name).display().to_string()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(change: &Value) -> VmLaunch {
        let mut all = json!({
            "vm_id": "vm-1", "image_path": "/i/a", "image_sha256": "0".repeat(64), "image_format": "raw",
            "vcpu_count": 1, "memory_mib": 256, "lease_seconds": 60
        });
        for (key, value) in change.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn keys_and_user_stand_in_the_seed_and_no_text_leaves_its_string() {
        let key = format!("ssh-ed25519 {} a@b", "A".repeat(68));
        let p = parameters(&json!({"default_username": "ubuntu", "ssh_public_keys": [key]}));
        let (user, meta) = documents(&p, "u-u-i-d");
        let yaml: Value = serde_yaml_ng::from_str(&user).unwrap();
        assert!(user.starts_with("#cloud-config\n"));
        assert_eq!(yaml["users"][0]["ssh_authorized_keys"][0], key);
        assert_eq!(yaml["users"][0]["name"], "ubuntu");
        let meta: Value = serde_yaml_ng::from_str(&meta).unwrap();
        assert_eq!(
            (meta["instance-id"].as_str(), meta["local-hostname"].as_str()),
            (Some("u-u-i-d"), Some("vm-1"))
        );
        let own = parameters(&json!({"user_data": "#!/bin/sh\ntrue\n"}));
        assert_eq!(documents(&own, "u").0, "#!/bin/sh\ntrue\n");
        let none: Value = serde_yaml_ng::from_str(&documents(&parameters(&json!({})), "u").0).unwrap();
        assert!(none.get("users").is_none() && none["ssh_pwauth"] == false);
    }
}
