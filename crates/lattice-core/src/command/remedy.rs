//! What Lattice makes unavailable by itself: a node that fell silent is power-cycled, where its site says so; a sensitive
//! one whose fingerprint drifted is drained. Both as the governor has room. Pure.
//! spec: S1 "Down → Booting", "Conformance drift"; design: 2-state-model "Availability", 8-interfaces "Security"

use super::conformance;
use crate::bmc::BmcReport;
use crate::heartbeat::brake;
use crate::job::Job;
use crate::node::{Availability, DownCause, HoldKind, Node, Status};
use crate::site::{Governor, Site};
use crate::time::{Timestamp, human};

/// Name of whoever does it, in history, audit and jobs.
pub const REMEDIATOR: &str = "remediator";

/// Whether, and when, Lattice itself makes a node unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// It is not for Lattice to do: the node neither fell silent nor drifted, or its site does not say so.
    NotOurs,
    /// An operator must act: why.
    Never(String),
    /// Not yet: why.
    Later(String),
    /// It is rebooted now.
    Reboot,
    /// It is drained now.
    Drain,
}

/// What else must be known of a node that Lattice may act on.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Its site.
    pub site: &'a Site,
    /// A live or failed job that owns it.
    pub job: Option<&'a Job>,
    /// What its BMC was seen to say last.
    pub report: Option<&'a BmcReport>,
    /// Whether it has a BMC that can be asked.
    pub has_bmc: bool,
    /// How its site stands towards its limit.
    pub governor: Governor,
    /// Nodes of its site that fell down for their silence within the last [`brake::HOLDS`].
    pub fell: u64,
    /// Nodes of its site whose silence would be noticed, or was.
    pub members: u64,
}

impl Standing<'_> {
    /// Whether a node fell together with most of its site: nothing of them is switched for as long as a brake holds, whether
    /// there is work on it or not. An operator who lets go of the site ends it.
    fn is_mass_failure(&self, node: &Node, now: Timestamp) -> bool {
        let count = |nodes: u64| usize::try_from(nodes).unwrap_or(usize::MAX);
        self.site.heartbeat.brake
            && now < node.availability_since + brake::HOLDS
            && self.site.let_go_at.is_none_or(|at| at < node.availability_since)
            && brake::is_mass_failure(count(self.fell), count(self.members))
    }
}

/// Whether a node is down for its silence alone, and in service.
fn is_silent(node: &Node) -> bool {
    node.state.availability == Availability::Down
        && node.down_cause == Some(DownCause::HeartbeatLost)
        && node.state.status == Status::Offline
}

/// Whether anything but [`Remedy::NotOurs`] may be said of a node: else nothing of its [`Standing`] needs to be known.
pub fn may_be_ours(node: &Node, site: &Site) -> bool {
    (site.automation.auto_remediate && is_silent(node)) || conformance::is_to_be_drained(node, site)
}

/// Judges whether a node is rebooted or drained by itself at `now`.
pub fn remedy(node: &Node, standing: &Standing, now: Timestamp) -> Remedy {
    if !may_be_ours(node, standing.site) {
        return Remedy::NotOurs;
    }
    if is_silent(node) { reboot(node, standing, now) } else { drain(standing) }
}

/// It is held already, and nothing new comes to it; the drain, which an operator must take back by hand, is done to as
/// many as the site can spare.
fn drain(standing: &Standing) -> Remedy {
    if let Some(job) = standing.job {
        return Remedy::Later(format!("its job {} is {}", job.id, job.state.status));
    }
    standing.governor.room().map_or_else(Remedy::Later, |()| Remedy::Drain)
}

/// The reboot itself is the operator's verb, asked for by the control plane. It is tried once for each time of being down:
/// whether it helped is decided by the boot's own deadline, and a node that fails it waits for an operator.
fn reboot(node: &Node, standing: &Standing, now: Timestamp) -> Remedy {
    let policy = &standing.site.automation;
    if let Some(why) = left_alone(node, now) {
        return Remedy::Never(why);
    }
    if !standing.site.can_switch(standing.has_bmc) {
        return Remedy::Never(NO_SWITCH.to_owned());
    }
    if let Some(job) = standing.job {
        return Remedy::Later(format!("its job {} is {}", job.id, job.state.status));
    }
    if node.ownership.braked_until.is_some()
        || standing.site.brake.as_ref().is_some_and(|brake| brake.holds(node, now).is_some())
    {
        return Remedy::Later("a brake is pulled: most of its site may only be unreachable".to_owned());
    }
    if standing.is_mass_failure(node, now) {
        return Remedy::Later(format!(
            "{} of {} nodes of its site fell silent: they may only be unreachable, and are left alone for {} from then",
            standing.fell,
            standing.members,
            human(brake::HOLDS)
        ));
    }
    let wait = std::time::Duration::from_millis(policy.remediate_after_ms);
    let down = now.since(node.availability_since);
    if down < wait {
        return Remedy::Later(format!("{} more may bring it back by itself", human(wait.saturating_sub(down))));
    }
    if let Some(report) = standing.report.filter(|report| !report.critical.is_empty()) {
        return Remedy::Never(format!("its BMC reports {}: a reboot does not repair it", report.critical[0]));
    }
    standing.governor.room().map_or_else(Remedy::Later, |()| Remedy::Reboot)
}

/// Why Lattice itself switches nothing that cannot be switched.
pub(super) const NO_SWITCH: &str = "nothing can switch it: it has no provider and no BMC";

/// The hold for which Lattice does not switch a node by itself.
pub(super) fn left_alone(node: &Node, now: Timestamp) -> Option<String> {
    let hold = node.holds.iter().find(|hold| hold.is_in_force(now) && stops(hold.kind))?;
    Some(format!("it has the hold `{}`", hold.kind))
}

/// Somebody works on it, or what it holds must not run again before it is wiped.
const fn stops(kind: HoldKind) -> bool {
    match kind {
        HoldKind::Disabled
        | HoldKind::Maintenance
        | HoldKind::AgentUpgrade
        | HoldKind::Rollout
        | HoldKind::WipeRequired
        | HoldKind::WipeFailed => true,
        HoldKind::ConformanceDrift | HoldKind::Drift => false,
    }
}
