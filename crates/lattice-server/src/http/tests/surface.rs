//! The table of routes against the router, the roles and the description.

use std::collections::HashSet;

use http::Method;
use lattice_core::actor::Role;
use serde_json::Value;

use super::fixture::{Api, as_role, request};
use crate::http::surface;
use crate::http::surface::Access;
use crate::openapi;

/// A path that names things which do not exist.
fn concrete(path: &str) -> String {
    path.replace("{id}", "01890000-0000-7000-8000-00000000dead")
        .replace("{name}", "no-such-thing")
        .replace("{profile}", "no-such-profile")
        .replace("{override}", "01890000-0000-7000-8000-00000000dead")
        .replace("{assignment}", "01890000-0000-7000-8000-00000000dead")
        .replace("{verb}", "drain")
        .replace("{action}", "resume")
        .replace("{kind}", "maintenance")
        .replace("{key}", "no-such-key")
}

fn rows() -> Vec<(Method, String, Access)> {
    let surface = surface();
    let rows = surface.access().iter();
    let mut rows: Vec<_> = rows.map(|((method, path), access)| (method.clone(), (*path).to_owned(), *access)).collect();
    rows.sort_by(|a, b| (&a.1, a.0.as_str()).cmp(&(&b.1, b.0.as_str())));
    rows
}

#[tokio::test]
async fn every_route_but_five_needs_a_token() {
    let api = Api::new().await;
    let mut public = Vec::new();
    for (method, path, access) in rows() {
        // Strangers share one allowance.
        api.pass(std::time::Duration::from_secs(1));
        let seen = api.send(request(method.clone(), &concrete(&path)).body("".into()).unwrap()).await;
        match access {
            Access::Public if method == Method::GET => {
                assert_eq!(seen.status, 200, "{path}");
                public.push(path);
            }
            // Its address is the secret.
            Access::Public => {
                seen.refuses(404, "LAT0004", &path);
                public.push(path);
            }
            Access::Least(_) => {
                seen.refuses(401, "LAT0002", &format!("{method} {path}"));
                assert_eq!(seen.headers["www-authenticate"], "Bearer realm=\"lattice\"");
            }
        }
    }
    let notices = "/api/v1/notices/openchami/{id}/{key}";
    assert_eq!(public, [notices, "/api/v1/openapi.json", "/healthz", "/metrics", "/readyz"]);
}

#[tokio::test]
async fn what_changes_something_needs_an_administrator_and_refusals_are_audited() {
    let api = Api::new().await;
    let mut refused = 0;
    let changing = |(method, _, access): &(Method, String, Access)| *method != Method::GET && *access != Access::Public;
    for (method, path, _) in rows().into_iter().filter(changing) {
        for role in [Role::ProjectViewer, Role::ProjectAdmin] {
            let seen = api.send(as_role(request(method.clone(), &concrete(&path)), role, "")).await;
            seen.refuses(403, "LAT0003", &format!("{role}: {method} {path}"));
            refused += 1;
        }
    }
    let audit = api.get("/api/v1/admin/audit?limit=1000").await;
    let rows = audit.body["items"].as_array().unwrap();
    let seen = rows.iter().filter(|row| row["result"] == "refused").count();
    // The bound is 60 at once: what is beyond it is refused all the same, and counted by the metrics.
    assert_eq!(seen, refused.min(60));
    let last = &rows[0];
    assert!(last["action"].as_str().unwrap().contains(" /api/v1/admin/"), "{last}");
}

#[tokio::test]
async fn an_agents_role_opens_nothing() {
    let api = Api::new().await;
    for (method, path, access) in rows() {
        if access != Access::Public {
            let seen = api.send(as_role(request(method, &concrete(&path)), Role::Agent, "")).await;
            seen.refuses(403, "LAT0003", &path);
        }
    }
}

#[tokio::test]
async fn viewers_read_everything_but_audit_tokens_backups_and_webhooks() {
    let api = Api::new().await;
    let reads = rows().into_iter().filter(|(method, path, _)| *method == Method::GET && !path.contains('{'));
    for (_, path, access) in reads {
        if access == Access::Public {
            continue;
        }
        let seen = api.send(as_role(request(Method::GET, &path), Role::ProjectViewer, "")).await;
        let is_closed = ["/audit", "/tokens", "/backup", "/webhooks"].iter().any(|part| path.contains(part));
        assert_eq!(seen.status, if is_closed { 403 } else { 200 }, "{path}: {}", seen.body);
    }
}

#[tokio::test]
async fn unknown_ids_routes_and_methods_are_problems_too() {
    let api = Api::new().await;
    for (method, path, _) in rows().into_iter().filter(|(_, path, _)| path.contains('{')) {
        let body = match path.rsplit('/').next() {
            Some("holds") => r#"{"kind":"maintenance"}"#,
            Some("brake") if method == Method::POST => r#"{"for_ms":1000}"#,
            Some("brake") => "",
            Some("bmc") => r#"{"address":"10.0.0.7","protocol":"ipmi"}"#,
            Some("profiles") => r#"{"name":"strict"}"#,
            Some("power-overrides") => {
                r#"{"selector_type":"hostname","selector_value":"a","login":{"user":"u","pass":"p"}}"#
            }
            Some(_) | None => "{}",
        };
        let body = if method == Method::GET { "" } else { body };
        let seen = api.json(method.clone(), &concrete(&path), body).await;
        seen.refuses(404, "LAT0004", &format!("{method} {path}"));
    }
    api.get("/api/v1/admin/nowhere").await.refuses(404, "LAT0004", "unknown route");
    api.get("/nowhere?x=1").await.refuses(404, "LAT0004", "unknown route");
    let seen = api.json(Method::PUT, "/api/v1/admin/nodes", "{}").await;
    seen.refuses(405, "LAT0012", "wrong method");
    assert_eq!(seen.headers["allow"], "GET,HEAD,POST");
    api.json(Method::POST, "/api/v1/admin/nodes/x/fly", "{}").await.refuses(404, "LAT0004", "unknown verb");
    api.json(Method::POST, "/api/v1/admin/jobs/x/fly", "{}").await.refuses(404, "LAT0004", "unknown action");
}

#[test]
fn the_description_has_every_row_and_no_dangling_name() {
    let document: Value = serde_json::from_str(&openapi::document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = HashSet::new();
    for (method, path, _) in rows() {
        let operation = &document["paths"][&path][method.as_str().to_lowercase()];
        assert!(operation.is_object(), "{method} {path} is not described");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}");
        assert!(operations.insert(operation["operationId"].to_string()), "{}", operation["operationId"]);
    }
    let mut names = Vec::new();
    references(&document, &mut names);
    assert!(names.len() > 50, "{} references", names.len());
    for name in names {
        let key = name.strip_prefix("#/components/schemas/").unwrap_or_else(|| panic!("{name}"));
        assert!(document["components"]["schemas"][key].is_object(), "{name} is not defined");
    }
    assert_eq!(openapi::document(), openapi::document(), "the same each time");
}

fn references(value: &Value, names: &mut Vec<String>) {
    if let Some(name) = value.get("$ref").and_then(Value::as_str) {
        names.push(name.to_owned());
    }
    let of_object = value.as_object().into_iter().flat_map(|map| map.values());
    for inner in of_object.chain(value.as_array().into_iter().flatten()) {
        references(inner, names);
    }
}

#[test]
fn the_event_document_has_every_name_once() {
    let document: Value = serde_json::from_str(&openapi::events_document()).unwrap();
    let names: Vec<String> = openapi::event_names().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    let some =
        ["node.moved", "node.onboarding.completed", "node.onboarding.manual_intervention_required", "job.changed"];
    for name in some {
        assert!(document["components"]["messages"][name].is_object(), "{name}");
    }
}
