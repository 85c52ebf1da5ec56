//! A machine under control: its row, its two state machines, its holds.

pub mod class;
pub mod hold;
pub mod row;
pub mod state;

pub use class::NodeClass;
pub use hold::{Hold, HoldKind};
pub use row::{HostFacts, Node, OnboardingMode, ProviderState};
pub use state::{Availability, DownCause, NodeState, Status};
