//! Groups that fill under load and wait for nothing without it.

use tokio::sync::mpsc;
use tokio::task::yield_now;

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

    #[tokio::test]
    async fn one_alone_waits_for_nobody_and_the_end_is_an_empty_group() {
        let (tx, mut rx) = mpsc::channel(10);
        tx.send(1).await.unwrap();
        assert_eq!(gather(&mut rx, 96).await, [1]);
        drop(tx);
        assert!(gather(&mut rx, 96).await.is_empty());
    }
}
