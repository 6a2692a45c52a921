use serde_json::json;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use crate::audit::Actor;
use crate::control;

impl Admin {
    /// Tells the daemon to read its token keys, its certificates, the trusted CAs and its configuration anew.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn reload(&self, by: &Actor) -> Result<(), AdminError> {
        let mut act = Act::begin(&self.store, by, "reload", "daemon").await?;
        let done = control::touch_files(act.conn()).await.map_err(AdminError::from);
        act.end(done, json!({})).await
    }
}
