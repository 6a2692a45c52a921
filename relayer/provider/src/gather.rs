//! Groups that fill under load and wait for nothing without it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

/// Waits for one and takes with it all that tasks which are ready to run bring, at most `most`: under load that is a
/// group, else one at once. Nothing only at the queue's end.
pub(crate) async fn gather<T>(queue: &mut mpsc::Receiver<T>, most: usize) -> Vec<T> {
    let mut group = Vec::new();
    queue.recv_many(&mut group, most).await;
    let mut before = 0;
    while before < group.len() && group.len() < most {
        before = group.len();
        yield_now().await;
        while group.len() < most
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
    }
    group
}

/// After a large group the next waits for so long to be full: under full load what a group costs as such is shared by more.
/// After a small one nobody waits for others.
#[derive(Debug)]
pub(crate) struct Paced {
    every: Duration,
    large: usize,
    until: Option<Instant>,
}

impl Paced {
    /// A group of `large` and more is large; `every` is the time from one to the next.
    pub(crate) fn new(every: Duration, large: usize) -> Self {
        Self {
            every,
            large,
            until: None,
        }
    }

    /// As [`gather`].
    pub(crate) async fn gather<T>(&mut self, queue: &mut mpsc::Receiver<T>, most: usize) -> Vec<T> {
        let mut group = gather(queue, most).await;
        if let Some(until) = self.until {
            while !group.is_empty() && group.len() < most && Instant::now() < until {
                let left = most.saturating_sub(group.len());
                match timeout_at(until, queue.recv_many(&mut group, left)).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
        }
        let large = group.len() >= self.large;
        self.until = Instant::now().checked_add(self.every).filter(|_| large);
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_ready_to_run_goes_into_the_same_group() {
        let (tx, mut rx) = mpsc::channel(1000);
        for n in 0..200 {
            let tx = tx.clone();
            tokio::spawn(async move { tx.send(n).await.unwrap() });
        }
        assert_eq!(gather(&mut rx, 96).await.len(), 96);
        assert_eq!(gather(&mut rx, 96).await.len(), 96);
        assert_eq!(gather(&mut rx, 96).await.len(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_large_group_the_next_waits_to_be_full_and_after_a_small_one_nobody_waits() {
        let (tx, mut rx) = mpsc::channel(1000);
        let mut paced = Paced::new(Duration::from_millis(2), 24);
        let began = Instant::now();
        let send = async |count: usize| {
            for n in 0..count {
                tx.send(n).await.unwrap();
            }
        };
        for _ in 0..3 {
            send(23).await;
            assert_eq!(paced.gather(&mut rx, 96).await.len(), 23);
        }
        send(24).await;
        assert_eq!(paced.gather(&mut rx, 96).await.len(), 24);
        assert_eq!(began.elapsed(), Duration::ZERO);

        send(5).await;
        let later = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            send(6).await;
        };
        let (next, ()) = tokio::join!(paced.gather(&mut rx, 96), later);
        assert_eq!((next.len(), began.elapsed()), (11, Duration::from_millis(2)));

        send(30).await;
        assert_eq!(paced.gather(&mut rx, 96).await.len(), 30);
        send(97).await;
        assert_eq!(
            paced.gather(&mut rx, 96).await.len(),
            96,
            "a full one goes at once"
        );
        assert_eq!(began.elapsed(), Duration::from_millis(2));
    }

    #[tokio::test]
    async fn one_alone_waits_for_nobody_and_the_end_is_an_empty_group() {
        let (tx, mut rx) = mpsc::channel(10);
        tx.send(1).await.unwrap();
        assert_eq!(gather(&mut rx, 96).await, [1]);
        drop(tx);
        assert!(gather(&mut rx, 96).await.is_empty());
    }
}
