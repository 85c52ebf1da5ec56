//! A machine under control: its row, its two state machines, its holds.

pub mod availability;
pub mod class;
pub mod health;
pub mod hold;
pub mod label;
pub mod machine;
pub mod row;
pub mod state;
pub mod status;

pub use class::NodeClass;
pub use hold::{Hold, HoldKind};
pub use label::Labels;
pub use row::{DiskFact, GpuFact, HostFacts, NicFact, Node, OnboardingMode, PowerFact, ProviderState};
pub use state::{Availability, DownCause, NodeState, Status};
