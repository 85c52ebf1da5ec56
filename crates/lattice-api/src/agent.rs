//! What an agent and the server say to each other over mTLS. design: 4 "Identity and transport", "Heartbeats"
//!
//! Readers ignore fields that they do not know, so that agents and servers of different versions understand each
//! other during a rollout.

use lattice_core::agent::task::{Envelope, ExitStatus, Running, TaskKey};
use lattice_core::ids::{AllocationId, NodeId, OwnershipEpoch, SessionId, TaskId};
use lattice_core::node::HostFacts;
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

/// Largest body that the agent listener reads, in bytes. Facts of a host with 16 GPUs, 32 interfaces and 64 disks take
/// 12 KiB; four times that leaves room without letting a stranger fill memory.
pub const MAX_BODY_BYTES: usize = 48 * 1024;

/// Longest `?wait=` that a heartbeat may ask for, in milliseconds: well under the 30 s after which a node counts as
/// silent. spec: S1 "Heartbeat Protocol"
pub const MAX_WAIT_MS: u64 = 20_000;

/// Default pause between two heartbeats, in milliseconds. spec: S1 "heartbeat_interval"
pub const DEFAULT_INTERVAL_MS: u64 = 10_000;

/// Default `?wait=` of a heartbeat, in milliseconds: one request per interval does both. design: 4
pub const DEFAULT_WAIT_MS: u64 = 9_000;

/// What a host's own text may be long in the wire types, in bytes: boot id, versions, fingerprint, issue.
pub const MAX_TEXT_BYTES: usize = 256;

/// Every enrolment token starts with it, so that a leaked one is recognised.
pub const TOKEN_PREFIX: &str = "lat_enroll_";

/// Where a token and a certificate request are exchanged for an identity.
pub const ENROLL_PATH: &str = "/internal/v1/nodes/enroll";
/// Where a new host fetches the agent itself, on the agent listener and without a certificate.
pub const AGENT_BINARY_PATH: &str = "/bootstrap/lattice-agent";

/// Path at which a machine that booted from the network takes its enrolment token.
pub fn claim_path(node: NodeId) -> String {
    format!("/internal/v1/nodes/{node}/claim")
}

/// Path of renewal.
pub fn renew_path(node: NodeId) -> String {
    format!("/internal/v1/nodes/{node}/renew")
}

/// Path of registration.
pub fn register_path(node: NodeId) -> String {
    format!("/internal/v1/nodes/{node}/register")
}

/// Path of heartbeats that may be parked for `wait_ms`.
pub fn heartbeat_path(node: NodeId, wait_ms: u64) -> String {
    format!("/internal/v1/nodes/{node}/heartbeat?wait={wait_ms}ms")
}

/// Path of a wait for tasks of at most `wait_ms`.
pub fn wait_path(node: NodeId, wait_ms: u64) -> String {
    format!("/internal/v1/nodes/{node}/tasks/wait?wait={wait_ms}ms")
}

/// Path of reports about a task.
pub fn report_path(node: NodeId, task: TaskId) -> String {
    format!("/internal/v1/nodes/{node}/tasks/{task}/report")
}

/// What a new host gets to become a node: the content of `/etc/lattice/bootstrap.json`.
///
/// It holds a secret: mode 0600, never on a command line.
#[derive(Clone, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Base address of the agent listener: `https://lattice.dc1:7443`.
    pub server: String,
    /// Which node the host becomes.
    pub node_id: NodeId,
    /// One-time enrolment token.
    #[serde(serialize_with = "expose")]
    pub token: Secret<String>,
    /// Certificates that the server's must chain to, in PEM.
    pub ca_pem: String,
}

/// Asks for the enrolment token of this boot. It is given to the machine's own addresses alone, once its power was seen to
/// be off, and until it was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClaimRequest {
    /// Kernel boot id.
    pub boot_id: String,
    /// Version of the agent.
    pub agent_version: String,
}

/// The token of this boot.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClaimResponse {
    /// One-time enrolment token.
    #[serde(serialize_with = "expose")]
    #[schema(value_type = String)]
    pub token: Secret<String>,
}

/// Asks for an identity with a one-time token. The private key stays on the host.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EnrollRequest {
    /// Which node the token is for.
    pub node_id: NodeId,
    /// One-time enrolment token.
    #[serde(serialize_with = "expose")]
    #[schema(value_type = String)]
    pub token: Secret<String>,
    /// PKCS #10 request for a P-256 key, in PEM. Names in it are ignored.
    pub csr_pem: String,
    /// Kernel boot id.
    pub boot_id: String,
    /// Version of the agent.
    pub agent_version: String,
    /// What the host has.
    pub facts: HostFacts,
}

/// An identity and what the agent needs to use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EnrollResponse {
    /// The node it is now.
    pub node_id: NodeId,
    /// Its certificate.
    #[serde(flatten)]
    pub identity: IssuedIdentity,
    /// How to send heartbeats.
    pub heartbeat: HeartbeatConfig,
}

/// Asks for a new certificate for the node whose certificate the connection shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RenewRequest {
    /// PKCS #10 request for a P-256 key, in PEM. Names in it are ignored.
    pub csr_pem: String,
}

/// The new certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RenewResponse {
    /// It replaces the one before.
    #[serde(flatten)]
    pub identity: IssuedIdentity,
}

/// A certificate and what to trust from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct IssuedIdentity {
    /// The node's certificate and what chains it to the bundle, in PEM, leaf first.
    pub certificate_pem: String,
    /// Certificates that servers chain to, in PEM.
    pub ca_bundle_pem: String,
    /// From when the certificate is valid.
    pub not_before: Timestamp,
    /// Until when the certificate is valid.
    pub not_after: Timestamp,
    /// Identity epoch that it stands for: tasks for another one are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_epoch: Option<u64>,
    /// Who may sign tasks; every other signature is refused.
    pub task_signing_keys: Vec<TaskKey>,
}

/// How to send heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HeartbeatConfig {
    /// Pause between the starts of two heartbeats, in milliseconds.
    pub interval_ms: u64,
    /// How long a heartbeat may be parked, in milliseconds.
    pub wait_ms: u64,
}

impl HeartbeatConfig {
    /// A heartbeat each `interval_ms`; it is parked for most of that, so that one request serves both.
    pub const fn every(interval_ms: u64) -> Self {
        Self { interval_ms, wait_ms: interval_ms - interval_ms / 10 }
    }
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        Self { interval_ms: DEFAULT_INTERVAL_MS, wait_ms: DEFAULT_WAIT_MS }
    }
}

/// Opens a heartbeat session: sent at each start of the agent, and when the server does not know the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RegisterRequest {
    /// Kernel boot id: another one than before means the host was rebooted.
    pub boot_id: String,
    /// Version of the agent.
    pub agent_version: String,
    /// What the host has.
    pub facts: HostFacts,
    /// Conformance fingerprint.
    pub fingerprint: String,
    /// How the host is.
    pub health: HealthSummary,
    /// What still runs from before.
    #[serde(default)]
    pub running: Vec<Running>,
    /// The node's latest ownership that the agent was told of, and under which it looked at what runs. A registration that
    /// was on its way while the node was lost says nothing of what runs now: this shows it.
    #[serde(default)]
    pub ownership_epoch: OwnershipEpoch,
}

/// The session that was opened, or what comes before one is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RegisterResponse {
    /// Every heartbeat carries it, the first one with sequence 1. None: no session is open yet; the agent does what the
    /// rest of the answer asks for, looks again at what runs, and registers again. design: 2-state-model "Re-registration"
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// How to send heartbeats.
    pub heartbeat: HeartbeatConfig,
    /// What the node does not own any more: the agent ends it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_first: Vec<Running>,
    /// The node's present ownership: what was asked for under an earlier one is not begun any more, and what runs under an
    /// earlier one is ended.
    #[serde(default)]
    pub ownership_epoch: OwnershipEpoch,
}

/// Sign of life: about 200 bytes, one per interval. spec: S1 "Heartbeat Protocol"
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HeartbeatRequest {
    /// The session that registration granted.
    pub session: SessionId,
    /// Grows with each heartbeat of the session; gaps are fine, repeats and steps back are refused.
    pub sequence: u64,
    /// How the host is.
    pub health: HealthSummary,
    /// How many allocations run on the host.
    pub allocations: u32,
    /// Conformance fingerprint, when it was recomputed since the last heartbeat that was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Version of the agent.
    pub agent_version: String,
    /// Allocations that ended by themselves since the last heartbeat that was answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<EndedAllocation>,
}

/// An allocation whose first process ended, and of which nothing runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EndedAllocation {
    /// Which one.
    pub allocation: AllocationId,
    /// Ownership under which it was started.
    pub ownership_epoch: OwnershipEpoch,
    /// How its first process ended; none: the agent was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
}

/// How a host is, in a few numbers. spec: S1 "Node health summary"
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
pub struct HealthSummary {
    /// GPUs on the bus.
    pub gpu_count: u32,
    /// Highest temperature that a GPU shows, in degrees Celsius; absent when none can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_temperature_c: Option<i16>,
    /// Uncorrectable memory errors since boot, over memory and GPUs as far as the kernel counts them.
    pub ecc_uncorrected: u64,
    /// A minor issue that the host found on itself: degraded until it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor_issue: Option<String>,
}

/// Answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HeartbeatResponse {
    /// When the next one should start, in milliseconds after the start of this one.
    pub next_interval_ms: u64,
    /// Address of the server that hears the agents now; absent when it is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Tasks of this node, signed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Envelope>,
    /// Who may sign tasks from now on: once on each connection, and when it changed. Taken in before the tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_signing_keys: Vec<TaskKey>,
}

/// Answer to a wait for tasks; without any, there is no body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitingTasks {
    /// Tasks of this node, signed.
    pub tasks: Vec<Envelope>,
    /// Who may sign tasks.
    pub task_signing_keys: Vec<TaskKey>,
}

/// Answer to a report about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ReportTaken {
    /// Whether it changed something; false: it was known.
    pub changed: bool,
}

/// Writes a secret into the one body or file that is meant to carry it.
fn expose<S: Serializer>(secret: &Secret<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::uuid_v7;

    use super::*;

    #[test]
    fn a_heartbeat_takes_about_two_hundred_bytes() {
        let heartbeat = HeartbeatRequest {
            session: SessionId::new(uuid_v7(Timestamp::from_millis(1_763_712_764_123), [7; 10])),
            sequence: 1_234_567,
            health: HealthSummary { gpu_count: 8, max_temperature_c: Some(61), ecc_uncorrected: 0, minor_issue: None },
            allocations: 8,
            fingerprint: None,
            agent_version: "0.1.0".into(),
            ended: Vec::new(),
        };
        let bytes = serde_json::to_vec(&heartbeat).unwrap();
        assert!((150..=220).contains(&bytes.len()), "{} bytes", bytes.len());
        assert_eq!(serde_json::from_slice::<HeartbeatRequest>(&bytes).unwrap(), heartbeat);
    }

    #[test]
    fn fields_of_a_newer_version_are_ignored() {
        let answer: HeartbeatResponse =
            serde_json::from_str(r#"{"next_interval_ms":10000,"from_the_future":[1]}"#).unwrap();
        let plain =
            HeartbeatResponse { next_interval_ms: 10_000, holder: None, tasks: vec![], task_signing_keys: vec![] };
        assert_eq!(answer, plain);
    }
}
