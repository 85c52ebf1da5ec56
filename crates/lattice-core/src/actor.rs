//! Who did something: kept in every audit row.

use serde::{Deserialize, Serialize};

/// Role of a caller; decides what it may do. spec: S3 8
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// Reads everything of its scope, changes nothing.
    ProjectViewer,
    /// Submits and views allowed operations.
    ProjectMember,
    /// Submits, cancels, retries and views operations of a project.
    ProjectAdmin,
    /// Manages the policies of a tenant.
    TenantAdmin,
    /// Manages nodes, sites, jobs and everything else.
    PlatformAdmin,
    /// An agent, by its certificate.
    Agent,
    /// Lattice itself: a detector, a job, a migration.
    System,
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Actor {
    /// A person's or token's name, a node id for an agent, a component's name for the system.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

impl Actor {
    /// Lattice itself, by the name of the component that decided.
    pub fn system(component: &str) -> Self {
        Self { name: component.to_owned(), role: Role::System }
    }
}
