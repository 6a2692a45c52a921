use futures_util::TryStreamExt as _;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Either, Error, Executor as _};

use super::conn::{Conn, Side};
use super::dialect;
use super::query::Query;
use super::row::Row;

/// The rows of each of several statements.
pub type Rows = Vec<Vec<Row>>;
/// The rows of each of several statements, and how many it changed.
pub(crate) type Answers = Vec<(Vec<Row>, u64)>;

/// The rows alone.
pub(crate) fn rows(answers: Answers) -> Rows {
    answers.into_iter().map(|(rows, _)| rows).collect()
}

/// The rows of so many statements, one by one.
///
/// # Errors
/// If there are not so many.
pub fn each<const N: usize>(rows: Rows) -> Result<[Vec<Row>; N], Error> {
    rows.try_into()
        .map_err(|rows: Rows| Error::Protocol(format!("{} statements answered, not {N}", rows.len())))
}

impl Conn {
    /// Runs statements one after another: on SQLite all on one way to its thread and back. Where one fails, those after it
    /// are not run.
    ///
    /// # Errors
    /// What the database says.
    pub async fn together(&mut self, queries: Vec<Query<'_>>) -> Result<Rows, Error> {
        match self.side()? {
            Side::Sqlite(conn) => Ok(rows(on_sqlite(conn, "", queries, "").await?)),
            Side::Postgres(conn) => {
                let mut rows = Vec::with_capacity(queries.len());
                for query in queries {
                    rows.push(query.all_on(Side::Postgres(&mut *conn)).await?);
                }
                Ok(rows)
            }
        }
    }

    /// The same of statements that only change; how many rows each changed.
    ///
    /// # Errors
    /// What the database says.
    pub async fn change_together(&mut self, queries: Vec<Query<'_>>) -> Result<Vec<u64>, Error> {
        match self.side()? {
            Side::Sqlite(conn) => Ok(changes(&on_sqlite(conn, "", queries, "").await?)),
            Side::Postgres(conn) => {
                let mut changed = Vec::with_capacity(queries.len());
                for query in queries {
                    let done = query.execute_on(Side::Postgres(&mut *conn)).await?;
                    changed.push(done.rows_affected());
                }
                Ok(changed)
            }
        }
    }
}

/// How many rows each changed.
pub(crate) fn changes(answers: &Answers) -> Vec<u64> {
    answers.iter().map(|(_, changed)| *changed).collect()
}

/// The same on SQLite, between two words that have no rows; either may be empty.
pub(super) async fn on_sqlite(
    conn: &mut SqliteConnection,
    first: &'static str,
    queries: Vec<Query<'_>>,
    last: &'static str,
) -> Result<Answers, Error> {
    let count = queries.len();
    let (mut sql, mut values) = (first.to_owned(), Vec::new());
    for query in queries {
        sql.push_str(if sql.is_empty() { "" } else { ";" });
        values.extend(dialect::in_order(&query.sql, &query.values, &mut sql));
    }
    if !last.is_empty() {
        sql.push_str(if sql.is_empty() { "" } else { ";" });
        sql.push_str(last);
    }
    let joined = Query {
        sql: sql.into(),
        values,
    };
    let mut answers = conn.fetch_many(joined.sqlite());
    let (mut all, mut rows) = (Vec::with_capacity(count + 2), Vec::new());
    while let Some(answer) = answers.try_next().await? {
        match answer {
            Either::Right(row) => rows.push(Row::Sqlite(row)),
            Either::Left(done) => all.push((std::mem::take(&mut rows), done.rows_affected())),
        }
    }
    let words = usize::from(!first.is_empty()) + usize::from(!last.is_empty());
    // Its thread has ended: what it has not answered may not have been carried out.
    if all.len() < count.saturating_add(words) {
        return Err(Error::WorkerCrashed);
    }
    Ok(all
        .into_iter()
        .skip(usize::from(!first.is_empty()))
        .take(count)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::query;
    use crate::store::Store;

    fn put(id: &str) -> Query<'_> {
        query("INSERT INTO cluster (cluster_id, record) VALUES (?1, ?1)").bind(id)
    }

    fn named<'q>(record: &'q str, id: &'q str) -> Query<'q> {
        query("SELECT cluster_id FROM cluster WHERE cluster_id = ?2 OR record = ?1 ORDER BY cluster_id")
            .bind(record)
            .bind(id)
    }

    fn ids(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| row.get("cluster_id")).collect()
    }

    async fn on_record(store: &Store) -> Vec<String> {
        let all = query("SELECT cluster_id FROM cluster ORDER BY cluster_id");
        ids(&all.fetch_all(store.reader()).await.unwrap())
    }

    #[tokio::test]
    async fn statements_that_go_together_answer_each_and_last_or_are_undone_together() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::for_test(&dir.path().join("p.db")).await;
        let asked = vec![
            put("a"),
            put("b"),
            named("b", "a"),
            named("x", "y"),
            named("a", "x"),
        ];
        let (tx, rows) = store.begin_together(asked).await.unwrap();
        let each_of: Vec<_> = rows.iter().map(|rows| ids(rows)).collect();
        let none: [&str; 0] = [];
        assert_eq!(each_of, [&none[..], &none, &["a", "b"], &none, &["a"]]);
        assert!(each::<4>(rows).is_err());
        assert_eq!(on_record(&store).await, none);
        let rows = tx.commit_together(vec![put("c"), named("c", "x")]).await.unwrap();
        assert_eq!(ids(&rows[1]), ["c"]);
        assert_eq!(on_record(&store).await, ["a", "b", "c"]);

        // Nobody ended it: it is undone, and the next one begins.
        drop(store.begin_together(vec![put("d")]).await.unwrap());
        let (tx, _) = store.begin_together(vec![put("e")]).await.unwrap();
        tx.rollback().await.unwrap();
        // The last one fails, and nothing of it lasts.
        let (tx, _) = store.begin_together(vec![put("f")]).await.unwrap();
        tx.commit_together(vec![put("g"), put("a")]).await.unwrap_err();
        store.begin_together(vec![put("a"), put("h")]).await.unwrap_err();
        assert_eq!(on_record(&store).await, ["a", "b", "c"]);
        let (tx, rows) = store.begin_together(Vec::new()).await.unwrap();
        assert!(rows.is_empty());
        tx.commit_together(Vec::new()).await.unwrap();
        // One that began by itself.
        let tx = store.begin().await.unwrap();
        tx.commit_together(vec![put("i")]).await.unwrap();
        assert_eq!(on_record(&store).await, ["a", "b", "c", "i"]);
    }

    #[tokio::test]
    async fn whoever_gives_up_in_the_middle_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::for_test(&dir.path().join("p.db")).await;
        for n in 0..20 {
            let id = format!("c{n}");
            let (tx, _) = store.begin_together(vec![put(&id)]).await.unwrap();
            let commit = tx.commit_together(vec![named("x", &id)]);
            // Polled once: it is on its way, and nobody waits for it.
            drop(tokio::time::timeout(std::time::Duration::ZERO, commit).await);
        }
        // All of it or nothing, and the store goes on.
        let (tx, _) = store.begin_together(vec![put("last")]).await.unwrap();
        tx.commit().await.unwrap();
        assert!(on_record(&store).await.contains(&"last".to_owned()));
    }
}
