//! The API's description, generated from the table of routes and the wire types.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lattice_api::event::{
    AllocationPayload, ApiTokenPayload, BatchPayload, BmcPayload, EnrollmentTokenPayload, Event, JobPayload,
    NodePayload, NotePayload, PowerOverridePayload, ProfilePayload, RocePayload, SilencePayload, SiteCredentialPayload,
    SitePayload, SkuPayload, TaskPayload, WebhookPayload, WipeBeganPayload, WipeCertifiedPayload, WipeConfirmedPayload,
    WipeFailedPayload, WipeStepPayload,
};
use lattice_core::agent::task::TaskCause;
use lattice_core::allocation::AllocationCause;
use lattice_core::batch::BatchCause;
use lattice_core::change::NodeAction;
use lattice_core::webhook::WebhookCause;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use strum::VariantArray;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApiBuilder, Paths, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::http::surface;

/// The OpenAPI 3.1 document, as `api/openapi.json` holds it and `/api/v1/openapi.json` serves it.
pub fn document() -> String {
    let (operations, schemas) = surface().into_document_parts();
    let mut paths = Paths::new();
    for (verb, path, operation) in operations {
        paths.add_path_operation(path, vec![verb.described()], operation);
    }
    let token =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A local API token: `lat_api_…`")).build();
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme("token", SecurityScheme::Http(token))
        .build();
    let info = InfoBuilder::new()
        .title("Lattice")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Lifecycle control plane for GPU and bare-metal fleets. Refusals are problem documents (RFC 9457) that say \
             what, why, and what to do next.",
        ))
        .build();
    let document = OpenApiBuilder::new().info(info).paths(paths).components(Some(components)).build();
    // Through a value: its maps are sorted, so the document does not depend on the order of rows.
    let value = serde_json::to_value(&document).expect("a description has only text keys");
    pretty(&value)
}

/// The AsyncAPI 3 document of the events, as `api/events.json` holds it.
pub fn events_document() -> String {
    let mut schemas = Vec::new();
    Event::schemas(&mut schemas);
    let mut components: BTreeMap<String, Value> =
        schemas.into_iter().map(|(name, schema)| (name, schema_value(&schema))).collect();
    components.insert(Event::name().into_owned(), schema_value(&Event::schema()));
    components.extend(payload_schemas());
    let messages: BTreeMap<String, Value> = event_names()
        .into_iter()
        .map(|(name, about)| {
            let event = json!({"$ref": format!("#/components/schemas/{}", Event::name())});
            let payload = match shape_of(&name) {
                Some(shape) => {
                    let shape = json!({"$ref": format!("#/components/schemas/{}", shape.name)});
                    json!({"allOf": [event, {"type": "object", "properties": {"payload": shape}}]})
                }
                None => event,
            };
            (name.clone(), json!({"name": name, "summary": about, "payload": payload}))
        })
        .collect();
    let references: BTreeMap<&String, Value> =
        messages.keys().map(|name| (name, json!({"$ref": format!("#/components/messages/{name}")}))).collect();
    pretty(&json!({
        "asyncapi": "3.0.0",
        "info": {"title": "Lattice events", "version": env!("CARGO_PKG_VERSION"),
            "description": "What happened, in commit order, without gaps. Followed as server-sent events."},
        "channels": {
            "events": {"address": "/api/v1/admin/events", "messages": references},
            "webhooks": {"address": null, "messages": references,
                "description": "Posted to the address of each webhook that wants it, signed: docs/guides/webhooks.md."},
        },
        "operations": {
            "follow": {"action": "send", "channel": {"$ref": "#/channels/events"}},
            "deliver": {"action": "send", "channel": {"$ref": "#/channels/webhooks"}},
        },
        "components": {"messages": messages, "schemas": components},
    }))
}

/// The shape of a payload, and the types that it names.
struct Shape {
    name: Cow<'static, str>,
    describe: fn(&mut Vec<(String, RefOr<Schema>)>),
    #[cfg(test)]
    reads_back: fn(&Value) -> Result<Value, serde_json::Error>,
}

impl Shape {
    fn of<T: ToSchema + Serialize + DeserializeOwned>() -> Self {
        Self {
            name: T::name(),
            describe: |schemas| {
                schemas.push((T::name().into_owned(), T::schema()));
                T::schemas(schemas);
            },
            #[cfg(test)]
            reads_back: |payload| serde_json::from_value::<T>(payload.clone()).and_then(serde_json::to_value),
        }
    }
}

/// Shapes of all payloads, and the types that they name.
fn payload_schemas() -> BTreeMap<String, Value> {
    let mut schemas = Vec::new();
    for shape in event_names().iter().filter_map(|(name, _)| shape_of(name)) {
        (shape.describe)(&mut schemas);
    }
    schemas.into_iter().map(|(name, schema)| (name, schema_value(&schema))).collect()
}

/// The shape of an event's payload by the event's name; none where there is no such event.
fn shape_of(name: &str) -> Option<Shape> {
    Some(match name.split('.').collect::<Vec<_>>().as_slice() {
        ["node", "conformance_drift" | "identity_shared" | "boot_not_repeated" | "drain_changed"]
        | ["node", "alert", "raised"]
        | ["node", "bmc", "evidence"]
        | ["node", "component", "changed"]
        | ["site", "state_manager_lost" | "state_manager_back"] => Shape::of::<NotePayload>(),
        ["site", "brake_pulled" | "brake_released" | "fingerprint_approved" | "fingerprint_withdrawn"] => {
            Shape::of::<NotePayload>()
        }
        ["node", "bmc", _] => Shape::of::<BmcPayload>(),
        ["node", "wipe_began"] => Shape::of::<WipeBeganPayload>(),
        ["node", "wipe_step_proven"] => Shape::of::<WipeStepPayload>(),
        ["node", "wipe_failed"] => Shape::of::<WipeFailedPayload>(),
        ["node", "wipe_certified"] => Shape::of::<WipeCertifiedPayload>(),
        ["node", "wipe_confirmed"] => Shape::of::<WipeConfirmedPayload>(),
        ["node", _] => Shape::of::<NodePayload>(),
        ["job", "changed"] | ["node", _, _] => Shape::of::<JobPayload>(),
        ["task", _] => Shape::of::<TaskPayload>(),
        ["task_signing", _] | ["wipe_signing", _] => Shape::of::<NotePayload>(),
        ["onboarding", "batch", _] => Shape::of::<BatchPayload>(),
        ["site", "created" | "updated" | "removed"] => Shape::of::<SitePayload>(),
        ["site", "credential_set" | "credential_validated" | "credential_refused"] => {
            Shape::of::<SiteCredentialPayload>()
        }
        ["site", "roce_assigned" | "roce_removed"] => Shape::of::<RocePayload>(),
        ["site", "profile", _] => Shape::of::<ProfilePayload>(),
        ["site", "power_override", _] => Shape::of::<PowerOverridePayload>(),
        ["sku", _] => Shape::of::<SkuPayload>(),
        ["enrollment_token", _] => Shape::of::<EnrollmentTokenPayload>(),
        ["api_token", _] => Shape::of::<ApiTokenPayload>(),
        ["allocation", _] => Shape::of::<AllocationPayload>(),
        ["webhook", "tested" | "test"] | ["secrets", _] | ["job", "settings_renewed"] => Shape::of::<NotePayload>(),
        ["webhook", _] => Shape::of::<WebhookPayload>(),
        ["silence", _] => Shape::of::<SilencePayload>(),
        _ => return None,
    })
}

/// What the events of tasks tell.
const OF_TASKS: &str = "that happened to a task of an agent; the payload has its kind, status and error code";

/// What the events of allocations tell.
const OF_ALLOCATIONS: &str =
    "an allocation reached that point; `requeued` tells an outer scheduler that it waits for a node again";

/// Names that are no rule's, each with what it tells.
const SINGLE: &[(&str, &str)] = &[
    ("silence.created", "an operator says that incidents raise no attention until an expiry; nothing else changes"),
    ("silence.lifted", "an operator ended a silence before its expiry"),
    ("silence.expired", "a silence reached its expiry: what it hid needs attention again"),
    ("webhook.removed", "a webhook was removed"),
    ("webhook.tested", "an operator had an event of its own posted to a webhook; the payload says what came back"),
    ("webhook.test", "posted to a webhook by that test alone: its place is 0, and it is in no feed"),
    ("node.wipe_began", "the first step of a wipe was asked for"),
    ("node.wipe_step_proven", "a step of a wipe is done; the payload has each device, the tool and what came of it"),
    ("node.wipe_failed", "a wipe failed, ran out of time or was stopped: critical; the node is quarantined"),
    ("node.wipe_certified", "a wiped device got its certificate"),
    ("node.wipe_confirmed", "a wipe is confirmed: the node may be given to somebody else"),
    ("wipe_signing.rotated", "a new key signs wipe certificates"),
    ("task_signing.rotated", "a new key signs tasks; agents trust the one before until its last task is over"),
    ("job.changed", "a job changed; the payload has its status, stage, attempt and failure"),
    (
        "job.settings_renewed",
        "a job begins anew with other settings than it was accepted with; the payload says what differs",
    ),
    ("node.alert.raised", "operators should look at a node: it is down or failed; the payload says why"),
    ("node.drain_changed", "a drain that runs became urgent, or got another deadline; the payload says which"),
    (
        "node.boot_not_repeated",
        "a boot came up ill and Lattice does not boot the node again; the payload says why, and what to do",
    ),
    ("node.identity_shared", "two agents have the identity of one node and take its session from each other"),
    ("node.conformance_drift", "a node's fingerprint is none of the approved ones; the payload says which it is"),
    ("node.drive.erased", "a node's BMC says that it erased a drive; that is its word, not evidence"),
    ("node.bmc.evidence", "a node's BMC reports other evidence about its hardware than before"),
    (
        "node.component.changed",
        "another system changed what State Manager says of a node; the payload says what, and what Lattice does",
    ),
    ("site.state_manager_lost", "State Manager of a site cannot be read or told; the payload says why"),
    ("site.state_manager_back", "State Manager of a site can be read and told again"),
    ("node.bmc.set", "a node's BMC or its credential was set"),
    ("node.bmc.breaker_opened", "the credential of a node's BMC was refused too often and is not tried any more"),
    ("node.bmc.breaker_closed", "the credential of a node's BMC was taken again"),
    ("node.bmc.breaker_reset", "an operator has the credential of a node's BMC tried again"),
    ("site.brake_pulled", "an operator has what the loss of a site's nodes brings held back"),
    ("site.brake_released", "an operator let go of what a brake held back at a site"),
    ("site.fingerprint_approved", "nodes of a SKU may have that fingerprint at a site"),
    ("site.fingerprint_withdrawn", "nodes of a SKU may not have that fingerprint at a site any more"),
    ("site.created", "a site was created"),
    ("site.updated", "a site was changed, enabled or disabled"),
    ("site.credential_set", "a credential of a site was stored or rotated; the payload has its name and path"),
    ("site.credential_validated", "the provider of a site accepted the credentials that are kept"),
    ("site.credential_refused", "the provider refused a credential that is kept, or it is gone; the payload says why"),
    ("secrets.unavailable", "the secret store is sealed, cannot be reached, or refuses; the payload says what to do"),
    ("secrets.available", "the secret store gives secrets again; jobs that it stopped were resumed"),
    ("site.roce_assigned", "a RoCE address was assigned to a host of a site"),
    ("site.roce_removed", "a RoCE address was taken from a host of a site"),
    ("site.removed", "a site that no node ever was of was removed"),
    ("site.profile.created", "a profile of a site was created"),
    ("site.profile.updated", "a profile of a site was changed, enabled or disabled"),
    ("site.profile.removed", "a profile of a site was removed"),
    ("site.power_override.created", "a machine of a site got a BMC login of its own"),
    ("site.power_override.updated", "a machine's own BMC login was changed, enabled or disabled"),
    ("site.power_override.removed", "a machine's own BMC login was removed"),
    ("sku.created", "a SKU was created"),
    ("sku.updated", "a SKU was changed"),
    ("sku.removed", "a SKU that no node is of was removed"),
    ("enrollment_token.issued", "an enrolment token was issued"),
    ("enrollment_token.used", "an enrolment token was used"),
    ("enrollment_token.refreshed", "the life of an enrolment token was extended"),
    ("enrollment_token.revoked", "an enrolment token was withdrawn"),
    ("api_token.issued", "an API token was issued"),
    ("api_token.revoked", "an API token was withdrawn"),
];

/// Every name that an event may have, and what it tells. spec: S5 8.0
pub fn event_names() -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = NodeAction::VARIANTS
        .iter()
        .map(|action| {
            (format!("node.{action}"), "a node changed; the payload has its states, holds and the cause".to_owned())
        })
        .collect();
    for noun in [
        "onboarding",
        "drain",
        "retirement",
        "removal",
        "reboot",
        "reimage",
        "bmc_investigation",
        "wipe",
        "secure_erase",
    ] {
        for what in ["started", "completed", "failed", "manual_intervention_required", "cancelled"] {
            names.push((format!("node.{noun}.{what}"), format!("a job of kind {noun} reached that point")));
        }
    }
    for cause in BatchCause::VARIANTS {
        let about = "a batch of onboardings reached that point; the payload has its status and counts".to_owned();
        names.push((format!("onboarding.batch.{cause}"), about));
    }
    names.extend(
        AllocationCause::VARIANTS.iter().map(|cause| (format!("allocation.{cause}"), OF_ALLOCATIONS.to_owned())),
    );
    for cause in WebhookCause::VARIANTS {
        let about = "a webhook reached that point; the payload has its host, its events, its status and the reason";
        names.push((format!("webhook.{cause}"), about.to_owned()));
    }
    names.extend(TaskCause::VARIANTS.iter().map(|cause| (format!("task.{cause}"), OF_TASKS.to_owned())));
    names.extend(SINGLE.iter().map(|(name, about)| ((*name).to_owned(), (*about).to_owned())));
    names
}

fn schema_value(schema: &RefOr<Schema>) -> Value {
    serde_json::to_value(schema).expect("a schema has only text keys")
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("a description has only text keys");
    text.push('\n');
    text
}

/// Whether a payload has the shape that is described for events of that name: nothing more, nothing less.
#[cfg(test)]
pub fn is_as_described(name: &str, payload: &Value) -> Result<(), String> {
    let shape = shape_of(name).ok_or_else(|| format!("{name} is not described"))?;
    if !event_names().iter().any(|(known, _)| known == name) {
        return Err(format!("{name} is not listed"));
    }
    let read =
        (shape.reads_back)(payload).map_err(|error| format!("{name} is no {}: {error}: {payload}", shape.name))?;
    if read == *payload { Ok(()) } else { Err(format!("{name} has {payload}, {} says {read}", shape.name)) }
}
