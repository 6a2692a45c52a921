//! The documented way: `pg_dump` for the store and `backup create` for the files, both while the gateway works.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use virtengine_provider::spool;
use virtengine_provider::store::Store;

use crate::agent::Agent;
use crate::process::{Process, beat};
use crate::restored::Before;
use crate::site::{Site, run};

const URL: &str = "VIRTENGINE_PROVIDER__STORE__URL";

fn program(name: &str, words: &[&str]) {
    let out = Command::new(name).args(words).output().unwrap();
    assert!(out.status.success(), "{name}: {out:?}");
}

fn private(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_and_a_backup_made_under_load_bring_a_gateway_back_that_goes_on() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let keys = Before::of(&site, &agent);
    site.stop_daemon().await;
    let process = Process::start(&site, None);
    let mut sequence = 1;
    assert!(beat(&agent, &client, process.port, sequence).await);
    let before = sequence;
    let env = site.env();
    let url = env.iter().find(|(k, _)| k == URL).unwrap().1.clone();
    let aside = tempfile::tempdir().unwrap();
    let (dump, file) = (aside.path().join("hpc.dump"), aside.path().join("site.backup"));
    let secret = private(&aside.path().join("passphrase"), "correct horse battery");
    let saving = {
        let (home, env, url) = (site.home(), env.clone(), url.clone());
        let (dump, file, secret) = (dump.clone(), file.clone(), secret.clone());
        tokio::task::spawn_blocking(move || {
            let to = format!("--file={}", dump.display());
            program("pg_dump", &["--format=custom", &to, &url]);
            let words = [
                "backup",
                "create",
                file.to_str().unwrap(),
                "--passphrase-file",
                &secret,
            ];
            run(&home, &env, &words)
        })
    };
    while !saving.is_finished() {
        sequence += 1;
        assert!(beat(&agent, &client, process.port, sequence).await);
    }
    let (said, err, code) = saving.await.unwrap();
    assert!(code == 0 && said.contains("pg_dump"), "{said}{err}");
    // Disk and database are lost.
    drop(process);
    let mut config = site.config();
    std::fs::remove_dir_all(site.home()).unwrap();
    let restored = url.replace("site_", "restored_site_");
    let (_, name) = url.split_once(":///").unwrap();
    let name = format!("restored_{}", name.split('?').next().unwrap());
    let server = std::env::var("HPC_TEST_POSTGRES").unwrap();
    program(
        "psql",
        &[
            &server,
            "--quiet",
            "--command",
            &format!("CREATE DATABASE {name}"),
        ],
    );
    let into = format!("--dbname={restored}");
    let words = ["--exit-on-error", "--single-transaction", "--no-owner", &into];
    program("pg_restore", &[&words[..], &[dump.to_str().unwrap()]].concat());
    let next = aside.path().join("next");
    let words = [
        "backup",
        "restore",
        file.to_str().unwrap(),
        "--passphrase-file",
        &secret,
    ];
    let (said, err, code) = run(&next, &env, &words);
    assert!(code == 0 && said.contains("pg_restore"), "{said}{err}");
    assert!(!next.join("store").exists());

    let process = Process::start_at(&next, &site, None, &[(URL, &restored)]);
    config.store.url = Some(restored.clone());
    let home = virtengine_provider::home::Home::new(&next);
    let store = Store::of(&home, &config.store).await.unwrap();
    let intakes = spool::intakes(store.reader()).await.unwrap();
    assert!(
        intakes.len() == 1 && intakes[0].acked_sequence >= before,
        "{intakes:?}"
    );
    store.close().await;
    // There was no store to say so in before the start.
    let mut env = env;
    env.retain(|(key, _)| key != URL);
    env.push((URL.to_owned(), restored));
    let (log, err, code) = run(&next, &env, &["audit", "export"]);
    assert!(code == 0 && log.contains("backup.restore"), "{log}{err}");
    sequence += 1;
    assert!(beat(&agent, &client, process.port, sequence).await);
    site.wait_sequence("node-0001", sequence).await;
    site.elsewhere = Some(process.port);
    let in_use = keys.check_in_use(&site, (&next, &env), &agent, sequence + 1);
    Box::pin(in_use).await;
}
