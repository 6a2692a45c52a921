//! Gateways that share a store agree on where peers are told to probe a node.

use hpc_schema::code::Code;
use serde_json::json;
use virtengine_provider::clock;
use virtengine_provider::db;
use virtengine_provider::registry::{Mark, Registry, Whose, catch_up, save_contacts};
use virtengine_provider::store::Store;

use crate::agent::{Agent, client, registered};
use crate::site::{CHAIN_ID, Site, cluster, eventually};

const NODE: &str = "node-0001";

/// Registers with a token of its own, to be probed at this address; the epoch that began.
async fn registers(site: &Site, agent: &Agent, address: &str) -> u64 {
    let token = site.token(NODE, &agent.public(), "1h");
    let mut body = agent.register_body(&token, &agent.csr);
    body["probe_address"] = json!(address);
    registered(&client(&site.ca(), None), site, &body).await.epoch
}

/// A gateway beside the one at which the node registers.
struct Other {
    store: Store,
    registry: Registry,
    mark: Mark,
}

impl Other {
    /// Where it has peers probe the node, once it knows of this epoch.
    async fn told(&mut self, epoch: u64) -> Option<String> {
        eventually("the registration there", async || {
            catch_up(&self.store, &self.registry, &mut self.mark, clock::now())
                .await
                .unwrap();
            let known = self.registry.node(&cluster(), &NODE.parse().unwrap());
            known.is_some_and(|n| n.chain.epoch == epoch)
        })
        .await;
        let known = self.registry.node(&cluster(), &NODE.parse().unwrap());
        known.unwrap().contact.probe_address.map(|a| a.to_string())
    }

    /// It has something to write of the node, and does; what the store has then.
    async fn written(&self) -> Option<String> {
        let node = NODE.parse().unwrap();
        let mut address = None;
        // The gateway at which the node registers may write what it knows in that moment, which is no refusal.
        eventually("what it has written", async || {
            let of = cluster();
            self.registry
                .turned_away(Whose::named(&of, &node), Code::RateLimited, clock::now_ms());
            save_contacts(&self.store, &self.registry).await.unwrap();
            let row = db::query("SELECT probe_address, refusal_at FROM contact WHERE node_id = ?")
                .bind(NODE)
                .fetch_one(self.store.reader())
                .await
                .unwrap();
            address = row.try_get(0).unwrap();
            row.try_get::<Option<i64>, _>(1).unwrap().is_some()
        })
        .await;
        address
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_node_is_probed_that_registers_anew_at_one_gateway_is_known_at_the_other() {
    let site = Site::start().await;
    let mut other = Other {
        store: site.store().await,
        registry: Registry::new(CHAIN_ID, &site.contract),
        mark: Mark::default(),
    };
    let agent = Agent::new(NODE);
    let first = registers(&site, &agent, "198.51.100.7").await;
    assert_eq!(other.told(first).await.as_deref(), Some("198.51.100.7"));
    assert_eq!(other.written().await.as_deref(), Some("198.51.100.7"));

    let second = registers(&site, &agent, "198.51.100.8").await;
    assert!(second > first);
    // It still knows the former, and does not bring it back.
    assert_eq!(other.written().await.as_deref(), Some("198.51.100.8"));
    assert_eq!(other.told(second).await.as_deref(), Some("198.51.100.8"));
    assert_eq!(other.written().await.as_deref(), Some("198.51.100.8"));
}
