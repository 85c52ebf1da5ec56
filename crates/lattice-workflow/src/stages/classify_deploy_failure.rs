//! Why a deployment failed: like a datasource failure, which is worth another try, or otherwise. spec: S5 4.3

use async_trait::async_trait;
use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::job::flows::{DATASOURCE_LIKE, GENERIC};

use lattice_providers::machine::maas::MachineStatus;

use super::maas;
use crate::stage::{Context, Delta, Observation, Outcome, StageRunner, error};

/// How many of the machine's latest events are read.
const EVENTS: u32 = 100;
/// Longest evidence kept, in characters: a sentence and its cause.
const EVIDENCE: usize = 300;
/// Words of which one stands in what a datasource failure leaves behind. spec: S5 4.3 ClassifyDeployFailure
const DATASOURCE_WORDS: [&str; 6] = [
    "no datasource",
    // cloud-init's own words.
    "no instance datasource",
    "datasource not found",
    "cloud-init final stage",
    "cloud-init failed",
    "did not find any data source",
];

/// See the module.
pub struct ClassifyDeployFailure;

#[async_trait]
impl StageRunner for ClassifyDeployFailure {
    async fn observe(&self, _: &Context<'_>) -> Result<Observation, StageError> {
        Ok(Observation::Absent)
    }

    async fn act(&self, ctx: &Context<'_>, _: &str) -> Result<Outcome, StageError> {
        // Deployed after all, when its time was over: that is what was waited for. spec: S5 4.13
        if let Ok(machine) = maas::fresh(ctx).await
            && machine.status == MachineStatus::Deployed
            && maas::is_ours(ctx, &machine)
        {
            return Ok(Outcome::Done(Delta::said("MAAS says Deployed after all").seen(ctx, maas::seen(&machine))));
        }
        let texts = evidence(ctx).await;
        let sign = texts.iter().find(|text| is_datasource_like(text));
        let code = if sign.is_some() { DATASOURCE_LIKE } else { GENERIC };
        let why = sign.or(texts.first()).map_or("MAAS gives no reason", String::as_str);
        let mut outputs = ctx.outputs();
        outputs.deploy_failure = Some(code.to_owned());
        let text = format!("the deployment failed ({code}): {}", why.chars().take(EVIDENCE).collect::<String>());
        let failure = error(FailureClass::DeployCloudInitFailure, code, text);
        Ok(Outcome::Failed(failure, Delta::default().outputs(outputs)))
    }
}

/// What MAAS has to say, the machine's own words first. Best effort: silence means a generic failure. spec: S5 4.6
async fn evidence(ctx: &Context<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    if let Ok(machine) = maas::fresh(ctx).await {
        texts.push(maas::reason(&machine));
        if let Ok(region) = maas::region(ctx).await
            && let Ok(events) = region.client().events_of(&machine.system_id, EVENTS).await
        {
            texts.extend(events.iter().rev().map(|event| format!("{} {}", event.kind, event.description)));
        }
    }
    texts
}

fn is_datasource_like(text: &str) -> bool {
    let text = text.to_lowercase();
    DATASOURCE_WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_datasource_or_a_failed_first_boot_is_worth_a_second_deployment() {
        let rows = [
            ("Deploying failed: cloud-init: No instance datasource found! Likely bad things to come!", true),
            ("cloud-init: no datasource", true),
            ("cloud-init final stage failed", true),
            ("curtin: installation failed: no space left on device", false),
            ("Failed deployment", false),
        ];
        for (text, expected) in rows {
            assert_eq!(is_datasource_like(text), expected, "{text}");
        }
    }
}
