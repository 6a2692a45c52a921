//! Where the command line's operations are done: on the store of this directory, or by an admin listener, which does the same
//! for whoever holds a credential. What is shown is the same.

mod enrol;
mod node;
mod remote;
mod work;

use std::path::PathBuf;

use remote::Remote;

use crate::admin::{Admin, AdminError, Status};
use crate::ops::Readiness;
use crate::page::{MAX_PAGE, Page, Window};
use crate::store::News;

/// Rows that a list is followed to.
const MAX_ROWS: usize = 1_000_000;

/// Where it is done.
pub(super) enum Desk {
    /// By this program, on the directory.
    Here(Box<Admin>, News),
    /// By a daemon.
    There(Remote),
}

/// Which admin listener is asked.
#[derive(Debug, clap::Args)]
pub(super) struct Elsewhere {
    /// The admin listener that is asked instead of the directory.
    #[arg(
        long,
        global = true,
        env = "VIRTENGINE_PROVIDER_ADMIN",
        value_name = "URL",
        help = "Asks this admin listener, such as https://gateway.example.com:9465, instead of the directory"
    )]
    pub(super) admin: Option<String>,
    /// File with the credential to show it, mode 0600; `admin-token create` makes one.
    #[arg(
        long,
        global = true,
        env = "VIRTENGINE_PROVIDER_CREDENTIAL_FILE",
        value_name = "FILE"
    )]
    pub(super) credential_file: Option<PathBuf>,
    /// File with the CA that its certificate is of, such as the gateway's ca/ca.crt [default: the system's].
    #[arg(long, global = true, env = "VIRTENGINE_PROVIDER_CA_FILE", value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
}

impl Elsewhere {
    /// The listener, if one is named.
    pub(super) fn desk(&self) -> Result<Option<Desk>, AdminError> {
        let Some(url) = &self.admin else { return Ok(None) };
        let Some(credential) = &self.credential_file else {
            let what = "--admin needs --credential-file; make one on the gateway: virtengine-provider admin-token create";
            return Err(AdminError::Home(what.to_owned()));
        };
        Ok(Some(Desk::There(Remote::new(
            url,
            credential,
            self.ca_file.as_deref(),
        )?)))
    }
}

impl Desk {
    pub(super) fn here(admin: Admin) -> Self {
        let news = admin.store.news();
        Self::Here(Box::new(admin), news)
    }

    /// Lets the daemon read certificates and configuration anew.
    pub(super) async fn reload(&self) -> Result<(), AdminError> {
        match self {
            Self::Here(admin, _) => admin.reload(&super::who()).await,
            Self::There(remote) => done(remote.post(&["reload"], &[], &serde_json::json!({})).await),
        }
    }

    /// `says`: what the daemon of this machine says, if it is asked by itself.
    pub(super) async fn status(
        &self,
        says: impl AsyncFn(&Admin) -> Option<Readiness>,
    ) -> Result<Status, AdminError> {
        match self {
            Self::Here(admin, _) => Ok(admin.status(says(admin).await).await?),
            Self::There(remote) => remote.get(&["status"], &[]).await,
        }
    }
}

/// An answer that only says that it is done.
fn done(answer: Result<serde_json::Value, AdminError>) -> Result<(), AdminError> {
    answer.map(drop)
}

/// A page's place as a query.
fn place<'a>(window: &Window<'a>, limit: &'a str) -> [(&'static str, Option<&'a str>); 2] {
    [("after", window.after), ("limit", Some(limit))]
}

/// Every row of a list, or the first `limit`, page by page.
pub(super) async fn all<T>(
    limit: Option<u32>,
    page: impl AsyncFn(Window<'_>) -> Result<Page<T>, AdminError>,
) -> anyhow::Result<Vec<T>> {
    let wanted = limit.map_or(MAX_ROWS, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let (mut rows, mut after) = (Vec::new(), None::<String>);
    while rows.len() < wanted {
        let left = u32::try_from(wanted - rows.len()).unwrap_or(u32::MAX);
        let window = Window {
            after: after.as_deref(),
            limit: Some(left.min(MAX_PAGE)),
        };
        let page = page(window).await?;
        rows.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
    if limit.is_none() {
        anyhow::bail!("the list has more than {MAX_ROWS} rows");
    }
    rows.truncate(wanted);
    Ok(rows)
}
