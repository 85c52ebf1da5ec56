//! The allocator's loop body: places what waits, follows what agents did, notices what ended, lets the brake go.
//!
//! Each step is its own commit under the generations of the rows it read: whoever comes second reads again at the next
//! tick.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lattice_core::agent::task::{
    HeartbeatCheck, Progress, Running, Task, TaskInput, TaskOutput, TaskOwner, TaskStatus,
};
use lattice_core::allocation::{Allocation, AllocationStatus, Candidate, Wanted, place};
use lattice_core::change::{Change, Commit, Outcome};
use lattice_core::command::{Request, allocation, task};
use lattice_core::heartbeat::{Registry, brake};
use lattice_core::ids::{CorrelationId, IdSource, NodeId, SiteId};
use lattice_core::node::{Availability, Node};
use lattice_core::time::Timestamp;
use lattice_store::{Cursor, NodeFilter, NodeSort, PAGE_MAX, PageRequest, Store, StoreError, TaskFilter};
use tracing::info;

use crate::fit;

/// Nodes considered for one allocation at a time: so many that are idle, and so many that are in use.
const CANDIDATES: usize = 1_000;
/// Allocations of one status that are looked at together.
const QUEUE: usize = PAGE_MAX;
/// How often all nodes in use are considered for what waits, where there are more of them and none is idle.
const FULL_LOOK: Duration = Duration::from_secs(30);
/// Latest tasks of an allocation that are looked at: a start, a checkpoint, and the stops of its present placement.
const TASKS: usize = 8;
/// Pause before an agent that could not end an allocation is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(15);
/// How often an agent that counts fewer allocations than it should is asked what runs.
const RECOUNT: Duration = Duration::from_secs(30);

/// Where nonces for tasks come from: 16 bytes that nobody can guess.
pub type Nonces = dyn Fn() -> [u8; 16] + Send + Sync;

/// Places allocations and follows them.
pub struct Allocator {
    store: Store,
    registry: Arc<Registry>,
    ids: Arc<dyn IdSource>,
    nonces: Arc<Nonces>,
    looked: Mutex<Looked>,
}

/// How far long lists were looked at.
#[derive(Default)]
struct Looked {
    /// When all nodes in use were considered last.
    all_nodes: Timestamp,
    /// Where each long queue goes on, behind its first page.
    queues: HashMap<AllocationStatus, Cursor>,
}

/// What one tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocated {
    /// Allocations that got a node.
    pub placed: u64,
    /// Allocations that moved otherwise.
    pub moved: u64,
    /// Nodes that the brake let go of.
    pub let_go: u64,
    /// Commits that somebody else was faster than.
    pub lost_races: u64,
}

impl Allocator {
    /// An allocator over the store and the registry of heartbeats.
    pub fn new(store: Store, registry: Arc<Registry>, ids: Arc<dyn IdSource>, nonces: Arc<Nonces>) -> Self {
        Self { store, registry, ids, nonces, looked: Mutex::default() }
    }

    /// Does what can be done at `now`.
    ///
    /// # Errors
    /// The store fails: nothing is half done, the next tick finds the same.
    pub async fn tick(&self, now: Timestamp) -> Result<Allocated, StoreError> {
        let mut done = Allocated::default();
        self.let_go(now, &mut done).await?;
        self.settle(now, &mut done).await?;
        self.recount(now, &mut done).await?;
        self.place(now, &mut done).await?;
        Ok(done)
    }

    fn request(&self, now: Timestamp, correlation: CorrelationId) -> Request<'_> {
        Request::of_system("allocator", &*self.ids, now, correlation)
    }

    fn of(&self, allocation: &Allocation, now: Timestamp) -> Request<'_> {
        self.request(now, allocation.correlation)
    }

    async fn commit(&self, commit: Commit, done: &mut Allocated) -> Result<bool, StoreError> {
        let applied = match self.store.commit_one(commit).await? {
            Outcome::Applied { .. } | Outcome::Duplicate { .. } => true,
            Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => false,
        };
        if !applied {
            done.lost_races += 1;
        }
        Ok(applied)
    }

    async fn moves(&self, commit: Option<Commit>, done: &mut Allocated) -> Result<(), StoreError> {
        if let Some(commit) = commit
            && self.commit(commit, done).await?
        {
            done.moved += 1;
        }
        Ok(())
    }

    /// Gives those that wait a node, the longest waiting first.
    async fn place(&self, now: Timestamp, done: &mut Allocated) -> Result<(), StoreError> {
        let mut waiting = self.queue(AllocationStatus::Requested).await?;
        waiting.retain(|one| one.pauses_until(now).is_none());
        if waiting.is_empty() {
            return Ok(());
        }
        let all_skus = self.store.skus().await?;
        let skus = all_skus.iter().map(|sku| (sku.name.clone(), sku.gpus)).collect();
        let mut nowhere: HashMap<Wanted, Option<String>> = HashMap::new();
        let look = Look { now, at_all: self.is_full_look(now) };
        let mut pools: HashMap<Wanted, Vec<Candidate>> = HashMap::new();
        for one in waiting {
            let pool = Wanted { gpus: 0, ..one.wanted.clone() };
            if !pools.contains_key(&pool) {
                let candidates = self.candidates(&pool, &skus, look).await?;
                pools.insert(pool.clone(), candidates);
            }
            let Some(candidates) = pools.get_mut(&pool) else { continue };
            let request = self.of(&one, now);
            let node = match place(&one, candidates, now) {
                Ok(candidate) => candidate.node.clone(),
                Err(why) => {
                    // Only where no candidate is large enough it may be that none ever is.
                    let may_be_nowhere = candidates.iter().all(|candidate| candidate.gpus < one.wanted.gpus);
                    if may_be_nowhere && !nowhere.contains_key(&one.wanted) {
                        let said = fit::nowhere(&self.store, &one.wanted, &all_skus).await?;
                        nowhere.insert(one.wanted.clone(), said);
                    }
                    let none = nowhere.get(&one.wanted).and_then(Option::as_ref).filter(|_| may_be_nowhere);
                    self.moves(allocation::waits(&request, &one, none.unwrap_or(&why)), done).await?;
                    continue;
                }
            };
            let commit = match allocation::place(&request, &one, &node, (self.nonces)()) {
                Ok(commit) => commit,
                Err(refused) => {
                    self.moves(allocation::waits(&request, &one, &refused.to_string()), done).await?;
                    continue;
                }
            };
            let after = node_after(&commit);
            let applied = self.commit(commit, done).await?;
            // Its row is another one now, for the next of this pool; lost to somebody else, it is read at the next tick.
            // Another pool may have the same node: whoever takes it there is refused by its generation, and comes again.
            candidates.retain(|candidate| applied || candidate.node.id != node.id);
            if applied {
                done.placed += 1;
                info!(allocation_id = %one.id, node_id = %node.id, "allocation placed");
                if let (Some(own), Some(after)) = (candidates.iter_mut().find(|own| own.node.id == node.id), after) {
                    own.node = after;
                }
            }
        }
        Ok(())
    }

    /// Those in a status: the longest waiting, and of a long queue one page more, another at each tick. What waits in
    /// vain keeps nobody behind it from being looked at.
    async fn queue(&self, status: AllocationStatus) -> Result<Vec<Allocation>, StoreError> {
        let first = self.store.allocations_in(status, &PageRequest::first(QUEUE)).await?;
        let mut queue = first.items;
        let cursor = first.next.map(|end| self.looked().queues.get(&status).cloned().unwrap_or(end));
        let further = match cursor {
            Some(cursor) => {
                let page = PageRequest { cursor: Some(cursor), limit: QUEUE };
                let page = self.store.allocations_in(status, &page).await?;
                queue.extend(page.items);
                page.next
            }
            None => None,
        };
        match further {
            Some(next) => self.looked().queues.insert(status, next),
            None => self.looked().queues.remove(&status),
        };
        // The first page may have grown into that one.
        queue.sort_by_key(|one| (one.requested_at, one.id));
        queue.dedup_by_key(|one| one.id);
        Ok(queue)
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes that `wanted` allows. Those that may not be used now are there too, so that it can be said why: but never
    /// instead of one that may.
    async fn candidates(
        &self,
        wanted: &Wanted,
        skus: &HashMap<String, u32>,
        look: Look,
    ) -> Result<Vec<Candidate>, StoreError> {
        let nodes = match wanted.node {
            Some(node) => self.store.node(node).await?.into_iter().collect(),
            None => {
                let (site, sku, labels) = (wanted.site, wanted.sku.clone(), wanted.labels.clone());
                let all = NodeFilter { site, sku, labels, ..NodeFilter::default() };
                let usable = NodeFilter { schedulable_at: Some(look.now), ..all.clone() };
                let mut nodes = self.usable(usable, look).await?;
                if nodes.is_empty() {
                    nodes = self.some_nodes(&all).await?;
                }
                nodes
            }
        };
        let gpus = |node: &Node| skus.get(&node.sku).copied().unwrap_or(0);
        Ok(nodes.into_iter().map(|node| Candidate { gpus: gpus(&node), node }).collect())
    }

    /// Idle ones, and some in use: whoever fits best between others is taken, and nobody waits beside an idle node.
    async fn usable(&self, usable: NodeFilter, look: Look) -> Result<Vec<Node>, StoreError> {
        let in_use = NodeFilter { idle: Some(false), ..usable.clone() };
        let idle = self.some_nodes(&NodeFilter { idle: Some(true), ..usable }).await?;
        let mut nodes = match idle.is_empty() && look.at_all {
            true => self.all_nodes(&in_use).await?,
            false => self.some_nodes(&in_use).await?,
        };
        nodes.extend(idle);
        Ok(nodes)
    }

    fn is_full_look(&self, now: Timestamp) -> bool {
        let mut looked = self.looked();
        let due = now.since(looked.all_nodes) >= FULL_LOOK;
        if due {
            looked.all_nodes = now;
        }
        due
    }

    async fn all_nodes(&self, filter: &NodeFilter) -> Result<Vec<Node>, StoreError> {
        let mut nodes = Vec::new();
        let mut page = PageRequest::first(CANDIDATES);
        loop {
            let (read, next) = self.one_page(filter, &page).await?;
            nodes.extend(read);
            if next.is_none() {
                return Ok(nodes);
            }
            page.cursor = next;
        }
    }

    async fn some_nodes(&self, filter: &NodeFilter) -> Result<Vec<Node>, StoreError> {
        Ok(self.one_page(filter, &PageRequest::first(CANDIDATES)).await?.0)
    }

    async fn one_page(
        &self,
        filter: &NodeFilter,
        page: &PageRequest,
    ) -> Result<(Vec<Node>, Option<Cursor>), StoreError> {
        let page = self.store.nodes(filter, NodeSort::Hostname, page).await?;
        let ids: Vec<NodeId> = page.items.iter().map(|node| node.id).collect();
        Ok((self.store.nodes_by_id(&ids).await?, page.next))
    }

    /// Follows the tasks of those that are being started, saved or ended.
    async fn settle(&self, now: Timestamp, done: &mut Allocated) -> Result<(), StoreError> {
        for status in [AllocationStatus::Provisioning, AllocationStatus::Releasing] {
            for one in self.queue(status).await? {
                self.settle_one(&one, now, done).await?;
            }
        }
        for node in self.emptied_urgently().await? {
            for one in self.store.placed_on(node).await? {
                if one.status == AllocationStatus::Active && one.is_checkpointable() {
                    self.settle_one(&one, now, done).await?;
                }
            }
        }
        Ok(())
    }

    /// Draining nodes on which something still runs.
    async fn emptied_urgently(&self) -> Result<Vec<NodeId>, StoreError> {
        let availabilities = vec![Availability::Draining];
        let draining = NodeFilter { availabilities, idle: Some(false), ..NodeFilter::default() };
        Ok(self.all_nodes(&draining).await?.into_iter().map(|node| node.id).collect())
    }

    async fn settle_one(&self, one: &Allocation, now: Timestamp, done: &mut Allocated) -> Result<(), StoreError> {
        let Some(id) = one.placed_on() else { return Ok(()) };
        let Some(node) = self.store.node(id).await? else { return Ok(()) };
        let key_prefix = Some(allocation::placement_key(one));
        let filter = TaskFilter { allocation: Some(one.id), key_prefix, ..TaskFilter::default() };
        let tasks = self.store.tasks(&filter, &PageRequest::first(TASKS)).await?.items;
        let request = self.of(one, now);
        if let Some(commit) = allocation::settle(&request, one, &node, &tasks, (self.nonces)()) {
            return self.moves(Some(commit), done).await;
        }
        if must_ask_again(one, &tasks, now) {
            let again = allocation::stop_again(&request, one, &node, (self.nonces)()).ok();
            return self.moves(again, done).await;
        }
        Ok(())
    }

    /// Asks agents that count fewer allocations than were placed what runs there, and believes what they say.
    async fn recount(&self, now: Timestamp, done: &mut Allocated) -> Result<(), StoreError> {
        for (id, active) in self.store.active_counts().await? {
            let Some(vitals) = self.registry.vitals_now(id) else { continue };
            if u64::from(vitals.allocations) >= active {
                continue;
            }
            let mut active = self.store.placed_on(id).await?;
            active.retain(|one| one.status == AllocationStatus::Active);
            let Some(node) = self.store.node(id).await? else { continue };
            match self.last_count(&node, &active, now).await? {
                Count::Running(running) => self.end_missing(&node, &active, &running, now, done).await?,
                Count::Asked => {}
                Count::Unknown { key } => self.ask(&node, key, now, done).await?,
            }
        }
        Ok(())
    }

    /// What an agent said lately about what runs. The question names the rows as they stood when it was asked: its answer
    /// says nothing of what became active since, wherever the clocks of servers jump.
    async fn last_count(&self, node: &Node, active: &[Allocation], now: Timestamp) -> Result<Count, StoreError> {
        let bucket = now.as_millis() / i64::try_from(RECOUNT.as_millis()).unwrap_or(i64::MAX);
        let rows: u64 = active.iter().map(|one| one.generation.0).sum();
        let key = format!("node/{}/recount/{bucket}/g{}/a{rows}", node.id, node.generation.0);
        let Some(task) = self.store.task_by_key(&key).await? else { return Ok(Count::Unknown { key }) };
        Ok(match task.report.map(|report| report.progress) {
            Some(Progress::Succeeded { output: TaskOutput::HeartbeatCheck { running, .. } }) => Count::Running(running),
            Some(_) | None => Count::Asked,
        })
    }

    async fn ask(&self, node: &Node, key: String, now: Timestamp, done: &mut Allocated) -> Result<(), StoreError> {
        let request = self.request(now, CorrelationId::generate(&*self.ids, now));
        let input = TaskInput::HeartbeatCheck(HeartbeatCheck {});
        let new = task::NewTask { node, owner: TaskOwner::Request, key, input, term: None };
        if let Ok((_, commit)) = task::issue(&request, new, (self.nonces)()) {
            self.commit(commit, done).await?;
        }
        Ok(())
    }

    /// Those that were active at the question and are not in the answer have ended; one of them at a time for each node.
    async fn end_missing(
        &self,
        node: &Node,
        active: &[Allocation],
        running: &[Running],
        now: Timestamp,
        done: &mut Allocated,
    ) -> Result<(), StoreError> {
        let runs = |one: &Allocation| running.iter().any(|running| running.allocation == one.id);
        let missing = active.iter().find(|one| !runs(one));
        match missing {
            Some(one) => self.moves(allocation::ended(&self.of(one, now), one, node).ok(), done).await,
            None => Ok(()),
        }
    }

    /// Lets go of nodes whose loss the brake held back long enough.
    async fn let_go(&self, now: Timestamp, done: &mut Allocated) -> Result<(), StoreError> {
        let braked = self.store.braked_nodes().await?;
        if braked.is_empty() {
            return Ok(());
        }
        let let_go: HashMap<SiteId, Timestamp> =
            self.store.sites().await?.into_iter().filter_map(|site| Some((site.id, site.let_go_at?))).collect();
        for node in self.store.nodes_by_id(&braked).await? {
            if !brake::lets_go(&node, let_go.get(&node.site).copied(), now) {
                continue;
            }
            let placed = self.store.placed_on(node.id).await?;
            let mut request = self.request(now, CorrelationId::generate(&*self.ids, now));
            request.reason = match node.ownership.braked_until {
                Some(until) if now < until => "an operator let go of its site's brake".to_owned(),
                Some(_) | None => "the brake held its loss back as long as it may".to_owned(),
            };
            if let Some(commit) = allocation::let_go(&request, &node, &placed)
                && self.commit(commit, done).await?
            {
                done.let_go += 1;
            }
        }
        Ok(())
    }
}

/// How nodes are looked at.
#[derive(Clone, Copy)]
struct Look {
    now: Timestamp,
    at_all: bool,
}

/// What is known about what runs on a node.
enum Count {
    /// Its agent says this.
    Running(Vec<Running>),
    /// It was asked, and has not said anything of use yet.
    Asked,
    /// It was not asked lately.
    Unknown {
        /// Under which key to ask.
        key: String,
    },
}

/// Whether the newest request to end it came to nothing, a while ago.
fn must_ask_again(one: &Allocation, tasks: &[Task], now: Timestamp) -> bool {
    let is_stop = |task: &&Task| matches!(task.input, TaskInput::AllocationStop(_));
    let newest = tasks.iter().filter(|task| allocation::is_of_placement(one, task)).find(is_stop);
    let was_asked = match one.status {
        AllocationStatus::Releasing => true,
        AllocationStatus::Provisioning => newest.is_some(),
        AllocationStatus::Requested
        | AllocationStatus::Active
        | AllocationStatus::Released
        | AllocationStatus::Failed => false,
    };
    was_asked
        && newest.is_none_or(|task| {
            let failed = match task.status {
                TaskStatus::Failed | TaskStatus::Expired | TaskStatus::Cancelled => true,
                TaskStatus::Pending | TaskStatus::Delivered | TaskStatus::Running | TaskStatus::Succeeded => false,
            };
            failed && task.finished_at.is_none_or(|at| now.since(at) >= ASK_AGAIN)
        })
}

fn node_after(commit: &Commit) -> Option<Node> {
    commit
        .changes
        .iter()
        .find_map(|change| if let Change::Node(node) = change { Some(node.after.clone()) } else { None })
}
