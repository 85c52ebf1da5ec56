//! Signed tasks: what an agent is asked to do on its host, and what it said about it. design: 4 "Identity and transport"
//!
//! A task is a durable row, created under an idempotency key. Its agent gets it as a [`Statement`] in a signed
//! [`Envelope`], refuses what it must not run with a [`TaskErrorCode`] of its own, and reports.

mod envelope;
mod input;
mod kind;
mod report;
mod row;
mod status;
mod wipe;

pub use envelope::{
    Envelope, EnvelopeSignature, Expected, KeySet, PAYLOAD_TYPE, SigningKey, Statement, TaskKey, key_id, pae,
};
pub use input::{
    AllocationCheckpoint, AllocationStart, AllocationStop, CheckpointHow, CpuLimit, DrainMode, EraseMethod, GpuScrub,
    HeartbeatCheck, Invalid, Limits, Mount, NodeDrain, NodeReboot, NvmeErase, RamScrub, TaskInput, User,
};
pub use kind::{TaskKind, Term};
pub use report::{CheckpointResult, ExitStatus, Progress, Running, StopResult, TaskErrorCode, TaskOutput, TaskReport};
pub use row::{Task, TaskCause, TaskChange, TaskOwner};
pub use status::{EDGES, Edge, IllegalTransition, TaskEvent, TaskStatus};
pub use wipe::{NoEvidence, WipeEvidence, WipeOutput};
