//! Wipes: which devices were erased, with their certificates.

pub use lattice_core::agent::task::TaskKey;
use lattice_core::ids::{CertificateId, JobId, NodeId};
use lattice_core::time::Timestamp;
pub use lattice_core::wipe::{CertificateFile, NotProven, WipeCertificate, WipeTarget, check_keys};
use serde::{Deserialize, Serialize};

/// Which wiped devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WipeQuery {
    /// Where to go on: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many rows, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only devices with this serial number, whichever node they were in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// A wiped device in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WipeRow {
    /// Its certificate.
    pub id: CertificateId,
    /// Of which node.
    pub node_id: NodeId,
    /// Its hostname then.
    pub hostname: String,
    /// The job that wiped it.
    pub job_id: JobId,
    /// What was erased.
    pub erased: WipeTarget,
    /// Name of the device on its host.
    pub device: String,
    /// Its serial number; empty: it shows none.
    pub serial: String,
    /// How.
    pub method: String,
    /// By what tool.
    pub tool: String,
    /// The tool's version.
    pub tool_version: String,
    /// When it ended, by the host's clock.
    pub finished_at: Timestamp,
    /// When the wipe of the node was confirmed.
    pub confirmed_at: Timestamp,
    /// The key that signed it.
    pub key_id: String,
}

impl From<&CertificateFile> for WipeRow {
    fn from(file: &CertificateFile) -> Self {
        let one = &file.certificate;
        Self {
            id: one.id,
            node_id: one.node,
            hostname: one.hostname.clone(),
            job_id: one.job,
            erased: one.erased,
            device: one.evidence.device.clone(),
            serial: one.evidence.serial.clone(),
            method: one.evidence.method.clone(),
            tool: one.evidence.tool.clone(),
            tool_version: one.evidence.tool_version.clone(),
            finished_at: one.evidence.finished_at,
            confirmed_at: one.confirmed_at,
            key_id: file.key_id(),
        }
    }
}

/// The keys that sign wipe certificates: their public halves. Keep them apart from the certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WipeKeys {
    /// The first one signs; the others signed before.
    pub keys: Vec<TaskKey>,
}
