//! What of a node is written once: at its registration.

use cosmwasm_std::{Storage, from_json, to_json_vec};
use hpc_schema::time::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::error::ContractError;
use crate::keys::Place;

/// Cold identity. Id, key and tag stand elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) epoch: u64,
    pub(crate) provider_address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hardware_fingerprint: Option<String>,
    pub(crate) registered_at: UnixSeconds,
}

impl Identity {
    pub(crate) fn load(storage: &dyn Storage, place: Place) -> Result<Self, ContractError> {
        let corrupt = || ContractError::Corrupt {
            what: "a node's identity",
        };
        let bytes = storage.get(&place.identity()).ok_or_else(corrupt)?;
        from_json(&bytes).map_err(|_| corrupt())
    }

    pub(crate) fn save(&self, storage: &mut dyn Storage, place: Place) -> Result<(), ContractError> {
        storage.set(&place.identity(), &to_json_vec(self)?);
        Ok(())
    }
}
