//! The compact binary report that goes on chain, its second section and the batch that carries them.
//!
//! An agent signs `tag ‖ report` (86 bytes). The tag binds chain, contract, cluster, node and
//! registration epoch and is never transmitted; contract and agent both know it. All integers are
//! big endian. The byte tables stand in `docs/protocol.md`.

pub mod batch;
mod body;
mod bytes;
pub(crate) use bytes::{from_u24, to_u24};
mod section;
mod tag;
mod wire;

pub use body::{BODY_LEN, Body, Figures, SECTION_FOLLOWS};
pub use section::{
    MAX_AGENT_VERSION, MAX_GPU_TYPE, MAX_JOB_ID, MAX_JOBS, MAX_MEASUREMENTS, MAX_SECTION, Measurement,
    Section, SectionDigest, hashed_job_id, section_digest,
};
pub use tag::{TAG_LEN, Tag};
pub use wire::{
    MAX_AGE_SECONDS, MAX_AHEAD_SECONDS, MESSAGE_LEN, REPORT_LEN, Report, check_sequence, check_time, message,
};
