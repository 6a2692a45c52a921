use std::time::{Duration, Instant};

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
        hardware: Duration::from_millis(50),
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
        Self::of(Agent::new(home.config(endpoints, None), World::real(timing)).unwrap())
    }

    pub fn of(agent: Agent) -> Self {
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

/// Waits until the status file says so: it is written by a thread of its own, after the heartbeat.
pub async fn until_status(home: &Home, what: &str, good: impl Fn(&Status) -> bool) -> Status {
    let end = Instant::now() + Duration::from_secs(30);
    let state = StateDir::new(&home.path("state"));
    loop {
        let found = Status::load(&state).unwrap();
        if let Some(status) = found.as_ref().filter(|s| good(s)) {
            return status.clone();
        }
        assert!(Instant::now() < end, "{what}: {found:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the process takes this signal: until then it would end by it.
pub async fn until_caught(pid: u32, signal: i32) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        if (caught >> (signal - 1)) & 1 == 1 {
            return;
        }
        assert!(Instant::now() < end, "{signal} is not caught: {text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub fn status(home: &Home) -> Status {
    Status::load(&StateDir::new(&home.path("state")))
        .unwrap()
        .unwrap()
}
