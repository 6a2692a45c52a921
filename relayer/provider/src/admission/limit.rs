use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::clock::Steady;

/// A token bucket for each key, in integers. The number of keys is bounded: when it is reached, buckets
/// that are full again and that nobody holds are forgotten, those of one part after the other; while there
/// are none, newcomers share one bucket.
#[derive(Debug)]
pub struct Limiter<K> {
    per_minute: AtomicU32,
    capacity: usize,
    buckets: Mutex<Buckets<K>>,
    /// Of all newcomers while there is no room.
    shared: Own,
}

#[derive(Debug)]
struct Buckets<K> {
    /// Chance says in which of them a key is, so that each has about [`PART`].
    parts: Vec<HashMap<K, Own>>,
    chance: RandomState,
    /// The part that is gone through next.
    next: usize,
    /// When it was last looked for room.
    looked_at_ms: u64,
    /// A part is gone through no more often.
    look_every_ms: u64,
}

/// Buckets that are gone through, or moved as their map grows, at a time: whoever needs one waits meanwhile, and so does
/// all else on that thread.
const PART: usize = 1024;
/// All buckets are gone through no more often.
const LOOK_EVERY_MS: u64 = 1000;

/// Thousandths of a request, and when they were counted.
#[derive(Debug)]
struct Bucket {
    milli: u64,
    at_ms: u64,
}

/// A key's bucket, for who takes from it again and again and would look it up each time. It is not forgotten while it is held.
#[derive(Debug, Clone)]
pub struct Own(Arc<Mutex<Bucket>>);

impl Own {
    fn full(per_minute: u64, now_ms: u64) -> Self {
        Self(Arc::new(Mutex::new(Bucket {
            milli: per_minute * 1000,
            at_ms: now_ms,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Bucket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By somebody beside the limiter, which hands out no more while this is asked.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl<K: Eq + Hash> Buckets<K> {
    fn new(capacity: usize) -> Self {
        let parts = capacity.div_ceil(PART).max(1);
        Self {
            parts: (0..parts).map(|_| HashMap::new()).collect(),
            chance: RandomState::new(),
            next: 0,
            looked_at_ms: 0,
            look_every_ms: (LOOK_EVERY_MS / u64::try_from(parts).unwrap_or(LOOK_EVERY_MS)).max(1),
        }
    }

    /// In which part a key is.
    fn place(&self, key: &K) -> usize {
        let chance = usize::try_from(self.chance.hash_one(key) >> 32).unwrap_or_default();
        chance % self.parts.len()
    }

    fn len(&self) -> usize {
        self.parts.iter().map(HashMap::len).sum()
    }

    /// Goes through the next part, if it is time, and forgets what does not stay.
    fn look(&mut self, now_ms: u64, stays: impl Fn(&Own) -> bool) {
        if now_ms.saturating_sub(self.looked_at_ms) < self.look_every_ms {
            return;
        }
        self.looked_at_ms = now_ms;
        if let Some(part) = self.parts.get_mut(self.next) {
            part.retain(|_, own| stays(own));
        }
        self.next = (self.next + 1) % self.parts.len();
    }
}

impl<K: Eq + Hash> Limiter<K> {
    /// `per_minute` requests a minute and at most as many at once; `capacity` keys.
    #[must_use]
    pub fn new(per_minute: u32, capacity: usize) -> Self {
        Self {
            per_minute: AtomicU32::new(per_minute),
            capacity,
            buckets: Mutex::new(Buckets::new(capacity)),
            shared: Own::full(u64::from(per_minute), 0),
        }
    }

    /// Another number from now on.
    pub fn set(&self, per_minute: u32) {
        self.per_minute.store(per_minute, Ordering::Relaxed);
    }

    /// Takes one request of `key` out; else says how long to wait for the next. The time is that of a clock that is never set:
    /// nothing would come back until one that was put back has caught up.
    ///
    /// # Errors
    /// The time until one is there, rounded up to whole seconds.
    pub fn take(&self, key: K, now: Steady) -> Result<(), Duration> {
        let own = self.own(key, now);
        self.take_of(own.as_ref().unwrap_or(&self.shared), now)
    }

    /// The same of who holds the bucket of its key: in `held` from the first time on that there is room for it.
    ///
    /// # Errors
    /// The time until one is there, rounded up to whole seconds.
    pub fn take_held(
        &self,
        held: &OnceLock<Own>,
        key: impl FnOnce() -> K,
        now: Steady,
    ) -> Result<(), Duration> {
        if let Some(own) = held.get() {
            return self.take_of(own, now);
        }
        match self.own(key(), now) {
            Some(own) => self.take_of(held.get_or_init(|| own), now),
            None => self.take_of(&self.shared, now),
        }
    }

    fn per_minute(&self) -> u64 {
        u64::from(self.per_minute.load(Ordering::Relaxed))
    }

    /// The bucket of `key`; none while there is no room for it.
    fn own(&self, key: K, Steady(now_ms): Steady) -> Option<Own> {
        let per_minute = self.per_minute();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let place = buckets.place(&key);
        // Nearly always it is there.
        if let Some(known) = buckets.parts.get(place)?.get(&key) {
            return Some(known.clone());
        }
        if buckets.len() >= self.capacity {
            let full = per_minute * 1000;
            buckets.look(now_ms, |own| {
                own.is_held() || own.lock().refilled(per_minute, now_ms) < full
            });
            if buckets.len() >= self.capacity {
                return None;
            }
        }
        let new = Own::full(per_minute, now_ms);
        buckets.parts.get_mut(place)?.insert(key, new.clone());
        Some(new)
    }

    fn take_of(&self, own: &Own, Steady(now_ms): Steady) -> Result<(), Duration> {
        let per_minute = self.per_minute();
        let mut bucket = own.lock();
        bucket.milli = bucket.refilled(per_minute, now_ms);
        bucket.at_ms = now_ms.max(bucket.at_ms);
        if let Some(rest) = bucket.milli.checked_sub(1000) {
            bucket.milli = rest;
            return Ok(());
        }
        let missing = 1000 - bucket.milli;
        let ms = (missing * 60).div_ceil(per_minute.max(1));
        Err(Duration::from_secs(ms.div_ceil(1000).max(1)))
    }
}

/// What counts as one address: of IPv6 the /64, which one host may have to itself.
#[must_use]
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let bits = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(bits.into())
        }
    }
}

impl Bucket {
    fn refilled(&self, per_minute: u64, now_ms: u64) -> u64 {
        let gained = now_ms.saturating_sub(self.at_ms).saturating_mul(per_minute) / 60;
        self.milli.saturating_add(gained).min(per_minute * 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len<K: Eq + Hash>(l: &Limiter<K>) -> usize {
        l.buckets.lock().unwrap().len()
    }

    fn has<K: Eq + Hash>(l: &Limiter<K>, key: &K) -> bool {
        let buckets = l.buckets.lock().unwrap();
        buckets.parts.iter().any(|part| part.contains_key(key))
    }

    #[test]
    fn so_many_a_minute_and_then_the_rest_after_the_time_named() {
        let l = Limiter::new(30, 10);
        for _ in 0..30 {
            assert_eq!(l.take("a", Steady(1000)), Ok(()));
        }
        let wait = l.take("a", Steady(1000)).unwrap_err();
        assert_eq!(wait, Duration::from_secs(2));
        assert_eq!(
            l.take("b", Steady(1000)),
            Ok(()),
            "one node's flood is not another's"
        );
        assert!(l.take("a", Steady(2000)).is_err());
        assert_eq!(l.take("a", Steady(3100)), Ok(()));
    }

    #[test]
    fn another_number_counts_from_the_next_request_on() {
        let l = Limiter::new(30, 10);
        l.take("a", Steady(1000)).unwrap();
        l.set(2);
        assert_eq!(
            (l.take("a", Steady(1000)), l.take("a", Steady(1000))),
            (Ok(()), Ok(()))
        );
        assert!(l.take("a", Steady(1000)).is_err());
        l.set(60);
        assert_eq!(l.take("a", Steady(2000)), Ok(()));
    }

    #[test]
    fn keys_are_bounded_and_newcomers_beyond_share_a_bucket() {
        let l = Limiter::new(6, 2);
        for key in 0..2 {
            l.take(key, Steady(0)).unwrap();
        }
        for key in 2..8 {
            l.take(key, Steady(0)).unwrap();
        }
        assert!(l.take(9, Steady(0)).is_err());
        assert_eq!(l.take(0, Steady(0)), Ok(()), "those who were there keep theirs");
        // A minute later the idle ones are forgotten and make room.
        assert_eq!(l.take(10, Steady(61_000)), Ok(()));
        assert!(len(&l) <= 2);
    }

    #[test]
    fn a_crowd_of_newcomers_does_not_have_all_buckets_gone_through_each_time() {
        let l = Limiter::new(6, 1);
        l.take("a", Steady(10_000)).unwrap();
        // It is full again ten seconds later, when there is a look.
        l.take("b", Steady(10_000)).unwrap();
        assert_eq!(l.buckets.lock().unwrap().looked_at_ms, 10_000);
        l.take("c", Steady(20_500)).unwrap();
        assert!(has(&l, &"c"));
        l.take("d", Steady(31_000)).unwrap();
        l.take("e", Steady(31_001)).unwrap();
        assert_eq!(l.buckets.lock().unwrap().looked_at_ms, 31_000);
    }

    #[test]
    fn of_many_buckets_a_look_goes_through_a_part_however_many_could_be_forgotten() {
        let capacity = 4 * PART;
        let l = Limiter::new(6, capacity);
        for key in 0..capacity {
            l.take(key, Steady(0)).unwrap();
        }
        assert_eq!(len(&l), capacity);
        l.take(capacity, Steady(61_000)).unwrap();
        assert!(has(&l, &capacity));
        let left = len(&l);
        assert!((capacity / 2..capacity).contains(&left), "{left}");
    }

    #[test]
    fn a_bucket_that_can_be_forgotten_is_found_by_as_many_newcomers_as_there_are_parts() {
        let capacity = 4 * PART;
        let l = Limiter::new(6, capacity);
        l.take(0, Steady(0)).unwrap();
        for key in 1..capacity {
            l.take(key, Steady(60_000)).unwrap();
        }
        // The first alone is full again, and one of these takes its place.
        let newcomers = capacity..capacity + 4;
        for (key, at) in newcomers.clone().zip([61_000, 61_250, 61_500, 61_750]) {
            l.take(key, Steady(at)).unwrap();
        }
        assert!(!has(&l, &0));
        assert_eq!(newcomers.filter(|key| has(&l, key)).count(), 1);
        assert_eq!(len(&l), capacity);
    }

    #[test]
    fn a_bucket_that_is_held_stays_in_bounded_memory_and_is_forgotten_once_nobody_holds_it() {
        let l = Limiter::new(6, 2);
        let held = [OnceLock::new(), OnceLock::new()];
        for (key, held) in held.iter().enumerate() {
            l.take_held(held, || key, Steady(0)).unwrap();
        }
        // They are full again, and there is no room all the same: newcomers share a bucket and hold none.
        let newcomer = OnceLock::new();
        for key in 2..8 {
            l.take_held(&newcomer, || key, Steady(61_000)).unwrap();
        }
        assert!(l.take_held(&newcomer, || 8, Steady(61_000)).is_err());
        assert!(newcomer.get().is_none() && len(&l) == 2);
        // Whoever comes by the key takes from what is held.
        for _ in 0..6 {
            l.take(0, Steady(61_000)).unwrap();
        }
        assert!(l.take_held(&held[0], || 0, Steady(61_000)).is_err());
        assert_eq!(l.take_held(&held[1], || 1, Steady(61_000)), Ok(()));
        drop(held);
        assert_eq!(l.take_held(&newcomer, || 9, Steady(122_000)), Ok(()));
        assert!(newcomer.get().is_some() && len(&l) == 1);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let ip = |s: &str| network(s.parse().unwrap());
        assert_eq!(ip("2001:db8:1:2::1"), ip("2001:db8:1:2:ffff::9"));
        assert_ne!(ip("2001:db8:1:2::1"), ip("2001:db8:1:3::1"));
        assert_ne!(ip("10.0.0.1"), ip("10.0.0.2"));
        assert_eq!(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
    }

    #[test]
    fn what_is_told_late_gives_nothing_away() {
        let l = Limiter::new(6, 2);
        for _ in 0..6 {
            l.take(1, Steady(100_000)).unwrap();
        }
        assert!(l.take(1, Steady(0)).is_err());
        assert!(l.take(1, Steady(100_000)).is_err());
    }
}
