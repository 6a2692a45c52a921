//! The Merkle tree of RFC 6962, as CometBFT builds it over a block's transactions.

use sha2::{Digest as _, Sha256};

/// Levels of a tree that has more transactions than a block can hold.
const MOST_LEVELS: usize = 64;

/// Hash of a leaf.
#[must_use]
pub(super) fn leaf(bytes: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update([0])
        .chain_update(bytes)
        .finalize()
        .into()
}

fn inner(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    let digest = Sha256::new()
        .chain_update([1])
        .chain_update(left)
        .chain_update(right);
    digest.finalize().into()
}

/// Leaves in the left half: the largest power of two below `total`, which is at least 2.
fn split(total: u64) -> u64 {
    let below = total.saturating_sub(1).max(1);
    1 << (63 - below.leading_zeros())
}

/// The root that follows from a leaf's hash, its place and the hashes beside its path. `None` if these do not fit together.
#[must_use]
pub(super) fn root_of(leaf: [u8; 32], index: u64, total: u64, aunts: &[[u8; 32]]) -> Option<[u8; 32]> {
    if index >= total || aunts.len() > MOST_LEVELS {
        return None;
    }
    if total == 1 {
        return aunts.is_empty().then_some(leaf);
    }
    let (last, rest) = aunts.split_last()?;
    let left = split(total);
    if index < left {
        Some(inner(&root_of(leaf, index, left, rest)?, last))
    } else {
        let right = root_of(leaf, index - left, total - left, rest)?;
        Some(inner(last, &right))
    }
}

/// The hashes beside the path of leaf `index`, from its neighbour upwards. Empty if there is no such leaf.
#[must_use]
pub(super) fn aunts(leaves: &[[u8; 32]], index: usize) -> Vec<[u8; 32]> {
    if leaves.len() < 2 || index >= leaves.len() {
        return Vec::new();
    }
    let middle = usize::try_from(split(u64::try_from(leaves.len()).unwrap_or(u64::MAX))).unwrap_or(1);
    let (left, right) = leaves.split_at(middle.min(leaves.len()));
    let (mut path, beside) = if index < middle {
        (aunts(left, index), root(right))
    } else {
        (aunts(right, index - middle), root(left))
    };
    path.push(beside);
    path
}

fn root(leaves: &[[u8; 32]]) -> [u8; 32] {
    match leaves {
        [] => Sha256::digest([]).into(),
        [one] => *one,
        many => {
            let middle = usize::try_from(split(u64::try_from(many.len()).unwrap_or(u64::MAX))).unwrap_or(1);
            let (left, right) = many.split_at(middle.min(many.len()));
            inner(&root(left), &root(right))
        }
    }
}

#[cfg(test)]
mod tests {
    use cosmrs::tendermint::crypto::default::Sha256 as TmSha256;
    use cosmrs::tendermint::merkle::simple_hash_from_byte_vectors;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_leaf_leads_to_cometbfts_root_and_no_other_place_or_leaf_does(count in 1usize..70, place in 0usize..70) {
            let values: Vec<Vec<u8>> = (0..count).map(|n| vec![u8::try_from(n).unwrap(); 32]).collect();
            let wanted = simple_hash_from_byte_vectors::<TmSha256>(&values);
            let leaves: Vec<[u8; 32]> = values.iter().map(|v| leaf(v)).collect();
            let place = place % count;
            let path = aunts(&leaves, place);
            let total = u64::try_from(count).unwrap();
            let at = u64::try_from(place).unwrap();
            prop_assert_eq!(root_of(leaves[place], at, total, &path), Some(wanted));
            prop_assert_ne!(root_of(leaf(b"other"), at, total, &path), Some(wanted));
            for other in (0..total).filter(|o| *o != at) {
                prop_assert_ne!(root_of(leaves[place], other, total, &path), Some(wanted));
            }
            let mut longer = path.clone();
            longer.push([7; 32]);
            prop_assert_ne!(root_of(leaves[place], at, total, &longer), Some(wanted));
        }
    }
}
