//! Nodes as the wire shows them.

use std::collections::HashMap;

use lattice_api::explanation::{Explanation, Reason, Subject};
use lattice_api::hold::HoldView;
use lattice_api::node::{NodeLinks, NodeRow, NodeVerb, NodeView};
use lattice_core::bmc::BmcProtocol;
use lattice_core::command::secure_erase::may_be_erased;
use lattice_core::explanation::{self, NodeContext};
use lattice_core::ids::SiteId;
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::machine::{NodeEvent, possible_events};
use lattice_core::node::status::StatusEvent;
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, Node, NodeState, OnboardingMode, Status};
use lattice_core::time::{Timestamp, human};
use lattice_store::NodeSummary;

use super::App;
use super::allocations;
use super::node_health::health;
use super::rows::NodeFile;
use crate::error::Answer;

/// A node of a list.
pub fn row_of_summary(app: &App, summary: NodeSummary, sites: &HashMap<SiteId, String>, now: Timestamp) -> NodeRow {
    let schedulable = summary.is_schedulable(now);
    // Ends of single holds are not in the summary: until the last one ends all of them are shown.
    let is_held = summary.held_until.is_none_or(|until| now < until);
    let holds = if is_held { summary.holds } else { Vec::new() };
    let standing = Standing {
        state: summary.state,
        availability_since: summary.availability_since,
        down_cause: summary.down_cause,
        deadline: summary.deadline,
        holds: &holds,
    };
    NodeRow {
        why_not: standing.why_not(now),
        heard_at: app.registry.said(summary.id).map(|said| said.at),
        id: summary.id,
        hostname: summary.hostname,
        site: sites.get(&summary.site).cloned().unwrap_or_default(),
        site_id: summary.site,
        sku: summary.sku,
        class: summary.class,
        mode: summary.mode,
        status: summary.state.status,
        availability: summary.state.availability,
        status_since: summary.status_since,
        availability_since: summary.availability_since,
        schedulable,
        holds,
        owning_job: summary.owning_job,
        address: summary.address,
        agent_version: summary.agent_version,
        generation: summary.generation,
    }
}

fn row_of_node(app: &App, node: &Node, site: &str, now: Timestamp) -> NodeRow {
    let holds: Vec<HoldKind> = node.holds.iter().filter(|hold| hold.is_in_force(now)).map(|hold| hold.kind).collect();
    let standing = Standing {
        state: node.state,
        availability_since: node.availability_since,
        down_cause: node.down_cause,
        deadline: node.deadline,
        holds: &holds,
    };
    NodeRow {
        id: node.id,
        hostname: node.hostname.clone(),
        site_id: node.site,
        site: site.to_owned(),
        sku: node.sku.clone(),
        class: node.class,
        mode: node.mode,
        status: node.state.status,
        availability: node.state.availability,
        status_since: node.status_since,
        availability_since: node.availability_since,
        schedulable: node.is_schedulable(now),
        why_not: standing.why_not(now),
        holds,
        heard_at: app.registry.said(node.id).map(|said| said.at),
        owning_job: node.owning_job,
        address: node.address.clone(),
        agent_version: node.agent_version.clone(),
        generation: node.generation,
    }
}

/// A node with all that belongs to it.
pub async fn view(app: &App, file: NodeFile, now: Timestamp) -> Answer<NodeView> {
    let provider = app.store.provider_state(file.node.id).await?;
    let explanation = explain(&file, now);
    let verbs = verbs(&file);
    let health = health(&file, now);
    let node = file.node;
    let name = HashMap::from([(node.id, node.hostname.clone())]);
    let path = format!("/api/v1/admin/nodes/{}", node.id);
    Ok(NodeView {
        row: row_of_node(app, &node, &file.site.name, now),
        links: NodeLinks {
            timeline: format!("{path}/timeline"),
            history: format!("{path}/history"),
            events: format!("{path}/events"),
            explain: format!("{path}/explain"),
            job: node.owning_job.map(|job| format!("/api/v1/admin/jobs/{job}")),
        },
        down_cause: node.down_cause,
        deadline: node.deadline,
        boot_failures: node.boot_failures,
        drain_intent: node.drain_intent,
        identity_epoch: node.identity_epoch,
        created_at: node.created_at,
        updated_at: node.updated_at,
        hold_details: node.holds.iter().map(|hold| hold_view(&node, hold, now)).collect(),
        minor_issue: node.minor_issue,
        boot_id: node.boot_id,
        fingerprint: node.fingerprint,
        deviates_since: node.deviates_since,
        labels: node.labels,
        bmc_address: node.bmc_address,
        provider_ref: node.provider_ref,
        allocations: file.placed.iter().map(|one| allocations::row(one, &name)).collect(),
        health,
        host: file.facts,
        provider,
        component: file.component,
        explanation,
        verbs,
    })
}

/// A node's explanation.
pub fn explain(file: &NodeFile, now: Timestamp) -> Explanation {
    // Degraded ends when its silence is long enough, and that may count from the start of the server.
    let is_degraded = file.node.state.availability == Availability::Degraded;
    let heard = if is_degraded { file.silent_from } else { file.said.map(|said| said.at) };
    let context = NodeContext {
        site: &file.site,
        placed: &file.placed,
        job: file.job.as_ref(),
        last_heard: heard,
        health: &file.health,
        bmc: file.bmc.as_ref().map(|bmc| (bmc, file.bmc_report.as_ref())),
        component: file.component.as_ref(),
        remedy: &file.remedy,
    };
    let said = explanation::node(&file.node, &context, now);
    let subject = Subject { kind: "node".to_owned(), id: file.node.id.to_string(), name: file.node.hostname.clone() };
    explained(said, subject, vec![file.site.name.clone(), file.node.sku.clone()], now)
}

/// An explanation of core, as the wire shows it.
pub fn explained(
    said: explanation::Explanation,
    subject: Subject,
    context: Vec<String>,
    now: Timestamp,
) -> Explanation {
    let because: Vec<Reason> = said
        .because
        .into_iter()
        .map(|unmet| Reason {
            fact: unmet.what,
            owner: unmet.owner,
            class: unmet.class,
            since: unmet.since,
            age_ms: unmet.since.map(|since| millis(now.since(since))),
        })
        .collect();
    Explanation {
        subject,
        state: said.state,
        context,
        ok: said.fine,
        summary: said.headline,
        failure_class: because.iter().find_map(|reason| reason.class),
        because,
        next_actions: said.next.into_iter().map(Into::into).collect(),
        at: now,
    }
}

/// A duration in whole milliseconds.
pub fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A hold as the wire shows it.
pub fn hold_view(node: &Node, hold: &Hold, now: Timestamp) -> HoldView {
    HoldView {
        node_id: node.id,
        hostname: node.hostname.clone(),
        kind: hold.kind,
        by: hold.by.clone(),
        reason: hold.reason.clone(),
        since: hold.since,
        until: hold.until,
        job: hold.job,
        in_force: hold.is_in_force(now),
        manual: hold.kind.is_manual() && hold.job.is_none(),
    }
}

/// What a list knows of a node.
struct Standing<'a> {
    state: NodeState,
    availability_since: Timestamp,
    down_cause: Option<DownCause>,
    deadline: Option<Timestamp>,
    holds: &'a [HoldKind],
}

impl Standing<'_> {
    /// The most important reason why it is not schedulable, in a few words.
    fn why_not(&self, now: Timestamp) -> Option<String> {
        let of_status = match self.state.status {
            Status::Active | Status::Offline => None,
            Status::BootstrapIssued => Some("its bootstrap command was not run yet"),
            Status::Enrolling => Some("it is being onboarded"),
            Status::Quarantined => Some("quarantined: blocked until proven healthy"),
            Status::Draining => Some("it is being retired"),
            Status::Retired => Some("it is retired"),
            Status::Removing => Some("it is being removed"),
            Status::Deleted => Some("it is deleted"),
        };
        of_status.map(str::to_owned).or_else(|| self.of_availability(now)).or_else(|| self.of_holds())
    }

    fn of_availability(&self, now: Timestamp) -> Option<String> {
        let age = human(now.since(self.availability_since));
        match self.state.availability {
            Availability::Ready if self.state.status == Status::Active => None,
            Availability::Ready => Some("ready, and not active yet".to_owned()),
            Availability::Unknown => Some("its agent was never heard".to_owned()),
            Availability::Booting => Some(match self.deadline {
                Some(deadline) => {
                    format!("booting for {age}; failed in {} unless it registers", human(deadline.since(now)))
                }
                None => format!("booting for {age}"),
            }),
            Availability::Degraded => Some(format!("degraded for {age}")),
            Availability::Down => Some(match self.down_cause {
                Some(DownCause::HeartbeatLost) | None => format!("heartbeat lost, down for {age}"),
                Some(DownCause::CriticalHardware) => format!("critical hardware failure {age} ago"),
                Some(DownCause::Disabled) => format!("disabled by an operator {age} ago"),
                Some(DownCause::WipeFailed) => format!("its wipe failed {age} ago"),
            }),
            Availability::Draining => Some(format!("being emptied for {age}")),
            Availability::Drained => Some(format!("drained for {age}: empty, safe for maintenance")),
            Availability::Failed => Some(format!("its boot failed {age} ago")),
        }
    }

    fn of_holds(&self) -> Option<String> {
        if self.holds.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.holds.iter().map(Into::into).collect();
        Some(format!("held: {}", names.join(", ")))
    }
}

/// The verbs that a node's states have an edge for.
fn verbs(file: &NodeFile) -> Vec<NodeVerb> {
    let node = &file.node;
    let mut verbs: Vec<NodeVerb> = possible_events(node.state).filter_map(verb_of).collect();
    let is_disabled = node.hold(HoldKind::Disabled).is_some() || node.down_cause == Some(DownCause::Disabled);
    let has_provider = matches!(node.mode, OnboardingMode::Openchami | OnboardingMode::Maas);
    let may_reimage = has_provider && nothing_runs(node.state.availability);
    verbs.retain(|verb| *verb != NodeVerb::Enable && (*verb != NodeVerb::Reimage || may_reimage));
    if is_disabled {
        verbs.push(NodeVerb::Enable);
    }
    if matches!(node.state.status, Status::Draining | Status::Removing)
        || file.job.as_ref().is_some_and(|job| job.state.status.is_failed())
    {
        verbs.push(NodeVerb::Resume);
    }
    let is_redfish = file.bmc.as_ref().is_some_and(|bmc| bmc.endpoint.way.protocol() == BmcProtocol::Redfish);
    if is_redfish && may_be_erased(node) && node.ownership.allocations == 0 && node.owning_job.is_none() {
        verbs.push(NodeVerb::SecureErase);
    }
    if node.hold(HoldKind::WipeRequired).is_some() || node.hold(HoldKind::WipeFailed).is_some() {
        verbs.push(NodeVerb::Wipe);
    }
    verbs.sort_unstable();
    verbs.dedup();
    verbs
}

/// Where the OS may be taken away. design: 2-state-model "Reimage"
const fn nothing_runs(availability: Availability) -> bool {
    match availability {
        Availability::Unknown
        | Availability::Booting
        | Availability::Drained
        | Availability::Down
        | Availability::Failed => true,
        Availability::Ready | Availability::Degraded | Availability::Draining => false,
    }
}

fn verb_of(event: NodeEvent) -> Option<NodeVerb> {
    match event {
        NodeEvent::Status(event) => match event {
            StatusEvent::Withdraw => Some(NodeVerb::Withdraw),
            StatusEvent::Quarantine | StatusEvent::Block => Some(NodeVerb::Quarantine),
            StatusEvent::Recover => Some(NodeVerb::Recover),
            StatusEvent::Retire => Some(NodeVerb::Retire),
            StatusEvent::Reactivate => Some(NodeVerb::Reactivate),
            StatusEvent::Remove => Some(NodeVerb::Remove),
            StatusEvent::FirstContact
            | StatusEvent::Enrolled
            | StatusEvent::CancelOnboarding
            | StatusEvent::WentOffline
            | StatusEvent::CameBack
            | StatusEvent::ResumeOnboarding
            | StatusEvent::DrainDone
            | StatusEvent::StopRetirement
            | StatusEvent::CleanupFailed
            | StatusEvent::StopRemoval
            | StatusEvent::Removed => None,
            StatusEvent::Reimage => Some(NodeVerb::Reimage),
        },
        NodeEvent::Availability(event) => match event {
            AvailabilityEvent::Drain | AvailabilityEvent::DrainUrgently => Some(NodeVerb::Drain),
            AvailabilityEvent::Undrain => Some(NodeVerb::Undrain),
            AvailabilityEvent::Disable => Some(NodeVerb::Disable),
            AvailabilityEvent::Enable => Some(NodeVerb::Enable),
            AvailabilityEvent::Reboot => Some(NodeVerb::Reboot),
            AvailabilityEvent::Reset => Some(NodeVerb::Reset),
            AvailabilityEvent::BootStarted
            | AvailabilityEvent::AgentRegistered
            | AvailabilityEvent::HealthPassed
            | AvailabilityEvent::BootDeadline
            | AvailabilityEvent::BootFailed
            | AvailabilityEvent::HeartbeatMissed
            | AvailabilityEvent::MinorIssue
            | AvailabilityEvent::HeartbeatBack
            | AvailabilityEvent::GraceExpired
            | AvailabilityEvent::ConformanceDrift
            | AvailabilityEvent::Emptied
            | AvailabilityEvent::CriticalHardware
            | AvailabilityEvent::WipeFailed => None,
        },
    }
}
