//! Observations: what a host has, what a provider said. The last one of each node stands.

use lattice_core::ids::{NodeId, SiteId};
use lattice_core::node::{HostFacts, ProviderState};
use lattice_core::time::Timestamp;

use crate::error::StoreError;
use crate::sql::{Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// What the agent of each node found on its host.
pub(crate) const HOST_FACTS: Table = Table {
    name: "host_facts",
    key: 1,
    writes: Writes::Replace,
    columns: &[col("node", Kind::Id), col("at", Kind::Int), col("body", Kind::Text)],
};

/// What the provider of each node said.
pub(crate) const PROVIDER_STATES: Table = Table {
    name: "provider_states",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("node", Kind::Id),
        col("site", Kind::Id),
        col("provider_ref", Kind::Text),
        col("status", Kind::Text),
        col("power", Kind::Text),
        col("addresses", Kind::Text),
        col("observed_at", Kind::Int),
    ],
};

pub(crate) fn host_row(node: NodeId, facts: &HostFacts, at: Timestamp) -> Vec<Value<'_>> {
    vec![Value::Id(node.uuid()), Value::time(at), Value::json(facts)]
}

pub(crate) fn provider_row(state: &ProviderState) -> Vec<Value<'_>> {
    vec![
        Value::Id(state.node.uuid()),
        Value::Id(state.site.uuid()),
        Value::text(&state.provider_ref),
        Value::text(&state.status),
        Value::name(state.power),
        Value::json(&state.addresses),
        Value::time(state.observed_at),
    ]
}

fn read_provider(r: &mut Reader<'_>) -> Result<ProviderState, StoreError> {
    Ok(ProviderState {
        node: NodeId::new(r.id()?),
        site: SiteId::new(r.id()?),
        provider_ref: r.text()?,
        status: r.text()?,
        power: r.name()?,
        addresses: r.json()?,
        observed_at: r.time()?,
    })
}

impl Store {
    /// What a node's agent found on its host, and when that was stored.
    ///
    /// # Errors
    /// The database fails.
    pub async fn host_facts(&self, node: NodeId) -> Result<Option<(HostFacts, Timestamp)>, StoreError> {
        const FACTS: &str = "SELECT body, at FROM host_facts WHERE node = ?1";
        let rows = self.fetch(Query::new(FACTS, vec![Value::Id(node.uuid())]), |r| Ok((r.json()?, r.time()?)));
        Ok(rows.await?.pop())
    }

    /// What the provider last said about a node's machine.
    ///
    /// # Errors
    /// The database fails.
    pub async fn provider_state(&self, node: NodeId) -> Result<Option<ProviderState>, StoreError> {
        const STATE: &str = "SELECT node, site, provider_ref, status, power, addresses, observed_at \
            FROM provider_states WHERE node = ?1";
        Ok(self.fetch(Query::new(STATE, vec![Value::Id(node.uuid())]), read_provider).await?.pop())
    }
}
