//! History, audit and events derived from a change: pure, shared by both store backends.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Change, Commit, JobChange, NodeAction, NodeChange, Removed, Resource};
use crate::agent::task::{Progress, TaskChange};
use crate::allocation::AllocationChange;
use crate::batch::BatchChange;
use crate::bmc::{Bmc, BmcCause};
use crate::credential::EnrollmentToken;
use crate::ids::NodeId;
use crate::job::{JobKind, JobStatus};
use crate::node::NodeState;
use crate::silence::Silence;
use crate::site::{PowerOverride, RoceRow, Site, SiteProfile, SiteProvider};
use crate::sku::Sku;
use crate::time::Timestamp;
use crate::webhook::{Webhook, WebhookChange};

/// One row of a node's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// Whose.
    pub node: NodeId,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub action: NodeAction,
    /// By which event.
    pub cause: String,
    /// States before; none at creation.
    pub before: Option<NodeState>,
    /// States after.
    pub after: NodeState,
    /// Who.
    pub actor: String,
    /// For people.
    pub detail: String,
}

/// One audit row, before it is chained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// In which role.
    pub role: String,
    /// What: `node.moved`, `job.retry_stage`, `site.created`.
    pub action: String,
    /// On what kind of thing.
    pub resource_kind: String,
    /// On which.
    pub resource_id: String,
    /// Why, in the actor's words.
    pub reason: String,
    /// Short picture before; null at creation.
    pub before: Value,
    /// Short picture after.
    pub after: Value,
    /// `applied` or `refused`.
    pub result: String,
    /// What it belongs to.
    pub correlation: String,
}

/// One event of the outbox, before it has its sequence number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    /// When.
    pub at: Timestamp,
    /// Dotted name: `node.moved`, `node.onboarding.completed`.
    pub name: String,
    /// About what kind of thing.
    pub resource_kind: String,
    /// About which.
    pub resource_id: String,
    /// The node it concerns, if one: the node's own stream filters by it.
    pub node: Option<NodeId>,
    /// What it belongs to.
    pub correlation: String,
    /// Ids and enums; never a secret.
    pub payload: Value,
}

/// All that follows from one change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Derived {
    /// A node's history.
    pub history: Option<HistoryRow>,
    /// The audit.
    pub audit: Option<AuditRow>,
    /// The outbox.
    pub events: Vec<EventRow>,
}

/// Derives what follows from `change` as a part of `commit`.
pub fn derive(commit: &Commit, change: &Change) -> Derived {
    match change {
        Change::Node(change) => node(commit, change),
        Change::Job(change) => job(commit, change),
        Change::Batch(change) => batch(commit, change),
        Change::Task(change) => task(commit, change),
        Change::Allocation(change) => allocation(commit, change),
        Change::HostFacts { .. } | Change::ProviderState(_) | Change::WebhookStep(_) => Derived::default(),
        Change::BmcReport(_) | Change::ComponentReport(_) => Derived::default(),
        Change::Webhook(change) => webhook(commit, change),
        Change::Silence(one) => {
            row(commit, Resource::Silence(one.id), "silence.created".to_owned(), Value::Null, silence_picture(one))
        }
        Change::Bmc { after, cause } => bmc(commit, after, *cause),
        Change::Site(site) => {
            let action = created_or_updated("site", site.generation.0);
            row(commit, Resource::Site(site.id), action, Value::Null, site_picture(site))
        }
        Change::SiteCredential { after: row_after, cause } => {
            let after = json!({"name": row_after.name, "path": row_after.path, "problem": row_after.problem});
            row(commit, Resource::Site(row_after.site), format!("site.credential_{cause}"), Value::Null, after)
        }
        Change::Sku(one) => sku(commit, one),
        Change::Profile(profile) => {
            let action = created_or_updated("site.profile", profile.generation.0);
            row(commit, Resource::Site(profile.site), action, Value::Null, profile_picture(profile))
        }
        Change::PowerOverride(one) => {
            let action = created_or_updated("site.power_override", one.generation.0);
            row(commit, Resource::Site(one.site), action, Value::Null, override_picture(one))
        }
        Change::Roce(one) => {
            row(commit, Resource::Site(one.site), "site.roce_assigned".to_owned(), Value::Null, roce_picture(one))
        }
        Change::Removed(removed) => self::removed(commit, removed),
        Change::EnrollmentToken(token) => enrollment_token(commit, token),
        Change::ApiToken(token) => {
            let action = if token.revoked_at.is_some() { "api_token.revoked" } else { "api_token.issued" };
            let after = json!({"name": token.name, "role": token.role});
            row(commit, Resource::ApiToken(token.id), action.to_owned(), Value::Null, after)
        }
        Change::Wipe { node, told } => {
            row(commit, Resource::Node(*node), told.name().to_owned(), Value::Null, told.picture())
        }
        Change::WipeCertificate(file) => {
            let one = &file.certificate;
            let after = json!({
                "certificate": one.id, "job": one.job, "task": one.task, "erased": one.erased,
                "device": one.evidence.device, "serial": one.evidence.serial, "key_id": file.key_id(),
            });
            row(commit, Resource::Node(one.node), "node.wipe_certified".to_owned(), Value::Null, after)
        }
        Change::Refusal { action, resource, detail } => {
            let after = json!({"detail": detail});
            let mut derived = row(commit, resource.clone(), action.clone(), Value::Null, after);
            if let Some(audit) = &mut derived.audit {
                audit.result = "refused".to_owned();
            }
            derived.events.clear();
            derived
        }
        Change::Note { name, resource, detail } => {
            row(commit, resource.clone(), name.clone(), Value::Null, json!({"detail": detail}))
        }
    }
}

fn removed(commit: &Commit, removed: &Removed) -> Derived {
    let (resource, action, before) = match removed {
        Removed::Site(site) => (Resource::Site(site.id), "site.removed", site_picture(site)),
        Removed::Sku(sku) => (Resource::Sku(sku.name.clone()), "sku.removed", sku_picture(sku)),
        Removed::Profile(one) => (Resource::Site(one.site), "site.profile.removed", profile_picture(one)),
        Removed::PowerOverride(one) => (Resource::Site(one.site), "site.power_override.removed", override_picture(one)),
        Removed::Roce(one) => (Resource::Site(one.site), "site.roce_removed", roce_picture(one)),
        Removed::Webhook(one) => (Resource::Webhook(one.id), "webhook.removed", webhook_picture(one)),
        Removed::Silence(one) => {
            let action = if one.is_in_force(commit.at) { "silence.lifted" } else { "silence.expired" };
            (Resource::Silence(one.id), action, silence_picture(one))
        }
    };
    let mut derived = row(commit, resource, action.to_owned(), before.clone(), Value::Null);
    for event in &mut derived.events {
        event.payload = before.clone();
    }
    derived
}

fn site_picture(site: &Site) -> Value {
    let mut picture = json!({"name": site.name, "status": site.status, "kind": site.provider.kind()});
    if let SiteProvider::Maas(maas) = &site.provider {
        picture["policy"] = json!(maas.policy);
        if let Some(profile) = maas.default_profile_id {
            picture["default_profile_id"] = json!(profile);
        }
    }
    picture
}

fn sku_picture(sku: &Sku) -> Value {
    json!({"name": sku.name, "gpus": sku.gpus})
}

fn profile_picture(profile: &SiteProfile) -> Value {
    json!({"profile": profile.id, "name": profile.name, "status": profile.status, "settings": profile.settings})
}

/// Which machine, never which login: the path is no secret, and tells nobody anything.
fn override_picture(one: &PowerOverride) -> Value {
    json!({"override": one.id, "selector_type": one.selector, "selector_value": one.value, "status": one.status})
}

fn silence_picture(one: &Silence) -> Value {
    let matcher = &one.matcher;
    json!({
        "kind": matcher.kind, "nodes": matcher.nodes.iter().map(|node| &node.hostname).collect::<Vec<_>>(),
        "selector": matcher.selector, "site": matcher.site, "until": one.until, "owner": one.by.name,
        "reason": one.reason,
    })
}

fn sku(commit: &Commit, sku: &Sku) -> Derived {
    let action = created_or_updated("sku", sku.generation.0);
    row(commit, Resource::Sku(sku.name.clone()), action, Value::Null, sku_picture(sku))
}

/// Where it is, never how it is logged in to.
fn bmc(commit: &Commit, bmc: &Bmc, cause: BmcCause) -> Derived {
    let after = json!({
        "address": bmc.endpoint.address, "protocol": bmc.endpoint.way.protocol(), "breaker": bmc.breaker,
        "refusals": bmc.refusals,
    });
    row(commit, Resource::Node(bmc.node), format!("node.bmc.{cause}"), Value::Null, after)
}

fn roce_picture(row: &RoceRow) -> Value {
    let one = &row.assignment;
    json!({"assignment": row.id, "hostname": one.hostname, "interface": one.interface, "ipv4_cidr": one.ipv4_cidr})
}

fn enrollment_token(commit: &Commit, token: &EnrollmentToken) -> Derived {
    let action = if token.revoked_at.is_some() {
        "enrollment_token.revoked"
    } else if token.used_at.is_some() {
        "enrollment_token.used"
    } else if token.refreshes > 0 {
        "enrollment_token.refreshed"
    } else {
        "enrollment_token.issued"
    };
    let after = json!({"node": token.node, "expires_at": token.expires_at});
    let mut derived = row(commit, Resource::EnrollmentToken(token.id), action.to_owned(), Value::Null, after);
    for event in &mut derived.events {
        event.node = Some(token.node);
    }
    derived
}

fn created_or_updated(kind: &str, generation: u64) -> String {
    if generation == 1 { format!("{kind}.created") } else { format!("{kind}.updated") }
}

fn audit(commit: &Commit, resource: &Resource, action: String, before: Value, after: Value) -> AuditRow {
    AuditRow {
        at: commit.at,
        actor: commit.actor.name.clone(),
        role: commit.actor.role.to_string(),
        action,
        resource_kind: resource.kind().to_owned(),
        resource_id: resource.id(),
        reason: commit.reason.clone(),
        before,
        after,
        result: "applied".to_owned(),
        correlation: commit.correlation.to_string(),
    }
}

fn event(commit: &Commit, resource: &Resource, name: String, node: Option<NodeId>, payload: Value) -> EventRow {
    EventRow {
        at: commit.at,
        name,
        resource_kind: resource.kind().to_owned(),
        resource_id: resource.id(),
        node,
        correlation: commit.correlation.to_string(),
        payload,
    }
}

fn row(commit: &Commit, resource: Resource, action: String, before: Value, after: Value) -> Derived {
    let node = match &resource {
        Resource::Node(id) => Some(*id),
        Resource::Job(_)
        | Resource::Batch(_)
        | Resource::Task(_)
        | Resource::Allocation(_)
        | Resource::Site(_)
        | Resource::Sku(_)
        | Resource::EnrollmentToken(_)
        | Resource::ApiToken(_)
        | Resource::Webhook(_)
        | Resource::Silence(_)
        | Resource::System(_) => None,
    };
    let events = vec![event(commit, &resource, action.clone(), node, after.clone())];
    Derived { history: None, audit: Some(audit(commit, &resource, action, before, after)), events }
}

fn node(commit: &Commit, change: &NodeChange) -> Derived {
    let after = &change.after;
    let resource = Resource::Node(after.id);
    let before = change.before.map_or(Value::Null, |state| json!(state));
    let picture = json!({
        "hostname": after.hostname, "site": after.site,
        "status": after.state.status, "availability": after.state.availability,
        "cause": change.cause, "detail": change.detail,
        "holds": after.holds.iter().map(|hold| hold.kind).collect::<Vec<_>>(),
    });
    let action = format!("node.{}", change.action);
    Derived {
        history: Some(HistoryRow {
            node: after.id,
            at: commit.at,
            action: change.action,
            cause: change.cause.clone(),
            before: change.before,
            after: after.state,
            actor: commit.actor.name.clone(),
            detail: change.detail.clone(),
        }),
        events: vec![event(commit, &resource, action.clone(), Some(after.id), picture.clone())],
        audit: Some(audit(commit, &resource, action, before, picture)),
    }
}

fn job(commit: &Commit, change: &JobChange) -> Derived {
    if !change.visible {
        return Derived::default();
    }
    let after = &change.after;
    let resource = Resource::Job(after.id);
    let before = change.before.map_or(Value::Null, |status| json!({"status": status}));
    let picture = json!({
        "kind": after.kind, "node": after.node, "hostname": after.hostname, "site": after.site, "batch": after.batch,
        "status": after.state.status, "stage": after.state.stage, "attempt": after.state.attempt,
        "round": after.state.round, "cause": change.cause,
        "failure_class": after.state.failure.as_ref().map(|failure| failure.class),
        "error_code": after.state.failure.as_ref().map(|failure| &failure.error_code),
    });
    let mut events = vec![event(commit, &resource, "job.changed".to_owned(), Some(after.node), picture.clone())];
    if let Some(name) = milestone(change) {
        events.push(event(commit, &resource, name, Some(after.node), picture.clone()));
    }
    let action = format!("job.{}", change.cause);
    Derived { history: None, audit: Some(audit(commit, &resource, action, before, picture)), events }
}

fn batch(commit: &Commit, change: &BatchChange) -> Derived {
    let after = &change.after;
    let picture = json!({
        "site": after.site, "sku": after.sku, "status": after.status, "control": after.control,
        "cause": change.cause, "machines": after.machines, "children": change.children,
    });
    let before = change.before.map_or(Value::Null, |status| json!({"status": status}));
    row(commit, Resource::Batch(after.id), format!("onboarding.batch.{}", change.cause), before, picture)
}

/// Never its input: arguments and variables are the user's.
fn task(commit: &Commit, change: &TaskChange) -> Derived {
    let after = &change.after;
    let resource = Resource::Task(after.id);
    let error_code = match after.report.as_ref().map(|report| &report.progress) {
        Some(Progress::Failed { code, .. }) => Some(*code),
        Some(Progress::Running | Progress::Succeeded { .. }) | None => None,
    };
    let picture = json!({
        "node": after.node, "kind": after.input.kind(), "status": after.status, "owner": after.owner,
        "allocation": after.allocation(), "error_code": error_code, "expires_at": after.expires_at,
    });
    let before = change.before.map_or(Value::Null, |status| json!({"status": status}));
    let action = format!("task.{}", change.cause);
    let events = vec![event(commit, &resource, action.clone(), Some(after.node), picture.clone())];
    let audit = change.cause.is_audited().then(|| audit(commit, &resource, action, before, picture));
    Derived { history: None, audit, events }
}

fn webhook(commit: &Commit, change: &WebhookChange) -> Derived {
    let before = change.before.map_or(Value::Null, |status| json!({"status": status}));
    let picture = webhook_picture(&change.after);
    row(commit, Resource::Webhook(change.after.id), format!("webhook.{}", change.cause), before, picture)
}

/// Without its address but for the host: paths and queries may hold secrets of the receiver.
fn webhook_picture(one: &Webhook) -> Value {
    json!({
        "name": one.name, "host": one.host(), "events": one.events, "site": one.site,
        "status": one.status, "reason": one.status_reason,
    })
}

/// Never what is started: arguments and variables are the user's.
fn allocation(commit: &Commit, change: &AllocationChange) -> Derived {
    let after = &change.after;
    let resource = Resource::Allocation(after.id);
    let picture = json!({
        "user": after.user, "class": after.class, "status": after.status, "node": after.node,
        "ownership_epoch": after.epoch, "sku": after.wanted.sku, "gpus": after.wanted.gpus, "requeue": after.requeue,
        "placements": after.placements, "why": after.why,
    });
    let before = change.before.map_or(Value::Null, |status| json!({"status": status}));
    let action = format!("allocation.{}", change.cause);
    let events = vec![event(commit, &resource, action.clone(), after.node, picture.clone())];
    Derived { history: None, audit: Some(audit(commit, &resource, action, before, picture)), events }
}

/// The domain event of a job's milestone, by what it is for. spec: S5 8.0
fn milestone(change: &JobChange) -> Option<String> {
    let status = change.after.state.status;
    if change.before == Some(status) {
        return None;
    }
    let what = match status {
        JobStatus::Running if change.before == Some(JobStatus::Pending) => "started",
        JobStatus::Completed | JobStatus::Reconciled => "completed",
        JobStatus::FailedRetryable => "failed",
        JobStatus::FailedManualIntervention => "manual_intervention_required",
        JobStatus::Cancelled => "cancelled",
        JobStatus::Pending | JobStatus::Running | JobStatus::Compensating => return None,
    };
    let noun = match change.after.kind {
        JobKind::Onboarding => "onboarding",
        JobKind::Drain => "drain",
        JobKind::Retire => "retirement",
        JobKind::Remove => "removal",
        JobKind::Reboot => "reboot",
        JobKind::Reimage => "reimage",
        JobKind::BmcInvestigation => "bmc_investigation",
        JobKind::SensitiveWipe => "wipe",
        JobKind::SecureErase => "secure_erase",
    };
    Some(format!("node.{noun}.{what}"))
}

/// Links an audit row to the one before it: SHA-256 over the previous hash and the row's canonical JSON, in hex.
///
/// The first row of a chain has 64 zeros before it. `lattice audit verify` recomputes this from an export.
pub fn audit_hash(previous: &str, row: &AuditRow) -> String {
    let mut hasher = Sha256::new();
    hasher.update(previous.as_bytes());
    hasher.update(b"\n");
    // serde_json keeps the order of the struct's fields and sorts the keys of its maps: the text is canonical.
    hasher.update(serde_json::to_vec(row).expect("an audit row has only text keys").as_slice());
    hex::encode(hasher.finalize())
}
