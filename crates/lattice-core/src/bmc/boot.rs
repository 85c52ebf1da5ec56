//! What a machine starts from, once, when its BMC is told so.

use serde::{Deserialize, Serialize};

/// What a machine can be told to start from.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BootDevice {
    /// The network.
    Pxe,
    /// Its disk.
    Disk,
}
