//! What a site saw of its clients, for assertions and for people.

use std::collections::BTreeMap;

use super::faults::ArmedFault;
use super::quirk::Quirk;

/// What a site saw of its clients so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How often each quirk shaped an answer.
    pub quirks: BTreeMap<Quirk, u64>,
    /// Calls by operation: method, path pattern and `op`.
    pub calls: BTreeMap<String, u64>,
    /// Calls and parameters that MAAS does not have.
    pub unknown_requests: Vec<UnknownRequest>,
    /// Changes of status that were asked for and refused.
    pub refused_transitions: Vec<String>,
    /// All faults with their hits.
    pub faults: Vec<ArmedFault>,
    /// Nonces stored: one row for each signed call.
    pub nonces_stored: usize,
}

/// Something a client sent that MAAS does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRequest {
    /// Method, path and operation.
    pub call: String,
    /// What is unknown about it.
    pub what: Unknown,
}

/// What is unknown about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// The path.
    Path,
    /// The method or the operation on this path.
    Operation,
    /// A parameter of this name.
    Field(String),
    /// A value of this parameter that the operation does not take.
    Value(String),
}

impl Report {
    /// All calls together.
    pub fn total_calls(&self) -> u64 {
        self.calls.values().sum()
    }
}
