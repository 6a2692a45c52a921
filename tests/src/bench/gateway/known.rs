//! Nodes that chain and daemon know: registered by the owner's key in few transactions, certified by the site's own CA.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result};
use hpc_chain::keys::{DEFAULT_PATH, LocalKey, Mnemonic};
use hpc_chain::registry::RegistryClient;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::report::Tag;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use virtengine_node_agent::register::Csr;
use virtengine_provider::clock;
use virtengine_provider::identity::{Ca, NodeCsr, NodeSubject};

use crate::bench::fleet::{Domain, Fleet};
use crate::bench::sender::Sender;
use crate::chain::CHAIN_ID;
use crate::raw::now;
use crate::site::{CLUSTER, Site};

/// Registrations in one transaction.
const REGISTRATIONS: usize = 100;
/// Transactions sent before the first is waited for.
const AT_ONCE: usize = 20;
/// Nodes asked for at once.
const ASKED: usize = 100;
/// How long a certificate counts, in seconds.
const LIFETIME: u64 = 24 * 3600;

/// A node that can speak to the gateway.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its id.
    pub id: NodeId,
    /// Signs its heartbeats.
    pub key: ed25519_zebra::SigningKey,
    /// What its reports are bound to.
    pub tag: Tag,
    /// Its client certificate.
    pub certificate: CertificateDer<'static>,
    /// The key of that certificate; all nodes share one, which nobody can tell from outside.
    pub tls_key: Arc<PrivateKeyDer<'static>>,
}

/// Registers `count` nodes on the site's chain and certifies them.
///
/// # Errors
/// If chain or CA refuse.
pub async fn register(site: &Site, count: usize) -> Result<Vec<Known>> {
    let words = fs::read_to_string(site.cli.words("owner"))?;
    let owner = || -> Result<LocalKey> {
        Ok(LocalKey::from_mnemonic(
            &Mnemonic::parse(words.trim())?,
            DEFAULT_PATH,
        )?)
    };
    let mut sender = Sender::connect(&site.chain.rpc(), owner()?).await?;
    let client = RegistryClient::new(sender.chain.clone(), site.contract.clone());
    let domain = Domain {
        chain_id: CHAIN_ID,
        contract: &site.contract,
    };
    let mut fleet = Fleet::new(CLUSTER, count)?;
    let messages = fleet.registrations(domain, &owner()?, now()?)?;
    let transactions: Vec<Vec<_>> = messages
        .chunks(REGISTRATIONS)
        .map(|chunk| {
            let execute = |m| client.execute(&sender.address, m, &[]);
            chunk.iter().map(execute).collect::<Result<_, _>>()
        })
        .collect::<Result<_, _>>()?;
    for some in transactions.chunks(AT_ONCE) {
        sender.send_all(some.to_vec(), &[]).await?;
    }
    let mut views = Vec::new();
    for ids in fleet.ids().chunks(ASKED) {
        let answer = client.relay(fleet.cluster.clone(), ids.to_vec()).await?;
        views.extend(answer.value.nodes);
    }
    fleet.place(domain, &views)?;
    certify(site, &fleet)
}

fn certify(site: &Site, fleet: &Fleet) -> Result<Vec<Known>> {
    let read = |name: &str| fs::read_to_string(site.home().join("ca").join(name));
    let ca = Ca::from_pem(&read("ca.crt")?, &read("ca.key")?)?;
    // As agents make theirs.
    let made = Csr::generate("node")?;
    let csr = NodeCsr::from_pem(&made.pem)?;
    let tls_key = Arc::new(PrivateKeyDer::from_pem_slice(made.key_pem.as_bytes())?);
    let known = |(number, node): (u128, &crate::bench::fleet::Node)| {
        let place = node.place.context("the node is not registered")?;
        let subject = NodeSubject {
            cluster: &fleet.cluster,
            node: &node.id,
            epoch: place.epoch,
        };
        let issued = ca.issue_node(&csr, &subject, clock::now(), LIFETIME, number.to_be_bytes())?;
        Ok(Known {
            cluster: fleet.cluster.clone(),
            id: node.id.clone(),
            key: node.key,
            tag: place.tag,
            certificate: CertificateDer::from_pem_slice(issued.pem.as_bytes())?,
            tls_key: Arc::clone(&tls_key),
        })
    };
    (1u128..).zip(&fleet.nodes).map(known).collect()
}
