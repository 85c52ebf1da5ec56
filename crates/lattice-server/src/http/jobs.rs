//! Jobs: lists, one with its stages, why it is not moving, and what operators ask of it.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use lattice_api::explanation::{Explanation, Subject};
use lattice_api::job::{
    ActOnJob, FailureView, JobAction, JobActionAnswer, JobQuery, JobRow, JobView, StageEventView, StageProgress,
    StageView,
};
use lattice_api::page::Page;
use lattice_core::command::job::{self as commands, Asked};
use lattice_core::explain::{Code, NextAction};
use lattice_core::explanation;
use lattice_core::ids::JobId;
use lattice_core::job::{Allowed, Enter, Flow, Job, JobInput, JobStatus, Proof, StageEventStatus, StageName, flow_for};
use lattice_core::site::{MaasSettings, Site, SiteProvider, SiteStatus};
use lattice_core::time::Timestamp;
use lattice_store::{JobFilter, JobSummary, StageRecord};
use strum::VariantArray;

use super::App;
use super::extract::{Committed, Query, Write, page_request, statuses_named};
use super::node_view::{explained, millis};
use super::rows::{find_job, site_of};
use crate::error::{Answer, Refusal};

/// Stage events in a job's view, the newest: what a person reads; the feed has all of them.
const EVENTS: usize = 200;

/// One page, newest first.
pub async fn list(State(app): State<App>, Query(query): Query<JobQuery>) -> Answer<Json<Page<JobRow>>> {
    page(&app, query).await.map(Json)
}

/// One page of the jobs that a query names.
pub async fn page(app: &App, query: JobQuery) -> Answer<Page<JobRow>> {
    let filter = JobFilter {
        statuses: query.status.as_deref().map(statuses).transpose()?.unwrap_or_default(),
        kinds: query.kind.into_iter().collect(),
        node: query.node_id,
        site: query.site_id,
        batch: query.batch_id,
        stage: query.stage,
        failure_class: query.failure_class,
        hostname_prefix: query.hostname_prefix.map(|prefix| prefix.to_ascii_lowercase()),
    };
    let page = app.store.jobs(&filter, &page_request(query.cursor, query.limit)?).await?;
    let items = page.items.into_iter().map(row_of_summary).collect();
    Ok(Page { items, next: page.next.map(|cursor| cursor.to_string()) })
}

/// A status, or an alias: `failed` for both failed ones, `live` for all that are not over.
fn statuses(text: &str) -> Answer<Vec<JobStatus>> {
    statuses_named(text, &[("failed", JobStatus::is_failed), ("live", |status: JobStatus| !status.is_terminal())])
}

/// One job.
pub async fn get(State(app): State<App>, Path(job): Path<String>) -> Answer<Json<JobView>> {
    let job = find_job(&app, &job).await?;
    view(&app, job).await.map(Json)
}

/// Why a job is not moving.
pub async fn explain(State(app): State<App>, Path(job): Path<String>) -> Answer<Json<Explanation>> {
    let job = find_job(&app, &job).await?;
    let now = app.clock.now();
    let site = site_of(&app, job.site).await?;
    Ok(Json(explanation_of(&job, &site.name, now)))
}

/// A job's explanation.
pub fn explanation_of(job: &Job, site: &str, now: Timestamp) -> Explanation {
    let subject = Subject { kind: "job".to_owned(), id: job.id.to_string(), name: job.hostname.clone() };
    explained(explanation::job(job, now), subject, vec![site.to_owned(), job.kind.to_string()], now)
}

/// `POST /jobs/{id}/{action}`.
pub async fn act(
    State(app): State<App>,
    Path((job, action)): Path<(String, String)>,
    write: Write<ActOnJob>,
) -> Answer<Json<JobActionAnswer>> {
    let action = parse_action(&action)?;
    answer(&app, &job, action, write).await.map(Json)
}

/// Both spellings are one action: S5 4.15's short ones, and the action's own name.
pub fn parse_action(text: &str) -> Answer<JobAction> {
    let name = text.replace('-', "_");
    let known = JobAction::VARIANTS.iter().copied();
    known
        .clone()
        .find(|action| {
            action.verb() == text || lattice_api::job::onboarding_segment(*action) == text || action.to_string() == name
        })
        .ok_or_else(|| {
            let verbs: Vec<&str> = known.map(JobAction::verb).collect();
            let given: String = text.chars().take(40).collect();
            Refusal::new(Code::NotFound, format!("a job has no action `{given}`"))
                .because(format!("it has {}", verbs.join(", ")))
                .next(NextAction::Fix { what: "see /api/v1/openapi.json".to_owned() })
        })
}

/// Does what is asked of a job, and shows it.
pub async fn answer(app: &App, job: &str, action: JobAction, write: Write<ActOnJob>) -> Answer<JobActionAnswer> {
    let job = find_job(app, job).await?;
    if write.body.proves.is_some() && action != JobAction::AdoptObservedState {
        return Err(Refusal::malformed("proves", format!("is only for `adopt`, not for `{}`", action.verb())));
    }
    if write.earlier.is_some() {
        return Ok(JobActionAnswer { changed: true, job: view(app, job).await? });
    }
    write.check_version(job.generation)?;
    let asked = Asked {
        action,
        decisions: write.body.decisions.clone(),
        observed: write.body.proves.and_then(|proves| proof(&job, proves)),
    };
    let changed = carry_out(app, &write, &write.body.reason, job.id, &asked).await?;
    let job = find_job(app, &job.id.to_string()).await?;
    Ok(JobActionAnswer { changed, job: view(app, job).await? })
}

/// The operator names what is proven, the provider's last word is the observation: its age counts.
fn proof(job: &Job, proves: StageName) -> Option<Proof> {
    job.observed.as_ref().map(|observed| Proof { proves, at: observed.at })
}

/// Decides and commits an action, and wakes the driver; says whether it changed anything.
pub async fn carry_out<B: Send + Sync>(
    app: &App,
    write: &Write<B>,
    reason: &str,
    job: JobId,
    asked: &Asked,
) -> Answer<bool> {
    let job = find_job(app, &job.to_string()).await?;
    let node = app.store.node(job.node).await?.ok_or_else(|| Refusal::not_found("node", &job.node.to_string()))?;
    let site = site_of(app, job.site).await?;
    let request = write.request(&*app.ids, reason);
    let (job, note) = match settings_now(app, &site, &job, asked.action).await? {
        Some(settings) => commands::renewed(&job, settings).map_or((job, None), |(job, note)| (job, Some(note))),
        None => (job, None),
    };
    let planned = commands::act(&request, &job, &node, &site, asked).map_err(|refused| Refusal::explained(&refused))?;
    let Some(planned) = planned else {
        // Nothing changes, and yet its driver may have been lost: waking a live one does no harm.
        (app.wake)(job.id);
        return Ok(false);
    };
    let mut commit = planned.commit;
    commit.changes.extend(note);
    match write.commit(app, commit).await? {
        Committed::Now | Committed::Earlier(_) => {}
    }
    (app.wake)(job.id);
    Ok(true)
}

/// The settings with which a job begins anew: those that stand now. A profile that is gone or disabled since says nothing
/// any more: the job keeps what it had.
async fn settings_now(app: &App, site: &Site, job: &Job, action: JobAction) -> Answer<Option<MaasSettings>> {
    match action {
        JobAction::Rerun | JobAction::RestartClean => {}
        JobAction::RetryStage
        | JobAction::Resume
        | JobAction::Cancel
        | JobAction::AdoptObservedState
        | JobAction::MarkManualInterventionRequired => return Ok(None),
    }
    let (JobInput::OnboardMaas { settings, .. } | JobInput::ReimageMaas { settings }, SiteProvider::Maas(maas)) =
        (&job.input, &site.provider)
    else {
        return Ok(None);
    };
    let Some(id) = settings.profile_id else { return Ok(Some(MaasSettings::of(maas, None))) };
    let profile = app.store.profile(id).await?.filter(|profile| profile.status == SiteStatus::Active);
    Ok(profile.map(|profile| MaasSettings::of(maas, Some(&profile))))
}

/// A job of a list.
pub fn row_of_summary(summary: JobSummary) -> JobRow {
    JobRow {
        id: summary.id,
        kind: summary.kind,
        node_id: summary.node,
        hostname: summary.hostname,
        site_id: summary.site,
        batch_id: summary.batch,
        status: summary.status,
        stage: summary.stage,
        attempt: summary.attempt,
        failure_class: summary.failure_class,
        error_code: summary.error_code,
        created_at: summary.created_at,
        updated_at: summary.updated_at,
        finished_at: summary.finished_at,
        generation: summary.generation,
    }
}

fn row_of_job(job: &Job) -> JobRow {
    let failure = job.state.failure.as_ref();
    JobRow {
        id: job.id,
        kind: job.kind,
        node_id: job.node,
        hostname: job.hostname.clone(),
        site_id: job.site,
        batch_id: job.batch,
        status: job.state.status,
        stage: job.state.stage,
        attempt: job.state.attempt,
        failure_class: failure.map(|failure| failure.class),
        error_code: failure.map(|failure| failure.error_code.clone()),
        created_at: job.created_at,
        updated_at: job.updated_at,
        finished_at: job.finished_at,
        generation: job.generation,
    }
}

/// A job with its stages.
pub async fn view(app: &App, job: Job) -> Answer<JobView> {
    let now = app.clock.now();
    let site = site_of(app, job.site).await?;
    let node = app.store.node(job.node).await?.ok_or_else(|| Refusal::not_found("node", &job.node.to_string()))?;
    let flow = flow_for(&job.input, &site);
    let names: Vec<StageName> = flow.stages.iter().map(|stage| stage.name).collect();
    let usual = app.store.stage_times(&names, Some(&node.sku)).await?;
    let usual: HashMap<StageName, u64> = usual.into_iter().map(|times| (times.stage, millis(times.p50))).collect();
    let records = app.store.stage_events(job.id).await?;
    let stages = flow.stages.iter().filter_map(|stage| stage_view(&flow, stage.name, &job, &records, &usual, now));
    Ok(JobView {
        stages: stages.collect(),
        events: events(&records),
        actions: actions(&job),
        failure: failure(&job),
        round: job.state.round,
        epoch: job.state.epoch,
        next_at: job.state.next_at,
        wait: job.state.wait.clone(),
        deadline: job.state.deadline,
        limit_at: job.state.limit_at,
        decisions: job.state.decisions.clone(),
        warnings: job.state.warnings.clone(),
        row: row_of_job(&job),
        input: job.input,
        outputs: job.outputs,
        observed: job.observed,
        lease: job.lease,
        requested_by: job.requested_by,
        reason: job.reason,
        correlation_id: job.correlation,
        started_at: job.started_at,
    })
}

/// A failure that stopped the job; the last error of a stage that is being retried is in its events.
fn failure(job: &Job) -> Option<FailureView> {
    let failure = job.state.failure.as_ref().filter(|_| job.state.status.is_failed())?;
    Some(FailureView {
        stage: failure.stage,
        class: failure.class,
        error_code: failure.error_code.clone(),
        message: failure.message.clone(),
        at: failure.at,
        next_actions: vec![failure.next_action.clone().into()],
    })
}

/// The actions that would change the job now.
fn actions(job: &Job) -> Vec<JobAction> {
    let allowed = |action: &JobAction| action.allowed_from(job.state.status) == Allowed::Yes;
    JobAction::VARIANTS.iter().copied().filter(allowed).collect()
}

fn events(records: &[StageRecord]) -> Vec<StageEventView> {
    let newest = &records[records.len().saturating_sub(EVENTS)..];
    let view = |record: &StageRecord| StageEventView {
        at: record.at,
        stage: record.event.stage,
        attempt: record.event.attempt,
        round: record.event.round,
        status: record.event.status,
        message: record.event.message.clone(),
    };
    newest.iter().map(view).collect()
}

/// A stage of a job; none when it lies on a detour that the job did not take.
fn stage_view(
    flow: &Flow,
    stage: StageName,
    job: &Job,
    records: &[StageRecord],
    usual: &HashMap<StageName, u64>,
    now: Timestamp,
) -> Option<StageView> {
    let of_stage: Vec<&StageRecord> = records.iter().filter(|record| record.event.stage == stage).collect();
    let is_detour = flow.stage(stage).is_some_and(|stage| stage.enter != Enter::InSequence);
    let is_here = job.state.stage == stage && !job.state.status.is_terminal();
    if is_detour && of_stage.is_empty() && !is_here {
        return None;
    }
    let last = of_stage.last();
    let progress = progress(job, is_here, last.map(|record| record.event.status));
    let begun = of_stage.iter().rev().find(|record| record.event.status == StageEventStatus::Started);
    let begun = begun.map(|record| record.at).or_else(|| is_here.then_some(job.state.stage_entered_at));
    let end = match progress {
        StageProgress::Running => now,
        StageProgress::Pending
        | StageProgress::Succeeded
        | StageProgress::Skipped
        | StageProgress::Failed
        | StageProgress::Compensated => last.map_or(now, |record| record.at),
    };
    Some(StageView {
        stage,
        progress,
        attempts: of_stage.iter().map(|record| record.event.attempt).max().unwrap_or(0),
        started_at: begun,
        took_ms: begun.map(|begun| millis(end.since(begun))),
        usual_ms: usual.get(&stage).copied(),
        message: last.map(|record| record.event.message.clone()).filter(|message| !message.is_empty()),
    })
}

fn progress(job: &Job, is_here: bool, last: Option<StageEventStatus>) -> StageProgress {
    if is_here {
        return match job.state.status {
            JobStatus::Pending => StageProgress::Pending,
            JobStatus::FailedRetryable | JobStatus::FailedManualIntervention => StageProgress::Failed,
            JobStatus::Running
            | JobStatus::Compensating
            | JobStatus::Completed
            | JobStatus::Cancelled
            | JobStatus::Reconciled => StageProgress::Running,
        };
    }
    match last {
        None => StageProgress::Pending,
        Some(StageEventStatus::Started) => StageProgress::Running,
        Some(StageEventStatus::Succeeded) => StageProgress::Succeeded,
        Some(StageEventStatus::Skipped) => StageProgress::Skipped,
        Some(StageEventStatus::Failed) => StageProgress::Failed,
        Some(StageEventStatus::Compensated) => StageProgress::Compensated,
    }
}
