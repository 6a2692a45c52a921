//! What may happen next.

use hpc_schema::node::HealthStatus;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::report::Figures;
use proptest::prelude::*;

use crate::message;
use crate::world::{CROWD, NAMED};

/// A registration with real signatures.
#[derive(Debug, Clone)]
pub(crate) struct Enrolment {
    pub(crate) agent: u8,
    /// Who signs; `None`: the provider whose cluster it is.
    pub(crate) provider: Option<u8>,
    pub(crate) new_key: bool,
    /// The old key's signature goes with it.
    pub(crate) consent: bool,
    /// With the nonce of the registration before.
    pub(crate) replay: bool,
    pub(crate) fingerprint: Option<u8>,
}

impl Default for Enrolment {
    fn default() -> Self {
        Self {
            agent: 0,
            provider: None,
            new_key: false,
            consent: true,
            replay: false,
            fingerprint: None,
        }
    }
}

/// A report with a real signature.
#[derive(Debug, Clone)]
pub(crate) struct Beat {
    pub(crate) agent: u8,
    /// By an agent of a registration before.
    pub(crate) former: bool,
    pub(crate) status: HealthStatus,
    pub(crate) jobs: u8,
    pub(crate) gpu: u8,
    /// Seconds before one minute and ten seconds from now.
    pub(crate) age: u32,
    pub(crate) ahead: u32,
    pub(crate) attach: bool,
    pub(crate) forged: bool,
    pub(crate) replayed: bool,
    pub(crate) numbers: [u16; 6],
}

impl Beat {
    /// A healthy report of now with the section.
    pub(crate) fn plain(agent: u8) -> Self {
        Self {
            agent,
            former: false,
            status: HealthStatus::Healthy,
            jobs: 0,
            gpu: 1,
            age: 70,
            ahead: 1,
            attach: true,
            forged: false,
            replayed: false,
            numbers: [u16::from(agent % 60), 30, 2, 200, 5, 3],
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        let [cores, memory, gpus, storage, latency, count] = self.numbers.map(u64::from);
        Figures {
            running_count: u64::from(self.jobs),
            cores_available: cores % 70,
            memory_gb_available: memory % 260,
            gpus_available: gpus % 5,
            storage_gb_available: storage % 2_010,
            avg_cluster_latency_us: latency * 300,
            measurement_count: count % 300,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Wait(u64),
    Send {
        by: u8,
        /// By whom the message is allowed, if anybody is known.
        right: bool,
        funds: u8,
        msg: Box<ExecuteMsg>,
    },
    Enrol(Enrolment),
    Report {
        beats: Vec<Beat>,
        noise: Vec<u8>,
    },
    Migrate,
}

/// One of those that messages name, or, where there are more, one of the crowd.
fn agent() -> impl Strategy<Value = u8> {
    prop_oneof![8 => 0..NAMED, 1 => NAMED..NAMED + CROWD]
}

fn enrolment() -> impl Strategy<Value = Enrolment> {
    (
        agent(),
        prop::option::weighted(0.3, 0u8..3),
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.1),
        prop::option::weighted(0.4, 0u8..3),
    )
        .prop_map(
            |(agent, provider, new_key, consent, replay, fingerprint)| Enrolment {
                agent,
                provider,
                new_key,
                consent,
                replay,
                fingerprint,
            },
        )
}

fn beat() -> impl Strategy<Value = Beat> {
    let age = prop_oneof![6 => 60u32..400, 1 => 0u32..60, 1 => 400u32..5_000];
    let ahead = prop_oneof![8 => Just(1u32), 2 => 0u32..50, 1 => any::<u32>()];
    let rarely = || prop::bool::weighted(0.1);
    (
        (agent(), rarely(), prop::sample::select(&HealthStatus::ALL[..])),
        (0u8..3, 0u8..3, age, ahead),
        (prop::bool::weighted(0.6), rarely(), rarely()),
        any::<[u16; 6]>(),
    )
        .prop_map(
            |((agent, former, status), (jobs, gpu, age, ahead), (attach, forged, replayed), numbers)| Beat {
                agent,
                former,
                status,
                jobs,
                gpu,
                age,
                ahead,
                attach,
                forged,
                replayed,
                numbers,
            },
        )
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let seconds = prop_oneof![
        5 => 0u64..200,
        3 => 200u64..4_000,
        1 => 4_000u64..100_000,
        2 => Just(2_592_001u64),
    ];
    let noise = prop_oneof![6 => Just(Vec::new()), 1 => message::batch_bytes()];
    prop_oneof![
        4 => seconds.prop_map(Step::Wait),
        10 => (any::<u8>(), prop::bool::weighted(0.8), prop_oneof![6 => Just(0u8), 1 => 0u8..4], message::execute())
            .prop_map(|(by, right, funds, msg)| Step::Send { by, right, funds, msg: Box::new(msg) }),
        5 => enrolment().prop_map(Step::Enrol),
        8 => (prop::collection::vec(beat(), 0..6), noise).prop_map(|(beats, noise)| Step::Report { beats, noise }),
        1 => Just(Step::Migrate),
    ]
}
