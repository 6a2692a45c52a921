//! What tests of the running agent begin with.

use std::path::Path;

use tempfile::TempDir;

use super::{Agent, Timing, World};
use crate::config::{parse, resolve};
use crate::key::generate;
use crate::sample::Sampler;
use crate::state::{StateDir, a_registration};
use crate::timer::Timer;

/// An agent that is registered (epoch 7), in simulated time; it measures nothing.
pub(super) fn registered() -> (TempDir, Agent) {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().display();
    let key = generate(&dir.path().join("keys"), false).unwrap().public;
    let text = format!(
        "provider_daemon: {{endpoint: 'https://gateway:8443'}}\nagent: {{key_path: '{d}/keys/agent.key', state_dir: '{d}/state'}}"
    );
    let config = resolve(parse(&text, Path::new("config.yaml")).unwrap()).unwrap();
    let state = StateDir::new(&config.state_dir);
    state.create().unwrap();
    a_registration("token-1", key, 7).save(&state).unwrap();
    let world = World {
        timer: Timer::simulated,
        sampler: |_| Sampler::inline(Vec::new()),
        ..World::real(Timing::default())
    };
    let agent = Agent::new(config, world).unwrap();
    (dir, agent)
}
