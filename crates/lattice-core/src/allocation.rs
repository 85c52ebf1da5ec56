//! Allocations: a user's work on a node, and the ownership that it brings. design: 2-state-model
//!
//! Lattice is no scheduler: it places an allocation on a named node or on any schedulable node that fits, fences it by
//! the node's ownership epoch, and tells an outer scheduler when it had to be queued again.

mod ownership;
mod place;
mod row;
mod status;

pub use ownership::Ownership;
pub use place::{Candidate, Misfit, place};
pub use row::{Allocation, AllocationCause, AllocationChange, RequeuePolicy, Retry, Wanted, Workload};
pub use status::{AllocationEvent, AllocationStatus, EDGES, Edge};
