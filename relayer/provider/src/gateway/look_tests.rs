//! A request goes by who asks when it is made, whatever was seen of the one before on its connection.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method};
use axum::response::IntoResponse as _;
use hpc_schema::gateway::heartbeat_path;
use hpc_schema::registry::RelayView;
use hpc_schema::time::UnixSeconds;

use super::answer::REVOKED;
use super::body::Announced;
use super::connection::{Connection, Look};
use super::heartbeat::{self, Asked};
use super::namesake_tests::Scene;
use crate::clock::{self, Moment};
use crate::enrol::{Which, record_outside, revoke_certificates};
use crate::registry::scene;

impl Scene {
    /// All nodes are read, and the one of the certificate is not among them.
    async fn read() -> Self {
        let mut scene = Self::new().await;
        scene.peer.not_after = clock::now().plus(3600);
        let cluster = &scene.peer.cluster_id;
        scene::read(&scene.registry, &[cluster], &[cluster]);
        scene
    }

    /// What a heartbeat of a connection is told.
    async fn beats(&self, connection: &Connection) -> (u16, String) {
        let path = heartbeat_path(&self.peer.node_id);
        let body = self.heartbeat.clone();
        let (status, _, said) = self.ask(connection, Method::POST, &path, body).await;
        (status, said.to_string())
    }

    /// The same of one that came so long ago, from who was seen like this.
    async fn beat_came(&self, connection: &Connection, ms_ago: u64, look: Look) -> u16 {
        let now = Moment::now();
        // By the clock that is never set: the other one may have been put back meanwhile.
        let came = Moment {
            at: now.at.checked_sub(Duration::from_millis(ms_ago)).unwrap(),
            ..now
        };
        let asked = Asked {
            gateway: &self.gateway,
            connection,
            path_node: self.peer.node_id.as_str(),
            announced: Announced::by(&HeaderMap::new()),
            came,
            look,
        };
        heartbeat::receive(asked, &mut Body::from(self.heartbeat.clone()))
            .await
            .into_response()
            .status()
            .as_u16()
    }

    async fn revokes(&self) {
        let (store, now) = (&self.gateway.store, clock::now());
        record_outside(store, &self.peer, now).await.unwrap();
        let mut tx = store.begin().await.unwrap();
        let which = Which::Fingerprint(&self.peer.fingerprint);
        assert_eq!(revoke_certificates(&mut tx, which, now).await.unwrap(), 1);
        tx.commit().await.unwrap();
        self.gateway.controls.refresh(store).await.unwrap();
    }
}

#[tokio::test]
async fn a_revocation_is_seen_by_the_next_request_of_a_connection_and_by_one_whose_body_comes_late() {
    let scene = Scene::read().await;
    let connection = scene.connection(true, None);
    let look = || connection.look(&scene.gateway, clock::now());
    assert_eq!(scene.beats(&connection).await.0, 200);
    assert_eq!(scene.beat_came(&connection, 1_000, look()).await, 200);
    let before = look();
    assert!(connection.member_at(&before).is_some());
    scene.revokes().await;
    let (status, said) = scene.beats(&connection).await;
    assert!(status == 401 && said.contains(REVOKED), "{said}");
    assert!(connection.member_at(&look()).is_none());
    assert_eq!(scene.beat_came(&connection, 1_000, before).await, 401);
}

#[tokio::test]
async fn an_end_and_a_newer_registration_are_seen_by_the_next_request_of_a_connection() {
    let scene = Scene::read().await;
    let connection = scene.connection(true, None);
    let node = scene.peer.node_id.as_str();
    let counts = |now| {
        let look = connection.look(&scene.gateway, now);
        connection.node_at(node, &look).is_ok()
    };
    let end = scene.peer.not_after;
    assert!(counts(end.minus(1)) && !counts(end));
    let before = connection.look(&scene.gateway, clock::now());
    let newer = RelayView {
        node_id: scene.peer.node_id.clone(),
        epoch: scene.peer.epoch.unwrap() + 1,
        ..scene::view()
    };
    let set = scene
        .registry
        .set_node(&scene.peer.cluster_id, newer, 2, UnixSeconds(1));
    assert!(set.is_some() && !counts(clock::now()));
    assert_eq!(scene.beats(&connection).await.0, 401);
    assert_eq!(scene.beat_came(&connection, 1_000, before).await, 401);
}
