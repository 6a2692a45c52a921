use std::path::PathBuf;
use std::pin::pin;
use std::time::Instant;

use futures_util::FutureExt as _;
use sqlx::sqlite::SqliteJournalMode;
use tempfile::TempDir;
use tokio::time::sleep;

use super::*;
use crate::db::{Query, Transaction, query};

struct Scene {
    dir: TempDir,
    writer: Writer,
}

impl Scene {
    async fn with(within: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = options(&dir).create_if_missing(true);
        let mut conn = options.connect().await.unwrap();
        // A temporary table is its connection's alone.
        conn.execute("CREATE TABLE kept (id TEXT PRIMARY KEY); CREATE TEMP TABLE mark (id TEXT)")
            .await
            .unwrap();
        let writer = Writer::waiting(conn, options, within);
        Self { dir, writer }
    }

    async fn new() -> Self {
        Self::with(WITHIN).await
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("p.db-wal")
    }

    /// Another process, which waits for nobody.
    async fn other(&self) -> SqliteConnection {
        let options = options(&self.dir).busy_timeout(Duration::ZERO);
        options.connect().await.unwrap()
    }

    async fn begin(&self, queries: Vec<Query<'_>>) -> Result<Transaction, Error> {
        Ok(Transaction::sqlite(&self.writer, queries).await?.0)
    }

    async fn kept(&self) -> Vec<String> {
        let mut other = self.other().await;
        sqlx::query_scalar("SELECT id FROM kept ORDER BY id")
            .fetch_all(&mut other)
            .await
            .unwrap()
    }

    /// The next one writes, on the connection that was there from the beginning.
    async fn goes_on(&self, id: &str) {
        let marked = "SELECT count(*) FROM sqlite_temp_master WHERE name = 'mark'";
        let (tx, rows) = Transaction::sqlite(&self.writer, vec![query(marked), put(id)])
            .await
            .unwrap();
        assert_eq!(rows[0].0[0].get::<i64, _>(0), 1, "another connection");
        tx.commit().await.unwrap();
        assert!(self.kept().await.contains(&id.to_owned()));
    }

    /// Nobody has begun, and yet nothing is locked any more.
    async fn is_free(&self) {
        let (mut other, asked) = (self.other().await, Instant::now());
        while other.execute("BEGIN IMMEDIATE").await.is_err() {
            assert!(asked.elapsed() < Duration::from_secs(20), "it is locked still");
            sleep(Duration::from_millis(5)).await;
        }
        other.execute("ROLLBACK").await.unwrap();
    }
}

fn options(dir: &TempDir) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(dir.path().join("p.db"))
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(20))
}

fn put(id: &str) -> Query<'_> {
    query("INSERT INTO kept (id) VALUES (?1)").bind(id)
}

const NONE: [&str; 0] = [];

#[tokio::test]
async fn one_that_is_given_up_before_it_began_is_undone_on_its_connection() {
    let scene = Scene::new().await;
    let mut other = scene.other().await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    // It waits in SQLite for the other process; whoever asked for it does not.
    let began = timeout(Duration::from_millis(100), scene.begin(vec![put("a")])).await;
    assert!(began.is_err());
    other.execute("ROLLBACK").await.unwrap();
    scene.is_free().await;
    assert_eq!(scene.kept().await, NONE);
    scene.goes_on("b").await;

    // The same where it is answered at about that time, and where somebody waits for the next turn already.
    for n in 0..50 {
        drop(scene.begin(vec![put("a"), put("c")]).now_or_never());
        scene.goes_on(&format!("n{n}")).await;
    }
    assert!(!scene.kept().await.contains(&"a".to_owned()));
    // One that fails.
    assert!(scene.begin(vec![put("a"), put("b")]).await.is_err());
    scene.is_free().await;
    scene.goes_on("d").await;
    assert!(!scene.kept().await.contains(&"a".to_owned()));
}

#[tokio::test]
async fn one_that_nobody_ends_is_undone_on_its_connection() {
    let scene = Scene::new().await;
    let mut tx = scene.begin(vec![put("a")]).await.unwrap();
    put("b").execute(&mut *tx).await.unwrap();
    drop(tx);
    scene.is_free().await;
    assert_eq!(scene.kept().await, NONE);
    scene.goes_on("c").await;

    // In the middle of a statement.
    let mut tx = scene.begin(vec![put("a")]).await.unwrap();
    let long = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
                INSERT INTO kept (id) SELECT 'x' || i FROM n";
    drop(query(long).execute(&mut *tx).now_or_never());
    drop(tx);
    scene.goes_on("d").await;
    // Among its rows, more than wait for a reader.
    let mut tx = scene.begin(vec![put("a")]).await.unwrap();
    let rows =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT i FROM n";
    let asked = timeout(Duration::from_millis(5), query(rows).fetch_all(&mut *tx)).await;
    drop((asked, tx));
    scene.goes_on("e").await;
    // SQLite has undone it by itself.
    let mut tx = scene.begin(vec![put("a")]).await.unwrap();
    let refused = query("INSERT OR ROLLBACK INTO kept (id) VALUES ('a')").execute(&mut *tx);
    assert!(refused.await.is_err());
    assert!(tx.commit().await.is_err());
    let tx = scene.begin(vec![put("a")]).await.unwrap();
    tx.rollback().await.unwrap();
    scene.goes_on("f").await;
    assert_eq!(scene.kept().await, ["c", "d", "e", "f"]);
}

#[tokio::test]
async fn one_whose_commit_nobody_waits_for_is_there_whole_or_not_at_all() {
    let scene = Scene::new().await;
    let mut lasting = 0;
    for n in 0..60 {
        let (first, second) = (format!("a{n}"), format!("b{n}"));
        let mut tx = scene.begin(vec![put(&first)]).await.unwrap();
        if n % 2 == 0 {
            put(&second).execute(&mut *tx).await.unwrap();
            drop(tx.commit().now_or_never());
        } else {
            let mut commit = Box::pin(tx.commit_together(vec![put(&second)]));
            // Given up at several moments.
            drop(timeout(Duration::from_micros(n * 20), &mut commit).await);
        }
        scene.goes_on(&format!("next{n}")).await;
        let kept = scene.kept().await;
        let [one, other] = [&first, &second].map(|id| kept.contains(id));
        assert_eq!(one, other, "{n}");
        lasting += u32::from(one);
    }
    assert!(lasting > 0, "none of them was carried out");
    scene.is_free().await;
}

#[test]
fn where_nothing_runs_any_more_the_next_one_undoes_what_was_left() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let scene = first.block_on(Scene::new());
    let left = first.block_on(scene.begin(vec![put("a")])).unwrap();
    drop(first);
    drop(left);
    runtime().block_on(async {
        scene.goes_on("b").await;
        assert_eq!(scene.kept().await, ["b"]);
    });
}

#[tokio::test]
async fn writers_wait_for_each_other_and_say_so_when_it_takes_too_long() {
    let scene = Scene::with(Duration::from_millis(200)).await;
    let held = scene.begin(vec![put("a")]).await.unwrap();
    let late = scene.begin(vec![put("b")]).await.unwrap_err();
    assert!(matches!(late, Error::PoolTimedOut), "{late}");
    let mut next = pin!(scene.begin(vec![put("c")]));
    assert!((&mut next).now_or_never().is_none());
    held.commit().await.unwrap();
    next.await.unwrap().commit().await.unwrap();
    assert_eq!(scene.kept().await, ["a", "c"]);
}

#[tokio::test]
async fn closing_waits_for_what_is_under_way_and_leaves_no_journal() {
    let scene = Scene::new().await;
    let held = scene.begin(vec![put("a")]).await.unwrap();
    let writer = scene.writer.clone();
    let mut waits = pin!(scene.begin(vec![put("b")]));
    assert!((&mut waits).now_or_never().is_none());
    let closing = tokio::spawn(async move { writer.close().await });
    let late = waits.await.unwrap_err();
    assert!(matches!(late, Error::PoolClosed), "{late}");
    assert!(!closing.is_finished() && scene.journal().exists());
    held.commit().await.unwrap();
    closing.await.unwrap();
    assert!(!scene.journal().exists(), "it was not closed cleanly");
    let late = scene.begin(Vec::new()).await.unwrap_err();
    assert!(matches!(late, Error::PoolClosed), "{late}");
    scene.writer.close().await;
    assert_eq!(scene.kept().await, ["a"]);

    // One that was just given up.
    let scene = Scene::new().await;
    drop(scene.begin(vec![put("a")]).await.unwrap());
    scene.writer.close().await;
    assert!(!scene.journal().exists());
    assert_eq!(scene.kept().await, NONE);
}

#[tokio::test]
async fn a_connection_that_cannot_even_undo_is_opened_anew() {
    let scene = Scene::with(Duration::from_secs(12)).await;
    {
        let mut place = scene.writer.0.place.lock().await;
        // Its thread waits for ever.
        std::mem::forget(place.conn().unwrap().lock_handle().await.unwrap());
        place.open = true;
    }
    let tx = scene.begin(vec![put("a")]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(scene.kept().await, ["a"]);
}
