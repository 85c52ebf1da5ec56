//! Tokens and the audit.

use http::{Method, Request, header};
use lattice_api::audit::AuditQuery;
use lattice_api::page::PageQuery;
use lattice_api::token::CreateToken;
use lattice_core::actor::Role;
use lattice_core::secret::Secret;

use super::fixture::{Api, request};

fn who(secret: &Secret<String>) -> Request<axum::body::Body> {
    let shown = format!("Bearer {}", secret.expose());
    request(Method::GET, "/api/v1/admin/whoami").header(header::AUTHORIZATION, shown).body("".into()).unwrap()
}

#[tokio::test]
async fn a_token_is_shown_once_used_listed_and_revoked() {
    let api = Api::new().await;
    let admin = api.admin();
    let wish = CreateToken { name: "ci".to_owned(), role: Role::ProjectViewer, ttl_seconds: Some(60) };
    let created = admin.create_token(&wish).await.unwrap();
    let seen = api.send(who(&created.secret)).await;
    assert_eq!((seen.body["name"].as_str(), seen.body["role"].as_str()), (Some("ci"), Some("project_viewer")));
    let listed = admin.tokens(&PageQuery { limit: Some(2), ..PageQuery::default() }).await.unwrap();
    assert_eq!((listed.items.len(), listed.items[0].id), (2, created.token.id));
    assert!(listed.next.is_some());
    assert!(!admin.revoke_token(created.token.id).await.unwrap().valid);
    assert!(!admin.revoke_token(created.token.id).await.unwrap().valid, "twice is once");
    api.send(who(&created.secret)).await.refuses(401, "LAT0002", "revoked");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn what_was_done_stands_in_a_chain_that_verifies() {
    let api = Api::new().await;
    let admin = api.admin();
    let wish = CreateToken { name: "ci".to_owned(), role: Role::ProjectViewer, ttl_seconds: None };
    let created = admin.create_token(&wish).await.unwrap();
    let rows = admin.audit(&AuditQuery { limit: Some(1), ..AuditQuery::default() }).await.unwrap();
    let row = &rows.items[0];
    assert_eq!((row.action.as_str(), row.actor.as_str()), ("api_token.issued", "platform_admin"));
    let query = AuditQuery {
        resource_kind: Some("api_token".to_owned()),
        resource_id: Some(created.token.id.to_string()),
        ..AuditQuery::default()
    };
    assert_eq!(admin.audit(&query).await.unwrap().items.len(), 1);
    let verdict = admin.verify_audit().await.unwrap();
    assert!(verdict.ok && verdict.rows == row.seq && verdict.head == row.hash, "{verdict:?}");
    let export = admin.export_audit().await.unwrap();
    let summary = lattice_store::audit_verify(std::io::BufReader::new(&export[..])).unwrap();
    assert_eq!((summary.rows, summary.last_hash), (verdict.rows, verdict.head));
    assert!(!String::from_utf8_lossy(&export).contains(created.secret.expose()), "no secret in the audit");
}
