//! Endpoints that give evidence of what was not so.

use hpc_chain::proof::{Proof, Trust, verify};
use serde_json::json;
use virtengine_provider::prove;

use crate::proxy::Fault;
use crate::scene::{Scene, Setting};
use crate::site::cluster;

const REFUSED: &str = "gave a proof that does not hold";
/// Which endpoint is asked first is a matter of who has seen the newest block.
const TRIES: usize = 30;

/// The next heartbeat, on chain and proven.
async fn proven(scene: &mut Scene) -> Proof {
    scene.beat().await;
    scene.settled().await;
    let store = scene.site.store().await;
    let node = scene.agents[0].node.parse().unwrap();
    let sequence = scene.site.node(&scene.agents[0].node).await.sequence;
    let mut found = None;
    scene
        .waits("a proof", async || {
            found = prove::proof(store.reader(), (&cluster(), &node), None, Some(sequence))
                .await
                .unwrap();
            found.is_some()
        })
        .await;
    store.close().await;
    found.unwrap()
}

#[tokio::test]
async fn a_proof_that_does_not_hold_is_refused_said_once_and_asked_of_the_next_endpoint() {
    let setting = Setting {
        proxies: 2,
        ..Setting::default()
    };
    let mut scene = Scene::with(setting).await;
    // The signatures of another block, true as they are.
    let honest = scene.site.client.chain().endpoints().best().unwrap().clone();
    let other = honest.commit(1).await.unwrap();
    let lie = Fault::Instead(json!({ "result": { "signed_header": other, "canonical": true } }));
    scene.proxies[0].always("commit", Some(lie));
    // Whoever is asked: what is kept holds.
    for _ in 0..TRIES {
        verify(&proven(&mut scene).await, &Trust::default()).unwrap();
        if !scene.logs.lines(REFUSED).is_empty() {
            break;
        }
    }
    let line = scene.says(REFUSED).await;
    assert!(
        line.contains("WARN") && line.contains(&scene.proxies[0].url()),
        "{line}"
    );
    for _ in 0..3 {
        verify(&proven(&mut scene).await, &Trust::default()).unwrap();
    }
    assert_eq!(scene.logs.lines(REFUSED).len(), 1, "{}", scene.logs.text());
    scene.proxies[0].always("commit", None);
    for _ in 0..TRIES {
        verify(&proven(&mut scene).await, &Trust::default()).unwrap();
        if !scene.logs.lines("gives proofs that hold again").is_empty() {
            break;
        }
    }
    scene.says("gives proofs that hold again").await;
    scene.ends().await;
}
