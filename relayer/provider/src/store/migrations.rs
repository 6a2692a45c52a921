use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

type Script = (i64, &'static str, &'static str);

/// A script of this name for this database.
macro_rules! script {
    ($of:literal, $number:literal, $name:literal, $file:literal) => {
        (
            $number,
            $name,
            include_str!(concat!("../../migrations/", $of, "/", $file, ".sql")),
        )
    };
}

/// The scripts that both databases have, in their order.
macro_rules! scripts {
    ($of:literal) => {
        [
            script!($of, 1, "init", "0001_init"),
            script!($of, 2, "control", "0002_control"),
            script!($of, 10, "audit", "0010_audit"),
            script!($of, 11, "signer address", "0011_signer_address"),
            script!($of, 20, "events", "0020_events"),
            script!($of, 21, "alerts", "0021_alerts"),
            script!($of, 22, "proofs", "0022_proofs"),
            script!($of, 40, "tasks", "0040_tasks"),
            script!($of, 50, "slots", "0050_slots"),
            script!($of, 61, "lists", "0061_lists"),
            script!($of, 62, "certificates", "0062_certificates"),
            script!($of, 63, "instances", "0063_instances"),
            script!($of, 65, "attestation", "0065_attestation"),
            script!($of, 67, "order place", "0067_order_place"),
            script!($of, 68, "scheduled tasks", "0068_scheduled_tasks"),
            script!($of, 69, "registration quote", "0069_registration_quote"),
            script!($of, 71, "revoked before", "0071_revoked_before"),
            script!($of, 72, "probe address", "0072_probe_address"),
            script!($of, 73, "included", "0073_included"),
        ]
    };
}

pub(super) fn sqlite() -> Migrator {
    let mut all = scripts!("sqlite").to_vec();
    all.push(script!("sqlite", 66, "waiting rows", "0066_waiting_rows"));
    all.push(script!("sqlite", 70, "intake journal", "0070_intake_journal"));
    migrator(&all)
}

pub(super) fn postgres() -> Migrator {
    let mut all = scripts!("postgres").to_vec();
    all.push(script!("postgres", 60, "gateways", "0060_gateways"));
    all.push(script!("postgres", 64, "task news", "0064_task_news"));
    migrator(&all)
}

fn migrator(scripts: &[Script]) -> Migrator {
    let migration = |(version, name, sql): &Script| {
        Migration::new(
            *version,
            (*name).into(),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    };
    Migrator::with_migrations(scripts.iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::SqliteConnectOptions;
    use sqlx::{ConnectOptions as _, Connection as _};

    use super::*;
    use crate::db;
    use crate::store::Store;

    #[tokio::test]
    async fn what_waited_before_the_queue_was_an_ordinary_table_waits_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.db");
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true);
        let mut conn = options.connect().await.unwrap();
        migrator(&scripts!("sqlite")).run(&mut conn).await.unwrap();
        sqlx::query(
            "INSERT INTO waiting (cluster_id, node_id, epoch, sequence, report, signature, queued_at, received_at,
             superseded_from, superseded_count, heartbeat)
             VALUES ('hpc-cluster-1', 'node-0001', 2, 7, x'01', x'02', 3, 4, 5, 1, x'7b7d')",
        )
        .execute(&mut conn)
        .await
        .unwrap();
        conn.close().await.unwrap();
        let store = Store::open(&path).await.unwrap();
        let row = db::query(
            "SELECT cluster_id || '/' || node_id || '/' || epoch || '/' || sequence || '/' || hex(report) || '/' || hex(signature)
             || '/' || queued_at || '/' || received_at || '/' || superseded_from || '/' || superseded_count AS text, heartbeat
             FROM waiting",
        )
        .fetch_one(store.reader())
        .await
        .unwrap();
        assert_eq!(
            row.get::<String, _>(0),
            "hpc-cluster-1/node-0001/2/7/01/02/3/4/5/1"
        );
        assert_eq!(row.get::<Vec<u8>, _>(1), b"{}");
        store.close().await;
    }
}
