//! What agents bring about, decided by core and committed: the listener answers only after the commit.

mod claims;
mod tasks;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use lattice_api::agent::{EndedAllocation, RegisterRequest};
use lattice_api::error::Problem;
use lattice_controllers::Fleet;
use lattice_core::actor::{Actor, Role};
use lattice_core::agent::task::TaskReport;
use lattice_core::change::{Change, NodeAction, Outcome, Resource};
use lattice_core::command::Request;
use lattice_core::command::agent::{self, Chained};
use lattice_core::command::boots;
use lattice_core::credential::{EnrollmentToken, TokenRefused};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{CorrelationId, IdSource, JobId, NodeId, OpId};
use lattice_core::node::availability::Effect;
use lattice_core::node::{Node, Status};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;
use lattice_providers::secret::SecretStore;
use lattice_store::{HistoryEntry, PageRequest, Store, StoreError};
use tracing::{info, warn};

use crate::agent_api::{
    AgentEvents, BootClaim, Enrolment, Granted, Handed, IdentityRefusal, Registered, Registration, Report,
};
use crate::task_keys::TaskKeys;

/// How often a decision is made anew when its row changed under it: a node's row has few writers.
const TRIES: usize = 5;

/// Changes of a node looked at for a revocation: far more than five minutes bring.
const HISTORY_OF_A_MOMENT: usize = 100;

/// Refused identities written to the audit per minute, all agents together; a revoked agent asks again and again.
const REFUSALS_PER_MINUTE: u32 = 60;

/// How long nothing is said again of a node whose identity two agents have.
const SHARED_AGAIN: Duration = Duration::from_secs(600);

/// Wakes the driver of a job after something happened that it may wait for.
pub trait WakeJob: Send + Sync {
    /// The job may go on.
    fn wake(&self, job: JobId);
}

/// Decides and commits what agents bring about.
pub struct Agents {
    store: Store,
    fleet: Arc<Fleet>,
    ids: Arc<dyn IdSource>,
    jobs: Arc<dyn WakeJob>,
    task_keys: Arc<TaskKeys>,
    certificate_life: Duration,
    refusals: Mutex<(Timestamp, u32)>,
    /// Nodes with two agents, and when that was told last.
    shared: Mutex<HashMap<NodeId, Timestamp>>,
    /// What jobs keep secret for machines that boot; none: nothing is given to them.
    secrets: Option<Arc<dyn SecretStore>>,
}

/// What a decision asks for, or the refusal that the agent gets.
type Decided = Result<Chained, Box<Problem>>;

impl Agents {
    /// Over the store, with the life of new certificates.
    pub fn new(
        store: Store,
        fleet: Arc<Fleet>,
        ids: Arc<dyn IdSource>,
        jobs: Arc<dyn WakeJob>,
        task_keys: Arc<TaskKeys>,
        certificate_life: Duration,
    ) -> Self {
        let refusals = Mutex::new((Timestamp::default(), 0));
        let shared = Mutex::default();
        Self { store, fleet, ids, jobs, task_keys, certificate_life, refusals, shared, secrets: None }
    }

    /// The same, giving machines that boot from the network the tokens that jobs keep for them.
    #[must_use]
    pub fn giving_tokens(self, secrets: Arc<dyn SecretStore>) -> Self {
        Self { secrets: Some(secrets), ..self }
    }

    fn request(&self, node: NodeId, now: Timestamp) -> Request<'_> {
        Request {
            actor: Actor { name: node.to_string(), role: Role::Agent },
            reason: String::new(),
            now,
            ids: &*self.ids,
            op: OpId::generate(&*self.ids, now),
            correlation: CorrelationId::generate(&*self.ids, now),
        }
    }

    async fn node(&self, id: NodeId) -> Result<Node, Problem> {
        let node = self.store.node(id).await.map_err(unavailable)?;
        node.filter(|node| node.state.status != Status::Deleted).ok_or_else(|| no_such_node(id))
    }

    async fn node_and_sku(&self, id: NodeId) -> Result<(Node, Option<Sku>), Problem> {
        let found = self.store.node_and_sku(id).await.map_err(unavailable)?;
        found.filter(|(node, _)| node.state.status != Status::Deleted).ok_or_else(|| no_such_node(id))
    }

    /// Decides on the row as it was just read and commits; when it changed meanwhile, reads it and decides anew.
    async fn decide(
        &self,
        read: Node,
        now: Timestamp,
        decide: impl Fn(&Request<'_>, &Node) -> Decided + Send + Sync,
    ) -> Result<Node, Problem> {
        let (id, mut read) = (read.id, Some(read));
        for _ in 0..TRIES {
            let node = match read.take() {
                Some(node) => node,
                None => self.node(id).await?,
            };
            let request = self.request(id, now);
            let chained = decide(&request, &node).map_err(|problem| *problem)?;
            let chained = self.boots_again(&request, chained).await?;
            let Some(after) = chained.after else { return Ok(node) };
            let outcomes = self.store.commit(chained.commits).await.map_err(unavailable)?;
            if outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied { .. } | Outcome::Duplicate { .. })) {
                self.fleet.sync(&after, now);
                info!(node_id = %id, state = %after.state, "agent moved node");
                if let Some(job) = after.owning_job {
                    self.jobs.wake(job);
                }
                return Ok(after);
            }
        }
        Err(being_changed())
    }

    /// What a boot that came up ill asks for; what it depends on is read after the node's row, which guards it.
    async fn boots_again(&self, request: &Request<'_>, chained: Chained) -> Result<Chained, Problem> {
        let Some(node) = chained.after.as_ref().filter(|_| chained.effects.contains(&Effect::BootAgain)) else {
            return Ok(chained);
        };
        let Some(site) = self.store.site(node.site).await.map_err(unavailable)? else { return Ok(chained) };
        let job = self.store.live_job(node.id).await.map_err(unavailable)?;
        let has_bmc = self.store.bmc(node.id).await.map_err(unavailable)?.is_some();
        let standing = boots::Standing { site: &site, job: job.as_ref(), has_bmc };
        Ok(boots::carried_out(request, chained, &standing))
    }

    async fn audit_refusal(&self, node: NodeId, action: &str, detail: String, now: Timestamp) {
        {
            let mut window = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            if now.since(window.0) >= Duration::from_secs(60) {
                *window = (now, 0);
            }
            window.1 += 1;
            if window.1 > REFUSALS_PER_MINUTE {
                return;
            }
        }
        let change = Change::Refusal { action: action.to_owned(), resource: Resource::Node(node), detail };
        let commit = self.request(node, now).commit(Vec::new(), vec![change]);
        if let Err(error) = self.store.commit(vec![commit]).await {
            warn!(node_id = %node, %error, "refusal not audited");
        }
    }

    /// Whether the node's certificates were revoked after the token's use: then a repeat would undo that.
    async fn revoked_since(&self, token: &EnrollmentToken) -> Result<bool, TokenRefusal> {
        let page = PageRequest::first(HISTORY_OF_A_MOMENT);
        let history = self.store.history(token.node, &page).await.map_err(TokenRefusal::Store)?.items;
        let revoked = |entry: &HistoryEntry| entry.row.action == NodeAction::Revoked;
        Ok(history.iter().any(|entry| revoked(entry) && Some(entry.row.at) >= token.used_at))
    }

    /// The token, and the node that it is for; no node when it was used for this very key just before.
    async fn token(&self, enrolment: &Enrolment) -> Result<(EnrollmentToken, Option<Node>), TokenRefusal> {
        let hash = token_hash(enrolment.token.expose());
        let Some(token) = self.store.enrollment_token_by_hash(&hash).await.map_err(TokenRefusal::Store)? else {
            return Err(TokenRefusal::Refused(TokenRefused::Unknown));
        };
        if token.is_repeat(enrolment.node, &enrolment.key_hash, enrolment.at) && !self.revoked_since(&token).await? {
            return Ok((token, None));
        }
        token.check(enrolment.node, enrolment.at).map_err(TokenRefusal::Refused)?;
        let node = self.store.node(token.node).await.map_err(TokenRefusal::Store)?;
        match node.filter(|node| node.state.status != Status::Deleted) {
            Some(node) => Ok((token, Some(node))),
            // Its tokens went with it.
            None => Err(TokenRefusal::Refused(TokenRefused::Revoked)),
        }
    }
}

enum TokenRefusal {
    Refused(TokenRefused),
    Store(StoreError),
}

#[async_trait]
impl AgentEvents for Agents {
    async fn claim(&self, claim: BootClaim) -> Result<Secret<String>, Problem> {
        self.hand_token(claim).await
    }

    async fn enroll(&self, enrolment: Enrolment) -> Result<Granted, Problem> {
        let (token, read) = match self.token(&enrolment).await {
            Ok(found) => found,
            Err(TokenRefusal::Store(error)) => return Err(unavailable(error)),
            Err(TokenRefusal::Refused(refused)) => {
                let detail = format!("{refused} (from {})", enrolment.peer);
                self.audit_refusal(enrolment.node, "node.enroll", detail, enrolment.at).await;
                return Err(token_problem(refused, enrolment.node));
            }
        };
        let node = match read {
            None => self.node(enrolment.node).await?,
            Some(node) => {
                let decided = self
                    .decide(node, enrolment.at, |request, node| {
                        let boot_timeout = self.fleet.policy(node.site).boot_timeout();
                        Ok(agent::enrolled(request, node, &token, &enrolment.key_hash, boot_timeout))
                    })
                    .await;
                match decided {
                    // Another use of the same token won the race: this one is the second.
                    Err(problem) if problem.is(Code::Unavailable) => {
                        return Err(token_problem(TokenRefused::Used, enrolment.node));
                    }
                    other => other?,
                }
            }
        };
        Ok(Granted { epoch: node.identity_epoch, certificate_life: self.certificate_life })
    }

    async fn renew(&self, node: NodeId, _at: Timestamp) -> Result<Granted, Problem> {
        let node = self.node(node).await?;
        Ok(Granted { epoch: node.identity_epoch, certificate_life: self.certificate_life })
    }

    async fn register(&self, registration: Registration) -> Result<Registered, Problem> {
        let said = &registration.request;
        // After a loss of many nodes that is each one's first answer: it needs no row.
        if let Some(ownership_epoch) = self.fleet.unconfirmed(registration.node)
            && said.ownership_epoch < ownership_epoch
            && said.running.is_empty()
        {
            return Ok(Registered::NotYet { stop_first: Vec::new(), ownership_epoch });
        }
        let (node, sku) = self.node_and_sku(registration.node).await?;
        let sku = sku.ok_or_else(|| sku_gone(&node))?;
        let stop_first = self.not_owned(node.id, &said.running).await?;
        if !stop_first.is_empty() || is_outdated(said, &node) {
            return Ok(Registered::NotYet { stop_first, ownership_epoch: node.ownership.epoch });
        }
        let node = match self.lost_by_boot(node, &registration).await? {
            Ok(node) => node,
            Err(ownership_epoch) => return Ok(Registered::NotYet { stop_first, ownership_epoch }),
        };
        let address = address_of(registration.peer);
        let node = self
            .decide(node, registration.at, |request, node| {
                // It was lost while this was decided.
                if is_outdated(said, node) {
                    return Err(Box::new(being_changed()));
                }
                let registration = agent::Registration {
                    facts: &said.facts,
                    fingerprint: &said.fingerprint,
                    boot_id: &said.boot_id,
                    agent_version: &said.agent_version,
                    ecc_uncorrected: said.health.ecc_uncorrected,
                    minor_issue: said.health.minor_issue.as_deref(),
                    address: address.as_deref(),
                };
                let boot_timeout = self.fleet.policy(node.site).boot_timeout();
                self.fleet.registry().spoke(node.id, request.now);
                Ok(agent::registered(request, node, &sku, &registration, boot_timeout))
            })
            .await?;
        Ok(Registered::Open { ownership_epoch: node.ownership.epoch })
    }

    async fn report(&self, report: Report) -> Result<(), Problem> {
        // A heartbeat is not refused because an operator removed a SKU.
        let (node, sku) = self.node_and_sku(report.node).await?;
        let beat = agent::Heartbeat {
            sku: sku.as_ref(),
            gpu_count: report.health.gpu_count,
            ecc_uncorrected: report.health.ecc_uncorrected,
            minor_issue: report.health.minor_issue.as_deref(),
            fingerprint: report.fingerprint.as_deref(),
        };
        let after = self.decide(node, report.at, |request, node| Ok(agent::heard(request, node, &beat))).await?;
        // Its hardware was looked at again: what it has now is judged when it registers.
        if report.fingerprint.is_some() && agent::awaits_health_check(&after) {
            self.fleet.registry().end_session(report.node);
        }
        Ok(())
    }

    async fn tasks(&self, node: NodeId, at: Timestamp) -> Result<Handed, Problem> {
        self.hand_over(node, at).await
    }

    async fn task_reported(&self, node: NodeId, report: TaskReport, at: Timestamp) -> Result<bool, Problem> {
        self.take_report(node, &report, at).await
    }

    async fn allocations_ended(&self, node: NodeId, ended: Vec<EndedAllocation>, at: Timestamp) -> Result<(), Problem> {
        self.take_ended(node, &ended, at).await
    }

    async fn was_deleted(&self, node: NodeId) -> bool {
        match self.store.node(node).await {
            Ok(row) => row.is_some_and(|node| node.state.status == Status::Deleted),
            Err(error) => {
                warn!(%error, "store failed");
                false
            }
        }
    }

    async fn identity_shared(&self, node: NodeId, peer: SocketAddr, at: Timestamp) {
        {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.retain(|_, told| at.since(*told) < SHARED_AGAIN);
            if shared.contains_key(&node) {
                return;
            }
            shared.insert(node, at);
        }
        let detail = format!(
            "two agents have its identity and take its session from each other, one of them at {}: a disk was copied, or \
             an agent runs twice; stop one, or give its host an identity of its own",
            peer.ip()
        );
        let name = "node.identity_shared".to_owned();
        let change = Change::Note { name, resource: Resource::Node(node), detail };
        if let Err(error) = self.store.commit(vec![self.request(node, at).commit(Vec::new(), vec![change])]).await {
            warn!(node_id = %node, %error, "that two agents have one identity is not noted");
        }
    }

    async fn refused(&self, refusal: IdentityRefusal) {
        let detail = format!(
            "certificate of {} for {}: {} (from {})",
            refusal.certificate,
            refusal.path,
            refusal.code.text(),
            refusal.peer
        );
        self.audit_refusal(refusal.certificate, "node.identity", detail, refusal.at).await;
    }
}

/// The agent looked at what runs before the node was lost: that says nothing of what runs now.
/// design: 2-state-model "Re-registration"
fn is_outdated(said: &RegisterRequest, node: &Node) -> bool {
    said.ownership_epoch < node.ownership.epoch
}

/// A host behind loopback is a container or a simulated machine: its address says nothing.
fn address_of(peer: SocketAddr) -> Option<String> {
    (!peer.ip().is_loopback()).then(|| peer.ip().to_string())
}

fn no_such_node(id: NodeId) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, Code::NotFound, format!("no node has the id {id}"))
}

fn sku_gone(node: &Node) -> Problem {
    Problem::new(StatusCode::CONFLICT, Code::Invalid, format!("SKU {} of the node is gone", node.sku))
        .next(NextAction::run("lattice sku list", "shows the SKUs that exist"))
}

fn being_changed() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "the node is being changed: try again")
}

fn unavailable(error: StoreError) -> Problem {
    warn!(%error, "store failed");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "the store does not answer: try again")
}

fn token_problem(refused: TokenRefused, node: NodeId) -> Problem {
    let code = match refused {
        TokenRefused::Unknown => Code::TokenUnknown,
        TokenRefused::Used => Code::TokenUsed,
        TokenRefused::Revoked | TokenRefused::Expired => Code::TokenExpired,
        TokenRefused::Foreign => Code::TokenForeign,
    };
    Problem::new(StatusCode::FORBIDDEN, code, refused.to_string())
        .next(NextAction::run(format!("lattice node bootstrap {node}"), "prints a bootstrap command with a new token"))
}
