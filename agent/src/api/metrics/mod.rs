//! `/metrics`: figures in Prometheus' text format. Where the meaning is node_exporter's, so are name, labels and unit
//! (a test compares them with a real one on the same host); what is the agent's own begins with `virtengine_`. What is
//! unknown has no sample.

mod agent;
mod devices;
mod host;
mod slices;

use std::time::Instant;

use super::source::Source;
use super::text::{Kind, Number, Page};

/// The page at `now`, which is `unix` on the wall clock.
pub(super) fn page(source: &Source, now: Instant, unix: u64) -> String {
    let mut page = Page::default();
    if let Some(view) = source.view() {
        host::load(&mut page, source, &view.figures, now, unix);
        host::memory(&mut page, &view.figures, now);
        host::storage(&mut page, source, &view.figures, now);
        host::work(&mut page, &view, now);
        devices::gpus(&mut page, &view.figures, now);
        devices::instruments(&mut page, &view.figures, now);
        agent::health(&mut page, &view);
    }
    host::name(&mut page);
    agent::heartbeats(&mut page, source.status().as_ref());
    page.finish()
}

pub(super) use slices::page as slice;

/// Label and value.
fn label(name: &'static str, value: impl Into<String>) -> (&'static str, String) {
    (name, value.into())
}

/// Percent as the ratio that Prometheus wants.
fn ratio(percent: u8) -> Number {
    Number::scaled(percent, 2)
}
