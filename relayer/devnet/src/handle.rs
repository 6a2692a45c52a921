//! A chain that runs on a thread of its own, and the handle to it.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::chain::Node;
use crate::config::{BlockMode, Config};
use crate::error::Error;
use crate::rpc::{Server, bind};
use crate::stop::Stop;

/// The embedded chain.
#[derive(Debug)]
pub struct Devnet;

impl Devnet {
    /// Opens or makes the chain, starts its RPC and, if `config.blocks` says so, its timer. Returns once
    /// requests are answered. Needs no runtime around it.
    ///
    /// # Errors
    /// A home folder that is in use or damaged, a genesis that does not fit, an address that is taken.
    pub fn start(config: Config) -> Result<Handle, Error> {
        let lock = config.home.as_deref().map(lock).transpose()?;
        let listener = bind(config.rpc_addr, config.allow_remote)?;
        let addr = listener.local_addr().map_err(|source| Error::Listen {
            addr: config.rpc_addr,
            source,
        })?;
        let node = Arc::new(Node::open(config)?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(16)
            .thread_name("devnet-rpc")
            .build()
            .map_err(|source| Error::Listen { addr, source })?;
        let (stop, stopped) = Stop::new();
        let serving = Arc::clone(&node);
        let thread = std::thread::Builder::new()
            .name("devnet".to_string())
            .spawn(move || {
                runtime.block_on(run(serving, listener, stopped));
                runtime.shutdown_timeout(Duration::from_secs(2));
                drop(lock);
            })
            .map_err(|source| Error::Listen { addr, source })?;
        tracing::info!(%addr, chain_id = node.params.chain_id, "the embedded chain is running");
        Ok(Handle {
            node,
            addr,
            stop,
            thread: Some(thread),
        })
    }
}

/// Takes the home folder for this process; released when the file is dropped, also by kill -9.
pub(crate) fn lock(home: &Path) -> Result<File, Error> {
    std::fs::create_dir_all(home).map_err(|error| Error::io(home, error))?;
    let path = home.join("lock");
    let file = File::create(&path).map_err(|error| Error::io(&path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(home.to_path_buf())),
        Err(TryLockError::Error(error)) => Err(Error::io(&path, error)),
    }
}

async fn run(node: Arc<Node>, listener: std::net::TcpListener, stop: Stop) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot serve the RPC");
            return;
        }
    };
    let blocks = tokio::spawn(produce(Arc::clone(&node), stop.clone()));
    Server::new(node, stop).serve(listener).await;
    if let Err(error) = blocks.await {
        tracing::error!(%error, "the block producer ended abnormally");
    }
}

/// Makes blocks as the configuration says, until told to stop.
async fn produce(node: Arc<Node>, mut stop: Stop) {
    let mut timer = match node.config.blocks {
        BlockMode::Every(period) => {
            let mut timer = tokio::time::interval(period.max(Duration::from_millis(1)));
            timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            timer.tick().await;
            Some(timer)
        }
        BlockMode::OnDemand => return,
        BlockMode::OnTransaction => None,
    };
    loop {
        let due = async {
            match &mut timer {
                Some(timer) => {
                    timer.tick().await;
                }
                None => node.waiting.notified().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = stop.wait() => return,
        }
        let producer = Arc::clone(&node);
        match tokio::task::spawn_blocking(move || producer.produce()).await {
            Ok(Ok(_) | Err(Error::Halted)) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "no more blocks are made");
                return;
            }
            Err(error) => {
                tracing::error!(%error, "making a block panicked; no more blocks are made");
                return;
            }
        }
    }
}

/// A running chain. Dropping it stops the chain.
pub struct Handle {
    node: Arc<Node>,
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Where the RPC listens.
    pub fn rpc_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The RPC as a URL: `http://127.0.0.1:PORT`.
    pub fn rpc_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The websocket as a URL: `ws://127.0.0.1:PORT/websocket`.
    pub fn websocket_url(&self) -> String {
        format!("ws://{}/websocket", self.addr)
    }

    /// Makes one block of what waits, whatever the mode, and returns its height.
    ///
    /// # Errors
    /// [`Error::Halted`], or that the state cannot be written.
    pub fn produce_block(&self) -> Result<u64, Error> {
        self.node.produce()
    }

    /// The newest height.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn height(&self) -> Result<u64, Error> {
        Ok(self.node.snapshot()?.tip.height)
    }

    /// Time of the newest block, nanoseconds since the Unix epoch.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn block_time_nanos(&self) -> Result<u64, Error> {
        Ok(self.node.snapshot()?.tip.time_nanos)
    }

    /// Makes no more blocks; the RPC goes on answering, as on a chain that has lost its quorum.
    pub fn halt(&self) {
        self.node.halt();
    }

    /// Makes blocks again. The first carries the old time, a millisecond after the last before the halt.
    pub fn resume(&self) {
        self.node.resume();
    }

    /// Sets the clock that blocks take their time from; it runs on from there. Block time never goes back: if
    /// `unix_seconds` lies before the newest block, times creep until the clock has caught up.
    pub fn set_time(&self, unix_seconds: u64) {
        self.node.set_time(unix_seconds.saturating_mul(1_000_000_000));
    }

    /// Forgets waiting transactions and the cache, as the restart of a node does.
    pub fn clear_mempool(&self) {
        self.node.clear_mempool();
    }

    /// Transactions that wait for a block.
    pub fn mempool_len(&self) -> usize {
        self.node.mempool_len()
    }

    /// Bounds the number of waiting transactions.
    pub fn set_mempool_size(&self, txs: usize) {
        self.node.set_mempool_size(txs);
    }

    /// Why the chain makes no more blocks, if it has failed.
    pub fn failure(&self) -> Option<String> {
        self.node.stopped()
    }

    /// Stops the RPC and the timer and waits for them; the newest block is on disk already.
    pub fn shutdown(mut self) {
        self.stop_and_wait();
    }

    fn stop_and_wait(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the chain's thread panicked");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop_and_wait();
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}
