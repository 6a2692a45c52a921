use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Config, ConfigError, File, HumanDuration, check, parse};
use crate::accel::{self, Accel};
use crate::files::{REGISTRATION_FILE, at, read_text};
use crate::probe::host;

/// Flags and environment: they win over the file. (`clap` has already put flags over environment.)
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    /// `--endpoint`, `VIRTENGINE_NODE_AGENT_ENDPOINT`; several separated by commas.
    pub endpoint: Option<String>,
    /// `--heartbeat-interval`, `VIRTENGINE_NODE_AGENT_HEARTBEAT_INTERVAL`.
    pub heartbeat_interval: Option<HumanDuration>,
    /// `--node-id`, `VIRTENGINE_NODE_AGENT_NODE_ID`.
    pub node_id: Option<String>,
    /// `--hostname`, `VIRTENGINE_NODE_AGENT_HOSTNAME`.
    pub hostname: Option<String>,
    /// `--probe-advertise-address`, `VIRTENGINE_NODE_AGENT_PROBE_ADVERTISE_ADDRESS`.
    pub probe_advertise_address: Option<IpAddr>,
    /// `VIRTENGINE_NODE_AGENT_REGISTRATION_TOKEN`: never a flag, others could read it there.
    pub token: Option<String>,
    /// `VIRTENGINE_NODE_AGENT_LOG_LEVEL`.
    pub log_level: Option<String>,
    /// `NODE_AGENT_QEMU_ACCEL`.
    pub accel: Option<Accel>,
}

impl Overrides {
    /// Fills in what neither a flag nor the agent's own variables set from the names that the runbook of the QEMU node
    /// agent gives them (specification 002): hosts move over with the environment file they have.
    ///
    /// # Errors
    /// `NODE_AGENT_OS_FAMILY` or `NODE_AGENT_QEMU_ACCEL` name what this program does not run on.
    pub fn or_runbook(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let get = |name: &str| variable(name).filter(|v| !v.trim().is_empty());
        self.node_id = self.node_id.or_else(|| get("NODE_AGENT_HOST_ID"));
        self.endpoint = self.endpoint.or_else(|| get("NODE_AGENT_CONTROL_PLANE_URL"));
        self.token = self.token.or_else(|| get("NODE_AGENT_BOOTSTRAP_TOKEN"));
        for (key, good) in [
            ("NODE_AGENT_OS_FAMILY", &[host::os_family()][..]),
            ("NODE_AGENT_QEMU_ACCEL", &["kvm", "tcg"][..]),
        ] {
            if let Some(value) = get(key).filter(|v| !good.contains(&v.as_str())) {
                return Err(ConfigError::Value {
                    key,
                    message: format!(
                        "{value} is not supported by this host; known here: {}",
                        good.join(", ")
                    ),
                });
            }
        }
        self.accel = get("NODE_AGENT_QEMU_ACCEL").and_then(|v| accel::named(&v));
        Ok(self)
    }
}

/// More than any configuration; a wrong path (a device, a log) must not fill memory.
const LIMIT: u64 = 1 << 20;

/// Reads, merges and checks the configuration.
///
/// # Errors
/// Everything that is wrong with it; an absent file too, unless `path` is the default and overrides suffice.
pub fn load(path: &Path, overrides: &Overrides) -> Result<Config, ConfigError> {
    let text = read_text(path, LIMIT).map_err(|e| match e.source.kind() {
        std::io::ErrorKind::NotFound => ConfigError::Missing {
            path: path.display().to_string(),
        },
        _ => e.into(),
    })?;
    let mut file = parse(&text, path)?;
    if file.agent.registration_token.is_some() {
        refuse_exposed("agent.registration_token", path)?;
    }
    apply(&mut file, overrides);
    let (mut unreadable, mut missing) = (None, None);
    if let (None, Some(token_file)) = (
        &file.agent.registration_token,
        &file.agent.registration_token_file,
    ) {
        match read_token_file("agent.registration_token_file", token_file) {
            Ok(None) => missing = Some(token_file.clone()),
            Ok(token) => file.agent.registration_token = token,
            Err(e @ ConfigError::TokenUnreadable { .. }) => unreadable = Some(e),
            Err(e) => return Err(e),
        }
    }
    let mut config = check::resolve(file)?;
    // A node that is registered needs it no more.
    if let Some(e) = unreadable
        && !config.state_dir.join(REGISTRATION_FILE).exists()
    {
        return Err(e);
    }
    config.token_file_missing = missing;
    config.path = Some(path.to_owned());
    config.accel = overrides.accel;
    Ok(config)
}

/// The text of a token file that `key` names; none if it is gone: then it has done its work and the node is registered, or
/// the registration says that it is missing.
///
/// # Errors
/// IO, or everybody may read it.
pub fn read_token_file(key: &'static str, path: &Path) -> Result<Option<String>, ConfigError> {
    let read = refuse_exposed(key, path).and_then(|()| {
        read_text(path, 16 << 10).map_err(|source| ConfigError::TokenUnreadable { key, source })
    });
    match read {
        Ok(text) => Ok(Some(text)),
        // A folder that may not be entered says nothing of what is in it.
        Err(ConfigError::TokenUnreadable { source, .. })
            if source.source.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn refuse_exposed(key: &'static str, path: &Path) -> Result<(), ConfigError> {
    let metadata = std::fs::metadata(path).map_err(at("read", path));
    let mode = metadata
        .map_err(|source| ConfigError::TokenUnreadable { key, source })?
        .mode()
        & 0o7777;
    if mode & 0o004 != 0 {
        return Err(ConfigError::TokenExposed {
            key,
            path: path.display().to_string(),
            mode,
        });
    }
    Ok(())
}

fn apply(file: &mut File, o: &Overrides) {
    let Overrides {
        endpoint,
        heartbeat_interval,
        node_id,
        hostname,
        probe_advertise_address,
        token,
        log_level,
        accel: _,
    } = o.clone();
    if let Some(endpoint) = endpoint {
        file.provider_daemon.endpoint = None;
        file.provider_daemon.endpoints = endpoint.split(',').map(|e| e.trim().to_owned()).collect();
    }
    fn over<T>(slot: &mut Option<T>, value: Option<T>) {
        if value.is_some() {
            *slot = value;
        }
    }
    over(&mut file.sampling.base_interval, heartbeat_interval);
    over(&mut file.node.id, node_id);
    over(&mut file.node.hostname, hostname);
    over(&mut file.probe.advertise_address, probe_advertise_address);
    over(&mut file.agent.registration_token, token);
    over(&mut file.logging.level, log_level);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    fn write(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    const SPECIFICATION: &str = r#"
node:
  id: "node-hpc1-compute-042"
  cluster_id: "hpc-cluster-1"

provider_daemon:
  endpoint: "https://provider.example.com:8443"
  tls:
    ca_cert: "/etc/virtengine/node-agent/ca.crt"
    client_cert: "/etc/virtengine/node-agent/client.crt"
    client_key: "/etc/virtengine/node-agent/client.key"

agent:
  key_path: "/etc/virtengine/node-agent/keys/agent.key"
  registration_token: "eyJhbGciOiJFZDI1NTE5..."

sampling:
  base_interval: "30s"
  utilization_interval: "15s"
  latency_interval: "5m"

logging:
  level: "info"
  file: "/var/log/virtengine/node-agent.log"
  max_size_mb: 100
  max_backups: 5
"#;

    #[test]
    fn the_specifications_file_is_accepted_as_it_stands() {
        let (_dir, path) = write(SPECIFICATION, 0o640);
        let c = load(&path, &Overrides::default()).unwrap();
        assert_eq!(c.node_id.unwrap().as_str(), "node-hpc1-compute-042");
        assert_eq!(c.endpoints[0].to_string(), "https://provider.example.com:8443");
        assert_eq!(c.state_dir, Path::new("/var/lib/virtengine/node-agent"));
        assert_eq!(
            c.sampling.interval(crate::sample::Category::Latency),
            Duration::from_secs(300)
        );
        assert_eq!(c.logging.max_size, 100 << 20);
        assert!(!format!("{:?}", c.token).contains("eyJ"));
    }

    #[test]
    fn a_world_readable_file_with_a_token_is_refused() {
        let (_dir, path) = write(SPECIFICATION, 0o644);
        let e = load(&path, &Overrides::default()).unwrap_err().to_string();
        assert!(e.starts_with("agent.registration_token: "), "{e}");
        assert!(e.contains("world-readable") && e.contains("chmod 640"), "{e}");
        let without: String = SPECIFICATION
            .lines()
            .filter(|l| !l.contains("registration_token"))
            .map(|l| format!("{l}\n"))
            .collect();
        let (_dir, path) = write(&without, 0o644);
        load(&path, &Overrides::default()).unwrap();
    }

    #[test]
    fn a_token_file_is_read_unless_it_is_exposed_or_gone() {
        let (dir, path) = write("", 0o644);
        let token = dir.path().join("token");
        let text = format!(
            "provider_daemon: {{endpoint: 'https://a:1'}}\nagent: {{registration_token_file: {}}}",
            token.display()
        );
        fs::write(&path, text).unwrap();
        let c = load(&path, &Overrides::default()).unwrap();
        assert_eq!((c.token, c.token_file_missing.as_ref()), (None, Some(&token)));
        let given = Overrides {
            token: Some("x.y.z".into()),
            ..Overrides::default()
        };
        assert_eq!(load(&path, &given).unwrap().token_file_missing, None);
        fs::write(&token, "a.b.c\n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let c = load(&path, &Overrides::default()).unwrap();
        assert_eq!((c.token.unwrap().secret(), c.token_file_missing), ("a.b.c", None));
        fs::set_permissions(&token, fs::Permissions::from_mode(0o604)).unwrap();
        assert!(matches!(
            load(&path, &Overrides::default()),
            Err(ConfigError::TokenExposed { .. })
        ));
    }

    #[test]
    fn a_token_file_that_cannot_be_reached_is_no_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        let read = |path: &Path| read_token_file("agent.registration_token_file", path);
        assert_eq!(read(&dir.path().join("gone/token")).unwrap(), None);
        // As root any folder may be entered; a file is none for anybody.
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let e = read(&file.join("token")).unwrap_err().to_string();
        assert!(
            e.starts_with("agent.registration_token_file: read ") && e.contains("enter its folders"),
            "{e}"
        );
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let found = read(&closed.join("token"));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        match found {
            Ok(token) => assert!(rustix::process::geteuid().is_root() && token.is_none()),
            Err(e) => assert!(e.to_string().contains("enter its folders"), "{e}"),
        }
    }

    #[test]
    fn the_runbooks_variables_fill_in_what_nothing_else_sets() {
        let variable = |name: &str| {
            let value = match name {
                "NODE_AGENT_HOST_ID" => "node-0007",
                "NODE_AGENT_BOOTSTRAP_TOKEN" => "x.y.z",
                "NODE_AGENT_CONTROL_PLANE_URL" => "https://cp:1",
                "NODE_AGENT_OS_FAMILY" => "linux",
                "NODE_AGENT_QEMU_ACCEL" => " ",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let own = Overrides {
            endpoint: Some("https://own:1".into()),
            ..Overrides::default()
        };
        let o = own.clone().or_runbook(variable).unwrap();
        assert_eq!(
            (o.endpoint.as_deref(), o.node_id.as_deref(), o.token.as_deref()),
            (Some("https://own:1"), Some("node-0007"), Some("x.y.z"))
        );
        for (key, bad) in [
            ("NODE_AGENT_OS_FAMILY", "dragonflybsd"),
            ("NODE_AGENT_QEMU_ACCEL", "nvmm"),
        ] {
            let e = own
                .clone()
                .or_runbook(|name| (name == key).then(|| bad.to_owned()))
                .unwrap_err()
                .to_string();
            assert!(
                e.starts_with(key) && e.contains(bad) && e.contains("known here"),
                "{e}"
            );
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let (_dir, path) = write(SPECIFICATION, 0o600);
        let o = Overrides {
            endpoint: Some("https://a:1, https://b:2".into()),
            heartbeat_interval: Some("10s".parse().unwrap()),
            node_id: Some("node-9999".into()),
            hostname: Some("h9".into()),
            probe_advertise_address: Some("198.51.100.7".parse().unwrap()),
            token: Some("x.y.z".into()),
            log_level: Some("debug".into()),
            accel: None,
        };
        let c = load(&path, &o).unwrap();
        assert_eq!(
            c.endpoints.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["https://a:1", "https://b:2"]
        );
        assert_eq!(c.sampling.base_interval, Duration::from_secs(10));
        assert_eq!(
            (c.node_id.unwrap().as_str(), c.hostname.as_deref()),
            ("node-9999", Some("h9"))
        );
        assert_eq!(c.responder.advertised, Some("198.51.100.7".parse().unwrap()));
        assert_eq!(
            (c.token.unwrap().secret(), c.logging.level),
            ("x.y.z", tracing::Level::DEBUG)
        );
    }
}
