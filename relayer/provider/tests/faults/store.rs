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
async fn a_heartbeat_is_accepted_while_the_database_is_held_and_settles_once_it_is_not() {
    let scene = Scene::with(Setting::default()).await;
    let (agent, client) = (&scene.agents[0], scene.agents[0].client(&scene.site));
    let other = Other::holds(&scene).await;
    let body = agent.heartbeat_text(1, clock::now_ms());
    let first = answer(agent.send_text(&client, &scene.site, body.clone()).await).await;
    assert!(first.accepted, "{first:?}");
    let again = answer(agent.send_text(&client, &scene.site, body).await).await;
    assert_eq!(again.errors[0].code, "stale_sequence");
    scene.says("the store does not take in what was accepted").await;
    // The longer it is held, the less is to come.
    let usual = first.next_heartbeat_seconds;
    let mut sequence = 1;
    scene
        .waits("a longer interval", async || {
            sequence += 1;
            let body = agent.heartbeat_text(sequence, clock::now_ms());
            let next = answer(agent.send_text(&client, &scene.site, body).await).await;
            next.next_heartbeat_seconds > usual
        })
        .await;
    other.lets_go().await;
    scene
        .waits("the report on chain", async || {
            scene.site.node(&agent.node).await.sequence == sequence
        })
        .await;
}

#[tokio::test]
async fn a_heartbeat_that_the_disk_did_not_take_is_accepted_when_it_comes_again() {
    let mut scene = Scene::with(Setting::default()).await;
    scene.site.stop_daemon().await;
    let journal = scene
        .site
        .home()
        .join("store")
        .join(virtengine_provider::spool::JOURNAL);
    std::fs::remove_file(&journal).unwrap();
    std::os::unix::fs::symlink("/dev/full", &journal).unwrap();
    scene.site.start_with(scene.config.clone()).await;
    let (agent, client) = (&scene.agents[0], scene.agents[0].client(&scene.site));
    let body = agent.heartbeat_text(1, clock::now_ms());
    let refused = agent.send_text(&client, &scene.site, body.clone()).await;
    assert_eq!(problem(refused).await, (503, "unavailable".into()));
    scene.says("the spool cannot be written").await;
    // There is room again.
    std::fs::remove_file(&journal).unwrap();
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
    // Reports are due meanwhile: the database has them.
    let file = scene.site.home().join("store/provider.db");
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(file).read_only(true));
    let pool = pool.await.unwrap();
    scene
        .waits("the reports in the queue", async || {
            let (waiting,): (i64,) = sqlx::query_as("SELECT count(*) FROM waiting")
                .fetch_one(&pool)
                .await
                .unwrap();
            waiting == 2
        })
        .await;
    pool.close().await;
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
