use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ConfigCommand {
    /// Checks config.yaml and the environment; exit code 78 if something is wrong.
    Check,
    /// Prints the JSON Schema of config.yaml.
    Schema,
    /// Lists every key: its environment variable, its default, whether `reload` takes a change into use.
    Keys,
    /// Shows what counts: file, environment and defaults together.
    Show,
}
