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

/// Groups that are not full follow each other no faster than this: what a group costs as such is shared by more, and whoever
/// comes alone waits for nobody.
#[derive(Debug)]
pub(crate) struct Paced {
    every: Duration,
    last: Option<Instant>,
}

impl Paced {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, last: None }
    }

    /// As [`gather`].
    pub(crate) async fn gather<T>(&mut self, queue: &mut mpsc::Receiver<T>, most: usize) -> Vec<T> {
        let mut group = gather(queue, most).await;
        if let Some(until) = self.last.and_then(|last| last.checked_add(self.every)) {
            while !group.is_empty() && group.len() < most && Instant::now() < until {
                let left = most.saturating_sub(group.len());
                match timeout_at(until, queue.recv_many(&mut group, left)).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
        }
        self.last = Some(Instant::now());
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
    async fn groups_that_are_not_full_keep_their_distance_and_full_ones_do_not_wait() {
        let (tx, mut rx) = mpsc::channel(1000);
        let mut paced = Paced::new(Duration::from_millis(2));
        let began = Instant::now();
        tx.send(0).await.unwrap();
        assert_eq!(paced.gather(&mut rx, 96).await.len(), 1);
        assert_eq!(began.elapsed(), Duration::ZERO);
        let more = tokio::spawn(async move {
            for n in 0..3 {
                tx.send(n).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for n in 0..96 {
                tx.send(n).await.unwrap();
            }
        });
        let second = paced.gather(&mut rx, 96).await.len();
        assert!((2..=3).contains(&second), "{second}");
        assert_eq!(began.elapsed(), Duration::from_millis(2));
        let full = paced.gather(&mut rx, 96).await.len();
        assert!(
            full >= 96 || began.elapsed() <= Duration::from_millis(4),
            "{full}"
        );
        more.await.unwrap();
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
