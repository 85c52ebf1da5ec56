//! Lists of machines and their filters.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Call, MaasWorld};
use crate::maas::node::Node;
use crate::maas::quirk::Quirk;
use crate::maas::report::Unknown;
use crate::maas::status::NodeStatus;
use crate::maas::wire::Response;

/// The filters that are carried out; MAAS has more, which no client of ours needs.
const FILTERS: [&str; 10] =
    ["hostname", "mac_address", "id", "status", "zone", "pool", "domain", "agent_name", "cpu_count", "mem"];

/// What a machine must be to be listed; an empty set is no condition.
struct Filter {
    hostnames: BTreeSet<String>,
    ids: BTreeSet<String>,
    macs: BTreeSet<String>,
    zones: BTreeSet<String>,
    pools: BTreeSet<String>,
    domains: BTreeSet<String>,
    agent_names: BTreeSet<String>,
    statuses: Vec<NodeStatus>,
    cpu_count: u64,
    memory_mib: u64,
}

impl Filter {
    fn passes(&self, world: &MaasWorld, node: &Node) -> bool {
        let free = |wanted: &BTreeSet<String>, value: &str| wanted.is_empty() || wanted.contains(value);
        let found = node.found.as_ref();
        free(&self.ids, &node.system_id)
            && free(&self.hostnames, &node.hostname)
            && free(&self.zones, &node.zone)
            && (self.pools.is_empty() || self.pools.contains(&world.pool_name(node.pool)))
            && free(&self.domains, "maas")
            && free(&self.agent_names, "")
            && (self.statuses.is_empty() || self.statuses.contains(&node.status))
            && (self.macs.is_empty() || node.interfaces.iter().any(|nic| self.macs.contains(&nic.mac)))
            && found.map_or(0, |found| u64::from(found.cpu_count)) >= self.cpu_count
            && found.map_or(0, |found| found.memory_mib) >= self.memory_mib
    }
}

impl MaasWorld {
    pub(super) fn list_machines(&mut self, call: &Call<'_>) -> Answer {
        let query = &call.request.query;
        let not_carried_out = query.iter().map(|(key, _)| key).find(|key| *key != "op" && !FILTERS.contains(key));
        if let Some(key) = not_carried_out {
            let text = format!("the simulated region does not carry out the filter '{key}'");
            self.note_unknown(call.request, Unknown::Field(key.to_owned()));
            return Err(Response::text(501, text));
        }
        let filter = self.read_filter(call)?;
        self.machine_list(|world, node| filter.passes(world, node))
    }

    pub(super) fn list_allocated(&mut self, call: &Call<'_>) -> Answer {
        let ids = call.request.query.list("id");
        self.machine_list(|_, node| {
            node.status == NodeStatus::Allocated && (ids.is_empty() || ids.contains(&node.system_id))
        })
    }

    /// The results of the last commissioning and installation, without output.
    pub(super) fn list_results(&mut self, call: &Call<'_>) -> Answer {
        let node = self.node(call.arg(0))?;
        let result = |id: Option<u32>, kind: u8, name: &str, passed: bool| {
            let status = if passed { (2, "Passed") } else { (3, "Failed") };
            id.map(|id| {
                json!({
                    "id": id, "system_id": node.system_id, "type": kind, "type_name": name,
                    "status": status.0, "status_name": status.1, "results": [],
                    "resource_uri": format!("/MAAS/api/2.0/nodes/{}/results/{id}/", node.system_id),
                })
            })
        };
        let passed = node.commissioning_passed.unwrap_or(false);
        let installed = node.status == NodeStatus::Deployed;
        let results: Vec<Value> = [
            result(node.commissioning_result, 0, "Commissioning", passed),
            result(node.installation_result, 1, "Installation", installed),
        ]
        .into_iter()
        .flatten()
        .collect();
        Ok(Response::json(200, &Value::Array(results)))
    }

    /// The filters of a call, read once.
    fn read_filter(&mut self, call: &Call<'_>) -> Result<Filter, Response> {
        let query = &call.request.query;
        let mut statuses = Vec::new();
        for name in query.list("status") {
            let Some(status) = NodeStatus::from_api_name(&name) else {
                self.note_unknown(call.request, Unknown::Value("status".to_owned()));
                let text = format!("'{name}' is not a valid choice. It should be one of the status names.");
                return Err(Response::form_error("status", text));
            };
            statuses.push(status);
        }
        let wanted = |key: &str| query.list(key).into_iter().collect::<BTreeSet<String>>();
        Ok(Filter {
            hostnames: wanted("hostname"),
            ids: wanted("id"),
            macs: wanted("mac_address").iter().map(|mac| mac.to_ascii_lowercase()).collect(),
            zones: wanted("zone"),
            pools: wanted("pool"),
            domains: wanted("domain"),
            agent_names: wanted("agent_name"),
            statuses,
            cpu_count: query.number("cpu_count").unwrap_or(0),
            memory_mib: query.number("mem").unwrap_or(0),
        })
    }

    /// Machines in the order of their creation. Each one costs the region time.
    fn machine_list(&mut self, wanted: impl Fn(&Self, &Node) -> bool) -> Answer {
        let mut chosen: Vec<(u32, String)> = self
            .nodes
            .values()
            .filter(|node| wanted(self, node))
            .map(|node| (node.number, node.system_id.clone()))
            .collect();
        chosen.sort();
        let bodies = chosen.iter().map(|(_, id)| self.machine_body(id)).collect::<Result<Vec<Value>, Response>>()?;
        let response = Response::json(200, &Value::Array(bodies));
        if !chosen.is_empty() && self.quirks.meet(Quirk::SlowList) {
            let each = Duration::from_micros(self.timings.list_per_machine_us);
            return Ok(response.after(each.mul_f64(chosen.len() as f64 * self.timings.scale)));
        }
        Ok(response)
    }
}
