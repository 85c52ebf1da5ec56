//! Durable work of the control plane: its row, and the engine with every decision about it. design: 3-jobs
//!
//! A driver loops over [`next()`]; whatever it learns goes through [`step`], the only way a job changes. Both are
//! pure, and both work from the durable row alone: recovery after a crash is calling [`next()`].

pub mod engine;
pub mod flow;
pub mod flows;
pub mod next;
pub mod node_moves;
mod operate;
pub mod operator_action;
pub mod refused;
pub mod retry;
pub mod row;
pub mod stage;
pub mod state;
pub mod status;

pub use engine::step;
pub use flow::{Attempts, BackEdge, Backoff, Enter, Failing, Flow, Limit, Reentry, Stage, Timeout, Undo, UndoKind};
pub use flows::FlowName;
pub use next::{Next, ParkedFor, next};
pub use node_moves::{allowed_node_statuses, node_moves};
pub use operator_action::{Allowed, DecisionKind, Decisions, Op, OperatorAction, Proof};
pub use refused::{NotProven, Refused};
pub use retry::{Disposition, Stop, disposition, other_way, recommended_next_action};
pub use row::{
    BootDisk, Disposal, Job, JobInput, JobKind, JobLease, JobOutputs, Netboot, NewJob, Observed, StageEvent,
    StageEventStatus, flow_for,
};
pub use stage::StageName;
pub use state::{CompensateTo, Failure, Input, Intent, JobState, StageError, Wait, Warning};
pub use status::JobStatus;
