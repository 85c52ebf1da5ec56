//! What a whole batch is judged against: read at once under the lock of the head row, then kept up in memory.

use std::collections::HashMap;
use std::hash::Hash;

use deadpool_postgres::Object;
use futures_util::future::try_join_all;
use lattice_core::change::{Change, Removed};
use lattice_core::ids::{
    AllocationId, ApiTokenId, BatchId, EventSeq, Generation, JobId, LeaseEpoch, NodeId, OpId, OverrideId, ProfileId,
    RoceId, SilenceId, SiteId, TaskId, TokenId, WebhookId,
};
use lattice_core::node::{NodeState, Status};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::batch::Batch;
use super::committer::Failure;
use crate::apply::{Chain, Put, Transaction, node_head};
use crate::commit::{Head, HeldEpoch, Needs, NodeHead, RowKey, UniqueKey, guarded, removed_row, roce_keys};
use crate::error::StoreError;
use crate::job::{LIVE, OWNING};
use crate::sql::{Reader, Value};
use crate::table::Table;

/// A transaction whose reads are done and whose writes are collected.
pub(super) struct Preloaded {
    /// As the last commit left it.
    pub(super) chain: Chain,
    /// What is to be written.
    pub(super) batch: Batch,
    ops: HashMap<Uuid, EventSeq>,
    rows: HashMap<RowKey, Head>,
    /// Ids of the rows that have a key; only live jobs of one node can be several.
    holders: HashMap<UniqueKey, Vec<String>>,
    leases: HashMap<String, LeaseEpoch>,
}

impl Preloaded {
    /// Begins the transaction, locks the head row, reads what the batch needs.
    pub(super) async fn read(client: &Object, needs: Needs) -> Result<Self, Failure> {
        const HEAD: &str = "SELECT event_seq, audit_seq, audit_hash FROM head FOR UPDATE";
        client.batch_execute("BEGIN").await?;
        let head = client.prepare_cached(HEAD).await?;
        let chain = read_chain(&mut Reader::new(&client.query_one(&head, &[]).await?))?;
        let mut preloaded = Self {
            chain,
            batch: Batch::default(),
            ops: HashMap::new(),
            rows: HashMap::new(),
            holders: HashMap::new(),
            leases: HashMap::new(),
        };
        let questions = questions(needs);
        let answers = try_join_all(questions.iter().map(|question| question.ask(client))).await?;
        for (question, rows) in questions.iter().zip(answers) {
            for row in &rows {
                preloaded.take(question.about, &mut Reader::new(row))?;
            }
        }
        Ok(preloaded)
    }

    /// Remembers an op for the rest of the batch.
    pub(super) fn committed(&mut self, op: OpId, seq: EventSeq) {
        self.ops.insert(op.uuid(), seq);
    }

    fn take(&mut self, about: About, r: &mut Reader<'_>) -> Result<(), StoreError> {
        match about {
            About::Ops => drop(self.ops.insert(r.id()?, EventSeq(r.count()?))),
            About::Leases => drop(self.leases.insert(r.text()?, LeaseEpoch(r.count()?))),
            About::Nodes => {
                let key = RowKey::Node(NodeId::new(r.id()?));
                let generation = r.generation()?;
                let state = NodeState { status: r.name()?, availability: r.name()? };
                let (hostname, site) = (r.text()?, SiteId::new(r.id()?));
                let node = NodeHead { state, hostname, site, sku: r.text()?, provider_ref: r.opt_text()? };
                self.rows.insert(key, Head { generation, node: Some(node) });
            }
            About::Jobs => self.version(RowKey::Job(JobId::new(r.id()?)), r.generation()?),
            About::Batches => self.version(RowKey::Batch(BatchId::new(r.id()?)), r.generation()?),
            About::Allocations => self.version(RowKey::Allocation(AllocationId::new(r.id()?)), r.generation()?),
            About::Tasks => self.version(RowKey::Task(TaskId::new(r.id()?)), r.generation()?),
            About::Sites => self.version(RowKey::Site(SiteId::new(r.id()?)), r.generation()?),
            About::SiteCredentials => {
                let (site, name) = (SiteId::new(r.id()?), r.name()?);
                self.version(RowKey::SiteCredential(site, name), r.generation()?);
            }
            About::BmcRows => self.version(RowKey::Bmc(NodeId::new(r.id()?)), r.generation()?),
            About::EnrollmentTokens => self.version(RowKey::EnrollmentToken(TokenId::new(r.id()?)), r.generation()?),
            About::ApiTokens => self.version(RowKey::ApiToken(ApiTokenId::new(r.id()?)), r.generation()?),
            About::Skus => self.version(RowKey::Sku(r.text()?), r.generation()?),
            About::Hostnames => self.holds(UniqueKey::Hostname(r.text()?), r.id()?),
            About::ProviderRefs => self.holds(UniqueKey::ProviderRef(SiteId::new(r.id()?), r.text()?), r.id()?),
            About::SiteNames => self.holds(UniqueKey::SiteName(r.text()?), r.id()?),
            About::Profiles => self.version(RowKey::Profile(ProfileId::new(r.id()?)), r.generation()?),
            About::PowerOverrides => self.version(RowKey::PowerOverride(OverrideId::new(r.id()?)), r.generation()?),
            About::Roce => self.version(RowKey::Roce(RoceId::new(r.id()?)), r.generation()?),
            About::ProfileNames => self.holds(UniqueKey::ProfileName(SiteId::new(r.id()?), r.text()?), r.id()?),
            About::PowerSelectors => {
                self.holds(UniqueKey::PowerSelector(SiteId::new(r.id()?), r.name()?, r.text()?), r.id()?);
            }
            About::RoceSlots => {
                self.holds(UniqueKey::RoceSlot(SiteId::new(r.id()?), r.text()?, r.text()?), r.id()?);
            }
            About::RoceAddresses => self.holds(UniqueKey::RoceAddress(SiteId::new(r.id()?), r.text()?), r.id()?),
            About::Bmcs => self.holds(UniqueKey::Bmc(SiteId::new(r.id()?), r.text()?), r.id()?),
            About::NodesOfSites => self.holds(UniqueKey::NodeOfSite(SiteId::new(r.id()?)), r.id()?),
            About::NodesOfSkus => self.holds(UniqueKey::NodeOfSku(r.text()?), r.id()?),
            About::EnrollmentHashes => self.holds(UniqueKey::EnrollmentHash(r.text()?), r.id()?),
            About::ApiHashes => self.holds(UniqueKey::ApiHash(r.text()?), r.id()?),
            About::TaskKeys => self.holds(UniqueKey::TaskKey(r.text()?), r.id()?),
            About::Webhooks => self.version(RowKey::Webhook(WebhookId::new(r.id()?)), r.generation()?),
            About::Silences => self.version(RowKey::Silence(SilenceId::new(r.id()?)), r.generation()?),
            About::WebhookProgress => {
                self.version(RowKey::WebhookProgress(WebhookId::new(r.id()?)), r.generation()?);
            }
            About::WebhookNames => self.holds(UniqueKey::WebhookName(r.text()?), r.id()?),
            About::LiveJobs => self.holds(UniqueKey::LiveJob(NodeId::new(r.id()?)), r.id()?),
        }
        Ok(())
    }

    fn version(&mut self, key: RowKey, generation: Generation) {
        self.rows.insert(key, Head { generation, node: None });
    }

    fn holds(&mut self, key: UniqueKey, id: Uuid) {
        self.holders.entry(key).or_default().push(id.hyphenated().to_string());
    }

    fn frees(&mut self, key: &UniqueKey, id: &str) {
        if let Some(holders) = self.holders.get_mut(key) {
            holders.retain(|holder| holder != id);
        }
    }

    /// Whatever this row had is free for the rest of the batch.
    fn frees_all(&mut self, id: Uuid) {
        let id = id.hyphenated().to_string();
        self.holders.values_mut().for_each(|holders| holders.retain(|holder| *holder != id));
    }

    /// A row that has nothing but its version.
    fn written_version(&mut self, change: &Change) {
        if let Some((key, generation)) = guarded(change) {
            self.version(key, generation);
        }
    }

    fn written_removed(&mut self, removed: &Removed) {
        let (key, _) = removed_row(removed);
        match &key {
            RowKey::Site(id) => {
                self.frees_all(id.uuid());
                self.rows.retain(|key, _| !matches!(key, RowKey::SiteCredential(site, _) if site == id));
            }
            RowKey::Profile(id) => self.frees_all(id.uuid()),
            RowKey::PowerOverride(id) => self.frees_all(id.uuid()),
            RowKey::Roce(id) => self.frees_all(id.uuid()),
            RowKey::Webhook(id) => {
                self.frees_all(id.uuid());
                self.rows.remove(&RowKey::WebhookProgress(*id));
            }
            RowKey::WebhookProgress(_)
            | RowKey::Silence(_)
            | RowKey::Sku(_)
            | RowKey::SiteCredential(..)
            | RowKey::Bmc(_)
            | RowKey::Node(_)
            | RowKey::Job(_)
            | RowKey::Batch(_)
            | RowKey::Task(_)
            | RowKey::Allocation(_)
            | RowKey::EnrollmentToken(_)
            | RowKey::ApiToken(_) => {}
        }
        self.rows.remove(&key);
    }

    fn written_node(&mut self, after: &lattice_core::node::Node, before: Option<&Head>) {
        let id = after.id.to_string();
        if let Some(stored) = before.and_then(|head| head.node.as_ref()) {
            self.frees(&UniqueKey::Hostname(stored.hostname.clone()), &id);
            if let Some(name) = &stored.provider_ref {
                self.frees(&UniqueKey::ProviderRef(stored.site, name.clone()), &id);
            }
        }
        if before.is_none() {
            self.holds(UniqueKey::NodeOfSite(after.site), after.id.uuid());
            self.holds(UniqueKey::NodeOfSku(after.sku.clone()), after.id.uuid());
            if let Some(address) = &after.bmc_address {
                self.holds(UniqueKey::Bmc(after.site, address.clone()), after.id.uuid());
            }
        }
        if after.state.status != Status::Deleted {
            self.holds(UniqueKey::Hostname(after.hostname.clone()), after.id.uuid());
            if let Some(name) = &after.provider_ref {
                self.holds(UniqueKey::ProviderRef(after.site, name.clone()), after.id.uuid());
            }
        }
        let head = Head { generation: after.generation, node: Some(node_head(after)) };
        self.rows.insert(RowKey::Node(after.id), head);
    }
}

impl Transaction for Preloaded {
    fn op(&mut self, op: OpId) -> Result<Option<EventSeq>, StoreError> {
        Ok(self.ops.get(&op.uuid()).copied())
    }
    fn row(&mut self, key: &RowKey) -> Result<Option<Head>, StoreError> {
        Ok(self.rows.get(key).cloned())
    }
    fn holder(&mut self, key: &UniqueKey) -> Result<Option<String>, StoreError> {
        Ok(self.holders.get(key).and_then(|holders| holders.first()).cloned())
    }
    fn lease(&mut self, name: &str) -> Result<HeldEpoch, StoreError> {
        Ok(self.leases.get(name).copied())
    }
    fn put(&mut self, table: &'static Table, row: Vec<Value<'_>>, how: Put) -> Result<(), StoreError> {
        match how {
            // PostgreSQL leaves indexes alone whose columns keep their values; one statement serves all three.
            Put::Insert | Put::Update | Put::UpdateAll => self.batch.put(table, row),
        }
        Ok(())
    }
    fn remove(&mut self, table: &'static Table, key: Value<'_>) -> Result<(), StoreError> {
        self.batch.remove(table, key);
        Ok(())
    }
    fn written(&mut self, change: &Change, before: Option<&Head>) {
        match change {
            Change::Node(change) => self.written_node(&change.after, before),
            Change::Job(change) => {
                let job = &change.after;
                let key = UniqueKey::LiveJob(job.node);
                self.frees(&key, &job.id.to_string());
                if !job.state.status.is_terminal() && job.kind.owns_its_node() {
                    self.holds(key, job.id.uuid());
                }
                self.version(RowKey::Job(job.id), job.generation);
            }
            Change::Task(change) => {
                let task = &change.after;
                if before.is_none() {
                    self.holds(UniqueKey::TaskKey(task.key.clone()), task.id.uuid());
                }
                self.version(RowKey::Task(task.id), task.generation);
            }
            Change::Site(site) => {
                // A changed name frees the old one only with the next batch: at worst a conflict that is repeated.
                self.holds(UniqueKey::SiteName(site.name.clone()), site.id.uuid());
                self.version(RowKey::Site(site.id), site.generation);
            }
            Change::Profile(profile) => {
                self.holds(UniqueKey::ProfileName(profile.site, profile.name.clone()), profile.id.uuid());
                self.version(RowKey::Profile(profile.id), profile.generation);
            }
            Change::PowerOverride(one) => {
                self.holds(UniqueKey::PowerSelector(one.site, one.selector, one.value.clone()), one.id.uuid());
                self.version(RowKey::PowerOverride(one.id), one.generation);
            }
            Change::Roce(row) => {
                // A changed address frees the old one only with the next batch: at worst a conflict that is repeated.
                roce_keys(row).into_iter().for_each(|key| self.holds(key, row.id.uuid()));
                self.version(RowKey::Roce(row.id), row.generation);
            }
            Change::Removed(removed) => self.written_removed(removed),
            Change::EnrollmentToken(token) => {
                self.holds(UniqueKey::EnrollmentHash(token.hash.clone()), token.id.uuid());
                self.version(RowKey::EnrollmentToken(token.id), token.generation);
            }
            Change::ApiToken(token) => {
                self.holds(UniqueKey::ApiHash(token.hash.clone()), token.id.uuid());
                self.version(RowKey::ApiToken(token.id), token.generation);
            }
            Change::Webhook(change) => {
                self.holds(UniqueKey::WebhookName(change.after.name.clone()), change.after.id.uuid());
                self.version(RowKey::Webhook(change.after.id), change.after.generation);
            }
            Change::Batch(_)
            | Change::Allocation(_)
            | Change::WebhookStep(_)
            | Change::Silence(_)
            | Change::Sku(_)
            | Change::SiteCredential { .. }
            | Change::HostFacts { .. }
            | Change::ProviderState(_)
            | Change::BmcReport(_)
            | Change::ComponentReport(_)
            | Change::Bmc { .. }
            | Change::Wipe { .. }
            | Change::WipeCertificate(_)
            | Change::Refusal { .. }
            | Change::Note { .. } => self.written_version(change),
        }
    }
}

fn read_chain(r: &mut Reader<'_>) -> Result<Chain, StoreError> {
    Ok(Chain { event_seq: r.count()?, audit_seq: r.count()?, audit_hash: r.text()?, ..Chain::empty() })
}

/// What a question is about, and so what its rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum About {
    Ops,
    Leases,
    Nodes,
    Jobs,
    Batches,
    Tasks,
    Allocations,
    Sites,
    SiteCredentials,
    BmcRows,
    EnrollmentTokens,
    ApiTokens,
    Skus,
    Hostnames,
    ProviderRefs,
    SiteNames,
    Profiles,
    PowerOverrides,
    Roce,
    ProfileNames,
    PowerSelectors,
    RoceSlots,
    RoceAddresses,
    Bmcs,
    NodesOfSites,
    NodesOfSkus,
    EnrollmentHashes,
    ApiHashes,
    TaskKeys,
    Webhooks,
    WebhookProgress,
    WebhookNames,
    Silences,
    LiveJobs,
}

const NODES: &str = "SELECT id, generation, status, availability, hostname, site, sku, provider_ref FROM nodes \
    WHERE id = ANY($1)";

impl About {
    fn sql(self) -> String {
        match self {
            Self::Ops => "SELECT op, seq FROM ops WHERE op = ANY($1)",
            // Shared with other commits, exclusive to whoever wants to take the lease: it waits for this commit.
            Self::Leases => "SELECT name, epoch FROM leases WHERE name = ANY($1) AND holder IS NOT NULL FOR SHARE",
            Self::Nodes => NODES,
            Self::Jobs => "SELECT id, generation FROM jobs WHERE id = ANY($1)",
            Self::Batches => "SELECT id, generation FROM batches WHERE id = ANY($1)",
            Self::Allocations => "SELECT id, generation FROM allocations WHERE id = ANY($1)",
            Self::Tasks => "SELECT id, generation FROM tasks WHERE id = ANY($1)",
            Self::Sites => "SELECT id, generation FROM sites WHERE id = ANY($1)",
            Self::SiteCredentials => "SELECT site, name, generation FROM site_credentials WHERE site = ANY($1)",
            Self::BmcRows => "SELECT node, generation FROM bmcs WHERE node = ANY($1)",
            Self::EnrollmentTokens => "SELECT id, generation FROM enrollment_tokens WHERE id = ANY($1)",
            Self::ApiTokens => "SELECT id, generation FROM api_tokens WHERE id = ANY($1)",
            Self::Skus => "SELECT name, generation FROM skus WHERE name = ANY($1)",
            Self::Hostnames => "SELECT hostname, id FROM nodes WHERE hostname = ANY($1) AND live = 1",
            Self::ProviderRefs => {
                "SELECT nodes.site, nodes.provider_ref, nodes.id FROM UNNEST($1::uuid[], $2::text[]) AS asked(site, name) \
                JOIN nodes ON nodes.site = asked.site AND nodes.provider_ref = asked.name \
                WHERE nodes.live = 1"
            }
            Self::SiteNames => "SELECT name, id FROM sites WHERE name = ANY($1)",
            Self::Profiles => "SELECT id, generation FROM site_profiles WHERE id = ANY($1)",
            Self::PowerOverrides => "SELECT id, generation FROM power_overrides WHERE id = ANY($1)",
            Self::Roce => "SELECT id, generation FROM roce WHERE id = ANY($1)",
            Self::ProfileNames => {
                "SELECT p.site, p.name, p.id FROM UNNEST($1::uuid[], $2::text[]) AS asked(site, name) \
                JOIN site_profiles p ON p.site = asked.site AND p.name = asked.name"
            }
            Self::PowerSelectors => {
                "SELECT o.site, o.selector, o.value, o.id FROM UNNEST($1::uuid[], $2::text[]) AS asked(site, value) \
                JOIN power_overrides o ON o.site = asked.site AND o.value = asked.value"
            }
            // Asked once for each interface of a host, answered once for the host.
            Self::RoceSlots => {
                "SELECT r.site, r.hostname, r.interface, r.id FROM (SELECT DISTINCT site, name FROM \
                UNNEST($1::uuid[], $2::text[]) AS asked(site, name)) AS asked \
                JOIN roce r ON r.site = asked.site AND r.hostname = asked.name"
            }
            Self::RoceAddresses => {
                "SELECT r.site, r.address, r.id FROM UNNEST($1::uuid[], $2::text[]) AS asked(site, name) \
                JOIN roce r ON r.site = asked.site AND r.address = asked.name"
            }
            Self::Bmcs => {
                "SELECT nodes.site, nodes.bmc_address, nodes.id FROM UNNEST($1::uuid[], $2::text[]) AS asked(site, name) \
                JOIN nodes ON nodes.site = asked.site AND nodes.bmc_address = asked.name \
                WHERE nodes.live = 1"
            }
            Self::NodesOfSites => {
                "SELECT asked.site, found.id FROM UNNEST($1::uuid[]) AS asked(site) \
                CROSS JOIN LATERAL (SELECT id FROM nodes WHERE site = asked.site LIMIT 1) AS found"
            }
            Self::NodesOfSkus => {
                "SELECT asked.name, found.id FROM UNNEST($1::text[]) AS asked(name) \
                CROSS JOIN LATERAL (SELECT id FROM nodes WHERE sku = asked.name AND live = 1 LIMIT 1) AS found"
            }
            Self::EnrollmentHashes => "SELECT hash, id FROM enrollment_tokens WHERE hash = ANY($1)",
            Self::ApiHashes => "SELECT hash, id FROM api_tokens WHERE hash = ANY($1)",
            Self::TaskKeys => "SELECT key, id FROM tasks WHERE key = ANY($1)",
            Self::Webhooks => "SELECT id, generation FROM webhooks WHERE id = ANY($1)",
            Self::WebhookProgress => "SELECT webhook, generation FROM webhook_progress WHERE webhook = ANY($1)",
            Self::Silences => "SELECT id, generation FROM silences WHERE id = ANY($1)",
            Self::WebhookNames => "SELECT name, id FROM webhooks WHERE name = ANY($1)",
            Self::LiveJobs => return format!("SELECT node, id FROM jobs WHERE node = ANY($1) AND {LIVE} AND {OWNING} ORDER BY id DESC"),
        }
        .to_owned()
    }
}

/// One set-based read: which keys it asks for.
struct Question {
    about: About,
    ids: Vec<Uuid>,
    texts: Vec<String>,
}

impl Question {
    async fn ask(&self, client: &Object) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = client.prepare_cached(&self.about.sql()).await?;
        let mut params: Vec<&(dyn ToSql + Sync)> = Vec::new();
        if !self.ids.is_empty() {
            params.push(&self.ids);
        }
        if !self.texts.is_empty() {
            params.push(&self.texts);
        }
        client.query(&statement, &params).await
    }
}

fn questions(needs: Needs) -> Vec<Question> {
    let mut all: HashMap<About, Question> = HashMap::new();
    let mut ask = |about, id: Option<Uuid>, text: Option<String>| {
        let question = all.entry(about).or_insert_with(|| Question { about, ids: Vec::new(), texts: Vec::new() });
        question.ids.extend(id);
        question.texts.extend(text);
    };
    needs.ops.into_iter().for_each(|op| ask(About::Ops, Some(op), None));
    needs.leases.into_iter().for_each(|name| ask(About::Leases, None, Some(name)));
    for key in needs.rows {
        match key {
            RowKey::Node(id) => ask(About::Nodes, Some(id.uuid()), None),
            RowKey::Job(id) => ask(About::Jobs, Some(id.uuid()), None),
            RowKey::Batch(id) => ask(About::Batches, Some(id.uuid()), None),
            RowKey::Allocation(id) => ask(About::Allocations, Some(id.uuid()), None),
            RowKey::Task(id) => ask(About::Tasks, Some(id.uuid()), None),
            RowKey::Site(id) => ask(About::Sites, Some(id.uuid()), None),
            RowKey::SiteCredential(site, _) => ask(About::SiteCredentials, Some(site.uuid()), None),
            RowKey::Bmc(node) => ask(About::BmcRows, Some(node.uuid()), None),
            RowKey::Sku(name) => ask(About::Skus, None, Some(name)),
            RowKey::Profile(id) => ask(About::Profiles, Some(id.uuid()), None),
            RowKey::PowerOverride(id) => ask(About::PowerOverrides, Some(id.uuid()), None),
            RowKey::Roce(id) => ask(About::Roce, Some(id.uuid()), None),
            RowKey::EnrollmentToken(id) => ask(About::EnrollmentTokens, Some(id.uuid()), None),
            RowKey::ApiToken(id) => ask(About::ApiTokens, Some(id.uuid()), None),
            RowKey::Webhook(id) => ask(About::Webhooks, Some(id.uuid()), None),
            RowKey::Silence(id) => ask(About::Silences, Some(id.uuid()), None),
            RowKey::WebhookProgress(id) => ask(About::WebhookProgress, Some(id.uuid()), None),
        }
    }
    for key in needs.keys {
        match key {
            UniqueKey::Hostname(name) => ask(About::Hostnames, None, Some(name)),
            UniqueKey::ProviderRef(site, name) => ask(About::ProviderRefs, Some(site.uuid()), Some(name)),
            UniqueKey::SiteName(name) => ask(About::SiteNames, None, Some(name)),
            UniqueKey::ProfileName(site, name) => ask(About::ProfileNames, Some(site.uuid()), Some(name)),
            UniqueKey::PowerSelector(site, _, value) => ask(About::PowerSelectors, Some(site.uuid()), Some(value)),
            UniqueKey::RoceSlot(site, hostname, _) => ask(About::RoceSlots, Some(site.uuid()), Some(hostname)),
            UniqueKey::RoceAddress(site, address) => ask(About::RoceAddresses, Some(site.uuid()), Some(address)),
            UniqueKey::Bmc(site, address) => ask(About::Bmcs, Some(site.uuid()), Some(address)),
            UniqueKey::NodeOfSite(site) => ask(About::NodesOfSites, Some(site.uuid()), None),
            UniqueKey::NodeOfSku(name) => ask(About::NodesOfSkus, None, Some(name)),
            UniqueKey::EnrollmentHash(hash) => ask(About::EnrollmentHashes, None, Some(hash)),
            UniqueKey::ApiHash(hash) => ask(About::ApiHashes, None, Some(hash)),
            UniqueKey::TaskKey(key) => ask(About::TaskKeys, None, Some(key)),
            UniqueKey::WebhookName(name) => ask(About::WebhookNames, None, Some(name)),
            UniqueKey::LiveJob(node) => ask(About::LiveJobs, Some(node.uuid()), None),
        }
    }
    all.into_values().collect()
}
