//! Asks the BMC of a node that went down for its power and its hardware; nothing is changed. spec: S1 "Degraded → Down"

use async_trait::async_trait;
use lattice_core::actor::Actor;
use lattice_core::bmc::BmcReport;
use lattice_core::change::Change;
use lattice_core::command::Request;
use lattice_core::command::bmc::{Look, OfNode, looked};
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;

use crate::power::{of_bmc, own_bmc, seen_by_bmc};
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error, store_failed};

/// See the module.
pub struct CheckOutOfBand;

#[async_trait]
impl StageRunner for CheckOutOfBand {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        let Some(bmc) = own_bmc(ctx).await? else {
            let why = format!("{} has no BMC any more", ctx.node.hostname);
            return Err(error(FailureClass::InputConfigError, "no_bmc", why));
        };
        let earlier = ctx.tools.store.bmc_report(ctx.node.id).await.map_err(store_failed)?;
        let power = bmc.power().await.map_err(of_bmc(ctx.now))?;
        let since = earlier.as_ref().and_then(|report| report.log_position());
        let health = bmc.health(since).await;
        let told = match &health {
            Ok(health) if health.evidence.is_empty() => "nothing is wrong with its hardware".to_owned(),
            Ok(health) => {
                let words: Vec<String> = health.evidence.iter().map(ToString::to_string).collect();
                words.join("; ")
            }
            Err(failure) => format!("its hardware cannot be read: {failure}"),
        };
        let seen = seen_by_bmc(ctx, &power);
        let said = format!("power {power}; {told}");
        let look = Look { power: Ok(power), health: health.map_err(|failure| failure.to_string()) };
        // The node is judged by whoever polls its BMC: this job keeps what it saw, and moves nothing.
        let report = kept(ctx, earlier.as_ref(), look);
        let delta = Delta { changes: vec![Change::BmcReport(Box::new(report))], ..Delta::said(said) };
        Ok(Outcome::Done(delta.seen(ctx, seen)))
    }
}

fn kept(ctx: &Context<'_>, earlier: Option<&BmcReport>, look: Look) -> BmcReport {
    let request = Request {
        actor: Actor::system("driver"),
        reason: String::new(),
        now: ctx.now,
        ids: &*ctx.tools.ids,
        op: ctx.op(),
        correlation: ctx.job.correlation,
    };
    let mut report = looked(&request, ctx.node, earlier, look, OfNode::default()).report;
    // New entries of the event log stay news for the poll, which judges them.
    if let (Some(now), Some(before)) = (&mut report.health, earlier.and_then(|report| report.health.as_ref())) {
        now.log_position = before.log_position;
    }
    report
}
