//! The peer: a plain Go `net/http` server that does the same work (`tests/bench-peer`).

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::VerificationKeyBytes;
use serde_json::json;

use super::known::Known;
use crate::process::Process;
use crate::scene::Scene;
use crate::site::Site;
use crate::{port, wait};

/// A running peer.
#[derive(Debug)]
pub struct Peer {
    /// The process.
    pub process: Process,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Starts it on one CPU with the daemon's certificate and the same nodes.
///
/// # Errors
/// If it does not come up.
pub fn start(binary: &Path, cpu: u32, scene: &Scene, site: &Site, nodes: &[Known]) -> Result<Peer> {
    let known: serde_json::Map<_, _> = nodes
        .iter()
        .map(|n| {
            let key: [u8; 32] = VerificationKeyBytes::from(&n.key).into();
            let value = json!({"key": STANDARD.encode(key), "tag": STANDARD.encode(n.tag.as_bytes())});
            (n.id.to_string(), value)
        })
        .collect();
    let file = scene.path("peer-nodes.json");
    fs::write(&file, serde_json::to_vec(&known)?)?;
    let port = port::free()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let home = site.home();
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string()]).arg(binary);
    for (flag, value) in [
        ("-cert", home.join("gateway/server.crt")),
        ("-key", home.join("gateway/server.key")),
        ("-ca", home.join("ca/ca.crt")),
        ("-nodes", file),
        ("-store", scene.path("peer.log.bin")),
        ("-listen", PathBuf::from(address.to_string())),
    ] {
        command.arg(flag).arg(value);
    }
    let mut process = Process::start("peer", command, &scene.log("peer"))?;
    wait::until("the peer to listen", Duration::from_secs(30), || {
        process.check_alive()?;
        Ok(std::net::TcpStream::connect(address).is_ok().then_some(()))
    })?;
    Ok(Peer { process, address })
}
