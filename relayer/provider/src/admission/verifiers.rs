//! Work in micro-batches: what came in while the last batch was being worked on is read one after the other, which keeps the
//! code that does it near, and then its signatures are verified together.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::yield_now;

use super::signatures::{BATCH, Signatures, verify};
use crate::gather::Paced;
use crate::store::StoreError;

/// Cases that may wait; more are turned away.
const QUEUE: usize = 4096;
/// From one batch to the next where as many as [`LARGE`] come: those of one batch are also stored together, and each
/// sync of the disk costs more than what it stores.
const PACE: Duration = Duration::from_millis(2);
const LARGE: usize = 24;
/// So many are refused before others have their turn: each of them is read once more, and verified by itself.
const REFUSED: usize = 8;
/// Up to so many are worked on where they are gathered: another thread and the way back cost as much.
const HERE: usize = 2;

/// What is signed, as it came.
pub(super) trait Case: Send + 'static {
    /// What is left of it while its signatures are verified.
    type Read: Pending;

    /// Reads it. None: nothing that is signed decides any more, and whoever waits for it has been told.
    fn read(self) -> Option<(Signatures, Self::Read)>;

    /// Nobody works on it.
    fn turn_away(self, why: StoreError);
}

/// What is done once it is known whether all signatures of one are good.
pub(super) trait Pending: Send + 'static {
    /// They are.
    fn go_on(self);

    /// One is not, which may take longer.
    fn refuse(self);
}

/// A batch for a thread, and its right to a thread.
struct Batch<C: Case> {
    cases: Vec<C>,
    good: oneshot::Sender<Vec<C::Read>>,
    place: OwnedSemaphorePermit,
}

/// Who reads and verifies. They end when the last clone is gone.
#[derive(Debug)]
pub(super) struct Verifiers<C>(mpsc::Sender<C>);

impl<C> Clone for Verifiers<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Case> Verifiers<C> {
    /// Starts one thread for each CPU that this process may use; within a runtime.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start() -> std::io::Result<Self> {
        Self::on(thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// On a single CPU a thread of its own would only take turns with those who wait for it: it is done where it is
    /// gathered.
    pub(super) fn on(cpus: usize) -> std::io::Result<Self> {
        let (tx, rx) = mpsc::channel(QUEUE);
        if cpus < 2 {
            tokio::spawn(work_here(rx));
            return Ok(Self(tx));
        }
        // As many as there are places for.
        let (batches, taken) = std::sync::mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        let threads = cpus;
        for _ in 0..threads {
            let taken = Arc::clone(&taken);
            thread::Builder::new().name("verify".into()).spawn(move || {
                while let Some(batch) = next(&taken) {
                    answer(batch);
                }
            })?;
        }
        tokio::spawn(hand_out(rx, batches, Arc::new(Semaphore::new(threads))));
        Ok(Self(tx))
    }

    /// Has one worked on, soon. It is turned away if too many wait ([`StoreError::Busy`]) or nobody works
    /// ([`StoreError::Stopped`]).
    pub(super) fn take(&self, case: C) {
        match self.0.try_send(case) {
            Ok(()) => {}
            Err(TrySendError::Full(case)) => case.turn_away(StoreError::Busy),
            Err(TrySendError::Closed(case)) => case.turn_away(StoreError::Stopped),
        }
    }

    /// Ends when nobody works any more.
    pub(super) async fn ended(&self) {
        self.0.closed().await;
    }
}

/// Reads all of them, and verifies what is signed: the good ones, and the bad ones.
fn work<C: Case>(cases: Vec<C>) -> (Vec<C::Read>, Vec<C::Read>) {
    let read = cases.into_iter().filter_map(|case| alone(|| case.read())?);
    let (signatures, read): (Vec<_>, Vec<_>) = read.unzip();
    let (mut good, mut bad) = (Vec::with_capacity(read.len()), Vec::new());
    for (read, is_good) in read.into_iter().zip(verify(&signatures)) {
        if is_good { good.push(read) } else { bad.push(read) }
    }
    (good, bad)
}

fn go_on<R: Pending>(good: Vec<R>) {
    for read in good {
        alone(|| read.go_on());
    }
}

fn refuse<R: Pending>(bad: impl IntoIterator<Item = R>) {
    for read in bad {
        alone(|| read.refuse());
    }
}

/// What one stumbles over is no affair of the others. It is dropped, which whoever waits for it sees.
fn alone<T>(call: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(call)).ok();
    if done.is_none() {
        tracing::error!(
            "a heartbeat could not be judged, and its node is told to come again: report this fault of the program, with the \
             panic that stands before this line"
        );
    }
    done
}

async fn work_here<C: Case>(mut queue: mpsc::Receiver<C>) {
    let mut paced = Paced::new(PACE, LARGE);
    loop {
        let cases = paced.gather(&mut queue, BATCH).await;
        if cases.is_empty() {
            return;
        }
        let (good, mut bad) = work(cases);
        go_on(good);
        // Those who have their answer, and what is stored of them, come before the next batch.
        yield_now().await;
        while !bad.is_empty() {
            refuse(bad.drain(..bad.len().min(REFUSED)));
            yield_now().await;
        }
    }
}

/// A batch whenever a thread is free: of what has come in meanwhile, and what those who are ready to run bring.
async fn hand_out<C: Case>(
    mut queue: mpsc::Receiver<C>,
    batches: std::sync::mpsc::Sender<Batch<C>>,
    places: Arc<Semaphore>,
) {
    let mut paced = Paced::new(PACE, LARGE);
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let cases = paced.gather(&mut queue, BATCH).await;
        if cases.is_empty() {
            return;
        }
        if cases.len() <= HERE {
            let (good, bad) = work(cases);
            go_on(good);
            refuse(bad);
            continue;
        }
        let (good, told) = oneshot::channel();
        if batches.send(Batch { cases, good, place }).is_err() {
            return;
        }
        // One wake-up across threads for all of them.
        tokio::spawn(async move { go_on(told.await.unwrap_or_default()) });
    }
}

fn next<C: Case>(batches: &Mutex<std::sync::mpsc::Receiver<Batch<C>>>) -> Option<Batch<C>> {
    batches.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn answer<C: Case>(batch: Batch<C>) {
    let (good, bad) = work(batch.cases);
    let _unheard = batch.good.send(good);
    refuse(bad);
    drop(batch.place);
}

#[cfg(test)]
mod tests {
    use super::super::signatures::tests::signed;
    use super::*;

    /// Says whether it was good, or why nobody has worked on it.
    #[derive(Debug)]
    struct Asked(Option<Signatures>, Say);

    #[derive(Debug)]
    struct Say(oneshot::Sender<Result<bool, StoreError>>);

    impl Case for Asked {
        type Read = Say;

        fn read(self) -> Option<(Signatures, Say)> {
            Some((self.0?, self.1))
        }

        fn turn_away(self, why: StoreError) {
            self.1.turn_away(why);
        }
    }

    impl Say {
        fn turn_away(self, why: StoreError) {
            self.0.send(Err(why)).unwrap();
        }
    }

    impl Pending for Say {
        fn go_on(self) {
            self.0.send(Ok(true)).unwrap();
        }

        fn refuse(self) {
            self.0.send(Ok(false)).unwrap();
        }
    }

    fn ask(
        verifiers: &Verifiers<Asked>,
        signatures: Option<Signatures>,
    ) -> oneshot::Receiver<Result<bool, StoreError>> {
        let (say, said) = oneshot::channel();
        verifiers.take(Asked(signatures, Say(say)));
        said
    }

    #[tokio::test]
    async fn many_at_once_each_get_their_own_answer() {
        for cpus in [1, 2] {
            let verifiers = Verifiers::on(cpus).unwrap();
            let asked = (0..500u16).map(|n| {
                let verifiers = verifiers.clone();
                let spoilt = n % 7 == 0;
                let signatures = signed(u8::try_from(n % 50).unwrap() + 1, &n.to_be_bytes(), spoilt);
                // Some are over once they are read.
                let signatures = (n % 11 != 0).then_some(signatures);
                let expected = signatures.as_ref().map(|_| !spoilt);
                tokio::spawn(async move { (ask(&verifiers, signatures).await, expected) })
            });
            for task in asked.collect::<Vec<_>>() {
                let (said, expected) = task.await.unwrap();
                assert_eq!(said.ok().map(Result::unwrap), expected);
            }
        }
    }

    /// Where it panics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum At {
        Reading,
        GoingOn,
        Refusing,
        Nowhere,
    }

    struct Stumbles(At, Signatures, Say);

    impl Case for Stumbles {
        type Read = (At, Say);

        fn read(self) -> Option<(Signatures, (At, Say))> {
            assert_ne!(self.0, At::Reading, "on purpose");
            Some((self.1, (self.0, self.2)))
        }

        fn turn_away(self, why: StoreError) {
            self.2.turn_away(why);
        }
    }

    impl Pending for (At, Say) {
        fn go_on(self) {
            assert_ne!(self.0, At::GoingOn, "on purpose");
            self.1.go_on();
        }

        fn refuse(self) {
            assert_ne!(self.0, At::Refusing, "on purpose");
            self.1.refuse();
        }
    }

    #[tokio::test]
    async fn what_one_stumbles_over_is_no_affair_of_the_others_and_of_those_who_come_later() {
        let kinds = [
            (At::Reading, false),
            (At::GoingOn, false),
            (At::Refusing, true),
            (At::Nowhere, false),
            (At::Nowhere, true),
        ];
        for (cpus, count) in [(1, 1), (1, 50), (2, 1), (2, 50)] {
            let verifiers = Verifiers::on(cpus).unwrap();
            // Of each kind, and more often than there are threads.
            for first in 0..kinds.len() {
                let asked = (first..first + count).map(|n| {
                    let (at, spoilt) = kinds[n % kinds.len()];
                    let (say, said) = oneshot::channel();
                    verifiers.take(Stumbles(at, signed(1, b"m", spoilt), Say(say)));
                    (at, spoilt, said)
                });
                for (at, spoilt, said) in asked.collect::<Vec<_>>() {
                    let said = said.await.ok().map(Result::unwrap);
                    assert_eq!(said, (at == At::Nowhere).then_some(!spoilt), "{at:?}");
                }
            }
        }
    }

    /// Notes its number when it goes on or is refused.
    struct Numbered(usize, Signatures, Arc<Mutex<Vec<usize>>>);

    impl Case for Numbered {
        type Read = (usize, Arc<Mutex<Vec<usize>>>);

        fn read(self) -> Option<(Signatures, Self::Read)> {
            Some((self.1, (self.0, self.2)))
        }

        fn turn_away(self, why: StoreError) {
            panic!("{why}");
        }
    }

    impl Pending for (usize, Arc<Mutex<Vec<usize>>>) {
        fn go_on(self) {
            self.1.lock().unwrap().push(self.0);
        }

        fn refuse(self) {
            self.go_on();
        }
    }

    #[tokio::test]
    async fn the_good_ones_of_a_batch_come_before_the_bad_ones() {
        let noted = Arc::new(Mutex::new(Vec::new()));
        let case = |n: usize| Numbered(n, signed(1, b"m", n.is_multiple_of(2)), Arc::clone(&noted));
        let expected = [1, 3, 5, 7, 0, 2, 4, 6];
        let verifiers = Verifiers::on(1).unwrap();
        (0..8).for_each(|n| verifiers.take(case(n)));
        while noted.lock().unwrap().len() < expected.len() {
            yield_now().await;
        }
        assert_eq!(*noted.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn who_finds_no_place_or_nobody_at_work_is_turned_away_at_once() {
        let verifiers = Verifiers::on(1).unwrap();
        // Nobody works them off before this test waits.
        let waiting: Vec<_> = (0..QUEUE).map(|_| ask(&verifiers, Some(Vec::new()))).collect();
        let turned_away = ask(&verifiers, Some(Vec::new())).try_recv().unwrap();
        assert!(matches!(turned_away, Err(StoreError::Busy)), "{turned_away:?}");
        for said in waiting {
            assert!(said.await.unwrap().unwrap());
        }

        let (tx, rx) = mpsc::channel(1);
        drop(rx);
        let turned_away = ask(&Verifiers(tx), Some(Vec::new())).try_recv().unwrap();
        assert!(matches!(turned_away, Err(StoreError::Stopped)), "{turned_away:?}");
    }
}
