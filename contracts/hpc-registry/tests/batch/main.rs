//! Batches: every item has its own outcome, whatever bytes come.
// Helpers outside of test functions may fail as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value
)]

mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod outcomes;
mod sections;
mod vectors;

use hpc_schema::registry::SubmitAnswer;

use crate::common::actors::Signed;
use crate::common::*;

fn reporting(n: usize) -> (Chain, Vec<Agent>) {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, n);
    let now = chain.now();
    let reports: Vec<_> = agents.iter_mut().map(|a| (a.clone(), a.healthy(now))).collect();
    let answer = chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect());
    assert_eq!(answer.accepted as usize, n);
    chain.advance(30);
    (chain, agents)
}

fn beats(chain: &Chain, agents: &mut [Agent]) -> Vec<(Agent, Signed)> {
    agents
        .iter_mut()
        .map(|a| (a.clone(), a.healthy(chain.now())))
        .collect()
}

fn submit(chain: &mut Chain, reports: &[(Agent, Signed)]) -> SubmitAnswer {
    chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect())
}
