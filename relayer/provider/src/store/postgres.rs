use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions, PgSslMode};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{BUSY, Store, StoreError, Write, migrations};
use crate::db::{Pool, Transaction};
use crate::home;

/// What is held by every transaction: alone, or beside others of its kind. The lock's number says nothing.
const ALONE: &str = "SELECT pg_advisory_xact_lock(8251022001)";
const BESIDE: &str = "SELECT pg_advisory_xact_lock_shared(8251022001)";
/// Where the migrations' triggers tell of decisions and tasks.
const CHANNEL: &str = "virtengine_gateways";
/// After the listener was cut off it comes back after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest password.
const MOST_PASSWORD: usize = 4096;
const URL: &str = "store.url";

/// Settings of each session. A gateway that has stopped in the middle of a transaction, or whose machine is gone, keeps the
/// others waiting no longer than these say.
const SESSION: [(&str, &str); 6] = [
    ("idle_in_transaction_session_timeout", "4000"),
    ("lock_timeout", "10000"),
    ("statement_timeout", "60000"),
    ("tcp_keepalives_idle", "3"),
    ("tcp_keepalives_interval", "1"),
    ("tcp_keepalives_count", "3"),
];

fn bad(key: &'static str, message: impl Into<String>) -> StoreError {
    StoreError::Config {
        key,
        message: message.into(),
    }
}

/// Whether `store.url` can be one.
///
/// # Errors
/// Names the key and the remedy.
pub fn check_url(url: &str) -> Result<(), StoreError> {
    parse(url).map(drop)
}

fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    let rest = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))
        .ok_or_else(|| {
            bad(
                URL,
                "must begin with postgres://; without the key the store is SQLite in --home",
            )
        })?;
    let (place, question) = rest.split_once('?').unwrap_or((rest, ""));
    let user = place
        .split('/')
        .next()
        .and_then(|authority| authority.rsplit_once('@'));
    if user.is_some_and(|(user, _)| user.contains(':'))
        || question.split('&').any(|q| q.starts_with("password="))
    {
        return Err(bad(
            URL,
            "must not hold a password; put it into a file that store.password_file names",
        ));
    }
    let options: PgConnectOptions = url.parse().map_err(|e| bad(URL, format!("{e}")))?;
    let host = options.get_host();
    let here = options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if !here
        && !matches!(
            options.get_ssl_mode(),
            PgSslMode::VerifyFull | PgSslMode::VerifyCa
        )
    {
        return Err(bad(
            URL,
            format!(
                "{host} is another machine: add sslmode=verify-full, and sslrootcert=FILE for a CA of your own"
            ),
        ));
    }
    Ok(options)
}

/// How to connect.
pub(super) fn options(url: &str, password_file: Option<&Path>) -> Result<PgConnectOptions, StoreError> {
    let mut options = parse(url)?
        .application_name("virtengine-provider")
        .options(SESSION);
    let (_, question) = url.split_once('?').unwrap_or_default();
    let ca_file = question.split('&').find_map(|q| q.strip_prefix("sslrootcert="));
    // By its name: what connects later would only say that some file is not there. It reads escaped names and PEM in place.
    let ca_file = ca_file.filter(|name| !name.contains(['%', '\n']));
    if let Some(Err(e)) = ca_file.map(std::fs::metadata) {
        return Err(bad(
            URL,
            format!("sslrootcert: {}: {e}", ca_file.unwrap_or_default()),
        ));
    }
    if let Some(path) = password_file {
        const KEY: &str = "store.password_file";
        let text = home::read_secret(path).map_err(|e| bad(KEY, format!("{}: {e}", path.display())))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() || text.len() > MOST_PASSWORD {
            return Err(bad(
                KEY,
                format!("{}: must hold the password, one line", path.display()),
            ));
        }
        options = options.password(text);
    }
    Ok(options)
}

pub(super) async fn begin(pool: &PgPool) -> Result<Transaction, StoreError> {
    begin_with(pool, ALONE).await
}

pub(super) async fn begin_beside(pool: &PgPool) -> Result<Transaction, StoreError> {
    begin_with(pool, BESIDE).await
}

/// The lock is asked for within a transaction that is begun: whoever gives up while it is waited for, or does not get it in time,
/// drops one that is rolled back, and leaves no connection behind that holds it or takes no statement any more.
async fn begin_with(pool: &PgPool, lock: &'static str) -> Result<Transaction, StoreError> {
    let mut tx = pool.begin().await?;
    sqlx::raw_sql(lock).execute(&mut *tx).await?;
    Ok(Transaction::postgres(tx))
}

/// What an operator has to mend names the key; the rest may pass.
fn unusable(e: sqlx::Error, options: &PgConnectOptions) -> StoreError {
    let host = options.get_host();
    let certificate = |text: &str| {
        bad(
            URL,
            format!(
                "{host} is not who it should be, or its CA is not known: {text}; sslrootcert=FILE names a CA of your own, and the \
                 name must stand in the server's certificate"
            ),
        )
    };
    match &e {
        sqlx::Error::Database(d) if matches!(d.code().as_deref(), Some("28P01" | "28000")) => bad(
            "store.password_file",
            format!(
                "{host} does not let {} in: {}",
                options.get_username(),
                d.message()
            ),
        ),
        sqlx::Error::Tls(tls) => certificate(&tls.to_string()),
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => certificate(&io.to_string()),
        sqlx::Error::Configuration(c) => bad(URL, c.to_string()),
        _ => e.into(),
    }
}

impl Store {
    /// Connects to PostgreSQL and brings its schema up to date.
    pub(super) async fn connect(options: PgConnectOptions) -> Result<Self, StoreError> {
        let pool = |most: u32| PgPoolOptions::new().max_connections(most).acquire_timeout(BUSY);
        let write = pool(8)
            .connect_with(options.clone())
            .await
            .map_err(|e| unusable(e, &options))?;
        migrations::postgres().run(&write).await?;
        let read = pool(4).connect_lazy_with(options.clone());
        let aside = pool(4).connect_lazy_with(options);
        Ok(Self {
            write: Write::Postgres { pool: write, aside },
            read: Pool::Postgres(read),
            fence: None,
        })
    }

    /// Hears of decisions and tasks that came by other gateways or processes. With SQLite nothing is ever heard.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let heard = Arc::new(Notify::new());
        let task = match &self.write {
            Write::Sqlite { .. } => None,
            Write::Postgres { aside, .. } => Some(tokio::spawn(listen(aside.clone(), Arc::clone(&heard)))),
        };
        Changes { heard, task }
    }
}

async fn listen(pool: PgPool, heard: Arc<Notify>) {
    loop {
        if let Err(e) = listen_on(&pool, &heard).await {
            tracing::debug!(error = %e, "the store's news are not heard; it is looked at now and then all the same");
        }
        if pool.is_closed() {
            return;
        }
        sleep(AGAIN).await;
    }
}

async fn listen_on(pool: &PgPool, heard: &Notify) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    loop {
        // None: it was cut off, and what came meanwhile is not known.
        drop(listener.try_recv().await?);
        heard.notify_one();
    }
}

/// News of the store, without their content.
#[derive(Debug)]
pub struct Changes {
    heard: Arc<Notify>,
    task: Option<JoinHandle<()>>,
}

impl Changes {
    /// Ends when there are some; several that came together count as one.
    pub async fn heard(&self) {
        self.heard.notified().await;
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_stands_in_no_url_and_another_machine_is_reached_by_tls_alone() {
        for url in [
            "postgres://hpc@localhost/hpc",
            "postgres:///hpc?host=/run/postgresql&user=hpc",
            "postgresql://hpc@127.0.0.1:5433/hpc?sslmode=disable",
            "postgres://hpc@db.example/hpc?sslmode=verify-full",
        ] {
            check_url(url).unwrap_or_else(|e| panic!("{url}: {e}"));
        }
        for (url, word) in [
            ("sqlite:///x", "postgres://"),
            ("postgres://hpc:secret@localhost/hpc", "store.password_file"),
            (
                "postgres://localhost/hpc?user=hpc&password=secret",
                "store.password_file",
            ),
            ("postgres://hpc@db.example/hpc", "sslmode=verify-full"),
            (
                "postgres://hpc@db.example/hpc?sslmode=require",
                "sslmode=verify-full",
            ),
            (
                "postgres://hpc@192.0.2.7/hpc?sslmode=disable",
                "sslmode=verify-full",
            ),
        ] {
            let said = check_url(url).unwrap_err().to_string();
            assert!(
                said.starts_with("store.url: ") && said.contains(word),
                "{url}: {said}"
            );
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
