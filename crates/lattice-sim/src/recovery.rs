//! A scenario is played to its end: each failure is read as an operator reads it, what must be put right in the world
//! is put right, and the command that the explanation prints is run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lattice_core::failure::FailureClass;
use lattice_core::ids::JobId;
use lattice_core::job::{JobStatus, StageName};
use lattice_store::{JobFilter, PageRequest};
use serde::Serialize;
use serde_json::Value;

use crate::dev::{Dev, DevError};
use crate::maas::world::BmcCommand;
use crate::scenario::{Mishap, Scenario, Trouble};

/// How often a printed command is run for one machine before it counts as no help.
const MAX_TRIES: u32 = 4;

/// How a scenario went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recovery {
    /// Which scenario.
    pub scenario: String,
    /// Whether every class appeared, was explained and was recovered, and every machine is active.
    pub recovered: bool,
    /// How many machines there are.
    pub nodes: u32,
    /// How many are active and ready.
    pub active: u32,
    /// Seconds until all of it was so; absent if it was not in time.
    pub seconds: Option<f64>,
    /// Each machine that something befell.
    pub mishaps: Vec<MishapReport>,
    /// What is missing, in words; empty when it recovered.
    pub missing: Vec<String>,
}

/// How one mishap went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MishapReport {
    /// On which machine.
    pub hostname: String,
    /// Class that was expected.
    pub class: FailureClass,
    /// The failures that were seen, oldest first.
    pub failures: Vec<Explained>,
    /// What was put right in the world.
    pub repair: Option<String>,
    /// Whether its job came to a good end after the command was run.
    pub recovered: bool,
}

/// A failure as its explanation told it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explained {
    /// Where it stopped.
    pub stage: StageName,
    /// Its class.
    pub class: FailureClass,
    /// The explanation's sentence.
    pub summary: String,
    /// The command that it printed, and that was run.
    pub command: String,
    /// Seconds from the start until it was seen.
    pub seconds: f64,
}

/// Plays a scenario over a running site.
pub struct Play<'a> {
    dev: &'a Dev,
    scenario: &'a Scenario,
    /// Names of the machines, in rack order.
    labels: Vec<String>,
    reports: BTreeMap<usize, MishapReport>,
    missing: BTreeSet<String>,
}

impl<'a> Play<'a> {
    /// Nothing was seen yet.
    pub fn new(dev: &'a Dev, scenario: &'a Scenario) -> Self {
        let labels = dev.labels();
        let reports = scenario.mishaps.iter().filter_map(|mishap| {
            let index = mishap.machine as usize - 1;
            let hostname = labels.get(index)?.clone();
            let report = MishapReport {
                hostname,
                class: mishap.class,
                failures: Vec::new(),
                repair: mishap.repair.clone(),
                recovered: false,
            };
            Some((index, report))
        });
        let reports = reports.collect();
        Self { dev, scenario, labels, reports, missing: BTreeSet::new() }
    }

    /// Plays until everything recovered or `timeout` is over. `run` runs a printed command line as it stands; `seen` is
    /// told of each failure.
    ///
    /// # Errors
    /// The rows cannot be read, the API does not answer.
    pub async fn until_recovered(
        mut self,
        timeout: Duration,
        run: impl AsyncFn(&str) -> Result<(), String>,
        mut seen: impl FnMut(&MishapReport),
    ) -> Result<Recovery, DevError> {
        let mut follower = self.dev.server().store.follow();
        loop {
            let last = self.dev.server().store.last_event().await?;
            for job in self.failed_jobs().await? {
                self.recover(job, &run, &mut seen).await?;
            }
            let recovery = self.judge().await?;
            let rest = timeout.saturating_sub(self.dev.running_for());
            if recovery.recovered || rest.is_zero() {
                return Ok(recovery);
            }
            // An elapsed wait is judged at the top, with the rows as they are then.
            let _woken = tokio::time::timeout(rest, follower.after(last)).await;
        }
    }

    async fn failed_jobs(&self) -> Result<Vec<JobId>, DevError> {
        let statuses = vec![JobStatus::FailedRetryable, JobStatus::FailedManualIntervention];
        let filter = JobFilter { statuses, ..JobFilter::default() };
        let page = PageRequest::first(lattice_store::PAGE_MAX);
        Ok(self.dev.server().store.jobs(&filter, &page).await?.items.into_iter().map(|job| job.id).collect())
    }

    async fn recover(
        &mut self,
        id: JobId,
        run: &impl AsyncFn(&str) -> Result<(), String>,
        seen: &mut impl FnMut(&MishapReport),
    ) -> Result<(), DevError> {
        let Some(job) = self.dev.server().store.job(id).await? else { return Ok(()) };
        let (Some(failure), true) = (job.state.failure.clone(), job.state.status.is_failed()) else { return Ok(()) };
        let Some(index) = self.labels.iter().position(|label| *label == job.hostname) else { return Ok(()) };
        let told = self.dev.explain_job(id).await?;
        let Some(explained) = read(&told, failure.stage, failure.class, self.dev.running_for()) else {
            self.missing.insert(format!("{}: its explanation names no command: {told}", job.hostname));
            return Ok(());
        };
        if told["failure_class"] != failure.class.to_string() {
            self.missing.insert(format!("{}: its explanation does not name the class {}", job.hostname, failure.class));
        }
        let command = explained.command.clone();
        let report = self.reports.entry(index).or_insert_with(|| MishapReport {
            hostname: job.hostname.clone(),
            class: failure.class,
            failures: Vec::new(),
            repair: None,
            recovered: false,
        });
        if report.failures.len() as u32 >= MAX_TRIES {
            self.missing.insert(format!("{}: `{command}` did not help {MAX_TRIES} times", job.hostname));
            return Ok(());
        }
        report.failures.push(explained);
        seen(report);
        let is_first = report.failures.len() == 1;
        if is_first && let Some(mishap) = self.scenario.mishap(index) {
            self.repair(index, mishap).await?;
        }
        if let Err(why) = run(&command).await {
            self.missing.insert(format!("{}: `{command}` was refused: {why}", job.hostname));
        }
        Ok(())
    }

    /// What a person does in the data centre before the command is run.
    async fn repair(&self, index: usize, mishap: &Mishap) -> Result<(), DevError> {
        let Some((region, machine)) = self.dev.region().and_then(|region| {
            let machine = region.machines().into_iter().nth(index)?;
            Some((region, machine.hardware))
        }) else {
            return Ok(());
        };
        match mishap.fault {
            Trouble::Machine(_) if mishap.repair.is_none() => {}
            Trouble::Machine(_) => {
                if let Some(fault) = mishap.fault.on(&machine.label) {
                    region.heal(&fault);
                }
            }
            Trouble::Site(trouble) => self.dev.put_right(trouble).await?,
        }
        if mishap.reboot {
            let (address, login) =
                (machine.bmc.address.to_string(), (machine.bmc.user.as_str(), &*machine.bmc.password));
            for command in [BmcCommand::Off, BmcCommand::On] {
                let refused = |answer| DevError::Api { what: format!("power of {}", machine.label), answer };
                region.bmc(&address, login, command).map_err(|error| refused(error.to_string()))?;
            }
        }
        Ok(())
    }

    async fn judge(&mut self) -> Result<Recovery, DevError> {
        let page = PageRequest::first(lattice_store::PAGE_MAX);
        let ended = JobFilter { statuses: vec![JobStatus::Completed, JobStatus::Reconciled], ..JobFilter::default() };
        let good = self.dev.server().store.jobs(&ended, &page).await?.items;
        for report in self.reports.values_mut() {
            report.recovered = good.iter().any(|job| job.hostname == report.hostname);
        }
        let progress = self.dev.progress(&crate::dev::Progress::none(self.scenario.nodes)).await?;
        let mut missing: Vec<String> = self.missing.iter().cloned().collect();
        missing.extend(self.scenario.mishaps.iter().filter_map(|mishap| {
            let report = self.reports.get(&(mishap.machine as usize - 1))?;
            let appeared = report.failures.iter().any(|failure| failure.class == mishap.class);
            match (appeared, report.recovered) {
                (false, _) => Some(format!("{}: {} did not appear", report.hostname, mishap.class)),
                (true, false) => Some(format!("{}: not recovered from {}", report.hostname, mishap.class)),
                (true, true) => None,
            }
        }));
        missing.extend(progress.waiting.iter().map(|waiting| format!("{} is {}", waiting.hostname, waiting.state)));
        let recovered = missing.is_empty() && progress.active >= self.scenario.nodes;
        Ok(Recovery {
            scenario: self.scenario.name.clone(),
            recovered,
            nodes: self.scenario.nodes,
            active: progress.active,
            seconds: recovered.then(|| self.dev.running_for().as_secs_f64()),
            mishaps: self.reports.values().cloned().collect(),
            missing,
        })
    }
}

/// What an explanation says, if it prints a command.
fn read(told: &Value, stage: StageName, class: FailureClass, after: Duration) -> Option<Explained> {
    let commands = told["next_actions"].as_array()?.iter().filter_map(|step| step["command"].as_str());
    Some(Explained {
        stage,
        class,
        summary: told["summary"].as_str()?.to_owned(),
        command: commands.into_iter().next()?.to_owned(),
        seconds: after.as_secs_f64(),
    })
}
