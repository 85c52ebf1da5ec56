//! What a commit is judged against, read one row at a time within its transaction.

use lattice_core::ids::{EventSeq, Generation, LeaseEpoch, OpId, SiteId};
use lattice_core::node::NodeState;
use rusqlite::Connection;
use uuid::Uuid;

use super::rows;
use crate::commit::{Head, HeldEpoch, NodeHead, RowKey, UniqueKey};
use crate::error::StoreError;
use crate::job::{LIVE, OWNING};
use crate::sql::{Query, Reader, Value};

pub(super) fn op(connection: &Connection, op: OpId) -> Result<Option<EventSeq>, StoreError> {
    const OP: &str = "SELECT seq FROM ops WHERE op = ?1";
    let query = Query::new(OP, vec![Value::Id(op.uuid())]);
    Ok(rows(connection, &query, |r| r.count().map(EventSeq))?.pop())
}

pub(super) fn row(connection: &Connection, key: &RowKey) -> Result<Option<Head>, StoreError> {
    const NODE: &str =
        "SELECT generation, status, availability, hostname, site, sku, provider_ref FROM nodes WHERE id = ?1";
    let (sql, key) = match key {
        RowKey::Node(id) => {
            let query = Query::new(NODE, vec![Value::Id(id.uuid())]);
            return Ok(rows(connection, &query, read_node)?.pop());
        }
        RowKey::SiteCredential(site, name) => {
            const CREDENTIAL: &str = "SELECT generation FROM site_credentials WHERE site = ?1 AND name = ?2";
            let query = Query::new(CREDENTIAL, vec![Value::Id(site.uuid()), Value::name(*name)]);
            return Ok(rows(connection, &query, read_version)?.pop());
        }
        RowKey::Job(id) => ("SELECT generation FROM jobs WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::Batch(id) => ("SELECT generation FROM batches WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::Allocation(id) => ("SELECT generation FROM allocations WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::Task(id) => ("SELECT generation FROM tasks WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::Site(id) => ("SELECT generation FROM sites WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::Bmc(node) => ("SELECT generation FROM bmcs WHERE node = ?1", Value::Id(node.uuid())),
        RowKey::Sku(name) => ("SELECT generation FROM skus WHERE name = ?1", Value::owned(name.clone())),
        RowKey::Profile(id) => ("SELECT generation FROM site_profiles WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::PowerOverride(id) => ("SELECT generation FROM power_overrides WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::Roce(id) => ("SELECT generation FROM roce WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::EnrollmentToken(id) => ("SELECT generation FROM enrollment_tokens WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::ApiToken(id) => ("SELECT generation FROM api_tokens WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::Webhook(id) => ("SELECT generation FROM webhooks WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::Silence(id) => ("SELECT generation FROM silences WHERE id = ?1", Value::Id(id.uuid())),
        RowKey::WebhookProgress(id) => {
            ("SELECT generation FROM webhook_progress WHERE webhook = ?1", Value::Id(id.uuid()))
        }
    };
    Ok(rows(connection, &Query::new(sql, vec![key]), read_version)?.pop())
}

fn read_version(r: &mut Reader<'_>) -> Result<Head, StoreError> {
    Ok(Head { generation: r.generation()?, node: None })
}

fn read_node(r: &mut Reader<'_>) -> Result<Head, StoreError> {
    let generation: Generation = r.generation()?;
    let state = NodeState { status: r.name()?, availability: r.name()? };
    let (hostname, site) = (r.text()?, SiteId::new(r.id()?));
    Ok(Head { generation, node: Some(NodeHead { state, hostname, site, sku: r.text()?, provider_ref: r.opt_text()? }) })
}

pub(super) fn holder(connection: &Connection, key: &UniqueKey) -> Result<Option<String>, StoreError> {
    let (sql, params) = match key {
        UniqueKey::Hostname(name) => {
            ("SELECT id FROM nodes WHERE hostname = ?1 AND live = 1", vec![Value::owned(name.clone())])
        }
        UniqueKey::ProviderRef(site, name) => (
            "SELECT id FROM nodes WHERE site = ?1 AND provider_ref = ?2 AND live = 1",
            vec![Value::Id(site.uuid()), Value::owned(name.clone())],
        ),
        UniqueKey::SiteName(name) => ("SELECT id FROM sites WHERE name = ?1", vec![Value::owned(name.clone())]),
        UniqueKey::ProfileName(site, name) => (
            "SELECT id FROM site_profiles WHERE site = ?1 AND name = ?2",
            vec![Value::Id(site.uuid()), Value::owned(name.clone())],
        ),
        UniqueKey::PowerSelector(site, selector, value) => (
            "SELECT id FROM power_overrides WHERE site = ?1 AND selector = ?2 AND value = ?3",
            vec![Value::Id(site.uuid()), Value::name(*selector), Value::owned(value.clone())],
        ),
        UniqueKey::RoceSlot(site, hostname, interface) => (
            "SELECT id FROM roce WHERE site = ?1 AND hostname = ?2 AND interface = ?3",
            vec![Value::Id(site.uuid()), Value::owned(hostname.clone()), Value::owned(interface.clone())],
        ),
        UniqueKey::RoceAddress(site, address) => (
            "SELECT id FROM roce WHERE site = ?1 AND address = ?2",
            vec![Value::Id(site.uuid()), Value::owned(address.clone())],
        ),
        UniqueKey::Bmc(site, address) => (
            "SELECT id FROM nodes WHERE site = ?1 AND bmc_address = ?2 AND live = 1",
            vec![Value::Id(site.uuid()), Value::owned(address.clone())],
        ),
        UniqueKey::NodeOfSite(site) => ("SELECT id FROM nodes WHERE site = ?1 LIMIT 1", vec![Value::Id(site.uuid())]),
        UniqueKey::NodeOfSku(name) => {
            ("SELECT id FROM nodes WHERE sku = ?1 AND live = 1 LIMIT 1", vec![Value::owned(name.clone())])
        }
        UniqueKey::EnrollmentHash(hash) => {
            ("SELECT id FROM enrollment_tokens WHERE hash = ?1", vec![Value::owned(hash.clone())])
        }
        UniqueKey::ApiHash(hash) => ("SELECT id FROM api_tokens WHERE hash = ?1", vec![Value::owned(hash.clone())]),
        UniqueKey::TaskKey(key) => ("SELECT id FROM tasks WHERE key = ?1", vec![Value::owned(key.clone())]),
        UniqueKey::WebhookName(name) => ("SELECT id FROM webhooks WHERE name = ?1", vec![Value::owned(name.clone())]),
        UniqueKey::LiveJob(node) => {
            let query = Query {
                sql: format!("SELECT id FROM jobs WHERE node = ?1 AND {LIVE} AND {OWNING}").into(),
                params: vec![Value::Id(node.uuid())],
            };
            return first_id(connection, &query);
        }
    };
    first_id(connection, &Query::new(sql, params))
}

fn first_id(connection: &Connection, query: &Query) -> Result<Option<String>, StoreError> {
    let ids = rows(connection, query, |r| r.id())?;
    Ok(ids.first().map(|id: &Uuid| id.hyphenated().to_string()))
}

pub(super) fn lease(connection: &Connection, name: &str) -> Result<HeldEpoch, StoreError> {
    const LEASE: &str = "SELECT epoch FROM leases WHERE name = ?1 AND holder IS NOT NULL";
    let query = Query::new(LEASE, vec![Value::owned(name.to_owned())]);
    Ok(rows(connection, &query, |r| r.count().map(LeaseEpoch))?.pop())
}
