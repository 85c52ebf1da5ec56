//! Applies a commit: judged against what is stored, then written. The same decisions for both backends.

use std::collections::HashMap;

use lattice_core::change::{Change, Commit, Guard, NodeChange, Outcome, Removed, audit_hash};
use lattice_core::ids::{EventSeq, Generation, OpId, SiteId};
use lattice_core::node::{Node, NodeState};
use uuid::Uuid;

use crate::audit::AUDIT;
use crate::commit::{Head, HeldEpoch, NodeHead, Prepared, RowKey, UniqueKey, guarded, removed_row, unique_keys};
use crate::error::StoreError;
use crate::sql::Value;
use crate::table::{Kind, Table, Writes, col};
use crate::{
    allocation, audit, batch, bmc, component, credential, facts, feed, history, job, node, silence, site,
    site_credential, site_detail, stage, task, webhook, wipe,
};

/// Ops that were committed, each with the outcome that its repeat is answered with.
pub(crate) const OPS: Table = Table {
    name: "ops",
    key: 1,
    writes: Writes::Append,
    columns: &[col("op", Kind::Id), col("seq", Kind::Int), col("at", Kind::Int)],
};

/// How a row is put into a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// As the table's `writes` says.
    Insert,
    /// The row is there; its stable columns do not change.
    Update,
    /// The row is there; any column may change.
    UpdateAll,
}

/// An open transaction of either backend, as far as applying a commit needs one.
pub(crate) trait Transaction {
    /// The last event of an op that was committed before.
    fn op(&mut self, op: OpId) -> Result<Option<EventSeq>, StoreError>;
    /// What stands for a row.
    fn row(&mut self, key: &RowKey) -> Result<Option<Head>, StoreError>;
    /// Which row has a unique key.
    fn holder(&mut self, key: &UniqueKey) -> Result<Option<String>, StoreError>;
    /// Under which epoch a lease is held.
    fn lease(&mut self, name: &str) -> Result<HeldEpoch, StoreError>;
    /// Writes a row.
    fn put(&mut self, table: &'static Table, row: Vec<Value<'_>>, how: Put) -> Result<(), StoreError>;
    /// Removes the rows whose key begins with this value: the one row of a table whose key is one column, all rows that
    /// belong to something else where it is two.
    fn remove(&mut self, table: &'static Table, key: Value<'_>) -> Result<(), StoreError>;
    /// Tells that a change was written, for backends that read only once for a whole batch.
    fn written(&mut self, change: &Change, before: Option<&Head>);
}

/// What goes on from one commit to the next: places in the outbox and in the audit, counts of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Last place given out in the outbox.
    pub(crate) event_seq: u64,
    /// Last place given out in the audit.
    pub(crate) audit_seq: u64,
    /// Hash of the last audit row; 64 zeros before the first.
    pub(crate) audit_hash: String,
    /// By how much the counts of nodes changed since the transaction began.
    pub(crate) counts: HashMap<(SiteId, NodeState), i64>,
}

impl Chain {
    /// Before the first commit.
    pub(crate) fn empty() -> Self {
        Self { event_seq: 0, audit_seq: 0, audit_hash: "0".repeat(64), counts: HashMap::new() }
    }
}

/// A commit may be written, on top of these rows, one for each of its changes.
pub(crate) struct Accepted(Vec<Option<Head>>);

/// Judges a commit against what is stored: either it may be written, or this is its outcome.
pub(crate) fn judge(tx: &mut impl Transaction, prepared: &Prepared) -> Result<Result<Accepted, Outcome>, StoreError> {
    let commit = &prepared.commit;
    if let Some(seq) = tx.op(commit.op)? {
        return Ok(Err(Outcome::Duplicate { seq }));
    }
    if let Some(outcome) = unmet_guard(tx, commit)? {
        return Ok(Err(outcome));
    }
    let mut heads = Vec::with_capacity(commit.changes.len());
    for change in &commit.changes {
        match stale(tx, change, commit)? {
            Ok(head) => heads.push(head),
            Err(outcome) => return Ok(Err(outcome)),
        }
    }
    Ok(Ok(Accepted(heads)))
}

/// Writes a commit that was accepted, with all that is derived from it; gives the place of its last event.
pub(crate) fn write(
    tx: &mut impl Transaction,
    chain: &mut Chain,
    prepared: &Prepared,
    accepted: &Accepted,
) -> Result<EventSeq, StoreError> {
    let commit = &prepared.commit;
    for ((change, derived), head) in commit.changes.iter().zip(&prepared.derived).zip(&accepted.0) {
        put_change(tx, commit, change, head.as_ref())?;
        if let (Some(row), Change::Node(change)) = (&derived.history, change) {
            tx.put(&history::HISTORY, history::row(row, change.after.generation), Put::Insert)?;
            count(chain, change, head.as_ref());
        }
        if let Some(row) = &derived.audit {
            chain.audit_seq += 1;
            chain.audit_hash = audit_hash(&chain.audit_hash, row);
            tx.put(&AUDIT, audit::row(chain.audit_seq, row, &chain.audit_hash), Put::Insert)?;
        }
        for event in &derived.events {
            chain.event_seq += 1;
            tx.put(&feed::OUTBOX, feed::row(EventSeq(chain.event_seq), event), Put::Insert)?;
        }
        tx.written(change, head.as_ref());
    }
    let op = vec![Value::Id(commit.op.uuid()), Value::count(chain.event_seq), Value::time(commit.at)];
    tx.put(&OPS, op, Put::Insert)?;
    Ok(EventSeq(chain.event_seq))
}

/// What a stored node looks like to the next commit of the same batch.
pub(crate) fn node_head(node: &Node) -> NodeHead {
    NodeHead {
        state: node.state,
        hostname: node.hostname.clone(),
        site: node.site,
        sku: node.sku.clone(),
        provider_ref: node.provider_ref.clone(),
    }
}

fn unmet_guard(tx: &mut impl Transaction, commit: &Commit) -> Result<Option<Outcome>, StoreError> {
    for guard in &commit.guards {
        let outcome = match guard {
            Guard::NodeGeneration { node, have } => other_generation(tx, &RowKey::Node(*node), *have)?,
            Guard::JobGeneration { job, have } => other_generation(tx, &RowKey::Job(*job), *have)?,
            Guard::SiteGeneration { site, have } => other_generation(tx, &RowKey::Site(*site), *have)?,
            Guard::ProfileGeneration { profile, have } => other_generation(tx, &RowKey::Profile(*profile), *have)?,
            Guard::SkuGeneration { sku, have } => other_generation(tx, &RowKey::Sku(sku.clone()), *have)?,
            Guard::BmcAddressFree { site, address } => taken(tx, UniqueKey::Bmc(*site, address.clone()), None)?,
            Guard::SiteUnused { site } => taken(tx, UniqueKey::NodeOfSite(*site), None)?,
            Guard::SkuUnused { sku } => taken(tx, UniqueKey::NodeOfSku(sku.clone()), None)?,
            Guard::BatchGeneration { batch, have } => other_generation(tx, &RowKey::Batch(*batch), *have)?,
            Guard::TaskGeneration { task, have } => other_generation(tx, &RowKey::Task(*task), *have)?,
            Guard::WebhookGeneration { webhook, have } => other_generation(tx, &RowKey::Webhook(*webhook), *have)?,
            Guard::Lease { name, epoch } => (tx.lease(name)? != Some(*epoch)).then_some(Outcome::Fenced),
            Guard::HostnameFree { hostname } => taken(tx, UniqueKey::Hostname(hostname.clone()), None)?,
            Guard::NoLiveJob { node } => taken(tx, UniqueKey::LiveJob(*node), None)?,
            Guard::After { op } => tx.op(*op)?.is_none().then(|| Outcome::Missing { resource: format!("op {op}") }),
        };
        if outcome.is_some() {
            return Ok(outcome);
        }
    }
    Ok(None)
}

fn other_generation(tx: &mut impl Transaction, key: &RowKey, have: Generation) -> Result<Option<Outcome>, StoreError> {
    Ok(match tx.row(key)? {
        None => Some(Outcome::Missing { resource: key.to_string() }),
        Some(head) if head.generation != have => Some(conflict(key, head.generation)),
        Some(_) => None,
    })
}

fn taken(tx: &mut impl Transaction, key: UniqueKey, own: Option<&str>) -> Result<Option<Outcome>, StoreError> {
    let holder = tx.holder(&key)?.filter(|holder| own != Some(holder.as_str()));
    Ok(holder.map(|have| Outcome::Conflict { resource: key.to_string(), have }))
}

fn conflict(key: &RowKey, have: Generation) -> Outcome {
    Outcome::Conflict { resource: key.to_string(), have: format!("generation {}", have.0) }
}

/// The implicit guard of a changed row: the generation before it, or absence; and its unique keys.
fn stale(
    tx: &mut impl Transaction,
    change: &Change,
    commit: &Commit,
) -> Result<Result<Option<Head>, Outcome>, StoreError> {
    let Some((key, after)) = guarded(change) else { return Ok(Ok(None)) };
    let head = tx.row(&key)?;
    match &head {
        None if after == Generation::FIRST => {}
        None => return Ok(Err(Outcome::Missing { resource: key.to_string() })),
        Some(head) if head.generation.next() != after => return Ok(Err(conflict(&key, head.generation))),
        Some(_) => {}
    }
    if let (Change::Node(change), Some(stored)) = (change, head.as_ref().and_then(|head| head.node.as_ref()))
        && change.before != Some(stored.state)
    {
        let resource = format!("{key} state");
        return Ok(Err(Outcome::Conflict { resource, have: stored.state.to_string() }));
    }
    for (unique, own) in unique_keys(change) {
        if keeps(&unique, head.as_ref()) {
            continue;
        }
        let taken = taken(tx, unique, Some(&own))?;
        if let Some(outcome) = taken.filter(|outcome| !gives_up(commit, change, outcome)) {
            return Ok(Err(outcome));
        }
    }
    Ok(Ok(head))
}

/// Whether the RoCE assignment that has an address gets another one, or is removed, in the same commit: interfaces may
/// exchange their addresses. That none has two and no address is had twice was checked when the commit was made ready.
fn gives_up(commit: &Commit, change: &Change, taken: &Outcome) -> bool {
    let (Change::Roce(_), Outcome::Conflict { have, .. }) = (change, taken) else { return false };
    commit.changes.iter().any(|other| match other {
        Change::Roce(row) => row.id.to_string() == *have,
        Change::Removed(removed) => matches!(&**removed, Removed::Roce(row) if row.id.to_string() == *have),
        Change::Node(_)
        | Change::HostFacts { .. }
        | Change::ProviderState(_)
        | Change::BmcReport(_)
        | Change::ComponentReport(_)
        | Change::Bmc { .. }
        | Change::Job(_)
        | Change::Batch(_)
        | Change::Task(_)
        | Change::Allocation(_)
        | Change::Site(_)
        | Change::SiteCredential { .. }
        | Change::Sku(_)
        | Change::Profile(_)
        | Change::PowerOverride(_)
        | Change::EnrollmentToken(_)
        | Change::ApiToken(_)
        | Change::Webhook(_)
        | Change::Silence(_)
        | Change::WebhookStep(_)
        | Change::Wipe { .. }
        | Change::WipeCertificate(_)
        | Change::Refusal { .. }
        | Change::Note { .. } => false,
    })
}

/// Whether the stored node has that key already: then it need not be looked up again.
fn keeps(key: &UniqueKey, head: Option<&Head>) -> bool {
    let Some(node) = head.and_then(|head| head.node.as_ref()) else { return false };
    match key {
        UniqueKey::Hostname(name) => *name == node.hostname,
        UniqueKey::ProviderRef(site, name) => *site == node.site && node.provider_ref.as_ref() == Some(name),
        UniqueKey::SiteName(_)
        | UniqueKey::ProfileName(..)
        | UniqueKey::PowerSelector(..)
        | UniqueKey::RoceSlot(..)
        | UniqueKey::RoceAddress(..)
        | UniqueKey::Bmc(..)
        | UniqueKey::NodeOfSite(_)
        | UniqueKey::NodeOfSku(_)
        | UniqueKey::EnrollmentHash(_)
        | UniqueKey::ApiHash(_)
        | UniqueKey::TaskKey(_)
        | UniqueKey::WebhookName(_)
        | UniqueKey::LiveJob(_) => false,
    }
}

fn put_change(
    tx: &mut impl Transaction,
    commit: &Commit,
    change: &Change,
    head: Option<&Head>,
) -> Result<(), StoreError> {
    let whole = if head.is_some() { Put::UpdateAll } else { Put::Insert };
    match change {
        Change::Node(change) => {
            let how = match head.and_then(|head| head.node.as_ref()) {
                None => Put::Insert,
                Some(stored) if node::same_stable(stored, &change.after) => Put::Update,
                Some(_) => Put::UpdateAll,
            };
            tx.put(&node::NODES, node::row(&change.after), how)
        }
        Change::Job(change) => {
            let how = if head.is_some() { Put::Update } else { Put::Insert };
            tx.put(&job::JOBS, job::row(&change.after), how)?;
            let generation = change.after.generation;
            for (ordinal, event) in change.stage_events.iter().enumerate() {
                let row = stage::row(change.after.id, generation, ordinal, commit.at, event);
                tx.put(&stage::STAGE_EVENTS, row, Put::Insert)?;
            }
            Ok(())
        }
        Change::Batch(change) => tx.put(&batch::BATCHES, batch::row(&change.after), whole),
        Change::Task(change) => tx.put(&task::TASKS, task::row(&change.after), whole),
        Change::Allocation(change) => tx.put(&allocation::ALLOCATIONS, allocation::row(&change.after), whole),
        Change::HostFacts { node, facts } => {
            tx.put(&facts::HOST_FACTS, facts::host_row(*node, facts, commit.at), Put::Insert)
        }
        Change::ProviderState(state) => tx.put(&facts::PROVIDER_STATES, facts::provider_row(state), Put::Insert),
        Change::BmcReport(report) => tx.put(&bmc::BMC_REPORTS, bmc::report_row(report), Put::Insert),
        Change::ComponentReport(report) => tx.put(&component::COMPONENTS, component::row(report), Put::Insert),
        Change::Bmc { after, .. } => tx.put(&bmc::BMCS, bmc::row(after), whole),
        Change::Site(row) => tx.put(&site::SITES, site::row(row), whole),
        Change::SiteCredential { after, .. } => {
            tx.put(&site_credential::SITE_CREDENTIALS, site_credential::row(after), whole)
        }
        Change::Sku(row) => tx.put(&site::SKUS, site::sku_row(row), whole),
        Change::Profile(row) => tx.put(&site_detail::PROFILES, site_detail::profile_row(row), whole),
        Change::PowerOverride(row) => tx.put(&site_detail::OVERRIDES, site_detail::override_row(row), whole),
        Change::Roce(row) => tx.put(&site_detail::ROCE, site_detail::roce_row(row), whole),
        Change::Removed(removed) => remove(tx, removed),
        Change::EnrollmentToken(row) => tx.put(&credential::ENROLLMENT_TOKENS, credential::enrollment_row(row), whole),
        Change::ApiToken(row) => tx.put(&credential::API_TOKENS, credential::api_row(row), whole),
        Change::Silence(row) => tx.put(&silence::SILENCES, silence::row(row), whole),
        Change::Webhook(change) => tx.put(&webhook::WEBHOOKS, webhook::row(&change.after), whole),
        Change::WebhookStep(step) => {
            tx.put(&webhook::WEBHOOK_PROGRESS, webhook::progress_row(&step.after), whole)?;
            match &step.delivery {
                Some(delivery) => {
                    let row = webhook::delivery_row(step.after.webhook, delivery);
                    tx.put(&webhook::WEBHOOK_DELIVERIES, row, Put::Insert)
                }
                None => Ok(()),
            }
        }
        Change::WipeCertificate(file) => tx.put(&wipe::WIPE_CERTIFICATES, wipe::row(file), Put::Insert),
        Change::Wipe { .. } | Change::Refusal { .. } | Change::Note { .. } => Ok(()),
    }
}

fn remove(tx: &mut impl Transaction, removed: &Removed) -> Result<(), StoreError> {
    // The row itself, then what belongs to it alone.
    let tables: &[&'static Table] = match removed {
        Removed::Site(_) => &[&site::SITES, &site_credential::SITE_CREDENTIALS],
        Removed::Sku(_) => &[&site::SKUS],
        Removed::Profile(_) => &[&site_detail::PROFILES],
        Removed::PowerOverride(_) => &[&site_detail::OVERRIDES],
        Removed::Roce(_) => &[&site_detail::ROCE],
        Removed::Webhook(_) => &[&webhook::WEBHOOKS, &webhook::WEBHOOK_PROGRESS, &webhook::WEBHOOK_DELIVERIES],
        Removed::Silence(_) => &[&silence::SILENCES],
    };
    let key = match removed_row(removed).0 {
        RowKey::Sku(name) => Value::owned(name),
        RowKey::Node(id) | RowKey::Bmc(id) => Value::Id(id.uuid()),
        RowKey::Job(id) => Value::Id(id.uuid()),
        RowKey::Batch(id) => Value::Id(id.uuid()),
        RowKey::Task(id) => Value::Id(id.uuid()),
        RowKey::Allocation(id) => Value::Id(id.uuid()),
        RowKey::Site(id) | RowKey::SiteCredential(id, _) => Value::Id(id.uuid()),
        RowKey::Profile(id) => Value::Id(id.uuid()),
        RowKey::PowerOverride(id) => Value::Id(id.uuid()),
        RowKey::Roce(id) => Value::Id(id.uuid()),
        RowKey::EnrollmentToken(id) => Value::Id(id.uuid()),
        RowKey::ApiToken(id) => Value::Id(id.uuid()),
        RowKey::Silence(id) => Value::Id(id.uuid()),
        RowKey::Webhook(id) | RowKey::WebhookProgress(id) => Value::Id(id.uuid()),
    };
    tables.iter().try_for_each(|table| tx.remove(table, key.clone()))
}

fn count(chain: &mut Chain, change: &NodeChange, head: Option<&Head>) {
    if let Some(stored) = head.and_then(|head| head.node.as_ref()) {
        *chain.counts.entry((stored.site, stored.state)).or_default() -= 1;
    }
    *chain.counts.entry((change.after.site, change.after.state)).or_default() += 1;
}

/// The id of a site, as the counts have it.
pub(crate) fn count_row((site, state): (SiteId, NodeState), by: i64) -> (Uuid, &'static str, &'static str, i64) {
    (site.uuid(), state.status.into(), state.availability.into(), by)
}
