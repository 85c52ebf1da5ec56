//! What agents are asked to do, as people see it.

use clap::Args;
use lattice_api::client::{get, post};
use lattice_api::node::Reason;
use lattice_api::page::Page;
use lattice_api::task::{TaskOwner, TaskQuery, TaskRow, TaskView};

use super::actions::Plain;
use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown, facts};
use crate::paging::Paging;
use crate::session::Session;
use crate::vocabulary::word;

/// Which tasks.
#[derive(Debug, Args)]
pub struct List {
    /// Hostname or id
    node: String,
    /// Only tasks in this status: pending, delivered, running, succeeded, failed, expired or cancelled
    #[arg(long)]
    status: Option<String>,
    /// Only tasks of this kind: node.drain, allocation.start …
    #[arg(long)]
    kind: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// One task.
#[derive(Debug, Args)]
pub struct Named {
    /// Its id
    task: String,
    /// Withdraw it, if its agent does not have it yet
    #[arg(long)]
    cancel: bool,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// Lists the tasks of a node.
///
/// # Errors
/// Refused.
pub async fn list(list: List, session: &Session) -> Result<(), Failure> {
    let page = list.page.query();
    let query = TaskQuery {
        cursor: page.cursor,
        limit: page.limit,
        status: list.status.map(|text| word("status", &text)).transpose()?,
        kind: list.kind.map(|text| word("kind", &text)).transpose()?,
    };
    session.show::<Page<TaskRow>>(get(&["nodes", &list.node, "tasks"]).query(&query)).await
}

/// Shows a task, or withdraws it.
///
/// # Errors
/// Refused.
pub async fn show(named: Named, session: &Session) -> Result<(), Failure> {
    if named.cancel {
        let reason = Reason { reason: named.reason };
        return session.show::<TaskView>(post(&["tasks", &named.task, "cancel"]).json(&reason)).await;
    }
    session.show::<TaskView>(get(&["tasks", &named.task])).await
}

/// Asks a node's agent how its host is.
///
/// # Errors
/// Refused.
pub async fn check(plain: Plain, session: &Session) -> Result<(), Failure> {
    let reason = Reason { reason: plain.reason };
    session.show::<TaskView>(post(&["nodes", &plain.node, "check"]).json(&reason)).await
}

impl Row for TaskRow {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["TASK", "KIND", "STATUS", "AGE", "FOR"];
        if wide {
            head.extend(["ALLOCATION", "DELIVERED", "STARTED", "FINISHED"]);
        }
        head.push("ERROR");
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let mut cells = vec![
            self.id.to_string(),
            self.kind.to_string(),
            self.status.to_string(),
            look.age(self.issued_at.as_millis()),
            owner(&self.owner),
        ];
        if look.wide {
            cells.extend([
                text(self.allocation),
                text(self.delivered_at),
                text(self.started_at),
                text(self.finished_at),
            ]);
        }
        cells.push(error(self));
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn owner(owner: &TaskOwner) -> String {
    match owner {
        TaskOwner::Job { job, stage } => format!("job {job} {stage}"),
        TaskOwner::Allocation { allocation } => format!("allocation {allocation}"),
        TaskOwner::Request => "a request".to_owned(),
    }
}

fn error(row: &TaskRow) -> String {
    let code = row.error_code.map(|code| code.to_string());
    [code, row.error.clone()].into_iter().flatten().collect::<Vec<_>>().join(": ")
}

impl Shown for TaskView {
    fn text(&self, look: Look) -> String {
        let row = &self.row;
        let ago = |millis: i64| format!("{} ago", look.age(millis));
        let mut text = format!("{}  {}  {}\n", row.id, row.kind, row.status);
        text.push_str(&facts(&[
            ("node", row.node_id.to_string()),
            ("for", owner(&row.owner)),
            ("requested by", self.requested_by.clone()),
            ("issued", ago(row.issued_at.as_millis())),
            ("delivered", row.delivered_at.map(|at| ago(at.as_millis())).unwrap_or_default()),
            ("started", row.started_at.map(|at| ago(at.as_millis())).unwrap_or_default()),
            ("finished", row.finished_at.map(|at| ago(at.as_millis())).unwrap_or_default()),
            ("begun before", row.expires_at.to_string()),
            ("given up at", self.finish_by.to_string()),
            ("error", error(row)),
            ("key", self.key.clone()),
        ]));
        text.push_str(&section("asked", Some(&self.input)));
        let report = self.report.as_ref().and_then(|report| serde_json::to_value(report).ok());
        text.push_str(&section("said", report.as_ref()));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.row.id.to_string()]
    }
}

fn section(title: &str, value: Option<&serde_json::Value>) -> String {
    let filled = value.filter(|value| value.as_object().is_none_or(|object| !object.is_empty()));
    let text = filled.and_then(|value| serde_yaml_ng::to_string(value).ok());
    text.map(|text| format!("\n{title}\n{}", output::harmless(&indented(&text)))).unwrap_or_default()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
