//! Requests for pages: who looks, what the API answers, and the page of it.

use std::future::Future;

use askama::Template;
use axum::Json;
use axum::extract::{MatchedPath, Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use lattice_api::allocation::AllocationQuery;
use lattice_api::audit::AuditQuery;
use lattice_api::job::{JobQuery, JobView};
use lattice_api::node::{NodeQuery, NodeView};
use lattice_api::page::PageQuery;
use lattice_api::roce::RoceQuery;
use lattice_api::site::SiteProvider;
use lattice_api::task::TaskQuery;
use lattice_core::actor::Role;
use lattice_core::explain::Code;
use lattice_core::ids::{EventSeq, JobId, NodeId};
use lattice_core::job::StageName;

use super::allocations::{AllocationsFilter, AllocationsPage};
use super::audit::AuditPage;
use super::batches::{BatchPage, BatchesFilter, BatchesPage};
use super::fleet::{Filter, FleetPage, FleetParts, MAP_NODES, PROGRESS_JOBS};
use super::job::{JobPage, JobParts, JobSection};
use super::jobs::{JobsFilter, JobsPage};
use super::node::{NodePage, NodeParts};
use super::refusal::FailurePage;
use super::shell::{Section, Shell, query};
use super::site::{self, SitePage, SiteParts};
use super::sites::SitesPage;
use super::statics::{CONTENT_SECURITY_POLICY, FILES};
use super::webhooks::{WebhookPage, WebhooksPage};
use super::wipe::{WipeParts, file_name};
use super::work;
use crate::auth::authenticate;
use crate::error::{Answer, Refusal};
use crate::http::extract::Query;
use crate::http::{
    App, allocations, audit as audits, batches as batch_list, bmc, fleet as fleets, jobs as job_list, nodes,
    power_overrides, profiles, roce, silences, site_orders, sites as site_list, tasks, timeline,
    webhooks as webhook_list, wipes,
};

/// The script asks for the changing part alone.
const FRAGMENT: &str = "x-lattice-fragment";

/// Events of everything.
const ALL_EVENTS: &str = "/api/v1/admin/events";

/// Somebody who looks at a page.
pub struct Visit {
    app: App,
    headers: HeaderMap,
    uri: Uri,
}

impl axum::extract::FromRequestParts<App> for Visit {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut http::request::Parts, app: &App) -> Result<Self, Self::Rejection> {
        Ok(Self { app: app.clone(), headers: parts.headers.clone(), uri: parts.uri.clone() })
    }
}

impl Visit {
    fn wants_fragment(&self) -> bool {
        self.headers.get(FRAGMENT).is_some_and(|value| value == "main")
    }

    /// The frame for whoever looks. The place in the feed is read first: what happens while the page is made comes by
    /// the stream.
    async fn shell(&self, section: Section, title: &str) -> Answer<Shell> {
        let now = self.app.clock.now();
        let caller = authenticate(&self.app.store, &self.headers, now).await?;
        let seq = self.app.store.last_event().await?;
        Ok(Shell {
            title: title.to_owned(),
            section,
            caller: caller.name,
            role: caller.role,
            at: now,
            seq,
            events: ALL_EVENTS.to_owned(),
            stands_by: self.app.registry.stands_by(),
        })
    }

    /// Answers with the page that `make` makes for whoever looks.
    async fn answer<P, F>(self, section: Section, title: &str, make: impl FnOnce(App, Shell) -> F) -> Response
    where
        P: Parts,
        F: Future<Output = Answer<P>>,
    {
        let shell = match self.shell(section, title).await {
            Ok(shell) => shell,
            Err(refusal) => return self.stranger(refusal),
        };
        match make(self.app.clone(), shell.clone()).await {
            Ok(page) => self.html(StatusCode::OK, &page),
            Err(refusal) => {
                let problem = refusal.problem().clone();
                let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let shell = Shell { title: problem.title.clone(), ..shell };
                self.html(status, &FailurePage::of(problem, shell))
            }
        }
    }

    /// Somebody without a valid token is asked for one, and comes back to where he wanted.
    fn stranger(&self, refusal: Refusal) -> Response {
        if !refusal.problem().is(Code::Unauthenticated) || self.wants_fragment() {
            return refusal.into_response();
        }
        let wanted = self.uri.path_and_query().map_or("/ui/", |path| path.as_str());
        Redirect::to(&format!("/ui/login{}", query(&[("next", wanted)]))).into_response()
    }

    fn html<P: Parts>(&self, status: StatusCode, page: &P) -> Response {
        let text = if self.wants_fragment() { page.main_part() } else { page.whole() };
        html(status, text)
    }
}

/// A page and its changing part.
pub trait Parts {
    /// The document.
    fn whole(&self) -> askama::Result<String>;
    /// `<main>` alone.
    fn main_part(&self) -> askama::Result<String>;
}

/// HTML with the headers that every page has.
pub fn html(status: StatusCode, text: askama::Result<String>) -> Response {
    let Ok(text) = text else {
        return Refusal::new(Code::Internal, "the page could not be rendered").into_response();
    };
    let mut response = (status, text).into_response();
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::VARY, FRAGMENT),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// `/` leads to the fleet.
pub async fn root() -> Redirect {
    Redirect::to("/ui/")
}

/// Stylesheet, script, icon.
pub async fn file(Path(name): Path<String>) -> Response {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        return Refusal::not_found("file", &name).into_response();
    };
    // Revalidated each time, so that a page never runs with the script of another version.
    let headers = [
        (header::CONTENT_TYPE, file.media_type),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, file.text).into_response()
}

/// The fleet.
pub async fn fleet(visit: Visit, axum::extract::Query(filter): axum::extract::Query<Filter>) -> Response {
    visit
        .answer(Section::Fleet, "Fleet", |app, shell| async move {
            let Json(fleet) = fleets::fleet(State(app.clone())).await?;
            let Json(page) = nodes::list(State(app.clone()), Query(filter.query())).await?;
            let everything = NodeQuery { limit: Some(MAP_NODES), ..NodeQuery::default() };
            let Json(mapped) = nodes::list(State(app.clone()), Query(everything)).await?;
            let (moving, moving_cut) = moving(&app).await?;
            let sites = site_list::all(&app).await?;
            let parts = FleetParts {
                fleet,
                nodes: page.items,
                next: page.next,
                mapped: mapped.items,
                map_cut: mapped.next.is_some(),
                sites: sites.into_iter().map(|site| site.name).collect(),
                moving,
                moving_cut,
            };
            Ok(FleetPage::of(shell, filter, parts))
        })
        .await
}

/// Jobs that move, the newest, with their stages.
async fn moving(app: &App) -> Answer<(Vec<JobView>, bool)> {
    let running = JobQuery { status: Some("running".to_owned()), limit: Some(PROGRESS_JOBS), ..JobQuery::default() };
    let page = job_list::page(app, running).await?;
    let mut views = Vec::with_capacity(page.items.len());
    for row in page.items {
        let Json(view) = job_list::get(State(app.clone()), Path(row.id.to_string())).await?;
        views.push(view);
    }
    Ok((views, page.next.is_some()))
}

/// One node.
pub async fn node(visit: Visit, Path(name): Path<String>) -> Response {
    let title = name.clone();
    visit
        .answer(Section::Fleet, &title, |app, mut shell| async move {
            let Json(node) = nodes::get(State(app.clone()), Path(name)).await?;
            let id = node.row.id;
            shell.title = node.row.hostname.clone();
            shell.events = format!("{ALL_EVENTS}?node={id}");
            let Json(timeline) = timeline::timeline(State(app.clone()), Path(id.to_string())).await?;
            let job = match node.row.owning_job {
                Some(job) => Some(job),
                None => last_job(&app, id).await?,
            };
            let job = match job {
                Some(job) => Some(job_parts(&app, &job.to_string(), Some(&node)).await?),
                None => None,
            };
            let query = AllocationQuery {
                status: Some("live".to_owned()),
                node: Some(id.to_string()),
                limit: Some(work::SHOWN),
                ..AllocationQuery::default()
            };
            let Json(placed) = allocations::list(State(app.clone()), Query(query)).await?;
            let newest = TaskQuery { limit: Some(work::SHOWN), ..TaskQuery::default() };
            let Json(asked) = tasks::of_node(State(app.clone()), Path(id.to_string()), Query(newest)).await?;
            let bmc = match app.store.bmc(id).await? {
                Some(_) => Some(bmc::get(State(app.clone()), Path(id.to_string())).await?.0),
                None => None,
            };
            let placed = (placed.items, placed.next.is_some());
            let wipe = WipeParts::of_node(&app, id).await?;
            let silences = silences::covering(&app, id).await?;
            let timeline = timeline.entries;
            let parts = NodeParts { timeline, job, placed, tasks: asked.items, bmc, wipe, silences };
            Ok(NodePage::of(shell, node, parts))
        })
        .await
}

async fn last_job(app: &App, node: NodeId) -> Answer<Option<JobId>> {
    let newest = JobQuery { node_id: Some(node), limit: Some(1), ..JobQuery::default() };
    Ok(job_list::page(app, newest).await?.items.first().map(|row| row.id))
}

/// The file of a certificate: the text that `lattice wipe verify` takes.
pub async fn certificate(visit: Visit, Path(id): Path<String>) -> Response {
    if let Err(refusal) = visit.shell(Section::Fleet, "Certificate").await {
        return visit.stranger(refusal);
    }
    match wipes::get(State(visit.app.clone()), Path(id)).await {
        Err(refusal) => refusal.into_response(),
        Ok(Json(file)) => {
            let one = &file.certificate;
            let name = file_name(&one.hostname, &one.evidence.device);
            let headers = [
                (header::CONTENT_TYPE, "application/json".to_owned()),
                (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
                (header::CACHE_CONTROL, "no-store".to_owned()),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            ];
            (headers, file.text()).into_response()
        }
    }
}

async fn job_parts(app: &App, job: &str, node: Option<&NodeView>) -> Answer<JobParts> {
    let Json(view) = job_list::get(State(app.clone()), Path(job.to_owned())).await?;
    let Json(explanation) = job_list::explain(State(app.clone()), Path(job.to_owned())).await?;
    let Json(stats) = fleets::stage_stats(State(app.clone())).await?;
    let host = node.and_then(|node| node.host.as_ref());
    // Disks are asked for by the stage that chooses one; elsewhere a blank means something else.
    let asks_disk = view.row.stage == StageName::ConfigureStorage;
    let disks = host
        .filter(|_| asks_disk)
        .map_or_else(Vec::new, |host| host.disks.iter().map(|disk| disk.name.clone()).collect());
    Ok(JobParts { view, explanation, stats: stats.stages, disks })
}

/// Jobs.
pub async fn jobs(visit: Visit, axum::extract::Query(filter): axum::extract::Query<JobsFilter>) -> Response {
    visit
        .answer(Section::Jobs, "Jobs", |app, shell| async move {
            let page = job_list::page(&app, filter.query()).await?;
            Ok(JobsPage::of(shell, &filter, page.items, page.next))
        })
        .await
}

/// Allocations.
pub async fn allocations(
    visit: Visit,
    axum::extract::Query(filter): axum::extract::Query<AllocationsFilter>,
) -> Response {
    visit
        .answer(Section::Allocations, "Allocations", |app, shell| async move {
            let page = allocations::page(&app, filter.query()).await?;
            Ok(AllocationsPage::of(shell, &filter, page.items, page.next))
        })
        .await
}

/// One job.
pub async fn job(visit: Visit, Path(id): Path<String>) -> Response {
    visit
        .answer(Section::Jobs, "Job", |app, mut shell| async move {
            let parts = job_parts(&app, &id, None).await?;
            let row = &parts.view.row;
            shell.title = format!("{} of {}", row.kind, row.hostname);
            shell.events = format!("{ALL_EVENTS}?job={}", row.id);
            let job = JobSection::of(parts, &shell);
            Ok(JobPage { shell, job })
        })
        .await
}

/// Batches.
pub async fn batches(visit: Visit, axum::extract::Query(filter): axum::extract::Query<BatchesFilter>) -> Response {
    visit
        .answer(Section::Batches, "Batches", |app, shell| async move {
            let page = batch_list::page(&app, filter.query()).await?;
            Ok(BatchesPage::of(shell, &filter, page.items, page.next))
        })
        .await
}

/// One batch.
pub async fn batch(visit: Visit, Path(id): Path<String>) -> Response {
    visit
        .answer(Section::Batches, "Batch", |app, shell| async move {
            let Json(view) = batch_list::get(State(app.clone()), Path(id.clone())).await?;
            let Json(explanation) = batch_list::explain(State(app), Path(id)).await?;
            Ok(BatchPage::of(shell, view, explanation))
        })
        .await
}

/// Sites.
pub async fn sites(visit: Visit) -> Response {
    visit
        .answer(
            Section::Sites,
            "Sites",
            |app, shell| async move { Ok(SitesPage::of(shell, site_list::all(&app).await?)) },
        )
        .await
}

/// One site.
pub async fn site(visit: Visit, path: MatchedPath, Path(name): Path<String>) -> Response {
    let title = name.clone();
    visit
        .answer(Section::Sites, &title, |app, mut shell| async move {
            let state = || State(app.clone());
            let Json(view) = site_list::get(state(), path.clone(), Path(name)).await?;
            shell.title = view.name.clone();
            let newest = JobQuery { site_id: Some(view.id), limit: Some(site::SHOWN), ..JobQuery::default() };
            let jobs = job_list::page(&app, newest).await?.items;
            let Json(conformance) = site_orders::conformance(state(), path.clone(), Path(view.id.to_string())).await?;
            let mut parts = SiteParts {
                fingerprints: conformance.fingerprints,
                profiles: Vec::new(),
                overrides: (Vec::new(), false),
                roce: (Vec::new(), false),
                jobs,
                calls: None,
                view,
            };
            if matches!(parts.view.provider, SiteProvider::Maas(_)) {
                let of_site = || Path(parts.view.id.to_string());
                let page = |limit| Query(PageQuery { limit: Some(limit), ..PageQuery::default() });
                let Json(profiles) = profiles::list(state(), path.clone(), of_site(), page(100)).await?;
                let Json(overrides) =
                    power_overrides::list(state(), path.clone(), of_site(), page(site::SHOWN)).await?;
                let first = RoceQuery { limit: Some(site::SHOWN), ..RoceQuery::default() };
                let Json(roce) = roce::list(state(), path.clone(), of_site(), Query(first)).await?;
                let Json(calls) = site_list::calls(state(), path.clone(), of_site()).await?;
                parts.calls = Some(calls);
                parts.profiles = profiles.items;
                parts.overrides = (overrides.items, overrides.next.is_some());
                parts.roce = (roce.items, roce.next.is_some());
            }
            Ok(SitePage::of(shell, parts))
        })
        .await
}

/// Webhooks. Addresses may hold secrets of receivers: the role that the API asks for them is asked here too.
pub async fn webhooks(visit: Visit) -> Response {
    visit
        .answer(Section::Webhooks, "Webhooks", |app, shell| async move {
            check_may_act(&shell, "webhooks need")?;
            let Json(page) = webhook_list::list(State(app)).await?;
            Ok(WebhooksPage::of(shell, page.items))
        })
        .await
}

/// One webhook.
pub async fn webhook(visit: Visit, Path(id): Path<String>) -> Response {
    visit
        .answer(Section::Webhooks, "Webhook", |app, shell| async move {
            check_may_act(&shell, "webhooks need")?;
            let Json(view) = webhook_list::get(State(app.clone()), Path(id.clone())).await?;
            let newest = PageQuery { limit: Some(site::SHOWN), ..PageQuery::default() };
            let Json(deliveries) = webhook_list::deliveries(State(app), Path(id), Query(newest)).await?;
            Ok(WebhookPage::of(shell, view, deliveries.items))
        })
        .await
}

fn check_may_act(shell: &Shell, what: &str) -> Answer<()> {
    if shell.may_act() {
        return Ok(());
    }
    let why = format!("{} has the role {}; {what} {}", shell.caller, shell.role, Role::PlatformAdmin);
    Err(Refusal::new(Code::Forbidden, why))
}

/// Where a page of the audit begins.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct AuditAt {
    cursor: Option<String>,
}

/// The audit. It shows who did what: the role that the API asks for it is asked here too.
pub async fn audit(visit: Visit, axum::extract::Query(at): axum::extract::Query<AuditAt>) -> Response {
    visit
        .answer(Section::Audit, "Audit", |app, shell| async move {
            check_may_act(&shell, "the audit needs")?;
            let asked = AuditQuery { cursor: at.cursor, ..AuditQuery::default() };
            let Json(page) = audits::list(State(app.clone()), Query(asked)).await?;
            let Json(verification) = audits::verify(State(app)).await?;
            Ok(AuditPage::of(shell, page.items, page.next, verification))
        })
        .await
}

/// What somebody looks for.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Sought {
    q: String,
}

/// Leads to the node or job of that name, else to the nodes whose names begin with it.
pub async fn find(visit: Visit, axum::extract::Query(sought): axum::extract::Query<Sought>) -> Response {
    if let Err(refusal) = visit.shell(Section::Fleet, "").await {
        return visit.stranger(refusal);
    }
    let text = sought.q.trim();
    let app = &visit.app;
    let place = if let Ok(Json(node)) = nodes::get(State(app.clone()), Path(text.to_owned())).await {
        format!("/ui/nodes/{}", node.row.hostname)
    } else if let Ok(Json(job)) = job_list::get(State(app.clone()), Path(text.to_owned())).await {
        format!("/ui/jobs/{}", job.row.id)
    } else {
        format!("/ui/{}", query(&[("q", text)]))
    };
    Redirect::to(&place).into_response()
}

/// The frame of a page for somebody who is not signed in.
pub fn outside(app: &App, title: &str) -> Shell {
    Shell {
        title: title.to_owned(),
        section: Section::Outside,
        caller: String::new(),
        role: Role::ProjectViewer,
        at: app.clock.now(),
        seq: EventSeq(0),
        events: String::new(),
        stands_by: false,
    }
}

macro_rules! parts {
    ($($page:ty),+) => {$(
        impl Parts for $page {
            fn whole(&self) -> askama::Result<String> {
                self.render()
            }

            fn main_part(&self) -> askama::Result<String> {
                self.as_main().render()
            }
        }
    )+};
}

parts!(
    FleetPage,
    NodePage,
    JobPage,
    JobsPage,
    AllocationsPage,
    BatchesPage,
    BatchPage,
    SitePage,
    SitesPage,
    AuditPage,
    WebhooksPage,
    WebhookPage,
    FailurePage
);
