//! Section `tasks` of the file: whether and how this node takes tasks.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// Where specification and packages put what tasks leave.
const DIR: &str = "/var/lib/virtengine/tasks";

/// Whether and how this node takes tasks; without this section it takes none.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tasks {
    /// Folder of journals and machines; default `/var/lib/virtengine/tasks`. The task agent's user alone may write there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// What the site allows (docs/tasks.md); without it only tasks that change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PathBuf>,
    /// Tasks at one time, 1 to 16; default 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u8>,
    /// User of the process that speaks with the gateway, if the task agent runs as root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// How this node takes tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TasksConfig {
    /// Folder of journals and machines.
    pub dir: PathBuf,
    /// What the site allows.
    pub policy: Option<PathBuf>,
    /// Tasks at one time.
    pub concurrency: usize,
    /// User of the process that speaks with the gateway.
    pub user: Option<String>,
}

pub(super) fn resolve(section: Option<Tasks>) -> Result<Option<TasksConfig>, ConfigError> {
    let Some(section) = section else {
        return Ok(None);
    };
    let refuse = |key, message: &str| ConfigError::Value {
        key,
        message: message.to_owned(),
    };
    let dir = section.dir.unwrap_or_else(|| DIR.into());
    if !dir.is_absolute() {
        return Err(refuse("tasks.dir", "must be an absolute path"));
    }
    if section.policy.as_ref().is_some_and(|p| !p.is_absolute()) {
        return Err(refuse("tasks.policy", "must be an absolute path"));
    }
    let concurrency = section.concurrency.unwrap_or(4);
    if !(1..=16).contains(&concurrency) {
        return Err(refuse("tasks.concurrency", "must be 1 to 16"));
    }
    Ok(Some(TasksConfig {
        dir,
        policy: section.policy,
        concurrency: usize::from(concurrency),
        user: section.user,
    }))
}

#[cfg(test)]
mod tests {
    use crate::config::{parse, resolve};

    #[test]
    fn without_the_section_there_are_no_tasks_and_its_values_are_checked() {
        let read = |text: &str| {
            let text = format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{text}");
            let file = parse(&text, std::path::Path::new("f.yaml")).map_err(|e| e.to_string())?;
            resolve(file).map(|c| c.tasks).map_err(|e| e.to_string())
        };
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("tasks: {}").unwrap().unwrap().concurrency, 4);
        for (bad, named) in [
            ("tasks: {dir: x}", "tasks.dir"),
            ("tasks: {policy: x}", "tasks.policy"),
            ("tasks: {concurrency: 0}", "tasks.concurrency"),
            ("tasks: {shell: true}", "shell"),
        ] {
            assert!(read(bad).unwrap_err().contains(named), "{bad}");
        }
    }
}
