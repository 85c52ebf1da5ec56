//! Power through MAAS: drivers, parameters, and the states it believes. spec: MAAS contract sections 5 and 6.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::physical::BmcError;
use super::{Answer, Call, Level, MaasWorld};
use crate::maas::node::{Node, Power, PowerState};
use crate::maas::power_type::{self, PowerType};
use crate::maas::quirk::Quirk;
use crate::maas::status::NodeStatus;
use crate::maas::wire::{Params, Response};

impl MaasWorld {
    /// The power configuration a form asks for, on top of what is there.
    ///
    /// # Errors
    /// 400 with the field: an unknown type, a value not among the choices, a required parameter missing.
    pub(super) fn read_power(&mut self, form: &Params, have: Option<&Power>) -> Result<Power, Response> {
        let kind = form.text("power_type").or_else(|| have.map(|power| power.kind.as_str())).unwrap_or("");
        let same = have.filter(|power| power.kind == kind);
        let mut parameters = same.map(|power| power.parameters.clone()).unwrap_or_default();
        parameters.extend(sent_parameters(form)?);
        let state = same.map_or(PowerState::Unknown, |power| power.state);
        if kind.is_empty() {
            return Ok(Power { kind: String::new(), parameters, state });
        }
        let Some(known) = power_type::find(kind) else {
            return Err(Response::form_error("power_type", format!("Select a valid choice. {kind} is not one.")));
        };
        if !form.flag("power_parameters_skip_check").unwrap_or(false) {
            check_parameters(known, &parameters)?;
        }
        Ok(Power { kind: kind.to_owned(), parameters, state })
    }

    /// The parameters of one machine, secrets in clear.
    pub(super) fn power_parameters(&mut self, call: &Call<'_>) -> Answer {
        let clear = self.quirks.meet(Quirk::SecretsInClear);
        Ok(Response::json(200, &parameters_body(self.node(call.arg(0))?, clear)))
    }

    /// The parameters of all machines, or of those with the given ids.
    pub(super) fn all_power_parameters(&mut self, call: &Call<'_>) -> Response {
        let clear = self.quirks.meet(Quirk::SecretsInClear);
        let wanted = call.request.query.list("id");
        let chosen = self.nodes.values().filter(|node| wanted.is_empty() || wanted.contains(&node.system_id));
        let bodies: Map<String, Value> =
            chosen.map(|node| (node.system_id.clone(), parameters_body(node, clear))).collect();
        Response::json(200, &Value::Object(bodies))
    }

    /// Asks the BMC and writes down what it says.
    pub(super) fn query_power(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let node = self.node(&system_id)?;
        if node.power.kind.is_empty() || node.power.kind == "manual" {
            let unknown = self.quirks.meet(Quirk::ManualPowerUnknown);
            let powered = self.asset_of(self.node(&system_id)?).is_some_and(|asset| self.assets[asset].powered);
            let state = if unknown { "unknown" } else { on_off(powered).name() };
            return Ok(Response::json(200, &json!({ "state": state })));
        }
        match self.reach_machine(&system_id) {
            Ok(asset) => {
                let state = on_off(self.assets[asset].powered);
                self.node_mut(&system_id)?.power.state = state;
                let text = format!("Power state queried: {}", state.name());
                self.record(&system_id, Level::Debug, "Queried node's BMC", &text, call.now);
                Ok(Response::json(200, &json!({ "state": state.name() })))
            }
            Err(error) => {
                self.node_mut(&system_id)?.power.state = PowerState::Error;
                self.record(&system_id, Level::Warning, "Failed to query node's BMC", &error.to_string(), call.now);
                Err(self.power_problem(error))
            }
        }
    }

    pub(super) fn power_on(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let node = self.node(&system_id)?;
        if node.owner.is_none() {
            let text = format!("Machine {system_id} is not allocated: cannot be powered on.");
            return Err(Response::text(409, text));
        }
        let ipmi = node.power.kind == "ipmi";
        if !self.driver_can(&system_id)? {
            return self.power_answer(&system_id);
        }
        let asset = self.reach_machine(&system_id).map_err(|error| self.power_problem(error))?;
        if self.assets[asset].powered {
            if !ipmi || !self.quirks.meet(Quirk::PowerOnCycles) {
                return self.power_answer(&system_id);
            }
            self.switch_off(asset);
        }
        self.switch_on(asset, call.now);
        self.node_mut(&system_id)?.power.state = PowerState::On;
        self.record(&system_id, Level::Info, "Node powered on", "", call.now);
        self.power_answer(&system_id)
    }

    pub(super) fn power_off(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        if self.driver_can(&system_id)? {
            let asset = self.reach_machine(&system_id).map_err(|error| self.power_problem(error))?;
            self.switch_off(asset);
            self.node_mut(&system_id)?.power.state = PowerState::Off;
            self.record(&system_id, Level::Info, "Node powered off", "", call.now);
        }
        self.power_answer(&system_id)
    }

    /// The machine behind a record, through its BMC and with the login that MAAS has.
    pub(super) fn reach_machine(&mut self, system_id: &str) -> Result<usize, BmcError> {
        let Some(node) = self.nodes.get(system_id) else { return Err(BmcError::Unreachable) };
        if node.power.kind != "ipmi" && node.power.kind != "redfish" {
            return self.asset_of(node).ok_or(BmcError::Unreachable);
        }
        let parameter = |name: &str| node.power.parameters.get(name).cloned().unwrap_or_default();
        let (address, user, password) = (parameter("power_address"), parameter("power_user"), parameter("power_pass"));
        self.reach_bmc(&address, (&user, &password))
    }

    /// Switches the machine off as MAAS does at the end of a phase; an unreachable one is left as it is.
    pub(super) fn power_down(&mut self, system_id: &str, now: Timestamp) {
        let driver = self.driver_can(system_id).unwrap_or(false);
        if driver && let Ok(asset) = self.reach_machine(system_id) {
            self.switch_off(asset);
            if let Some(node) = self.nodes.get_mut(system_id) {
                node.power.state = PowerState::Off;
            }
            self.record(system_id, Level::Info, "Node powered off", "", now);
        }
    }

    /// Whether a driver can switch this machine; `manual` cannot.
    pub(super) fn driver_can(&self, system_id: &str) -> Result<bool, Response> {
        let kind = &self.node(system_id)?.power.kind;
        Ok(power_type::find(kind).is_some_and(|known| known.queryable))
    }

    fn power_answer(&mut self, system_id: &str) -> Answer {
        if self.quirks.meet(Quirk::PowerOpReturnsBody) {
            self.read_machine(system_id)
        } else {
            Ok(Response::empty(204))
        }
    }

    fn power_problem(&mut self, error: BmcError) -> Response {
        let text = match error {
            BmcError::Unreachable => "Unable to get the power state: connection timeout",
            BmcError::LoginRefused => "Unable to get the power state: authentication failed, check the power user",
        };
        let response = Response::text(503, text);
        if error == BmcError::Unreachable && self.quirks.meet(Quirk::PowerQueryBlocks) {
            return response.after(self.timings.exact(self.timings.bmc_timeout_ms));
        }
        response
    }
}

impl Node {
    /// Whether the status says that a system is installed or being installed.
    pub(super) fn holds_system(&self) -> bool {
        matches!(self.status, NodeStatus::Deploying | NodeStatus::Deployed)
    }
}

const fn on_off(powered: bool) -> PowerState {
    if powered { PowerState::On } else { PowerState::Off }
}

/// `power_parameters_X=…` and a JSON `power_parameters`.
fn sent_parameters(form: &Params) -> Result<BTreeMap<String, String>, Response> {
    let mut parameters = BTreeMap::new();
    if let Some(text) = form.text("power_parameters") {
        let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) else {
            return Err(Response::form_error("power_parameters", "Invalid JSON value."));
        };
        for (key, value) in object {
            parameters.insert(key, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
    }
    for (key, value) in form.iter() {
        if let Some(name) = key.strip_prefix("power_parameters_").filter(|name| *name != "skip_check") {
            parameters.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(parameters)
}

fn check_parameters(known: &PowerType, parameters: &BTreeMap<String, String>) -> Result<(), Response> {
    for parameter in known.parameters {
        let value = parameters.get(parameter.name).map_or("", String::as_str);
        if value.is_empty() && parameter.required && parameter.default.is_empty() {
            return Err(Response::form_error(
                "power_parameters",
                format!("{}: This field is required.", parameter.name),
            ));
        }
        if !value.is_empty() && !parameter.choices.is_empty() && !parameter.choices.contains(&value) {
            let text = format!("{}: '{value}' is not a valid choice.", parameter.name);
            return Err(Response::form_error("power_parameters", text));
        }
    }
    Ok(())
}

fn parameters_body(node: &Node, clear: bool) -> Value {
    let secret = |name: &str| {
        let known = power_type::find(&node.power.kind);
        known.is_some_and(|known| known.parameters.iter().any(|parameter| parameter.name == name && parameter.secret))
    };
    let shown = |(name, value): (&String, &String)| {
        let value = if clear || !secret(name) { json!(value) } else { json!("********") };
        (name.clone(), value)
    };
    Value::Object(node.power.parameters.iter().map(shown).collect())
}
