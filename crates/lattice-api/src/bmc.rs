//! A node's BMC: where it is, what it said last, who uses it. Logins go in and never come out.

pub use lattice_core::bmc::{
    BmcPolicy, BmcProtocol, BmcReport, BmcTls, BreakerState, Component, Evidence, HealthReport, PowerReading,
    PowerSaid, Severity,
};
use lattice_core::ids::{Generation, NodeId};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::site::PowerLogin;

/// Sets a node's BMC, in place of the one that it had.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBmc {
    /// Its address, within the networks that the site allows: `10.0.0.7`.
    pub address: String,
    /// Its port, when it is not the protocol's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `redfish` or `ipmi`.
    pub protocol: BmcProtocol,
    /// IPMI: cipher suite, 17 (default) or 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<u8>,
    /// Redfish: what proves it; the site's authority when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<BmcTls>,
    /// Redfish: id of the system, where one service has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Its login, kept in the secret store; absent: the one that is kept there stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<PowerLogin>,
    /// Why; kept in history and audit.
    #[serde(default)]
    pub reason: String,
}

/// A node's BMC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BmcView {
    /// Whose.
    pub node_id: NodeId,
    /// Its name.
    pub hostname: String,
    /// Its address.
    pub address: String,
    /// The port it is called at.
    pub port: u16,
    /// Its protocol.
    pub protocol: BmcProtocol,
    /// IPMI: cipher suite.
    pub cipher: Option<u8>,
    /// Redfish: what proves it.
    pub tls: Option<BmcTls>,
    /// Redfish: id of the system.
    pub system: Option<String>,
    /// Where its login is kept in the secret store.
    pub credential_path: String,
    /// Whether its credential is tried.
    pub breaker: BreakerState,
    /// Refusals of its credential in a row.
    pub refusals: u32,
    /// The call that it answers now, as this server knows.
    pub running: Option<BmcCaller>,
    /// Those that wait behind it, first come first.
    pub waiting: Vec<BmcCaller>,
    /// What was seen of it last.
    pub report: Option<BmcReport>,
    /// When it was set.
    pub set_at: Timestamp,
    /// By whom.
    pub set_by: String,
    /// Version of the row.
    pub generation: Generation,
}

/// A call that a BMC answers, or that waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BmcCaller {
    /// Whose: `job 0190…`, `health poll`.
    pub who: String,
    /// What for.
    pub why: String,
    /// Since when it runs or waits.
    pub since: Timestamp,
}

/// A drive that a BMC lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BmcDrive {
    /// The BMC's name of it, to be given to `secure-erase`.
    pub drive: String,
    /// Name, model and serial number.
    pub name: String,
    /// Whether the BMC offers to erase it.
    pub erasable: bool,
}

/// What a look at a BMC found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BmcCheck {
    /// Whether it answered, and took the credential.
    pub ok: bool,
    /// Who made it.
    pub vendor: String,
    /// What it is.
    pub model: String,
    /// Its firmware.
    pub firmware: String,
    /// What it does not offer.
    pub not_offered: Vec<String>,
    /// The drives of its machine, where it lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<BmcDrive>,
    /// Why it could not be read.
    pub failure: Option<String>,
    /// What is known of it now.
    pub report: BmcReport,
}
