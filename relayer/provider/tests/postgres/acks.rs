//! A node that changes gateways is told what all of them have accepted.

use hpc_schema::gateway::HeartbeatResponse;

use crate::agent::Agent;
use crate::pair::second_home;
use crate::process::{Process, beat};
use crate::site::Site;

fn told(answer: &HeartbeatResponse) -> (bool, u64, &str) {
    let notice = answer.errors.first().unwrap();
    assert!(
        notice
            .message
            .contains(&format!("above {},", answer.sequence_ack)),
        "{notice:?}"
    );
    (answer.accepted, answer.sequence_ack, notice.code.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_number_is_answered_with_the_one_that_another_gateway_has_accepted() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let second = Process::start_at(&second_home(&site), &site, None, &[]);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    assert!(beat(&agent, &client, second.port, 50).await);
    // Below what the first one knows of itself.
    let answer = agent.beat(&client, &site, 1).await;
    assert_eq!(told(&answer), (false, 50, "stale_sequence"));
    // Above that, so that the store has the word.
    assert!(beat(&agent, &client, second.port, 100).await);
    let answer = agent.beat(&client, &site, 60).await;
    assert_eq!(told(&answer), (false, 100, "stale_sequence"));
    assert!(agent.beat(&client, &site, 101).await.accepted);
}
