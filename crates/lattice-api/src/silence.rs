//! Silences: incidents that raise no attention for a while. `/api/v1/admin/silences`.

use std::collections::BTreeMap;

use lattice_core::actor::Actor;
use lattice_core::ids::{Generation, SilenceId};
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use lattice_core::silence::IncidentKind;

/// A silence that is in force. It hides attention, and changes nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SilenceView {
    /// Identity.
    pub id: SilenceId,
    /// Incidents of this kind; absent: of every kind that is about nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<IncidentKind>,
    /// About these nodes, by name; empty: about any.
    pub nodes: Vec<String>,
    /// About nodes that have all of these labels; empty: about any.
    pub selector: BTreeMap<String, String>,
    /// About nodes of this site, by name; absent: of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Who owns it: the one who created it.
    pub by: Actor,
    /// Why, in the owner's words.
    pub reason: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub until: Timestamp,
    /// Version of the row.
    #[schema(value_type = u64)]
    pub generation: Generation,
}

impl SilenceView {
    /// Which incidents of which nodes, in one line.
    pub fn whom(&self) -> String {
        let labels = self.selector.iter().map(|(name, value)| format!("{name}={value}"));
        let kind = self.kind.map(|kind| kind.to_string());
        let site = self.site.as_ref().map(|site| format!("site {site}"));
        let nodes = (!self.nodes.is_empty()).then(|| match self.nodes.as_slice() {
            [first, second, third, rest @ ..] if !rest.is_empty() => {
                format!("{first}, {second}, {third} and {} more", rest.len())
            }
            few => few.join(", "),
        });
        let parts: Vec<String> = kind.into_iter().chain(nodes).chain(labels).chain(site).collect();
        parts.join(" · ")
    }
}

/// Creates a silence. The nodes are given by name, by labels, by site, or by several of these: then all must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSilence {
    /// Only incidents of this kind; absent: of every kind that is about nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<IncidentKind>,
    /// Nodes, by id or hostname; at most 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Nodes that have all of these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// Nodes of this site, by id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Why: shown to everybody who wonders.
    pub reason: String,
    /// For how long from now, in milliseconds; at most 30 days.
    pub for_ms: u64,
}
