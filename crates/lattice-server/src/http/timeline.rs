//! What happened to a node: its history, and everything merged.

use axum::Json;
use axum::extract::{Path, State};
use lattice_api::node::{HistoryEntry, Timeline, TimelineEntry, TimelineSource};
use lattice_api::page::{Page, PageQuery};
use lattice_core::agent::task::{Progress, Task, TaskStatus};
use lattice_core::change::Resource;
use lattice_core::ids::NodeId;
use lattice_core::job::StageEventStatus;
use lattice_store::{JobFilter, PageRequest, TaskFilter};

use super::App;
use super::extract::{Query, page_request};
use super::rows::find_node;
use crate::error::Answer;

/// Entries of a timeline: what a person scrolls through; the parts have pages of their own.
const TIMELINE: usize = 300;

/// Tasks that are shown in a timeline, the newest.
const TASKS: usize = 50;

/// Jobs whose stages are shown in a timeline, the newest.
const JOBS: usize = 10;

/// One page of a node's history, newest first.
pub async fn history(
    State(app): State<App>,
    Path(node): Path<String>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<HistoryEntry>>> {
    let node = find_node(&app, &node).await?;
    let page = app.store.history(node.id, &page_request(query.cursor, query.limit)?).await?;
    let items = page
        .items
        .into_iter()
        .map(|entry| HistoryEntry {
            seq: entry.generation.0,
            at: entry.row.at,
            action: entry.row.action,
            cause: entry.row.cause,
            before: entry.row.before,
            after: entry.row.after,
            actor: entry.row.actor,
            detail: entry.row.detail,
        })
        .collect();
    Ok(Json(Page { items, next: page.next.map(|cursor| cursor.to_string()) }))
}

/// Everything that happened to a node, newest first.
pub async fn timeline(State(app): State<App>, Path(node): Path<String>) -> Answer<Json<Timeline>> {
    let node = find_node(&app, &node).await?;
    let mut entries = of_node(&app, node.id).await?;
    entries.extend(of_jobs(&app, node.id).await?);
    entries.extend(of_tasks(&app, node.id).await?);
    entries.extend(refusals(&app, node.id).await?);
    if let Some(state) = app.store.provider_state(node.id).await? {
        entries.push(TimelineEntry {
            at: state.observed_at,
            source: TimelineSource::Provider,
            title: format!("{} is {}, power {}", state.provider_ref, state.status, state.power),
            detail: state.addresses.join(", "),
            actor: "provider".to_owned(),
            job_id: None,
            bad: false,
        });
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    entries.truncate(TIMELINE);
    Ok(Json(Timeline { entries }))
}

async fn of_node(app: &App, node: NodeId) -> Answer<Vec<TimelineEntry>> {
    let page = app.store.history(node, &PageRequest::first(TIMELINE)).await?;
    let entry = |row: lattice_core::change::HistoryRow| {
        let moved = row.before.filter(|before| *before != row.after);
        let title = match moved {
            Some(before) => format!("{before} → {}", row.after),
            None => row.action.to_string().replace('_', " "),
        };
        let cause = row.cause.replace('_', " ");
        let detail = if row.detail.is_empty() { cause } else { format!("{cause}: {}", row.detail) };
        TimelineEntry {
            at: row.at,
            source: TimelineSource::Node,
            title,
            detail,
            actor: row.actor,
            job_id: None,
            bad: false,
        }
    };
    Ok(page.items.into_iter().map(|item| entry(item.row)).collect())
}

async fn of_jobs(app: &App, node: NodeId) -> Answer<Vec<TimelineEntry>> {
    let filter = JobFilter { node: Some(node), ..JobFilter::default() };
    let jobs = app.store.jobs(&filter, &PageRequest::first(JOBS)).await?;
    let mut entries = Vec::new();
    for job in jobs.items {
        for record in app.store.stage_events(job.id).await? {
            let event = record.event;
            let attempt = if event.attempt > 1 { format!(", attempt {}", event.attempt) } else { String::new() };
            entries.push(TimelineEntry {
                at: record.at,
                source: TimelineSource::Job,
                title: format!("{} {}: {}{attempt}", job.kind, event.stage, event.status),
                detail: event.message,
                actor: "jobs".to_owned(),
                job_id: Some(job.id),
                bad: event.status == StageEventStatus::Failed,
            });
        }
    }
    Ok(entries)
}

/// One line for each task of its agent: how it ended, or where it stands.
async fn of_tasks(app: &App, node: NodeId) -> Answer<Vec<TimelineEntry>> {
    let filter = TaskFilter { node: Some(node), ..TaskFilter::default() };
    let tasks = app.store.tasks(&filter, &PageRequest::first(TASKS)).await?;
    let entry = |task: Task| {
        let detail = match task.report.map(|report| report.progress) {
            Some(Progress::Failed { code, detail, .. }) => format!("{code}: {detail}"),
            Some(Progress::Running | Progress::Succeeded { .. }) | None => String::new(),
        };
        TimelineEntry {
            at: task.updated_at,
            source: TimelineSource::Task,
            title: format!("{} {}", task.input.kind(), task.status),
            detail,
            actor: task.requested_by.name,
            job_id: task.owner.job(),
            bad: matches!(task.status, TaskStatus::Failed | TaskStatus::Expired),
        }
    };
    Ok(tasks.items.into_iter().map(entry).collect())
}

/// Changes stand in the history already; of the audit only what was refused adds something.
async fn refusals(app: &App, node: NodeId) -> Answer<Vec<TimelineEntry>> {
    let page = app.store.audit(Some(&Resource::Node(node)), &PageRequest::first(TIMELINE)).await?;
    let refused = page.items.into_iter().filter(|entry| entry.row.result == "refused");
    let entry = |entry: lattice_store::AuditEntry| TimelineEntry {
        at: entry.row.at,
        source: TimelineSource::Audit,
        title: format!("{} refused", entry.row.action),
        detail: entry.row.after.get("detail").and_then(|detail| detail.as_str()).unwrap_or_default().to_owned(),
        actor: entry.row.actor,
        job_id: None,
        bad: true,
    };
    Ok(refused.map(entry).collect())
}
