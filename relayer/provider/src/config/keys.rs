use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use super::live::RELOADABLE;
use super::{Config, ENV_PREFIX};

/// JSON Schema (draft 2020-12) of `config.yaml`, for editors and for the committed `config.schema.json`.
#[must_use]
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<Config>()
        .to_value()
}

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Key {
    /// As in `batch.max_size`.
    pub key: String,
    /// The environment variable that overrides it; its text is read as YAML.
    pub variable: String,
    /// What counts without it, as JSON.
    pub default: Value,
    /// Whether SIGHUP and `reload` take a change into use; else the next start does.
    pub reload: bool,
    /// What it means.
    pub meaning: String,
}

/// Every key, in the order of its name.
#[must_use]
pub fn keys() -> Vec<Key> {
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut all = Vec::new();
    let schema = json_schema();
    for (section, schema) in members(&schema) {
        for (name, schema) in members(schema) {
            let key = format!("{section}.{name}");
            all.push(Key {
                variable: format!("{ENV_PREFIX}{section}__{name}").to_ascii_uppercase(),
                default: defaults
                    .get(section)
                    .and_then(|s| s.get(name))
                    .cloned()
                    .unwrap_or_default(),
                reload: RELOADABLE.contains(&key.as_str()),
                meaning: schema
                    .get("description")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .replace('\n', " "),
                key,
            });
        }
    }
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

fn members(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schema_of_the_configuration_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config.schema.json");
        let committed: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(
            committed == json_schema(),
            "run: cargo run --bin virtengine-provider -- config schema > relayer/provider/config.schema.json"
        );
    }

    #[test]
    fn every_key_has_a_meaning_and_its_variable_overrides_it() {
        let keys = keys();
        assert!(keys.len() > 40, "{}", keys.len());
        for key in keys {
            assert!(!key.meaning.is_empty(), "{}", key.key);
            // With its own default every key can be set; with another kind of value it is refused by name.
            let set = |value: &str| {
                let env = [(key.variable.clone(), value.to_owned())];
                Config::parse("", "config.yaml", env.into_iter())
            };
            assert_eq!(
                set(&key.default.to_string()).unwrap(),
                Config::default(),
                "{}",
                key.key
            );
            let error = set("{no: {such: thing}}").unwrap_err().to_string();
            let (section, _) = key.key.split_once('.').unwrap();
            assert!(
                error.contains(&key.variable) || error.contains(section),
                "{error}"
            );
        }
        for key in RELOADABLE {
            assert!(super::keys().iter().any(|k| k.key == *key), "{key}");
        }
    }
}
