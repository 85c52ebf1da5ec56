//! Out-of-band truth about a machine: its BMC's address, the power it was seen to have, what its hardware says,
//! and when its credential must not be tried any more. design: 4-agent-and-operations, 8-interfaces "Security"

pub mod boot;
pub mod breaker;
pub mod endpoint;
pub mod erasure;
pub mod health;
pub mod policy;
pub mod power;
pub mod row;

pub use boot::BootDevice;
pub use breaker::{Breaker, BreakerOpen, BreakerState, CredentialMark};
pub use endpoint::{BmcEndpoint, BmcProtocol, BmcTls, BmcWay, CipherSuite, EndpointProblem};
pub use erasure::{DriveErasure, ErasureState};
pub use health::{Component, Evidence, HealthReport, Severity, judge};
pub use policy::BmcPolicy;
pub use power::{PowerReading, PowerSaid};
pub use row::{Bmc, BmcCause, BmcReport, Investigation};
