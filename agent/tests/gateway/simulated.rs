//! A gateway, a node and the wire between them in simulated time.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::AbortHandle;
use virtengine_node_agent::clock::{Clock, instant};
use virtengine_node_agent::config::Config;
use virtengine_node_agent::register::register_by;
use virtengine_node_agent::run::{Timing, World};
use virtengine_node_agent::sample::{Sampler, Sources};
use virtengine_node_agent::timer::Timer;
use virtengine_node_agent::uplink::{Dial, Stream};

use super::{Gateway, Home, Shared};

/// All of it; nothing runs by itself.
pub struct Site {
    pub gateway: Gateway,
    pub home: Home,
    /// Nobody can be reached.
    pub down: Arc<AtomicBool>,
    pub wire: Arc<Mutex<Option<AbortHandle>>>,
    /// Seconds by which the node's clock is off.
    pub skew: Arc<AtomicI64>,
    pub world: World,
    pub config: Config,
}

impl Site {
    pub async fn start(sampler: fn(&Sources) -> Sampler) -> Self {
        let (base, start) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap(), instant());
        let simulated = move || base + instant().saturating_duration_since(start);
        let shared = Arc::new(Shared::at(Clock::new(simulated)));
        let (gateway, door) = Gateway::start_simulated(shared);
        let (down, skew) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let (closed, off) = (Arc::clone(&down), Arc::clone(&skew));
        let wire = Arc::new(Mutex::new(None::<AbortHandle>));
        let kept = Arc::clone(&wire);
        let clock = Clock::new(move || {
            let seconds = off.load(Ordering::Relaxed);
            let by = Duration::from_secs(seconds.unsigned_abs());
            if seconds < 0 {
                simulated() - by
            } else {
                simulated() + by
            }
        });
        let dial = Dial::new(move |_| {
            let (closed, door, wires) = (Arc::clone(&closed), door.clone(), Arc::clone(&kept));
            Box::pin(async move {
                if closed.load(Ordering::Relaxed) {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
                }
                let (ours, mut near) = tokio::io::duplex(64 << 10);
                let (mut far, theirs) = tokio::io::duplex(64 << 10);
                let sent = door.send(Box::new(theirs)).await;
                sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionReset))?;
                let wire = tokio::spawn(async move {
                    tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
                });
                // One connection at a time: the former one is gone.
                if let Some(former) = wires.lock().unwrap().replace(wire.abort_handle()) {
                    former.abort();
                }
                let ours: Box<dyn Stream> = Box::new(ours);
                Ok(ours)
            })
        });
        let home = Home::new();
        let world = World {
            timing: Timing::default(),
            clock,
            dial,
            timer: Timer::simulated,
            sampler,
        };
        let config = Config {
            // No sockets: they know no simulated time.
            responder: virtengine_node_agent::config::ResponderConfig {
                port: None,
                address: None,
                advertised: None,
            },
            ..home.config(
                &["https://localhost:1".to_owned()],
                Some(&gateway.token(&home.key.public())),
            )
        };
        Self {
            gateway,
            home,
            down,
            wire,
            skew,
            world,
            config,
        }
    }

    /// Registers the node; the configuration of one that is registered.
    pub async fn registered(&self) -> Config {
        let (way, patience) = ((&self.world.clock, &self.world.dial), Duration::from_secs(60));
        register_by(&self.config, &self.home.key, Some(patience), way, |_| {})
            .await
            .unwrap();
        Config {
            token: None,
            ..self.config.clone()
        }
    }
}
