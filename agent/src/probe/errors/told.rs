//! What is known of errors and warnings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An interface whose driver has written that its link is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSeen {
    /// How often within 24 hours.
    pub messages: u32,
    /// UNIX seconds of the last.
    pub last: u64,
}

/// The last error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// UNIX seconds.
    pub at: u64,
    /// What it is about.
    pub class: String,
    /// The message.
    pub text: String,
}

/// A fault of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidSeen {
    /// UNIX seconds.
    pub at: u64,
    /// PCI address.
    pub device: String,
    /// Its code.
    pub code: u32,
    /// How often it was seen; `at` is of the last time.
    #[serde(default = "once")]
    pub count: u32,
}

/// As those were kept that have no count.
fn once() -> u32 {
    1
}

/// Counts of 24 hours.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Errors {
    /// Errors.
    pub errors: u32,
    /// Warnings.
    pub warnings: u32,
    /// UNIX seconds since which messages are counted, and none was lost.
    pub since: u64,
    /// Messages of the kernel that were overwritten before they could be read, over all time.
    pub missed: u64,
    /// The kernel's log cannot be read: the counts are not all.
    pub without_kernel: bool,
    /// Why the journal could not be read at the last look: the counts are not all.
    pub without_journal: Option<String>,
    /// Both, by what they are about; without zeros.
    pub classes: BTreeMap<String, u32>,
    /// The last error, if it is of the last 24 hours.
    pub last: Option<LastError>,
    /// The same of each class.
    pub lasts: BTreeMap<String, LastError>,
    /// Interfaces whose links went down.
    pub links: BTreeMap<String, LinkSeen>,
    /// File servers that have not said since that they answer again: the last error of each.
    pub servers: BTreeMap<String, LastError>,
    /// Faults of GPUs of the last 24 hours, since the last boot.
    pub xids: Vec<XidSeen>,
}

impl Errors {
    /// The counts, if nothing is missing in them: part of one would say that the rest is 0.
    #[must_use]
    pub fn whole(&self) -> Option<&Self> {
        (!self.without_kernel && self.without_journal.is_none()).then_some(self)
    }

    /// Why they are not whole, and what to do; none if they are.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let kernel = self
            .without_kernel
            .then(|| "the kernel's log cannot be read".to_owned());
        let journal = self.without_journal.as_ref();
        let journal = journal.map(|why| format!("the journal is not read to its end: {why}"));
        let all: Vec<String> = kernel.into_iter().chain(journal).collect();
        (!all.is_empty()).then(|| format!("{}; run virtengine-node-agent doctor", all.join("; ")))
    }

    /// The last error of a class.
    #[must_use]
    pub fn last_of(&self, class: &str) -> Option<&LastError> {
        let last = || self.last.as_ref().filter(|l| l.class == class);
        self.lasts.get(class).or_else(last)
    }
}
