//! First pass: items, pages, and the messages whose signatures are to be verified.

use cosmwasm_std::Storage;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::registry::SubmitAnswer;
use hpc_schema::report::batch::{self, Item, PAGE_SLOTS};
use hpc_schema::report::{MESSAGE_LEN, SectionDigest, Tag, message, section_digest};

use super::work::ClusterWork;
use crate::cluster::ClusterHot;
use crate::error::{ContractError, refuse};

/// An item whose node is known.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    /// Its number in the message.
    pub(crate) number: u32,
    /// Positions of its cluster and page in the work.
    pub(crate) cluster: usize,
    pub(crate) page: usize,
    pub(crate) item: Item<'a>,
    /// Of the attached section, else the one on record.
    pub(crate) digest: SectionDigest,
    pub(crate) message: [u8; MESSAGE_LEN],
}

/// Reads groups one after the other.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    limit: u32,
    pub(crate) clusters: Vec<ClusterWork>,
    pub(crate) candidates: Vec<Candidate<'a>>,
    pub(crate) answer: SubmitAnswer,
    /// Items read so far.
    pub(crate) items: u32,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            clusters: Vec::new(),
            candidates: Vec::new(),
            answer: SubmitAnswer::default(),
            items: 0,
        }
    }

    fn cluster(&mut self, storage: &dyn Storage, id: &ClusterId) -> Result<Option<usize>, ContractError> {
        if let Some(at) = self.clusters.iter().position(|c| c.id == *id) {
            return Ok(Some(at));
        }
        let Some(hot) = ClusterHot::find(storage, id)? else {
            return Ok(None);
        };
        self.clusters.push(ClusterWork {
            id: id.clone(),
            hot,
            pages: Vec::new(),
            job_ids: None,
        });
        Ok(Some(self.clusters.len() - 1))
    }

    /// Reads one group; `bytes` is `None` where its base64 is broken.
    pub(crate) fn group(
        &mut self,
        storage: &dyn Storage,
        number: u32,
        id: &ClusterId,
        bytes: Option<&'a [u8]>,
    ) -> Result<(), ContractError> {
        let items = match bytes.ok_or(Code::Malformed).and_then(batch::decode) {
            Ok(items) => items,
            Err(code) => {
                self.answer.bad_groups.push((number, code.number()));
                return Ok(());
            }
        };
        let cluster = self.cluster(storage, id)?;
        // Growing step by step would copy the candidates over and over.
        let most = bytes.map_or(0, <[u8]>::len) / batch::ITEM_LEN;
        self.candidates.reserve(most.min(usize::from(u16::MAX)));
        for item in items {
            let item = match item {
                Ok(item) => item,
                Err(code) => {
                    self.answer.bad_groups.push((number, code.number()));
                    return Ok(());
                }
            };
            if self.items == self.limit {
                return refuse(
                    Code::InvalidBatch,
                    format!("groups hold more than {} reports", self.limit),
                );
            }
            let number = self.items;
            self.items += 1;
            let placed = match cluster {
                None => Err(Code::UnknownCluster),
                Some(cluster) => self.place(storage, number, cluster, item)?,
            };
            match placed {
                Ok(candidate) => self.candidates.push(candidate),
                Err(code) => self.answer.refused.push((number, code.number())),
            }
        }
        Ok(())
    }

    fn place(
        &mut self,
        storage: &dyn Storage,
        number: u32,
        cluster: usize,
        item: Item<'a>,
    ) -> Result<Result<Candidate<'a>, Code>, ContractError> {
        let Some(work) = self.clusters.get_mut(cluster) else {
            return Ok(Err(Code::UnknownCluster));
        };
        if let Some(code) = item.order {
            return Ok(Err(code));
        }
        if item.slot >= PAGE_SLOTS || item.page >= work.hot.pages() {
            return Ok(Err(Code::UnknownNode));
        }
        let at = work.page(storage, item.page)?;
        let Some(page) = work.pages.get_mut(at) else {
            return Ok(Err(Code::UnknownNode));
        };
        let (Some(_), Some((_, tag))) = (page.hot.record(item.slot), page.keys.entry(item.slot)) else {
            return Ok(Err(Code::UnknownNode));
        };
        let bit = 1u64 << item.slot;
        if page.named & bit != 0 {
            return Ok(Err(Code::DuplicateNode));
        }
        let digest = match item.section {
            Some(section) => section_digest(section),
            None => page.sections.digest(item.slot),
        };
        // Zeros are no digest: the node's first section is still to come.
        if digest == [0; 16] {
            return Ok(Err(Code::SectionMissing));
        }
        page.named |= bit;
        let tag = Tag::from_bytes(*tag);
        let message = message(
            &tag,
            item.time,
            item.sequence,
            &item.body,
            &digest,
            item.payload_hash,
        );
        Ok(Ok(Candidate {
            number,
            cluster,
            page: at,
            item,
            digest,
            message,
        }))
    }
}
