//! One observation of a region for everybody who waits for one of its machines.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use lattice_core::time::Timestamp;

use super::MachineStatus;
use super::body::{Machine, SystemId};
use super::client::MaasClient;
use super::event::LARGEST_PAGE;
use super::follow::{FollowLimits, Followed, Seen, Step};
use super::machines::{MachineFilter, Presence};
use super::status::StatusKind;
use crate::error::ProviderError;
use crate::observer::{MachineObservation, MachineObserver, MachineState};

/// Events before a listing that are remembered as known; one with a lower number that appears later is missed until
/// the next listing.
const KNOWN_BEFORE_LISTING: u32 = 200;

/// Follows a region's events and keeps what was last seen of each machine.
pub struct MaasObserver {
    client: Arc<MaasClient>,
    limits: FollowLimits,
    followed: RwLock<Followed>,
    polling: tokio::sync::Mutex<()>,
}

impl MaasObserver {
    /// An observer that has seen nothing yet.
    pub fn new(client: Arc<MaasClient>, limits: FollowLimits) -> Self {
        Self { client, limits, followed: RwLock::default(), polling: tokio::sync::Mutex::default() }
    }

    /// Reads what changed, and the `watched` machines when they were seen too long ago. Gives the machines that are
    /// new, changed or gone. Costs two small requests while nothing changes; several calls at once wait for one another.
    ///
    /// # Errors
    /// The region cannot be read; what was seen before stays, and nothing that was heard is forgotten.
    pub async fn poll(&self, watched: &[SystemId]) -> Result<Vec<SystemId>, ProviderError> {
        let _one_at_a_time = self.polling.lock().await;
        let step = self.state().next(self.now(), &self.limits);
        let mut changed = match step {
            Step::List => self.list().await?,
            Step::Follow { after } => {
                self.hear(after).await?;
                Vec::new()
            }
        };
        let ids = self.state().to_read(watched, self.now(), &self.limits);
        for some in ids.chunks(self.limits.ids_per_read) {
            let asked_at = self.now();
            let filter = MachineFilter { ids: some.to_vec(), ..MachineFilter::default() };
            let machines = self.client.machines(&filter).await?;
            changed.extend(self.state_mut().read(some, machines, asked_at));
        }
        Ok(changed)
    }

    /// What was last seen of a machine, and when.
    pub fn observed(&self, system_id: &SystemId) -> Option<Seen> {
        self.state().seen(system_id).cloned()
    }

    /// What was last seen of all machines.
    pub fn observed_all(&self) -> Vec<Seen> {
        self.state().all().cloned().collect()
    }

    /// When all machines were last listed.
    pub fn listed_at(&self) -> Option<Timestamp> {
        self.state().listed_at()
    }

    /// The client through which it observes.
    pub const fn client(&self) -> &Arc<MaasClient> {
        &self.client
    }

    async fn list(&self) -> Result<Vec<SystemId>, ProviderError> {
        // The newest events first: what happens during the listing is heard afterwards, and so is what had a number
        // before and is shown only then.
        let before = self.client.newest_events(KNOWN_BEFORE_LISTING).await?;
        let asked_at = self.now();
        let machines = self.client.machines(&MachineFilter::default()).await?;
        Ok(self.state_mut().listed(&before, machines, asked_at))
    }

    async fn hear(&self, mut after: u64) -> Result<(), ProviderError> {
        for _ in 0..self.limits.pages_per_poll {
            let events = self.client.events_after(after, LARGEST_PAGE).await?;
            self.state_mut().heard(&events, self.now(), &self.limits);
            match events.last() {
                Some(last) if events.len() >= LARGEST_PAGE as usize => after = last.id,
                Some(_) | None => return Ok(()),
            }
        }
        self.state_mut().lost_track();
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.client.clock().now()
    }

    fn state(&self) -> RwLockReadGuard<'_, Followed> {
        self.followed.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, Followed> {
        self.followed.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl MachineObserver for MaasObserver {
    async fn observe(&self, provider_ref: &str) -> Result<Option<MachineObservation>, ProviderError> {
        let id: SystemId =
            provider_ref.parse().map_err(|error| ProviderError::unusable("maas machines.filter", error))?;
        let asked_at = self.now();
        if let Some(machine) = self.client.machine(&id).await? {
            return Ok(Some(observation(&machine, asked_at)));
        }
        match self.client.presence(&id).await? {
            Presence::Absent => Ok(None),
            Presence::Present => Err(ProviderError::malformed(
                "maas machines.filter",
                format!("machine {id} is there, but the listing leaves it out"),
            )),
        }
    }

    async fn observe_all(&self) -> Result<Vec<MachineObservation>, ProviderError> {
        self.poll(&[]).await?;
        Ok(self.state().all().map(|seen| observation(&seen.machine, seen.at)).collect())
    }
}

fn observation(machine: &Machine, observed_at: Timestamp) -> MachineObservation {
    let state = match (machine.status, machine.status.kind()) {
        (MachineStatus::Deployed, _) => MachineState::Running,
        (_, StatusKind::Rests) => MachineState::Stopped,
        (_, StatusKind::Works) => MachineState::Changing,
        (_, StatusKind::Failed) => MachineState::Failed,
        (_, StatusKind::Unknown) => MachineState::Unknown,
    };
    MachineObservation {
        provider_ref: machine.system_id.to_string(),
        name: machine.hostname.clone(),
        state,
        status: machine.status.to_string(),
        power: machine.power_state,
        addresses: machine.ip_addresses.clone(),
        stamp: machine.owner_data.get(crate::observer::STAMP).cloned(),
        observed_at,
    }
}
