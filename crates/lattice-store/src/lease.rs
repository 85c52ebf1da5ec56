//! Leases with fencing: who does a piece of shared work now. design: 1-architecture "Several servers"
//!
//! The epoch grows with each acquisition. A commit that carries [`lattice_core::change::Guard::Lease`] is `Fenced`
//! from the moment when somebody else has acquired the lease, whatever its former holder believes.

use std::time::Duration;

use lattice_core::ids::LeaseEpoch;
use lattice_core::time::Timestamp;
use tracing::warn;

use crate::error::StoreError;
use crate::sql::{Query, Reader, Value};
use crate::store::Store;

/// Life of a lease of a loop: after a crash another server takes over within it, and the store may be away for half of it
/// before anything is lost. A server that starts again under its name waits for nothing.
const LIFE: Duration = Duration::from_secs(30);

/// Pause between two tries at a lease that another server holds: loops may look many times a second.
const ASKED_EACH: Duration = Duration::from_secs(5);

/// A lease that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its name: `site/<id>`, `driver`.
    pub name: String,
    /// Who holds it.
    pub holder: String,
    /// Under which epoch.
    pub epoch: LeaseEpoch,
    /// Until when, unless it is renewed; after that anybody may take it.
    pub until: Timestamp,
    /// Where its holder is reached, if it said so.
    pub address: Option<String>,
}

/// A lease of a loop, as far as this server remembers it: what only one server does at a time.
#[derive(Debug)]
pub struct Held {
    name: &'static str,
    holder: String,
    held: Option<(LeaseEpoch, Timestamp)>,
    /// When it was asked for last, and not had.
    refused_at: Option<Timestamp>,
    /// Where this server is reached, for those who ask another one.
    address: Option<String>,
    /// Where the server that has it is reached.
    elsewhere: Option<String>,
}

impl Held {
    /// Not held yet; `holder` is this server's name, the same after a restart.
    pub const fn new(name: &'static str, holder: String) -> Self {
        Self { name, holder, held: None, refused_at: None, address: None, elsewhere: None }
    }

    /// The same, telling other servers that this one is reached at `address`.
    #[must_use]
    pub fn reached_at(self, address: String) -> Self {
        Self { address: Some(address), ..self }
    }

    /// Under which epoch this server has the lease at `now`, taken or renewed where that is due; none: another one has it.
    ///
    /// The lease may be lost before what follows is committed: a commit that must not happen then carries
    /// [`lattice_core::change::Guard::Lease`] with this epoch.
    ///
    /// # Errors
    /// The database fails.
    pub async fn epoch(&mut self, store: &Store, now: Timestamp) -> Result<Option<LeaseEpoch>, StoreError> {
        if let Some((epoch, until)) = self.held {
            let left = until.since(now);
            // More than its whole life is left: the clock was set back, and others know another time.
            if left > LIFE / 2 && left <= LIFE {
                return Ok(Some(epoch));
            }
            if store.renew(self.name, epoch, now, LIFE).await? {
                self.held = Some((epoch, now + LIFE));
                return Ok(Some(epoch));
            }
        }
        if self.refused_at.is_some_and(|refused| now.since(refused) < ASKED_EACH) {
            return Ok(None);
        }
        let epoch = store.acquire_at(self.name, (&self.holder, self.address.as_deref()), now, LIFE).await?;
        self.held = epoch.map(|epoch| (epoch, now + LIFE));
        self.refused_at = epoch.is_none().then_some(now);
        self.elsewhere = match epoch {
            None if self.address.is_some() => store.lease(self.name).await?.and_then(|lease| lease.address),
            None | Some(_) => None,
        };
        Ok(epoch)
    }

    /// Where the server that has the lease was reached when this one asked for it last; none: this one has it, or nobody
    /// said so. Known to servers that said themselves where they are reached.
    pub fn elsewhere(&self) -> Option<&str> {
        self.elsewhere.as_deref()
    }

    /// When the lease ends by what this server remembers, unless it is renewed; none: it has none.
    pub fn until(&self) -> Option<Timestamp> {
        self.held.map(|(_, until)| until)
    }

    /// Gives it back at an orderly stop, so that another server need not wait for its end.
    pub async fn release(&mut self, store: &Store) {
        let Some((epoch, _)) = self.held.take() else { return };
        if let Err(error) = store.release(self.name, epoch).await {
            warn!(lease = self.name, %error, "not released: it runs out by itself");
        }
    }
}

fn read_epoch(r: &mut Reader<'_>) -> Result<LeaseEpoch, StoreError> {
    r.count().map(LeaseEpoch)
}

impl Store {
    /// Takes a lease that is free, was released, or has run out at `now`. Its holder takes it again at once, under a
    /// new epoch: a server that starts anew need not wait for its own former life, which is fenced.
    ///
    /// None: somebody else holds it.
    ///
    /// # Errors
    /// The database fails.
    pub async fn acquire(
        &self,
        name: &str,
        holder: &str,
        now: Timestamp,
        ttl: Duration,
    ) -> Result<Option<LeaseEpoch>, StoreError> {
        self.acquire_at(name, (holder, None), now, ttl).await
    }

    /// The same, for a holder that says where it is reached.
    async fn acquire_at(
        &self,
        name: &str,
        (holder, address): (&str, Option<&str>),
        now: Timestamp,
        ttl: Duration,
    ) -> Result<Option<LeaseEpoch>, StoreError> {
        const ACQUIRE: &str = "INSERT INTO leases (name, holder, epoch, until, address) VALUES (?1, ?2, 1, ?3, ?5) \
            ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = leases.epoch + 1, \
            until = excluded.until, address = excluded.address \
            WHERE leases.holder IS NULL OR leases.holder = excluded.holder OR leases.until <= ?4 RETURNING epoch";
        let params = vec![
            Value::owned(name.to_owned()),
            Value::owned(holder.to_owned()),
            Value::time(now + ttl),
            Value::time(now),
            address.map_or(Value::Null, |text| Value::owned(text.to_owned())),
        ];
        Ok(self.change_row(Query::new(ACQUIRE, params), read_epoch).await?.pop())
    }

    /// Keeps a lease until `now + ttl`. False: it was lost, and the holder must stop.
    ///
    /// # Errors
    /// The database fails: the holder must stop when the lease's old end comes.
    pub async fn renew(
        &self,
        name: &str,
        epoch: LeaseEpoch,
        now: Timestamp,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        const RENEW: &str = "UPDATE leases SET until = ?3 WHERE name = ?1 AND epoch = ?2 AND holder IS NOT NULL \
            RETURNING epoch";
        let params = vec![Value::owned(name.to_owned()), Value::count(epoch.0), Value::time(now + ttl)];
        Ok(!self.change_row(Query::new(RENEW, params), read_epoch).await?.is_empty())
    }

    /// Gives a lease back, so that nobody has to wait for its end. A lease that was lost is left alone.
    ///
    /// # Errors
    /// The database fails: it runs out by itself.
    pub async fn release(&self, name: &str, epoch: LeaseEpoch) -> Result<(), StoreError> {
        const RELEASE: &str = "UPDATE leases SET holder = NULL, until = 0 WHERE name = ?1 AND epoch = ?2 \
            RETURNING epoch";
        let params = vec![Value::owned(name.to_owned()), Value::count(epoch.0)];
        self.change_row(Query::new(RELEASE, params), read_epoch).await.map(drop)
    }

    /// Who holds a lease; none when it is free. It may have run out: compare `until` with the present time.
    ///
    /// # Errors
    /// The database fails.
    pub async fn lease(&self, name: &str) -> Result<Option<Lease>, StoreError> {
        const LEASE: &str =
            "SELECT name, holder, epoch, until, address FROM leases WHERE name = ?1 AND holder IS NOT NULL";
        let rows = self.fetch(Query::new(LEASE, vec![Value::owned(name.to_owned())]), |r| {
            let (name, holder, epoch, until) = (r.text()?, r.text()?, read_epoch(r)?, r.time()?);
            Ok(Lease { name, holder, epoch, until, address: r.opt_text()? })
        });
        Ok(rows.await?.pop())
    }
}
