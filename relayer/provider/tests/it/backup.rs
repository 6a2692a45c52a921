//! A backup made while the daemon works, and what a machine that is made from it knows.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use virtengine_provider::spool;
use virtengine_provider::store::Store;

use crate::agent::Agent;
use crate::process::{Process, beat};
use crate::restored::Before;
use crate::site::{Site, run};

fn private(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// What a backup or a restore that was killed leaves.
fn leave(home: &Path, folder: &str) {
    let dir = home.join(folder);
    std::fs::create_dir(&dir).unwrap();
    private(&dir.join("provider.db"), "in the clear");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_made_under_load_has_all_that_was_accepted_before_it_and_a_restored_daemon_goes_on() {
    let mut site = Site::start().await;
    let mut agents = Vec::new();
    for n in 1..=3 {
        agents.push(Agent::enrolled(&site, &format!("node-000{n}")).await);
    }
    let keys = Before::of(&site, &agents[0]);
    site.stop_daemon().await;
    let clients: Vec<_> = agents.iter().map(|a| a.client(&site)).collect();
    let mut process = Process::start(&site, None);
    let mut sequence = 0;
    for _ in 0..5 {
        sequence += 1;
        for (agent, client) in agents.iter().zip(&clients) {
            assert!(beat(agent, client, process.port, sequence).await);
        }
    }
    let before = sequence;
    let aside = tempfile::tempdir().unwrap();
    let secret = private(&aside.path().join("passphrase"), "correct horse battery");
    let other = private(&aside.path().join("other"), "incorrect horse battery");
    let file = aside.path().join("site.backup").display().to_string();
    let (home, env) = (site.home(), site.env());
    let arguments =
        |file: &str| ["backup", "create", file, "--passphrase-file", &secret].map(ToOwned::to_owned);
    let making = {
        let (home, env, arguments) = (home.clone(), env.clone(), arguments(&file));
        tokio::task::spawn_blocking(move || run(&home, &env, &arguments.each_ref().map(String::as_str)))
    };
    while !making.is_finished() {
        sequence += 1;
        for (agent, client) in agents.iter().zip(&clients) {
            assert!(beat(agent, client, process.port, sequence).await);
        }
    }
    let (_, said, code) = making.await.unwrap();
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let (_, said, code) = run(&home, &env, &arguments(&file).each_ref().map(String::as_str));
    assert!(code == 1 && said.contains("never overwrites"), "{said}");
    assert!(!process.is_dead());
    // SIGKILL.
    drop(process);

    let next = aside.path().join("next");
    let restore = |secret: &str, home: &Path| {
        run(
            home,
            &env,
            &["backup", "restore", &file, "--passphrase-file", secret],
        )
    };
    let (_, said, code) = restore(&other, &next);
    assert!(code == 78 && said.contains("passphrase"), "{said}");
    assert_eq!(
        std::fs::read_dir(&next).unwrap().count(),
        0,
        "nothing stays of a failed restore"
    );
    let (_, said, code) = restore(&secret, &home);
    assert!(code == 78 && said.contains("not empty"), "{said}");
    // One that was killed has left keys in the clear.
    leave(&next, ".restore-4711");
    let (_, said, code) = restore(&secret, &next);
    assert_eq!(code, 0, "{said}");
    assert!(!next.join(".restore-4711").exists());
    let (log, _, _) = run(&next, &env, &["audit", "export"]);
    assert!(
        log.contains("backup.create") && log.contains("backup.restore"),
        "{log}"
    );
    // The disk is lost.
    std::fs::remove_dir_all(&home).unwrap();
    // Nodes go on with the certificates that they have, above what they have sent.
    leave(&next, ".backup-4711");
    let restored = Process::start_at(&next, &site, None, &[]);
    assert!(!next.join(".backup-4711").exists(), "it goes with a start");
    // What only the journal held is in the database once the daemon is up.
    let store = Store::open(&next.join("store/provider.db")).await.unwrap();
    let intakes = spool::intakes(store.reader()).await.unwrap();
    assert_eq!(intakes.len(), agents.len());
    assert!(intakes.iter().all(|i| i.acked_sequence >= before), "{intakes:?}");
    store.close().await;
    sequence += 1;
    for (agent, client) in agents.iter().zip(&clients) {
        assert!(beat(agent, client, restored.port, sequence).await);
    }
    for agent in &agents {
        site.wait_sequence(&agent.node, sequence).await;
    }
    site.elsewhere = Some(restored.port);
    let in_use = keys.check_in_use(&site, (&next, &env), &agents[0], sequence + 1);
    Box::pin(in_use).await;
}
