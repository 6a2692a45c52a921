//! The operator key is every gateway's, and its account has one sequence.

use crate::agent::Agent;
use crate::pair::second_home;
use crate::site::{Site, run};

const NODES: [&str; 2] = ["node-0001", "node-0002"];

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_drain_at_once_and_neither_takes_the_others_sequence() {
    let site = Site::start().await;
    for node in NODES {
        let agent = Agent::enrolled(&site, node).await;
        assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
        site.wait_sequence(node, 1).await;
    }
    let homes = [site.home(), second_home(&site)];
    for act in ["drain", "resume", "drain"] {
        let acts: Vec<_> = homes
            .iter()
            .zip(NODES)
            .map(|(home, node)| {
                let (home, env) = (home.clone(), site.env());
                tokio::task::spawn_blocking(move || run(&home, &env, &["node", act, node]))
            })
            .collect();
        for act in acts {
            let (out, err, code) = act.await.unwrap();
            assert_eq!(code, 0, "{out}{err}");
        }
    }
}
