use std::path::{Path, PathBuf};

use serde_yaml_ng::{Mapping, Value};

use super::{Config, suggest};

/// Prefix of the environment variables that override keys.
pub const ENV_PREFIX: &str = "VIRTENGINE_PROVIDER__";

/// Why a configuration cannot be used. Exit code 78 (EX_CONFIG).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}; create it with: virtengine-provider init --home {}", path.display(), path.parent().unwrap_or(Path::new(".")).display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not YAML, an unknown key or a value of the wrong kind.
    #[error("{origin}: {message}")]
    Parse {
        /// File or variable at fault.
        origin: String,
        /// What is wrong, with a suggestion.
        message: String,
    },
    /// A value that cannot work.
    #[error("{key}: {message}")]
    Value {
        /// The key, such as `batch.max_size`.
        key: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
}

impl Config {
    /// Reads `path`, then overrides from `env`, then checks every value.
    ///
    /// # Errors
    /// Names the key and what to do.
    pub fn load(path: &Path, env: impl Iterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, &path.display().to_string(), env)
    }

    /// The same from text; `origin` names it in errors.
    ///
    /// # Errors
    /// Names the key and what to do.
    pub fn parse(
        text: &str,
        origin: &str,
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let fail = |origin: &str, e: &dyn std::fmt::Display| {
            let message = e.to_string();
            let hint = suggest::for_message(&message)
                .map(|h| format!("; {h}"))
                .unwrap_or_default();
            ConfigError::Parse {
                origin: origin.to_owned(),
                message: message + &hint,
            }
        };
        // First the file alone, so that its errors carry line and column.
        if !text.trim().is_empty() {
            read(serde_yaml_ng::Deserializer::from_str(text)).map_err(|e| fail(origin, &e))?;
        }
        let mut value: Value = serde_yaml_ng::from_str(text).map_err(|e| fail(origin, &e))?;
        if value.is_null() {
            value = Value::Mapping(Mapping::new());
        }
        let mut variables: Vec<_> = env.filter(|(k, _)| k.starts_with(ENV_PREFIX)).collect();
        variables.sort();
        for (name, text) in variables {
            let scalar = serde_yaml_ng::from_str(&text).unwrap_or(Value::String(text));
            let path = name
                .strip_prefix(ENV_PREFIX)
                .unwrap_or_default()
                .to_ascii_lowercase();
            set(&mut value, &path, scalar).ok_or_else(|| {
                fail(
                    &name,
                    &"does not name a key; write e.g. VIRTENGINE_PROVIDER__CHAIN__ID",
                )
            })?;
            read(value.clone()).map_err(|e| fail(&name, &e))?;
        }
        let config = read(value).map_err(|e| fail(origin, &e))?;
        config.check()?;
        Ok(config)
    }
}

/// The configuration; what cannot be read is named with the full key at which reading stopped.
fn read<'de, D>(from: D) -> Result<Config, String>
where
    D: serde::Deserializer<'de, Error = serde_yaml_ng::Error>,
{
    serde_path_to_error::deserialize(from).map_err(|e| {
        let message = e.inner().to_string();
        // Of the root there are no segments.
        if e.path().iter().next().is_none() {
            return message;
        }
        let path = e.path().to_string();
        // The library names a part of the key by itself.
        let (named, rest) = message.split_once(": ").unwrap_or(("", message.as_str()));
        let rest = if path.starts_with(named) {
            rest
        } else {
            message.as_str()
        };
        format!("{path}: {rest}")
    })
}

/// Sets `a__b` within nested mappings; none if something on the way is no mapping.
fn set(root: &mut Value, path: &str, scalar: Value) -> Option<()> {
    let mut at = root;
    let (parents, key) = path.rsplit_once("__")?;
    for part in parents.split("__") {
        let map = at.as_mapping_mut()?;
        at = map
            .entry(Value::String(part.to_owned()))
            .or_insert_with(|| Value::Mapping(Mapping::new()));
        if at.is_null() {
            *at = Value::Mapping(Mapping::new());
        }
    }
    at.as_mapping_mut()?.insert(Value::String(key.to_owned()), scalar);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Span;

    const GOOD: &str = "chain:\n  id: hpc-1\n  contract: wasm1abc\n";

    fn parse(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::parse(
            text,
            "config.yaml",
            env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        )
    }

    #[test]
    fn the_environment_overrides_the_file() {
        let c = parse(
            GOOD,
            &[
                ("VIRTENGINE_PROVIDER__BATCH__SUBMIT_INTERVAL", "2s"),
                ("VIRTENGINE_PROVIDER__CHAIN__RPC", "[http://a:1, http://b:2]"),
                ("OTHER", "x"),
            ],
        )
        .unwrap();
        assert_eq!(c.batch.submit_interval, Span::seconds(2));
        assert_eq!(c.chain.rpc, ["http://a:1", "http://b:2"]);
        assert_eq!(c.chain.id, "hpc-1");
    }

    #[test]
    fn an_unknown_key_is_refused_with_a_suggestion_and_its_place() {
        let e = parse("chain:\n  id: hpc-1\n  contracts: wasm1abc\n", &[])
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("config.yaml") && e.contains("line 3") && e.contains("did you mean `contract`?"),
            "{e}"
        );
        let e = parse(GOOD, &[("VIRTENGINE_PROVIDER__BATCH__MAX_SIZ", "3")])
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("VIRTENGINE_PROVIDER__BATCH__MAX_SIZ") && e.contains("did you mean `max_size`?"),
            "{e}"
        );
        assert!(parse(GOOD, &[("VIRTENGINE_PROVIDER__X", "3")]).is_err());
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named_with_its_full_key_and_once() {
        for (text, key, word) in [
            (
                "batch:\n  submit_interval: \"60\"\n",
                "batch.submit_interval: ",
                "is not a length of time",
            ),
            (
                "chain:\n  gas_price: 0.025\n",
                "chain.gas_price: ",
                "floating point",
            ),
            (
                "alerts:\n  certificate_before: soon\n",
                "alerts.certificate_before: ",
                "is not a length of time",
            ),
            (
                "alerts:\n  webhooks:\n  - url: 7\n    secret_file: a\n",
                "alerts.webhooks[0].url: ",
                "integer",
            ),
            ("batch: 7\n", "batch: ", "integer"),
        ] {
            let e = parse(text, &[]).unwrap_err().to_string();
            assert!(
                e.starts_with(&format!("config.yaml: {key}")) && e.contains(word),
                "{e}"
            );
            let section = key.split(['.', ':']).next().unwrap();
            assert_eq!(
                e.matches(&format!("{section}: ")).count(),
                usize::from(key == "batch: "),
                "{e}"
            );
        }
        let variable = "VIRTENGINE_PROVIDER__BATCH__SUBMIT_INTERVAL";
        let e = parse(GOOD, &[(variable, "soon")]).unwrap_err().to_string();
        assert!(
            e.starts_with(&format!("{variable}: batch.submit_interval: \"soon\"")),
            "{e}"
        );
    }

    #[test]
    fn what_is_written_is_read_back() {
        let c = parse(GOOD, &[]).unwrap();
        let text = serde_yaml_ng::to_string(&c).unwrap();
        assert_eq!(parse(&text, &[]).unwrap(), c);
    }
}
