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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::yield_now;

use crate::gather::Paced;

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
/// Up to so many signatures are as fast one by one.
const SINGLY: usize = 3;

/// Signatures of one heartbeat, their messages hashed already.
pub type Signatures = Vec<Item>;

type Asked = (Signatures, oneshot::Sender<bool>);

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
    fn on(cpus: usize) -> std::io::Result<Self> {
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
        self.0.try_send((signatures, tx)).ok()?;
        rx.await.ok()
    }

    /// Ends when nobody verifies any more.
    pub async fn ended(&self) {
        self.0.closed().await;
    }
}

async fn verify_here(mut asked: mpsc::Receiver<Asked>) {
    let mut paced = Paced::new(PACE, LARGE);
    loop {
        let (heartbeats, replies): (Vec<_>, Vec<_>) =
            paced.gather(&mut asked, BATCH).await.into_iter().unzip();
        if replies.is_empty() {
            return;
        }
        tell(replies, verify(&heartbeats));
        // Those who have their answer come before the next batch.
        yield_now().await;
    }
}

/// Whoever asked may have gone.
fn tell(replies: Vec<oneshot::Sender<bool>>, verdicts: Vec<bool>) {
    for (reply, good) in replies.into_iter().zip(verdicts) {
        let _unheard = reply.send(good);
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
        let (heartbeats, replies): (Vec<_>, Vec<_>) =
            paced.gather(&mut asked, BATCH).await.into_iter().unzip();
        if replies.is_empty() {
            return;
        }
        if replies.len() <= HERE {
            tell(replies, verify(&heartbeats));
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
        tokio::spawn(async move { tell(replies, told.await.unwrap_or_default()) });
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
    use hpc_schema::heartbeat::{Admission, HeartbeatRequest, Registered, verify_heartbeat};
    use hpc_schema::registry::JobIds;
    use hpc_schema::report::Tag;
    use hpc_schema::time::UnixSeconds;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

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
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/vectors/heartbeat.json");
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let text = |key: &str| file["context"][key].as_str().unwrap();
        let (cluster, node) = (
            text("cluster_id").parse().unwrap(),
            text("node_id").parse().unwrap(),
        );
        let epoch = file["context"]["epoch"].as_u64().unwrap();
        let tag = Tag::derive(text("chain_id"), text("contract"), &cluster, &node, epoch);
        let key = text("public_key").parse().unwrap();
        let (mut noted, mut expected) = (Vec::new(), Vec::new());
        for case in file["cases"].as_array().unwrap() {
            let Ok(request) = HeartbeatRequest::parse(case["body"].as_str().unwrap().as_bytes()) else {
                assert_eq!(case["result"]["malformed"], true, "{case}");
                continue;
            };
            let against = Admission {
                path_node_id: node.as_str(),
                certificate_node_id: &node,
                certificate_cluster_id: &cluster,
                registered: Some(Registered {
                    key: &key,
                    tag: &tag,
                    job_ids: JobIds::Plain,
                }),
                now: UnixSeconds(case["now"].as_u64().unwrap()),
            };
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
