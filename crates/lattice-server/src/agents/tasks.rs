//! Tasks of agents: handed over after they are noted as such, reported once.

use http::StatusCode;
use lattice_api::agent::EndedAllocation;
use lattice_api::error::Problem;
use lattice_core::agent::task::{ExitStatus, Running, Task, TaskReport};
use lattice_core::allocation::Allocation;
use lattice_core::change::{Change, Commit, Outcome};
use lattice_core::command::{Refused, Request, allocation, task};
use lattice_core::explain::{Code, Explain};
use lattice_core::ids::{NodeId, OwnershipEpoch};
use lattice_core::node::Node;
use lattice_core::time::Timestamp;
use tracing::info;

use super::{Agents, TRIES, being_changed, unavailable};
use crate::agent_api::{Handed, Registration};
use crate::error::status_of;

/// Open tasks of a node that are looked at: one runs after the other there, and few are ever open.
const OPEN: usize = 64;

/// Base64 text of the tasks in one answer: what an agent reads holds it with room to spare.
const ANSWER_BYTES: usize = 128 * 1024;

impl Agents {
    /// What is to be handed to the agent of `node`, signed, each noted as handed over before.
    pub(super) async fn hand_over(&self, node: NodeId, at: Timestamp) -> Result<Handed, Problem> {
        let row = self.node(node).await?;
        let open = self.store.open_tasks(node, OPEN).await.map_err(unavailable)?;
        let placed = match open.iter().any(|task| task.input.allocation().is_some()) {
            true => self.store.placed_on(node).await.map_err(unavailable)?,
            false => Vec::new(),
        };
        // What was asked for a placement that is over is not begun any more: it may be placed elsewhere by now.
        let (open, outdated): (Vec<Task>, Vec<Task>) =
            open.into_iter().partition(|task| allocation::is_current(task, &placed));
        self.withdraw(node, &outdated, at).await?;
        let mut handed = Handed::default();
        let mut chosen: Vec<Task> = Vec::new();
        let mut commits: Vec<Commit> = Vec::new();
        let mut bytes = 0;
        for task in open.iter().filter(|task| task::is_deliverable(task, row.identity_epoch, at)) {
            let request = self.request(node, at);
            let Some(change) = task::delivered(&request, task) else { continue };
            bytes += serde_json::to_vec(&task.statement()).map_or(0, |statement| statement.len() * 4 / 3);
            if bytes > ANSWER_BYTES && !chosen.is_empty() {
                handed.more = true;
                break;
            }
            chosen.push(task.clone());
            commits.push(request.commit(Vec::new(), vec![Change::Task(Box::new(change))]));
        }
        if commits.is_empty() {
            return Ok(handed);
        }
        let outcomes = self.store.commit(commits).await.map_err(unavailable)?;
        for (task, outcome) in chosen.iter().zip(outcomes) {
            match outcome {
                Outcome::Applied { .. } | Outcome::Duplicate { .. } => {
                    info!(node_id = %node, task_id = %task.id, kind = %task.input.kind(), "task handed over");
                    handed.envelopes.push(self.task_keys.seal(&task.statement()));
                }
                // It was withdrawn, or it expired, just now; if it is another server's doing, that one hands it over.
                Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => handed.more = true,
            }
        }
        Ok(handed)
    }

    /// Withdraws tasks that nobody has yet. One that was handed over before is not handed over again, and expires.
    async fn withdraw(&self, node: NodeId, outdated: &[Task], at: Timestamp) -> Result<(), Problem> {
        let withdrawn = outdated.iter().filter_map(|one| {
            let request = Request {
                reason: "its allocation is not placed here any more, or is being ended".to_owned(),
                ..self.request(node, at)
            };
            let change = task::cancelled(&request, one).ok()??;
            Some(request.commit(Vec::new(), vec![Change::Task(Box::new(change))]))
        });
        // Somebody else may have been faster: it is over then, too.
        self.store.commit(withdrawn.collect()).await.map(drop).map_err(unavailable)
    }

    /// Takes a report; whether it changed something.
    pub(super) async fn take_report(&self, node: NodeId, report: &TaskReport, at: Timestamp) -> Result<bool, Problem> {
        for _ in 0..TRIES {
            let task = self.store.task(report.task).await.map_err(unavailable)?.filter(|task| task.node == node);
            let Some(task) = task else {
                let detail = format!("node {node} has no task {}", report.task);
                return Err(Problem::new(StatusCode::NOT_FOUND, Code::NotFound, detail));
            };
            let request = self.request(node, at);
            let change = match task::reported(&request, &task, report) {
                Ok(Some(change)) => change,
                Ok(None) => return Ok(false),
                Err(refused) => {
                    self.audit_refusal(node, "task.report", format!("task {}: {refused}", task.id), at).await;
                    return Err(report_refused(&refused));
                }
            };
            let (cause, kind) = (change.cause, task.input.kind());
            let commit = request.commit(Vec::new(), vec![Change::Task(Box::new(change))]);
            match self.store.commit_one(commit).await.map_err(unavailable)? {
                Outcome::Applied { .. } | Outcome::Duplicate { .. } => {
                    info!(node_id = %node, task_id = %task.id, %kind, %cause, "task reported");
                    if let Some(job) = task.owner.job() {
                        self.jobs.wake(job);
                    }
                    return Ok(true);
                }
                Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => {}
            }
        }
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "the task is being changed: try again"))
    }

    /// What runs on a host without being placed there, or under an ownership that its node lost.
    pub(super) async fn not_owned(&self, node: NodeId, running: &[Running]) -> Result<Vec<Running>, Problem> {
        if running.is_empty() {
            return Ok(Vec::new());
        }
        let placed = self.store.placed_on(node).await.map_err(unavailable)?;
        let is_owned = |one: &&Running| {
            placed.iter().any(|row| row.id == one.allocation && row.epoch == Some(one.ownership_epoch))
        };
        Ok(running.iter().filter(|one| !is_owned(one)).copied().collect())
    }

    /// What ran before the host booted anew is lost, once its agent says so under the ownership that comes then: it was told
    /// that one now, and a registration of an earlier boot that arrives late does not have it. The node as it is then, or
    /// the ownership under which its agent registers next.
    pub(super) async fn lost_by_boot(
        &self,
        node: Node,
        registration: &Registration,
    ) -> Result<Result<Node, OwnershipEpoch>, Problem> {
        if !allocation::is_lost_by_boot(&node, &registration.request.boot_id) {
            return Ok(Ok(node));
        }
        let proof = allocation::epoch_after_boot(&node);
        if registration.request.ownership_epoch < proof {
            return Ok(Err(proof));
        }
        let placed = self.store.placed_on(node.id).await.map_err(unavailable)?;
        let request = self.request(node.id, registration.at);
        let commit = allocation::lost_by_boot(&request, &node, &placed);
        match self.store.commit_one(commit).await.map_err(unavailable)? {
            Outcome::Applied { .. } | Outcome::Duplicate { .. } => {}
            Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => return Err(being_changed()),
        }
        info!(node_id = %node.id, "the host booted anew: what it ran counts as lost");
        let after = self.node(node.id).await?;
        self.fleet.sync(&after, registration.at);
        Ok(Ok(after))
    }

    /// Allocations ended by themselves: those that the node still owns are over.
    pub(super) async fn take_ended(
        &self,
        node: NodeId,
        ended: &[EndedAllocation],
        at: Timestamp,
    ) -> Result<(), Problem> {
        for one in ended {
            self.end(node, one, at).await?;
        }
        Ok(())
    }

    async fn end(&self, node: NodeId, ended: &EndedAllocation, at: Timestamp) -> Result<(), Problem> {
        for _ in 0..TRIES {
            let row = self.store.allocation(ended.allocation).await.map_err(unavailable)?;
            let is_it = |row: &Allocation| row.placed_on() == Some(node) && row.epoch == Some(ended.ownership_epoch);
            let Some(row) = row.filter(is_it) else { return Ok(()) };
            let request = Request { reason: exit_of(ended), ..self.request(node, at) };
            // One that is being released ends with the report of its stop.
            let Ok(commit) = allocation::ended(&request, &row, &self.node(node).await?) else { return Ok(()) };
            match self.store.commit_one(commit).await.map_err(unavailable)? {
                Outcome::Applied { .. } | Outcome::Duplicate { .. } => {
                    info!(node_id = %node, allocation_id = %row.id, "allocation ended by itself");
                    return Ok(());
                }
                Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => {}
            }
        }
        Err(being_changed())
    }
}

fn exit_of(ended: &EndedAllocation) -> String {
    match ended.exit {
        Some(ExitStatus::Code(code)) => format!("it ended with {code}"),
        Some(ExitStatus::Signal(signal)) => format!("it ended by signal {signal}"),
        None => "it ended while no agent was there".to_owned(),
    }
}

fn report_refused(refused: &Refused) -> Problem {
    let code = refused.code();
    let mut problem = Problem::new(status_of(code), code, refused.to_string());
    problem.because = refused.because();
    refused.next_actions().into_iter().fold(problem, Problem::next)
}
