//! What the gateway knows of a node beside the chain, on disk.

use std::net::IpAddr;
use std::sync::Arc;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;

use super::node::{Contact, Node, Order, OrderKind, ProbeEndpoint};
use super::view::Registry;
use crate::db::{self, Conn, Row};
use crate::store::{Store, StoreError, int, opt_uint};

pub(super) fn read(row: &Row) -> Result<Contact, StoreError> {
    let ip = |column: &'static str| -> Result<Option<IpAddr>, StoreError> {
        let text: Option<String> = row.try_get(column)?;
        Ok(text.and_then(|a| a.parse().ok()))
    };
    let kind: Option<String> = row.try_get("order_kind")?;
    let kind = match kind.as_deref() {
        Some("drain") => Some(OrderKind::Drain),
        Some("resume") => Some(OrderKind::Resume),
        _ => None,
    };
    let id: Option<String> = row.try_get("order_id")?;
    let order = match (
        kind,
        id,
        opt_uint(row, "order_at_s")?,
        opt_uint(row, "order_until_s")?,
    ) {
        (Some(kind), Some(id), Some(at), Some(until)) => Some(Order {
            kind,
            id,
            at: UnixSeconds(at),
            until: UnixSeconds(until),
        }),
        _ => None,
    };
    let code = opt_uint(row, "refusal_code")?
        .and_then(|n| u8::try_from(n).ok())
        .and_then(Code::from_number);
    Ok(Contact {
        address: ip("address")?,
        probe_port: opt_uint(row, "probe_port")?.and_then(|p| u16::try_from(p).ok()),
        probe_address: ip("probe_address")?,
        order,
        refusal: code.zip(opt_uint(row, "refusal_at")?),
    })
}

/// Keeps what a registering node says of its probes, whether or not it is on record already.
///
/// # Errors
/// If the store fails.
pub async fn keep_probe(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    probed: ProbeEndpoint,
) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO contact (cluster_id, node_id, address, probe_port, probe_address) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET address = excluded.address,
           probe_port = excluded.probe_port, probe_address = excluded.probe_address",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(probed.from.to_string())
    .bind(probed.port.map(i64::from))
    .bind(probed.address.map(|a| a.to_string()))
    .execute(conn)
    .await?;
    Ok(())
}

/// What is known of a node beside the chain, if anything.
pub(super) async fn contact_of(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<Option<Contact>, StoreError> {
    let row = db::query("SELECT * FROM contact WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(read).transpose()
}

/// Writes what has changed of nodes beside the chain. Of probes [`keep_probe`] has the last word: the node may have registered
/// anew at another gateway.
///
/// # Errors
/// If the store fails; then it is tried again with the next call.
pub async fn save_contacts(store: &Store, registry: &Registry) -> Result<(), StoreError> {
    let dirty = registry.take_dirty();
    if dirty.is_empty() {
        return Ok(());
    }
    let saved = write_contacts(store, &dirty).await;
    if saved.is_err() {
        registry.mark_dirty(&dirty);
    }
    saved
}

async fn write_contacts(store: &Store, nodes: &[Arc<Node>]) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    for node in nodes {
        save_contact(&mut tx, node).await?;
    }
    tx.commit().await?;
    Ok(())
}

async fn save_contact(conn: &mut Conn, node: &Node) -> Result<(), StoreError> {
    let Contact {
        address,
        probe_port,
        probe_address,
        order,
        refusal,
    } = &node.contact;
    db::query(
        "INSERT INTO contact (cluster_id, node_id, address, probe_port, probe_address, order_kind, order_id,
         order_at_s, order_until_s, refusal_code, refusal_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET address = excluded.address,
           order_kind = excluded.order_kind, order_id = excluded.order_id, order_at_s = excluded.order_at_s,
           order_until_s = excluded.order_until_s, refusal_code = excluded.refusal_code,
           refusal_at = excluded.refusal_at",
    )
    .bind(node.cluster_id.as_str())
    .bind(node.node_id.as_str())
    .bind(address.map(|a| a.to_string()))
    .bind(probe_port.map(i64::from))
    .bind(probe_address.map(|a| a.to_string()))
    .bind(order.as_ref().map(|o| o.kind.as_str()))
    .bind(order.as_ref().map(|o| o.id.as_str()))
    .bind(order.as_ref().map(|o| int(o.at.0)))
    .bind(order.as_ref().map(|o| int(o.until.0)))
    .bind(refusal.map(|(code, _)| i64::from(code.number())))
    .bind(refusal.map(|(_, at)| int(at)))
    .execute(conn)
    .await?;
    Ok(())
}

/// Contacts of nodes that are gone which go at a time.
const MOST: i64 = 1000;

/// Forgets what the gateways know of nodes that are not on record, and of which nothing is known that was accepted, a bounded
/// number at a time; how many. Of one whose registration is under way, or changed since `before_ms`, it is known where it
/// wants to be probed.
///
/// # Errors
/// If the store fails.
pub async fn forget_contacts(conn: &mut Conn, before_ms: u64) -> Result<u64, StoreError> {
    let done = db::query(
        "DELETE FROM contact WHERE (cluster_id, node_id) IN (
           SELECT c.cluster_id, c.node_id FROM contact c
           WHERE NOT EXISTS (SELECT 1 FROM node n WHERE n.cluster_id = c.cluster_id AND n.node_id = c.node_id)
             AND NOT EXISTS (SELECT 1 FROM intake i WHERE i.cluster_id = c.cluster_id AND i.node_id = c.node_id)
             AND (c.cluster_id, c.node_id) NOT IN (SELECT r.cluster_id, r.node_id FROM registration r
               WHERE r.state IN ('queued', 'sent') OR r.updated_at >= ?)
           LIMIT ?)",
    )
    .bind(int(before_ms))
    .bind(MOST)
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::super::{Whose, scene, store};
    use super::*;

    const NAT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));
    const OTHER_NAT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 2));
    const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

    struct Scene {
        db: Store,
        cluster: ClusterId,
        node: NodeId,
        _dir: tempfile::TempDir,
    }

    impl Scene {
        /// A store with a node on record, and a gateway that knows it.
        async fn begin() -> (Self, Registry) {
            let dir = tempfile::tempdir().unwrap();
            let db = Store::for_test(&dir.path().join("p.db")).await;
            let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
            let registry = Registry::new("c", "k");
            let record = registry.set_node(&cluster, scene::view(), 1, UnixSeconds(1_000));
            let mut tx = db.begin().await.unwrap();
            store::save_nodes(&mut tx, &[record.unwrap()]).await.unwrap();
            tx.commit().await.unwrap();
            let scene = Self {
                db,
                cluster,
                node: scene::view().node_id,
                _dir: dir,
            };
            (scene, registry)
        }

        async fn registers(&self, at: &Registry, address: Option<IpAddr>) {
            let probed = ProbeEndpoint {
                port: Some(9461),
                address,
                from: NAT,
            };
            let mut tx = self.db.begin().await.unwrap();
            keep_probe(&mut tx, &self.cluster, &self.node, probed)
                .await
                .unwrap();
            tx.commit().await.unwrap();
            at.set_probe(&self.cluster, &self.node, probed);
        }

        /// What the store has of the node.
        async fn kept(&self) -> Contact {
            let mut tx = self.db.begin().await.unwrap();
            let kept = contact_of(&mut tx, &self.cluster, &self.node).await.unwrap();
            tx.commit().await.unwrap();
            kept.unwrap()
        }

        /// What a gateway knows that starts now.
        async fn restarted(&self) -> Registry {
            let registry = Registry::new("c", "k");
            store::load(&self.db, &registry, UnixSeconds(1_000))
                .await
                .unwrap();
            registry
        }

        /// Where another node is told to probe it.
        async fn told(&self, by: &Registry) -> String {
            by.refresh_peers(2_000).await;
            let other = "node-b".parse().unwrap();
            let around = by.around(Whose::named(&self.cluster, &other));
            let peers = around.neighbours(&other, 4, UnixSeconds(0));
            peers.first().unwrap().address.clone()
        }
    }

    #[tokio::test]
    async fn peers_are_told_the_address_that_a_node_has_named_until_it_registers_without_one() {
        let (scene, registry) = Scene::begin().await;
        scene.registers(&registry, Some(OWN)).await;
        assert_eq!(scene.told(&registry).await, OWN.to_string());
        // Heartbeats come from elsewhere.
        registry.accepted(Whose::named(&scene.cluster, &scene.node), 1, 2, 1_500, OTHER_NAT);
        assert_eq!(scene.told(&registry).await, OWN.to_string());
        save_contacts(&scene.db, &registry).await.unwrap();
        let restarted = scene.restarted().await;
        assert_eq!(scene.told(&restarted).await, OWN.to_string());
        let known = restarted.node(&scene.cluster, &scene.node).unwrap();
        assert_eq!(known.contact.address, Some(OTHER_NAT));

        scene.registers(&registry, None).await;
        assert_eq!(scene.told(&registry).await, NAT.to_string());
        registry.accepted(Whose::named(&scene.cluster, &scene.node), 1, 3, 1_600, OTHER_NAT);
        assert_eq!(scene.told(&registry).await, OTHER_NAT.to_string());
        save_contacts(&scene.db, &registry).await.unwrap();
        assert_eq!(scene.told(&scene.restarted().await).await, OTHER_NAT.to_string());
    }

    #[tokio::test]
    async fn a_gateway_that_knows_an_older_registration_does_not_bring_its_address_back() {
        let (scene, behind) = Scene::begin().await;
        scene.registers(&behind, Some(OWN)).await;
        let other = scene.restarted().await;
        scene.registers(&other, None).await;
        behind.turned_away(
            Whose::named(&scene.cluster, &scene.node),
            Code::RateLimited,
            1_700,
        );
        save_contacts(&scene.db, &behind).await.unwrap();
        let kept = scene.kept().await;
        assert_eq!((kept.probe_port, kept.probe_address), (Some(9461), None));
        assert_eq!(kept.refusal, Some((Code::RateLimited, 1_700)));
        // As it does once it sees that the node has changed.
        behind.take_probe(&scene.cluster, &scene.node, &kept);
        assert_eq!(scene.told(&behind).await, NAT.to_string());
        // It reports to the other one, from elsewhere.
        other.accepted(Whose::named(&scene.cluster, &scene.node), 1, 2, 1_800, OTHER_NAT);
        save_contacts(&scene.db, &other).await.unwrap();
        let moved = scene.kept().await;
        behind.take_probe(&scene.cluster, &scene.node, &moved);
        assert_eq!(scene.told(&behind).await, OTHER_NAT.to_string());
        // And then to this one, which has not written that yet.
        behind.accepted(Whose::named(&scene.cluster, &scene.node), 1, 3, 1_900, NAT);
        behind.take_probe(&scene.cluster, &scene.node, &moved);
        assert_eq!(scene.told(&behind).await, NAT.to_string());
    }

    #[tokio::test]
    async fn what_is_known_of_a_node_goes_once_it_is_on_record_no_more_unless_it_registers() {
        let (scene, registry) = Scene::begin().await;
        scene.registers(&registry, Some(OWN)).await;
        let mut tx = scene.db.begin().await.unwrap();
        for (node, state, updated_at) in [
            ("node-gone", None, 0_i64),
            ("node-beat", None, 0),
            ("node-gave-up", Some("refused"), 999),
            ("node-tries", Some("refused"), 1_000),
            ("node-waits", Some("queued"), 0),
        ] {
            let probed = ProbeEndpoint {
                port: None,
                address: None,
                from: NAT,
            };
            keep_probe(&mut tx, &scene.cluster, &node.parse().unwrap(), probed)
                .await
                .unwrap();
            let Some(state) = state else { continue };
            db::query(
                "INSERT INTO token (jti, cluster_id, node_id, public_key, created_at_s, expires_at_s)
                 VALUES (?1, ?2, ?1, ?3, 1, 2)",
            )
            .bind(node)
            .bind(scene.cluster.as_str())
            .bind([1u8].as_slice())
            .execute(&mut *tx)
            .await
            .unwrap();
            db::query(
                "INSERT INTO registration (jti, cluster_id, node_id, public_key, csr, state, created_at, updated_at)
                 VALUES (?1, ?2, ?1, ?3, ?3, ?4, 1, ?5)",
            )
            .bind(node)
            .bind(scene.cluster.as_str())
            .bind([1u8].as_slice())
            .bind(state)
            .bind(updated_at)
            .execute(&mut *tx)
            .await
            .unwrap();
        }
        // What was accepted of it is not old enough to be forgotten.
        db::query(
            "INSERT INTO intake (cluster_id, node_id, epoch, acked_sequence, highest_sequence, received_at)
             VALUES (?, 'node-beat', 1, 1, 1, 1)",
        )
        .bind(scene.cluster.as_str())
        .execute(&mut *tx)
        .await
        .unwrap();
        assert_eq!(forget_contacts(&mut tx, 1_000).await.unwrap(), 2);
        tx.commit().await.unwrap();
        let rows = db::query("SELECT node_id FROM contact ORDER BY node_id");
        let rows = rows.fetch_all(scene.db.reader()).await.unwrap();
        let left: Vec<String> = rows.iter().map(|row| row.get("node_id")).collect();
        assert_eq!(left, ["node-a", "node-beat", "node-tries", "node-waits"]);
    }
}
