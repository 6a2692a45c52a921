//! Chain keys that systemd keeps: credentials, handed over at each start.

use std::path::Path;

use hpc_chain::keys::Mnemonic;

use super::{Node, World};

/// Words that systemd would have sealed.
fn put(folder: &Path, credential: &str) -> String {
    let words = Mnemonic::generate().unwrap().words().to_string();
    std::fs::write(folder.join(credential), format!("{words}\n")).unwrap();
    words
}

impl World {
    /// A key that is the credential of its name, with tokens on its account; its address.
    async fn takes(&self, name: &str) -> String {
        let words = [
            "keys",
            "add",
            name,
            "--store",
            "credential",
            "--key-credential",
            name,
        ];
        let (_, err, code) = self.run(&words).await;
        assert_eq!(code, 0, "{err}");
        self.endowed(name).await
    }
}

/// Every file below holds nothing of these words.
fn holds_none(folder: &Path, words: &[String]) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holds_none(&path, words);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!words.iter().any(|w| text.contains(w)), "{}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_from_the_keyring_to_credentials_of_systemd_and_on_and_none_is_on_disk() {
    let mut world = World::new(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let handed = (
        "CREDENTIALS_DIRECTORY".to_owned(),
        folder.path().display().to_string(),
    );
    let process = world.start();
    let mut one = Node::enrolled(&world, "node-0001").await;
    one.beats(&process).await;
    one.settles(&world).await;

    // Without it nothing is put on record.
    let add = [
        "keys",
        "add",
        "operator-2",
        "--store",
        "credential",
        "--key-credential",
        "operator-2",
    ];
    let (_, err, code) = world.run(&add).await;
    assert!(code != 0 && err.contains("LoadCredential=operator-2"), "{err}");
    world.env.push(handed.clone());
    let (_, err, code) = world
        .run(&["keys", "add", "operator-2", "--key-credential", "operator-2"])
        .await;
    assert!(code != 0 && err.contains("--store credential"), "{err}");
    let words = ["operator-2", "relayer-2", "relayer-3"].map(|name| put(folder.path(), name));
    world.takes("operator-2").await;
    let second = world.takes("relayer-2").await;
    world.operators(&["operator", "operator-2"]).await;
    world.uses("OPERATOR", "operator-2");
    world.uses("RELAYER", "relayer-2");
    drop(process);
    let process = world.start();
    world.operators(&["operator-2"]).await;
    let mut two = Node::enrolled(&world, "node-0002").await;
    for node in [&mut one, &mut two] {
        node.beats(&process).await;
        node.settles(&world).await;
    }
    assert!(world.sequence_of(&second).await > 0, "the credential's key pays");
    let shown = world.run(&["keys", "show", "relayer-2", "-o", "json"]).await.0;
    assert!(shown.contains("\"credential\""), "{shown}");

    // On to another one.
    let third = world.takes("relayer-3").await;
    world.uses("RELAYER", "relayer-3");
    drop(process);
    let process = world.start();
    world.pays(&process, [&mut one, &mut two], &third, &second).await;
    drop(process);
    holds_none(&world.site.home(), &words);

    // Another key under the same name, and none at all: it refuses to start.
    put(folder.path(), "relayer-3");
    let (said, code) = world.refuses();
    assert!(
        code == Some(78) && said.contains("is not key \"relayer-3\" any more"),
        "{said}"
    );
    std::fs::remove_file(folder.path().join("relayer-3")).unwrap();
    let (said, code) = world.refuses();
    assert!(
        code == Some(78) && said.contains("LoadCredential=relayer-3"),
        "{said}"
    );
}
