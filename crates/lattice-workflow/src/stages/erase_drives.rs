//! Has the BMC erase drives by its own means, one after the other. That one is done is the BMC's word, and told as that.

use std::time::Duration;

use async_trait::async_trait;
use lattice_core::bmc::{DriveErasure, ErasureState};
use lattice_core::change::{Change, Resource};
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::job::flow::UndoKind;
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::bmc::Erasure;

use super::switch_off::{Idle, idle};
use crate::power::{needed_bmc, of_bmc};
use crate::stage::{Context, Delta, NodeAsk, Observation, Outcome, StageRunner, error};

/// How soon an erasure is looked at again: a cryptographic one takes seconds, one that overwrites takes hours.
const RECHECK: Duration = Duration::from_secs(15);

/// See the module.
pub struct EraseDrives;

#[async_trait]
impl StageRunner for EraseDrives {
    async fn observe(&self, ctx: &Context<'_>) -> Result<Observation, StageError> {
        let erasures = &ctx.job.outputs.erasures;
        let Some((one, task)) = Self::running(ctx) else {
            return Ok(match Self::next(ctx) {
                // That it is told is kept before it is: a job that dies or is cancelled then does not take it for untouched.
                Some(one) if one.state == ErasureState::Waiting => Observation::Waiting {
                    recheck_at: ctx.now,
                    waiting_for: format!("the BMC of {} to be told to erase {}", ctx.node.hostname, one.name),
                    delta: with_state(ctx, &one.drive, ErasureState::Told { since: ctx.now }),
                },
                Some(_) => Observation::Absent,
                None => {
                    let said = format!("{} erased, as its BMC says", names(erasures));
                    // Nothing boots it by itself: there is nothing on it.
                    let stays = NodeAsk::StaysInMaintenance("its drives were erased".to_owned());
                    Observation::Done(Delta::said(said).ask(stays))
                }
            });
        };
        match needed_bmc(ctx).await?.erasure(task).await {
            Ok(Erasure::Running { .. }) => Ok(Observation::Waiting {
                recheck_at: ctx.now + RECHECK,
                waiting_for: format!("the BMC of {} to erase {}", ctx.node.hostname, one.name),
                delta: Delta::default(),
            }),
            Ok(Erasure::SaidDone | Erasure::Another { .. }) => Ok(Observation::Waiting {
                recheck_at: ctx.now,
                waiting_for: "the next drive".to_owned(),
                delta: said_done(ctx, one),
            }),
            Err(gone) if gone.is_not_found() => {
                let why = format!(
                    "the BMC of {} does not know any more what became of the erasure of {}: resumed, it is told anew",
                    ctx.node.hostname, one.name
                );
                let again = with_state(ctx, &one.drive, ErasureState::Waiting);
                Ok(Observation::Failed(error(FailureClass::StateAmbiguity, "erasure_unknown", why), again))
            }
            // It failed, and its task ends with that: a person looks at what a drive refused.
            Err(failed) if matches!(failed.kind, ErrorKind::PowerFailed { .. }) => {
                let why = format!("the BMC of {} did not erase {}: {failed}", ctx.node.hostname, one.name);
                let again = with_state(ctx, &one.drive, ErasureState::Waiting);
                Ok(Observation::Failed(error(FailureClass::HardwareMismatch, "erase_failed", why), again))
            }
            Err(unread) => Err(of_bmc(ctx.now)(unread)),
        }
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let Some(next) = Self::next(ctx) else {
            return Ok(Outcome::Done(Delta::default().skipped()));
        };
        let host = &ctx.node.hostname;
        let bmc = needed_bmc(ctx).await?;
        if !matches!(idle(ctx).await?, Idle::Seen { .. }) {
            let why = format!("{host} is not seen to be idle any more: {} is not erased", next.name);
            return Err(error(FailureClass::StateAmbiguity, "not_idle", why));
        }
        let (delta, recheck_at) = match bmc.erase(&next.drive, &next.name).await.map_err(of_bmc(ctx.now))? {
            // Somebody pulled it since, and put another one in its place.
            Erasure::Another { name } => {
                let why = format!("at {} of {host} is {name}, not {}: it is not erased", next.drive, next.name);
                return Err(error(FailureClass::HardwareMismatch, "drive_changed", why));
            }
            Erasure::SaidDone => (said_done(ctx, next), ctx.now),
            Erasure::Running { task } => {
                let state = ErasureState::Running { task, since: ctx.now };
                (with_state(ctx, &next.drive, state), ctx.now + RECHECK)
            }
        };
        let waiting_for = format!("the BMC of {host} to erase {}", next.name);
        Ok(Outcome::StillGoing { recheck_at, waiting_for, delta })
    }

    /// Nothing brings back what is erased: the drive that its BMC is at is waited for, and no other one is begun.
    async fn undo(&self, ctx: &Context<'_>, _: UndoKind, _: &str) -> Result<Outcome, StageError> {
        let Some((one, task)) = Self::running(ctx) else {
            return Ok(Outcome::Done(held_where_touched(ctx, Delta::said("its BMC is at no drive that is known"))));
        };
        let gave_up = ctx.job.state.decisions.os_gone;
        let asked = match needed_bmc(ctx).await {
            Ok(bmc) => bmc.erasure(task).await.map_err(|failed| (is_over(&failed), of_bmc(ctx.now)(failed))),
            Err(away) => Err((false, away)),
        };
        let over = match asked {
            Ok(Erasure::Running { .. }) => {
                return Ok(Outcome::StillGoing {
                    recheck_at: ctx.now + RECHECK,
                    waiting_for: format!("the BMC of {} to end the erasure of {}", ctx.node.hostname, one.name),
                    delta: Delta::default(),
                });
            }
            Ok(Erasure::SaidDone | Erasure::Another { .. }) => said_done(ctx, one),
            Err((is_over, why)) if is_over || gave_up => {
                Delta::said(format!("what became of the erasure of {} nobody says: {}", one.name, why.message))
            }
            Err((_, unread)) => {
                let job = ctx.job.id;
                let gone = format!("`lattice job resume {job} --os-gone`, then `lattice job cancel {job}`");
                let message = format!("{}; if it is gone for good: {gone}", unread.message);
                return Err(StageError { message, ..unread });
            }
        };
        Ok(Outcome::Done(held_where_touched(ctx, over)))
    }
}

impl EraseDrives {
    /// What the BMC is at, if it is at one.
    fn running<'a>(ctx: &'a Context<'_>) -> Option<(&'a DriveErasure, &'a str)> {
        ctx.job.outputs.erasures.iter().find_map(|one| match &one.state {
            ErasureState::Running { task, .. } => Some((one, task.as_str())),
            ErasureState::Waiting | ErasureState::Told { .. } | ErasureState::SaidDone { .. } => None,
        })
    }

    /// The drive whose turn it is.
    fn next<'a>(ctx: &'a Context<'_>) -> Option<&'a DriveErasure> {
        ctx.job.outputs.erasures.iter().find(|one| match one.state {
            ErasureState::Waiting | ErasureState::Told { .. } => true,
            ErasureState::Running { .. } | ErasureState::SaidDone { .. } => false,
        })
    }
}

/// It goes on no more: it failed, or its BMC knows nothing of it.
const fn is_over(failed: &ProviderError) -> bool {
    failed.is_not_found() || matches!(failed.kind, ErrorKind::PowerFailed { .. })
}

/// A machine of which a drive may be erased is not given back as if nothing had been.
fn held_where_touched(ctx: &Context<'_>, delta: Delta) -> Delta {
    if ctx.job.outputs.erasures.iter().all(|one| one.state == ErasureState::Waiting) {
        return delta;
    }
    delta.ask(NodeAsk::StaysInMaintenance("drives of it were erased, or may be".to_owned()))
}

fn with_state(ctx: &Context<'_>, drive: &str, state: ErasureState) -> Delta {
    let mut outputs = ctx.outputs();
    for one in outputs.erasures.iter_mut().filter(|one| one.drive == drive) {
        one.state = state.clone();
    }
    Delta::default().outputs(outputs)
}

fn said_done(ctx: &Context<'_>, one: &DriveErasure) -> Delta {
    let detail = format!("{} ({}) is erased, as its BMC says", one.name, one.drive);
    let mut delta = with_state(ctx, &one.drive, ErasureState::SaidDone { at: ctx.now });
    delta.message.clone_from(&detail);
    let (name, resource) = ("node.drive.erased".to_owned(), Resource::Node(ctx.node.id));
    delta.changes.push(Change::Note { name, resource, detail });
    delta
}

fn names(erasures: &[DriveErasure]) -> String {
    erasures.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ")
}
