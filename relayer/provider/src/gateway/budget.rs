use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Places for connections, bounded in all and for each key. There is always room for a newcomer: when its key has
/// no place left, the key's oldest connection goes; when nobody has, the oldest of the key that holds the most.
/// Whoever opens thousands pushes out his own, and nobody else.
#[derive(Debug)]
pub(crate) struct Budget<K> {
    total: usize,
    per_key: AtomicUsize,
    inner: Mutex<Inner<K>>,
}

#[derive(Debug)]
struct Inner<K> {
    places: HashMap<K, VecDeque<(u64, oneshot::Sender<()>)>>,
    count: usize,
    next: u64,
}

/// A place of whatever kind, held; comes when somebody else needs it.
pub(crate) type Held = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place<K: Eq + Hash> {
    budget: Arc<Budget<K>>,
    key: K,
    id: u64,
    taken: oneshot::Receiver<()>,
}

impl<K: Eq + Hash + Clone> Budget<K> {
    pub(crate) fn new(total: usize, per_key: usize) -> Arc<Self> {
        Arc::new(Self {
            total: total.max(1),
            per_key: AtomicUsize::new(per_key.max(1)),
            inner: Mutex::new(Inner {
                places: HashMap::new(),
                count: 0,
                next: 0,
            }),
        })
    }

    /// Another number of places for each from now on: whoever holds more gives them up as it takes others.
    pub(super) fn set_per_key(&self, per_key: usize) {
        self.per_key.store(per_key.max(1), Ordering::Relaxed);
    }

    /// A place for `key`, and whose connection had to go for it.
    pub(crate) fn take(self: &Arc<Self>, key: K) -> (Place<K>, Option<K>) {
        let (sender, taken) = oneshot::channel();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let victim = if inner.held(&key) >= self.per_key.load(Ordering::Relaxed) {
            Some(key.clone())
        } else if inner.count >= self.total {
            let largest = inner.places.iter().max_by_key(|(_, q)| q.len());
            largest.map(|(k, _)| k.clone())
        } else {
            None
        };
        if let Some(victim) = &victim {
            inner.evict_oldest(victim);
        }
        let id = inner.next;
        inner.next = inner.next.wrapping_add(1);
        inner.count += 1;
        inner
            .places
            .entry(key.clone())
            .or_default()
            .push_back((id, sender));
        drop(inner);
        let place = Place {
            budget: Arc::clone(self),
            key,
            id,
            taken,
        };
        (place, victim)
    }
}

impl<K: Eq + Hash> Inner<K> {
    fn held(&self, key: &K) -> usize {
        self.places.get(key).map_or(0, VecDeque::len)
    }

    fn evict_oldest(&mut self, key: &K) {
        let Some(queue) = self.places.get_mut(key) else {
            return;
        };
        // Dropping the sender tells the connection.
        if queue.pop_front().is_some() {
            self.count -= 1;
        }
        if queue.is_empty() {
            self.places.remove(key);
        }
    }

    fn release(&mut self, key: &K, id: u64) {
        let Some(queue) = self.places.get_mut(key) else {
            return;
        };
        let before = queue.len();
        queue.retain(|(i, _)| *i != id);
        self.count -= before - queue.len();
        if queue.is_empty() {
            self.places.remove(key);
        }
    }
}

impl<K: Eq + Hash> Place<K> {
    /// Ends when somebody else needs the place.
    pub(super) async fn taken(&mut self) {
        drop((&mut self.taken).await);
    }

    /// The same, for whoever holds places of other kinds as well; the place is given back with this.
    pub(crate) fn held(mut self) -> Held
    where
        K: Send + 'static,
    {
        Box::pin(async move { self.taken().await })
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut inner = self.budget.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.release(&self.key, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone<K: Eq + Hash>(place: &mut Place<K>) -> bool {
        place.taken.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn who_opens_too_many_pushes_out_his_own_oldest_and_nobody_else() {
        let budget = Budget::new(8, 3);
        let (mut quiet, _) = budget.take("node");
        let mut greedy: Vec<_> = (0..20).map(|_| budget.take("greedy").0).collect();
        assert!(!gone(&mut quiet));
        let open = greedy.iter_mut().map(gone).filter(|g| !g).count();
        assert_eq!(open, 3);
        assert!(!gone(greedy.last_mut().unwrap()), "the newest stays");
    }

    #[test]
    fn when_all_places_are_taken_the_largest_holder_gives_one_up() {
        let budget = Budget::new(4, 3);
        let (mut a, _) = budget.take(1);
        let mut many: Vec<_> = (0..3).map(|_| budget.take(2).0).collect();
        let (mut newcomer, victim) = budget.take(3);
        assert_eq!(victim, Some(2));
        assert!(gone(&mut many[0]) && !gone(&mut many[1]));
        assert!(!gone(&mut a) && !gone(&mut newcomer));
    }

    #[test]
    fn a_place_given_back_is_free_again_and_nothing_is_remembered() {
        let budget = Budget::new(2, 1);
        for key in 0..100 {
            let (place, victim) = budget.take(key);
            assert_eq!(victim, None);
            drop(place);
        }
        let inner = budget.inner.lock().unwrap();
        assert!(inner.places.is_empty() && inner.count == 0);
    }

    #[test]
    fn an_evicted_place_that_is_dropped_later_frees_nothing_twice() {
        let budget = Budget::new(1, 1);
        let (old, _) = budget.take("a");
        let (new, victim) = budget.take("a");
        assert_eq!(victim, Some("a"));
        drop(old);
        assert_eq!(budget.inner.lock().unwrap().count, 1);
        drop(new);
        assert_eq!(budget.inner.lock().unwrap().count, 0);
    }
}
