use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::WaitAnswer;
use tokio::sync::{Notify, broadcast, oneshot};

type Key = (ClusterId, NodeId);

/// Ends and progress that wait to be read by who watches.
const NEWS: usize = 1024;

/// Nodes that wait for tasks: woken when something is there for them, and never looking by themselves.
#[derive(Debug)]
pub struct Waiters {
    inner: Mutex<Inner>,
    news: broadcast::Sender<(ClusterId, TaskId)>,
}

#[derive(Debug, Default)]
struct Inner {
    parked: HashMap<Key, Place>,
    next: u64,
    ended: bool,
}

#[derive(Debug)]
struct Place {
    session: u64,
    wake: Arc<Notify>,
    /// What it has been given, and has not taken yet.
    given: Option<Box<Given>>,
}

/// What a node is given. Whoever gives it hears that it was taken, or that it was dropped.
#[derive(Debug)]
pub struct Given {
    answer: WaitAnswer,
    taken: oneshot::Sender<()>,
}

impl Given {
    /// It goes out to the node.
    #[must_use]
    pub fn take(self) -> WaitAnswer {
        // Who gave it may have been stopped.
        let _unheard = self.taken.send(());
        self.answer
    }
}

/// A place; given back when dropped.
#[derive(Debug)]
pub struct Parked {
    waiters: Arc<Waiters>,
    key: Key,
    session: u64,
    wake: Arc<Notify>,
}

/// Why a node that waits was woken.
#[derive(Debug)]
pub enum Woken {
    /// Something may be there.
    Look,
    /// This is there.
    Given(Box<Given>),
    /// A newer connection of the same node waits now.
    Superseded,
    /// Nobody waits here any more.
    Ended,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            news: broadcast::channel(NEWS).0,
        }
    }
}

impl Waiters {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a node; whoever waited for it before is told. A wake-up that comes from here on is not lost.
    #[must_use]
    pub fn park(self: &Arc<Self>, cluster: &ClusterId, node: &NodeId) -> Parked {
        let key = (cluster.clone(), node.clone());
        let wake = Arc::new(Notify::new());
        let mut inner = self.inner();
        let session = inner.next;
        inner.next = inner.next.wrapping_add(1);
        let before = inner.parked.remove(&key);
        let (given, earlier) = before.map_or((None, None), |p| (p.given, Some(p.wake)));
        if inner.ended || given.is_some() {
            wake.notify_one();
        }
        let place = Place {
            session,
            wake: Arc::clone(&wake),
            given,
        };
        inner.parked.insert(key.clone(), place);
        drop(inner);
        if let Some(earlier) = earlier {
            earlier.notify_one();
        }
        Parked {
            waiters: Arc::clone(self),
            key,
            session,
            wake,
        }
    }

    /// Wakes a node; whether one waits.
    pub fn wake(&self, cluster: &ClusterId, node: &NodeId) -> bool {
        let inner = self.inner();
        let place = inner.parked.get(&(cluster.clone(), node.clone()));
        place.inspect(|p| p.wake.notify_one()).is_some()
    }

    /// Whether this node waits.
    #[must_use]
    pub fn waits(&self, cluster: &ClusterId, node: &NodeId) -> bool {
        let inner = self.inner();
        !inner.ended && inner.parked.contains_key(&(cluster.clone(), node.clone()))
    }

    /// Gives a node that waits what is there for it; whether it has it then.
    pub async fn give(&self, cluster: &ClusterId, node: &NodeId, answer: WaitAnswer) -> bool {
        match self.put(cluster, node, answer) {
            // Who waits takes it, goes, or is followed by another one, to whom it passes.
            Some(taken) => taken.await.is_ok(),
            None => false,
        }
    }

    fn put(&self, cluster: &ClusterId, node: &NodeId, answer: WaitAnswer) -> Option<oneshot::Receiver<()>> {
        let mut inner = self.inner();
        if inner.ended {
            return None;
        }
        let place = inner.parked.get_mut(&(cluster.clone(), node.clone()));
        let place = place.filter(|p| p.given.is_none())?;
        let (taken, is_taken) = oneshot::channel();
        place.given = Some(Box::new(Given { answer, taken }));
        place.wake.notify_one();
        Some(is_taken)
    }

    /// Nobody waits any more from here on, as when the daemon stops.
    pub fn end(&self) {
        let mut inner = self.inner();
        inner.ended = true;
        inner.parked.values().for_each(|place| place.wake.notify_one());
    }

    /// Nodes that wait.
    #[must_use]
    pub fn nodes(&self) -> Vec<(ClusterId, NodeId)> {
        self.inner().parked.keys().cloned().collect()
    }

    /// How many nodes wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner().parked.len()
    }

    /// Says that something of a task has changed.
    pub fn tell(&self, cluster: &ClusterId, task: &TaskId) {
        // Nobody watches: nobody has to know.
        drop(self.news.send((cluster.clone(), task.clone())));
    }

    /// What changes from here on.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<(ClusterId, TaskId)> {
        self.news.subscribe()
    }
}

impl Parked {
    /// Ends when something may be there, somebody else waits for the node, or nobody is to wait any more.
    pub async fn woken(&self) -> Woken {
        self.wake.notified().await;
        if let Some(given) = self.given() {
            Woken::Given(given)
        } else if self.waiters.inner().ended {
            Woken::Ended
        } else if self.is_newest() {
            Woken::Look
        } else {
            Woken::Superseded
        }
    }

    /// What it has been given, once.
    #[must_use]
    pub fn given(&self) -> Option<Box<Given>> {
        let mut inner = self.waiters.inner();
        let place = inner.parked.get_mut(&self.key);
        place.filter(|p| p.session == self.session)?.given.take()
    }

    /// Whether no newer connection waits for the node.
    #[must_use]
    pub fn is_newest(&self) -> bool {
        let inner = self.waiters.inner();
        inner
            .parked
            .get(&self.key)
            .is_some_and(|p| p.session == self.session)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let mut inner = self.waiters.inner();
        if inner
            .parked
            .get(&self.key)
            .is_some_and(|p| p.session == self.session)
        {
            inner.parked.remove(&self.key);
        }
    }
}
