//! A node, its site and who asks.

use std::sync::atomic::{AtomicU8, Ordering};

use lattice_core::actor::{Actor, Role};
use lattice_core::allocation::Ownership;
use lattice_core::command::Request;
use lattice_core::command::agent::Registration;
use lattice_core::ids::{CorrelationId, Generation, IdSource, NodeId, OpId, SiteId, uuid_v7};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::{
    Availability, GpuFact, HostFacts, Labels, Node, NodeClass, NodeState, OnboardingMode, Status,
};
use lattice_core::site::{AutomationPolicy, Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;

pub const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[derive(Default)]
pub struct Counter(AtomicU8);

impl IdSource for Counter {
    fn uuid(&self, at: Timestamp) -> uuid::Uuid {
        uuid_v7(at, [self.0.fetch_add(1, Ordering::Relaxed); 10])
    }
}

pub fn request(ids: &Counter) -> Request<'_> {
    Request {
        actor: Actor { name: "ops-ci".into(), role: Role::PlatformAdmin },
        reason: "test".into(),
        now: NOW,
        ids,
        op: OpId::generate(ids, NOW),
        correlation: CorrelationId::generate(ids, NOW),
    }
}

pub fn site() -> Site {
    Site {
        id: SiteId::new(uuid_v7(NOW, [9; 10])),
        name: "dc1".into(),
        region_code: "lab".into(),
        provider: SiteProvider::Manual,
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        sensitive: lattice_core::site::SensitivePolicy::default(),
        automation: AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        status: SiteStatus::Active,
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

/// The SKU of [`node`].
pub fn sku(gpus: u32) -> Sku {
    Sku {
        name: "mi300x.192g.8gpu".into(),
        gpus,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

pub fn node(status: Status, availability: Availability) -> Node {
    Node {
        id: NodeId::new(uuid_v7(NOW, [8; 10])),
        hostname: "c07u31".into(),
        site: site().id,
        sku: "mi300x.192g.8gpu".into(),
        class: NodeClass::Standard,
        mode: OnboardingMode::Manual,
        state: NodeState::new(status, availability),
        status_since: NOW,
        availability_since: NOW,
        down_cause: None,
        deadline: None,
        boot_failures: 0,
        drain_intent: false,
        minor_issue: None,
        identity_epoch: 1,
        boot_id: Some("boot".into()),
        agent_version: None,
        fingerprint: None,
        deviates_since: None,
        labels: Labels::new(),
        address: None,
        bmc_address: None,
        provider_ref: None,
        owning_job: None,
        holds: Vec::new(),
        ownership: Ownership::default(),
        created_at: NOW,
        updated_at: NOW,
        generation: Generation::FIRST,
    }
}

/// What a host with so many GPUs reports.
pub fn facts(gpus: u32) -> HostFacts {
    let gpu = |n| GpuFact { address: format!("0000:{n:02x}:00.0"), vendor: "amd".into(), model: "MI300X".into() };
    HostFacts { gpus: (0..gpus).map(gpu).collect(), ..HostFacts::default() }
}

/// What its agent registers with.
pub fn registration<'a>(facts: &'a HostFacts, boot_id: &'a str) -> Registration<'a> {
    Registration {
        facts,
        fingerprint: "f1",
        boot_id,
        agent_version: "0.1.0",
        ecc_uncorrected: 0,
        minor_issue: None,
        address: None,
    }
}
