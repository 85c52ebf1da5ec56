//! Requests that are accepted and done later: 202 with a task monitor.

use std::time::Duration;

use http::{Method, StatusCode};

use super::body::Task;
use super::client::{Answer, RedfishClient, read};
use crate::error::{ErrorKind, ProviderError};
use crate::message;

/// Pause between two looks at a task when the service names none.
const PAUSE: Duration = Duration::from_secs(2);
/// Longest time in which a short task, such as a reset, must end; a job looks again after that.
const SHORT: Duration = Duration::from_secs(60);

/// Where a task stands.
pub(super) enum TaskSeen {
    Done,
    Running { look_again: Duration },
}

impl RedfishClient {
    /// Waits until what was accepted is done.
    ///
    /// # Errors
    /// [`PowerFailed`](ErrorKind::PowerFailed) with the service's words when the task failed;
    /// [`Ambiguous`](ErrorKind::Ambiguous) when it did not end in time.
    pub(super) async fn finished(&self, call: &str, answer: &Answer) -> Result<(), ProviderError> {
        if answer.status != StatusCode::ACCEPTED {
            return Ok(());
        }
        // Without a monitor there is nothing to watch: what it does is read elsewhere.
        let Some(monitor) = answer.location() else { return Ok(()) };
        let mut waited = answer.retry_after().unwrap_or(PAUSE);
        let mut pause = waited;
        while waited <= SHORT {
            tokio::time::sleep(pause).await;
            match self.task(call, &monitor).await? {
                TaskSeen::Done => return Ok(()),
                TaskSeen::Running { look_again } => pause = look_again,
            }
            waited += pause;
        }
        let detail = format!("its task did not end within {} s", SHORT.as_secs());
        Err(ProviderError::new(format!("redfish {call}"), ErrorKind::Ambiguous { detail }))
    }

    /// Looks at a task once. A monitor goes away with its task's result.
    pub(super) async fn task(&self, call: &str, monitor: &str) -> Result<TaskSeen, ProviderError> {
        match self.known_task(call, monitor).await {
            Err(error) if error.is_not_found() => Ok(TaskSeen::Done),
            known => known,
        }
    }

    /// Looks at a task once, where its end must be seen: one that is gone is an error.
    pub(super) async fn known_task(&self, call: &str, monitor: &str) -> Result<TaskSeen, ProviderError> {
        let answer = self.send(call, Method::GET, monitor, None, None).await?;
        let look_again = answer.retry_after().unwrap_or(PAUSE).max(Duration::from_millis(100));
        if answer.body.is_empty() {
            return Ok(if answer.status == StatusCode::ACCEPTED {
                TaskSeen::Running { look_again }
            } else {
                TaskSeen::Done
            });
        }
        let task: Task = read(call, &answer.body)?;
        match (task.task_state.as_str(), task.task_status.as_str()) {
            ("Exception" | "Killed" | "Cancelled" | "Interrupted", _) | ("Completed", "Critical") => {
                let words: Vec<_> = task.messages.iter().map(|message| message.message.as_str()).collect();
                let words = format!("task {}: {}", task.task_state, words.join("; "));
                let message = message::bounded(&words);
                Err(ProviderError::new(format!("redfish {call}"), ErrorKind::PowerFailed { message }))
            }
            ("Completed", _) => Ok(TaskSeen::Done),
            // The monitor answers with the result of the request once it is there.
            ("", _) if answer.status != StatusCode::ACCEPTED => Ok(TaskSeen::Done),
            (_, _) => Ok(TaskSeen::Running { look_again }),
        }
    }
}
