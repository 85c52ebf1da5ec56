//! Batches of onboardings: accepted whole, shown with their progress, paused, resumed and cancelled. spec: S5 4.1, 4.4

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::batch::{
    ActOnBatch, BatchAccepted, BatchAction, BatchActionAnswer, BatchLogLine, BatchLogQuery, BatchOnboarding,
    BatchQuery, BatchRow, BatchStatus, BatchView, Children, CreateBatch, TimeLeft,
};
use lattice_api::error::FieldError;
use lattice_api::explanation::{Explanation, Subject};
use lattice_api::job::JobRow;
use lattice_api::page::Page;
use lattice_core::batch::admission::{Asking, Held, SiteRoom, admit, batch_limit, parallel};
use lattice_core::batch::estimate::{self, Standing, Usual};
use lattice_core::batch::{Batch, status};
use lattice_core::command::batch::{self as commands, BatchRefused, InUse, NewBatch, NewMachine, WrongField};
use lattice_core::explain::{Code, NextAction};
use lattice_core::explanation::{self, BatchContext, Holder};
use lattice_core::ids::{BatchId, SiteId};
use lattice_core::job::{Enter, JobStatus, StageName};
use lattice_core::site::Site;
use lattice_store::{BatchFilter, ChildCount, JobFilter, JobSummary, PAGE_MAX, PageRequest};
use strum::VariantArray;

use super::App;
use super::extract::{Committed, Earlier, Query, Write, page_request, statuses_named};
use super::jobs::row_of_summary;
use super::node_view::{explained, millis};
use super::nodes::{site_named, sku_named};
use super::onboardings::profile_of;
use super::rows::{find_batch, site_names, site_of};
use crate::error::{Answer, Refusal};

/// Children that a batch's view names: more than a person reads before asking for the list.
const NAMED: usize = 50;

/// Wrong machines that the facts of a refusal name; its `errors` name all.
const FACTS: usize = 10;

/// One page, newest first.
pub async fn list(State(app): State<App>, Query(query): Query<BatchQuery>) -> Answer<Json<Page<BatchRow>>> {
    page(&app, query).await.map(Json)
}

/// One page of the batches that a query names.
pub async fn page(app: &App, query: BatchQuery) -> Answer<Page<BatchRow>> {
    let statuses = query.status.as_deref().map(statuses).transpose()?.unwrap_or_default();
    let filter = BatchFilter { statuses, site: query.site_id };
    let page = app.store.batches(&filter, &page_request(query.cursor, query.limit)?).await?;
    let ids: Vec<BatchId> = page.items.iter().map(|batch| batch.id).collect();
    let children = app.store.children_of(&ids).await?;
    let sites = site_names(app).await?;
    let items = page.items.into_iter().map(|batch| {
        let children = children.get(&batch.id).copied().unwrap_or_default();
        let site = sites.get(&batch.site).cloned().unwrap_or_default();
        row(batch, site, children)
    });
    Ok(Page { items: items.collect(), next: page.next.map(|cursor| cursor.to_string()) })
}

/// A status, or the alias `live` for all that are not over.
fn statuses(text: &str) -> Answer<Vec<BatchStatus>> {
    statuses_named(text, &[("live", |status: BatchStatus| !status.is_terminal())])
}

/// Accepts a batch: every machine is checked first, then all are created in one commit. spec: S5 4.1
pub async fn create(State(app): State<App>, write: Write<CreateBatch>) -> Answer<Response> {
    if let Some(earlier) = &write.earlier {
        return repeated(&app, earlier, &write.body).await;
    }
    let body = &write.body;
    let site = site_named(&app, "site_id", &body.site_id).await?;
    let profile = profile_of(&app, &site, "profile_id", body.profile_id.as_deref()).await?;
    let sku = sku_named(&app, "sku_id", &body.sku_id).await?;
    let machine = |given: &lattice_api::batch::BatchMachine| NewMachine {
        hostname: given.hostname.clone(),
        ipmi_ip: given.ipmi_ip.clone(),
    };
    let new = NewBatch {
        site: &site,
        sku: &sku,
        profile: profile.as_ref(),
        class: body.class.unwrap_or_default(),
        max_parallel: body.max_parallel,
        machines: body.nodes.iter().map(machine).collect(),
    };
    let in_use = in_use(&app, site.id, body).await?;
    let request = write.request(&*app.ids, &body.reason);
    let planned = commands::create(&request, &new, &in_use).map_err(|refused| refusal(refused, body.nodes.len()))?;
    let accepted = BatchAccepted {
        batch_id: planned.batch,
        onboardings: planned
            .children
            .into_iter()
            .map(|child| BatchOnboarding { hostname: child.hostname, onboarding_id: child.job, node_id: child.node })
            .collect(),
    };
    match write.commit(&app, planned.commit).await? {
        Committed::Now => Ok((StatusCode::ACCEPTED, Json(accepted)).into_response()),
        Committed::Earlier(earlier) => repeated(&app, &earlier, body).await,
    }
}

/// What live nodes have of the names and addresses of a request, as they would be stored.
async fn in_use(app: &App, site: SiteId, body: &CreateBatch) -> Answer<InUse> {
    let hostnames: Vec<String> = body.nodes.iter().map(|node| node.hostname.to_ascii_lowercase()).collect();
    let address = |text: &String| text.parse::<std::net::IpAddr>().ok().map(|address| address.to_string());
    let addresses: Vec<String> = body.nodes.iter().filter_map(|node| node.ipmi_ip.as_ref().and_then(address)).collect();
    Ok(app.store.in_use(site, &hostnames, &addresses).await?)
}

fn refusal(refused: BatchRefused, machines: usize) -> Refusal {
    let wrong = match refused {
        BatchRefused::Whole(refused) => return refused.into(),
        BatchRefused::Fields(wrong) => wrong,
    };
    let code = if wrong.iter().all(|field| field.taken) { Code::Taken } else { Code::Invalid };
    let lines = wrong.iter().take(FACTS).map(|field| format!("{}: {}", field.field, field.problem));
    let mut refusal = Refusal::new(
        code,
        format!("{} fields of {machines} machines cannot be accepted; nothing was created", wrong.len()),
    );
    for line in lines {
        refusal = refusal.because(line);
    }
    if wrong.len() > FACTS {
        refusal = refusal.because(format!("{} more: see `errors`", wrong.len() - FACTS));
    }
    let error = |field: WrongField| FieldError { field: field.field, detail: field.problem };
    refusal
        .errors(wrong.into_iter().map(error).collect())
        .next(NextAction::Fix { what: "correct the machines that `errors` names, or leave them out".to_owned() })
}

/// The answer of the first request, drawn from its rows.
async fn repeated(app: &App, earlier: &Earlier, body: &CreateBatch) -> Answer<Response> {
    let id = earlier.other.as_ref().filter(|(kind, _)| kind == "batch").and_then(|(_, id)| id.parse().ok());
    let Some(batch) = id else {
        return Err(Refusal::new(Code::KeyReused, "the idempotency key was used for something else"));
    };
    let filter = JobFilter { batch: Some(batch), ..JobFilter::default() };
    let children = app.store.jobs(&filter, &PageRequest::first(PAGE_MAX)).await?.items;
    let places: HashMap<String, usize> =
        body.nodes.iter().enumerate().map(|(place, node)| (node.hostname.to_ascii_lowercase(), place)).collect();
    let mut onboardings: Vec<BatchOnboarding> = children
        .into_iter()
        .map(|child| BatchOnboarding { hostname: child.hostname, onboarding_id: child.id, node_id: child.node })
        .collect();
    onboardings.sort_by_key(|child| places.get(&child.hostname).copied());
    Ok((StatusCode::ACCEPTED, Json(BatchAccepted { batch_id: batch, onboardings })).into_response())
}

/// One batch with its progress.
pub async fn get(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<BatchView>> {
    let batch = find_batch(&app, &id).await?;
    view(&app, batch).await.map(Json)
}

/// A batch with its progress.
pub async fn view(app: &App, batch: Batch) -> Answer<BatchView> {
    let site = site_of(app, batch.site).await?;
    let counts = app.store.children_by_stage(batch.id).await?;
    let children = Children::count(counts.iter().map(|count| (count.status, count.count)));
    let limits = parallel(&site);
    let limit = batch_limit(&batch, limits).min(u64::from(limits.site));
    let now_status = status(batch.control, &children);
    let allowed = |action: &BatchAction| action.allowed(batch.control, now_status) == Some(true);
    Ok(BatchView {
        limit,
        control_by: batch.control_by.clone(),
        control_since: batch.control_since,
        time_left: time_left(app, &site, &batch, &counts, limit).await?,
        stopped: rows_of(newest(app, batch.id, &STOPPED, NAMED).await?),
        moving: rows_of(newest(app, batch.id, &MOVING, NAMED).await?),
        actions: BatchAction::VARIANTS.iter().copied().filter(allowed).collect(),
        correlation_id: batch.correlation,
        row: row(batch, site.name, children),
    })
}

const STOPPED: [JobStatus; 2] = [JobStatus::FailedManualIntervention, JobStatus::FailedRetryable];
const MOVING: [JobStatus; 2] = [JobStatus::Running, JobStatus::Compensating];

async fn newest(app: &App, batch: BatchId, statuses: &[JobStatus], limit: usize) -> Answer<Vec<JobSummary>> {
    let filter = JobFilter { statuses: statuses.to_vec(), batch: Some(batch), ..JobFilter::default() };
    Ok(app.store.jobs(&filter, &PageRequest::first(limit)).await?.items)
}

fn rows_of(jobs: Vec<JobSummary>) -> Vec<JobRow> {
    jobs.into_iter().map(row_of_summary).collect()
}

fn row(batch: Batch, site: String, children: Children) -> BatchRow {
    BatchRow {
        id: batch.id,
        site_id: batch.site,
        site,
        sku: batch.sku,
        profile: batch.profile,
        status: status(batch.control, &children),
        control: batch.control,
        machines: batch.machines,
        children,
        requested_by: batch.requested_by,
        reason: batch.reason,
        created_at: batch.created_at,
        started_at: batch.started_at,
        finished_at: batch.finished_at,
        updated_at: batch.updated_at,
        generation: batch.generation,
    }
}

/// How long those take that run or will be started; none when there are none.
async fn time_left(
    app: &App,
    site: &Site,
    batch: &Batch,
    counts: &[ChildCount],
    parallel: u64,
) -> Answer<Option<TimeLeft>> {
    let goes_on = |status: JobStatus| match status {
        JobStatus::Pending | JobStatus::Running => true,
        JobStatus::Compensating
        | JobStatus::Completed
        | JobStatus::Reconciled
        | JobStatus::FailedRetryable
        | JobStatus::FailedManualIntervention
        | JobStatus::Cancelled => false,
    };
    let standing: Vec<Standing> = counts
        .iter()
        .filter(|count| goes_on(count.status))
        .map(|count| Standing { stage: count.stage, children: count.count })
        .collect();
    let Some(flow) = estimate::flow_at(site).filter(|_| !standing.is_empty()) else { return Ok(None) };
    let names: Vec<StageName> =
        flow.stages.iter().filter(|stage| stage.enter == Enter::InSequence).map(|stage| stage.name).collect();
    let mut usual: HashMap<StageName, Usual> = HashMap::new();
    for times in app.store.stage_times(&names, Some(&batch.sku)).await? {
        usual.insert(times.stage, Usual { p50: times.p50, p95: times.p95 });
    }
    let unknown: Vec<StageName> = names.into_iter().filter(|name| !usual.contains_key(name)).collect();
    for stage in app.store.skipped_stages(&unknown).await? {
        usual.insert(stage, Usual::NONE);
    }
    Ok(Some(match estimate::time_left(&flow, &standing, &usual, parallel) {
        estimate::TimeLeft::Known(left) => {
            TimeLeft { p50_ms: Some(millis(left.p50)), p95_ms: Some(millis(left.p95)), not_known: Vec::new() }
        }
        estimate::TimeLeft::NotKnown(stages) => TimeLeft { p50_ms: None, p95_ms: None, not_known: stages },
    }))
}

/// Why a batch is not moving.
pub async fn explain(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<Explanation>> {
    let batch = find_batch(&app, &id).await?;
    explanation_of(&app, &batch).await.map(Json)
}

/// A batch's explanation: which permit, who holds it, what comes next.
pub async fn explanation_of(app: &App, batch: &Batch) -> Answer<Explanation> {
    let now = app.clock.now();
    let site = site_of(app, batch.site).await?;
    let (children, held, running) = permits(app, &site, batch).await?;
    let mut holders: Vec<Holder> =
        newest(app, batch.id, &MOVING, PAGE_MAX).await?.into_iter().map(holder_of_permit).collect();
    holders.sort_by_key(|holder| holder.since);
    let stopped = newest(app, batch.id, &STOPPED, NAMED).await?.into_iter().map(holder_stopped).collect();
    let next = app.store.next_children(batch.id, 1).await?.pop().map(|job| job.hostname);
    let context = BatchContext {
        children,
        held,
        site: &site.name,
        holders,
        others: running.saturating_sub(children.moving()),
        stopped,
        next,
    };
    let said = explanation::batch(batch, &context, now);
    let name = format!("batch {}", batch.id);
    let subject = Subject { kind: "batch".to_owned(), id: batch.id.to_string(), name };
    Ok(explained(said, subject, vec![site.name.clone(), batch.sku.clone()], now))
}

/// The batch's children, what holds those back that are pending, and how many onboardings run at its site.
async fn permits(app: &App, site: &Site, batch: &Batch) -> Answer<(Children, Option<Held>, u64)> {
    let mut live = app.store.live_batches(None).await?;
    live.retain(|other| other.site == batch.site && other.id != batch.id);
    live.push(batch.clone());
    live.sort_by_key(|batch| batch.id);
    let ids: Vec<BatchId> = live.iter().map(|batch| batch.id).collect();
    let counts = app.store.children_of(&ids).await?;
    let of = |batch: &Batch| counts.get(&batch.id).copied().unwrap_or_default();
    let running = app.store.moving_onboardings(site.id).await?;
    let room = SiteRoom { status: site.status, parallel: parallel(site), running };
    let asking: Vec<Asking<'_>> = live.iter().map(|batch| Asking { batch, children: of(batch) }).collect();
    let held = admit(room, &asking).into_iter().find(|one| one.batch == batch.id).and_then(|one| one.held);
    Ok((of(batch), held, running))
}

fn holder_of_permit(job: JobSummary) -> Holder {
    Holder {
        hostname: job.hostname,
        job: job.id,
        stage: job.stage,
        error_code: None,
        since: job.started_at.unwrap_or(job.created_at),
    }
}

fn holder_stopped(job: JobSummary) -> Holder {
    Holder { hostname: job.hostname, job: job.id, stage: job.stage, error_code: job.error_code, since: job.updated_at }
}

/// What happened in the stages of its machines, newest first. spec: S5 4.4 "per-node logs"
pub async fn log(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<BatchLogQuery>,
) -> Answer<Json<Page<BatchLogLine>>> {
    let batch = find_batch(&app, &id).await?;
    let hostname = query.hostname.map(|name| name.to_ascii_lowercase());
    let page = page_request(query.cursor, query.limit)?;
    let page = app.store.batch_log(batch.id, hostname.as_deref(), &page).await?;
    let items = page.items.into_iter().map(|line| BatchLogLine {
        at: line.record.at,
        hostname: line.hostname,
        onboarding_id: line.job,
        stage: line.record.event.stage,
        attempt: line.record.event.attempt,
        status: line.record.event.status,
        message: line.record.event.message,
    });
    Ok(Json(Page { items: items.collect(), next: page.next.map(|cursor| cursor.to_string()) }))
}

/// `POST /onboardings/batch/{id}/{action}`: pause, resume, cancel.
pub async fn act(
    State(app): State<App>,
    Path((id, action)): Path<(String, String)>,
    write: Write<ActOnBatch>,
) -> Answer<Json<BatchActionAnswer>> {
    let action: BatchAction = action.parse().map_err(|_| {
        let known: Vec<String> = BatchAction::VARIANTS.iter().map(ToString::to_string).collect();
        let given: String = action.chars().take(40).collect();
        Refusal::new(Code::NotFound, format!("a batch has no action `{given}`"))
            .because(format!("it has {}", known.join(", ")))
            .next(NextAction::Fix { what: "see /api/v1/openapi.json".to_owned() })
    })?;
    let batch = find_batch(&app, &id).await?;
    let mut changed = write.earlier.is_some();
    if write.earlier.is_none() {
        write.check_version(batch.generation)?;
        let children = app.store.children_of(&[batch.id]).await?.get(&batch.id).copied().unwrap_or_default();
        let request = write.request(&*app.ids, &write.body.reason);
        if let Some(commit) = commands::control(&request, &batch, &children, action)? {
            write.commit(&app, commit).await?;
            changed = true;
        }
    }
    let batch = view(&app, find_batch(&app, &id).await?).await?;
    Ok(Json(BatchActionAnswer { changed, batch }))
}
