//! Handing tasks to agents and taking their reports.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use lattice_api::agent::{ReportTaken, WaitingTasks};
use lattice_core::agent::task::{Envelope, TaskKey, TaskReport};
use lattice_core::ids::{NodeId, TaskId};
use lattice_core::time::Timestamp;
use tracing::{debug, warn};

use super::desk::Bell;
use super::refusal::Refusal;
use super::request::{Sent, json, no_content, read_json};
use super::service::AgentService;

impl AgentService {
    /// What waits for a node now, or within `wait`.
    pub(super) async fn fetch(&self, node: NodeId, bell: &Bell, wait: Duration) -> Vec<Envelope> {
        if !bell.waits() {
            self.park(wait, bell).await;
        }
        match bell.waits() {
            true => Box::pin(self.take(node)).await,
            false => Vec::new(),
        }
    }

    /// A heartbeat is answered even if the store is not: the next one asks again.
    async fn take(&self, node: NodeId) -> Vec<Envelope> {
        self.parts.desk.taken(node);
        match self.parts.events.tasks(node, self.now()).await {
            Ok(handed) => {
                if handed.more {
                    self.parts.desk.ring(node);
                }
                handed.envelopes
            }
            Err(problem) => {
                warn!(node_id = %node, error_code = problem.code, "tasks not handed over");
                self.parts.desk.ring(node);
                Vec::new()
            }
        }
    }

    /// The signing keys, if the agent does not know them from this connection.
    pub(super) fn keys_for(&self, bell: &Bell) -> Vec<TaskKey> {
        match bell.tells_keys(self.parts.task_keys.version()) {
            true => self.parts.task_keys.public(),
            false => Vec::new(),
        }
    }

    /// `GET …/tasks/wait`
    pub(super) async fn wait_for_tasks(&self, node: NodeId, bell: &Bell, wait: Duration) -> Response<Full<Bytes>> {
        let tasks = self.fetch(node, bell, wait).await;
        if tasks.is_empty() {
            return no_content();
        }
        json(StatusCode::OK, &WaitingTasks { tasks, task_signing_keys: self.parts.task_keys.public() })
    }

    /// `POST …/tasks/{task}/report`
    pub(super) async fn reported<B: Sent>(
        &self,
        (node, task): (NodeId, TaskId),
        request: Request<B>,
        at: Timestamp,
    ) -> Result<Response<Full<Bytes>>, Refusal> {
        let report: TaskReport = read_json(request).await?;
        if report.task != task {
            return Err(Refusal::malformed(format!("`task` is {}, the path names {task}", report.task)));
        }
        let changed = self.parts.events.task_reported(node, report, at).await?;
        debug!(node_id = %node, task_id = %task, changed, "task reported");
        Ok(json(StatusCode::OK, &ReportTaken { changed }))
    }
}
