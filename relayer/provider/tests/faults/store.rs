//! A store that fails while there is something to settle.

use sqlx::Transaction;
use sqlx::sqlite::{Sqlite, SqliteConnectOptions, SqlitePool};
use virtengine_provider::clock;
use virtengine_provider::config::Span;

use crate::agent::{answer, problem};
use crate::scene::{Scene, Setting};

/// Another program that holds the store for longer than anybody waits.
struct Other {
    pool: SqlitePool,
    held: Transaction<'static, Sqlite>,
}

impl Other {
    async fn holds(scene: &Scene) -> Self {
        let file = scene.site.home().join("store/provider.db");
        let options = SqliteConnectOptions::new().filename(file);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let held = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        Self { pool, held }
    }

    async fn lets_go(self) {
        self.held.rollback().await.unwrap();
        self.pool.close().await;
    }
}

#[tokio::test]
async fn a_heartbeat_that_the_store_did_not_take_is_accepted_when_it_comes_again() {
    let setting = Setting {
        config: |c| c.gateway.request_timeout = Span::millis(500),
        ..Setting::default()
    };
    let scene = Scene::with(setting).await;
    let (agent, client) = (&scene.agents[0], scene.agents[0].client(&scene.site));
    let other = Other::holds(&scene).await;
    let body = agent.heartbeat_text(1, clock::now_ms());
    let refused = agent.send_text(&client, &scene.site, body.clone()).await;
    assert_eq!(problem(refused).await, (503, "unavailable".into()));
    scene.says("the spool cannot be written").await;
    other.lets_go().await;
    // The very request.
    let repeated = answer(agent.send_text(&client, &scene.site, body.clone()).await).await;
    assert!(repeated.accepted, "{repeated:?}");
    scene
        .waits("the report on chain", async || {
            scene.site.node(&agent.node).await.sequence == 1
        })
        .await;
    let again = answer(agent.send_text(&client, &scene.site, body).await).await;
    assert_eq!(again.errors[0].code, "stale_sequence");
}

#[tokio::test]
async fn settlement_waits_for_a_store_that_fails_and_goes_on() {
    let setting = Setting {
        agents: 2,
        config: |c| c.batch.submit_interval = Span::seconds(3),
        ..Setting::default()
    };
    let mut scene = Scene::with(setting).await;
    scene.beat().await;
    // A report is due meanwhile.
    let other = Other::holds(&scene).await;
    let line = scene.says("nothing is settled").await;
    assert!(line.contains("store_failing"), "{line}");
    let (status, body) = scene.site.ops("/readyz").await;
    assert!(status == 503 && body.contains("store_failing"), "{body}");
    other.lets_go().await;
    scene.settled().await;
    scene
        .waits("readiness", async || scene.site.ops("/readyz").await.0 == 200)
        .await;
    scene.ends().await;
}
