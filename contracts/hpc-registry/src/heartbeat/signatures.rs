//! Second pass: signatures, by the chain's own functions.

use cosmwasm_std::Api;

use super::collect::Candidate;
use super::work::ClusterWork;

/// Signatures that the host takes in one call.
const MAX_CALL: usize = 256;

fn key<'a>(clusters: &'a [ClusterWork], c: &Candidate<'_>) -> &'a [u8] {
    clusters
        .get(c.cluster)
        .and_then(|cluster| cluster.pages.get(c.page))
        .and_then(|page| page.keys.entry(c.item.slot))
        .map_or(&[], |(key, _)| &key[..])
}

/// Whether each candidate's signature is good. A call that says no is repeated one by one: only the bad ones lose.
pub(crate) fn verify(api: &dyn Api, clusters: &[ClusterWork], candidates: &[Candidate<'_>]) -> Vec<bool> {
    let mut verdicts = Vec::with_capacity(candidates.len());
    // `chunks` of nothing is nothing: the host would call an empty batch good.
    for chunk in candidates.chunks(MAX_CALL) {
        let messages: Vec<&[u8]> = chunk.iter().map(|c| &c.message[..]).collect();
        let signatures: Vec<&[u8]> = chunk.iter().map(|c| &c.item.signature[..]).collect();
        let keys: Vec<&[u8]> = chunk.iter().map(|c| key(clusters, c)).collect();
        if chunk.len() > 1
            && api
                .ed25519_batch_verify(&messages, &signatures, &keys)
                .unwrap_or(false)
        {
            verdicts.resize(verdicts.len() + chunk.len(), true);
            continue;
        }
        for ((message, signature), key) in messages.iter().zip(&signatures).zip(&keys) {
            verdicts.push(api.ed25519_verify(message, signature, key).unwrap_or(false));
        }
    }
    verdicts
}
