//! What a batch holds in memory of clusters and pages.

use cosmwasm_std::Storage;
use hpc_schema::id::ClusterId;
use hpc_schema::registry::JobIds;

use crate::cluster::ClusterHot;
use crate::error::ContractError;
use crate::keys::Place;
use crate::node::change::Change;
use crate::node::page::{self, HotPage, KeyPage, SectionPage, StatsPage};

/// A page that a batch works on.
#[derive(Debug)]
pub(crate) struct PageWork {
    pub(crate) page: u16,
    pub(crate) keys: KeyPage,
    pub(crate) sections: SectionPage,
    pub(crate) hot: HotPage,
    /// Loaded on the first recovery.
    pub(crate) stats: Option<StatsPage>,
    /// Slots that an item of this message has named.
    pub(crate) named: u64,
    /// Slots whose report was applied.
    pub(crate) applied: u64,
    pub(crate) sections_changed: bool,
    /// What is to be told.
    pub(crate) changes: Vec<Change>,
}

/// A cluster that a batch works on.
#[derive(Debug)]
pub(crate) struct ClusterWork {
    pub(crate) id: ClusterId,
    pub(crate) hot: ClusterHot,
    pub(crate) pages: Vec<PageWork>,
    /// Read when the first section with job ids comes.
    pub(crate) job_ids: Option<JobIds>,
}

impl ClusterWork {
    /// The position of a page, which is loaded at its first use.
    pub(crate) fn page(&mut self, storage: &dyn Storage, page: u16) -> Result<usize, ContractError> {
        // Groups come in order: it is nearly always the last one.
        if let Some(at) = self.pages.iter().rposition(|p| p.page == page) {
            return Ok(at);
        }
        let (keys, sections, hot) = page::load_all(storage, self.hot.index, page)?;
        self.pages.push(PageWork {
            page,
            keys,
            sections,
            hot,
            stats: None,
            named: 0,
            applied: 0,
            sections_changed: false,
            changes: Vec::new(),
        });
        Ok(self.pages.len() - 1)
    }

    pub(crate) fn place(&self, page: u16, slot: u8) -> Place {
        Place {
            cluster: self.hot.index,
            page,
            slot,
        }
    }
}
