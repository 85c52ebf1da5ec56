//! Tasks of agents: lists, one, a look at a host on request, and the keys that sign them.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::node::Reason;
use lattice_api::page::Page;
use lattice_api::task::{RetiredKey, TaskQuery, TaskRow, TaskSigningKeys, TaskView};
use lattice_core::agent::task::{HeartbeatCheck, Progress, Task, TaskInput, TaskOwner};
use lattice_core::change::{Change, Resource};
use lattice_core::command::task::{self as tasks, NewTask};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::TaskId;
use lattice_store::TaskFilter;

use super::App;
use super::extract::{Committed, Query, Write, page_request};
use super::rows::find_node;
use crate::error::{Answer, Refusal};
use crate::task_loop::ROTATED;

/// One page of a node's tasks, newest first.
pub async fn of_node(
    State(app): State<App>,
    Path(node): Path<String>,
    Query(query): Query<TaskQuery>,
) -> Answer<Json<Page<TaskRow>>> {
    let node = find_node(&app, &node).await?;
    let page = page_request(query.cursor, query.limit)?;
    let filter = TaskFilter {
        node: Some(node.id),
        statuses: query.status.into_iter().collect(),
        kinds: query.kind.into_iter().collect(),
        ..TaskFilter::default()
    };
    let page = app.store.tasks(&filter, &page).await?;
    let next = page.next.map(|cursor| cursor.to_string());
    Ok(Json(Page { items: page.items.iter().map(row).collect(), next }))
}

/// One task.
pub async fn get(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<TaskView>> {
    Ok(Json(view(&find(&app, &id).await?)))
}

/// Asks the agent of a node how its host is, now.
pub async fn check(State(app): State<App>, Path(node): Path<String>, write: Write<Reason>) -> Answer<Response> {
    let node = find_node(&app, &node).await?;
    let request = write.request(&*app.ids, &write.body.reason);
    let key = format!("check/{}", write.op);
    let new = NewTask {
        node: &node,
        owner: TaskOwner::Request,
        key: key.clone(),
        input: TaskInput::HeartbeatCheck(HeartbeatCheck {}),
        term: None,
    };
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&(app.random)()[..16]);
    let (task, commit) = tasks::issue(&request, new, nonce)?;
    let task = match write.commit(&app, commit).await? {
        Committed::Now => task,
        Committed::Earlier(_) => app.store.task_by_key(&key).await?.ok_or_else(|| unknown(&key))?,
    };
    Ok((StatusCode::ACCEPTED, Json(view(&task))).into_response())
}

/// Withdraws a task that its agent does not have yet.
pub async fn cancel(State(app): State<App>, Path(id): Path<String>, write: Write<Reason>) -> Answer<Json<TaskView>> {
    let task = find(&app, &id).await?;
    write.check_version(task.generation)?;
    let request = write.request(&*app.ids, &write.body.reason);
    if let Some(change) = tasks::cancelled(&request, &task)? {
        write.commit(&app, request.commit(Vec::new(), vec![Change::Task(Box::new(change))])).await?;
    }
    Ok(Json(view(&find(&app, &id).await?)))
}

/// The keys that sign tasks.
pub async fn keys(State(app): State<App>) -> Answer<Json<TaskSigningKeys>> {
    Ok(Json(signing_keys(&app)))
}

/// Signs with a new key from now on; the one before is trusted until its last task is over.
pub async fn rotate_keys(State(app): State<App>, write: Write<Reason>) -> Answer<Json<TaskSigningKeys>> {
    if write.earlier.is_some() {
        return Ok(Json(signing_keys(&app)));
    }
    let last = app.store.last_task_deadline().await?.unwrap_or(write.at);
    let key = app.task_keys.rotate(&*app.secrets, (write.at, last), (app.random)()).await.map_err(|error| {
        tracing::warn!(%error, "the key that signs tasks was not replaced");
        Refusal::new(Code::SecretStore, error.to_string())
    })?;
    let note = Change::Note {
        name: ROTATED.to_owned(),
        resource: Resource::System("task-signing".to_owned()),
        detail: format!("tasks are signed by key {}", key.key_id),
    };
    let request = write.request(&*app.ids, &write.body.reason);
    write.commit(&app, request.commit(Vec::new(), vec![note])).await?;
    Ok(Json(signing_keys(&app)))
}

fn signing_keys(app: &App) -> TaskSigningKeys {
    let retired = app.task_keys.retired().into_iter().map(|one| RetiredKey { key: one.key, until: one.until });
    TaskSigningKeys { current: app.task_keys.public().remove(0), retired: retired.collect() }
}

async fn find(app: &App, text: &str) -> Answer<Task> {
    let found = match text.parse::<TaskId>() {
        Ok(id) => app.store.task(id).await?,
        Err(_) => None,
    };
    found.ok_or_else(|| unknown(text))
}

fn unknown(text: &str) -> Refusal {
    let given: String = text.chars().take(80).collect();
    Refusal::new(Code::NotFound, format!("no task is `{given}`"))
        .next(NextAction::Fix { what: "`lattice node tasks NODE` lists the tasks of a node with their ids".to_owned() })
}

fn row(task: &Task) -> TaskRow {
    let failed = match task.report.as_ref().map(|report| &report.progress) {
        Some(Progress::Failed { code, detail, .. }) => Some((*code, detail.clone())),
        Some(Progress::Running | Progress::Succeeded { .. }) | None => None,
    };
    TaskRow {
        id: task.id,
        node_id: task.node,
        kind: task.input.kind(),
        status: task.status,
        owner: task.owner,
        allocation: task.allocation(),
        issued_at: task.issued_at,
        expires_at: task.expires_at,
        delivered_at: task.delivered_at,
        started_at: task.started_at,
        finished_at: task.finished_at,
        error_code: failed.as_ref().map(|(code, _)| *code),
        error: failed.map(|(_, detail)| detail),
    }
}

fn view(task: &Task) -> TaskView {
    let mut input = serde_json::to_value(&task.input).unwrap_or_default();
    if let Some(env) = input.pointer_mut("/input/env").and_then(|env| env.as_object_mut()) {
        env.values_mut().for_each(|value| *value = "…".into());
    }
    TaskView {
        row: row(task),
        key: task.key.clone(),
        input: input.pointer("/input").cloned().unwrap_or_default(),
        finish_by: task.finish_by,
        requested_by: task.requested_by.name.clone(),
        report: task.report.clone(),
    }
}
