//! The world outside: one machine, or one instance, with effects that stay until they are undone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lattice_core::failure::FailureClass;
use lattice_core::job::flows::{DATASOURCE_LIKE, GENERIC};
use lattice_core::job::{Enter, Flow, Reentry, StageError, StageName, UndoKind};
use lattice_core::time::Timestamp;
use strum::VariantArray;

use crate::dice::Dice;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Good,
    Datasource,
    Generic,
}

#[derive(Clone, Debug)]
pub struct Deployment {
    pub key: String,
    pub ends_at: Timestamp,
    pub outcome: Outcome,
}

/// What an observation says.
pub enum Seen {
    Done,
    NotDone,
    Unclear,
    Going { recheck_at: Timestamp },
    Failed(StageError),
}

pub struct World {
    pub present: BTreeSet<StageName>,
    pub deployment: Option<Deployment>,
    /// When a wait is over; drawn when it is first looked at.
    over_at: BTreeMap<StageName, Timestamp>,
    /// Waits that last until the world is healed.
    stuck: BTreeSet<StageName>,
    /// Errors that stay until the world is healed.
    sticky: BTreeMap<StageName, FailureClass>,
    pub is_hostile: bool,
    /// How often a deployment was started, and released, by key.
    pub effects: BTreeMap<String, u32>,
    pub releases: u32,
}

pub fn error(class: FailureClass, code: &str) -> StageError {
    StageError {
        class,
        error_code: code.to_owned(),
        message: format!("simulated {class}"),
        retry_after: None,
        choices: Vec::new(),
        recovery: None,
    }
}

impl World {
    pub fn new(flow: &Flow, dice: &mut Dice) -> Self {
        let mut world = Self {
            present: BTreeSet::new(),
            deployment: None,
            over_at: BTreeMap::new(),
            stuck: BTreeSet::new(),
            sticky: BTreeMap::new(),
            is_hostile: true,
            effects: BTreeMap::new(),
            releases: 0,
        };
        for stage in &flow.stages {
            if dice.percent(4) {
                world.stuck.insert(stage.name);
            }
            if dice.percent(4) {
                world.sticky.insert(stage.name, dice.pick(FailureClass::VARIANTS));
            }
        }
        world
    }

    /// From now on everything works, and what was broken can be repaired.
    pub fn heal(&mut self, now: Timestamp) {
        self.is_hostile = false;
        self.stuck.clear();
        self.sticky.clear();
        self.over_at.values_mut().for_each(|at| *at = now.min(*at));
    }

    pub fn observe(&mut self, stage: StageName, intended: bool, now: Timestamp, dice: &mut Dice) -> Seen {
        if let Some(class) = self.sticky.get(&stage) {
            return Seen::Failed(error(*class, "sticky"));
        }
        if self.is_hostile && dice.percent(5) {
            let mut error = error(dice.pick(FailureClass::VARIANTS), "random");
            error.retry_after = dice.percent(20).then(|| now + Duration::from_secs(dice.below(100_000)));
            return Seen::Failed(error);
        }
        match stage {
            StageName::DeployViaMaas => match self.deployment {
                _ if intended && self.is_hostile && dice.percent(10) => Seen::Unclear,
                Some(_) => Seen::Done,
                None => Seen::NotDone,
            },
            StageName::WaitForDeployed => self.deployed(now, dice),
            StageName::ClassifyDeployFailure => self.classified(now),
            // The machine was deployed before the job began; what it deployed itself it leaves.
            StageName::ReleaseMachine if self.deployment.is_some() => Seen::Done,
            StageName::RecoverForDatasourceRetry if self.deployment.is_some() => Seen::NotDone,
            StageName::RecoverForDatasourceRetry => Seen::Done,
            StageName::WaitForReady
            | StageName::WaitForHardwareSyncHealthy
            | StageName::WaitForAgentEnrollment
            | StageName::WaitForRunning
            | StageName::WaitForDrained
            | StageName::WaitForBoot
            | StageName::DrainNode => self.waited(stage, now, dice),
            other if self.present.contains(&other) => Seen::Done,
            _ => Seen::NotDone,
        }
    }

    fn deployed(&self, now: Timestamp, dice: &mut Dice) -> Seen {
        let Some(deployment) = &self.deployment else {
            return Seen::Failed(error(FailureClass::StateAmbiguity, "not_deployed"));
        };
        match deployment.outcome {
            _ if now < deployment.ends_at => Seen::Going { recheck_at: now + Duration::from_secs(60) },
            Outcome::Good => Seen::Done,
            Outcome::Datasource if dice.percent(50) => {
                Seen::Failed(error(FailureClass::DeployCloudInitFailure, DATASOURCE_LIKE))
            }
            Outcome::Datasource | Outcome::Generic => {
                Seen::Failed(error(FailureClass::DeployCloudInitFailure, "failed_deployment"))
            }
        }
    }

    fn classified(&self, now: Timestamp) -> Seen {
        match &self.deployment {
            // Deployed after all, after the time was over: that is what success of this stage means.
            Some(deployment) if deployment.outcome == Outcome::Good && deployment.ends_at <= now => Seen::Done,
            Some(deployment) if deployment.outcome == Outcome::Datasource => {
                Seen::Failed(error(FailureClass::DeployCloudInitFailure, DATASOURCE_LIKE))
            }
            Some(_) | None => Seen::Failed(error(FailureClass::DeployCloudInitFailure, GENERIC)),
        }
    }

    fn waited(&mut self, stage: StageName, now: Timestamp, dice: &mut Dice) -> Seen {
        let hostile = self.is_hostile;
        let over_at = *self
            .over_at
            .entry(stage)
            .or_insert_with(|| now + Duration::from_secs(if hostile { dice.below(900) } else { 0 }));
        if self.stuck.contains(&stage) || now < over_at {
            return Seen::Going { recheck_at: now + Duration::from_secs(1 + dice.below(120)) };
        }
        self.present.insert(stage);
        Seen::Done
    }

    /// The effect of a stage lands.
    ///
    /// # Errors
    /// When an effect that must not happen twice does.
    pub fn act(&mut self, stage: StageName, key: &str, now: Timestamp, dice: &mut Dice) -> Result<(), String> {
        *self.effects.entry(key.to_owned()).or_default() += 1;
        match stage {
            StageName::DeployViaMaas => {
                if let Some(there) = &self.deployment {
                    return Err(format!("deployed twice without an undo between: {} over {}", key, there.key));
                }
                let outcome = match dice.below(10) {
                    0 | 1 if self.is_hostile => Outcome::Datasource,
                    2 if self.is_hostile => Outcome::Generic,
                    _ => Outcome::Good,
                };
                let ends_at = now + Duration::from_secs(dice.below(if self.is_hostile { 4_500 } else { 600 }));
                self.deployment = Some(Deployment { key: key.to_owned(), ends_at, outcome });
            }
            StageName::RecoverForDatasourceRetry => self.release(),
            _ => {
                self.present.insert(stage);
            }
        }
        Ok(())
    }

    /// What is undone is not there, afterwards.
    pub fn undo(&mut self, kind: UndoKind) {
        let gone: &[StageName] = match kind {
            UndoKind::RevokeEnrollmentToken => {
                &[StageName::RenderCloudInit, StageName::InjectBootstrap, StageName::OpenEnrollment]
            }
            UndoKind::RestoreBootParameters => &[StageName::SetBootParameters],
            UndoKind::ReleaseToReady => {
                self.release();
                &[]
            }
            UndoKind::DeleteInstance => {
                &[StageName::CreateLxdInstance, StageName::InjectBootstrap, StageName::WaitForAgentEnrollment]
            }
            UndoKind::Undrain => &[StageName::BeginDrain, StageName::WaitForDrained],
            // What is erased stays erased.
            UndoKind::AwaitErasure => &[],
        };
        self.present.retain(|stage| !gone.contains(stage));
    }

    fn release(&mut self) {
        self.deployment = None;
        self.releases += 1;
        let host = [
            StageName::EnsureHardwareSyncConfigured,
            StageName::WaitForHardwareSyncHealthy,
            StageName::WaitForAgentEnrollment,
        ];
        self.present.retain(|stage| !host.contains(stage));
    }

    /// The last stage that is proven together with all before it.
    pub fn proven(&self, flow: &Flow, now: Timestamp) -> Option<StageName> {
        let in_sequence = flow.stages.iter().filter(|stage| stage.enter == Enter::InSequence);
        in_sequence.take_while(|stage| self.is_there(stage.name, stage.reentry, now)).last().map(|stage| stage.name)
    }

    pub fn is_there(&self, stage: StageName, reentry: Reentry, now: Timestamp) -> bool {
        let is_deployed = self.deployment.as_ref().is_some_and(|it| it.outcome == Outcome::Good && it.ends_at <= now);
        match stage {
            StageName::DeployViaMaas => self.deployment.is_some(),
            StageName::WaitForDeployed => is_deployed,
            // A machine that is deployed was ready, and was configured.
            StageName::ApplyRocePhase2 | StageName::EnsurePxeInterfaceAuto if is_deployed => true,
            other => reentry == Reentry::Pure || self.present.contains(&other),
        }
    }

    /// Somebody, or the machine itself, finishes what a good deployment began. spec: S5 4.13
    pub fn finish_unasked(&mut self, now: Timestamp) {
        if self.deployment.as_ref().is_some_and(|it| it.outcome == Outcome::Good && it.ends_at <= now) {
            self.present.extend([
                StageName::EnsureHardwareSyncConfigured,
                StageName::WaitForHardwareSyncHealthy,
                StageName::WaitForAgentEnrollment,
            ]);
        }
    }
}
