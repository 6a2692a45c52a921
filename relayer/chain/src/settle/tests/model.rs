//! A small chain with two endpoints and everything that may go wrong between it and a driver: lagging endpoints,
//! emptied mempools, replayed bytes, refused inclusions, a foreign sender on the same key, results and blocks that are kept no
//! more, halts.

use std::collections::{BTreeMap, BTreeSet};

use crate::code::Verdict;
use crate::hash::TxHash;
use crate::settle::{CheckTx, Inclusion, SignRequest};

pub(super) const ENDPOINTS: usize = 2;

/// The bytes of a model transaction.
pub(super) fn encode(r: &SignRequest) -> Vec<u8> {
    let mut bytes = r.batch.0.to_be_bytes().to_vec();
    bytes.extend(r.sequence.to_be_bytes());
    bytes.extend(r.timeout_height.to_be_bytes());
    bytes
}

fn field(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) time_ms: u64,
    pub(super) txs: Vec<Inclusion>,
    /// The account's sequence after it.
    pub(super) sequence: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Endpoint {
    pub(super) height: u64,
    mempool: Vec<Vec<u8>>,
    cache: BTreeSet<TxHash>,
}

#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) blocks: Vec<Block>,
    pub(super) endpoints: Vec<Endpoint>,
    /// Every bytes that ever left the driver; a hostile network may bring them back at any time.
    pub(super) seen: Vec<Vec<u8>>,
    /// How often each batch took effect.
    pub(super) effects: BTreeMap<u64, u32>,
    /// Sequences that somebody else's transactions used.
    pub(super) foreign: BTreeSet<u64>,
    /// Of blocks below this one neither an index nor results are kept.
    kept_from: u64,
    /// Those below this one are pruned.
    pruned_below: u64,
}

/// What the blocks show of a transaction.
pub(super) struct Scan {
    /// What came of it.
    pub(super) inclusions: Vec<Inclusion>,
    /// Heights of those that have it and whose results are kept no more.
    pub(super) gone: Vec<u64>,
    /// Some are pruned.
    pub(super) unread: bool,
}

/// How a block treats what it includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proposer {
    Honest,
    /// Executes and fails: sequence used, no effect.
    ContractFails,
    /// Refused in the ante handler although the bytes are good: no effect, sequence unused.
    AnteRefuses,
    /// Leaves every transaction out.
    Empty,
}

impl Chain {
    pub(super) fn new(time_ms: u64) -> Self {
        let genesis = Block {
            time_ms,
            txs: Vec::new(),
            sequence: 0,
        };
        Self {
            blocks: vec![genesis],
            endpoints: vec![Endpoint::default(); ENDPOINTS],
            seen: Vec::new(),
            effects: BTreeMap::new(),
            foreign: BTreeSet::new(),
            kept_from: 0,
            pruned_below: 0,
        }
    }

    pub(super) fn height(&self) -> u64 {
        self.blocks.len() as u64 - 1
    }

    pub(super) fn sequence(&self) -> u64 {
        self.blocks.last().unwrap().sequence
    }

    pub(super) fn block(&mut self, time_ms: u64, proposer: Proposer, foreign: bool, replay: Option<usize>) {
        let height = self.height() + 1;
        let mut sequence = self.sequence();
        let mut txs = Vec::new();
        let mut candidates: Vec<Vec<u8>> = Vec::new();
        if let Some(bytes) = replay.and_then(|i| self.seen.get(i % self.seen.len().max(1))) {
            candidates.push(bytes.clone());
        }
        if foreign {
            self.foreign.insert(sequence);
            sequence += 1;
        }
        if proposer != Proposer::Empty {
            candidates.extend(
                self.endpoints
                    .iter_mut()
                    .flat_map(|e| std::mem::take(&mut e.mempool)),
            );
        }
        let mut tried = BTreeSet::new();
        for bytes in candidates {
            if !tried.insert(bytes.clone()) {
                continue;
            }
            let hash = TxHash::of(&bytes);
            let mut add = |code, space: &str| {
                let codespace = space.to_owned();
                txs.push(Inclusion {
                    hash,
                    height,
                    code,
                    codespace,
                    log: String::new(),
                    gas_used: 0,
                });
            };
            if height > field(&bytes, 16) {
                add(30, "sdk");
            } else if field(&bytes, 8) != sequence {
                add(32, "sdk");
            } else {
                match proposer {
                    Proposer::AnteRefuses => add(13, "sdk"),
                    Proposer::ContractFails => {
                        sequence += 1;
                        add(5, "wasm");
                    }
                    Proposer::Honest | Proposer::Empty => {
                        sequence += 1;
                        *self.effects.entry(field(&bytes, 0)).or_default() += 1;
                        add(0, "");
                    }
                }
            }
        }
        self.blocks.push(Block {
            time_ms,
            txs,
            sequence,
        });
    }

    /// The endpoint learns of up to `blocks` more blocks.
    pub(super) fn catch_up(&mut self, endpoint: usize, blocks: u64) {
        let top = self.height();
        let e = &mut self.endpoints[endpoint];
        e.height = (e.height + blocks).min(top);
    }

    /// What came of the transactions of all blocks but the newest so many is kept nowhere any more, nor, if they are pruned, the
    /// blocks.
    pub(super) fn forget(&mut self, but: u64, pruned: bool) {
        let from = (self.height() + 1).saturating_sub(but);
        self.kept_from = self.kept_from.max(from);
        if pruned {
            self.pruned_below = self.pruned_below.max(from);
        }
    }

    /// The endpoint's process restarts: mempool and cache are empty.
    pub(super) fn restart(&mut self, endpoint: usize) {
        let e = &mut self.endpoints[endpoint];
        e.mempool.clear();
        e.cache.clear();
    }

    pub(super) fn check_tx(&mut self, endpoint: usize, bytes: &[u8]) -> CheckTx {
        if !self.seen.iter().any(|b| b == bytes) {
            self.seen.push(bytes.to_vec());
        }
        let height = self.endpoints[endpoint].height;
        let committed = self.blocks[usize::try_from(height).unwrap()].sequence;
        let e = &mut self.endpoints[endpoint];
        let hash = TxHash::of(bytes);
        let answer = |verdict, code| CheckTx::Answered {
            verdict,
            code,
            codespace: "sdk".to_owned(),
            log: String::new(),
        };
        if !e.cache.insert(hash) {
            return answer(Verdict::AlreadyInCache, 0);
        }
        let expected = committed + e.mempool.len() as u64;
        let got = field(bytes, 8);
        let refusal = if height >= field(bytes, 16) {
            Some(answer(Verdict::TimeoutHeight, 30))
        } else if got != expected {
            Some(answer(
                Verdict::WrongSequence {
                    expected: Some(expected),
                    got: Some(got),
                },
                32,
            ))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            e.cache.remove(&hash);
            return refusal;
        }
        e.mempool.push(bytes.to_vec());
        answer(Verdict::Accepted, 0)
    }

    /// The index of an endpoint: a success wins over later refusals, as in CometBFT.
    pub(super) fn lookup(&self, endpoint: usize, hash: TxHash) -> Option<Inclusion> {
        let found = self.scan(1, self.endpoints[endpoint].height, hash).inclusions;
        found.iter().find(|i| i.code == 0).or(found.last()).cloned()
    }

    pub(super) fn scan(&self, from: u64, to: u64, hash: TxHash) -> Scan {
        let unread = from < self.pruned_below;
        let from = from.max(self.pruned_below);
        let blocks = self
            .blocks
            .iter()
            .zip(0u64..)
            .filter(|(_, h)| (from..=to).contains(h));
        let (inclusions, gone): (Vec<_>, Vec<_>) = blocks
            .flat_map(|(b, _)| b.txs.iter().filter(|i| i.hash == hash).cloned())
            .partition(|i| i.height >= self.kept_from);
        Scan {
            inclusions,
            gone: gone.into_iter().map(|i| i.height).collect(),
            unread,
        }
    }
}
