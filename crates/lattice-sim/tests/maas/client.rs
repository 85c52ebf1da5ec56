//! A client by hand: it signs calls and moves the time.

use jiff::{SignedDuration, Timestamp};
use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::faults::{Fault, MachineFault};
use lattice_sim::maas::oauth::{ApiKey, sign};
use lattice_sim::maas::wire::{Method, Request, Response, percent_encode};
use lattice_sim::maas::world::{Effect, MaasWorld};
use lattice_sim::machine::hardware::Hardware;
use serde_json::Value;

pub const FORM: &str = "application/x-www-form-urlencoded";

pub struct Client {
    pub world: MaasWorld,
    pub key: ApiKey,
    pub now: Timestamp,
    pub machines: Vec<Hardware>,
    pub effects: Vec<Effect>,
    nonce: u64,
}

impl Client {
    pub fn new(config: SiteConfig) -> Self {
        let (key, machines) = (config.admin_key.clone(), config.population.machines.clone());
        let now = "2026-11-21T09:00:00Z".parse().expect("a time");
        Self { world: MaasWorld::new(config), key, now, machines, effects: Vec::new(), nonce: 0 }
    }

    pub fn site(count: u32) -> Self {
        Self::new(SiteConfig::dev(1, count))
    }

    /// A site whose first machine has this fault for good.
    pub fn with_fault(what: MachineFault) -> Self {
        let mut client = Self::site(1);
        let name = client.machines[0].label.clone();
        client.world.faults().arm_permanently(Fault::Machine { name, what });
        client
    }

    pub fn get(&mut self, target: &str) -> Response {
        self.call(Method::Get, target, &[])
    }

    pub fn post(&mut self, target: &str, form: &[(&str, &str)]) -> Response {
        self.call(Method::Post, target, form)
    }

    pub fn put(&mut self, target: &str, form: &[(&str, &str)]) -> Response {
        self.call(Method::Put, target, form)
    }

    pub fn delete(&mut self, target: &str) -> Response {
        self.call(Method::Delete, target, &[])
    }

    pub fn call(&mut self, method: Method, target: &str, form: &[(&str, &str)]) -> Response {
        self.nonce += 1;
        let header = sign(&self.key, &format!("n{}", self.nonce), self.now.as_second());
        self.call_as(method, target, form, Some(header))
    }

    pub fn call_as(
        &mut self,
        method: Method,
        target: &str,
        form: &[(&str, &str)],
        authorization: Option<String>,
    ) -> Response {
        let pairs = form.iter().map(|(key, value)| format!("{key}={}", percent_encode(value)));
        let body = pairs.collect::<Vec<_>>().join("&").into_bytes();
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/MAAS/api/2.0/{target}") };
        let request = Request::from_parts(method, &target, FORM, authorization, body);
        self.pass(0);
        let response = self.world.handle(&request, self.now);
        self.pass(0);
        response
    }

    /// Lets `ms` pass.
    pub fn pass(&mut self, ms: i64) {
        self.now += SignedDuration::from_millis(ms);
        self.effects.extend(self.world.advance(self.now));
    }

    /// The machine as JSON.
    pub fn machine(&mut self, id: &str) -> Value {
        let response = self.get(&format!("machines/{id}/"));
        assert_eq!(response.status, 200, "{}", response.body_text());
        response.body_json()
    }

    pub fn status(&mut self, id: &str) -> String {
        self.machine(id)["status_name"].as_str().unwrap_or_default().to_owned()
    }

    /// Lets time pass until the status is no longer `while_in`; gives the new one.
    pub fn wait_while(&mut self, id: &str, while_in: &str) -> String {
        for _ in 0..2000 {
            let status = self.status(id);
            if status != while_in {
                return status;
            }
            self.pass(100);
        }
        panic!("still {while_in} after 200 s");
    }

    /// Creates the `index`th machine by its BMC, not commissioned.
    pub fn create(&mut self, index: usize) -> String {
        let bmc = self.machines[index].bmc.clone();
        let hostname = self.machines[index].label.clone();
        let form = [
            ("hostname", hostname.as_str()),
            ("architecture", "amd64/generic"),
            ("commission", "false"),
            ("power_type", "ipmi"),
            ("power_parameters_power_address", &bmc.address.to_string()),
            ("power_parameters_power_user", &bmc.user),
            ("power_parameters_power_pass", &bmc.password),
        ];
        let response = self.post("machines/", &form);
        assert_eq!(response.status, 200, "{}", response.body_text());
        response.body_json()["system_id"].as_str().expect("an id").to_owned()
    }

    /// A machine that is Ready.
    pub fn ready(&mut self, index: usize) -> String {
        let id = self.create(index);
        self.ready_from(&id)
    }

    /// Commissions a New machine.
    pub fn ready_from(&mut self, id: &str) -> String {
        self.op(id, "commission", &[("testing_scripts", "none")]);
        assert_eq!(self.wait_while(id, "Commissioning"), "Ready");
        id.to_owned()
    }

    /// A machine that is Deployed, with hardware sync.
    pub fn deployed(&mut self, index: usize) -> String {
        let id = self.ready(index);
        self.op(&id, "deploy", &[("distro_series", "noble"), ("enable_hw_sync", "true"), ("user_data", "I2Nsb3Vk")]);
        assert_eq!(self.wait_while(&id, "Deploying"), "Deployed");
        id
    }

    /// An operation on a machine that must go well.
    pub fn op(&mut self, id: &str, op: &str, form: &[(&str, &str)]) -> Value {
        let response = self.try_op(id, op, form);
        assert_eq!(response.status, 200, "{op}: {}", response.body_text());
        response.body_json()
    }

    pub fn try_op(&mut self, id: &str, op: &str, form: &[(&str, &str)]) -> Response {
        self.post(&format!("machines/{id}/?op={op}"), form)
    }
}
