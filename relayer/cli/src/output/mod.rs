//! Printing: text for people, JSON and YAML for programs. All three come from the same answer.

mod aggregate;
mod anchor;
mod chain;
mod cluster;
mod config;
mod lines;
mod node;
mod nodes;
mod table;
mod words;

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::error::{Exit, Failure};

pub(crate) use anchor::AnchorAt;
pub(crate) use chain::{BalanceOut, CoinOut, CostOut, TxOut, coins};
pub(crate) use cluster::ClusterAt;
pub(crate) use lines::Lines;
pub(crate) use node::NodeAt;
pub(crate) use table::{Align, Table};

/// How answers are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON value.
    Json,
    /// The same in YAML.
    Yaml,
}

/// What people see of an answer.
pub(crate) trait Text {
    /// Whole lines, each ended.
    fn text(&self) -> String;

    /// A remark that is no part of the answer; it goes to standard error.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// Where answers go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    pub(crate) format: Format,
}

impl Printer {
    /// Prints an answer to standard output. A reader that has gone away is no failure.
    pub(crate) fn print<T: Serialize + Text>(self, answer: &T) -> Result<(), Failure> {
        self.raw(&self.render(answer)?)?;
        if self.format == Format::Text
            && let Some(remark) = answer.remark()
        {
            note(&remark);
        }
        Ok(())
    }

    /// The answer as it is printed.
    pub(crate) fn render<T: Serialize + Text>(self, answer: &T) -> Result<String, Failure> {
        let bad = |e: &dyn std::fmt::Display| Failure::new(Exit::Failed, "bad_answer", e.to_string());
        Ok(match self.format {
            Format::Text => answer.text(),
            Format::Json => serde_json::to_string_pretty(answer).map_err(|e| bad(&e))? + "\n",
            Format::Yaml => serde_yaml_ng::to_string(answer).map_err(|e| bad(&e))?,
        })
    }

    /// Prints text as it is, whatever the format.
    pub(crate) fn raw(self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(
                    Failure::new(Exit::Failed, "file_error", format!("standard output: {e}"))
                        .remedy("the answer is not complete: write it elsewhere"),
                )
            }
            _ => Ok(()),
        }
    }
}

/// A line on standard error; nothing can be done if nobody reads it.
pub(crate) fn note(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

#[cfg(test)]
mod tests;
