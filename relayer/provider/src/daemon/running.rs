//! Tasks that go on as long as the daemon does.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::task::JoinHandle;

/// Tasks under one supervision, each with its name.
#[derive(Debug, Default)]
pub(super) struct Running(Vec<(&'static str, JoinHandle<()>)>);

impl Running {
    /// Starts a task.
    pub(super) fn start(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.watch(name, [tokio::spawn(task)]);
    }

    /// Takes in tasks that were started.
    pub(super) fn watch(&mut self, name: &'static str, tasks: impl IntoIterator<Item = JoinHandle<()>>) {
        self.0.extend(tasks.into_iter().map(|task| (name, task)));
    }

    /// Ends when a task has, whether it returned or panicked; gives its name.
    pub(super) async fn ended(&mut self) -> &'static str {
        poll_fn(|cx| {
            let ended = self
                .0
                .iter_mut()
                .position(|(_, task)| Pin::new(task).poll(cx).is_ready());
            match ended {
                // It is not asked again.
                Some(at) => Poll::Ready(self.0.swap_remove(at).0),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// The tasks that go on.
    pub(super) fn into_tasks(self) -> Vec<(&'static str, JoinHandle<()>)> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_or_returns_early_is_named_and_the_others_go_on() {
        let mut running = Running::default();
        running.start("one that goes on", pending());
        running.start("one that panics", async { panic!("on purpose") });
        assert_eq!(running.ended().await, "one that panics");
        running.start("one that returns", async {});
        assert_eq!(running.ended().await, "one that returns");
        let more = timeout(Duration::from_millis(50), running.ended()).await;
        assert!(more.is_err(), "{more:?}");
        let left: Vec<_> = running.into_tasks().into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["one that goes on"]);
    }

    #[tokio::test]
    async fn a_look_that_was_broken_off_loses_no_end() {
        let mut running = Running::default();
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        running.watch("a task", [tokio::spawn(async move { drop(told.await) })]);
        assert!(timeout(Duration::from_millis(20), running.ended()).await.is_err());
        drop(tell);
        assert_eq!(running.ended().await, "a task");
    }

    #[tokio::test]
    async fn without_tasks_nothing_ends() {
        let mut running = Running::default();
        assert!(timeout(Duration::from_millis(20), running.ended()).await.is_err());
    }
}
