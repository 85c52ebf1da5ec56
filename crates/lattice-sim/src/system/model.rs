//! The rows as the commits make them, followed commit by commit: what the rules look at, and what the store is compared
//! with in the end.

use std::collections::BTreeMap;

use lattice_core::agent::task::Task;
use lattice_core::allocation::Allocation;
use lattice_core::change::{Change, Commit};
use lattice_core::ids::{AllocationId, JobId, NodeId, SiteId, TaskId};
use lattice_core::job::Job;
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::{Node, Status};
use lattice_core::site::AutomationPolicy;
use lattice_core::time::Timestamp;

/// The newest allocations and jobs that operators still think of.
const RECENT: usize = 10;

/// The rows.
#[derive(Default)]
pub struct Model {
    /// Nodes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Allocations.
    pub allocations: BTreeMap<AllocationId, Allocation>,
    /// Jobs.
    pub jobs: BTreeMap<JobId, Job>,
    /// Tasks.
    pub tasks: BTreeMap<TaskId, Task>,
    /// The times of every site.
    pub policy: HeartbeatPolicy,
    /// What Lattice may do at every site by itself.
    pub automation: AutomationPolicy,
    /// Whether the site lets a wipe leave the drive that the system runs from.
    pub keeps_system_drive: bool,
    /// When an operator let a brake go last, for each site.
    pub let_go_at: BTreeMap<SiteId, Timestamp>,
}

/// One commit, as it changed the rows.
pub struct Moved<'a> {
    /// What was committed.
    pub commit: &'a Commit,
    /// Nodes before and after.
    pub nodes: Vec<(Option<Node>, Node)>,
    /// Allocations before and after.
    pub allocations: Vec<(Option<Allocation>, Allocation)>,
    /// Jobs before and after.
    pub jobs: Vec<(Option<Job>, Job)>,
    /// Tasks before and after.
    pub tasks: Vec<(Option<Task>, Task)>,
}

impl Model {
    /// Applies a commit.
    pub fn apply<'a>(&mut self, commit: &'a Commit) -> Moved<'a> {
        let mut moved =
            Moved { commit, nodes: Vec::new(), allocations: Vec::new(), jobs: Vec::new(), tasks: Vec::new() };
        for change in &commit.changes {
            match change {
                Change::Node(change) => {
                    let after = change.after.clone();
                    moved.nodes.push((self.nodes.insert(after.id, after.clone()), after));
                }
                Change::Allocation(change) => {
                    let after = change.after.clone();
                    moved.allocations.push((self.allocations.insert(after.id, after.clone()), after));
                }
                Change::Job(change) => {
                    let after = change.after.clone();
                    moved.jobs.push((self.jobs.insert(after.id, after.clone()), after));
                }
                Change::Task(change) => {
                    let after = change.after.clone();
                    moved.tasks.push((self.tasks.insert(after.id, after.clone()), after));
                }
                Change::Site(site) => {
                    if let Some(at) = site.let_go_at {
                        self.let_go_at.insert(site.id, at);
                    }
                }
                Change::HostFacts { .. }
                | Change::ProviderState(_)
                | Change::BmcReport(_)
                | Change::ComponentReport(_)
                | Change::Bmc { .. }
                | Change::Batch(_)
                | Change::SiteCredential { .. }
                | Change::Sku(_)
                | Change::Profile(_)
                | Change::PowerOverride(_)
                | Change::Roce(_)
                | Change::Removed(_)
                | Change::EnrollmentToken(_)
                | Change::ApiToken(_)
                | Change::Webhook(_)
                | Change::Silence(_)
                | Change::WebhookStep(_)
                | Change::Wipe { .. }
                | Change::WipeCertificate(_)
                | Change::Refusal { .. }
                | Change::Note { .. } => {}
            }
        }
        moved
    }

    /// What of these commits must never be asked of the store, whatever it answers.
    pub fn impossible(&self, commits: &[Commit]) -> Vec<String> {
        let changes = commits.iter().flat_map(|commit| &commit.changes);
        let nodes = changes.filter_map(|change| if let Change::Node(node) = change { Some(&node.after) } else { None });
        let impossible = nodes.filter(|node| !node.state.is_allowed());
        impossible.map(|node| format!("{} was to become {}, which no node may be", node.hostname, node.state)).collect()
    }

    /// Nodes that are not deleted, with their names.
    pub fn living_nodes(&self) -> Vec<(NodeId, String)> {
        let living = self.nodes.values().filter(|node| node.state.status != Status::Deleted);
        living.map(|node| (node.id, node.hostname.clone())).collect()
    }

    /// The newest allocations.
    pub fn recent_allocations(&self) -> Vec<AllocationId> {
        self.allocations.keys().rev().take(RECENT).copied().collect()
    }

    /// The newest jobs.
    pub fn recent_jobs(&self) -> Vec<JobId> {
        self.jobs.keys().rev().take(RECENT).copied().collect()
    }

    /// What is placed on a node.
    pub fn placed_on(&self, node: NodeId) -> impl Iterator<Item = &Allocation> {
        self.allocations.values().filter(move |one| one.placed_on() == Some(node))
    }

    /// The name of a node.
    pub fn name(&self, node: NodeId) -> String {
        self.nodes.get(&node).map_or_else(|| node.to_string(), |node| node.hostname.clone())
    }
}
