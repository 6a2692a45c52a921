//! A server that ends a gateway's sessions and lets it in no more, as when its role was locked: whoever settles gives it up before
//! another one has it.

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::agent::Agent;
use crate::process::Process;
use crate::silent::loses_it_to_another;
use crate::site::Site;
use crate::tls::database;

/// A role that one gateway has for itself.
struct Role {
    name: String,
    server: PgConnection,
}

impl Role {
    async fn new(site: &Site, url: &str) -> Self {
        let mut role = Self {
            name: format!("of_{}", database(site)),
            server: PgConnection::connect(url).await.unwrap(),
        };
        role.run(|name| format!("CREATE ROLE {name} SUPERUSER LOGIN"))
            .await;
        role
    }

    async fn run(&mut self, statement: impl FnOnce(&str) -> String) {
        let sql = AssertSqlSafe(statement(&self.name));
        self.server.execute(sql).await.unwrap();
    }

    async fn lock(&mut self) {
        self.run(|name| format!("ALTER ROLE {name} NOLOGIN")).await;
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename";
        self.run(|name| format!("{cut} = '{name}'")).await;
    }

    async fn unlock(&mut self) {
        self.run(|name| format!("ALTER ROLE {name} LOGIN")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_settles_gives_it_up_when_the_server_refuses_it_before_another_one_has_it() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    site.stop_daemon().await;
    let url = site.config().store.url.unwrap();
    let mut role = Role::new(&site, &url).await;
    let own = url.replace("user=hpc", &format!("user={}", role.name));
    assert_ne!(own, url);
    let first = Process::start_with(&site, None, &[("VIRTENGINE_PROVIDER__STORE__URL", &own)]);
    loses_it_to_another(&site, &agent, first, async |refused| {
        if refused {
            role.lock().await;
        } else {
            role.unlock().await;
        }
    })
    .await;
}
