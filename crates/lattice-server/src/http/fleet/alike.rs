//! What is the matter with nodes that are in service all the same: their fingerprint is not approved, the credential of
//! their BMC is not tried any more. All of one site with the same are one incident.

use std::collections::{BTreeMap, HashMap};

use lattice_api::fleet::{Incident, Severity};
use lattice_core::bmc::BreakerState;
use lattice_core::explain::NextAction;
use lattice_core::ids::{NodeId, SilenceId, SiteId};
use lattice_core::node::{Node, NodeClass};
use lattice_core::silence::{About, IncidentKind};
use lattice_core::site::{Governor, Site};
use lattice_core::time::Timestamp;
use lattice_store::PAGE_MAX;

use super::{Attention, SUBJECTS, names, node_subject};
use crate::error::Answer;
use crate::http::App;
use crate::http::node_view::millis;

/// A node, and since when it is like that.
type Since = (Node, Timestamp);

/// Adds them to what was found.
pub(super) async fn add(app: &App, sites: &HashMap<SiteId, String>, found: &mut Attention) -> Answer<()> {
    for site in app.store.sites().await?.iter().filter(|site| !site.approved.is_empty()) {
        let drifted = app.store.nodes_by_id(&app.store.drifted(site.id).await?).await?;
        if drifted.is_empty() {
            continue;
        }
        let (in_service, taken) = app.store.taken_at(site.id).await?;
        let governor = Governor::new(&site.automation, in_service, taken);
        let drifted = drifted.into_iter().filter_map(|node| node.deviates_since.map(|since| (node, since)));
        for ((_, silence), nodes) in by_site(IncidentKind::NodeDrifted, drifted, found) {
            found.add(of_drift(&nodes, site, governor, found.now), silence);
        }
    }
    let mut since: HashMap<NodeId, Timestamp> = HashMap::new();
    for bmc in app.store.locked_out().await? {
        if let BreakerState::Open { since: at, .. } = bmc.breaker {
            since.insert(bmc.node, at);
        }
    }
    let ids: Vec<NodeId> = since.keys().copied().collect();
    let locked = app.store.nodes_by_id(&ids).await?;
    let locked = locked.into_iter().filter_map(|node| since.get(&node.id).map(|at| (node, *at)));
    for ((site, silence), nodes) in by_site(IncidentKind::BmcLocked, locked, found) {
        let site = sites.get(&site).map(String::as_str).unwrap_or_default();
        found.add(of_locked(&nodes, site, found.now), silence);
    }
    Ok(())
}

/// By site and by the silence that hides it; those of a group by name.
fn by_site(
    kind: IncidentKind,
    nodes: impl Iterator<Item = Since>,
    found: &Attention,
) -> BTreeMap<(SiteId, Option<SilenceId>), Vec<Since>> {
    let mut groups: BTreeMap<_, Vec<Since>> = BTreeMap::new();
    for (node, since) in nodes {
        let about = About { node: node.id, site: node.site, labels: &node.labels };
        groups.entry((node.site, found.silencing(kind, &about))).or_default().push((node, since));
    }
    groups.values_mut().for_each(|nodes| nodes.sort_by(|(a, _), (b, _)| a.hostname.cmp(&b.hostname)));
    groups
}

/// More than a page of them is not looked at.
const fn at_least(count: usize) -> &'static str {
    if count < PAGE_MAX { "" } else { "at least " }
}

fn of_drift(nodes: &[Since], site: &Site, governor: Governor, now: Timestamp) -> Incident {
    let (host, count) = (&nodes[0].0.hostname, nodes.len());
    let sensitive = nodes.iter().filter(|(node, _)| node.effective_class() == NodeClass::Sensitive).count();
    let title = match count {
        1 => format!("{host} deviates from the approved fingerprints"),
        _ => format!("{}{count} nodes of {} deviate from the approved fingerprints", at_least(count), site.name),
    };
    let mut evidence = vec![names(nodes.iter().map(|(node, _)| node.hostname.as_str()))];
    if sensitive < count {
        evidence.push(format!("{} get work last", count - sensitive));
    }
    if sensitive > 0 {
        evidence.push(format!("{sensitive} sensitive: held, and drained as the site has room"));
        evidence.extend(governor.room().err());
    }
    let look = format!("lattice site conformance list {}", site.name);
    let next = NextAction::run(look, "shows what is approved there, and what nodes report");
    of_alike(IncidentKind::NodeDrifted, nodes, (&site.name, now), (title, "not approved", evidence), next)
}

fn of_locked(nodes: &[Since], site: &str, now: Timestamp) -> Incident {
    let host = &nodes[0].0.hostname;
    let title = match nodes.len() {
        1 => format!("the credential of the BMC of {host} was refused, and is not tried any more"),
        count => {
            let at_least = at_least(count);
            format!("the credentials of {at_least}{count} BMCs of {site} were refused, and are not tried any more")
        }
    };
    let evidence = vec![
        names(nodes.iter().map(|(node, _)| node.hostname.as_str())),
        "nothing switches them or watches their hardware until somebody looks".to_owned(),
    ];
    let reset = format!("lattice node bmc reset-breaker {host}");
    let next = NextAction::run(reset, "has the same credential tried again, once it is right");
    of_alike(IncidentKind::BmcLocked, nodes, (site, now), (title, "refused", evidence), next)
}

fn of_alike(
    kind: IncidentKind,
    nodes: &[Since],
    (site, now): (&str, Timestamp),
    (title, mark, evidence): (String, &str, Vec<String>),
    next: NextAction,
) -> Incident {
    let since = nodes.iter().map(|(_, since)| *since).min().unwrap_or(now);
    Incident {
        kind,
        severity: Severity::Warning,
        subjects: nodes.iter().take(SUBJECTS).map(|(node, _)| node_subject(node.id, &node.hostname)).collect(),
        more: nodes.len().saturating_sub(SUBJECTS) as u64,
        site: Some(site.to_owned()),
        title,
        mark: mark.to_owned(),
        evidence,
        since,
        age_ms: millis(now.since(since)),
        next: next.into(),
    }
}
