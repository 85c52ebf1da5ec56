//! A lease of this server, as far as it remembers it: what only one server does at a time.

use lattice_core::ids::LeaseEpoch;
use lattice_core::time::Timestamp;
use lattice_store::StoreError;

use crate::tools::Tools;

/// A lease by its name.
pub(crate) struct Held {
    name: &'static str,
    held: Option<(LeaseEpoch, Timestamp)>,
}

impl Held {
    /// Not held yet.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, held: None }
    }

    /// Under which epoch this server has the lease, taken or renewed where that is due; none: another one has it.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn epoch(&mut self, tools: &Tools) -> Result<Option<LeaseEpoch>, StoreError> {
        let now = tools.clock.now();
        let life = tools.limits.lease;
        if let Some((epoch, until)) = self.held {
            if until.since(now) > life / 2 {
                return Ok(Some(epoch));
            }
            if tools.store.renew(self.name, epoch, now, life).await? {
                self.held = Some((epoch, now + life));
                return Ok(Some(epoch));
            }
        }
        let epoch = tools.store.acquire(self.name, &tools.holder, now, life).await?;
        self.held = epoch.map(|epoch| (epoch, now + life));
        Ok(epoch)
    }
}
