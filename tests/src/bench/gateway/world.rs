//! A daemon with nodes on record, of which some speak.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::{ClientConfig, ServerConfig};
use virtengine_provider::clock;
use virtengine_provider::gateway::{ServerCertificate, server_config};
use virtengine_provider::identity::{Anchors, Ca};

use super::client;
use super::known::{self, Known};
use crate::bench::fleet;
use crate::chain::Kind;
use crate::scene::Scene;
use crate::site::Site;

/// What is wanted of it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Nodes on record.
    pub nodes: usize,
    /// Nodes that speak, each on its own connection.
    pub speaking: usize,
    /// Others that are to connect for the first time.
    pub new: usize,
    /// Seconds between the chain's blocks once the nodes are registered.
    pub block_seconds: u32,
    /// Seconds between the daemon's transactions.
    pub submit_seconds: u32,
    /// CPU of the daemon.
    pub cpu: u32,
}

/// The daemon with its nodes, and how to talk to it.
#[derive(Debug)]
pub struct World {
    /// The daemon, its chain and their folders.
    pub site: Site,
    /// The daemon's process.
    pub pid: u32,
    /// Where it listens to nodes.
    pub address: SocketAddr,
    /// All nodes on record.
    pub nodes: Vec<Known>,
    /// Those that speak, spread over all pages.
    pub speaking: Vec<(Known, Arc<ClientConfig>)>,
    /// Others, which the gateway has not met yet.
    pub new: Vec<(Known, Arc<ClientConfig>)>,
    /// The daemon's own configuration of TLS.
    pub server: Arc<ServerConfig>,
}

/// Starts it.
///
/// # Errors
/// If a part of it does not come up.
pub async fn start(wanted: &Wanted, scene: &Scene) -> Result<World> {
    let mut site = Site::prepare(scene, Kind::Embedded)?;
    site.activate()?;
    // Nodes here speak far more often than the protocol asks for; everything else is as delivered.
    site.set("GATEWAY__REQUESTS_PER_MINUTE", "60000");
    // They are silent while the others are measured.
    site.set("GATEWAY__IDLE_TIMEOUT", "1h");
    site.set("BATCH__SUBMIT_INTERVAL", format!("{}s", wanted.submit_seconds));
    site.set("CHAIN__SYNC", "5s");
    site.set("CHAIN__POLL", "1s");
    site.set("LOG__LEVEL", "warn");
    site.pin(wanted.cpu);
    eprintln!("registering {} nodes", wanted.nodes);
    let nodes = known::register(&site, wanted.nodes).await?;
    site.chain.set_block_time(&format!("{}s", wanted.block_seconds))?;
    // Elsewhere it has a machine of its own: here its blocks must not keep the generator from hearing an answer.
    site.chain.give_way()?;
    let first = nodes.first().context("no nodes")?;
    // A token makes the daemon serve the cluster; it finds the nodes on the chain.
    site.token("node-unused", &fleet::public(&first.key)?.to_base64(), "1h")?;
    site.start_provider()?;
    let pid = site.provider()?.id();
    let ca_pem = fs::read_to_string(site.home().join("ca/ca.crt"))?;
    let step = (nodes.len() / wanted.speaking.max(1)).max(1);
    let with_tls = |n: &Known| -> Result<_> { Ok((n.clone(), client::tls(n, &ca_pem)?)) };
    let speaking = nodes
        .iter()
        .step_by(step)
        .take(wanted.speaking)
        .map(with_tls)
        .collect::<Result<_>>()?;
    let new = (nodes.iter().enumerate())
        .filter(|(n, _)| n % step != 0 || n / step >= wanted.speaking)
        .take(wanted.new)
        .map(|(_, n)| with_tls(n))
        .collect::<Result<_>>()?;
    let read = |name: &str| fs::read_to_string(site.home().join(name));
    let ca = Ca::from_pem(&ca_pem, &read("ca/ca.key")?)?;
    let anchors = Anchors::load(&ca, &site.home().join("ca/trusted"), clock::now())?;
    let certificate = ServerCertificate::new(&read("gateway/server.crt")?, &read("gateway/server.key")?)?;
    Ok(World {
        address: SocketAddr::from(([127, 0, 0, 1], site.gateway_port())),
        server: Arc::new(server_config(&anchors, Arc::new(certificate))?),
        site,
        pid,
        nodes,
        speaking,
        new,
    })
}
