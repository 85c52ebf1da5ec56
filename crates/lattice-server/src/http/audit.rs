//! The audit: pages, export, verification.

use std::io::{BufReader, Cursor};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use lattice_api::audit::{AuditEntry, AuditQuery, AuditVerification};
use lattice_api::page::Page;
use lattice_core::change::Resource;
use lattice_store::audit_verify;

use super::App;
use super::extract::{Query, page_request};
use crate::error::{Answer, Refusal};

/// Media type of the export.
pub const JSON_LINES: &str = "application/x-ndjson";

/// One page, newest first.
pub async fn list(State(app): State<App>, Query(query): Query<AuditQuery>) -> Answer<Json<Page<AuditEntry>>> {
    let resource = match (query.resource_kind, query.resource_id) {
        (Some(kind), Some(id)) => Some(resource(&kind, &id)?),
        (None, None) => None,
        (Some(_), None) => return Err(Refusal::malformed("resource_id", "is missing: `resource_kind` needs it")),
        (None, Some(_)) => return Err(Refusal::malformed("resource_kind", "is missing: `resource_id` needs it")),
    };
    let page = app.store.audit(resource.as_ref(), &page_request(query.cursor, query.limit)?).await?;
    let items = page.items.into_iter().map(|entry| AuditEntry::of(entry.seq, entry.row, entry.hash)).collect();
    Ok(Json(Page { items, next: page.next.map(|cursor| cursor.to_string()) }))
}

fn resource(kind: &str, id: &str) -> Answer<Resource> {
    let bad = || Refusal::malformed("resource_id", format!("is not the id of a {kind}"));
    match kind {
        "node" => id.parse().map(Resource::Node).map_err(|_| bad()),
        "job" => id.parse().map(Resource::Job).map_err(|_| bad()),
        "allocation" => id.parse().map(Resource::Allocation).map_err(|_| bad()),
        "batch" => id.parse().map(Resource::Batch).map_err(|_| bad()),
        "task" => id.parse().map(Resource::Task).map_err(|_| bad()),
        "site" => id.parse().map(Resource::Site).map_err(|_| bad()),
        "enrollment_token" => id.parse().map(Resource::EnrollmentToken).map_err(|_| bad()),
        "api_token" => id.parse().map(Resource::ApiToken).map_err(|_| bad()),
        "silence" => id.parse().map(Resource::Silence).map_err(|_| bad()),
        "webhook" => id.parse().map(Resource::Webhook).map_err(|_| bad()),
        "sku" => Ok(Resource::Sku(id.to_owned())),
        "system" => Ok(Resource::System(id.to_owned())),
        _ => Err(Refusal::malformed(
            "resource_kind",
            "must be node, job, batch, task, site, sku, enrollment_token, api_token, silence, webhook or system",
        )),
    }
}

/// The whole audit, oldest first, one row in each line.
pub async fn export(State(app): State<App>) -> Answer<Response> {
    let mut lines = Vec::new();
    app.store.audit_export(&mut lines).await?;
    Ok(([(header::CONTENT_TYPE, JSON_LINES)], lines).into_response())
}

/// Recomputes every hash of the chain.
pub async fn verify(State(app): State<App>) -> Answer<Json<AuditVerification>> {
    let mut lines = Vec::new();
    let summary = app.store.audit_export(&mut lines).await?;
    let verdict = match audit_verify(BufReader::new(Cursor::new(lines))) {
        Ok(seen) => AuditVerification { ok: true, rows: seen.rows, head: seen.last_hash, problem: None },
        Err(broken) => AuditVerification {
            ok: false,
            rows: summary.rows,
            head: summary.last_hash,
            problem: Some(broken.to_string()),
        },
    };
    Ok(Json(verdict))
}
