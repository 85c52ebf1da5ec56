//! Background tasks that end when they are told to, and whose end can be awaited.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Stops a background task. Dropping it stops the task as well, without waiting.
#[derive(Debug)]
pub struct Stop {
    token: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Stop {
    /// Wraps a task that ends once `token` is cancelled.
    pub const fn new(token: CancellationToken, task: JoinHandle<()>) -> Self {
        Self { token, task: Some(task) }
    }

    /// Stops the task and waits until it has ended.
    pub async fn stop(mut self) {
        self.token.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "background task did not end well");
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

/// Runs `work` until it ends or is stopped.
pub fn spawn_until_stopped(work: impl Future<Output = ()> + Send + 'static) -> Stop {
    let token = CancellationToken::new();
    let stopped = token.clone();
    let task = tokio::spawn(async move {
        tokio::select! {
            () = stopped.cancelled() => {}
            () = work => {}
        }
    });
    Stop::new(token, task)
}
