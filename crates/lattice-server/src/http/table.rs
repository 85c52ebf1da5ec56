//! Every route of the API, with who may use it.

mod allocations;
mod bmcs;
mod notices;
mod silences;
mod site_orders;
mod tasks;
mod wipes;

use lattice_api::Gone;
use lattice_api::audit::{AuditEntry, AuditQuery, AuditVerification};
use lattice_api::batch::{
    ActOnBatch, BatchAccepted, BatchActionAnswer, BatchLogLine, BatchLogQuery, BatchQuery, BatchRow, BatchView,
    CreateBatch,
};
use lattice_api::event::{EventPage, EventQuery};
use lattice_api::explanation::Explanation;
use lattice_api::fleet::{Fleet, StageStatsList};
use lattice_api::hold::{HoldView, SetHold};
use lattice_api::job::{ActOnJob, JobActionAnswer, JobQuery, JobRow, JobView};
use lattice_api::node::{
    ActOnNode, ChangeLabels, CreateNode, HistoryEntry, NodeActionAnswer, NodeBootstrap, NodeQuery, NodeRow, NodeView,
    Reason, Timeline,
};
use lattice_api::onboarding::{CreateOnboarding, OnboardingAccepted, OnboardingView};
use lattice_api::page::PageQuery;
use lattice_api::power_override::{CreatePowerOverride, PatchPowerOverride, PowerOverrideView};
use lattice_api::profile::{CreateProfile, PatchProfile, ProfileView};
use lattice_api::roce::{PutRoce, RoceAnswer, RoceQuery, RoceView};
use lattice_api::server::ServerHealth;
use lattice_api::site::{CreateSite, PatchSite, ProbeAnswer, SiteCalls, SiteCredentials, SiteView};
use lattice_api::sku::{CreateSku, PatchSku, Sku};
use lattice_api::sse::EVENT_STREAM;
use lattice_api::token::{CreateToken, CreatedToken, TokenView, WhoAmI};
use lattice_api::webhook::{
    CreateWebhook, Delivery, DisableWebhook, EnableWebhook, PatchWebhook, RotateWebhookKey, WebhookTest, WebhookView,
    WebhookWithKey,
};
use lattice_core::actor::Role;

use super::surface::{Access, Route, Surface};
use super::{
    audit, backup, batches, events, fleet, holds, jobs, node_verbs, nodes, onboardings, power_overrides, profiles,
    roce, server, site_credentials, sites, skus, timeline, tokens, webhooks,
};
use crate::metrics::OPENMETRICS;

/// Reads of the fleet.
const READ: Access = Access::Least(Role::ProjectViewer);
/// What changes machines, sites, jobs or credentials, and what shows who did what.
const ADMIN: Access = Access::Least(Role::PlatformAdmin);

/// The whole table.
pub fn surface() -> Surface {
    let surface = Surface::default();
    let surface = tasks::routes(bmcs::routes(node_writes(node_reads(surface))));
    let surface = wipes::routes(notices::routes(allocations::routes(silences::routes(site_orders::routes(
        site_routes(sku_routes(surface)),
    )))));
    server_routes(webhook_routes(admin_routes(job_routes(batch_routes(onboarding_routes(surface))))))
}

fn node_reads(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/nodes", READ, "Nodes, by hostname")
                .query::<NodeQuery>()
                .answers_page::<NodeRow>("One page"),
            nodes::list,
        )
        .route(
            Route::get("/api/v1/admin/nodes/{id}", READ, "A node, by id or hostname")
                .answers::<NodeView>(200, "The node"),
            nodes::get,
        )
        .route(
            Route::get("/api/v1/admin/nodes/{id}/explain", READ, "Why a node is not schedulable")
                .answers::<Explanation>(200, "The explanation"),
            nodes::explain,
        )
        .route(
            Route::get("/api/v1/admin/nodes/{id}/history", READ, "Changes of a node, newest first")
                .query::<PageQuery>()
                .answers_page::<HistoryEntry>("One page"),
            timeline::history,
        )
        .route(
            Route::get("/api/v1/admin/nodes/{id}/timeline", READ, "Everything that happened to a node, newest first")
                .answers::<Timeline>(200, "The newest entries"),
            timeline::timeline,
        )
        .route(
            Route::get("/api/v1/admin/nodes/{id}/events", READ, "Events that concern a node")
                .query::<EventQuery>()
                .answers::<EventPage>(200, "One page, or a stream")
                .answers_text(EVENT_STREAM, "A stream"),
            events::of_node,
        )
        .route(
            Route::get("/api/v1/admin/nodes/{id}/holds", READ, "Holds of a node")
                .answers_page::<HoldView>("All of them"),
            holds::of_node,
        )
        .route(
            Route::get("/api/v1/admin/holds", READ, "Holds of all nodes")
                .query::<PageQuery>()
                .answers_page::<HoldView>("One page of nodes, with the holds of each"),
            holds::list,
        )
}

fn node_writes(surface: Surface) -> Surface {
    let created = "The node, and the command that makes a host it";
    surface
        .route(
            Route::post("/api/v1/admin/nodes", ADMIN, "Create a node that is bootstrapped by hand")
                .takes::<CreateNode>()
                .answers::<NodeBootstrap>(201, created),
            nodes::create,
        )
        .route(
            Route::post("/api/v1/admin/nodes/{id}/bootstrap", ADMIN, "A new bootstrap command; the token before dies")
                .takes::<Reason>()
                .answers::<NodeBootstrap>(200, created),
            nodes::reissue_bootstrap,
        )
        .route(
            Route::post("/api/v1/admin/nodes/{id}/revoke-certificate", ADMIN, "Revoke every certificate of a node")
                .takes::<Reason>()
                .answers::<NodeView>(200, "The node"),
            nodes::revoke_certificates,
        )
        .route(
            Route::post("/api/v1/admin/nodes/{id}/labels", ADMIN, "Set labels of a node, and take others away")
                .takes::<ChangeLabels>()
                .answers::<NodeView>(200, "The node"),
            nodes::labels,
        )
        .route(
            Route::post("/api/v1/admin/nodes/{id}/holds", ADMIN, "Set a hold")
                .takes::<SetHold>()
                .answers::<NodeView>(200, "The node"),
            holds::set,
        )
        .route(
            Route::delete("/api/v1/admin/nodes/{id}/holds/{kind}", ADMIN, "Clear a hold")
                .answers::<NodeView>(200, "The node"),
            holds::clear,
        )
        .route(
            Route::post("/api/v1/admin/nodes/{id}/{verb}", ADMIN, "Ask something of a node: drain, disable, retire …")
                .takes::<ActOnNode>()
                .answers::<NodeActionAnswer>(200, "What it came to"),
            node_verbs::act,
        )
}

fn sku_routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/skus", READ, "SKUs, by name")
                .query::<PageQuery>()
                .answers_page::<Sku>("One page"),
            skus::list,
        )
        .route(
            Route::post("/api/v1/admin/skus", ADMIN, "Create a SKU")
                .takes::<CreateSku>()
                .answers::<Sku>(201, "The SKU"),
            skus::create,
        )
        .route(Route::get("/api/v1/admin/skus/{name}", READ, "A SKU").answers::<Sku>(200, "The SKU"), skus::get)
        .route(
            Route::patch("/api/v1/admin/skus/{name}", ADMIN, "Change a SKU")
                .takes::<PatchSku>()
                .answers::<Sku>(200, "The SKU"),
            skus::patch,
        )
        .route(
            Route::delete("/api/v1/admin/skus/{name}", ADMIN, "Remove a SKU that no node is of")
                .answers::<Gone>(200, "It is gone"),
            skus::remove,
        )
}

fn site_routes(surface: Surface) -> Surface {
    let mut surface = surface;
    for (root, one, credentials, probe) in [
        (
            "/api/v1/admin/sites",
            "/api/v1/admin/sites/{id}",
            "/api/v1/admin/sites/{id}/credentials",
            "/api/v1/admin/sites/{id}/probe",
        ),
        (
            "/api/v1/admin/maas-sites",
            "/api/v1/admin/maas-sites/{id}",
            "/api/v1/admin/maas-sites/{id}/credentials",
            "/api/v1/admin/maas-sites/{id}/probe",
        ),
    ] {
        surface = surface
            .route(
                Route::get(root, READ, "Sites, by name").query::<PageQuery>().answers_page::<SiteView>("One page"),
                sites::list,
            )
            .route(
                Route::post(root, ADMIN, "Create a site").takes::<CreateSite>().answers::<SiteView>(201, "The site"),
                sites::create,
            )
            .route(Route::get(one, READ, "A site, by id or name").answers::<SiteView>(200, "The site"), sites::get)
            .route(
                Route::patch(one, ADMIN, "Change, enable or disable a site")
                    .takes::<PatchSite>()
                    .answers::<SiteView>(200, "The site"),
                sites::patch,
            )
            .route(
                Route::post(credentials, ADMIN, "Try secrets at the provider, then keep them")
                    .takes::<SiteCredentials>()
                    .answers::<ProbeAnswer>(200, "What the provider said"),
                site_credentials::write,
            )
            .route(
                Route::post(probe, ADMIN, "Try a site with its secrets")
                    .answers::<ProbeAnswer>(200, "What the provider said, or why it could not be asked"),
                site_credentials::probe,
            );
    }
    for calls in ["/api/v1/admin/sites/{id}/calls", "/api/v1/admin/maas-sites/{id}/calls"] {
        surface = surface.route(
            Route::get(calls, READ, "How often a MAAS site was asked, against its budget")
                .answers::<SiteCalls>(200, "Counts by call"),
            sites::calls,
        );
    }
    let surface = surface
        .route(
            Route::delete("/api/v1/admin/sites/{id}", ADMIN, "Remove a site that no node ever was of")
                .answers::<Gone>(200, "It is gone"),
            sites::remove,
        )
        .route(
            Route::delete("/api/v1/admin/maas-sites/{id}", ADMIN, "Disable a site; what is in flight goes on")
                .answers::<SiteView>(200, "The site"),
            sites::disable,
        );
    site_detail_routes(surface)
}

fn site_detail_routes(surface: Surface) -> Surface {
    let mut surface = surface;
    for [profiles, profile, overrides, power_override, roce, assignment] in [
        [
            "/api/v1/admin/sites/{id}/profiles",
            "/api/v1/admin/sites/{id}/profiles/{profile}",
            "/api/v1/admin/sites/{id}/power-overrides",
            "/api/v1/admin/sites/{id}/power-overrides/{override}",
            "/api/v1/admin/sites/{id}/roce-assignments",
            "/api/v1/admin/sites/{id}/roce-assignments/{assignment}",
        ],
        [
            "/api/v1/admin/maas-sites/{id}/profiles",
            "/api/v1/admin/maas-sites/{id}/profiles/{profile}",
            "/api/v1/admin/maas-sites/{id}/power-overrides",
            "/api/v1/admin/maas-sites/{id}/power-overrides/{override}",
            "/api/v1/admin/maas-sites/{id}/roce-assignments",
            "/api/v1/admin/maas-sites/{id}/roce-assignments/{assignment}",
        ],
    ] {
        surface = profile_routes(surface, profiles, profile);
        surface = override_routes(surface, overrides, power_override);
        surface = roce_routes(surface, roce, assignment);
    }
    surface
}

fn profile_routes(surface: Surface, all: &'static str, one: &'static str) -> Surface {
    surface
        .route(
            Route::get(all, READ, "Profiles of a MAAS site, by name")
                .query::<PageQuery>()
                .answers_page::<ProfileView>("One page"),
            profiles::list,
        )
        .route(
            Route::post(all, ADMIN, "Create a profile")
                .takes::<CreateProfile>()
                .answers::<ProfileView>(201, "The profile"),
            profiles::create,
        )
        .route(
            Route::get(one, READ, "A profile, by id or name").answers::<ProfileView>(200, "The profile"),
            profiles::get,
        )
        .route(
            Route::patch(one, ADMIN, "Change, enable or disable a profile; accepted jobs keep what they have")
                .takes::<PatchProfile>()
                .answers::<ProfileView>(200, "The profile"),
            profiles::patch,
        )
        .route(
            Route::delete(one, ADMIN, "Remove a profile that is not the site's default")
                .answers::<Gone>(200, "It is gone"),
            profiles::remove,
        )
}

fn override_routes(surface: Surface, all: &'static str, one: &'static str) -> Surface {
    surface
        .route(
            Route::get(all, READ, "Power-credential overrides of a MAAS site, oldest first")
                .query::<PageQuery>()
                .answers_page::<PowerOverrideView>("One page"),
            power_overrides::list,
        )
        .route(
            Route::post(all, ADMIN, "Create an override with its login")
                .takes::<CreatePowerOverride>()
                .answers::<PowerOverrideView>(201, "The override"),
            power_overrides::create,
        )
        .route(
            Route::get(one, READ, "An override").answers::<PowerOverrideView>(200, "The override"),
            power_overrides::get,
        )
        .route(
            Route::patch(one, ADMIN, "Enable or disable an override, or give it another login")
                .takes::<PatchPowerOverride>()
                .answers::<PowerOverrideView>(200, "The override"),
            power_overrides::patch,
        )
        .route(
            Route::delete(one, ADMIN, "Remove an override and its login").answers::<Gone>(200, "It is gone"),
            power_overrides::remove,
        )
}

fn roce_routes(surface: Surface, all: &'static str, one: &'static str) -> Surface {
    surface
        .route(
            Route::get(all, READ, "RoCE assignments of a MAAS site, by host and interface")
                .query::<RoceQuery>()
                .answers_page::<RoceView>("One page"),
            roce::list,
        )
        .route(
            Route::post(all, ADMIN, "Create and change RoCE assignments, all or none")
                .takes::<PutRoce>()
                .answers::<RoceAnswer>(200, "What it came to"),
            roce::put,
        )
        .route(Route::delete(one, ADMIN, "Remove a RoCE assignment").answers::<Gone>(200, "It is gone"), roce::remove)
}

fn onboarding_routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/onboardings", READ, "Onboardings, newest first")
                .query::<JobQuery>()
                .answers_page::<JobRow>("One page"),
            onboardings::list,
        )
        .route(
            Route::post("/api/v1/admin/onboardings", ADMIN, "Onboard a machine through its site's provider")
                .takes::<CreateOnboarding>()
                .answers::<OnboardingAccepted>(202, "Accepted"),
            onboardings::create,
        )
        .route(
            Route::get("/api/v1/admin/onboardings/{id}", READ, "An onboarding with its stages")
                .answers::<OnboardingView>(200, "The onboarding"),
            onboardings::get,
        )
        .route(
            Route::post("/api/v1/admin/onboardings/{id}/{action}", ADMIN, "Ask something of an onboarding")
                .takes::<ActOnJob>()
                .answers::<JobActionAnswer>(200, "What it came to"),
            onboardings::act,
        )
}

fn batch_routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/onboardings/batch", READ, "Batches of onboardings, newest first")
                .query::<BatchQuery>()
                .answers_page::<BatchRow>("One page"),
            batches::list,
        )
        .route(
            Route::post("/api/v1/admin/onboardings/batch", ADMIN, "Onboard many machines: all are accepted, or none")
                .takes::<CreateBatch>()
                .answers::<BatchAccepted>(202, "Accepted"),
            batches::create,
        )
        .route(
            Route::get("/api/v1/admin/onboardings/batch/{id}", READ, "A batch with its progress")
                .answers::<BatchView>(200, "The batch"),
            batches::get,
        )
        .route(
            Route::get("/api/v1/admin/onboardings/batch/{id}/explain", READ, "Why a batch is not moving")
                .answers::<Explanation>(200, "The explanation"),
            batches::explain,
        )
        .route(
            Route::get("/api/v1/admin/onboardings/batch/{id}/log", READ, "What happened to its machines, newest first")
                .query::<BatchLogQuery>()
                .answers_page::<BatchLogLine>("One page"),
            batches::log,
        )
        .route(
            Route::post("/api/v1/admin/onboardings/batch/{id}/{action}", ADMIN, "Pause, resume or cancel a batch")
                .takes::<ActOnBatch>()
                .answers::<BatchActionAnswer>(200, "What it came to"),
            batches::act,
        )
}

fn job_routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/jobs", READ, "Jobs, newest first")
                .query::<JobQuery>()
                .answers_page::<JobRow>("One page"),
            jobs::list,
        )
        .route(
            Route::get("/api/v1/admin/jobs/{id}", READ, "A job with its stages").answers::<JobView>(200, "The job"),
            jobs::get,
        )
        .route(
            Route::get("/api/v1/admin/jobs/{id}/explain", READ, "Why a job is not moving")
                .answers::<Explanation>(200, "The explanation"),
            jobs::explain,
        )
        .route(
            Route::get("/api/v1/admin/jobs/{id}/events", READ, "Events of a job")
                .query::<EventQuery>()
                .answers::<EventPage>(200, "One page, or a stream")
                .answers_text(EVENT_STREAM, "A stream"),
            events::of_job,
        )
        .route(
            Route::post("/api/v1/admin/jobs/{id}/{action}", ADMIN, "Ask something of a job: resume, cancel …")
                .takes::<ActOnJob>()
                .answers::<JobActionAnswer>(200, "What it came to"),
            jobs::act,
        )
}

fn admin_routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/events", READ, "Events, as a page or as a stream")
                .query::<EventQuery>()
                .answers::<EventPage>(200, "One page, or a stream")
                .answers_text(EVENT_STREAM, "A stream"),
            events::all,
        )
        .route(
            Route::get("/api/v1/admin/audit", ADMIN, "The audit, newest first")
                .query::<AuditQuery>()
                .answers_page::<AuditEntry>("One page"),
            audit::list,
        )
        .route(
            Route::get("/api/v1/admin/audit/export", ADMIN, "The whole audit as JSON lines, oldest first")
                .answers_text(audit::JSON_LINES, "One row in each line"),
            audit::export,
        )
        .route(
            Route::get("/api/v1/admin/backup", ADMIN, "A verified backup of everything but the secrets")
                .answers_text(backup::SQLITE, "One SQLite file; `lattice restore` puts it in place"),
            backup::download,
        )
        .route(
            Route::get("/api/v1/admin/audit/verify", ADMIN, "Check the audit's hash chain")
                .answers::<AuditVerification>(200, "What was found"),
            audit::verify,
        )
        .route(
            Route::get("/api/v1/admin/tokens", ADMIN, "API tokens, newest first")
                .query::<PageQuery>()
                .answers_page::<TokenView>("One page"),
            tokens::list,
        )
        .route(
            Route::post("/api/v1/admin/tokens", ADMIN, "Create an API token; its secret is shown this once")
                .takes::<CreateToken>()
                .answers::<CreatedToken>(201, "The token and its secret"),
            tokens::create,
        )
        .route(
            Route::delete("/api/v1/admin/tokens/{id}", ADMIN, "Revoke an API token")
                .answers::<TokenView>(200, "The token"),
            tokens::revoke,
        )
}

fn webhook_routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/webhooks", ADMIN, "Webhooks, by name").answers_page::<WebhookView>("All of them"),
            webhooks::list,
        )
        .route(
            Route::post("/api/v1/admin/webhooks", ADMIN, "Create a webhook; its key is shown this once")
                .takes::<CreateWebhook>()
                .answers::<WebhookWithKey>(201, "The webhook and its key"),
            webhooks::create,
        )
        .route(
            Route::get("/api/v1/admin/webhooks/{id}", ADMIN, "A webhook, by id or name")
                .answers::<WebhookView>(200, "The webhook"),
            webhooks::get,
        )
        .route(
            Route::patch("/api/v1/admin/webhooks/{id}", ADMIN, "Change name, address, events or site of a webhook")
                .takes::<PatchWebhook>()
                .answers::<WebhookView>(200, "The webhook"),
            webhooks::patch,
        )
        .route(
            Route::delete("/api/v1/admin/webhooks/{id}", ADMIN, "Remove a webhook with its keys and deliveries")
                .answers::<Gone>(200, "What was removed"),
            webhooks::remove,
        )
        .route(
            Route::get("/api/v1/admin/webhooks/{id}/deliveries", ADMIN, "The last deliveries, newest first")
                .query::<PageQuery>()
                .answers_page::<Delivery>("Those that are kept"),
            webhooks::deliveries,
        )
        .route(
            Route::post("/api/v1/admin/webhooks/{id}/test", ADMIN, "Post an event of its own to the receiver, now")
                .answers::<WebhookTest>(200, "What came of it"),
            webhooks::test,
        )
        .route(
            Route::post("/api/v1/admin/webhooks/{id}/enable", ADMIN, "Let a webhook get events again, at once")
                .takes::<EnableWebhook>()
                .answers::<WebhookView>(200, "The webhook"),
            webhooks::enable,
        )
        .route(
            Route::post("/api/v1/admin/webhooks/{id}/disable", ADMIN, "Keep events from a webhook")
                .takes::<DisableWebhook>()
                .answers::<WebhookView>(200, "The webhook"),
            webhooks::disable,
        )
        .route(
            Route::post(
                "/api/v1/admin/webhooks/{id}/rotate-secret",
                ADMIN,
                "Give a webhook a new key, shown this once",
            )
            .takes::<RotateWebhookKey>()
            .answers::<WebhookWithKey>(200, "The webhook and its new key"),
            webhooks::rotate,
        )
}

fn server_routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/fleet", READ, "The fleet: counts, and what needs attention")
                .answers::<Fleet>(200, "The fleet"),
            fleet::fleet,
        )
        .route(
            Route::get("/api/v1/admin/stats/stages", READ, "How long stages of jobs have taken")
                .answers::<StageStatsList>(200, "One row for each stage"),
            fleet::stage_stats,
        )
        .route(
            Route::get("/api/v1/admin/whoami", READ, "Who the token belongs to").answers::<WhoAmI>(200, "The caller"),
            tokens::whoami,
        )
        .route(
            Route::get("/healthz", Access::Public, "Whether the server lives").answers::<ServerHealth>(200, "It does"),
            server::healthz,
        )
        .route(
            Route::get("/readyz", Access::Public, "Whether the server can do its work")
                .answers::<ServerHealth>(200, "It can"),
            server::readyz,
        )
        .route(
            Route::get("/metrics", Access::Public, "What Prometheus reads").answers_text(OPENMETRICS, "The metrics"),
            server::metrics,
        )
        .route(
            Route::get("/api/v1/openapi.json", Access::Public, "This description")
                .answers_text("application/json", "OpenAPI 3.1"),
            server::openapi,
        )
}
