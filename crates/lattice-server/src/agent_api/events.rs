//! What the listener asks of the rest of the server.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use lattice_api::agent::{EndedAllocation, HealthSummary, RegisterRequest};
use lattice_api::error::Problem;
use lattice_core::agent::task::{Envelope, Running, TaskReport};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{NodeId, OwnershipEpoch, SessionId};
use lattice_core::node::HostFacts;
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;

/// Decides and commits what agents bring about. Nothing is answered to an agent before the commit.
///
/// The listener's thread runs these calls: they must wait, never block.
#[async_trait]
pub trait AgentEvents: Send + Sync {
    /// The enrolment token of a machine that booted from the network, if it waits for whoever asks from there.
    ///
    /// # Errors
    /// The refusal that the agent gets: nothing waits for it there.
    async fn claim(&self, claim: BootClaim) -> Result<Secret<String>, Problem> {
        Err(nothing_waits(claim.node))
    }

    /// Uses up the token and says under which epoch the node is certified.
    ///
    /// An answer can be lost after the commit. So a second call with the same token **and** the same key within the
    /// token's life is answered like the first; any other second use is refused and audited.
    ///
    /// # Errors
    /// The refusal that the agent gets: token unknown, used, expired or another node's, or a status that does not allow it.
    async fn enroll(&self, enrolment: Enrolment) -> Result<Granted, Problem>;

    /// Whether the node may have a new certificate. Its present one was checked.
    ///
    /// # Errors
    /// The refusal that the agent gets.
    async fn renew(&self, node: NodeId, at: Timestamp) -> Result<Granted, Problem>;

    /// An agent started or came back: its facts, what it runs, its boot.
    ///
    /// The session opens when this returns [`Registered::Open`].
    ///
    /// # Errors
    /// The refusal that the agent gets; no session opens.
    async fn register(&self, registration: Registration) -> Result<Registered, Problem>;

    /// Allocations ended by themselves on a host. Said again until this returned without an error.
    ///
    /// # Errors
    /// The refusal that the agent gets.
    async fn allocations_ended(&self, node: NodeId, ended: Vec<EndedAllocation>, at: Timestamp) -> Result<(), Problem> {
        let _ = (node, ended, at);
        Ok(())
    }

    /// Tasks to be handed to the agent of `node`, noted as handed over and signed.
    ///
    /// # Errors
    /// They cannot be read or noted; nothing is handed over then.
    async fn tasks(&self, node: NodeId, at: Timestamp) -> Result<Handed, Problem> {
        let _ = (node, at);
        Ok(Handed::default())
    }

    /// A report about a task of `node`; whether it changed something.
    ///
    /// # Errors
    /// The refusal that the agent gets: no such task of this node, it is over with another report, or not proven.
    async fn task_reported(&self, node: NodeId, report: TaskReport, at: Timestamp) -> Result<bool, Problem> {
        let _ = at;
        let detail = format!("node {node} has no task {}", report.task);
        Err(Problem::new(StatusCode::NOT_FOUND, Code::NotFound, detail))
    }

    /// A heartbeat that says something new. The others do not come here.
    ///
    /// # Errors
    /// The refusal that the agent gets; the next heartbeat brings the same report again.
    async fn report(&self, report: Report) -> Result<(), Problem>;

    /// Whether that node, which the registry does not know, was deleted: its agent is told so for good. Where that cannot
    /// be told, it was not.
    async fn was_deleted(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// Two agents take the session of one node from each other: operators are told. It comes again and again: bound what
    /// is written.
    async fn identity_shared(&self, node: NodeId, peer: SocketAddr, at: Timestamp) {
        let _ = (node, peer, at);
    }

    /// An identity was refused: for the audit. A revoked agent asks again and again: bound what is written.
    async fn refused(&self, refusal: IdentityRefusal);
}

/// The one answer to whoever asks for a token that is not for him.
pub fn nothing_waits(node: NodeId) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, Code::TokenUnknown, format!("no token waits for node {node} at this address"))
        .next(NextAction::run(format!("lattice node reboot {node}"), "boots it with a token that waits for it"))
}

/// A machine that booted from the network and asks for its token.
#[derive(Debug, Clone)]
pub struct BootClaim {
    /// Which node, as its kernel's parameters say.
    pub node: NodeId,
    /// From where.
    pub peer: SocketAddr,
    /// When it arrived.
    pub at: Timestamp,
}

/// A host that wants to become a node.
pub struct Enrolment {
    /// Which node, as the host says.
    pub node: NodeId,
    /// The token as sent.
    pub token: Secret<String>,
    /// SHA-256 of the public key to be certified, in hex.
    pub key_hash: String,
    /// Kernel boot id.
    pub boot_id: String,
    /// Version of the agent.
    pub agent_version: String,
    /// What the host has.
    pub facts: HostFacts,
    /// From where.
    pub peer: SocketAddr,
    /// When it arrived.
    pub at: Timestamp,
}

/// Tasks on their way to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handed {
    /// Signed.
    pub envelopes: Vec<Envelope>,
    /// Whether others wait that did not fit.
    pub more: bool,
}

/// What to write into a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Identity epoch of the node.
    pub epoch: u64,
    /// How long the certificate is valid.
    pub certificate_life: Duration,
}

/// An agent that opens a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Whose agent.
    pub node: NodeId,
    /// The session that will be open.
    pub session: SessionId,
    /// What the agent says.
    pub request: RegisterRequest,
    /// From where.
    pub peer: SocketAddr,
    /// When it arrived.
    pub at: Timestamp,
}

/// What comes of a registration. design: 2-state-model "Re-registration"
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// The agent is registered.
    Open {
        /// The node's present ownership: its agent may start what it is asked for under it.
        ownership_epoch: OwnershipEpoch,
    },
    /// Something runs that the node does not own, or the agent looked at what runs before the node was lost: nothing was
    /// changed, and the agent registers again.
    NotYet {
        /// What the node does not own.
        stop_first: Vec<Running>,
        /// The node's present ownership.
        ownership_epoch: OwnershipEpoch,
    },
}

/// A heartbeat that says something new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whose.
    pub node: NodeId,
    /// How the host is.
    pub health: HealthSummary,
    /// Whether GPU count, ECC errors or the minor issue changed.
    pub health_changed: bool,
    /// Conformance fingerprint, if it was recomputed.
    pub fingerprint: Option<String>,
    /// Whether somebody waits for the node to be heard again.
    pub returned: bool,
    /// When the node was heard before.
    pub heard_before: Timestamp,
    /// When it arrived.
    pub at: Timestamp,
}

/// An identity that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityRefusal {
    /// Node in the certificate.
    pub certificate: NodeId,
    /// Node in the path.
    pub path: NodeId,
    /// Why.
    pub code: Code,
    /// From where.
    pub peer: SocketAddr,
    /// When.
    pub at: Timestamp,
}
