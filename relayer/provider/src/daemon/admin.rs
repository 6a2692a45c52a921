use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::StartError;
use crate::admin::http::{self, Api};
use crate::config::Live;
use crate::gateway::Tls;

/// The admin listener, bound before anything answers.
#[derive(Debug)]
pub(super) struct Bound {
    listener: TcpListener,
    pub(super) addr: SocketAddr,
}

/// Binds it, if the configuration names one.
pub(super) async fn bind(live: &Live) -> Result<Option<Bound>, StartError> {
    let Some(addr) = live.get().admin.listen else {
        return Ok(None);
    };
    let listener = TcpListener::bind(addr)
        .await
        .map_err(|source| StartError::Bind { addr, source })?;
    let addr = listener.local_addr()?;
    Ok(Some(Bound { listener, addr }))
}

impl Bound {
    /// Serves it until the daemon stops.
    pub(super) fn serve(
        self,
        api: Api,
        tls: Arc<Tls>,
        stop: watch::Receiver<bool>,
        with_tls: bool,
    ) -> JoinHandle<()> {
        let tls = with_tls.then_some(tls);
        tokio::spawn(http::serve(self.listener, tls, Arc::new(api), stop))
    }
}
