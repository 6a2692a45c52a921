use std::path::PathBuf;
use std::time::Duration;

use hpc_schema::heartbeat::Label;
use hpc_schema::sampling::SamplingConfig as Specified;

use super::bounds::{number, refuse, within};
use super::file::{Logging, RootPaths, Sampling};
use super::{
    Config, ConfigError, DEFAULT_KEY_PATH, DEFAULT_STATE_DIR, Endpoint, File, LoggingConfig, SamplingConfig,
    TlsPaths, Token,
};
use crate::probe::Roots;
use crate::sample::{Category, max_staleness, minimum, recommended};

const MIB: u64 = 1 << 20;

/// Checks every value and fills in the defaults.
///
/// # Errors
/// The first value that cannot be, with its key.
pub fn resolve(file: File) -> Result<Config, ConfigError> {
    let File {
        node,
        provider_daemon,
        agent,
        slurm,
        gpu,
        probe,
        commands,
        update,
        health,
        api,
        tasks,
        sampling,
        logging,
    } = file;
    let endpoints = endpoints(provider_daemon.endpoint, provider_daemon.endpoints)?;
    let state_dir = absolute("agent.state_dir", agent.state_dir, DEFAULT_STATE_DIR)?;
    let in_tls = |name: &str| state_dir.join("tls").join(name);
    let tls = TlsPaths {
        ca_cert: provider_daemon.tls.ca_cert.unwrap_or_else(|| in_tls("ca.crt")),
        client_cert: provider_daemon
            .tls
            .client_cert
            .unwrap_or_else(|| in_tls("client.crt")),
        client_key: provider_daemon
            .tls
            .client_key
            .unwrap_or_else(|| in_tls("client.key")),
    };
    if let Some(hostname) = &node.hostname {
        // It is registered on chain: printable, bounded.
        hostname
            .parse::<Label<253>>()
            .map_err(|e| refuse("node.hostname", e))?;
    }
    Ok(Config {
        path: None,
        node_id: node
            .id
            .map(|s| s.parse())
            .transpose()
            .map_err(|e| refuse("node.id", e))?,
        cluster_id: node
            .cluster_id
            .map(|s| s.parse())
            .transpose()
            .map_err(|e| refuse("node.cluster_id", e))?,
        hostname: node.hostname,
        endpoints,
        request_timeout: within(
            "provider_daemon.request_timeout",
            provider_daemon.request_timeout,
            Duration::from_secs(10),
            Duration::from_secs(1),
            Duration::from_secs(60),
        )?,
        tls,
        key_path: absolute("agent.key_path", agent.key_path, DEFAULT_KEY_PATH)?,
        token: agent.registration_token.map(|t| Token::new(&t)),
        token_file_missing: None,
        storage_path: absolute("agent.storage_path", agent.storage_path, "/")?,
        reserve: agent.reserve,
        quote: super::tpm::resolve(agent.tpm)?,
        roots: roots(agent.roots),
        slurm: super::sources::slurm(slurm, &state_dir)?,
        gpu: super::sources::gpu(gpu)?,
        responder: super::probe::resolve(&probe)?,
        commands: super::commands::resolve(commands)?,
        update: super::update::resolve(update)?,
        policy: super::health::policy(&health)?,
        checks: super::health::resolve(health)?,
        api: super::api::resolve(api)?,
        accel: None,
        tasks: super::tasks::resolve(tasks)?,
        sampling: resolve_sampling(&sampling)?,
        logging: resolve_logging(logging)?,
        state_dir,
    })
}

fn endpoints(one: Option<String>, many: Vec<String>) -> Result<Vec<Endpoint>, ConfigError> {
    let (key, texts) = match (one, many) {
        (Some(_), m) if !m.is_empty() => {
            return Err(refuse(
                "provider_daemon.endpoints",
                "set endpoint or endpoints, not both",
            ));
        }
        (Some(one), _) => ("provider_daemon.endpoint", vec![one]),
        (None, many) => ("provider_daemon.endpoints", many),
    };
    if texts.is_empty() {
        return Err(refuse(
            "provider_daemon.endpoint",
            "is required, such as https://provider.example.com:8443",
        ));
    }
    texts
        .iter()
        .map(|t| endpoint(t).ok_or_else(|| refuse(key, explain(t))))
        .collect()
}

fn explain(text: &str) -> String {
    format!("must be https://host:port with nothing behind it, is {text:?}")
}

fn endpoint(text: &str) -> Option<Endpoint> {
    let rest = text.trim().strip_prefix("https://")?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, tail) = v6.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (
                host,
                if tail.is_empty() {
                    None
                } else {
                    Some(tail.strip_prefix(':')?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Some(8443), |p| p.parse().ok().filter(|p| *p > 0))?;
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    (!host.is_empty() && host.chars().all(good)).then(|| Endpoint {
        host: host.to_owned(),
        port,
    })
}

fn absolute(key: &'static str, path: Option<PathBuf>, default: &str) -> Result<PathBuf, ConfigError> {
    let path = path.unwrap_or_else(|| default.into());
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(refuse(key, "must be an absolute path"))
    }
}

fn roots(paths: RootPaths) -> Roots {
    let Roots { proc, sys, dev, etc } = Roots::default();
    Roots {
        proc: paths.proc.unwrap_or(proc),
        sys: paths.sys.unwrap_or(sys),
        dev: paths.dev.unwrap_or(dev),
        etc: paths.etc.unwrap_or(etc),
    }
}

fn resolve_sampling(s: &Sampling) -> Result<SamplingConfig, ConfigError> {
    let mut out = SamplingConfig::default();
    out.base_interval = within(
        "sampling.base_interval",
        s.base_interval,
        out.base_interval,
        Duration::from_secs(10),
        Duration::from_secs(120),
    )?;
    for (category, key, value) in [
        (
            Category::Capacity,
            "sampling.capacity_interval",
            s.capacity_interval,
        ),
        (
            Category::HealthStatus,
            "sampling.health_interval",
            s.health_interval,
        ),
        (
            Category::Utilization,
            "sampling.utilization_interval",
            s.utilization_interval,
        ),
        (Category::Gpu, "sampling.gpu_interval", s.gpu_interval),
        (Category::Latency, "sampling.latency_interval", s.latency_interval),
        (Category::JobCounts, "sampling.jobs_interval", s.jobs_interval),
        (
            Category::Temperature,
            "sampling.temperature_interval",
            s.temperature_interval,
        ),
    ] {
        let interval = within(
            key,
            value,
            recommended(category),
            minimum(category),
            max_staleness(category),
        )?;
        out.set_interval(category, interval);
    }
    let ms = Duration::from_millis;
    out.latency_probe_count = number("sampling.latency_probe_count", s.latency_probe_count, 3, 1, 16)?;
    out.latency_probe_timeout = within(
        "sampling.latency_probe_timeout",
        s.latency_probe_timeout,
        ms(1000),
        ms(10),
        ms(10_000),
    )?;
    out.metrics_buffer_size = number(
        "sampling.metrics_buffer_size",
        s.metrics_buffer_size,
        100,
        1,
        10_000,
    )?;
    let hours = |h: u64| Duration::from_secs(h.saturating_mul(3600));
    out.metrics_retention = within(
        "sampling.metrics_retention",
        s.metrics_retention,
        hours(24),
        hours(1),
        hours(720),
    )?;
    // Of the gateway: nothing here goes by them, and a wrong one is told all the same.
    let seconds = |n: u32| Duration::from_secs(u64::from(n));
    let (least, most) = Specified::BATCH_SUBMIT_INTERVAL_SECONDS;
    within(
        "sampling.batch_submit_interval",
        s.batch_submit_interval,
        seconds(least),
        seconds(least),
        seconds(most),
    )?;
    let (least, most) = Specified::BATCH_MAX_SIZE;
    number("sampling.batch_max_size", s.batch_max_size, least, least, most)?;
    Ok(out)
}

fn resolve_logging(l: Logging) -> Result<LoggingConfig, ConfigError> {
    let default = LoggingConfig::default();
    let level = match l.level {
        Some(word) => word.parse().map_err(|_| {
            refuse(
                "logging.level",
                format_args!("must be error, warn, info, debug or trace, is {word:?}"),
            )
        })?,
        None => default.level,
    };
    let megabytes = number("logging.max_size_mb", l.max_size_mb, 100, 1, 10_240)?;
    Ok(LoggingConfig {
        level,
        file: l.file,
        max_size: u64::from(megabytes).saturating_mul(MIB),
        max_backups: number("logging.max_backups", l.max_backups, 5, 0, 100)?,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::parse;

    fn check(yaml: &str) -> Result<Config, ConfigError> {
        resolve(parse(yaml, Path::new("config.yaml"))?)
    }

    fn with(lines: &str) -> String {
        let c = check(&format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{lines}"));
        c.map_or_else(|e| e.to_string(), |_| "accepted".to_owned())
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest_known_one() {
        let e =
            with("nod: {id: abcd}\nsampling: {base_intervall: 30s, banana: 1}\nagent: {roots: {prok: /p}}");
        assert!(e.contains("nod (did you mean node?)"), "{e}");
        assert!(
            e.contains("sampling.base_intervall (did you mean base_interval?)"),
            "{e}"
        );
        assert!(
            e.contains("sampling.banana (known here: base_interval, batch_max_size"),
            "{e}"
        );
        assert!(e.contains("agent.roots.prok (did you mean proc?)"), "{e}");
    }

    #[test]
    fn intervals_below_the_minimum_are_refused_with_their_key() {
        for (key, low, high) in [
            ("base_interval", "9s", "121s"),
            ("capacity_interval", "9s", "61s"),
            ("health_interval", "9999ms", "2m"),
            ("utilization_interval", "4s", "31s"),
            ("gpu_interval", "4s", "31s"),
            ("latency_interval", "59s", "601s"),
            ("jobs_interval", "29s", "121s"),
            ("temperature_interval", "29s", "301s"),
            ("batch_submit_interval", "999ms", "301s"),
        ] {
            let e = with(&format!("sampling: {{{key}: {low}}}"));
            assert!(
                e.starts_with(&format!("sampling.{key}: ")) && e.contains("below the minimum"),
                "{e}"
            );
            let e = with(&format!("sampling: {{{key}: {high}}}"));
            assert!(e.contains("above the maximum"), "{e}");
        }
        assert_eq!(
            with("sampling: {base_interval: 10s, utilization_interval: 5s, latency_interval: 1m}"),
            "accepted"
        );
        for good in [1, 50, 1024] {
            let lines = format!("sampling: {{batch_submit_interval: 60s, batch_max_size: {good}}}");
            assert_eq!(with(&lines), "accepted");
        }
        for bad in [0, 1025] {
            assert_eq!(
                with(&format!("sampling: {{batch_max_size: {bad}}}")),
                format!("sampling.batch_max_size: must be 1 to 1024, is {bad}")
            );
        }
    }

    #[test]
    fn every_wrong_value_names_its_key() {
        for (lines, key) in [
            ("node: {id: a}", "node.id"),
            ("node: {cluster_id: '-abcd'}", "node.cluster_id"),
            ("node: {hostname: 'a\"b'}", "node.hostname"),
            ("agent: {state_dir: var/lib}", "agent.state_dir"),
            ("agent: {key_path: agent.key}", "agent.key_path"),
            ("logging: {level: loud}", "logging.level"),
            ("logging: {max_size_mb: 0}", "logging.max_size_mb"),
            (
                "sampling: {latency_probe_count: 0}",
                "sampling.latency_probe_count",
            ),
            ("sampling: {base_interval: 30}", "sampling.base_interval"),
            ("sampling: {gpu_interval: fast}", "sampling.gpu_interval"),
            ("sampling: [1]", "sampling: must be a section"),
            ("agent: {reserve: {cpu_cores: -1}}", "agent.reserve.cpu_cores"),
            ("agent: {reserve: {cpu_cores: many}}", "agent.reserve.cpu_cores"),
            ("agent: {tpm: {quote: true, pcrs: []}}", "agent.tpm.pcrs"),
            ("agent: {tpm: {quote: true, pcrs: [24]}}", "agent.tpm.pcrs"),
            ("node: {id: [1]}", "node.id: must be text"),
            ("logging: {max_backups: 1.5}", "logging.max_backups"),
        ] {
            let e = with(lines);
            assert!(e.contains(key), "{lines}: {e}");
        }
    }

    #[test]
    fn endpoints_are_https_with_host_and_port() {
        let show = |t| endpoint(t).map(|e| e.to_string());
        assert_eq!(
            show("https://gw.example.com").as_deref(),
            Some("https://gw.example.com:8443")
        );
        assert_eq!(
            show("https://10.0.0.1:443/").as_deref(),
            Some("https://10.0.0.1:443")
        );
        assert_eq!(show("https://[::1]:8443").as_deref(), Some("https://[::1]:8443"));
        for bad in [
            "",
            "http://a:1",
            "https://",
            "https://a:0",
            "https://a:99999",
            "https://a:1/x",
            "https://u@a:1",
            "https://[zz]:1",
        ] {
            assert_eq!(show(bad), None, "{bad}");
        }
        assert!(
            check("node: {id: abcd}")
                .unwrap_err()
                .to_string()
                .starts_with("provider_daemon.endpoint")
        );
        let both = check("provider_daemon: {endpoint: 'https://a:1', endpoints: ['https://b:1']}");
        assert!(both.unwrap_err().to_string().contains("not both"));
    }
}
