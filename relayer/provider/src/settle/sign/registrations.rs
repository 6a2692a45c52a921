use std::collections::{BTreeMap, BTreeSet};

use hpc_chain::gas::Adjustment;
use hpc_chain::msg::Any;
use hpc_chain::query::QueryError;
use hpc_chain::settle::SignRequest;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::time::UnixSeconds;

use super::super::compose::{self, ComposeError};
use super::super::driver::Driver;
use super::super::fit::Load;
use super::bound::Content;
use super::{Composed, SignError, size};
use crate::attest;
use crate::clock;
use crate::enrol::{self, Registration};
use crate::registry::{SyncError, sync_cluster};
use crate::store::StoreError;

/// Registrations in one transaction.
const REGISTRATIONS: usize = 16;

/// Registrations that could be signed, with their messages.
type Good = Vec<(u64, Any)>;

impl Driver {
    pub(super) async fn compose_registrations(
        &mut self,
        request: SignRequest,
    ) -> Result<Option<Composed>, SignError> {
        let now = clock::now_ms();
        let mut queued = self.queued(now).await?;
        let clusters = queued.iter().map(|r| r.cluster_id.clone()).collect();
        let mut unread = self.read_clusters(clusters).await?;
        // Those of a cluster that cannot be read let others pass.
        for r in queued.extract_if(.., |r| unread.contains_key(&r.cluster_id)) {
            self.aside.put(r.id, clock::steady());
        }
        if queued.is_empty()
            && let Some((_, why)) = unread.pop_first()
        {
            return Err(why);
        }
        let mut good = self.messages_of(&queued, now).await?;
        if good.is_empty() {
            return Ok(None);
        }
        let gas = match self.gas(request, messages(&good), load(&good)).await {
            Ok(gas) => gas,
            Err(e) if e.verdict().is_none() => return Err(e),
            Err(_) => {
                good = self.sound(request, good, now).await?;
                if good.is_empty() {
                    return Ok(None);
                }
                match self.gas(request, messages(&good), load(&good)).await {
                    Ok(gas) => gas,
                    Err(e) => {
                        // Each is sound alone, all together are too many.
                        let Some(verdict) = e.verdict() else { return Err(e) };
                        self.sizing.refused(&verdict, size(&messages(&good)));
                        tracing::info!(
                            registrations = good.len(),
                            "registrations are refused together, fewer follow: {e}"
                        );
                        return Ok(None);
                    }
                }
            }
        };
        let ids = good.iter().map(|(id, _)| *id).collect();
        Ok(Some(Composed {
            messages: messages(&good),
            content: Content::Register(ids),
            load: load(&good),
            gas,
            margin: 0,
            adjustment: self.sizing.adjustment(Adjustment::default()),
        }))
    }

    /// The oldest that wait and need let nobody pass.
    async fn queued(&mut self, now: u64) -> Result<Vec<Registration>, ComposeError> {
        let limit = self.sizing.items(REGISTRATIONS);
        let read = u32::try_from(limit.saturating_add(self.aside.len())).unwrap_or(u32::MAX);
        let mut conn = self.store.reader().acquire().await.map_err(StoreError::from)?;
        let mut queued = enrol::queued(&mut conn, UnixSeconds(now / 1000), read).await?;
        // The oldest come first, and those that let others pass are among them as long as they wait.
        let waiting: BTreeSet<_> = queued.iter().map(|r| r.id).collect();
        self.aside.retain(|id| waiting.contains(id));
        let steady = clock::steady();
        queued.retain(|r| !self.aside.holds(&r.id, steady));
        queued.truncate(limit);
        Ok(queued)
    }

    /// A cluster may have been created, or its operators changed, since the last sync. Those that the chain says nothing
    /// of, and why.
    async fn read_clusters(
        &self,
        clusters: BTreeSet<ClusterId>,
    ) -> Result<BTreeMap<ClusterId, SignError>, SignError> {
        let mut unread = BTreeMap::new();
        for cluster in clusters {
            match sync_cluster(&self.client, &self.store, &self.registry, &cluster).await {
                Ok(_) => {}
                Err(e) if e.is_of_one() => {
                    tracing::warn!(%cluster, error = %e, "a cluster cannot be read; registrations of others go first");
                    unread.insert(cluster, sign_error(e));
                }
                // No other could be read either.
                Err(e) => return Err(sign_error(e)),
            }
        }
        Ok(unread)
    }

    async fn messages_of(&self, queued: &[Registration], now: u64) -> Result<Good, ComposeError> {
        let mut good = Good::new();
        for r in queued {
            // A TPM may have been pinned since it was taken.
            if let Err(why) = self.same_machine(r).await? {
                self.refuse_registration(r.id, Code::KeyMismatch, why, now)
                    .await?;
                continue;
            }
            let nonce = clock::random()?;
            let (registry, signers) = (&self.registry, &self.signers);
            let time = UnixSeconds(now / 1000);
            let (operator, prefix) = (&*signers.operator, &signers.prefix);
            let made = match compose::registration(r, registry, operator, prefix, time, nonce).await {
                Err(ComposeError::Key(e)) => return Err(self.key_fails(&signers.operator_name, e)),
                other => other?,
            };
            match made {
                Ok(message) => good.push((r.id, self.message(&message)?)),
                Err((code, detail)) => self.refuse_registration(r.id, code, &detail, now).await?,
            }
        }
        Ok(good)
    }

    async fn same_machine(&self, r: &Registration) -> Result<Result<(), &'static str>, StoreError> {
        let Some(quoted) = r.quoted_by.as_deref() else {
            return Ok(Ok(()));
        };
        let mut conn = self.store.reader().acquire().await?;
        let quoted = Some(quoted).filter(|key| !key.is_empty());
        attest::judge_now(&mut conn, &r.jti, (&r.cluster_id, &r.node_id), quoted).await
    }

    /// Those that pass a simulation alone. The contract's refusals end the others; what is refused for another reason lets
    /// those behind it pass.
    async fn sound(&mut self, request: SignRequest, all: Good, now: u64) -> Result<Good, SignError> {
        let mut sound = Good::new();
        for (id, any) in all {
            let alone = Load::Register { nodes: 1 };
            match self.gas(request, vec![any.clone()], alone).await {
                Ok(_) => sound.push((id, any)),
                Err(SignError::Query(QueryError::Contract { code, message })) => {
                    let code = code.unwrap_or(Code::NotAuthorized);
                    self.refuse_registration(id, code, &message, now).await?;
                }
                Err(e) if e.verdict().is_some() && self.aside.put(id, clock::steady()).is_some() => {
                    tracing::warn!(registration = id, error = %e, "a registration cannot be simulated; others go before it");
                }
                Err(e) => return Err(e),
            }
        }
        Ok(sound)
    }

    async fn refuse_registration(
        &self,
        id: u64,
        code: Code,
        detail: &str,
        now: u64,
    ) -> Result<(), ComposeError> {
        tracing::warn!(registration = id, %code, "registration refused: {detail}");
        let mut tx = self.store.begin().await?;
        enrol::record_refused(&mut tx, id, code, detail, now).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }
}

fn sign_error(e: SyncError) -> SignError {
    match e {
        SyncError::Query(e) => e.into(),
        SyncError::Store(e) => ComposeError::from(e).into(),
        SyncError::Cluster(_, e) => sign_error(*e),
    }
}

fn messages(good: &[(u64, Any)]) -> Vec<Any> {
    good.iter().map(|(_, any)| any.clone()).collect()
}

fn load(good: &[(u64, Any)]) -> Load {
    Load::Register {
        nodes: u64::try_from(good.len()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hpc_chain::registry::RegistryClient;
    use serde_json::Value;

    use super::super::super::driver::tests::driver;
    use super::*;
    use crate::fake_chain::{self, Answer, chain};

    #[tokio::test]
    async fn a_cluster_that_cannot_be_read_keeps_no_other_from_being_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = driver(dir.path()).await;
        let asked = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&asked);
        let fake = chain(Arc::default(), move |question: &Value| {
            *seen.lock().unwrap() += 1;
            match question["cluster"]["cluster_id"].as_str().unwrap() {
                "hpc-cluster-1" => Answer::Fails("invalid_field: broken: query wasm contract failed"),
                "hpc-cluster-3" => Answer::Breaks,
                id => fake_chain::cluster(id),
            }
        });
        d.client = RegistryClient::new(fake.await, "wasm1contract");
        let named = |ids: &[u32]| -> BTreeSet<ClusterId> {
            let id = |n: &u32| format!("hpc-cluster-{n}").parse::<ClusterId>().unwrap();
            ids.iter().map(id).collect()
        };
        let unread = d.read_clusters(named(&[1, 2])).await.unwrap();
        assert!(unread.into_keys().eq(named(&[1])));
        let second = named(&[2]).pop_first().unwrap();
        assert!(d.registry.cluster(&second).is_some());
        // Where the chain itself does not answer nobody else is asked about.
        *asked.lock().unwrap() = 0;
        d.read_clusters(named(&[3, 4, 5])).await.unwrap_err();
        assert_eq!(*asked.lock().unwrap(), 1);
    }
}
