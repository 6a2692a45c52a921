//! Verification of signatures in micro-batches: those of all heartbeats that came in while the last batch was being
//! verified go together, which costs half of one after the other. ZIP-215 makes both ways agree on every signature.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ed25519_zebra::batch::{Item, Verifier as Together};
use ed25519_zebra::{Signature, VerificationKeyBytes};
use hpc_schema::key::Verifier;
use rand_core::{CryptoRng, RngCore};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::yield_now;

use crate::fault;
use crate::gather::Paced;
use crate::spool::{Accept, Accepted, Reply, Spool};
use crate::store::StoreError;

/// Heartbeats that may wait to be verified; more get `503` and come again.
const QUEUE: usize = 4096;
/// Heartbeats of one batch: two signatures of one key each. More gain little and make the first wait longer.
pub const BATCH: usize = 96;
/// From one batch to the next where as many as [`LARGE`] come: those of one batch are also stored together, and each
/// sync of the disk costs more than what it stores.
const PACE: Duration = Duration::from_millis(2);
const LARGE: usize = 24;
/// Up to so many heartbeats are verified where they are gathered: another thread and the way back cost as much.
const HERE: usize = 2;
/// Signatures of a heartbeat: over its payload, and over its report.
const SIGNED: usize = 2;
/// Up to so many signatures are as fast one by one.
const SINGLY: usize = 3;

/// Signatures of one heartbeat, their messages hashed already.
pub type Signatures = Vec<Item>;

type Asked = (Signatures, Then);

/// What is done once it is known whether the signatures of a heartbeat are good.
#[derive(Debug)]
enum Then {
    /// Whoever asked hears of it.
    Tell(oneshot::Sender<bool>),
    /// What is good goes on to be stored at once, without whoever asked, who hears what became of it; of what is not, nothing.
    Store(Spool, Box<Accept>, Reply),
}

impl Then {
    fn go_on(self, good: bool) {
        match self {
            // Whoever asked may have gone.
            Self::Tell(reply) => drop(reply.send(good)),
            // Nothing is stored for who waits no more: the same request may come again.
            Self::Store(spool, accept, reply) if good && !reply.is_closed() => {
                fault::point("admit.verified");
                spool.put(accept, reply);
            }
            Self::Store(..) => {}
        }
    }
}

/// A batch for a thread, and its right to a thread.
struct Batch {
    heartbeats: Vec<Signatures>,
    verdicts: oneshot::Sender<Vec<bool>>,
    place: OwnedSemaphorePermit,
}

/// Notes what a judge wants verified and says yes to all of it: the answer counts only once the notes have been verified.
#[derive(Debug, Default)]
pub struct Notes(RefCell<(Signatures, bool)>);

impl Notes {
    /// What was noted; none if something cannot even be a key or signature.
    #[must_use]
    pub fn into_signatures(self) -> Option<Signatures> {
        let (signatures, unreadable) = self.0.into_inner();
        (!unreadable).then_some(signatures)
    }
}

impl Verifier for Notes {
    fn verify(&self, message: &[u8], signature: &[u8], public_key: &[u8]) -> bool {
        let (signatures, unreadable) = &mut *self.0.borrow_mut();
        match (
            VerificationKeyBytes::try_from(public_key),
            Signature::try_from(signature),
        ) {
            (Ok(key), Ok(signature)) => signatures.push(Item::from((key, signature, message))),
            _ => *unreadable = true,
        }
        true
    }

    fn verify_batch(&self, messages: &[&[u8]], signatures: &[&[u8]], public_keys: &[&[u8]]) -> bool {
        let triples = messages.iter().zip(signatures).zip(public_keys);
        triples.fold(true, |all, ((m, s), k)| self.verify(m, s, k) && all)
    }
}

/// Whether each of these heartbeats is signed: all at once, and one by one only if that fails.
#[must_use]
pub fn verify(heartbeats: &[Signatures]) -> Vec<bool> {
    let count: usize = heartbeats.iter().map(Vec::len).sum();
    if count > SINGLY && together(heartbeats) {
        return vec![true; heartbeats.len()];
    }
    let one = |signatures: &Signatures| signatures.iter().all(|s| s.clone().verify_single().is_ok());
    heartbeats.iter().map(one).collect()
}

fn together(heartbeats: &[Signatures]) -> bool {
    let mut batch = Together::new();
    for signature in heartbeats.iter().flatten() {
        batch.queue(signature.clone());
    }
    batch.verify(Random(rand::rng())).is_ok()
}

/// The process's random generator under the traits of the signature library.
struct Random(rand::rngs::ThreadRng);

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        rand::RngCore::next_u32(&mut self.0)
    }

    fn next_u64(&mut self) -> u64 {
        rand::RngCore::next_u64(&mut self.0)
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        rand::RngCore::fill_bytes(&mut self.0, dest);
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}

// rand's thread generator is one: ChaCha12, reseeded by the operating system.
impl CryptoRng for Random {}

/// Who verifies. It ends when the last clone is gone.
#[derive(Debug, Clone)]
pub struct Verifiers(mpsc::Sender<Asked>);

impl Verifiers {
    /// Starts one thread for each CPU that this process may use; within a runtime.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start() -> std::io::Result<Self> {
        Self::on(thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// On a single CPU a thread of its own would only take turns with those who wait for it: it is done where it is
    /// gathered.
    pub(super) fn on(cpus: usize) -> std::io::Result<Self> {
        let (tx, rx) = mpsc::channel(QUEUE);
        if cpus < 2 {
            tokio::spawn(verify_here(rx));
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

    /// Whether all signatures of a heartbeat are good; none if too many wait.
    pub async fn verify(&self, signatures: Signatures) -> Option<bool> {
        let (tx, rx) = oneshot::channel();
        self.0.try_send((signatures, Then::Tell(tx))).ok()?;
        rx.await.ok()
    }

    /// Has a report stored if both signatures of its heartbeat are good; returns once it is durable. None if they are not, or
    /// nobody is left to verify or store it.
    pub async fn store(
        &self,
        signatures: Signatures,
        spool: &Spool,
        accept: Box<Accept>,
    ) -> Option<Result<Accepted, StoreError>> {
        if signatures.len() < SIGNED {
            return None;
        }
        let (tx, rx) = oneshot::channel();
        let then = Then::Store(spool.clone(), accept, tx);
        match self.0.try_send((signatures, then)) {
            Ok(()) => rx.await.ok(),
            Err(TrySendError::Full(_)) => Some(Err(StoreError::Busy)),
            Err(TrySendError::Closed(_)) => Some(Err(StoreError::Stopped)),
        }
    }

    /// Ends when nobody verifies any more.
    pub async fn ended(&self) {
        self.0.closed().await;
    }
}

async fn verify_here(mut asked: mpsc::Receiver<Asked>) {
    let mut paced = Paced::new(PACE, LARGE);
    loop {
        let (heartbeats, then): (Vec<_>, Vec<_>) = paced.gather(&mut asked, BATCH).await.into_iter().unzip();
        if then.is_empty() {
            return;
        }
        go_on(then, verify(&heartbeats));
        // Those who have their answer, and what is stored of them, come before the next batch.
        yield_now().await;
    }
}

fn go_on(all: Vec<Then>, verdicts: Vec<bool>) {
    for (then, good) in all.into_iter().zip(verdicts) {
        then.go_on(good);
    }
}

/// A batch whenever a thread is free: of what has come in meanwhile, and what those who are ready to run bring.
async fn hand_out(
    mut asked: mpsc::Receiver<Asked>,
    batches: std::sync::mpsc::Sender<Batch>,
    places: Arc<Semaphore>,
) {
    let mut paced = Paced::new(PACE, LARGE);
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let (heartbeats, then): (Vec<_>, Vec<_>) = paced.gather(&mut asked, BATCH).await.into_iter().unzip();
        if then.is_empty() {
            return;
        }
        if then.len() <= HERE {
            go_on(then, verify(&heartbeats));
            continue;
        }
        let (verdicts, told) = oneshot::channel();
        let batch = Batch {
            heartbeats,
            verdicts,
            place,
        };
        if batches.send(batch).is_err() {
            return;
        }
        // One wake-up across threads for all of them.
        tokio::spawn(async move { go_on(then, told.await.unwrap_or_default()) });
    }
}

fn next(batches: &Mutex<std::sync::mpsc::Receiver<Batch>>) -> Option<Batch> {
    batches.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn answer(batch: Batch) {
    let _unheard = batch.verdicts.send(verify(&batch.heartbeats));
    drop(batch.place);
}

#[cfg(test)]
mod tests {
    use ed25519_zebra::SigningKey;
    use hpc_schema::heartbeat::verify_heartbeat;
    use proptest::prelude::*;

    use super::*;
    use crate::store::Store;
    use crate::vectors::Vectors;

    fn signed(seed: u8, message: &[u8], spoilt: bool) -> Signatures {
        let key = SigningKey::from([seed; 32]);
        let public = VerificationKeyBytes::from(&key);
        let mut bytes: [u8; 64] = key.sign(message).into();
        bytes[7] ^= u8::from(spoilt);
        let notes = Notes::default();
        assert!(notes.verify(message, &bytes, public.as_ref()));
        assert!(notes.verify(message, &<[u8; 64]>::from(key.sign(message)), public.as_ref()));
        notes.into_signatures().unwrap()
    }

    proptest! {
        #[test]
        fn in_a_batch_each_heartbeat_is_judged_as_it_would_be_alone(
            heartbeats in prop::collection::vec((1u8..9, any::<[u8; 4]>(), prop::bool::weighted(0.1)), 0..40)
        ) {
            let signatures: Vec<_> = heartbeats.iter().map(|(seed, m, spoilt)| signed(*seed, m, *spoilt)).collect();
            let expected: Vec<_> = heartbeats.iter().map(|(_, _, spoilt)| !spoilt).collect();
            prop_assert_eq!(verify(&signatures), expected);
        }
    }

    #[test]
    fn bytes_that_can_be_no_key_or_signature_are_told() {
        let notes = Notes::default();
        assert!(notes.verify(b"m", &[0; 63], &[0; 32]));
        assert!(notes.into_signatures().is_none());
        assert!(Notes::default().into_signatures().is_some_and(|s| s.is_empty()));
    }

    #[test]
    fn every_accepted_vector_is_verified_by_the_gateway_over_its_raw_bytes_and_no_other_signature_is() {
        let (mut noted, mut expected) = (Vec::new(), Vec::new());
        for (case, request, against) in Vectors::read().readable() {
            // As the judge does it: everything else first, then all signatures in one batch.
            let notes = Notes::default();
            let rest = verify_heartbeat(&request, &against, &notes);
            let wrong = case["result"]["code"] == "signature_invalid";
            match case["result"]["code"].as_str() {
                Some(code) if !wrong => assert_eq!(rest.unwrap_err().code.as_str(), code, "{case}"),
                _ => {
                    noted.push(notes.into_signatures().unwrap());
                    expected.push(!wrong);
                }
            }
        }
        assert!(expected.iter().filter(|good| **good).count() >= 2 && expected.contains(&false));
        assert_eq!(verify(&noted), expected);
    }

    #[tokio::test]
    async fn what_is_good_is_stored_and_of_anything_else_nothing() {
        for cpus in [1, 2] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(&dir.path().join("p.db")).await.unwrap();
            let (spool, writer) = Spool::start(store.clone(), None, Arc::default());
            let verifiers = Verifiers::on(cpus).unwrap();
            let accept = |node: usize| {
                let of = (
                    "hpc-cluster-1".parse().unwrap(),
                    format!("node-{node:04}").parse().unwrap(),
                );
                Box::new(Accept::new(of, (1, 7), ([1; 70], [2; 64]), 1))
            };
            let asked = (0..100usize).map(|n| {
                let (verifiers, spool, accept) = (verifiers.clone(), spool.clone(), accept(n));
                let signatures = signed(3, &n.to_be_bytes(), n % 5 == 0);
                tokio::spawn(async move { verifiers.store(signatures, &spool, accept).await })
            });
            for (n, task) in asked.collect::<Vec<_>>().into_iter().enumerate() {
                let stored = task.await.unwrap().map(|done| done.unwrap().accepted);
                assert_eq!(stored, (n % 5 != 0).then_some(true), "{n}");
            }
            // Nobody waits for this one any more when its turn comes.
            let (good, gone) = (signed(3, b"gone", false), accept(200));
            let asked = verifiers.store(good, &spool, gone);
            assert!(futures_util::FutureExt::now_or_never(asked).is_none());
            // One without signatures is nobody's.
            assert!(verifiers.store(Vec::new(), &spool, accept(201)).await.is_none());
            let last = verifiers
                .store(signed(3, b"last", false), &spool, accept(202))
                .await;
            assert!(last.unwrap().unwrap().accepted);
            drop(spool);
            drop(verifiers);
            writer.await.unwrap();
            let intakes = crate::spool::intakes(store.reader()).await.unwrap();
            let mut stored: Vec<_> = intakes.iter().map(|i| i.node_id.to_string()).collect();
            stored.sort_unstable();
            let expected = (0..100).filter(|n| n % 5 != 0).chain([202]);
            assert_eq!(
                stored,
                expected.map(|n| format!("node-{n:04}")).collect::<Vec<_>>()
            );
        }
    }

    #[tokio::test]
    async fn many_at_once_each_get_their_own_answer() {
        for cpus in [1, 2] {
            each_gets_its_own_answer(Verifiers::on(cpus).unwrap()).await;
        }
    }

    async fn each_gets_its_own_answer(verifiers: Verifiers) {
        let asked = (0..500u16).map(|n| {
            let verifiers = verifiers.clone();
            let spoilt = n % 7 == 0;
            let signatures = signed(u8::try_from(n % 50).unwrap() + 1, &n.to_be_bytes(), spoilt);
            tokio::spawn(async move { (verifiers.verify(signatures).await, spoilt) })
        });
        for task in asked.collect::<Vec<_>>() {
            let (good, spoilt) = task.await.unwrap();
            assert_eq!(good, Some(!spoilt));
        }
    }
}
