//! A server that takes connections and answers nothing any more, as behind a firewall that has forgotten them: whoever settles
//! gives it up before its lease is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::agent::Agent;
use crate::pair::{second_home, settles};
use crate::process::{Process, beat};
use crate::site::{Site, eventually};
use crate::tls::{Server, database, env};

/// Passes bytes on; while it swallows, it takes them and passes nothing on. What was swallowed is cut off afterwards.
struct Silence {
    port: u16,
    swallows: Arc<watch::Sender<bool>>,
}

impl Silence {
    async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let swallows = Arc::new(watch::Sender::new(false));
        let switch = Arc::clone(&swallows);
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let ((a, b), (c, d)) = (near.into_split(), far.into_split());
                let switch = switch.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        () = pass(a, d, switch.clone()) => {}
                        () = pass(c, b, switch) => {}
                    }
                });
            }
        });
        Self { port: own, swallows }
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut swallows: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes).await {
        if *swallows.borrow() {
            drop(swallows.wait_for(|s| !s).await);
            return;
        }
        if to.write_all(&bytes[..n]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_settles_gives_it_up_while_the_server_is_silent_before_another_one_has_it() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    site.stop_daemon().await;
    let server = Server::found();
    let url = server.url(&database(&site), "ca.crt");
    let (host, rest) = url.split_once("@localhost:").unwrap();
    let (port, rest) = rest.split_once('/').unwrap();
    let silence = Silence::before(port.parse().unwrap()).await;
    let url = format!("{host}@localhost:{}/{rest}", silence.port);
    let pairs = env(&url, &server.folder.join("password"));
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let first = Process::start_with(&site, None, &pairs);
    loses_it_to_another(&site, &agent, first, async |silent| {
        silence.swallows.send_replace(silent);
    })
    .await;
}

/// At several moments the server is `lost` to whoever settles, and another gateway has the duties before ten seconds are over;
/// the two never have them at once, and every report is on chain once.
pub(crate) async fn loses_it_to_another(
    site: &Site,
    agent: &Agent,
    first: Process,
    mut lost: impl AsyncFnMut(bool),
) {
    let client = agent.client(site);
    eventually("the first one to settle", async || settles(&first).await).await;
    let second = Process::start_at(&second_home(site), site, None, &[]);
    assert!(beat(agent, &client, second.port, 1).await);
    site.wait_sequence("node-0001", 1).await;
    for (sequence, after) in [(2, 0), (3, 300), (4, 700)] {
        eventually("the first one alone", async || {
            settles(&first).await && !settles(&second).await
        })
        .await;
        sleep(Duration::from_millis(after)).await;
        lost(true).await;
        let since = Instant::now();
        // The second one is asked first: what the first one says afterwards may only have come to its end meanwhile.
        while !settles(&second).await {
            assert!(since.elapsed() < Duration::from_secs(10), "nobody settles");
            sleep(Duration::from_millis(10)).await;
        }
        assert!(!settles(&first).await, "two settle after {:?}", since.elapsed());
        println!("taken over after {:?}", since.elapsed());
        assert!(beat(agent, &client, second.port, sequence).await);
        site.wait_sequence("node-0001", sequence).await;
        // It can be asked again, and has it back once the other one is gone for as long.
        lost(false).await;
        let stopped = rustix::process::Pid::from_child(&second.child);
        rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
        eventually("the first one again", async || settles(&first).await).await;
        rustix::process::kill_process(stopped, rustix::process::Signal::CONT).unwrap();
    }
    assert_eq!(site.accepted_on_chain().await.0, 4, "each report once");
}
