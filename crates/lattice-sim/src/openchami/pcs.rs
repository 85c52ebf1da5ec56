//! A simulated OpenCHAMI power control: its published API, for nodes in memory. Contract: openchami "PCS"

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::{Method, StatusCode};
use lattice_core::time::{Clock, Timestamp};
use serde_json::{Value, json};

use super::http::{Answered, Answers, Asked};

/// What is wrong with one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PcsFault {
    /// Its BMC does not answer: its state is an earlier one.
    Unreachable,
    /// Its transitions complete, and it does nothing.
    TaskFails,
    /// It cannot do what is asked.
    Unsupported,
}

#[derive(Clone, Copy)]
struct Node {
    on: bool,
    /// When it went on or off last: the real one writes its store then, and not when it reads the same again.
    changed: Timestamp,
    fault: Option<PcsFault>,
}

impl Node {
    fn switch(&mut self, on: bool, now: Timestamp) {
        if self.on != on {
            (self.on, self.changed) = (on, now);
        }
    }
}

struct Begun {
    operation: String,
    xnames: Vec<String>,
    at: Timestamp,
    done: bool,
}

/// Power control of a simulated site.
pub struct SimPcs {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Node>,
    transitions: Vec<Begun>,
    takes: Duration,
    compresses: bool,
    /// What it read last, while it reads no more.
    stands_still: Option<BTreeMap<String, Node>>,
}

impl SimPcs {
    /// Power control of these nodes, which are off.
    pub fn new(nodes: &[&str], clock: Arc<dyn Clock>) -> Arc<Self> {
        let off = Node { on: false, changed: clock.now(), fault: None };
        let nodes = nodes.iter().map(|name| ((*name).to_owned(), off)).collect();
        Arc::new(Self { clock, state: Mutex::new(State { nodes, ..State::default() }) })
    }

    /// Something is wrong with a node from now on; none: nothing is any more.
    pub fn set_fault(&self, node: &str, fault: Option<PcsFault>) {
        if let Some(node) = self.state().nodes.get_mut(node) {
            node.fault = fault;
        }
    }

    /// How long transitions take.
    pub fn set_duration(&self, takes: Duration) {
        self.state().takes = takes;
    }

    /// Records of transitions that are over have no tasks any more.
    pub fn compress(&self) {
        self.state().compresses = true;
    }

    /// It does what it is told, and answers for power with what it read until now.
    pub fn stand_still(&self) {
        self.settle();
        let mut state = self.state();
        state.stands_still = Some(state.nodes.clone());
    }

    /// It reads power again.
    pub fn go_on(&self) {
        self.state().stands_still = None;
    }

    /// Somebody pressed the button: nobody was asked.
    pub fn press(&self, node: &str, on: bool) {
        let now = self.clock.now();
        if let Some(node) = self.state().nodes.get_mut(node) {
            node.switch(on, now);
        }
    }

    /// What was asked of a node, in order.
    pub fn orders(&self, node: &str) -> Vec<String> {
        let state = self.state();
        let of_node = state.transitions.iter().filter(|begun| begun.xnames.iter().any(|name| name == node));
        of_node.map(|begun| begun.operation.clone()).collect()
    }

    /// Whether a node is on.
    pub fn is_on(&self, node: &str) -> bool {
        self.settle();
        self.state().nodes.get(node).is_some_and(|node| node.on)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was due happened.
    fn settle(&self) {
        let now = self.clock.now();
        let mut state = self.state();
        let State { nodes, transitions, takes, .. } = &mut *state;
        for begun in transitions.iter_mut().filter(|begun| !begun.done && now.since(begun.at) >= *takes) {
            begun.done = true;
            let on = matches!(begun.operation.as_str(), "on" | "init" | "hard-restart" | "soft-restart");
            for name in &begun.xnames {
                if let Some(node) = nodes.get_mut(name)
                    && node.fault.is_none()
                {
                    node.switch(on, now);
                }
            }
        }
    }

    fn begin(&self, body: &Value) -> Answered {
        const KNOWN: [&str; 7] = ["on", "off", "soft-off", "soft-restart", "hard-restart", "init", "force-off"];
        let operation = body["operation"].as_str().unwrap_or_default().to_ascii_lowercase();
        if !KNOWN.contains(&operation.as_str()) {
            return Answered::problem(StatusCode::BAD_REQUEST, "invalid operation");
        }
        let location = body["location"].as_array().cloned().unwrap_or_default();
        let xnames: Vec<String> = location.iter().filter_map(|one| Some(one["xname"].as_str()?.to_owned())).collect();
        if xnames.is_empty() {
            return Answered::problem(StatusCode::BAD_REQUEST, "missing location");
        }
        let mut state = self.state();
        let id = state.transitions.len();
        state.transitions.push(Begun { operation: operation.clone(), xnames, at: self.clock.now(), done: false });
        drop(state);
        self.settle();
        Answered::ok(&json!({ "transitionID": id.to_string(), "operation": operation }))
    }

    fn transition(&self, id: usize) -> Answered {
        let state = self.state();
        let Some(begun) = state.transitions.get(id) else {
            return Answered::problem(StatusCode::NOT_FOUND, "transition not found");
        };
        let tasks: Vec<_> = begun.xnames.iter().map(|name| task(name, begun, state.nodes.get(name))).collect();
        let count = |status: &str| tasks.iter().filter(|task| task["taskStatus"] == status).count();
        let mut seen = json!({
            "transitionID": id.to_string(), "operation": begun.operation, "createTime": begun.at.to_string(),
            "transitionStatus": if begun.done { "completed" } else { "in-progress" },
            "taskCounts": {
                "total": tasks.len(), "new": 0, "in-progress": count("in-progress"), "failed": count("failed"),
                "succeeded": count("succeeded"), "un-supported": count("unsupported"),
            },
        });
        if !(begun.done && state.compresses) {
            seen["tasks"] = json!(tasks);
        }
        Answered::ok(&seen)
    }

    fn status(&self, asked: &Asked<'_>) -> Answered {
        let wanted: Vec<&str> =
            asked.query.iter().filter(|(name, _)| name == "xname").map(|(_, value)| value.as_str()).collect();
        let state = self.state();
        let shown = state.stands_still.as_ref().unwrap_or(&state.nodes).iter();
        let shown = shown.filter(|(name, _)| wanted.is_empty() || wanted.contains(&name.as_str()));
        let status: Vec<_> = shown
            .map(|(name, node)| {
                let lost = node.fault == Some(PcsFault::Unreachable);
                json!({
                    "xname": name, "powerState": if node.on { "on" } else { "off" },
                    "managementState": if lost { "unavailable" } else { "available" },
                    "error": if lost { Value::from("no answer from the BMC") } else { Value::Null },
                    "supportedPowerTransitions": ["On", "Force-Off"], "lastUpdated": node.changed.to_string(),
                })
            })
            .collect();
        Answered::ok(&json!({ "status": status }))
    }
}

fn task(name: &str, begun: &Begun, node: Option<&Node>) -> Value {
    let (status, error) = match (begun.done, node.map(|node| node.fault)) {
        (false, _) => ("in-progress", ""),
        (true, None) => ("failed", "no such component"),
        (true, Some(Some(PcsFault::Unsupported))) => ("unsupported", "the component cannot do it"),
        (true, Some(Some(PcsFault::TaskFails | PcsFault::Unreachable))) => ("failed", "no answer from the BMC"),
        (true, Some(None)) => ("succeeded", ""),
    };
    json!({ "xname": name, "taskStatus": status, "taskStatusDescription": status, "error": error })
}

impl Answers for SimPcs {
    fn answer(&self, asked: &Asked<'_>) -> Answered {
        self.settle();
        let path = asked.path.strip_prefix("/v1").unwrap_or(asked.path);
        match (asked.method, path) {
            (&Method::GET, "/liveness" | "/readiness") => Answered::nothing(),
            (&Method::POST, "/transitions") => self.begin(&asked.body),
            (&Method::GET, "/power-status") => self.status(asked),
            (&Method::GET, path) => match path.strip_prefix("/transitions/").and_then(|id| id.parse::<usize>().ok()) {
                Some(id) => self.transition(id),
                None => Answered::problem(StatusCode::NOT_FOUND, "no such resource"),
            },
            (_, _) => Answered::problem(StatusCode::METHOD_NOT_ALLOWED, "no such method here"),
        }
    }
}
