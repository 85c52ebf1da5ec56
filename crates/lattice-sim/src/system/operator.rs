//! Operators and users who meddle, through the production API. They know what lists tell them, and ask for anything.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use lattice_core::agent::task::CheckpointHow;
use lattice_core::ids::{AllocationId, JobId, NodeId};
use lattice_core::secret::Secret;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::ground::Ground;
use super::life::SITE;
use super::luck::Luck;

/// Verbs of nodes, the frequent ones more than once.
const NODE_VERBS: &[&str] = &[
    "drain",
    "drain",
    "drain",
    "undrain",
    "undrain",
    "undrain",
    "disable",
    "enable",
    "enable",
    "reboot",
    "reset",
    "quarantine",
    "recover",
    "recover",
    "retire",
    "reactivate",
    "remove",
    "resume",
    "wipe",
    "secure-erase",
    "secure-erase",
];
/// Actions of jobs.
const JOB_ACTIONS: &[&str] = &[
    "retry_stage",
    "resume",
    "resume",
    "rerun",
    "restart_clean",
    "cancel",
    "cancel",
    "mark_manual_intervention_required",
];
/// Holds that are set by hand.
const HOLDS: &[&str] = &["maintenance", "rollout", "drift"];
/// Users, few enough to meet on one node.
const USERS: &[&str] = &["ada", "bob", "eve"];

/// Somebody with a token of an administrator.
pub struct Operator {
    ground: Arc<Ground>,
    token: Secret<String>,
    luck: Luck,
}

/// What is asked of the API.
#[derive(Debug, Clone)]
pub struct Ask {
    /// `POST`, `DELETE`.
    pub method: Method,
    /// Below `/api/v1/admin/`.
    pub path: String,
    /// The body.
    pub body: Value,
    /// For the log.
    pub told: String,
}

impl Operator {
    /// Who has that token.
    pub const fn new(ground: Arc<Ground>, token: Secret<String>, luck: Luck) -> Self {
        Self { ground, token, luck }
    }

    /// Something to ask for; none when there is nothing to ask it of.
    pub fn whim(&self) -> Option<Ask> {
        match self.luck.below(20) {
            0..8 => self.of_node(),
            8..13 => Some(self.new_allocation()),
            13..16 => self.of_allocation(),
            16..18 => self.of_job(),
            18 if self.luck.once_in(300) => Some(self.brake()),
            18 if self.luck.once_in(400) => self.conformance(),
            _ => self.hold(),
        }
    }

    fn of_node(&self) -> Option<Ask> {
        let (id, name) = self.some_node()?;
        let verb = *self.luck.pick(NODE_VERBS)?;
        let mut body = json!({"reason": "on a whim"});
        if verb == "drain" {
            body["urgent"] = Value::Bool(self.luck.once_in(400));
            if self.luck.once_in(300) {
                body["deadline_ms"] = json!(30_000 + self.luck.below(600_000));
            }
        }
        if verb == "secure-erase" {
            body["drives"] = json!(["all"]);
        }
        if verb == "wipe" {
            body["force"] = Value::Bool(self.luck.once_in(800));
        }
        Some(post(format!("nodes/{id}/{verb}"), body.clone(), format!("{verb} {name} {body}")))
    }

    fn some_node(&self) -> Option<(NodeId, String)> {
        let nodes = self.ground.model().living_nodes();
        self.luck.pick(&nodes).cloned()
    }

    fn hold(&self) -> Option<Ask> {
        let (id, name) = self.some_node()?;
        let kind = *self.luck.pick(HOLDS)?;
        if self.luck.once_in(600) {
            let path = format!("nodes/{id}/holds/{kind}");
            return Some(Ask {
                method: Method::DELETE,
                path,
                body: Value::Null,
                told: format!("unhold {name} {kind}"),
            });
        }
        let body = json!({"kind": kind, "reason": "on a whim"});
        Some(post(format!("nodes/{id}/holds"), body, format!("hold {name} {kind}")))
    }

    fn brake(&self) -> Ask {
        let path = format!("sites/{SITE}/brake");
        if self.luck.once_in(400) {
            return Ask { method: Method::DELETE, path, body: Value::Null, told: "let the brake go".to_owned() };
        }
        let body = json!({"for_ms": 60_000 + self.luck.below(600_000), "reason": "on a whim"});
        post(path, body, "pull the brake".to_owned())
    }

    /// What a node has is approved, or is not any more.
    fn conformance(&self) -> Option<Ask> {
        let (_, name) = self.some_node()?;
        let verb = if self.luck.once_in(700) { "approve" } else { "withdraw" };
        let body = json!({"node": name, "reason": "on a whim"});
        Some(post(format!("sites/{SITE}/conformance/{verb}"), body, format!("{verb} what {name} has")))
    }

    fn new_allocation(&self) -> Ask {
        let user = self.luck.pick(USERS).copied().unwrap_or("ada");
        let class = *self
            .luck
            .pick(&["standard", "standard", "standard", "standard", "sensitive", "borrowed"])
            .unwrap_or(&"standard");
        let requeue = *self.luck.pick(&["never", "on_node_failure", "on_node_failure", "always"]).unwrap_or(&"never");
        let gpus = self.luck.below(4);
        let how = match self.luck.once_in(400) {
            true => CheckpointHow::Signal { number: 10, done_file: None },
            false => CheckpointHow::None,
        };
        let mut body = json!({
            "user": user, "class": class, "gpus": gpus, "requeue": requeue, "reason": "on a whim",
            "workload": {"argv": ["/bin/sleep", "1000"], "checkpoint": how},
        });
        if self.luck.once_in(150)
            && let Some((id, _)) = self.some_node()
        {
            body["node"] = json!(id.to_string());
        }
        post("allocations".to_owned(), body, format!("allocate for {user}, {class}, {gpus} GPUs, requeue {requeue}"))
    }

    fn of_allocation(&self) -> Option<Ask> {
        let all: Vec<AllocationId> = self.ground.model().recent_allocations();
        let id = *self.luck.pick(&all)?;
        let verb = if self.luck.once_in(700) { "release" } else { "requeue" };
        Some(post(format!("allocations/{id}/{verb}"), json!({"reason": "on a whim"}), format!("{verb} {id}")))
    }

    fn of_job(&self) -> Option<Ask> {
        let all: Vec<JobId> = self.ground.model().recent_jobs();
        let id = *self.luck.pick(&all)?;
        let action = *self.luck.pick(JOB_ACTIONS)?;
        Some(post(format!("jobs/{id}/{action}"), json!({"reason": "on a whim"}), format!("{action} job {id}")))
    }

    /// Asks, and tells what was answered. Only a store that fails excuses a failure.
    pub async fn ask(&self, router: Router, ask: Ask) -> (StatusCode, Value) {
        self.ground.log.say(format!("operator asks: {}", ask.told));
        let body = if ask.body.is_null() { Body::empty() } else { Body::from(ask.body.to_string()) };
        let request = Request::builder()
            .method(ask.method)
            .uri(format!("/api/v1/admin/{}", ask.path))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token.expose()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .expect("a path of ours is a path");
        let Ok(response) = router.oneshot(request).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let said = answer["detail"].as_str().unwrap_or_default();
        self.ground.log.say(format!("operator got {} for: {} {said}", status.as_u16(), ask.told));
        if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            self.ground.wrong(format!("{} was answered {status}: {answer}", ask.told));
        }
        (status, answer)
    }
}

/// A request that posts.
pub fn post(path: String, body: Value, told: String) -> Ask {
    Ask { method: Method::POST, path, body, told }
}
