use super::args::ConfigCommand;
use super::load;
use super::output::{Output, line};
use crate::config;
use crate::daemon::{StartError, check_files};
use crate::home::Home;

pub(super) fn run(home: &Home, command: &ConfigCommand, out: Output) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check => {
            let config = load(home)?;
            config.require_chain().map_err(StartError::from)?;
            check_files(home, &config)?;
            let path = home.config().display().to_string();
            out.done(
                &format!("{path} is in order"),
                &serde_json::json!({ "file": path, "in_order": true }),
            )
        }
        ConfigCommand::Show => out.value(&load(home)?),
        ConfigCommand::Schema => line(&serde_json::to_string_pretty(&config::json_schema())?),
        ConfigCommand::Keys => {
            let head = ["KEY", "DEFAULT", "RELOAD", "VARIABLE", "MEANING"];
            out.list(&config::keys(), &head, |k| {
                vec![
                    k.key.clone(),
                    k.default.to_string(),
                    if k.reload { "yes" } else { "restart" }.to_owned(),
                    k.variable.clone(),
                    k.meaning.clone(),
                ]
            })
        }
    }
}
