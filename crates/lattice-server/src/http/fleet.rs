//! The fleet at a glance: counts, what needs attention, how long stages take.

mod alike;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use lattice_api::explanation::Subject;
use lattice_api::fleet::{Fleet, FleetCount, Incident, Severity, SilencedIncident, StageStats, StageStatsList};
use lattice_controllers::SecretOutage;
use lattice_core::explain::NextAction;
use lattice_core::ids::{NodeId, SilenceId, SiteId};
use lattice_core::job::{Job, JobStatus, StageName};
use lattice_core::node::{Availability, DownCause, HoldKind, Node, NodeState, Status};
use lattice_core::silence::{About, IncidentKind, Silence, silencing};
use lattice_core::time::{Timestamp, human};
use lattice_core::webhook::WebhookStatus;
use lattice_core::webhook::delivery::SHOWN_AFTER;
use lattice_store::{JobFilter, JobSummary, NodeFilter, NodeSort, NodeSummary, PAGE_MAX, PageRequest};
use strum::VariantArray;

use super::App;
use super::jobs::explanation_of as explain_job;
use super::node_view::{explain, millis};
use super::rows::{NodeFile, site_names};
use super::silences;
use crate::error::Answer;

/// Incidents that are shown: more than a person works through before looking again.
const INCIDENTS: usize = 100;

/// Nodes that one incident names; the others it counts.
const SUBJECTS: usize = 64;

/// Nodes that are looked at for what needs attention: where there are more, counts say "at least".
const LOOKED_AT: usize = 20 * PAGE_MAX;

/// Nodes of one site that fall silent within this time of each other are one incident.
const TOGETHER: Duration = Duration::from_secs(30);

/// Counts and incidents.
pub async fn fleet(State(app): State<App>) -> Answer<Json<Fleet>> {
    let now = app.clock.now();
    let seq = app.store.last_event().await?;
    let mut counts: BTreeMap<NodeState, u64> = BTreeMap::new();
    for count in app.store.node_counts().await? {
        if count.state.status != Status::Deleted {
            *counts.entry(count.state).or_default() += count.nodes;
        }
    }
    let usable = counts.get(&NodeState::new(Status::Active, Availability::Ready)).copied().unwrap_or(0);
    let schedulable = usable.saturating_sub(held(&app, now).await?);
    let sites = site_names(&app).await?;
    let found = attention(&app, &sites, now).await?;
    let nodes = counts.values().sum();
    let counts = counts
        .into_iter()
        .filter(|(_, nodes)| *nodes > 0)
        .map(|(state, nodes)| FleetCount { status: state.status, availability: state.availability, nodes })
        .collect();
    let silences = found.silences.into_iter().map(|silence| silences::view(silence, &sites)).collect();
    let (attention, silenced) = (found.raised, found.silenced);
    Ok(Json(Fleet { at: now, seq, nodes, schedulable, counts, attention, silenced, silences }))
}

/// Active and ready nodes that a hold keeps from being scheduled.
async fn held(app: &App, now: Timestamp) -> Answer<u64> {
    let mut held: HashSet<NodeId> = HashSet::new();
    for kind in HoldKind::VARIANTS {
        let filter = NodeFilter {
            statuses: vec![Status::Active],
            availabilities: vec![Availability::Ready],
            hold: Some(*kind),
            ..NodeFilter::default()
        };
        let mut page = PageRequest::first(PAGE_MAX);
        loop {
            let found = app.store.nodes(&filter, NodeSort::Hostname, &page).await?;
            held.extend(found.items.iter().filter(|node| !node.is_schedulable(now)).map(|node| node.id));
            let Some(next) = found.next else { break };
            page.cursor = Some(next);
        }
    }
    Ok(held.len() as u64)
}

/// What was found to need a person.
struct Attention {
    now: Timestamp,
    silences: Vec<Silence>,
    raised: Vec<Incident>,
    silenced: Vec<SilencedIncident>,
}

impl Attention {
    /// The silence that hides an incident of that kind about that node.
    fn silencing(&self, kind: IncidentKind, about: &About<'_>) -> Option<SilenceId> {
        silencing(&self.silences, kind, about, self.now).map(|silence| silence.id)
    }

    /// Whether one more of them is shown: what is silenced takes no place of what is not.
    fn has_room(&self, silence: Option<SilenceId>) -> bool {
        let shown = if silence.is_some() { self.silenced.len() } else { self.raised.len() };
        shown < INCIDENTS
    }

    fn add(&mut self, incident: Incident, silence: Option<SilenceId>) {
        match silence {
            Some(silence) => self.silenced.push(SilencedIncident { incident, silence }),
            None => self.raised.push(incident),
        }
    }

    fn sorted(mut self) -> Self {
        let urgency = |incident: &Incident| (std::cmp::Reverse(incident.severity), incident.since);
        self.raised.sort_by_key(urgency);
        self.raised.truncate(INCIDENTS);
        self.silenced.sort_by_key(|one| urgency(&one.incident));
        self.silenced.truncate(INCIDENTS);
        self
    }
}

/// What needs a person: jobs that stopped, then nodes that no such job explains.
async fn attention(app: &App, sites: &HashMap<SiteId, String>, now: Timestamp) -> Answer<Attention> {
    let silences = silences::in_force(app).await?;
    let mut found = Attention { now, silences, raised: Vec::new(), silenced: Vec::new() };
    let mut explained: HashMap<NodeId, Option<SilenceId>> = HashMap::new();
    let stopped = JobFilter {
        statuses: vec![JobStatus::FailedManualIntervention, JobStatus::FailedRetryable],
        ..JobFilter::default()
    };
    for summary in app.store.jobs(&stopped, &PageRequest::first(PAGE_MAX)).await?.items {
        let silence = silencing_job(app, &found, &summary).await?;
        explained.insert(summary.node, silence);
        if !found.has_room(silence) {
            continue;
        }
        let Some(job) = app.store.job(summary.id).await? else { continue };
        let site = sites.get(&job.site).map(String::as_str).unwrap_or_default();
        found.add(of_job(&job, site, now), silence);
    }
    of_nodes(app, &explained, sites, &mut found).await?;
    alike::add(app, sites, &mut found).await?;
    found.raised.extend(of_webhooks(app, now).await?);
    found.raised.extend(app.secret_standing.outage().map(|outage| of_outage(outage, now)));
    Ok(found.sorted())
}

async fn silencing_job(app: &App, found: &Attention, job: &JobSummary) -> Answer<Option<SilenceId>> {
    if found.silences.is_empty() {
        return Ok(None);
    }
    let Some(node) = app.store.node(job.node).await? else { return Ok(None) };
    let about = About { node: node.id, site: node.site, labels: &node.labels };
    Ok(found.silencing(IncidentKind::of_job(job.kind), &about))
}

fn of_job(job: &Job, site: &str, now: Timestamp) -> Incident {
    let said = explain_job(job, site, now);
    let failure = job.state.failure.as_ref();
    let since = failure.map_or(job.updated_at, |failure| failure.at);
    let severity = match job.state.status {
        JobStatus::FailedManualIntervention => Severity::Critical,
        JobStatus::FailedRetryable
        | JobStatus::Pending
        | JobStatus::Running
        | JobStatus::Completed
        | JobStatus::Cancelled
        | JobStatus::Compensating
        | JobStatus::Reconciled => Severity::Warning,
    };
    Incident {
        kind: IncidentKind::of_job(job.kind),
        severity,
        subjects: vec![node_subject(job.node, &job.hostname), said.subject],
        more: 0,
        site: None,
        title: format!("{}: {} stopped at {}", job.hostname, job.kind, job.state.stage),
        mark: failure.map_or_else(|| job.state.status.to_string(), |failure| failure.class.to_string()),
        evidence: said.because.into_iter().map(|reason| reason.fact).collect(),
        since,
        age_ms: millis(now.since(since)),
        next: said.next_actions.into_iter().next().unwrap_or_else(|| look_at(&job.hostname)),
    }
}

fn look_at(hostname: &str) -> lattice_api::error::NextStep {
    NextAction::run(format!("lattice explain node {hostname}"), "says what it waits for and what would help").into()
}

fn node_subject(id: NodeId, hostname: &str) -> Subject {
    Subject { kind: "node".to_owned(), id: id.to_string(), name: hostname.to_owned() }
}

/// Incidents of nodes; those of one site that fell silent together are one. `explained`: nodes whose job stopped, with the
/// silence that hides that.
async fn of_nodes(
    app: &App,
    explained: &HashMap<NodeId, Option<SilenceId>>,
    sites: &HashMap<SiteId, String>,
    found: &mut Attention,
) -> Answer<()> {
    let mut silent: BTreeMap<(SiteId, Option<SilenceId>), Vec<Silent>> = BTreeMap::new();
    let (troubled, is_all) = troubled(app).await?;
    for summary in troubled {
        let kind = IncidentKind::of_node(summary.state, &summary.holds);
        let about = About { node: summary.id, site: summary.site, labels: &summary.labels };
        let silence = found.silencing(kind, &about);
        let is_told = match explained.get(&summary.id) {
            None => false,
            Some(None) => true,
            // Who silenced the job did not silence what else becomes of its node.
            Some(Some(_)) => silence.is_some() || is_its_jobs_alone(kind, summary.state.status),
        };
        if is_told {
            continue;
        }
        if kind == IncidentKind::NodeDown && summary.down_cause == Some(DownCause::HeartbeatLost) {
            let one = Silent { since: summary.availability_since, id: summary.id, hostname: summary.hostname };
            silent.entry((summary.site, silence)).or_default().push(one);
        } else if found.has_room(silence) {
            add_node(app, summary.id, found, silence).await?;
        }
    }
    for ((site, silence), nodes) in silent {
        let site = sites.get(&site).map(String::as_str).unwrap_or_default();
        for group in together(nodes) {
            match group.as_slice() {
                [one] => add_node(app, one.id, found, silence).await?,
                several => {
                    let braked = braked_until(app, several).await?;
                    found.add(of_group(several, site, is_all, braked, found.now), silence);
                }
            }
        }
    }
    Ok(())
}

/// Nodes that need attention, the newest first, and whether these are all of them.
async fn troubled(app: &App) -> Answer<(Vec<NodeSummary>, bool)> {
    let filter = NodeFilter { needs_attention: true, ..NodeFilter::default() };
    let mut nodes = Vec::new();
    let mut page = PageRequest::first(PAGE_MAX);
    while nodes.len() < LOOKED_AT {
        let found = app.store.nodes(&filter, NodeSort::Newest, &page).await?;
        nodes.extend(found.items);
        if found.next.is_none() {
            return Ok((nodes, true));
        }
        page.cursor = found.next;
    }
    Ok((nodes, false))
}

/// Whether nothing but its stopped job makes a node need attention.
fn is_its_jobs_alone(kind: IncidentKind, status: Status) -> bool {
    kind == IncidentKind::NodeOffline && status != Status::Offline
}

async fn add_node(app: &App, node: NodeId, found: &mut Attention, silence: Option<SilenceId>) -> Answer<()> {
    if let Some(node) = app.store.node(node).await? {
        found.add(of_node(app, node, found.now).await?, silence);
    }
    Ok(())
}

struct Silent {
    since: Timestamp,
    id: NodeId,
    hostname: String,
}

/// Cuts silences into groups wherever more than [`TOGETHER`] lies between one and the next.
fn together(mut nodes: Vec<Silent>) -> Vec<Vec<Silent>> {
    nodes.sort_by_key(|node| node.since);
    let mut groups: Vec<Vec<Silent>> = Vec::new();
    for node in nodes {
        let last =
            groups.last_mut().filter(|group| group.last().is_some_and(|last| node.since.since(last.since) <= TOGETHER));
        match last {
            Some(group) => group.push(node),
            None => groups.push(vec![node]),
        }
    }
    groups
}

/// Until when a brake holds back what the loss of some of them does to running work.
async fn braked_until(app: &App, nodes: &[Silent]) -> Answer<Option<Timestamp>> {
    let mut last = None;
    for some in nodes.chunks(PAGE_MAX) {
        let ids: Vec<NodeId> = some.iter().map(|node| node.id).collect();
        let braked = app.store.nodes_by_id(&ids).await?;
        last = last.max(braked.iter().filter_map(|node| node.ownership.braked_until).max());
    }
    Ok(last)
}

/// Names of the first nodes of several, and how many more there are.
fn names<'a>(nodes: impl ExactSizeIterator<Item = &'a str>) -> String {
    /// Names that stand in the evidence.
    const NAMED: usize = 8;
    let more = nodes.len().saturating_sub(NAMED);
    let names: Vec<&str> = nodes.take(NAMED).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

fn of_group(nodes: &[Silent], site: &str, is_all: bool, braked: Option<Timestamp>, now: Timestamp) -> Incident {
    let first = nodes.first().map_or(now, |node| node.since);
    let last = nodes.last().map_or(now, |node| node.since);
    let names = names(nodes.iter().map(|node| node.hostname.as_str()));
    let brake = braked.map(|until| {
        let lost = format!("`lattice site brake {site} --release --yes` counts their work as lost now");
        format!("a brake holds back what their loss does to running work, until {until}; {lost}")
    });
    let cause = "together means one cause: look at their switch, their power, their network first";
    let at_least = if is_all { "" } else { "at least " };
    let look = nodes.first().map_or_else(String::new, |node| node.hostname.clone());
    Incident {
        kind: IncidentKind::NodeDown,
        severity: Severity::Critical,
        subjects: nodes.iter().take(SUBJECTS).map(|node| node_subject(node.id, &node.hostname)).collect(),
        more: nodes.len().saturating_sub(SUBJECTS) as u64,
        site: Some(site.to_owned()),
        title: format!("{at_least}{} nodes lost their heartbeat within {}", nodes.len(), human(last.since(first))),
        mark: "one incident".to_owned(),
        evidence: [names, cause.to_owned()].into_iter().chain(brake).collect(),
        since: first,
        age_ms: millis(now.since(first)),
        next: look_at(&look),
    }
}

async fn of_node(app: &App, node: Node, now: Timestamp) -> Answer<Incident> {
    let file = NodeFile::open(app, node, now).await?;
    let said = explain(&file, now);
    let node = &file.node;
    let severity = match node.state.availability {
        Availability::Degraded | Availability::Booting => Severity::Warning,
        Availability::Unknown
        | Availability::Ready
        | Availability::Down
        | Availability::Draining
        | Availability::Drained
        | Availability::Failed => Severity::Critical,
    };
    let since = node.status_since.max(node.availability_since);
    let holds: Vec<HoldKind> = node.holds.iter().map(|hold| hold.kind).collect();
    Ok(Incident {
        kind: IncidentKind::of_node(node.state, &holds),
        severity,
        title: format!("{}: {}", node.hostname, said.summary),
        mark: node.state.to_string(),
        evidence: said.because.into_iter().map(|reason| reason.fact).collect(),
        since,
        age_ms: millis(now.since(since)),
        next: said.next_actions.into_iter().next().unwrap_or_else(|| look_at(&node.hostname)),
        subjects: vec![said.subject],
        more: 0,
        site: None,
    })
}

/// Webhooks that were given up, and those that take nothing for a while.
async fn of_webhooks(app: &App, now: Timestamp) -> Answer<Vec<Incident>> {
    let mut incidents = Vec::new();
    for webhook in app.store.webhooks().await? {
        let progress = app.store.webhook_progress(webhook.id).await?;
        let failing_since = progress.as_ref().and_then(|progress| progress.failing_since);
        let (severity, since, said) = match (webhook.status, failing_since) {
            (WebhookStatus::GaveUp, _) => (Severity::Critical, webhook.status_since, webhook.status_reason.clone()),
            (WebhookStatus::Enabled, Some(since)) if now.since(since) >= SHOWN_AFTER => {
                let said = progress.and_then(|progress| progress.last_error);
                (Severity::Warning, since, said.unwrap_or_default())
            }
            (WebhookStatus::Enabled | WebhookStatus::Disabled, _) => continue,
        };
        let name = &webhook.name;
        let (mark, title, next) = match severity {
            Severity::Critical => (
                webhook.status.to_string(),
                format!("webhook {name} gets no events any more"),
                NextAction::run(format!("lattice webhook enable {name}"), "it goes on where it stopped"),
            ),
            Severity::Warning => (
                "failing".to_owned(),
                format!("webhook {name} takes no events"),
                NextAction::run(format!("lattice webhook test {name}"), "posts one now, and says what came back"),
            ),
        };
        incidents.push(Incident {
            kind: IncidentKind::WebhookFailing,
            severity,
            subjects: vec![Subject { kind: "webhook".to_owned(), id: webhook.id.to_string(), name: name.clone() }],
            more: 0,
            site: None,
            title,
            mark,
            evidence: vec![said, format!("its events wait at {}", webhook.host())],
            since,
            age_ms: millis(now.since(since)),
            next: next.into(),
        });
    }
    Ok(incidents)
}

/// The secret store is away: nothing that needs a secret goes on.
fn of_outage(outage: SecretOutage, now: Timestamp) -> Incident {
    let fix = outage.remedy.unwrap_or_else(|| "look at the secret store".to_owned());
    Incident {
        kind: IncidentKind::SecretsUnavailable,
        severity: Severity::Critical,
        subjects: vec![Subject { kind: "system".to_owned(), id: "secrets".to_owned(), name: "secrets".to_owned() }],
        more: 0,
        site: None,
        title: "the secret store gives no secrets".to_owned(),
        mark: outage.cause.to_owned(),
        evidence: vec![outage.why, "what it stopped goes on by itself once it is back".to_owned()],
        since: outage.since,
        age_ms: millis(now.since(outage.since)),
        next: NextAction::Fix { what: fix }.into(),
    }
}

/// How long stages have taken.
pub async fn stage_stats(State(app): State<App>) -> Answer<Json<StageStatsList>> {
    let times = app.store.stage_times(StageName::VARIANTS, None).await?;
    let stages = times
        .into_iter()
        .map(|times| StageStats {
            stage: times.stage,
            runs: times.runs as u64,
            p50_ms: millis(times.p50),
            p95_ms: millis(times.p95),
        })
        .collect();
    Ok(Json(StageStatsList { stages }))
}
