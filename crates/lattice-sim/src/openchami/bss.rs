//! A simulated Boot Script Service over PostgreSQL: what is stored under a name is found under that name alone. Contract:
//! openchami "BSS"

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::{Method, StatusCode};
use lattice_core::time::Clock;
use serde_json::{Value, json};

use super::http::{Answered, Answers, Asked};
use super::smd::SimSmd;

/// Boot Script Service of a simulated site.
pub struct SimBss {
    smd: Arc<SimSmd>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By `hosts` or `macs`, and the name.
    parameters: BTreeMap<(&'static str, String), Value>,
    asked: BTreeMap<String, i64>,
    puts: u64,
}

impl SimBss {
    /// One that knows the machines of `smd`.
    pub fn new(smd: Arc<SimSmd>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { smd, clock, state: Mutex::default() })
    }

    /// What is stored, by name: `hosts/x1n0`.
    pub fn stored(&self) -> BTreeMap<String, Value> {
        let state = self.state();
        state.parameters.iter().map(|((names, name), value)| (format!("{names}/{name}"), value.clone())).collect()
    }

    /// Stores parameters, as somebody else does.
    pub fn store(&self, names: &'static str, name: &str, parameters: Value) {
        self.state().parameters.insert((names, name.to_owned()), parameters);
    }

    /// How often parameters were written.
    pub fn writes(&self) -> u64 {
        self.state().puts
    }

    /// The script that a machine with this hardware address gets now; that it asked is remembered.
    pub fn script(&self, mac: &str) -> String {
        let at = self.clock.now().as_millis() / 1_000;
        let name = self.smd.xname_of(mac);
        let mut state = self.state();
        let stored = state.parameters.get(&("macs", mac.to_owned())).cloned();
        let (Some(name), Some(boot)) = (name, stored.filter(|boot| boot["kernel"] != "")) else {
            return format!("#!ipxe\nsleep 1\nchain https://bss/boot/v1/bootscript?mac={mac}&arch=${{buildarch}}\n");
        };
        state.asked.insert(name.clone(), at);
        let text = |field: &str| boot[field].as_str().unwrap_or_default().to_owned();
        format!(
            "#!ipxe\nkernel --name kernel {} initrd=initrd {} xname={name} nid=1 || goto boot_retry\n\
             initrd --name initrd {} || goto boot_retry\nboot || goto boot_retry\n:boot_retry\nsleep 5\n\
             chain https://bss/boot/v1/bootscript?mac={mac}&retry=1\n",
            text("kernel"),
            text("params"),
            text("initrd")
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, asked: &Asked<'_>) -> Answered {
        let state = self.state();
        let by = asked.query("name").map(|name| ("hosts", name)).or(asked.query("mac").map(|mac| ("macs", mac)));
        let found: Vec<&Value> = match by {
            Some((names, name)) => state.parameters.get(&(names, name.to_owned())).into_iter().collect(),
            None => state.parameters.values().collect(),
        };
        if found.is_empty() && by.is_some() {
            return Answered::problem(StatusCode::NOT_FOUND, "Not found");
        }
        Answered::ok(&json!(found))
    }

    fn write(&self, asked: &Asked<'_>) -> Answered {
        let mut state = self.state();
        // With both kinds of names only the first is taken.
        let named = ["hosts", "macs"].into_iter().find_map(|names| {
            let name = asked.body[names].as_array()?.first()?.as_str()?.to_owned();
            Some((names, name))
        });
        let Some(key) = named else { return Answered::problem(StatusCode::BAD_REQUEST, "missing hosts or macs") };
        let is_known = state.parameters.contains_key(&key);
        match asked.method {
            &Method::POST if is_known => Answered::problem(StatusCode::BAD_REQUEST, "data already exists"),
            &Method::DELETE if !is_known => Answered::problem(StatusCode::BAD_REQUEST, "does not exist"),
            &Method::DELETE => {
                state.parameters.remove(&key);
                Answered::ok(&Value::Null)
            }
            method => {
                let text = |field: &str| asked.body[field].as_str().unwrap_or_default().to_owned();
                let (names, name) = (key.0, key.1.clone());
                let boot = json!({
                    names: [name], "kernel": text("kernel"), "initrd": text("initrd"), "params": text("params"),
                });
                state.puts += 1;
                state.parameters.insert(key, boot);
                Answered::json(if method == Method::POST { StatusCode::CREATED } else { StatusCode::OK }, &Value::Null)
            }
        }
    }

    fn history(&self, asked: &Asked<'_>) -> Answered {
        let state = self.state();
        let of_name = state.asked.iter().filter(|(name, _)| asked.query("name").is_none_or(|wanted| wanted == *name));
        let entries = of_name.map(|(name, at)| json!({ "name": name, "endpoint": "bootscript", "last_epoch": at }));
        Answered::ok(&json!(entries.collect::<Vec<_>>()))
    }
}

impl Answers for SimBss {
    fn answer(&self, asked: &Asked<'_>) -> Answered {
        match (asked.method, asked.path) {
            // JSON that calls itself text.
            (&Method::GET, "/boot/v1/service/status/all") => {
                Answered::text(json!({ "bss-status": "running", "bss-status-hsm": "connected" }).to_string())
            }
            (&Method::GET, "/boot/v1/bootparameters") => self.read(asked),
            (_, "/boot/v1/bootparameters") => self.write(asked),
            (&Method::GET, "/boot/v1/endpoint-history") => self.history(asked),
            (&Method::GET, "/boot/v1/bootscript") => match asked.query("mac") {
                Some(mac) if asked.query("arch").is_some() && self.smd.xname_of(mac).is_none() => Answered::lost(),
                Some(mac) => Answered::text(self.script(mac)),
                None => Answered::problem(StatusCode::BAD_REQUEST, "Need a mac=, name=, or nid= parameter"),
            },
            (_, _) => Answered::problem(StatusCode::NOT_FOUND, "Not found"),
        }
    }
}
