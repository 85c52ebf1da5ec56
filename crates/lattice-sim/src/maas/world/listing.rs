//! Lists of machines and their filters.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Call, MaasWorld};
use crate::maas::node::Node;
use crate::maas::quirk::Quirk;
use crate::maas::report::Unknown;
use crate::maas::status::NodeStatus;
use crate::maas::wire::{Params, Response};

/// The filters that are carried out; MAAS has more, which no client of ours needs.
const FILTERS: [&str; 10] =
    ["hostname", "mac_address", "id", "status", "zone", "pool", "domain", "agent_name", "cpu_count", "mem"];

impl MaasWorld {
    pub(super) fn list_machines(&mut self, call: &Call<'_>) -> Answer {
        let query = &call.request.query;
        let not_carried_out = query.iter().map(|(key, _)| key).find(|key| *key != "op" && !FILTERS.contains(key));
        if let Some(key) = not_carried_out {
            let text = format!("the simulated region does not carry out the filter '{key}'");
            self.note_unknown(call.request, Unknown::Field(key.to_owned()));
            return Err(Response::text(501, text));
        }
        let mut statuses = Vec::new();
        for name in query.list("status") {
            let Some(status) = NodeStatus::from_api_name(&name) else {
                self.note_unknown(call.request, Unknown::Value("status".to_owned()));
                let text = format!("'{name}' is not a valid choice. It should be one of the status names.");
                return Err(Response::form_error("status", text));
            };
            statuses.push(status);
        }
        self.machine_list(|world, node| world.passes(query, &statuses, node))
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

    fn passes(&self, query: &Params, statuses: &[NodeStatus], node: &Node) -> bool {
        let any = |key: &str, value: &str| {
            let wanted = query.list(key);
            wanted.is_empty() || wanted.iter().any(|item| item == value)
        };
        let macs: Vec<String> = query.list("mac_address").iter().map(|mac| mac.to_ascii_lowercase()).collect();
        let cpu_count = node.found.as_ref().map_or(0, |found| u64::from(found.cpu_count));
        let memory_mib = node.found.as_ref().map_or(0, |found| found.memory_mib);
        any("hostname", &node.hostname)
            && any("id", &node.system_id)
            && any("zone", &node.zone)
            && any("pool", &self.pool_name(node.pool))
            && any("domain", "maas")
            && any("agent_name", "")
            && (statuses.is_empty() || statuses.contains(&node.status))
            && (macs.is_empty() || node.interfaces.iter().any(|nic| macs.contains(&nic.mac)))
            && query.number("cpu_count").is_none_or(|least| cpu_count >= least)
            && query.number("mem").is_none_or(|least| memory_mib >= least)
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
