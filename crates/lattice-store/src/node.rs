//! Nodes: their table, their lists, their counts.

use std::collections::BTreeMap;

use lattice_core::ids::{Generation, JobId, NodeId, SiteId};
use lattice_core::node::{
    Availability, DownCause, Hold, HoldKind, Labels, Node, NodeClass, NodeState, OnboardingMode, Status,
};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;
use uuid::Uuid;

use crate::commit::NodeHead;
use crate::error::StoreError;
use crate::page::{Cursor, PAGE_MAX, Page, PageRequest};
use crate::sql::{Conditions, Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col, stable};

/// One row for each node.
///
/// `live` is 0 for deleted nodes. `hold_kinds` and `held_until` are drawn out of `holds` for lists: 0 means no hold, the largest number one
/// without an end.
pub(crate) const NODES: Table = Table {
    name: "nodes",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        stable("id", Kind::Id),
        stable("hostname", Kind::Text),
        stable("site", Kind::Id),
        stable("sku", Kind::Text),
        stable("mode", Kind::Text),
        stable("provider_ref", Kind::Text),
        stable("live", Kind::Int),
        stable("created_at", Kind::Int),
        col("class", Kind::Text),
        col("status", Kind::Text),
        col("availability", Kind::Text),
        col("status_since", Kind::Int),
        col("availability_since", Kind::Int),
        col("down_cause", Kind::Text),
        col("deadline", Kind::Int),
        col("boot_failures", Kind::Int),
        col("drain_intent", Kind::Int),
        col("minor_issue", Kind::Text),
        col("identity_epoch", Kind::Int),
        col("boot_id", Kind::Text),
        col("agent_version", Kind::Text),
        col("fingerprint", Kind::Text),
        col("deviates_since", Kind::Int),
        col("labels", Kind::Text),
        col("address", Kind::Text),
        col("bmc_address", Kind::Text),
        col("owning_job", Kind::Id),
        col("hold_kinds", Kind::Text),
        col("held_until", Kind::Int),
        col("holds", Kind::Text),
        col("ownership", Kind::Text),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
    ],
};

/// What [`read`] reads.
pub(crate) const COLUMNS: &str = "id, hostname, site, sku, mode, provider_ref, created_at, class, status, \
    availability, status_since, availability_since, down_cause, deadline, boot_failures, drain_intent, minor_issue, \
    identity_epoch, boot_id, agent_version, fingerprint, deviates_since, labels, address, bmc_address, owning_job, holds, ownership, updated_at, \
    generation";

const SUMMARY: &str = "SELECT id, hostname, site, sku, mode, class, status, availability, status_since, \
    availability_since, down_cause, deadline, agent_version, labels, address, owning_job, hold_kinds, held_until, \
    created_at, updated_at, generation FROM nodes";

pub(crate) fn row(node: &Node) -> Vec<Value<'_>> {
    vec![
        Value::Id(node.id.uuid()),
        Value::text(&node.hostname),
        Value::Id(node.site.uuid()),
        Value::text(&node.sku),
        Value::name(node.mode),
        Value::opt_text(node.provider_ref.as_deref()),
        Value::flag(is_live(node.state)),
        Value::time(node.created_at),
        Value::name(node.class),
        Value::name(node.state.status),
        Value::name(node.state.availability),
        Value::time(node.status_since),
        Value::time(node.availability_since),
        node.down_cause.map_or(Value::Null, Value::name),
        Value::opt_time(node.deadline),
        Value::Int(i64::from(node.boot_failures)),
        Value::flag(node.drain_intent),
        Value::opt_text(node.minor_issue.as_deref()),
        Value::count(node.identity_epoch),
        Value::opt_text(node.boot_id.as_deref()),
        Value::opt_text(node.agent_version.as_deref()),
        Value::opt_text(node.fingerprint.as_deref()),
        Value::opt_time(node.deviates_since),
        if node.labels.is_empty() { Value::text("{}") } else { Value::json(&node.labels) },
        Value::opt_text(node.address.as_deref()),
        Value::opt_text(node.bmc_address.as_deref()),
        Value::opt_id(node.owning_job.map(JobId::uuid)),
        Value::owned(node.holds.iter().map(|hold| hold.kind.into()).collect::<Vec<&str>>().join(",")),
        Value::Int(held_until(&node.holds)),
        if node.holds.is_empty() { Value::text("[]") } else { Value::json(&node.holds) },
        Value::json(&node.ownership),
        Value::time(node.updated_at),
        Value::generation(node.generation),
    ]
}

/// Whether a lean update suffices: none of the columns that seldom change does.
pub(crate) fn same_stable(stored: &NodeHead, after: &Node) -> bool {
    stored.hostname == after.hostname
        && stored.site == after.site
        && stored.sku == after.sku
        && stored.provider_ref == after.provider_ref
        && is_live(stored.state) == is_live(after.state)
}

/// Whether the node still has its hostname and its machine for itself.
fn is_live(state: NodeState) -> bool {
    state.status != Status::Deleted
}

/// When the last hold ends: 0 without holds, the largest number when one has no end.
fn held_until(holds: &[Hold]) -> i64 {
    holds.iter().map(|hold| hold.until.map_or(i64::MAX, Timestamp::as_millis)).max().unwrap_or(0)
}

fn select() -> String {
    format!("SELECT {COLUMNS} FROM nodes")
}

/// A node, from [`COLUMNS`].
pub(crate) fn read(r: &mut Reader<'_>) -> Result<Node, StoreError> {
    Ok(Node {
        id: NodeId::new(r.id()?),
        hostname: r.text()?,
        site: SiteId::new(r.id()?),
        sku: r.text()?,
        mode: r.name()?,
        provider_ref: r.opt_text()?,
        created_at: r.time()?,
        class: r.name()?,
        state: NodeState { status: r.name()?, availability: r.name()? },
        status_since: r.time()?,
        availability_since: r.time()?,
        down_cause: r.opt_name()?,
        deadline: r.opt_time()?,
        boot_failures: r.small()?,
        drain_intent: r.flag()?,
        minor_issue: r.opt_text()?,
        identity_epoch: r.count()?,
        boot_id: r.opt_text()?,
        agent_version: r.opt_text()?,
        fingerprint: r.opt_text()?,
        deviates_since: r.opt_time()?,
        labels: r.json()?,
        address: r.opt_text()?,
        bmc_address: r.opt_text()?,
        owning_job: r.opt_id()?.map(JobId::new),
        holds: r.json()?,
        ownership: r.json()?,
        updated_at: r.time()?,
        generation: r.generation()?,
    })
}

/// A node as lists show it: without the columns that only its own page needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSummary {
    /// Identity.
    pub id: NodeId,
    /// Its name.
    pub hostname: String,
    /// Where it belongs.
    pub site: SiteId,
    /// Name of its SKU.
    pub sku: String,
    /// How it came.
    pub mode: OnboardingMode,
    /// Class when nothing claims it.
    pub class: NodeClass,
    /// Both states.
    pub state: NodeState,
    /// Since when its status is what it is.
    pub status_since: Timestamp,
    /// Since when its availability is what it is.
    pub availability_since: Timestamp,
    /// Why it is down; only then.
    pub down_cause: Option<DownCause>,
    /// When a boot counts as failed; only while booting.
    pub deadline: Option<Timestamp>,
    /// Version that the agent reported.
    pub agent_version: Option<String>,
    /// What operators say of it.
    pub labels: Labels,
    /// Address at which the host answers.
    pub address: Option<String>,
    /// The job that is responsible for it now.
    pub owning_job: Option<JobId>,
    /// Kinds of the holds that were set, ended ones included.
    pub holds: Vec<HoldKind>,
    /// When the last of its holds ends by itself; none: without holds, or never.
    pub held_until: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

impl NodeSummary {
    /// Whether it may be given new work at `now`; agrees with [`Node::is_schedulable`].
    pub fn is_schedulable(&self, now: Timestamp) -> bool {
        self.state == NodeState::new(Status::Active, Availability::Ready)
            && (self.holds.is_empty() || self.held_until.is_some_and(|until| until <= now))
    }
}

fn read_summary(r: &mut Reader<'_>) -> Result<NodeSummary, StoreError> {
    Ok(NodeSummary {
        id: NodeId::new(r.id()?),
        hostname: r.text()?,
        site: SiteId::new(r.id()?),
        sku: r.text()?,
        mode: r.name()?,
        class: r.name()?,
        state: NodeState { status: r.name()?, availability: r.name()? },
        status_since: r.time()?,
        availability_since: r.time()?,
        down_cause: r.opt_name()?,
        deadline: r.opt_time()?,
        agent_version: r.opt_text()?,
        labels: r.json()?,
        address: r.opt_text()?,
        owning_job: r.opt_id()?.map(JobId::new),
        holds: hold_kinds(&r.text()?)?,
        held_until: match r.int()? {
            0 | i64::MAX => None,
            millis => Some(Timestamp::from_millis(millis)),
        },
        created_at: r.time()?,
        updated_at: r.time()?,
        generation: r.generation()?,
    })
}

fn hold_kinds(text: &str) -> Result<Vec<HoldKind>, StoreError> {
    text.split(',')
        .filter(|kind| !kind.is_empty())
        .map(|kind| kind.parse().map_err(|_| StoreError::corrupt("hold_kinds", format!("`{kind}` is not known"))))
        .collect()
}

/// Which nodes a list has. An empty filter has all but the deleted ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFilter {
    /// With one of these statuses; empty: all but deleted.
    pub statuses: Vec<Status>,
    /// With one of these availabilities; empty: all.
    pub availabilities: Vec<Availability>,
    /// At this site.
    pub site: Option<SiteId>,
    /// Of this SKU.
    pub sku: Option<String>,
    /// Hostname begins with this.
    pub hostname_prefix: Option<String>,
    /// With a hold of this kind, ended ones included.
    pub hold: Option<HoldKind>,
    /// Schedulable at this time.
    pub schedulable_at: Option<Timestamp>,
    /// With all of these labels.
    pub labels: Labels,
    /// Whether nothing is placed on it.
    pub idle: Option<bool>,
    /// Only those a person should look at: offline or quarantined; degraded, down or failed; a failed wipe; a job
    /// that failed.
    pub needs_attention: bool,
}

/// In which order a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeSort {
    /// By hostname.
    #[default]
    Hostname,
    /// The newest first.
    Newest,
    /// The oldest first.
    Oldest,
}

const NEEDS_ATTENTION: &str = "(status IN ('offline', 'quarantined') OR availability IN ('degraded', 'down', 'failed') \
    OR hold_kinds LIKE '%wipe_failed%' OR id IN (SELECT node FROM jobs \
    WHERE status IN ('failed_retryable', 'failed_manual_intervention')))";

impl NodeFilter {
    fn conditions(&self) -> Conditions {
        let mut conditions = Conditions::default();
        if self.statuses.is_empty() {
            conditions.add("live = 1", []);
        }
        conditions.one_of("status", self.statuses.iter().map(|status| Value::name(*status)));
        conditions.one_of("availability", self.availabilities.iter().map(|availability| Value::name(*availability)));
        if let Some(site) = self.site {
            conditions.add("site = ?", [Value::Id(site.uuid())]);
        }
        if let Some(sku) = &self.sku {
            conditions.add("sku = ?", [Value::owned(sku.clone())]);
        }
        if let Some(prefix) = self.hostname_prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
            // The largest character ends the range: an index serves it, LIKE would need a scan.
            let end = format!("{prefix}\u{10ffff}");
            conditions.add("hostname >= ? AND hostname < ?", [Value::owned(prefix.clone()), Value::owned(end)]);
        }
        if let Some(kind) = self.hold {
            let kind: &str = kind.into();
            conditions.add("(',' || hold_kinds || ',') LIKE ?", [Value::owned(format!("%,{kind},%"))]);
        }
        for (name, value) in &self.labels {
            // The pair as it stands in the row; labels have no character that JSON would escape.
            let pair = format!("\"{name}\":\"{value}\"");
            conditions.add("REPLACE(labels, ?, '') <> labels", [Value::owned(pair)]);
        }
        if let Some(now) = self.schedulable_at {
            conditions.add("status = 'active' AND availability = 'ready' AND held_until <= ?", [Value::time(now)]);
        }
        if let Some(idle) = self.idle {
            // As it stands in the row.
            let none = [Value::text("\"allocations\":0,")];
            let is_there = if idle { "<>" } else { "=" };
            conditions.add(&format!("REPLACE(ownership, ?, '') {is_there} ownership"), none);
        }
        if self.needs_attention {
            conditions.add(NEEDS_ATTENTION, []);
        }
        conditions
    }
}

/// How many nodes of a site have a pair of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeCount {
    /// At which site.
    pub site: SiteId,
    /// Which pair.
    pub state: NodeState,
    /// How many.
    pub nodes: u64,
}

impl Store {
    /// One page of the nodes that `filter` lets through.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn nodes(
        &self,
        filter: &NodeFilter,
        sort: NodeSort,
        page: &PageRequest,
    ) -> Result<Page<NodeSummary>, StoreError> {
        let mut conditions = filter.conditions();
        let order = match sort {
            NodeSort::Hostname => "ORDER BY hostname, id",
            NodeSort::Newest => "ORDER BY id DESC",
            NodeSort::Oldest => "ORDER BY id",
        };
        if let Some(cursor) = &page.cursor {
            let id = Value::Id(cursor.last::<Uuid>()?);
            match sort {
                NodeSort::Hostname => {
                    let name = Value::owned(cursor.first()?.to_owned());
                    conditions.add("(hostname, id) > (?, ?)", [name, id]);
                }
                NodeSort::Newest => conditions.add("id < ?", [id]),
                NodeSort::Oldest => conditions.add("id > ?", [id]),
            }
        }
        let rows = self.fetch(conditions.query(SUMMARY, order, page.probe()), read_summary).await?;
        Ok(page.page(rows, |last| Cursor::new(&[&last.hostname, &last.id])))
    }

    /// How many nodes stand in which states, by site; pairs without nodes are left out, deleted nodes are counted.
    ///
    /// # Errors
    /// The database fails.
    pub async fn node_counts(&self) -> Result<Vec<NodeCount>, StoreError> {
        const COUNTS: &str = "SELECT site, status, availability, n FROM node_counts WHERE n <> 0 \
            ORDER BY site, status, availability LIMIT ?1";
        // 72 pairs at most for each of at most 1,000 sites.
        let limit = Value::Int(72 * PAGE_MAX as i64);
        self.fetch(Query::new(COUNTS, vec![limit]), |r| {
            Ok(NodeCount {
                site: SiteId::new(r.id()?),
                state: NodeState { status: r.name()?, availability: r.name()? },
                nodes: r.count()?,
            })
        })
        .await
    }

    /// How many nodes are down, by status and cause; deleted nodes are not counted.
    ///
    /// # Errors
    /// The database fails.
    pub async fn down_counts(&self) -> Result<Vec<(Status, Option<DownCause>, u64)>, StoreError> {
        const DOWN: &str = "SELECT status, down_cause, COUNT(*) FROM nodes WHERE live = 1 AND availability = 'down' \
            GROUP BY status, down_cause ORDER BY status, down_cause";
        self.fetch(Query::new(DOWN, Vec::new()), |r| Ok((r.name()?, r.opt_name()?, r.count()?))).await
    }

    /// How many nodes have a hold of each kind that occurs; ended holds count until they are cleared.
    ///
    /// # Errors
    /// The database fails.
    pub async fn hold_counts(&self) -> Result<Vec<(HoldKind, u64)>, StoreError> {
        const HELD: &str = "SELECT hold_kinds, COUNT(*) FROM nodes WHERE live = 1 AND hold_kinds <> '' \
            GROUP BY hold_kinds ORDER BY hold_kinds";
        let rows = self.fetch(Query::new(HELD, Vec::new()), |r| Ok((r.text()?, r.count()?))).await?;
        let mut counts: BTreeMap<HoldKind, u64> = BTreeMap::new();
        for (kinds, nodes) in rows {
            for kind in hold_kinds(&kinds)? {
                *counts.entry(kind).or_default() += nodes;
            }
        }
        Ok(counts.into_iter().collect())
    }

    /// How many nodes have a fingerprint that is not approved; those that leave are not judged any more.
    ///
    /// # Errors
    /// The database fails.
    pub async fn deviating_nodes(&self) -> Result<u64, StoreError> {
        const DEVIATING: &str = "SELECT COUNT(*) FROM nodes WHERE live = 1 AND deviates_since IS NOT NULL \
            AND status IN ('active', 'offline', 'quarantined', 'enrolling')";
        Ok(self.fetch(Query::new(DEVIATING, Vec::new()), |r| r.count()).await?.pop().unwrap_or(0))
    }

    /// These nodes of a site, those that drifted first before others; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn drifted(&self, site: SiteId) -> Result<Vec<NodeId>, StoreError> {
        const DRIFTED: &str = "SELECT id FROM nodes WHERE site = ?1 AND live = 1 AND deviates_since IS NOT NULL \
            AND status IN ('active', 'offline', 'quarantined', 'enrolling') ORDER BY deviates_since, id LIMIT ?2";
        let query = Query::new(DRIFTED, vec![Value::Id(site.uuid()), Value::Int(PAGE_MAX as i64)]);
        self.fetch(query, |r| Ok(NodeId::new(r.id()?))).await
    }

    /// How many nodes of a site report which fingerprint, by SKU and fingerprint.
    ///
    /// # Errors
    /// The database fails.
    pub async fn fingerprints(&self, site: SiteId) -> Result<Vec<((String, String), u64)>, StoreError> {
        const SEEN: &str = "SELECT sku, fingerprint, COUNT(*) FROM nodes WHERE site = ?1 AND live = 1 \
            AND fingerprint IS NOT NULL GROUP BY sku, fingerprint ORDER BY sku, fingerprint";
        let query = Query::new(SEEN, vec![Value::Id(site.uuid())]);
        self.fetch(query, |r| Ok(((r.text()?, r.text()?), r.count()?))).await
    }

    /// How many nodes of a site are in service, and how many Lattice itself has made unavailable: by a reboot or a wipe
    /// that it asked for, or a drain for a fingerprint that drifted. A job counts until it is over, for it may have failed;
    /// a drain until its node is taken back.
    ///
    /// # Errors
    /// The database fails.
    pub async fn taken_at(&self, site: SiteId) -> Result<(u64, u64), StoreError> {
        const IN_SERVICE: &str =
            "SELECT COUNT(*) FROM nodes WHERE site = ?1 AND live = 1 AND status IN ('active', 'offline')";
        const TAKEN: &str = "SELECT COUNT(*) FROM nodes WHERE site = ?1 AND live = 1 AND \
            ((drain_intent = 1 AND availability IN ('draining', 'drained') AND status = 'active' AND \
            (SELECT automatic FROM jobs WHERE node = nodes.id AND kind = 'drain' ORDER BY id DESC LIMIT 1) = 1) OR id IN \
            (SELECT node FROM jobs WHERE site = ?1 AND automatic = 1 AND kind IN ('reboot', 'sensitive_wipe') AND status NOT IN \
            ('completed', 'cancelled', 'reconciled')))";
        let id = || Value::Id(site.uuid());
        let in_service = self.fetch(Query::new(IN_SERVICE, vec![id()]), |r| r.count()).await?;
        let taken = self.fetch(Query::new(TAKEN, vec![id()]), |r| r.count()).await?;
        Ok((in_service.first().copied().unwrap_or(0), taken.first().copied().unwrap_or(0)))
    }

    /// How many nodes of a site fell down for their silence since a time, and how many there are whose silence would be
    /// noticed, or was.
    ///
    /// # Errors
    /// The database fails.
    pub async fn silenced_at(&self, site: SiteId, since: Timestamp) -> Result<(u64, u64), StoreError> {
        const FELL: &str = "SELECT COUNT(*) FROM nodes WHERE site = ?1 AND live = 1 AND availability = 'down' AND \
            down_cause = 'heartbeat_lost' AND availability_since >= ?2";
        const MEMBERS: &str = "SELECT COUNT(*) FROM nodes WHERE site = ?1 AND live = 1 AND (down_cause = 'heartbeat_lost' \
            OR availability IN ('ready', 'degraded', 'draining', 'drained'))";
        let id = || Value::Id(site.uuid());
        let fell = self.fetch(Query::new(FELL, vec![id(), Value::time(since)]), |r| r.count()).await?;
        let members = self.fetch(Query::new(MEMBERS, vec![id()]), |r| r.count()).await?;
        Ok((fell.first().copied().unwrap_or(0), members.first().copied().unwrap_or(0)))
    }

    /// A node.
    ///
    /// # Errors
    /// The database fails.
    pub async fn node(&self, id: NodeId) -> Result<Option<Node>, StoreError> {
        self.one_node("WHERE id = ?1", vec![Value::Id(id.uuid())]).await
    }

    /// A node and its SKU, unless that is gone.
    ///
    /// # Errors
    /// The database fails.
    pub async fn node_and_sku(&self, id: NodeId) -> Result<Option<(Node, Option<Sku>)>, StoreError> {
        let sql = format!("SELECT {COLUMNS}, (SELECT body FROM skus WHERE name = nodes.sku) FROM nodes WHERE id = ?1");
        let query = Query { sql: sql.into(), params: vec![Value::Id(id.uuid())] };
        Ok(self.fetch(query, |r| Ok((read(r)?, r.opt_json()?))).await?.pop())
    }

    /// The node of that hostname that is not deleted.
    ///
    /// # Errors
    /// The database fails.
    pub async fn node_by_hostname(&self, hostname: &str) -> Result<Option<Node>, StoreError> {
        self.one_node("WHERE hostname = ?1 AND live = 1", vec![Value::owned(hostname.to_owned())]).await
    }

    /// The node, not deleted, that is the provider's machine of that name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn node_by_provider_ref(&self, site: SiteId, name: &str) -> Result<Option<Node>, StoreError> {
        let params = vec![Value::Id(site.uuid()), Value::owned(name.to_owned())];
        self.one_node("WHERE site = ?1 AND provider_ref = ?2 AND live = 1", params).await
    }

    /// Whole nodes that are not deleted, by id, after one of them: at most [`PAGE_MAX`]. All nodes at a server's
    /// start are read by calling it until it gives none.
    ///
    /// # Errors
    /// The database fails.
    pub async fn nodes_after(&self, after: Option<NodeId>, site: Option<SiteId>) -> Result<Vec<Node>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("live = 1", []);
        if let Some(after) = after {
            conditions.add("id > ?", [Value::Id(after.uuid())]);
        }
        if let Some(site) = site {
            conditions.add("site = ?", [Value::Id(site.uuid())]);
        }
        self.fetch(conditions.query(&select(), "ORDER BY id", PAGE_MAX), read).await
    }

    /// Hands every node that is not deleted to `each`, a page at a time, never all of them in memory.
    ///
    /// # Errors
    /// The database fails; what was handed out before stands.
    pub async fn each_node(&self, mut each: impl FnMut(Node)) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let nodes = self.nodes_after(after, None).await?;
            let Some(last) = nodes.last() else { return Ok(()) };
            after = Some(last.id);
            nodes.into_iter().for_each(&mut each);
        }
    }

    /// The nodes with these ids, deleted ones included, in no order; an id that no node has is left out.
    ///
    /// # Errors
    /// The database fails.
    pub async fn nodes_by_id(&self, ids: &[NodeId]) -> Result<Vec<Node>, StoreError> {
        let mut nodes = Vec::with_capacity(ids.len());
        for ids in ids.chunks(PAGE_MAX) {
            let mut conditions = Conditions::default();
            conditions.one_of("id", ids.iter().map(|id| Value::Id(id.uuid())));
            nodes.extend(self.fetch(conditions.query(&select(), "", PAGE_MAX), read).await?);
        }
        Ok(nodes)
    }

    async fn one_node(&self, condition: &str, params: Vec<Value<'static>>) -> Result<Option<Node>, StoreError> {
        let query = Query { sql: format!("{} {condition}", select()).into(), params };
        Ok(self.fetch(query, read).await?.pop())
    }
}
