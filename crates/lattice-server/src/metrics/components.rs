//! What is counted of State Managers.

use lattice_workflow::components::Tended;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{Metrics, ResultLabels};

/// Components, and notices about them.
#[derive(Default)]
pub(super) struct ComponentMetrics {
    components: Family<ResultLabels, Counter>,
    notices: Family<ResultLabels, Counter>,
}

impl ComponentMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "lattice_components",
            "What was done about components of State Managers: told, changed by others, BMCs taken over, rounds troubled",
            self.components.clone(),
        );
        let about = "Notices of State Managers, by what came of them";
        registry.register("lattice_component_notices", about, self.notices.clone());
    }
}

impl Metrics {
    /// Counts what was done about components.
    pub fn components(&self, tended: &Tended) {
        let counts =
            [("told", tended.told), ("changed", tended.changed), ("bmc", tended.bmcs), ("troubled", tended.troubled)];
        for (result, count) in counts {
            self.components.components.get_or_create(&ResultLabels { result: result.to_owned() }).inc_by(count);
        }
    }

    /// Counts a notice: `taken`, `unknown`, `limited`, `unread`.
    pub fn notice(&self, result: &'static str) {
        self.components.notices.get_or_create(&ResultLabels { result: result.to_owned() }).inc();
    }
}
