//! Fleets in a SQLite file, written by commits like any other.

use lattice_core::actor::Actor;
use lattice_core::change::{Change, Commit, NodeAction, NodeChange};
use lattice_core::ids::{CorrelationId, Generation, OpId, SiteId, uuid_v7};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::{Availability, Node, NodeClass, NodeState, OnboardingMode, Status};
use lattice_core::site::{Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;
use lattice_server::clock::SystemIds;
use lattice_store::Store;

use crate::failure::{Failure, at};
use crate::heartbeats::identities::{T0, node as node_id};

/// The SKU of every node.
pub const SKU: &str = "mi300x.192g.8gpu";
/// The boot that every node is in.
pub const BOOT_ID: &str = "b1c5a6de-37f7-4e3c-a5a3-0c3a6d1b8f11";
/// Commits handed over at once.
const BATCH: u32 = 1_000;

/// A site of nodes that were bootstrapped by hand; its number makes its id and its name.
pub fn site(number: u8, provider: SiteProvider) -> Site {
    Site {
        id: SiteId::new(uuid_v7(T0, [number; 10])),
        name: format!("site-{number}"),
        region_code: "bench".to_owned(),
        provider,
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        automation: lattice_core::site::AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: lattice_core::site::SensitivePolicy::default(),
        status: SiteStatus::Active,
        created_at: T0,
        updated_at: T0,
        generation: Generation::FIRST,
    }
}

/// The SKU of the hosts in memory: eight GPUs, as they report.
pub fn sku() -> Sku {
    Sku {
        name: SKU.to_owned(),
        gpus: 8,
        gpu_vendor: Some("amd".to_owned()),
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: T0,
        updated_at: T0,
        generation: Generation::FIRST,
    }
}

/// A node of a fleet that runs: one in ten is degraded, the others are ready; one in twenty belongs to another SKU.
pub fn node(number: u32, site: &Site) -> Node {
    let availability = if number.is_multiple_of(10) { Availability::Degraded } else { Availability::Ready };
    Node {
        id: node_id(number),
        hostname: format!("r{:03}u{:03}", number / 1_000, number % 1_000),
        site: site.id,
        sku: if number.is_multiple_of(20) { "h200.141g.8gpu".to_owned() } else { SKU.to_owned() },
        class: NodeClass::Standard,
        mode: OnboardingMode::Manual,
        state: NodeState::new(Status::Active, availability),
        status_since: T0,
        availability_since: T0,
        down_cause: None,
        deadline: None,
        boot_failures: 0,
        drain_intent: false,
        minor_issue: None,
        identity_epoch: 1,
        boot_id: Some(BOOT_ID.to_owned()),
        agent_version: Some("0.1.0".to_owned()),
        fingerprint: Some("f".repeat(64)),
        deviates_since: None,
        labels: lattice_core::node::Labels::new(),
        address: Some(format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)),
        bmc_address: None,
        provider_ref: None,
        owning_job: None,
        holds: Vec::new(),
        ownership: lattice_core::allocation::Ownership::default(),
        created_at: T0,
        updated_at: T0,
        generation: Generation::FIRST,
    }
}

/// One commit of these changes.
pub fn commit(changes: Vec<Change>, now: Timestamp) -> Commit {
    Commit {
        op: OpId::generate(&SystemIds, now),
        guards: Vec::new(),
        changes,
        actor: Actor::system("bench"),
        reason: String::new(),
        at: now,
        correlation: CorrelationId::generate(&SystemIds, now),
    }
}

/// Writes the nodes `0..count`, spread over `sites`, as `shape` has them.
///
/// # Errors
/// The store fails.
pub async fn fill(
    store: &Store,
    sites: &[Site],
    count: u32,
    shape: impl Fn(u32, &Site) -> Node,
) -> Result<(), Failure> {
    let mut first = vec![Change::Sku(sku())];
    first.extend(sites.iter().map(|site| Change::Site(Box::new(site.clone()))));
    store.commit_one(commit(first, T0)).await.map_err(at("write the sites"))?;
    for start in (0..count).step_by(BATCH as usize) {
        let batch = (start..count.min(start + BATCH)).map(|number| {
            let after = shape(number, &sites[number as usize % sites.len()]);
            let change = NodeChange {
                after,
                before: None,
                action: NodeAction::Created,
                cause: "manual".to_owned(),
                detail: String::new(),
            };
            commit(vec![Change::Node(Box::new(change))], T0)
        });
        store.commit(batch.collect()).await.map_err(at("write the fleet"))?;
    }
    Ok(())
}
