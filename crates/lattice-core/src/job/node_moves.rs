//! How the status of a job and the status of its node go together. spec: S2 4.3, 5.3

use super::flow::Flow;
use super::flows::FlowName;
use super::state::JobState;
use super::status::JobStatus;
use crate::node::Status;

/// The node statuses that may stand beside a job's status, after the commit that set it. spec: S2 4.3, 5.3
pub const fn allowed_node_statuses(flow: FlowName, status: JobStatus) -> &'static [Status] {
    match flow {
        FlowName::OnboardingMaas | FlowName::OnboardingLxd | FlowName::OnboardingOpenchami => onboarding(status),
        FlowName::OnboardingManual => onboarding_manual(status),
        FlowName::Drain => &[Status::Active, Status::Offline, Status::Quarantined],
        FlowName::Retire => retirement(status),
        FlowName::Remove | FlowName::RemoveLxd => removal(status),
        FlowName::Reboot | FlowName::RebootOpenchami => {
            &[Status::Active, Status::Offline, Status::Quarantined, Status::Retired]
        }
        FlowName::ReimageOpenchami | FlowName::ReimageMaas => reimage(status),
        // It only looks: whatever the node does meanwhile is no concern of it.
        FlowName::BmcInvestigation => <Status as strum::VariantArray>::VARIANTS,
        FlowName::SensitiveWipe => &[Status::Active, Status::Offline, Status::Quarantined],
        FlowName::SecureErase => &[Status::Active, Status::Offline, Status::Quarantined, Status::Retired],
    }
}

const fn onboarding(status: JobStatus) -> &'static [Status] {
    use Status::{Active, Deleted, Enrolling, Quarantined};
    match status {
        JobStatus::Pending | JobStatus::Running | JobStatus::FailedRetryable => &[Enrolling],
        JobStatus::FailedManualIntervention | JobStatus::Compensating => &[Enrolling, Quarantined],
        JobStatus::Completed | JobStatus::Reconciled => &[Active],
        JobStatus::Cancelled => &[Deleted, Quarantined],
    }
}

const fn onboarding_manual(status: JobStatus) -> &'static [Status] {
    use Status::{BootstrapIssued, Enrolling, Quarantined};
    match status {
        JobStatus::Pending | JobStatus::Running | JobStatus::FailedRetryable => &[BootstrapIssued, Enrolling],
        JobStatus::FailedManualIntervention | JobStatus::Compensating => &[BootstrapIssued, Enrolling, Quarantined],
        JobStatus::Completed | JobStatus::Reconciled | JobStatus::Cancelled => onboarding(status),
    }
}

/// A reimage that ends without its OS leaves the node for an operator. design: 2-state-model "Inventory status"
const fn reimage(status: JobStatus) -> &'static [Status] {
    use Status::{Active, Enrolling, Offline, Quarantined, Retired};
    match status {
        JobStatus::Pending
        | JobStatus::Running
        | JobStatus::Compensating
        | JobStatus::FailedRetryable
        | JobStatus::FailedManualIntervention => &[Active, Offline, Quarantined, Retired, Enrolling],
        JobStatus::Completed | JobStatus::Reconciled => &[Active],
        JobStatus::Cancelled => &[Active, Offline, Quarantined, Retired],
    }
}

const fn retirement(status: JobStatus) -> &'static [Status] {
    use Status::{Active, Draining, Offline, Quarantined, Retired};
    match status {
        JobStatus::Pending
        | JobStatus::Running
        | JobStatus::Compensating
        | JobStatus::FailedRetryable
        | JobStatus::FailedManualIntervention => &[Active, Offline, Quarantined, Draining],
        JobStatus::Completed | JobStatus::Reconciled => &[Retired],
        JobStatus::Cancelled => &[Active, Offline, Quarantined],
    }
}

const fn removal(status: JobStatus) -> &'static [Status] {
    use Status::{Deleted, Quarantined, Removing, Retired};
    match status {
        JobStatus::Pending => &[Retired, Removing],
        JobStatus::Running | JobStatus::Compensating => &[Removing],
        JobStatus::FailedRetryable | JobStatus::Cancelled => &[Retired],
        JobStatus::FailedManualIntervention => &[Retired, Quarantined],
        JobStatus::Completed | JobStatus::Reconciled => &[Deleted],
    }
}

/// The statuses that a node moves through, in order, in the commit that brings its job from `before` to `after`.
///
/// Empty when the job asks nothing of it. Each move is an edge of the node's table; its guards still apply.
pub fn node_moves(flow: &Flow, before: &JobState, after: &JobState, node: Status) -> Vec<Status> {
    match after.status {
        JobStatus::Running | JobStatus::Completed | JobStatus::Reconciled => forward(flow, before, after, node),
        JobStatus::FailedRetryable | JobStatus::FailedManualIntervention => match flow.name {
            FlowName::SensitiveWipe => unwiped(after, node),
            FlowName::OnboardingMaas
            | FlowName::OnboardingLxd
            | FlowName::OnboardingOpenchami
            | FlowName::OnboardingManual
            | FlowName::Drain
            | FlowName::Retire
            | FlowName::Remove
            | FlowName::RemoveLxd
            | FlowName::Reboot
            | FlowName::RebootOpenchami
            | FlowName::ReimageOpenchami
            | FlowName::ReimageMaas
            | FlowName::SecureErase
            | FlowName::BmcInvestigation => backward(node),
        },
        JobStatus::Cancelled => cancelled(flow, after, node),
        JobStatus::Pending | JobStatus::Compensating => Vec::new(),
    }
}

fn forward(flow: &Flow, before: &JobState, after: &JobState, node: Status) -> Vec<Status> {
    let is_over = after.status.is_terminal();
    let reached = flow.position(after.stage).unwrap_or(0);
    let passed = flow.stages.iter().enumerate().take_while(|(place, _)| *place <= reached);
    let asked = passed.flat_map(|(place, stage)| {
        let after_it = stage.node_after.filter(|_| place < reached || is_over);
        [stage.node_during, after_it].into_iter().flatten()
    });
    let mut at = node;
    let mut moves = Vec::new();
    for to in asked {
        // A job leads its node out of quarantine only when it is taken up again, or takes its OS away.
        let is_taken_up = before.status.is_failed() || before.status == JobStatus::Compensating;
        let may_enrol = match flow.name {
            FlowName::ReimageOpenchami | FlowName::ReimageMaas => {
                !is_over && (is_taken_up || before.stage != after.stage)
            }
            FlowName::OnboardingMaas
            | FlowName::OnboardingLxd
            | FlowName::OnboardingOpenchami
            | FlowName::OnboardingManual
            | FlowName::Drain
            | FlowName::Retire
            | FlowName::Remove
            | FlowName::RemoveLxd
            | FlowName::Reboot
            | FlowName::RebootOpenchami
            | FlowName::SensitiveWipe
            | FlowName::SecureErase
            | FlowName::BmcInvestigation => at == Status::Quarantined && is_taken_up,
        };
        if is_edge(at, to) && (to != Status::Enrolling || may_enrol) {
            at = to;
            moves.push(to);
        }
    }
    moves
}

const fn is_edge(from: Status, to: Status) -> bool {
    use Status::{Active, Deleted, Draining, Enrolling, Offline, Quarantined, Removing, Retired};
    matches!(
        (from, to),
        (Active | Offline | Quarantined | Retired, Enrolling)
            | (Enrolling, Active)
            | (Active | Offline | Quarantined, Draining)
            | (Draining, Retired)
            | (Retired, Removing)
            | (Removing, Deleted)
    )
}

/// A failed removal keeps the identity: the node is retired again. spec: S2 3.2
fn backward(node: Status) -> Vec<Status> {
    if node == Status::Removing { vec![Status::Retired] } else { Vec::new() }
}

fn cancelled(flow: &Flow, after: &JobState, node: Status) -> Vec<Status> {
    match flow.name {
        FlowName::OnboardingMaas
        | FlowName::OnboardingLxd
        | FlowName::OnboardingOpenchami
        | FlowName::OnboardingManual => cancelled_onboarding(node, flow.keeps_effects(after.highest_stage)),
        FlowName::Drain
        | FlowName::Reboot
        | FlowName::RebootOpenchami
        | FlowName::SecureErase
        | FlowName::BmcInvestigation => Vec::new(),
        FlowName::ReimageOpenchami | FlowName::ReimageMaas => {
            if node == Status::Enrolling {
                vec![Status::Quarantined]
            } else {
                Vec::new()
            }
        }
        FlowName::SensitiveWipe => unwiped(after, node),
        FlowName::Retire => {
            if node == Status::Draining {
                vec![Status::Offline]
            } else {
                Vec::new()
            }
        }
        FlowName::Remove | FlowName::RemoveLxd => backward(node),
    }
}

/// A wipe that began and did not end: nobody may have the node. One that had not begun leaves it as it is.
/// spec: S1 "Wipe Failure Handling"
fn unwiped(after: &JobState, node: Status) -> Vec<Status> {
    let quarantines = after.limit_at.is_some() && node != Status::Quarantined;
    if quarantines { vec![Status::Quarantined] } else { Vec::new() }
}

/// Before its deploy, or once that is undone, nothing is left of the node; a running OS is left alone. spec: S5 4.6
fn cancelled_onboarding(node: Status, keeps_os: bool) -> Vec<Status> {
    match node {
        Status::Enrolling if keeps_os => vec![Status::Quarantined],
        Status::Enrolling | Status::BootstrapIssued => vec![Status::Deleted],
        Status::Quarantined if !keeps_os => vec![Status::Enrolling, Status::Deleted],
        Status::Quarantined
        | Status::Active
        | Status::Offline
        | Status::Draining
        | Status::Retired
        | Status::Removing
        | Status::Deleted => Vec::new(),
    }
}
