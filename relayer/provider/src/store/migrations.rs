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
        ]
    };
}

pub(super) fn sqlite() -> Migrator {
    migrator(&scripts!("sqlite"))
}

pub(super) fn postgres() -> Migrator {
    let mut all = scripts!("postgres").to_vec();
    all.push(script!("postgres", 60, "gateways", "0060_gateways"));
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
