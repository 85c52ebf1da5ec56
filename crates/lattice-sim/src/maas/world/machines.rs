//! Machine records: created, read, changed, removed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Answer, Call, Level, MaasWorld};
use crate::maas::body;
use crate::maas::faults::MachineFault;
use crate::maas::node::{Node, Power, PowerState};
use crate::maas::oauth::ApiKey;
use crate::maas::quirk::Quirk;
use crate::maas::status::NodeStatus;
use crate::maas::wire::{Params, Response};

/// Architectures with an image.
const ARCHITECTURES: [&str; 2] = ["amd64/generic", "arm64/generic"];

impl MaasWorld {
    pub(super) fn create_machine(&mut self, call: &Call<'_>) -> Answer {
        let form = &call.request.form;
        let power = self.read_power(form, None)?;
        let macs: Vec<String> = form.list("mac_addresses").iter().map(|mac| mac.to_ascii_lowercase()).collect();
        // An IPMI machine may be created before anyone knows its MACs: its BMC tells it apart.
        if macs.is_empty() && power.kind != "ipmi" {
            return Err(Response::form_error("mac_addresses", "This field is required."));
        }
        if let Some(bad) = macs.iter().find(|mac| !is_mac(mac)) {
            return Err(Response::form_error("mac_addresses", format!("'{bad}' is not a valid MAC address.")));
        }
        if let Some(used) = macs.iter().find_map(|mac| self.holder_of_mac(mac)) {
            if self.quirks.meet(Quirk::DuplicateMacRefused) {
                let node = self.node(&used)?;
                let text = format!("MAC address {} already in use on {}.", macs.join(", "), node.hostname);
                return Err(Response::form_error("mac_addresses", text));
            }
            return self.read_machine(&used);
        }
        let architecture = self.read_architecture(form)?;
        let hostname = self.read_hostname(form, None)?;
        let system_id = self.insert_node(hostname, &architecture);
        let interfaces = macs.iter().enumerate();
        let interfaces: Vec<_> =
            interfaces.map(|(at, mac)| self.bare_interface(&format!("eth{at}"), mac, at == 0)).collect();
        let node = self.node_mut(&system_id)?;
        node.power = power;
        node.interfaces = interfaces;
        node.description = form.get("description").unwrap_or_default().to_owned();
        self.link_record(&system_id);
        self.record(&system_id, Level::Info, "Enlisted new machine", "created by an administrator", call.now);
        let commission = form.flag("commission");
        let by_default = commission.is_none() && self.quirks.meet(Quirk::CommissionDefaultsTrue);
        if form.flag("deployed").unwrap_or(false) {
            self.node_mut(&system_id)?.status = NodeStatus::Deployed;
        } else if commission.unwrap_or(by_default) {
            let stay_on = form.flag("enable_ssh").unwrap_or(false);
            self.start_commissioning(&system_id, stay_on, call.now)?;
        }
        let status = self.created();
        Ok(Response::json(status, &self.machine_body(&system_id)?))
    }

    /// The status of a create that went well.
    pub(super) fn created(&mut self) -> u16 {
        if self.quirks.meet(Quirk::CreateIs200) { 200 } else { 201 }
    }

    /// One machine as JSON.
    pub(super) fn read_machine(&mut self, system_id: &str) -> Answer {
        Ok(Response::json(200, &self.machine_body(system_id)?))
    }

    /// The 80 keys of a machine.
    pub(super) fn machine_body(&mut self, system_id: &str) -> Result<Value, Response> {
        let deployed = self.node(system_id)?.status == NodeStatus::Deployed;
        let hidden = deployed && self.strikes(MachineFault::NoSshAddress, system_id);
        let node = self.node(system_id)?;
        Ok(body::machine(node, &self.network, &self.groups, hidden))
    }

    pub(super) fn update_machine(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let form = &call.request.form;
        let before = self.node(&system_id)?.clone();
        let hostname = self.read_hostname(form, Some(&before))?;
        let power = self.read_power(form, Some(&before.power))?;
        let pool = form.text("pool").map(|name| self.pool_by_name(name)).transpose()?;
        let zone = form.text("zone").map(|name| self.zone_by_name(name)).transpose()?;
        let architecture = match form.text("architecture") {
            Some(_) => self.read_architecture(form)?,
            None => before.architecture.clone(),
        };
        let node = self.node_mut(&system_id)?;
        node.power = power;
        node.architecture = architecture;
        if let Some(hostname) = hostname {
            node.hostname = hostname;
        }
        if let Some(pool) = pool {
            node.pool = pool;
        }
        if let Some(zone) = zone {
            node.zone = zone;
        }
        if let Some(description) = form.get("description") {
            node.description = description.to_owned();
        }
        self.link_record(&system_id);
        self.read_machine(&system_id)
    }

    pub(super) fn delete_machine(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        if self.node(&system_id)?.locked {
            return Err(self.forbidden("The machine is locked."));
        }
        self.record(&system_id, Level::Info, "Node deleted", call.user(), call.now);
        self.remove_node(&system_id);
        Ok(Response::empty(204))
    }

    /// Takes a record away; the machine itself keeps running whatever it runs.
    pub(super) fn remove_node(&mut self, system_id: &str) {
        self.drop_token(system_id);
        if let Some(asset) = self.nodes.get(system_id).and_then(|node| self.asset_of(node)) {
            self.assets[asset].record = None;
        }
        self.nodes.remove(system_id);
    }

    /// A new record; a host name is made up when there is none.
    pub(super) fn insert_node(&mut self, hostname: Option<String>, architecture: &str) -> String {
        const LETTERS: &str = "abcdefghkmnpqrstwxy346780";
        let number = self.new_id();
        let mut attempt = 0;
        let system_id = loop {
            let id = self.dice.word(LETTERS, 6, &[0x1d, u64::from(number), attempt]);
            if !self.nodes.contains_key(&id) {
                break id;
            }
            attempt += 1;
        };
        let hostname = hostname.unwrap_or_else(|| made_up_name(self.dice, number));
        let node = Node {
            system_id: system_id.clone(),
            number,
            hostname,
            description: String::new(),
            status: NodeStatus::New,
            status_before: NodeStatus::New,
            status_message: None,
            error_description: String::new(),
            epoch: 0,
            power: Power { kind: String::new(), parameters: BTreeMap::new(), state: PowerState::Unknown },
            owner: None,
            annotations: BTreeMap::new(),
            tags: BTreeSet::new(),
            pool: 0,
            zone: "default".to_owned(),
            locked: false,
            architecture: architecture.to_owned(),
            found: None,
            interfaces: Vec::new(),
            disks: Vec::new(),
            boot_disk: None,
            layout: String::new(),
            system: None,
            token: None,
            commissioning_result: None,
            commissioning_passed: None,
            installation_result: None,
            deployments: 0,
            doom: None,
        };
        self.nodes.insert(system_id.clone(), node);
        system_id
    }

    /// The machine's key, once a preseed was rendered with it.
    pub(super) fn machine_token(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        self.node(&system_id)?;
        if self.strikes(MachineFault::TokenNeverEmitted, &system_id) {
            return Ok(Response::json(200, &Value::Null));
        }
        if self.node(&system_id)?.token.is_none() {
            if self.quirks.meet(Quirk::TokenNullBeforePreseed) {
                return Ok(Response::json(200, &Value::Null));
            }
            self.render_preseed(&system_id);
        }
        let Some(ApiKey { consumer, token, secret }) = &self.node(&system_id)?.token else {
            return Ok(Response::json(200, &Value::Null));
        };
        let body = json!({ "token_key": token, "token_secret": secret, "consumer_key": consumer });
        Ok(Response::json(200, &body))
    }

    /// Owner data and workload annotations are one thing: an empty value removes the key.
    pub(super) fn annotate(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        let node = self.node_mut(&system_id)?;
        for (key, value) in call.request.form.iter() {
            if value.is_empty() {
                node.annotations.remove(key);
            } else {
                node.annotations.insert(key.to_owned(), value.to_owned());
            }
        }
        self.read_machine(&system_id)
    }

    pub(super) fn curtin_config(&mut self, call: &Call<'_>) -> Answer {
        let node = self.node(call.arg(0))?;
        if node.holds_system() {
            return Ok(Response::text(200, "debconf_selections:\n  maas: cloud-init cloud-init/datasources\n"));
        }
        let label = node.status.row().label;
        if self.quirks.meet(Quirk::CurtinConfigIsYaml400) {
            return Err(Response::text(400, format!("machine: {}\nstatus: {label}\n", call.arg(0))));
        }
        Err(Response::text(409, format!("Machine is in state {label}: there is no curtin configuration.")))
    }

    /// The host name a form asks for; `have` is the machine that may keep its own.
    fn read_hostname(&self, form: &Params, have: Option<&Node>) -> Result<Option<String>, Response> {
        let Some(wanted) = form.text("hostname") else { return Ok(None) };
        let name = wanted.split('.').next().unwrap_or(wanted).to_owned();
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !letters || name.is_empty() || name.starts_with('-') || name.ends_with('-') || name.len() > 63 {
            return Err(Response::form_error("hostname", format!("Invalid hostname: '{wanted}'.")));
        }
        let taken = self.nodes.values().find(|node| node.hostname == name);
        match taken {
            Some(other) if have.is_none_or(|node| node.system_id != other.system_id) => {
                let text = format!("Node with hostname '{name}' already exists");
                Err(Response::form_error("hostname", text))
            }
            Some(_) | None => Ok(Some(name)),
        }
    }

    fn read_architecture(&self, form: &Params) -> Result<String, Response> {
        let asked = form.text("architecture").unwrap_or("amd64/generic");
        let full = match (asked.contains('/'), form.text("subarchitecture")) {
            (true, _) => asked.to_owned(),
            (false, sub) => format!("{asked}/{}", sub.unwrap_or("generic")),
        };
        if ARCHITECTURES.contains(&full.as_str()) {
            return Ok(full);
        }
        let text =
            format!("'{full}' is not a valid architecture.  It should be one of: '{}'.", ARCHITECTURES.join("', '"));
        Err(Response::form_error("architecture", text))
    }

    fn holder_of_mac(&self, mac: &str) -> Option<String> {
        let holder = self.nodes.values().find(|node| node.interfaces.iter().any(|nic| nic.mac == mac));
        holder.map(|node| node.system_id.clone())
    }
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit()))
}

fn made_up_name(dice: crate::dice::Dice, number: u32) -> String {
    const FIRST: [&str; 8] = ["able", "brief", "clean", "fair", "keen", "moral", "prime", "swift"];
    const SECOND: [&str; 8] = ["ant", "crow", "finch", "gnu", "heron", "lynx", "newt", "vole"];
    let pick = |list: &[&'static str], which| list[dice.below(list.len() as u64, &[which, u64::from(number)]) as usize];
    format!("{}-{}-{number}", pick(&FIRST, 1), pick(&SECOND, 2))
}
