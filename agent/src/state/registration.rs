use std::fmt;
use std::net::IpAddr;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::registry::{JobIds, Params};
use hpc_schema::report::Tag;
use serde::{Deserialize, Serialize};

use super::{Lock, StateDir, read_json, write_json};
use crate::files::{Durability, FileError};
use crate::probe::fingerprint::Fingerprint;
use crate::uplink::CaPin;

/// What the chain knows of this node, as the gateway answered at registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The node.
    pub node_id: NodeId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Bech32 address of the cluster's owner.
    pub provider_address: String,
    /// The chain.
    pub chain_id: String,
    /// Bech32 address of the registry contract.
    pub contract: String,
    /// Registration epoch.
    pub epoch: u64,
    /// Highest sequence number that was known at registration.
    pub last_sequence: u32,
    /// The contract's parameters.
    pub params: Params,
    /// What of job ids the second section may hold.
    #[serde(default)]
    pub job_ids: JobIds,
    /// Key that signs commands and tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_public_key: Option<AgentKey>,
    /// The agent's key that was registered.
    pub public_key: AgentKey,
    /// The token that it was registered with.
    pub jti: String,
    /// The gateway's CA, as that token pins it: it vouches for the first contact.
    pub ca_sha256: CaPin,
    /// The CAs that are trusted, as gateways have named them since over connections for which a trusted one had vouched;
    /// empty: the token's alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted: Vec<CaPin>,
    /// The hardware that was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// The UDP port that the gateway was told, 0 for none; none: it is not known (an older agent, or what was lost and
    /// recovered).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<u16>,
    /// The address that peers are told, beside a known port; none: the one that the gateway sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_address: Option<IpAddr>,
    /// When, in UNIX seconds.
    pub registered_at: u64,
}

impl Registration {
    /// The tag that precedes every report.
    #[must_use]
    pub fn tag(&self) -> Tag {
        Tag::derive(
            &self.chain_id,
            &self.contract,
            &self.cluster_id,
            &self.node_id,
            self.epoch,
        )
    }

    /// The CAs that are trusted.
    #[must_use]
    pub fn pins(&self) -> Vec<CaPin> {
        if self.trusted.is_empty() {
            vec![self.ca_sha256]
        } else {
            self.trusted.clone()
        }
    }

    /// Whether this one has taken the place of `other`: registered anew since, by whatever process.
    #[must_use]
    pub fn replaces(&self, other: &Self) -> bool {
        let again = self.registered_at > other.registered_at && self.jti != other.jti;
        self.epoch > other.epoch || again
    }

    /// Reads it; none if this node is not registered.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn load(state: &StateDir) -> Result<Option<Self>, FileError> {
        read_json(&state.registration())
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, state: &StateDir) -> Result<(), FileError> {
        let _lock = Lock::wait(&state.registration_lock())?;
        self.write(state)
    }

    /// Writes it, and `beside` it what it needs: before, with the registration that counts until then, and where there is
    /// one again after, with none. No process that goes by [`Registration::unless_replaced`] comes between.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn save_with(
        &self,
        state: &StateDir,
        beside: impl Fn(Option<&Self>) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let _lock = Lock::wait(&state.registration_lock())?;
        let former = Self::load(state)?;
        beside(former.as_ref())?;
        self.write(state)?;
        if former.is_some()
            && let Err(e) = beside(None)
        {
            // It counts from here on, whatever is left over.
            tracing::warn!("what the former registration needed is still there: {e}");
        }
        Ok(())
    }

    /// Writes it unless another process has written a newer one meanwhile.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn update(&self, state: &StateDir) -> Result<(), FileError> {
        self.unless_replaced(state, |_| self.write(state)).map(drop)
    }

    /// Does `what` with the registration that is there, unless another process has written one that takes the place of this
    /// one; none then. None is written meanwhile.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn unless_replaced<T>(
        &self,
        state: &StateDir,
        what: impl FnOnce(Option<&Self>) -> Result<T, FileError>,
    ) -> Result<Option<T>, FileError> {
        let _lock = Lock::wait(&state.registration_lock())?;
        match Self::load(state)? {
            Some(other) if other.replaces(self) => Ok(None),
            found => what(found.as_ref()).map(Some),
        }
    }

    /// Writes what the agent has found out of a new epoch, unless the process that registered it has: its answer says
    /// more. The one that counts.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn or_of_this_epoch(self, state: &StateDir) -> Result<Self, FileError> {
        let _lock = Lock::wait(&state.registration_lock())?;
        match Self::load(state)? {
            Some(other) if other.epoch == self.epoch && other.public_key == self.public_key => Ok(other),
            _ => self.write(state).map(|()| self),
        }
    }

    fn write(&self, state: &StateDir) -> Result<(), FileError> {
        write_json(&state.registration(), self, 0o640, Durability::Synced)
    }
}

/// A registration under way: repeated with the same certificate request, it gets the same answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The token's name.
    pub jti: String,
    /// The agent's key in the request.
    pub public_key: AgentKey,
    /// PKCS#10 as PEM.
    pub csr: String,
    /// The TLS key that it asks a certificate for, PKCS#8 PEM.
    pub tls_key: String,
    /// The registered key's consent, when this one is to take its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
}

/// By what the old key hands over to the new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Base64 of 32 random bytes.
    pub registration_nonce: String,
    /// Base64 of the old key's signature.
    pub rotation_signature: String,
}

impl Pending {
    /// Reads it; none if no registration is under way.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn load(state: &StateDir) -> Result<Option<Self>, FileError> {
        read_json(&state.pending())
    }

    /// Writes it, durably and for nobody else's eyes.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, state: &StateDir) -> Result<(), FileError> {
        write_json(&state.pending(), self, 0o600, Durability::Synced)
    }

    /// Forgets it.
    pub fn remove(state: &StateDir) {
        // If it stays, the next registration with another token replaces it.
        std::fs::remove_file(state.pending()).ok();
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("jti", &self.jti)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::key::NodeKey;

    /// One by the token `jti`, of this key and epoch.
    pub(crate) fn a_registration(jti: &str, public_key: AgentKey, epoch: u64) -> Registration {
        Registration {
            node_id: "node-hpc1-compute-042".parse().unwrap(),
            cluster_id: "hpc-cluster-1".parse().unwrap(),
            provider_address: "wasm1provider".to_owned(),
            chain_id: "hpc-devnet-1".to_owned(),
            contract: "wasm1contract".to_owned(),
            epoch,
            last_sequence: 0,
            params: Params::default(),
            job_ids: JobIds::default(),
            task_public_key: None,
            public_key,
            jti: jti.to_owned(),
            ca_sha256: "00".repeat(32).parse().unwrap(),
            trusted: Vec::new(),
            fingerprint: None,
            probe_port: None,
            probe_address: None,
            registered_at: epoch,
        }
    }

    #[test]
    fn what_a_registration_needs_is_there_before_it_beside_what_the_former_one_needs_and_alone_after() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let key = NodeKey::from_seed([1; 32]).unwrap().public();
        let on_disk = || Registration::load(&state).unwrap().map(|r| r.epoch);
        let seen = RefCell::new(Vec::new());
        let beside = |former: Option<&Registration>| {
            seen.borrow_mut().push((former.map(|r| r.epoch), on_disk()));
            Ok(())
        };
        a_registration("token-1", key, 7)
            .save_with(&state, beside)
            .unwrap();
        assert_eq!(seen.take(), [(None, None)]);
        a_registration("token-2", key, 8)
            .save_with(&state, beside)
            .unwrap();
        assert_eq!(seen.take(), [(Some(7), Some(7)), (None, Some(8))]);
        // What it needs cannot be put there: the former one counts.
        let fails = |_: Option<&Registration>| {
            let full = std::io::ErrorKind::StorageFull;
            Err(crate::files::at("write", dir.path())(full.into()))
        };
        a_registration("token-3", key, 9)
            .save_with(&state, fails)
            .unwrap_err();
        assert_eq!(on_disk(), Some(8));
    }
}
