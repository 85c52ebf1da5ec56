//! Operations: LXD answers at once and works on; what came of it must be asked for.

use std::time::Duration;

use http::Method;

use super::client::{LxdClient, Request, metadata};
use super::wire::{Envelope, Operation};
use crate::error::{ErrorKind, ProviderError};
use crate::message;

/// How long to stay away from an instance that another operation holds: most take less.
const BUSY: Duration = Duration::from_secs(1);

impl LxdClient {
    /// One question is kept open for this long, so that a dead connection is noticed.
    const SLICE: Duration = Duration::from_secs(20);

    /// Starts an operation and waits for its end.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] when it did not end within `limit` or was forgotten by the server.
    pub(super) async fn perform(&self, request: Request, limit: Duration) -> Result<Operation, ProviderError> {
        let call = request.call;
        let (envelope, _) = self.envelope(request).await?;
        self.ended(call, &envelope, limit).await
    }

    /// Waits for the end of the operation that an answer names.
    pub(super) async fn ended(
        &self,
        call: &'static str,
        started: &Envelope,
        limit: Duration,
    ) -> Result<Operation, ProviderError> {
        let Some(id) = started.operation.strip_prefix("/1.0/operations/").and_then(|rest| rest.split('?').next())
        else {
            return Err(ProviderError::malformed(format!("lxd {call}"), "the answer names no operation"));
        };
        self.wait(call, id, limit).await
    }

    /// Waits for operations that already run on an instance, such as an earlier create whose answer was lost.
    pub(super) async fn settle(&self, call: &'static str, name: &str, limit: Duration) -> Result<(), ProviderError> {
        let request = Request::new(call, Method::GET, "/1.0/operations").query("recursion", 1);
        let by_status: std::collections::BTreeMap<String, Vec<Operation>> = self.read(request).await?;
        let running = by_status.into_values().flatten().find(|op| op.running() && op.concerns(name));
        match running {
            Some(operation) => self.wait(call, &operation.id, limit).await.map(drop),
            None => Ok(()),
        }
    }

    async fn wait(&self, call: &'static str, id: &str, limit: Duration) -> Result<Operation, ProviderError> {
        let ambiguous = |detail: String| ProviderError::new(format!("lxd {call}"), ErrorKind::Ambiguous { detail });
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
            return Err(ProviderError::malformed(format!("lxd {call}"), "the operation has an odd name"));
        }
        let mut left = limit;
        loop {
            let slice = left.min(Self::SLICE);
            let request = Request::new(call, Method::GET, format!("/1.0/operations/{id}/wait"))
                .query("timeout", slice.as_secs().max(1))
                .within(slice + Duration::from_secs(10));
            let operation: Operation = match self.envelope(request).await {
                Ok((envelope, _)) => metadata(call, envelope)?,
                // The operation was started: whatever hides its end leaves the effect unknown.
                Err(error) => return Err(ambiguous(message::bounded(&error.kind.to_string()))),
            };
            if !operation.running() {
                return Ok(operation);
            }
            left = left.saturating_sub(slice);
            if left.is_zero() {
                return Err(ambiguous(format!("the operation still runs after {} ms", limit.as_millis())));
            }
        }
    }
}

impl Operation {
    /// Its failure as an error.
    pub(super) fn outcome(&self, call: &'static str, secrets: &[&str]) -> Result<(), ProviderError> {
        if self.status_code == 200 {
            return Ok(());
        }
        let message = message::of_body(self.err.as_bytes(), secrets);
        let kind = match self.status_code {
            // Another operation holds the instance: nothing was done.
            _ if self.err.contains("Instance is busy running") => ErrorKind::RetryLater { after: BUSY },
            404 => ErrorKind::NotFound { message },
            status => ErrorKind::Refused { status, message },
        };
        Err(ProviderError::new(format!("lxd {call}"), kind))
    }
}
