//! Why a job is not moving.

use super::{Explanation, Unmet, meaning};
use crate::explain::NextAction;
use crate::job::{Job, JobKind, JobStatus, other_way};
use crate::time::{Timestamp, human};

/// Explains a job: what it waits for, or why it stopped and what would move it.
pub fn job(job: &Job, now: Timestamp) -> Explanation {
    let state = &job.state;
    let owner = format!("job {}", job.id);
    let mut because = Vec::new();
    let mut next = Vec::new();
    let headline = match state.status {
        JobStatus::Completed => "done".to_owned(),
        JobStatus::Reconciled => "done: it was found to be where it should be".to_owned(),
        JobStatus::Cancelled => "cancelled".to_owned(),
        JobStatus::Pending => {
            because.push(Unmet {
                what: "it waits for its turn".to_owned(),
                since: Some(job.created_at),
                owner,
                class: None,
            });
            "accepted, not started yet".to_owned()
        }
        JobStatus::Running | JobStatus::Compensating => {
            let doing = if state.status == JobStatus::Running { "at" } else { "undoing" };
            if let Some(wait) = &state.wait {
                because.push(Unmet {
                    what: format!("{doing} {}: {}", state.stage, wait.reason),
                    since: Some(state.stage_entered_at),
                    owner,
                    class: None,
                });
                let wait = NextAction::WaitUntil { until: wait.until, waiting_for: wait.reason.clone() };
                next.push(super::node::awaited(job, wait, now));
            } else {
                let what = format!("{doing} {} for {}", state.stage, human(now.since(state.stage_entered_at)));
                because.push(Unmet { what, since: Some(state.stage_entered_at), owner, class: None });
            }
            format!("{doing} {}, attempt {}", state.stage, state.attempt)
        }
        JobStatus::FailedRetryable | JobStatus::FailedManualIntervention => {
            stopped(job, owner, &mut because, &mut next);
            format!("stopped at {}, attempt {}", state.stage, state.attempt)
        }
    };
    let fine = matches!(state.status, JobStatus::Completed | JobStatus::Reconciled);
    Explanation {
        subject: job.id.to_string(),
        state: format!("{} at {}", state.status, state.stage),
        headline: format!("{} of {} {headline}", job.kind, job.hostname),
        fine,
        because,
        next,
    }
}

fn stopped(job: &Job, owner: String, because: &mut Vec<Unmet>, next: &mut Vec<NextAction>) {
    let Some(failure) = &job.state.failure else {
        next.push(NextAction::run(format!("lattice job resume {}", job.id), "continues at the stage where it stopped"));
        return;
    };
    because.push(Unmet {
        what: format!("{} stopped at {}: {}", job.kind, failure.stage, failure.message),
        since: Some(failure.at),
        owner,
        class: Some(failure.class),
    });
    because.push(Unmet {
        what: format!("class {}: {}", failure.class, meaning(failure.class)),
        since: None,
        owner: "lattice".to_owned(),
        class: None,
    });
    if let Some(observed) = &job.observed {
        because.push(Unmet {
            what: format!("the provider last said: {}, power {}", observed.status, observed.power),
            since: Some(observed.at),
            owner: "provider".to_owned(),
            class: None,
        });
    }
    if job.kind == JobKind::SensitiveWipe && job.state.limit_at.is_some() {
        let host = &job.hostname;
        next.push(NextAction::run(
            format!("lattice admin node wipe {host} --force"),
            "wipes it again, from the first step",
        ));
        next.push(failure.next_action.clone());
        next.push(NextAction::run(
            format!("lattice node disable {host} --yes"),
            "gives up on it: it stays out for good",
        ));
        return;
    }
    next.push(failure.next_action.clone());
    next.extend(other_way(job.id, failure));
    let cancel = format!("lattice job cancel {}", job.id);
    next.push(NextAction::run(cancel, "stops it for good and undoes what can be undone"));
}
