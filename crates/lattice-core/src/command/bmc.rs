//! A node's BMC: set by operators, looked at by the control plane. Pure decisions.

use super::{Request, agent};
use crate::allocation::Allocation;
use crate::bmc::{
    Bmc, BmcCause, BmcEndpoint, BmcReport, BreakerState, EndpointProblem, HealthReport, PowerReading, judge,
};
use crate::change::{Change, Commit, Guard, NodeAction, NodeChange, Resource};
use crate::ids::{Generation, JobId, OpId};
use crate::job::{JobInput, NewJob};
use crate::node::availability::AvailabilityEvent;
use crate::node::{Availability, DownCause, Node, PowerFact};
use crate::site::Site;

/// Sets a node's BMC, in place of the one that it had. The breaker closes: whoever sets it vouches for the credential.
///
/// # Errors
/// The site does not allow to call it like this.
pub fn set(
    request: &Request,
    node: &Node,
    site: &Site,
    earlier: Option<&Bmc>,
    endpoint: BmcEndpoint,
) -> Result<Commit, EndpointProblem> {
    endpoint.check(&site.bmc)?;
    let address = endpoint.address.to_string();
    let after = Bmc {
        node: node.id,
        site: site.id,
        endpoint,
        breaker: BreakerState::Closed,
        refusals: 0,
        set_at: request.now,
        set_by: request.actor.name.clone(),
        generation: earlier.map_or(Generation::FIRST, |earlier| earlier.generation.next()),
    };
    let mut changes = vec![Change::Bmc { after, cause: BmcCause::Set }];
    let mut guards = vec![Guard::SiteGeneration { site: site.id, have: site.generation }];
    if node.bmc_address.as_deref() == Some(address.as_str()) {
        guards.push(Guard::NodeGeneration { node: node.id, have: node.generation });
    } else {
        let after = Node { bmc_address: Some(address), ..node.successor(request.now) };
        changes.push(Change::Node(Box::new(NodeChange {
            after,
            before: Some(node.state),
            action: NodeAction::Updated,
            cause: "bmc_set".to_owned(),
            detail: request.reason.clone(),
        })));
    }
    Ok(request.commit(guards, changes))
}

/// An operator has the credential tried again.
pub fn reset_breaker(request: &Request, bmc: &Bmc) -> Commit {
    breaker(request, bmc, BreakerState::Closed, 0, BmcCause::BreakerReset)
}

/// Keeps what became of the breaker, when it is news.
pub fn breaker_moved(request: &Request, bmc: &Bmc, state: &BreakerState, refusals: u32) -> Option<Commit> {
    let cause = match (&bmc.breaker, state) {
        (BreakerState::Closed | BreakerState::HalfOpen { .. }, BreakerState::Open { .. }) => BmcCause::BreakerOpened,
        (BreakerState::Open { .. } | BreakerState::HalfOpen { .. }, BreakerState::Closed) => BmcCause::BreakerClosed,
        (BreakerState::Open { since, .. }, BreakerState::Open { since: later, .. }) if since != later => {
            BmcCause::BreakerOpened
        }
        (_, _) => return None,
    };
    Some(breaker(request, bmc, state.clone(), refusals, cause))
}

fn breaker(request: &Request, bmc: &Bmc, breaker: BreakerState, refusals: u32, cause: BmcCause) -> Commit {
    let after = Bmc { breaker, refusals, generation: bmc.generation.next(), ..bmc.clone() };
    request.commit(Vec::new(), vec![Change::Bmc { after, cause }])
}

/// What a look at a BMC brought: each part, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Its machine's power.
    pub power: Result<PowerReading, String>,
    /// Its machine's hardware.
    pub health: Result<HealthReport, String>,
}

/// What else must be known of a node to judge its hardware.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfNode<'a> {
    /// GPUs that its SKU has.
    pub gpus_of_sku: u32,
    /// What is placed on it: lost with it.
    pub placed: &'a [Allocation],
}

/// What a look leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked {
    /// To be committed together, in order.
    pub commits: Vec<Commit>,
    /// What is known now.
    pub report: BmcReport,
    /// The node after it, when it moved.
    pub moved: Option<Node>,
}

/// Keeps what was seen; critical evidence takes the node down at once, whatever its heartbeat says.
///
/// The same evidence moves a node once: it goes down again when it came back and the hardware is no better.
/// spec: S1 "Any → Down (hardware failure)"
pub fn looked(request: &Request, node: &Node, earlier: Option<&BmcReport>, look: Look, of_node: OfNode<'_>) -> Looked {
    let mut report = earlier.cloned().unwrap_or_else(|| BmcReport::none_yet(node.id, node.site, request.now));
    report.looked_at = request.now;
    let known = report.health.as_ref().map(|health| health.evidence.clone()).unwrap_or_default();
    let failures: Vec<String> =
        [look.power.as_ref().err(), look.health.as_ref().err()].into_iter().flatten().cloned().collect();
    report.failure = failures.first().cloned();
    if let Ok(power) = look.power {
        report.power = Some(power);
    }
    let is_down_for_it =
        node.state.availability == Availability::Down && node.down_cause == Some(DownCause::CriticalHardware);
    let mut chained = agent::Chained::default();
    let mut told = None;
    if let Ok(health) = look.health {
        let critical = judge(&health, of_node.gpus_of_sku);
        if health.evidence != known {
            told = Some(in_words(&health));
        }
        if !critical.is_empty() {
            if !is_down_for_it || critical.iter().any(|one| !report.critical.contains(one)) {
                let words: Vec<String> = critical.iter().map(ToString::to_string).collect();
                let detail = format!("{}: {}", health.source, words.join("; "));
                let event = AvailabilityEvent::CriticalHardware;
                // A brake waits for evidence, and this is it.
                let verdict = agent::Verdict { event, detail, placed: of_node.placed, braked_until: None };
                chained = agent::judged(request, node, verdict);
            }
            if report.critical != critical {
                report.critical_at = Some(health.at);
                report.critical = critical;
            }
        } else if !is_down_for_it {
            report.critical.clear();
            report.critical_at = None;
        }
        report.health = Some(health);
    }
    let mut changes = vec![Change::BmcReport(Box::new(report.clone()))];
    if chained.commits.is_empty() {
        changes.extend(let_go(request, node, &report));
    }
    changes.extend(told.map(|detail| Change::Note {
        name: "node.bmc.evidence".to_owned(),
        resource: Resource::Node(node.id),
        detail,
    }));
    match chained.commits.first_mut() {
        Some(first) => first.changes.append(&mut changes),
        None => chained.commits.push(request.commit(Vec::new(), changes)),
    }
    Looked { commits: chained.commits, report, moved: chained.after }
}

/// A brake waits for evidence: a machine that was seen to be off since its node went down runs nothing any more.
/// design: 2-state-model "Brake"
fn let_go(request: &Request, node: &Node, report: &BmcReport) -> Option<Change> {
    let power = report.power.as_ref()?;
    let is_braked = node.ownership.braked_until.is_some_and(|until| until > request.now);
    let is_off = power.fact() == PowerFact::Off && power.at > node.availability_since;
    if node.state.availability != Availability::Down || !is_braked || !is_off {
        return None;
    }
    let mut after = node.successor(request.now);
    after.ownership.braked_until = Some(request.now);
    let (before, action) = (Some(node.state), NodeAction::Updated);
    let (cause, detail) = ("power_seen_off".to_owned(), format!("{power}: what ran there has ended"));
    Some(Change::Node(Box::new(NodeChange { after, before, action, cause, detail })))
}

fn in_words(health: &HealthReport) -> String {
    if health.evidence.is_empty() {
        return format!("{}: nothing is wrong any more", health.source);
    }
    let words: Vec<String> =
        health.evidence.iter().map(|evidence| format!("{} {evidence}", evidence.severity)).collect();
    format!("{}: {}", health.source, words.join("; "))
}

/// Creates the out-of-band check of a node that went down; none when this time of being down has one already.
///
/// The check only looks: it owns nothing and stands beside any other job. spec: S1 "Degraded → Down"
pub fn investigate(request: &Request, node: &Node, site: &Site, report: Option<&BmcReport>) -> Option<(Commit, JobId)> {
    let down_since = node.availability_since;
    let known = report.and_then(|report| report.investigation).is_some_and(|one| one.down_since == down_since);
    if node.state.availability != Availability::Down || known {
        return None;
    }
    let job = NewJob { node, site, input: JobInput::InvestigateBmc, batch: None }.build(request);
    let mut after = report.cloned().unwrap_or_else(|| BmcReport::none_yet(node.id, node.site, request.now));
    after.investigation = Some(crate::bmc::Investigation { job: job.id, down_since });
    let id = job.id;
    let guards = vec![Guard::NodeGeneration { node: node.id, have: node.generation }];
    let mut commit = request.commit(guards, vec![job.created(), Change::BmcReport(Box::new(after))]);
    commit.op = once(node, down_since);
    Some((commit, id))
}

/// The op of the one check of this time of being down: two servers that see it create one job.
fn once(node: &Node, down_since: crate::time::Timestamp) -> OpId {
    let digest = crate::secret::token_hash(&format!("bmc_investigation/{}/{}", node.id, down_since.as_millis()));
    let bytes: [u8; 16] = std::array::from_fn(|at| digest.as_bytes()[at]);
    OpId::new(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}
