//! Clusters: the hot record with its sums, and what rarely changes.

pub(crate) mod activate;
pub(crate) mod authorize;
pub(crate) mod close;
pub(crate) mod cold;
pub(crate) mod create;
pub(crate) mod fields;
pub(crate) mod gpu_types;
pub(crate) mod hot;
pub(crate) mod job_ids;
pub(crate) mod query;
pub(crate) mod task_key;
pub(crate) mod transfer;
pub(crate) mod update;

pub(crate) use cold::ClusterInfo;
pub(crate) use hot::ClusterHot;
