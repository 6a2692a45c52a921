//! The running agent: measures on schedule, reports, follows what the gateway answers, renews its certificate.

mod adopt;
mod agent;
mod anew;
mod answer;
mod asked;
mod beat;
mod certificate;
mod cycle;
mod diagnose;
mod doubt;
mod error;
mod follow;
mod hardware;
pub(crate) mod identity;
mod keep;
mod kept;
mod measure;
mod notices;
mod orders;
mod peers;
mod recover;
mod reload;
mod reread;
mod said;
#[cfg(test)]
mod scene;
mod service;
mod settings;
mod task_files;
mod trial;
mod world;

pub use agent::Agent;
pub use answer::{Effects, effects};
pub use cycle::{Ended, Signal};
pub use error::RunError;
pub use reread::Reread;
pub(crate) use reread::Rereading;
pub use world::{Timing, World};
