//! A simulated State Manager. Contract: openchami "HSM v2"

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::http::{Answered, Answers, Asked};

const STATES: [&str; 8] = ["Empty", "Populated", "Off", "On", "Standby", "Halt", "Ready", "Unknown"];
const FLAGS: [&str; 5] = ["OK", "Warning", "Alert", "Locked", "Unknown"];

/// What State Manager does instead of answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmdFault {
    /// Connections are closed without an answer.
    Down,
    /// Its database is away: 500.
    Broken,
    /// It answers 200 with nothing, as under an unknown path.
    Empty,
    /// It answers after that time.
    Slow(Duration),
    /// It takes every change, and changes nothing.
    Deaf,
}

/// State Manager of a simulated site.
pub struct SimSmd {
    token: Option<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    components: BTreeMap<String, Map<String, Value>>,
    endpoints: BTreeMap<String, Value>,
    interfaces: BTreeMap<String, Value>,
    systems: BTreeMap<String, Value>,
    subscriptions: BTreeMap<u64, Value>,
    made: u64,
    /// Notices are lost on the way.
    is_mute: bool,
    fault: Option<SmdFault>,
    /// Changes of state that were asked for, by component.
    orders: BTreeMap<String, u64>,
}

impl SimSmd {
    /// An empty one; `token` is what it asks for.
    pub fn new(token: Option<&str>) -> Arc<Self> {
        Arc::new(Self { token: token.map(str::to_owned), state: Mutex::default() })
    }

    /// Nobody hears of changes from now on, or somebody does again.
    pub fn mute(&self, is_mute: bool) {
        self.state().is_mute = is_mute;
    }

    /// What it does instead of answering from now on; none: it answers.
    pub fn set_fault(&self, fault: Option<SmdFault>) {
        self.state().fault = fault;
    }

    /// How often a change of the component's state was asked for.
    pub fn orders(&self, name: &str) -> u64 {
        self.state().orders.get(name).copied().unwrap_or_default()
    }

    /// Gives a BMC another login, as somebody else does.
    pub fn set_login(&self, bmc: &str, user: &str, password: &str) {
        if let Some(endpoint) = self.state().endpoints.get_mut(bmc) {
            endpoint["User"] = json!(user);
            endpoint["Password"] = json!(password);
        }
    }

    /// How many subscriptions there are.
    pub fn subscriptions_made(&self) -> usize {
        self.state().subscriptions.len()
    }

    /// Sets fields of a component, as somebody else does.
    pub fn set(&self, name: &str, fields: &Value) {
        let changed = self.state().change(&[name.to_owned()], fields);
        self.tell(changed, fields);
    }

    /// A field of a component; null: it has none.
    pub fn field(&self, name: &str, field: &str) -> Value {
        let state = self.state();
        state.components.get(name).and_then(|fields| fields.get(field)).cloned().unwrap_or_default()
    }

    /// Removes a component with its interfaces.
    pub fn remove(&self, name: &str) {
        let mut state = self.state();
        state.components.remove(name);
        state.interfaces.retain(|_, one| one["ComponentID"] != name);
    }

    pub(super) fn xname_of(&self, mac: &str) -> Option<String> {
        let state = self.state();
        let interface = state.interfaces.get(&id_of(mac))?;
        interface["ComponentID"].as_str().map(str::to_owned)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_let_in(&self, asked: &Asked<'_>) -> bool {
        let Some(token) = &self.token else { return true };
        let is_public = asked.method == Method::GET
            && (asked.path == "/hsm/v2/State/Components"
                || asked.path == "/hsm/v2/Inventory/EthernetInterfaces"
                || asked.path.starts_with("/hsm/v2/service/"));
        let given = asked.headers.get("authorization").and_then(|value| value.to_str().ok());
        is_public || given == Some(&format!("Bearer {token}"))
    }

    /// Tells every subscriber whom it concerns, as a change of state or of being enabled. A flag alone tells nobody.
    fn tell(&self, changed: Vec<String>, fields: &Value) {
        let state = self.state();
        if changed.is_empty() || state.is_mute {
            return;
        }
        for subscription in state.subscriptions.values() {
            let wanted = |state: &Value| subscription["States"].as_array().is_some_and(|all| all.contains(state));
            let notice = if wanted(&fields["State"]) {
                json!({ "Components": changed, "Flag": fields["Flag"], "State": fields["State"] })
            } else if subscription["Enabled"] == true && !fields["Enabled"].is_null() {
                json!({ "Components": changed, "Enabled": fields["Enabled"] })
            } else {
                continue;
            };
            let url = subscription["Url"].as_str().unwrap_or_default().to_owned();
            tokio::spawn(async move {
                // A subscriber that is away misses it.
                let _missed = reqwest::Client::new().post(url).json(&notice).send().await;
            });
        }
    }

    fn components(&self, asked: &Asked<'_>, rest: &str) -> Answered {
        if let Some(root) = rest.strip_prefix("Query/") {
            let state = self.state();
            let nodes = state.components.values().filter(|one| {
                let is_node = one["Type"] == "Node";
                is_node && one["ID"].as_str().is_some_and(|id| id.starts_with(root))
            });
            return Answered::ok(&json!({ "Components": nodes.collect::<Vec<_>>() }));
        }
        if asked.method == Method::PATCH {
            return self.patch(asked, rest);
        }
        match self.state().components.get(rest) {
            Some(one) => Answered::ok(&json!(one)),
            None => Answered::problem(StatusCode::NOT_FOUND, "no such xname"),
        }
    }

    fn list(&self, asked: &Asked<'_>) -> Answered {
        let state = self.state();
        let wanted = asked.query("type").map(str::to_ascii_lowercase);
        let fits = |one: &&Map<String, Value>| {
            let kind = one["Type"].as_str().unwrap_or_default().to_ascii_lowercase();
            wanted.as_ref().is_none_or(|wanted| *wanted == kind)
        };
        Answered::ok(&json!({ "Components": state.components.values().filter(fits).collect::<Vec<_>>() }))
    }

    /// `StateData`, `FlagOnly` and `Enabled` of one component, and the first and the last of many.
    fn patch(&self, asked: &Asked<'_>, rest: &str) -> Answered {
        let (names, verb) = match rest.split_once('/') {
            Some((name, verb)) => (vec![name.to_owned()], verb),
            None => {
                let names = asked.body["ComponentIDs"].as_array().cloned().unwrap_or_default();
                (names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect(), rest)
            }
        };
        let known =
            |list: &[&str], value: &Value| value.is_null() || value.as_str().is_some_and(|one| list.contains(&one));
        let body = &asked.body;
        if !known(&STATES, &body["State"]) || !known(&FLAGS, &body["Flag"]) {
            return Answered::problem(StatusCode::BAD_REQUEST, "bad state or flag");
        }
        let fields = match verb {
            "StateData" | "BulkStateData" => {
                // A state without a flag is well.
                let flag = if body["Flag"].is_null() { json!("OK") } else { body["Flag"].clone() };
                json!({ "State": body["State"], "Flag": flag })
            }
            "FlagOnly" => json!({ "Flag": body["Flag"] }),
            "Enabled" | "BulkEnabled" => json!({ "Enabled": body["Enabled"] }),
            _ => return Answered::problem(StatusCode::METHOD_NOT_ALLOWED, "allow "),
        };
        // A state of a component that is not there is taken, and nothing comes of it.
        let is_one = rest.contains('/') && verb != "StateData";
        if is_one && !self.state().components.contains_key(&names[0]) {
            return Answered::problem(StatusCode::NOT_FOUND, "no such xname");
        }
        if verb.ends_with("StateData") {
            let mut state = self.state();
            names.iter().for_each(|name| *state.orders.entry(name.clone()).or_default() += 1);
        }
        if self.state().fault == Some(SmdFault::Deaf) {
            return Answered::nothing();
        }
        let names: Vec<String> = names.into_iter().filter(|name| self.may_follow(name, body)).collect();
        let changed = self.state().change(&names, &fields);
        self.tell(changed, &fields);
        Answered::nothing()
    }

    /// A state that may not follow is passed over, with 204, unless it is forced; even then a lock stands, and what is
    /// not ready is not ready with a warning.
    fn may_follow(&self, name: &str, body: &Value) -> bool {
        let state = self.state();
        let Some(component) = state.components.get(name) else { return false };
        let of = |field: &str| component.get(field).and_then(Value::as_str).unwrap_or_default();
        let steps = [("Off", "Standby"), ("Standby", "Ready")];
        let is_step = steps.iter().any(|(from, to)| of("State") == *from && body["State"] == *to);
        let is_warning = body["State"] == "Ready" && body["Flag"] == "Warning" && of("State") != "Ready";
        of("Flag") != "Locked" && !is_warning && (body["Force"] == true || !is_step)
    }

    fn endpoints(&self, asked: &Asked<'_>) -> Answered {
        let mut state = self.state();
        if asked.method == Method::GET {
            let fits = |one: &&Value| {
                let field = |name: &str, key: &str| asked.query(key).is_none_or(|wanted| one[name] == wanted);
                field("IPAddress", "ipaddress") && field("FQDN", "fqdn") && field("ID", "id")
            };
            let found: Vec<_> = state.endpoints.values().filter(fits).collect();
            return Answered::ok(&json!({ "RedfishEndpoints": found }));
        }
        let id = asked.body["ID"].as_str().unwrap_or_default().to_owned();
        if state.endpoints.contains_key(&id) {
            return Answered::problem(StatusCode::CONFLICT, "operation would conflict with an existing resource");
        }
        let fqdn = asked.body["FQDN"].clone();
        let endpoint = json!({
            "ID": id, "Type": "NodeBMC", "FQDN": fqdn, "IPAddress": fqdn, "Enabled": true, "User": asked.body["User"],
            "Password": asked.body["Password"], "MACAddr": asked.body["MACAddr"],
        });
        state.endpoints.insert(id.clone(), endpoint);
        for (place, system) in asked.body["Systems"].as_array().into_iter().flatten().enumerate() {
            let name = format!("{id}n{place}");
            state.made += 1;
            let nid = state.made;
            let component = json!({ "ID": name, "Type": "Node", "State": "On", "Enabled": true, "NID": nid });
            state.components.insert(name.clone(), component.as_object().cloned().unwrap_or_default());
            let known = json!({ "ID": name, "Type": "Node", "OdataID": system["uri"], "RedfishEndpointID": id });
            state.systems.insert(name.clone(), known);
            for interface in system["ethernet_interfaces"].as_array().into_iter().flatten() {
                let mac = interface["mac"].as_str().unwrap_or_default();
                let addresses = match interface["ip"].as_str() {
                    Some(ip) if !ip.is_empty() => json!([{ "IPAddress": ip }]),
                    Some(_) | None => json!([]),
                };
                let one = json!({
                    "ID": id_of(mac), "MACAddress": mac, "ComponentID": name, "Type": "Node", "IPAddresses": addresses,
                });
                state.interfaces.insert(id_of(mac), one);
            }
        }
        Answered::json(StatusCode::CREATED, &json!([{ "URI": format!("/hsm/v2/Inventory/RedfishEndpoints/{id}") }]))
    }

    fn interfaces(&self, asked: &Asked<'_>) -> Answered {
        let state = self.state();
        let fits = |one: &&Value| {
            let by_mac = asked.query("MACAddress").is_none_or(|mac| one["ID"] == id_of(mac));
            by_mac && asked.query("ComponentID").is_none_or(|id| one["ComponentID"] == id)
        };
        Answered::ok(&json!(state.interfaces.values().filter(fits).collect::<Vec<_>>()))
    }

    fn subscriptions(&self, asked: &Asked<'_>, id: &str) -> Answered {
        let mut state = self.state();
        if asked.method == Method::DELETE {
            let removed = id.parse().ok().and_then(|id: u64| state.subscriptions.remove(&id));
            return match removed {
                Some(_) => Answered::nothing(),
                None => Answered::problem(StatusCode::NOT_FOUND, "subscription does not exist"),
            };
        }
        if asked.method == Method::GET {
            let all: Vec<_> = state.subscriptions.values().collect();
            let list = if all.is_empty() { Value::Null } else { json!(all) };
            return Answered::ok(&json!({ "SubscriptionList": list }));
        }
        let same = |one: &&Value| one["Subscriber"] == asked.body["Subscriber"] && one["Url"] == asked.body["Url"];
        if state.subscriptions.values().any(|one| same(&one)) {
            return Answered::problem(StatusCode::BAD_REQUEST, "Subscribe failed");
        }
        state.made += 1;
        let id = state.made;
        let mut subscription = asked.body.clone();
        subscription["ID"] = json!(id);
        state.subscriptions.insert(id, subscription.clone());
        Answered::ok(&subscription)
    }
}

impl State {
    /// Changes those components that there are, and gives their names; the others are passed over.
    fn change(&mut self, names: &[String], fields: &Value) -> Vec<String> {
        let mut changed = Vec::new();
        for name in names {
            let Some(component) = self.components.get_mut(name) else { continue };
            let mut differs = false;
            for (field, value) in fields.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                let is_news = component.insert(field.clone(), value.clone()).as_ref() != Some(value);
                differs |= is_news && field != "Flag";
            }
            if differs {
                changed.push(name.clone());
            }
        }
        changed
    }
}

impl Answers for SimSmd {
    fn answer(&self, asked: &Asked<'_>) -> Answered {
        let fault = self.state().fault;
        match fault {
            Some(SmdFault::Down) => Answered::lost(),
            Some(SmdFault::Broken) => Answered::problem(StatusCode::INTERNAL_SERVER_ERROR, "database is away"),
            Some(SmdFault::Empty) => Answered::empty(),
            Some(SmdFault::Slow(time)) => self.answered(asked).after(time),
            Some(SmdFault::Deaf) | None => self.answered(asked),
        }
    }
}

impl SimSmd {
    fn answered(&self, asked: &Asked<'_>) -> Answered {
        if !self.is_let_in(asked) {
            return Answered::problem(StatusCode::UNAUTHORIZED, "no token found");
        }
        let Some(path) = asked.path.strip_prefix("/hsm/v2/") else { return Answered::empty() };
        match path {
            "service/ready" => Answered::ok(&json!({ "code": 0, "message": "HSM is healthy" })),
            "State/Components" => self.list(asked),
            "Inventory/RedfishEndpoints" => self.endpoints(asked),
            "Inventory/EthernetInterfaces" => self.interfaces(asked),
            "Inventory/ComponentEndpoints" => {
                Answered::ok(&json!({ "ComponentEndpoints": self.state().systems.values().collect::<Vec<_>>() }))
            }
            "Subscriptions/SCN" => self.subscriptions(asked, ""),
            _ => match (path.strip_prefix("State/Components/"), path.strip_prefix("Subscriptions/SCN/")) {
                (Some(rest), _) => self.components(asked, rest),
                (None, Some(id)) => self.subscriptions(asked, id),
                (None, None) => Answered::empty(),
            },
        }
    }
}

fn id_of(mac: &str) -> String {
    mac.replace(':', "").to_ascii_lowercase()
}
