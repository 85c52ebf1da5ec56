//! Which table a job follows.

use lattice_core::job::{Flow, Job, JobInput, flows};
use lattice_core::site::{Site, SiteProvider};

use crate::tools::Limits;

/// The table of a job at its site; none when the site is of another kind than the job was made for.
pub fn flow_of(job: &Job, site: &Site, limits: &Limits) -> Option<Flow> {
    flow_of_input(&job.input, site, limits)
}

/// The table of a job with that input.
pub fn flow_of_input(input: &JobInput, site: &Site, limits: &Limits) -> Option<Flow> {
    match (input, &site.provider) {
        (JobInput::OnboardMaas { .. }, SiteProvider::Maas(maas)) => Some(flows::onboarding_maas(&maas.policy)),
        (JobInput::OnboardLxd { .. }, SiteProvider::Lxd(lxd)) => Some(flows::onboarding_lxd(lxd)),
        (JobInput::OnboardManual { .. }, _) => Some(flows::onboarding_manual(limits.manual_token_ttl)),
        (JobInput::OnboardMaas { .. } | JobInput::OnboardLxd { .. }, _) => None,
        (JobInput::Drain { .. }, _) => Some(flows::drain(limits.drain_patience)),
        (JobInput::Retire { .. }, _) => Some(flows::retire(limits.drain_patience)),
        (JobInput::Remove, SiteProvider::Lxd(_)) => Some(flows::remove_lxd()),
        (JobInput::Remove, SiteProvider::Manual | SiteProvider::Maas(_)) => Some(flows::remove()),
    }
}
