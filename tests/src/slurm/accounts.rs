//! Slurm with accounts: MariaDB and slurmdbd, and files of their own for what users are kept in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{PATIENCE, Slurm, program};
use crate::process::{self, Process};
use crate::{port, wait};

/// `/etc` is a copy, what programs keep is empty; the machine around it stays as it is, but for how long its tasks waited for
/// disks and memory, which on a busy one is a trouble that is not Slurm's.
const APART: &str = "cp -a /etc \"$0/etc\" && mkdir -p \"$0/etc/slurm\" && mount --bind \"$0/etc\" /etc && \
                     mount -t tmpfs none /var/lib && mount -t tmpfs none /var/log && \
                     { mount -t tmpfs none /proc/pressure 2>/dev/null; echo $$ >\"$0/apart.part\"; } && \
                     mv \"$0/apart.part\" \"$0/apart\" && exec sleep infinity";

#[derive(Debug)]
pub(super) struct Accounts {
    /// Process whose mount namespace all of it runs in.
    pid: String,
    port: u16,
}

impl Slurm {
    /// Starts it with accounts. Its daemons and what [`Self::inside`] starts have an `/etc` of their own, so that users can be
    /// made there; Slurm's configuration lies in it where Slurm's programs look for it.
    ///
    /// # Errors
    /// If this is not root, mariadb-server-core, mariadb-client-core or slurmdbd is missing, or the node is not idle in time.
    pub fn start_with_accounts(dir: &Path) -> Result<Self> {
        let mut slurm = Self::prepare(dir)?;
        let mut apart = Command::new("unshare");
        apart.args(["--mount", "sh", "-c", APART]).arg(dir);
        let holder = Process::start("apart", apart, &dir.join("apart.out"))?;
        slurm.daemons.push(holder);
        let pid = wait::until("a mount namespace", PATIENCE, || {
            Ok(Some(fs::read_to_string(dir.join("apart"))?))
        })?;
        slurm.accounts = Some(Accounts {
            pid: pid.trim().to_owned(),
            port: port::free()?,
        });
        slurm.launch()
    }

    /// A program that sees the users of this Slurm.
    #[must_use]
    pub fn inside(&self, program: &Path) -> Command {
        let Some(accounts) = &self.accounts else {
            return Command::new(program);
        };
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", accounts.pid))
            .arg(program);
        command
    }

    pub(super) fn accounting(&self) -> String {
        let Some(Accounts { port, .. }) = self.accounts else {
            return String::new();
        };
        format!(
            "PrivateData=jobs\nAccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n\
             AccountingStoragePort={port}\nAccountingStoragePass={}\n",
            self.path("munge/socket").display()
        )
    }

    /// Starts the database and what keeps accounts in it; nothing without accounts.
    pub(super) fn keep_accounts(&mut self) -> Result<()> {
        let Some(Accounts { port, .. }) = self.accounts else {
            return Ok(());
        };
        let at = |name: &str| self.path(name).display().to_string();
        let (data, socket) = (format!("--datadir={}", at("db")), at("db.sock"));
        let mut make = Command::new("mariadb-install-db");
        make.args(["--no-defaults", "--user=root", "--skip-test-db", &data])
            .arg("--auth-root-authentication-method=normal");
        process::output(&mut make)
            .context("no database. Remedy: apt-get install mariadb-server-core mariadb-client-core")?;
        let mariadbd = [
            "--no-defaults".to_owned(),
            "--user=root".to_owned(),
            data,
            format!("--socket={socket}"),
            "--skip-networking".to_owned(),
            format!("--pid-file={}", at("db.pid")),
            "--innodb-buffer-pool-size=64M".to_owned(),
            "--innodb-log-file-size=16M".to_owned(),
            // What is lost by a power cut is lost with the test.
            "--innodb-flush-log-at-trx-commit=0".to_owned(),
        ];
        let conf = format!(
            "AuthType=auth/munge\nAuthInfo=socket={munge}\nDbdHost={node}\nDbdAddr=127.0.0.1\nDbdPort={port}\nSlurmUser=root\n\
             LogFile={}\nPidFile={}\nStorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\n\
             StorageLoc=slurm_acct\n",
            at("dbd.log"),
            at("dbd.pid"),
            munge = at("munge/socket"),
            node = self.node,
        );
        self.spawn("mariadbd", &mariadbd)?;
        let there = self.path("db.sock");
        wait::until("the database", PATIENCE, || Ok(there.exists().then_some(())))?;
        let file = self.path("slurmdbd.conf");
        fs::write(&file, conf)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        fs::copy(self.conf(), self.path("etc/slurm/slurm.conf"))?;
        // It looks for its own file beside Slurm's, and for the database where the client's library says.
        let mut daemon = self.inside(&program("slurmdbd")?);
        daemon
            .arg("-D")
            .env("SLURM_CONF", self.conf())
            .env("MYSQL_UNIX_PORT", socket);
        let log = self.path("slurmdbd.out");
        self.daemons.push(Process::start("slurmdbd", daemon, &log)?);
        wait::until("slurmdbd", PATIENCE, || {
            self.run("sacctmgr", &["--noheader", "show", "cluster"]).map(Some)
        })?;
        self.run("sacctmgr", &["--immediate", "--quiet", "add", "cluster", "probe"])
            .map(drop)
    }
}
