use hpc_schema::code::Code;
use hpc_schema::time::UnixSeconds;

use super::error::AdminError;
use crate::enrol::{self, Which};
use crate::store::{Store, StoreError};

/// Revokes certificates; how many counted until now. It takes effect on open connections within a second.
///
/// # Errors
/// If there was none.
pub async fn revoke(store: &Store, which: Which<'_>, now: UnixSeconds) -> Result<u64, AdminError> {
    let mut tx = store.begin().await?;
    let count = enrol::revoke_certificates(&mut tx, which, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    if count == 0 {
        let what = "no such certificate counts (virtengine-provider certificate list)";
        return Err(AdminError::field(Code::InvalidState, "certificate", what));
    }
    Ok(count)
}
