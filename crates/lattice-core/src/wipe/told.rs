//! What is told about a wipe: audited, and sent as an event each. spec: S1 "Wipe Failure Handling"

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::WipeTarget;
use crate::agent::task::WipeEvidence;
use crate::ids::{CertificateId, JobId, TaskId};
use crate::job::StageName;
use crate::time::Timestamp;

/// One thing that happened in a wipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "snake_case")]
pub enum WipeTold {
    /// Its first step was asked for.
    Began {
        /// Its job.
        job: JobId,
    },
    /// A step is proven.
    StepProven {
        /// Its job.
        job: JobId,
        /// What was erased.
        target: WipeTarget,
        /// The task that did it.
        task: TaskId,
        /// One record for each device.
        evidence: Vec<WipeEvidence>,
    },
    /// It failed, ran out of time, or was stopped: critical.
    Failed {
        /// Its job.
        job: JobId,
        /// When it began.
        started_at: Timestamp,
        /// In which step it ended.
        stage: StageName,
        /// Why, for programs.
        error_code: String,
        /// Why, for people.
        reason: String,
        /// What an operator does about it.
        operator_action: String,
    },
    /// It is confirmed: the node may be given to somebody else.
    Confirmed {
        /// Its job.
        job: JobId,
        /// When it began.
        started_at: Timestamp,
        /// Kernel boot in which the last step ended.
        boot_before: String,
        /// Kernel boot that runs now.
        boot_after: String,
        /// One for each device.
        certificates: Vec<CertificateId>,
    },
}

impl WipeTold {
    /// Name of its event and its audit row.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Began { .. } => "node.wipe_began",
            Self::StepProven { .. } => "node.wipe_step_proven",
            Self::Failed { .. } => "node.wipe_failed",
            Self::Confirmed { .. } => "node.wipe_confirmed",
        }
    }

    /// What the audit and the event say.
    pub fn picture(&self) -> Value {
        match self {
            Self::Began { job } => json!({"job": job}),
            Self::StepProven { job, target, task, evidence } => {
                let devices: Vec<Value> = evidence.iter().map(device).collect();
                json!({"job": job, "erased": target, "task": task, "devices": devices})
            }
            Self::Failed { job, started_at, stage, error_code, reason, operator_action } => json!({
                "severity": "critical", "job": job, "wipe_started_at": started_at, "stage": stage,
                "error_code": error_code, "reason": reason, "operator_action": operator_action,
            }),
            Self::Confirmed { job, started_at, boot_before, boot_after, certificates } => json!({
                "job": job, "wipe_started_at": started_at, "boot_before": boot_before, "boot_after": boot_after,
                "certificates": certificates,
            }),
        }
    }
}

fn device(record: &WipeEvidence) -> Value {
    json!({
        "device": record.device, "serial": record.serial, "method": record.method, "tool": record.tool,
        "tool_version": record.tool_version, "exit_code": record.exit_code, "result": record.status_after,
    })
}
