use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use hpc_schema::id::NodeId;
use hpc_schema::time::UnixSeconds;

/// How long a challenge counts.
const LIFETIME_SECONDS: u64 = 120;
/// Challenges remembered; beyond, the oldest go. Only their addressees can answer them.
const CAPACITY: usize = 16_384;

/// Challenges that have been given and not answered. Each counts once.
#[derive(Debug, Default)]
pub struct Challenges(Mutex<HashMap<[u8; 32], (NodeId, UnixSeconds)>>);

impl Challenges {
    /// Remembers a fresh challenge for `node`; gives the time until which it counts.
    pub fn put(&self, challenge: [u8; 32], node: NodeId, now: UnixSeconds) -> UnixSeconds {
        let until = now.plus(LIFETIME_SECONDS);
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= CAPACITY {
            map.retain(|_, (_, until)| now < *until);
        }
        if map.len() >= CAPACITY
            && let Some(oldest) = map.iter().min_by_key(|(_, (_, until))| *until).map(|(c, _)| *c)
        {
            map.remove(&oldest);
        }
        map.insert(challenge, (node, until));
        until
    }

    /// Takes a challenge out; whether it was there for `node` and still counts.
    pub fn take(&self, challenge: &[u8; 32], node: &NodeId, now: UnixSeconds) -> bool {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.remove(challenge)
            .is_some_and(|(for_node, until)| for_node == *node && now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_counts_once_for_its_node_and_for_two_minutes() {
        let (c, node) = (Challenges::default(), "node-0001".parse().unwrap());
        let until = c.put([1; 32], "node-0001".parse().unwrap(), UnixSeconds(100));
        assert_eq!(until, UnixSeconds(220));
        assert!(c.take(&[1; 32], &node, UnixSeconds(219)));
        assert!(!c.take(&[1; 32], &node, UnixSeconds(219)), "once");
        c.put([2; 32], "node-0002".parse().unwrap(), UnixSeconds(100));
        assert!(!c.take(&[2; 32], &node, UnixSeconds(101)), "another's");
        c.put([3; 32], "node-0001".parse().unwrap(), UnixSeconds(100));
        assert!(!c.take(&[3; 32], &node, UnixSeconds(220)), "late");
    }
}
