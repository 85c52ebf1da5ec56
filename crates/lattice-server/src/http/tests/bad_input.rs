//! Malformed, oversized, unknown, stale, repeated: each gets its error, and none changes anything.

use axum::body::Body;
use http::{Method, header};
use lattice_core::actor::Role;

use super::fixture::{Api, as_role, limits, request, token_of};
use crate::auth::Rate;

const NODE: &str = r#"{"hostname":"c07u43","sku":"lxd.small"}"#;

/// Path, body, and what is refused: status, code, field.
type Row = (&'static str, &'static str, u16, &'static str, Option<&'static str>);

const BODIES: &[Row] = &[
    ("/nodes", "", 415, "LAT0012", None),
    ("/nodes", "{", 400, "LAT0001", None),
    ("/nodes", "7", 400, "LAT0001", None),
    ("/nodes", r#"{"hostname":"c07u43","sku":"lxd.small"} {}"#, 400, "LAT0001", None),
    ("/nodes", r#"{"sku":"lxd.small"}"#, 400, "LAT0001", Some("hostname")),
    ("/nodes", r#"{"hostname":7,"sku":"lxd.small"}"#, 400, "LAT0001", Some("hostname")),
    ("/nodes", r#"{"hostname":"a","sku":"lxd.small","color":"red"}"#, 400, "LAT0001", Some("color")),
    ("/nodes", r#"{"hostname":"a","sku":"lxd.small","class":"royal"}"#, 400, "LAT0001", Some("class")),
    ("/nodes", r#"{"hostname":"-a","sku":"lxd.small"}"#, 422, "LAT0010", Some("hostname")),
    ("/nodes", r#"{"hostname":"a","sku":"nothing"}"#, 422, "LAT0010", Some("sku")),
    ("/nodes", r#"{"hostname":"a","sku":"lxd.small","site":"mars"}"#, 422, "LAT0010", Some("site")),
    ("/skus", r#"{"name":"UPPER"}"#, 422, "LAT0010", Some("name")),
    ("/skus", r#"{"name":"x","disks":[{"count":-1}]}"#, 400, "LAT0001", Some("disks[0].count")),
    ("/skus", r#"{"name":"x","gpus":65}"#, 422, "LAT0010", Some("gpus")),
    ("/skus", r#"{"name":"lxd.small"}"#, 409, "LAT0011", None),
    ("/sites", r#"{"name":"a","region_code":"r","provider":{"kind":"moon"}}"#, 400, "LAT0001", Some("provider.kind")),
    ("/sites", r#"{"name":"a","region_code":"r","provider":{"kind":"manual"}}"#, 422, "LAT0010", Some("provider.kind")),
    (
        "/sites",
        r#"{"name":"a","region_code":"r","provider":{"kind":"maas"}}"#,
        400,
        "LAT0001",
        Some("provider.api_base_url"),
    ),
    (
        "/sites",
        r#"{"name":"a","region_code":"r","provider":{"kind":"maas","api_token_path":"kv/other"}}"#,
        422,
        "LAT0010",
        Some("provider.api_token_path"),
    ),
    ("/tokens", r#"{"name":"me","role":"agent"}"#, 422, "LAT0010", Some("role")),
    ("/tokens", r#"{"name":"me me","role":"project_viewer"}"#, 422, "LAT0010", Some("name")),
    ("/tokens", r#"{"name":"me","role":"project_viewer","ttl_seconds":0}"#, 422, "LAT0010", Some("ttl_seconds")),
    ("/onboardings", r#"{"site_id":"mars","sku_id":"lxd.small","hostname":"a"}"#, 422, "LAT0010", Some("site_id")),
    ("/onboardings", r#"{"site_id":"local","sku_id":"lxd.small","hostname":"a"}"#, 422, "LAT0010", Some("site_id")),
    ("/onboardings", r#"{"site_id":"local","sku_id":"lxd.small"}"#, 400, "LAT0001", Some("hostname")),
];

#[tokio::test]
async fn a_wrong_body_is_refused_with_the_fields_name() {
    let api = Api::new().await;
    let before = api.store.last_event().await.unwrap();
    for (path, body, status, code, field) in BODIES {
        let seen = api.json(Method::POST, &format!("/api/v1/admin{path}"), body).await;
        seen.refuses(*status, code, &format!("{path} {body}"));
        assert_eq!(seen.body["field"].as_str(), *field, "{path} {body}: {}", seen.body);
    }
    assert_eq!(api.store.last_event().await.unwrap(), before, "nothing was changed");
}

#[tokio::test]
async fn a_wrong_query_is_refused_with_the_fields_name() {
    let api = Api::new().await;
    let rows = [
        ("/nodes?limit=0", "limit"),
        ("/nodes?limit=1001", "limit"),
        ("/nodes?limit=many", "limit"),
        ("/nodes?color=red", "color"),
        ("/nodes?status=fine", "status"),
        ("/nodes?state=fine", "state"),
        ("/nodes?cursor=garbage", "cursor"),
        ("/jobs?status=fine", "status"),
        ("/jobs?node_id=c07u43", "node_id"),
        ("/jobs?cursor=%7E", "cursor"),
        ("/onboardings?kind=drain", "kind"),
        ("/events?after=99999", "after"),
        ("/events?limit=1001", "limit"),
        ("/audit?resource_kind=node", "resource_id"),
        ("/audit?resource_kind=moon&resource_id=1", "resource_kind"),
        ("/holds?cursor=x", "cursor"),
        ("/tokens?cursor=x", "cursor"),
    ];
    for (path, field) in rows {
        let seen = api.get(&format!("/api/v1/admin{path}")).await;
        seen.refuses(400, "LAT0001", path);
        assert_eq!(seen.body["field"], field, "{path}: {}", seen.body);
    }
}

#[tokio::test]
async fn bodies_that_are_too_large_or_of_another_type_are_refused() {
    let api = Api::new().await;
    let large = format!(r#"{{"hostname":"{}","sku":"x"}}"#, "a".repeat(1 << 20));
    api.json(Method::POST, "/api/v1/admin/nodes", &large).await.refuses(413, "LAT0007", "too large");
    for media_type in ["text/plain", "application/xml", "application/jsonx", ""] {
        let builder = request(Method::POST, "/api/v1/admin/nodes")
            .header(header::AUTHORIZATION, format!("Bearer {}", token_of(Role::PlatformAdmin)))
            .header(header::CONTENT_TYPE, media_type);
        let seen = api.send(builder.body(Body::from(NODE)).unwrap()).await;
        seen.refuses(415, "LAT0012", media_type);
    }
    let seen = api.json(Method::DELETE, "/api/v1/admin/sites/local", r#"{"x":1}"#).await;
    seen.refuses(400, "LAT0001", "a body where none is taken");
}

#[tokio::test]
async fn a_token_that_is_unknown_malformed_or_expired_is_refused() {
    let api = Api::new().await;
    let good = token_of(Role::PlatformAdmin);
    let unknown = format!("Bearer lat_api_{}", "A".repeat(43));
    for shown in ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Bearer lat_api_short", &unknown] {
        let builder = request(Method::GET, "/api/v1/admin/whoami").header(header::AUTHORIZATION, shown);
        api.send(builder.body(Body::empty()).unwrap()).await.refuses(401, "LAT0002", shown);
    }
    let cookie = format!("a=b; lattice_token={good}");
    let cookie = request(Method::GET, "/api/v1/admin/whoami").header(header::COOKIE, cookie);
    assert_eq!(api.send(cookie.body(Body::empty()).unwrap()).await.body["role"], "platform_admin");
    api.pass(std::time::Duration::from_secs(90 * 86_400));
    let seen = api.get("/api/v1/admin/whoami").await;
    seen.refuses(401, "LAT0002", "expired");
    assert!(seen.body["detail"].as_str().unwrap().contains("expired"));
}

#[tokio::test]
async fn a_stale_version_is_refused_and_changes_nothing() {
    let api = Api::new().await;
    let patch = |version: &'static str| {
        let builder = request(Method::PATCH, "/api/v1/admin/skus/lxd.small").header(header::IF_MATCH, version);
        as_role(builder, Role::PlatformAdmin, r#"{"gpus":1}"#)
    };
    api.send(patch("\"7\"")).await.refuses(412, "LAT0005", "another version");
    api.send(patch("seven")).await.refuses(400, "LAT0001", "no version");
    let seen = api.send(patch("\"1\"")).await;
    assert_eq!((seen.status.as_u16(), &seen.body["generation"]), (200, &2.into()), "{}", seen.body);
    api.send(patch("\"1\"")).await.refuses(412, "LAT0005", "the version before");
}

#[tokio::test]
async fn an_idempotency_key_makes_a_repeat_harmless_and_is_not_reused() {
    let api = Api::new().await;
    let post = |path: &str, key: &str, body: &str| {
        as_role(request(Method::POST, path).header("idempotency-key", key), Role::PlatformAdmin, body)
    };
    let hold = r#"{"kind":"maintenance","reason":"fan"}"#;
    assert_eq!(api.json(Method::POST, "/api/v1/admin/nodes", NODE).await.status, 201);
    let path = "/api/v1/admin/nodes/c07u43/holds";
    let first = api.send(post(path, "k1", hold)).await;
    let again = api.send(post(path, "k1", hold)).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (200, 200), "{}", again.body);
    assert_eq!(first.body["generation"], again.body["generation"], "nothing was done again");
    api.send(post(path, "k1", r#"{"kind":"rollout"}"#)).await.refuses(422, "LAT0006", "another body");
    api.send(post("/api/v1/admin/skus", "k1", r#"{"name":"x"}"#)).await.refuses(422, "LAT0006", "another route");
    api.send(post(path, &"k".repeat(129), hold)).await.refuses(400, "LAT0001", "too long");
    let create = r#"{"hostname":"c07u44","sku":"lxd.small"}"#;
    assert_eq!(api.send(post("/api/v1/admin/nodes", "k2", create)).await.status, 201);
    let repeat = api.send(post("/api/v1/admin/nodes", "k2", create)).await;
    repeat.refuses(409, "LAT0011", "a secret is shown once");
    assert_eq!(repeat.body["next_actions"][0]["command"], "lattice node bootstrap c07u44");
}

#[tokio::test]
async fn too_many_requests_wait_for_their_turn() {
    let api = Api::with_limits(limits(Rate { per_second: 1, burst: 2 })).await;
    for _ in 0..2 {
        assert_eq!(api.get("/api/v1/admin/whoami").await.status, 200);
    }
    let seen = api.get("/api/v1/admin/whoami").await;
    seen.refuses(429, "LAT0008", "a third");
    assert_eq!(seen.headers["retry-after"], "1");
    let other = api.send(as_role(request(Method::GET, "/api/v1/admin/whoami"), Role::ProjectViewer, "")).await;
    assert_eq!(other.status, 200, "others are not affected");
    api.pass(std::time::Duration::from_secs(1));
    assert_eq!(api.get("/api/v1/admin/whoami").await.status, 200);
}

#[tokio::test]
async fn a_stopping_server_says_so() {
    let api = Api::new().await;
    assert_eq!(api.get("/readyz").await.status, 200);
    api.stop.cancel();
    api.get("/readyz").await.refuses(503, "LAT0009", "stopping");
    assert_eq!(api.get("/healthz").await.status, 200);
}
