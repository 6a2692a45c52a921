//! The way to a PostgreSQL on another machine: TLS that is verified, a password in a file.

use std::path::{Path, PathBuf};
use std::process::Command;

use virtengine_provider::db;
use virtengine_provider::home::Home;
use virtengine_provider::store::Store;

use crate::agent::Agent;
use crate::process::{Process, beat};
use crate::site::Site;

/// What `scripts/postgres` has made for this.
pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    url: String,
    password: String,
}

impl Server {
    pub(crate) fn found() -> Self {
        let folder = PathBuf::from(std::env::var("HPC_TEST_POSTGRES_TLS").expect("scripts/postgres COMMAND"));
        let line = |name: &str| {
            std::fs::read_to_string(folder.join(name))
                .unwrap()
                .trim()
                .to_owned()
        };
        Self {
            url: line("url"),
            password: line("password"),
            folder,
        }
    }

    /// `store.url` for this database, with the CA of that name.
    pub(crate) fn url(&self, database: &str, ca: &str) -> String {
        let (server, _) = self.url.rsplit_once('/').unwrap();
        format!(
            "{server}/{database}?sslmode=verify-full&sslrootcert={}",
            self.folder.join(ca).display()
        )
    }
}

/// The database that the site has made over the Unix socket.
pub(crate) fn database(site: &Site) -> String {
    let url = site.config().store.url.unwrap();
    let (_, rest) = url.split_once(":///").unwrap();
    rest.split('?').next().unwrap().to_owned()
}

pub(crate) fn env(url: &str, password: &Path) -> Vec<(String, String)> {
    [
        ("VIRTENGINE_PROVIDER__STORE__URL", url.to_owned()),
        (
            "VIRTENGINE_PROVIDER__STORE__PASSWORD_FILE",
            password.display().to_string(),
        ),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .to_vec()
}

/// What `run` says as it refuses, and its exit code.
fn refuses(site: &Site, url: &str, password: &Path) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_virtengine-provider"));
    command.arg("run").arg("--home").arg(site.home());
    command.envs(site.env()).envs(env(url, password));
    let out = command.output().unwrap();
    (
        String::from_utf8_lossy(&out.stderr).into_owned(),
        out.status.code(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_reached_by_verified_tls_with_a_password_from_a_file() {
    let mut site = Site::prepare().await;
    let server = Server::found();
    let (url, password) = (
        server.url(&database(&site), "ca.crt"),
        server.folder.join("password"),
    );
    let pairs = env(&url, &password);
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let process = Process::start_with(&site, None, &pairs);
    site.elsewhere = Some(process.port);
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(beat(&agent, &client, process.port, 1).await);
    site.wait_sequence("node-0001", 1).await;
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{}/{file}", process.child.id())).unwrap();
        assert!(
            !String::from_utf8_lossy(&text).contains(&server.password),
            "{file}"
        );
    }
    let mut config = site.config();
    (config.store.url, config.store.password_file) = (Some(url), Some(password));
    let store = Store::of(&Home::new(site.home()), &config.store).await.unwrap();
    let row = db::query("SELECT count(*) AS n FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE s.ssl AND s.version = 'TLSv1.3' AND a.application_name = 'virtengine-provider' AND a.datname = current_database()")
        .fetch_one(store.reader())
        .await
        .unwrap();
    let encrypted: i64 = row.try_get(0).unwrap();
    assert!(encrypted > 1, "{encrypted} sessions");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_ca_another_name_and_a_wrong_password_refuse_to_start_and_say_why() {
    let site = Site::prepare().await;
    let server = Server::found();
    let (database, password) = (database(&site), server.folder.join("password"));
    let named = server
        .url(&database, "ca.crt")
        .replace("@localhost:", "@127.0.0.1:");
    let missing = server.url(&database, "none.crt");
    for (url, words) in [
        (server.url(&database, "other.crt"), ["store.url", "UnknownIssuer"]),
        (named, ["store.url", "not valid for name"]),
        (missing, ["store.url", "none.crt"]),
    ] {
        let (said, code) = refuses(&site, &url, &password);
        assert!(
            code == Some(78) && words.iter().all(|w| said.contains(w)),
            "{url}: {code:?} {said}"
        );
        assert!(!said.contains(&server.password), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("password");
    std::fs::copy(&password, &wrong).unwrap();
    std::fs::write(&wrong, "not this one\n").unwrap();
    let (said, code) = refuses(&site, &server.url(&database, "ca.crt"), &wrong);
    assert!(
        code == Some(78) && said.contains("store.password_file"),
        "{code:?} {said}"
    );
    assert!(!said.contains("not this one"), "{said}");
}
