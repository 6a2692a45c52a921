use std::time::Duration;

use tokio::sync::mpsc;
use virtengine_node_agent::register::{Outcome, register};
use virtengine_node_agent::run::{Agent, Signal, Timing, World};
use virtengine_node_agent::state::{Registration, StateDir, Status};

use super::{Gateway, Home};

/// Intervals of a test: the gateway's answers are obeyed within 50 ms to 120 s.
pub fn quick() -> Timing {
    Timing {
        shortest_interval: Duration::from_millis(50),
        longest_interval: Duration::from_secs(120),
        out_of_turn: Duration::from_millis(50),
        backoff_first: Duration::from_millis(50),
        backoff_longest: Duration::from_millis(400),
        refused: Duration::from_millis(100),
        fail_back: Duration::from_millis(300),
        farewell: Duration::from_secs(3),
        ..Timing::default()
    }
}

pub async fn registered(gateway: &Gateway, home: &Home) -> Registration {
    let token = gateway.token(&home.key.public());
    let config = home.config(&[gateway.url()], Some(&token));
    let patience = Some(Duration::from_secs(10));
    match register(&config, &home.key, patience, |_| {}).await.unwrap() {
        Outcome::Registered(r) => r,
        Outcome::Already(_) | Outcome::Recovered(_) => panic!("registered before"),
    }
}

/// An agent that runs in this process; [`Running::stop`] is SIGTERM.
pub struct Running {
    pub signals: mpsc::Sender<Signal>,
    pub task: tokio::task::JoinHandle<virtengine_node_agent::run::Ended>,
}

impl Running {
    pub fn start(home: &Home, endpoints: &[String], timing: Timing) -> Self {
        let agent = Agent::new(home.config(endpoints, None), World::real(timing)).unwrap();
        let (signals, receiver) = mpsc::channel(1);
        Self {
            signals,
            task: tokio::spawn(agent.run(receiver)),
        }
    }

    pub async fn stop(self) {
        self.signals.send(Signal::Stop).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), self.task)
            .await
            .expect("stops within five seconds")
            .unwrap();
    }
}

pub fn status(home: &Home) -> Status {
    Status::load(&StateDir::new(&home.path("state")))
        .unwrap()
        .unwrap()
}
