//! Events of a region: dense enough to follow, by id.

use serde::Deserialize;

use super::body::{SystemId, nullable};
use super::call::Call;
use super::client::MaasClient;
use super::date::MaasTime;
use crate::error::ProviderError;

/// Largest page; the region refuses more with 400.
pub const LARGEST_PAGE: u32 = 1_000;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// Grows with each event of the region.
    pub id: u64,
    /// The machine it is about; empty or odd for a controller or what was deleted.
    #[serde(default, deserialize_with = "nullable")]
    pub node: String,
    /// Its host name.
    #[serde(default, deserialize_with = "nullable")]
    pub hostname: String,
    /// `DEBUG` to `CRITICAL`.
    #[serde(default, deserialize_with = "nullable")]
    pub level: String,
    /// What happened, in few words.
    #[serde(default, rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    /// What happened, in more words.
    #[serde(default, deserialize_with = "nullable")]
    pub description: String,
    /// When.
    #[serde(default)]
    pub created: Option<MaasTime>,
}

impl Event {
    /// The machine it is about, when it names one.
    pub fn system_id(&self) -> Option<SystemId> {
        self.node.parse().ok()
    }
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    events: Vec<Event>,
}

impl MaasClient {
    /// Events with an id above `after`, oldest first, at most `limit` (up to [`LARGEST_PAGE`]), of every level.
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn events_after(&self, after: u64, limit: u32) -> Result<Vec<Event>, ProviderError> {
        self.events(Call::get("events.query", "events/").query("after", after), limit).await
    }

    /// The newest events of all machines, oldest first, at most `limit` (up to [`LARGEST_PAGE`]).
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn newest_events(&self, limit: u32) -> Result<Vec<Event>, ProviderError> {
        self.events(Call::get("events.query", "events/"), limit).await
    }

    /// The latest events about one machine, oldest first: the evidence of a failed deployment. spec: S5 4.3
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn events_of(&self, system_id: &SystemId, limit: u32) -> Result<Vec<Event>, ProviderError> {
        self.events(Call::get("events.query", "events/").query("id", system_id), limit).await
    }

    async fn events(&self, call: Call, limit: u32) -> Result<Vec<Event>, ProviderError> {
        // Changes of status are events of level DEBUG; the region's default is INFO.
        let call = call.op("query").query("level", "DEBUG").query("limit", limit.min(LARGEST_PAGE));
        let mut events = self.json::<Page>(call).await?.events;
        events.sort_unstable_by_key(|event| event.id);
        Ok(events)
    }
}
