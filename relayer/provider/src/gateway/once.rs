use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::clock::Steady;

/// The same refusal of the same address is logged again after so long.
const AGAIN_MS: u64 = 600_000;
/// Addresses remembered; beyond, what they do is only counted.
const CAPACITY: usize = 4096;

/// When it was logged, and how often it was passed over since.
type Logged = (u64, u64);

/// Sees to it that a refusal is logged once, and not ten thousand times: by address and by what is refused, in stable words, as
/// several may be behind one address.
#[derive(Debug, Default)]
pub(crate) struct Once(Mutex<HashMap<(IpAddr, &'static str), Logged>>);

impl Once {
    /// Whether to log now, and how many were passed over since the last time.
    pub(crate) fn note(&self, from: IpAddr, what: &'static str, Steady(now_ms): Steady) -> Option<u64> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, passed_over)) = map.get_mut(&(from, what)) {
            if now_ms.saturating_sub(*at) < AGAIN_MS {
                *passed_over = passed_over.saturating_add(1);
                return None;
            }
            *at = now_ms;
            return Some(std::mem::take(passed_over));
        }
        if map.len() >= CAPACITY {
            map.retain(|_, (at, _)| now_ms.saturating_sub(*at) < AGAIN_MS);
        }
        if map.len() >= CAPACITY {
            return None;
        }
        map.insert((from, what), (now_ms, 0));
        Some(0)
    }
}

/// Sees to it that a trouble of the gateway itself, which every request meets, is a line every ten seconds.
#[derive(Debug)]
pub(crate) struct Seldom {
    again_ms: AtomicU64,
    passed_over: AtomicU64,
}

impl Seldom {
    const BETWEEN_MS: u64 = 10_000;

    pub(crate) const fn new() -> Self {
        Self {
            again_ms: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
        }
    }

    /// Whether to log now, and how many were passed over since the last time.
    pub(crate) fn note(&self, Steady(now_ms): Steady) -> Option<u64> {
        let due = |again: u64| (now_ms >= again).then(|| now_ms.saturating_add(Self::BETWEEN_MS));
        if self
            .again_ms
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, due)
            .is_ok()
        {
            return Some(self.passed_over.swap(0, Ordering::Relaxed));
        }
        self.passed_over.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_of_all_requests_is_a_line_every_ten_seconds() {
        let seldom = Seldom::new();
        assert_eq!(seldom.note(Steady(50_000)), Some(0));
        for i in 0..99 {
            assert_eq!(seldom.note(Steady(50_000 + i)), None);
        }
        assert_eq!(seldom.note(Steady(60_000)), Some(99));
        assert_eq!(seldom.note(Steady(60_001)), None);
        assert_eq!(seldom.note(Steady(70_000)), Some(1));
    }

    #[test]
    fn a_flood_is_one_line_and_then_one_with_the_count() {
        let once = Once::default();
        let a: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(once.note(a, "idle", Steady(1000)), Some(0));
        for i in 0..999 {
            assert_eq!(once.note(a, "idle", Steady(1001 + i)), None);
        }
        assert_eq!(
            once.note(a, "flood", Steady(2000)),
            Some(0),
            "another thing is another line"
        );
        assert_eq!(once.note(a, "idle", Steady(1000 + AGAIN_MS)), Some(999));
    }

    #[test]
    fn many_addresses_do_not_fill_the_memory_or_the_log() {
        let once = Once::default();
        let logged = (0..100_000u32)
            .filter(|i| once.note(IpAddr::V4((*i).into()), "idle", Steady(1)).is_some())
            .count();
        assert_eq!(logged, CAPACITY);
    }
}
