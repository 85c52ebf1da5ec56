//! A BMC by Redfish (DMTF DSP0266): a small typed client over HTTPS; unknown members are tolerated everywhere.

mod body;
mod client;
mod control;
mod health;
mod task;

pub use client::{RedfishClient, RedfishSettings, RedfishTrust};
