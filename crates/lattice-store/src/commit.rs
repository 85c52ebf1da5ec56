//! A commit made ready: checked for what no database is needed for, with all that is derived from it.

use std::collections::HashSet;

use lattice_core::change::{Change, Commit, Derived, Guard, Removed, derive};
use lattice_core::ids::{
    AllocationId, ApiTokenId, BatchId, Generation, JobId, LeaseEpoch, NodeId, OverrideId, ProfileId, RoceId, SilenceId,
    SiteId, TaskId, TokenId, WebhookId,
};
use lattice_core::node::{NodeState, Status};
use lattice_core::site::PowerSelector;
use lattice_core::site::credentials::CredentialName;

use crate::error::{Invalid, StoreError};

/// A row whose generation, or whose absence, a commit relies on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum RowKey {
    Node(NodeId),
    Job(JobId),
    Batch(BatchId),
    Task(TaskId),
    Allocation(AllocationId),
    Site(SiteId),
    SiteCredential(SiteId, CredentialName),
    Bmc(NodeId),
    Sku(String),
    Profile(ProfileId),
    PowerOverride(OverrideId),
    Roce(RoceId),
    EnrollmentToken(TokenId),
    ApiToken(ApiTokenId),
    Webhook(WebhookId),
    WebhookProgress(WebhookId),
    Silence(SilenceId),
}

impl std::fmt::Display for RowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(id) => write!(f, "node {id}"),
            Self::Job(id) => write!(f, "job {id}"),
            Self::Batch(id) => write!(f, "batch {id}"),
            Self::Task(id) => write!(f, "task {id}"),
            Self::Allocation(id) => write!(f, "allocation {id}"),
            Self::Site(id) => write!(f, "site {id}"),
            Self::SiteCredential(site, name) => write!(f, "credential {name} of site {site}"),
            Self::Bmc(node) => write!(f, "BMC of node {node}"),
            Self::Sku(name) => write!(f, "sku {name}"),
            Self::Profile(id) => write!(f, "profile {id}"),
            Self::PowerOverride(id) => write!(f, "power override {id}"),
            Self::Roce(id) => write!(f, "RoCE assignment {id}"),
            Self::EnrollmentToken(id) => write!(f, "enrollment_token {id}"),
            Self::ApiToken(id) => write!(f, "api_token {id}"),
            Self::Webhook(id) => write!(f, "webhook {id}"),
            Self::WebhookProgress(id) => write!(f, "progress of webhook {id}"),
            Self::Silence(id) => write!(f, "silence {id}"),
        }
    }
}

/// Something that at most one row may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum UniqueKey {
    /// A hostname, among nodes that are not deleted.
    Hostname(String),
    /// A machine of a provider, among nodes that are not deleted.
    ProviderRef(SiteId, String),
    /// A site's name.
    SiteName(String),
    /// A profile's name, at its site.
    ProfileName(SiteId, String),
    /// What a power-credential override matches by, at its site.
    PowerSelector(SiteId, PowerSelector, String),
    /// An interface of a host, at a site, that has a RoCE address.
    RoceSlot(SiteId, String, String),
    /// A RoCE address, at a site.
    RoceAddress(SiteId, String),
    /// A BMC, among nodes of a site that are not deleted; only [`Guard::BmcAddressFree`] asks for it.
    Bmc(SiteId, String),
    /// Any node of a site, even a deleted one; only [`Guard::SiteUnused`] asks for it.
    NodeOfSite(SiteId),
    /// Any node of a SKU that is not deleted; only [`Guard::SkuUnused`] asks for it.
    NodeOfSku(String),
    /// The hash of an enrolment token.
    EnrollmentHash(String),
    /// The hash of an API token.
    ApiHash(String),
    /// The idempotency key of a task.
    TaskKey(String),
    /// A webhook's name.
    WebhookName(String),
    /// The live job of a node; only [`Guard::NoLiveJob`] asks for it.
    LiveJob(NodeId),
}

impl std::fmt::Display for UniqueKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hostname(name) => write!(f, "hostname {name}"),
            Self::ProviderRef(site, name) => write!(f, "provider_ref {name} at site {site}"),
            Self::SiteName(name) => write!(f, "site name {name}"),
            Self::ProfileName(site, name) => write!(f, "profile name {name} at site {site}"),
            Self::PowerSelector(site, selector, value) => {
                write!(f, "power override by {selector} {value} at site {site}")
            }
            Self::RoceSlot(site, hostname, interface) => {
                write!(f, "RoCE address of {hostname} {interface} at site {site}")
            }
            Self::RoceAddress(site, address) => write!(f, "RoCE address {address} at site {site}"),
            Self::Bmc(site, address) => write!(f, "BMC address {address} at site {site}"),
            Self::NodeOfSite(site) => write!(f, "node of site {site}"),
            Self::NodeOfSku(name) => write!(f, "node of SKU {name}"),
            Self::EnrollmentHash(_) => f.write_str("enrollment token hash"),
            Self::ApiHash(_) => f.write_str("api token hash"),
            Self::TaskKey(key) => write!(f, "task key {key}"),
            Self::WebhookName(name) => write!(f, "webhook name {name}"),
            Self::LiveJob(node) => write!(f, "live job of node {node}"),
        }
    }
}

/// What stands in the database for a row that a commit is about to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its version.
    pub(crate) generation: Generation,
    /// What else must be known of a node.
    pub(crate) node: Option<NodeHead>,
}

/// What must be known of a stored node to judge a change of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeHead {
    pub(crate) state: NodeState,
    pub(crate) hostname: String,
    pub(crate) site: SiteId,
    pub(crate) sku: String,
    pub(crate) provider_ref: Option<String>,
}

/// A commit that is well formed, with what follows from each of its changes.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) commit: Commit,
    /// One for each change, in the same order.
    pub(crate) derived: Vec<Derived>,
}

impl Prepared {
    /// Checks the commit and derives from it. Needs no database, so it runs on the caller's thread.
    pub(crate) fn new(commit: Commit) -> Result<Self, StoreError> {
        if let Some(why) = defect(&commit) {
            return Err(StoreError::InvalidCommit { op: commit.op, why });
        }
        let derived = commit.changes.iter().map(|change| derive(&commit, change)).collect();
        Ok(Self { commit, derived })
    }

    /// All that must be read before this commit can be judged.
    pub(crate) fn needs(&self, needs: &mut Needs) {
        needs.ops.push(self.commit.op.uuid());
        for guard in &self.commit.guards {
            match guard {
                Guard::NodeGeneration { node, .. } => drop(needs.rows.insert(RowKey::Node(*node))),
                Guard::JobGeneration { job, .. } => drop(needs.rows.insert(RowKey::Job(*job))),
                Guard::SiteGeneration { site, .. } => drop(needs.rows.insert(RowKey::Site(*site))),
                Guard::ProfileGeneration { profile, .. } => drop(needs.rows.insert(RowKey::Profile(*profile))),
                Guard::SkuGeneration { sku, .. } => drop(needs.rows.insert(RowKey::Sku(sku.clone()))),
                Guard::BmcAddressFree { site, address } => {
                    needs.keys.insert(UniqueKey::Bmc(*site, address.clone()));
                }
                Guard::SiteUnused { site } => drop(needs.keys.insert(UniqueKey::NodeOfSite(*site))),
                Guard::SkuUnused { sku } => drop(needs.keys.insert(UniqueKey::NodeOfSku(sku.clone()))),
                Guard::BatchGeneration { batch, .. } => drop(needs.rows.insert(RowKey::Batch(*batch))),
                Guard::TaskGeneration { task, .. } => drop(needs.rows.insert(RowKey::Task(*task))),
                Guard::WebhookGeneration { webhook, .. } => drop(needs.rows.insert(RowKey::Webhook(*webhook))),
                Guard::Lease { name, .. } => drop(needs.leases.insert(name.clone())),
                Guard::HostnameFree { hostname } => drop(needs.keys.insert(UniqueKey::Hostname(hostname.clone()))),
                Guard::NoLiveJob { node } => drop(needs.keys.insert(UniqueKey::LiveJob(*node))),
                Guard::After { op } => needs.ops.push(op.uuid()),
            }
        }
        for change in &self.commit.changes {
            needs.rows.extend(guarded(change).map(|(key, _)| key));
            needs.keys.extend(unique_keys(change).into_iter().map(|(key, _)| key));
        }
    }
}

/// What must be read before a batch can be judged.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) ops: Vec<uuid::Uuid>,
    pub(crate) rows: HashSet<RowKey>,
    pub(crate) keys: HashSet<UniqueKey>,
    pub(crate) leases: HashSet<String>,
}

/// The lease as far as a guard cares: the epoch under which it is held now, if it is held.
pub(crate) type HeldEpoch = Option<LeaseEpoch>;

/// The row whose version a change relies on, with the version after it. Rows without versions have none.
pub(crate) fn guarded(change: &Change) -> Option<(RowKey, Generation)> {
    match change {
        Change::Node(change) => Some((RowKey::Node(change.after.id), change.after.generation)),
        Change::Job(change) => Some((RowKey::Job(change.after.id), change.after.generation)),
        Change::Batch(change) => Some((RowKey::Batch(change.after.id), change.after.generation)),
        Change::Task(change) => Some((RowKey::Task(change.after.id), change.after.generation)),
        Change::Allocation(change) => Some((RowKey::Allocation(change.after.id), change.after.generation)),
        Change::Site(site) => Some((RowKey::Site(site.id), site.generation)),
        Change::SiteCredential { after, .. } => {
            Some((RowKey::SiteCredential(after.site, after.name), after.generation))
        }
        Change::Bmc { after, .. } => Some((RowKey::Bmc(after.node), after.generation)),
        Change::Sku(sku) => Some((RowKey::Sku(sku.name.clone()), sku.generation)),
        Change::Profile(profile) => Some((RowKey::Profile(profile.id), profile.generation)),
        Change::PowerOverride(one) => Some((RowKey::PowerOverride(one.id), one.generation)),
        Change::Roce(row) => Some((RowKey::Roce(row.id), row.generation)),
        // It stands at this generation, and has none after it.
        Change::Removed(removed) => {
            let (key, have) = removed_row(removed);
            Some((key, have.next()))
        }
        Change::EnrollmentToken(token) => Some((RowKey::EnrollmentToken(token.id), token.generation)),
        Change::ApiToken(token) => Some((RowKey::ApiToken(token.id), token.generation)),
        Change::Webhook(change) => Some((RowKey::Webhook(change.after.id), change.after.generation)),
        Change::Silence(one) => Some((RowKey::Silence(one.id), one.generation)),
        Change::WebhookStep(step) => Some((RowKey::WebhookProgress(step.after.webhook), step.after.generation)),
        Change::HostFacts { .. }
        | Change::ProviderState(_)
        | Change::BmcReport(_)
        | Change::ComponentReport(_)
        | Change::Wipe { .. }
        | Change::WipeCertificate(_)
        | Change::Refusal { .. }
        | Change::Note { .. } => None,
    }
}

/// The row that is removed, and the version that it stands at.
pub(crate) fn removed_row(removed: &Removed) -> (RowKey, Generation) {
    match removed {
        Removed::Site(site) => (RowKey::Site(site.id), site.generation),
        Removed::Sku(sku) => (RowKey::Sku(sku.name.clone()), sku.generation),
        Removed::Profile(profile) => (RowKey::Profile(profile.id), profile.generation),
        Removed::PowerOverride(one) => (RowKey::PowerOverride(one.id), one.generation),
        Removed::Roce(row) => (RowKey::Roce(row.id), row.generation),
        Removed::Webhook(one) => (RowKey::Webhook(one.id), one.generation),
        Removed::Silence(one) => (RowKey::Silence(one.id), one.generation),
    }
}

/// What must be free for a change, each with the only row that may have it already.
pub(crate) fn unique_keys(change: &Change) -> Vec<(UniqueKey, String)> {
    match change {
        Change::Node(change) if change.after.state.status == Status::Deleted => Vec::new(),
        Change::Node(change) => {
            let node = &change.after;
            let mut keys = vec![(UniqueKey::Hostname(node.hostname.clone()), node.id.to_string())];
            if let Some(name) = &node.provider_ref {
                keys.push((UniqueKey::ProviderRef(node.site, name.clone()), node.id.to_string()));
            }
            keys
        }
        Change::Site(site) => vec![(UniqueKey::SiteName(site.name.clone()), site.id.to_string())],
        Change::Profile(profile) => {
            vec![(UniqueKey::ProfileName(profile.site, profile.name.clone()), profile.id.to_string())]
        }
        Change::PowerOverride(one) => {
            vec![(UniqueKey::PowerSelector(one.site, one.selector, one.value.clone()), one.id.to_string())]
        }
        Change::Roce(row) => roce_keys(row).into_iter().map(|key| (key, row.id.to_string())).collect(),
        Change::EnrollmentToken(token) => {
            vec![(UniqueKey::EnrollmentHash(token.hash.clone()), token.id.to_string())]
        }
        Change::ApiToken(token) => vec![(UniqueKey::ApiHash(token.hash.clone()), token.id.to_string())],
        // A task keeps its key for good: only its creation asks.
        Change::Task(change) if change.before.is_none() => {
            vec![(UniqueKey::TaskKey(change.after.key.clone()), change.after.id.to_string())]
        }
        Change::Webhook(change) => {
            vec![(UniqueKey::WebhookName(change.after.name.clone()), change.after.id.to_string())]
        }
        Change::Job(_)
        | Change::Batch(_)
        | Change::Task(_)
        | Change::Allocation(_)
        | Change::SiteCredential { .. }
        | Change::Bmc { .. }
        | Change::BmcReport(_)
        | Change::ComponentReport(_)
        | Change::Sku(_)
        | Change::WebhookStep(_)
        | Change::Silence(_)
        | Change::HostFacts { .. }
        | Change::ProviderState(_)
        | Change::Removed(_)
        | Change::Wipe { .. }
        | Change::WipeCertificate(_)
        | Change::Refusal { .. }
        | Change::Note { .. } => Vec::new(),
    }
}

/// What a RoCE assignment has for itself.
pub(crate) fn roce_keys(row: &lattice_core::site::RoceRow) -> [UniqueKey; 2] {
    let one = &row.assignment;
    [
        UniqueKey::RoceSlot(row.site, one.hostname.clone(), one.interface.clone()),
        UniqueKey::RoceAddress(row.site, one.ipv4_cidr.addr().to_string()),
    ]
}

/// The row that a change writes, for the rule "at most one change per row".
fn written(change: &Change) -> Option<String> {
    match change {
        Change::HostFacts { node, .. } => Some(format!("host facts of node {node}")),
        Change::ProviderState(state) => Some(format!("provider state of node {}", state.node)),
        Change::BmcReport(report) => Some(format!("BMC report of node {}", report.node)),
        Change::ComponentReport(report) => Some(format!("component report of node {}", report.node)),
        Change::Node(_)
        | Change::Job(_)
        | Change::Batch(_)
        | Change::Task(_)
        | Change::Allocation(_)
        | Change::Site(_)
        | Change::SiteCredential { .. }
        | Change::Bmc { .. }
        | Change::Sku(_)
        | Change::Profile(_)
        | Change::PowerOverride(_)
        | Change::Roce(_)
        | Change::Removed(_)
        | Change::EnrollmentToken(_)
        | Change::ApiToken(_)
        | Change::Webhook(_)
        | Change::Silence(_)
        | Change::WebhookStep(_) => guarded(change).map(|(key, _)| key.to_string()),
        Change::WipeCertificate(file) => Some(format!("wipe certificate {}", file.certificate.id)),
        Change::Wipe { .. } | Change::Refusal { .. } | Change::Note { .. } => None,
    }
}

fn defect(commit: &Commit) -> Option<Invalid> {
    let (mut seen, mut roce) = (HashSet::new(), HashSet::new());
    for change in &commit.changes {
        if let Some((key, Generation(0))) = guarded(change) {
            return Some(Invalid::GenerationZero { resource: key.to_string() });
        }
        if let Some(resource) = written(change)
            && !seen.insert(resource.clone())
        {
            return Some(Invalid::Twice { resource });
        }
        if let Change::Roce(row) = change
            && let Some(key) = roce_keys(row).into_iter().find(|key| !roce.insert(key.clone()))
        {
            return Some(Invalid::Twice { resource: key.to_string() });
        }
        if let Some(defect) = false_story(change) {
            return Some(defect);
        }
    }
    None
}

/// A forbidden pair, or a story of creation that the generation contradicts.
fn false_story(change: &Change) -> Option<Invalid> {
    let (resource, generation, before) = match change {
        Change::Node(change) => {
            let node = &change.after;
            if !node.state.is_allowed() {
                return Some(Invalid::ForbiddenPair { node: node.id, state: node.state });
            }
            (format!("node {}", node.id), node.generation, change.before.map(|state| state.to_string()))
        }
        Change::Job(change) => {
            let before = change.before.map(|status| status.to_string());
            (format!("job {}", change.after.id), change.after.generation, before)
        }
        Change::Batch(change) => {
            let before = change.before.map(|status| status.to_string());
            (format!("batch {}", change.after.id), change.after.generation, before)
        }
        Change::Task(change) => {
            let before = change.before.map(|status| status.to_string());
            (format!("task {}", change.after.id), change.after.generation, before)
        }
        Change::Webhook(change) => {
            let before = change.before.map(|status| status.to_string());
            (format!("webhook {}", change.after.id), change.after.generation, before)
        }
        Change::Allocation(change) => {
            let before = change.before.map(|status| status.to_string());
            (format!("allocation {}", change.after.id), change.after.generation, before)
        }
        Change::HostFacts { .. }
        | Change::ProviderState(_)
        | Change::BmcReport(_)
        | Change::ComponentReport(_)
        | Change::Bmc { .. }
        | Change::Site(_)
        | Change::SiteCredential { .. }
        | Change::Sku(_)
        | Change::Profile(_)
        | Change::PowerOverride(_)
        | Change::Roce(_)
        | Change::Removed(_)
        | Change::EnrollmentToken(_)
        | Change::ApiToken(_)
        | Change::Silence(_)
        | Change::WebhookStep(_)
        | Change::Wipe { .. }
        | Change::WipeCertificate(_)
        | Change::Refusal { .. }
        | Change::Note { .. } => return None,
    };
    if before.is_none() == (generation == Generation::FIRST) {
        return None;
    }
    let claimed = before.unwrap_or_else(|| "absent".to_owned());
    Some(Invalid::FalseBefore { resource, claimed, generation: generation.0 })
}
