//! How long the rest of a batch will take, from how long its stages usually take on machines of its kind.

use std::collections::HashMap;
use std::time::Duration;

use crate::job::{Enter, Flow, StageName, flows};
use crate::site::{Site, SiteProvider};

/// Usual times of one stage, from finished runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usual {
    /// Half of the runs were done within this.
    pub p50: Duration,
    /// 19 of 20 were done within this.
    pub p95: Duration,
}

/// Children of a batch that stand at one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Which stage; for children that were not started the first one.
    pub stage: StageName,
    /// How many.
    pub children: u64,
}

/// What is known of the time that is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeLeft {
    /// Half of such batches are done within `p50`, 19 of 20 within `p95`.
    Known(Usual),
    /// These stages never finished on a machine of this kind: nobody can say.
    NotKnown(Vec<StageName>),
}

/// The flow that the onboardings of a batch at that site follow; none where there are no batches.
pub fn flow_at(site: &Site) -> Option<Flow> {
    match &site.provider {
        SiteProvider::Maas(maas) => Some(flows::onboarding_maas(&maas.policy)),
        SiteProvider::Lxd(lxd) => Some(flows::onboarding_lxd(lxd)),
        SiteProvider::Openchami(site) => Some(flows::onboarding_openchami(&site.policy)),
        SiteProvider::Manual => None,
    }
}

/// The time that is left: the work of all stages that are left, shared by as many as may run at once, and at least as
/// long as one machine needs that begins where the furthest from its end stands.
///
/// The stage that a child stands at counts whole: how much of it is done is not known better than its usual time.
/// Detours are left out: who takes one needs longer.
pub fn time_left(flow: &Flow, standing: &[Standing], usual: &HashMap<StageName, Usual>, parallel: u64) -> TimeLeft {
    let parallel = u32::try_from(parallel.max(1)).unwrap_or(u32::MAX);
    let mut missing = Vec::new();
    let (mut work, mut longest) = (Usual::NONE, Usual::NONE);
    for at in standing.iter().filter(|at| at.children > 0) {
        let mut left = Usual::NONE;
        let from = flow.position(at.stage).unwrap_or(0);
        for stage in flow.stages[from..].iter().filter(|stage| stage.enter == Enter::InSequence) {
            match usual.get(&stage.name) {
                Some(usual) => left = left.plus(*usual, 1),
                None if missing.contains(&stage.name) => {}
                None => missing.push(stage.name),
            }
        }
        work = work.plus(left, u32::try_from(at.children).unwrap_or(u32::MAX));
        longest = Usual { p50: longest.p50.max(left.p50), p95: longest.p95.max(left.p95) };
    }
    if !missing.is_empty() {
        return TimeLeft::NotKnown(missing);
    }
    TimeLeft::Known(Usual { p50: (work.p50 / parallel).max(longest.p50), p95: (work.p95 / parallel).max(longest.p95) })
}

impl Usual {
    /// No time at all.
    pub const NONE: Self = Self { p50: Duration::ZERO, p95: Duration::ZERO };

    fn plus(self, other: Self, times: u32) -> Self {
        let add = |one: Duration, more: Duration| one.saturating_add(more.saturating_mul(times));
        Self { p50: add(self.p50, other.p50), p95: add(self.p95, other.p95) }
    }
}
