//! Automated remediation: a node that fell silent is power-cycled, where its site says so and the governor has room. Pure.
//! spec: S1 "Down → Booting"; design: 2-state-model "Availability"

use crate::bmc::BmcReport;
use crate::heartbeat::brake;
use crate::job::Job;
use crate::node::{Availability, DownCause, HoldKind, Node, Status};
use crate::site::{Governor, Site};
use crate::time::{Timestamp, human};

/// Name of whoever does it, in history, audit and jobs.
pub const REMEDIATOR: &str = "remediator";

/// Whether, and when, Lattice itself reboots a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// It is not for Lattice to do: the node is not down for its silence, or its site does not say so.
    NotOurs,
    /// An operator must act: why.
    Never(String),
    /// Not yet: why.
    Later(String),
    /// Now.
    Due,
}

/// What else must be known of a node that is down.
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

/// Judges whether a node is rebooted by itself at `now`.
///
/// The reboot itself is the operator's verb, asked for by the control plane. It is tried once for each time of being down: whether it helped is decided by the boot's own deadline, and a node
/// that fails it waits for an operator.
pub fn remedy(node: &Node, standing: &Standing, now: Timestamp) -> Remedy {
    let silent = node.state.availability == Availability::Down && node.down_cause == Some(DownCause::HeartbeatLost);
    let policy = &standing.site.automation;
    if !silent || !policy.auto_remediate || node.state.status != Status::Offline {
        return Remedy::NotOurs;
    }
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
    standing.governor.room().map_or_else(Remedy::Later, |()| Remedy::Due)
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
