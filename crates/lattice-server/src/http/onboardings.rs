//! Onboardings: jobs of that kind, in the words of S5 4.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lattice_api::job::JobView;
use lattice_api::job::{ActOnJob, JobActionAnswer, JobQuery, JobRow};
use lattice_api::onboarding::{CreateOnboarding, Diagnostics, OnboardingAccepted, OnboardingView, TokenState};
use lattice_api::page::Page;
use lattice_core::command::create;
use lattice_core::credential::EnrollmentToken;
use lattice_core::explain::{Code, NextAction};
use lattice_core::explanation;
use lattice_core::ids::{JobId, NodeId, ProfileId};
use lattice_core::job::{Job, JobInput, JobKind, JobStatus};
use lattice_core::site::{Site, SiteProfile, SiteProvider};
use lattice_core::time::Timestamp;

use super::App;
use super::extract::{Committed, Earlier, Query, Write};
use super::jobs;
use super::nodes::{site_named, sku_named};
use super::rows::find_job;
use crate::error::{Answer, Refusal};

/// One page, newest first.
pub async fn list(State(app): State<App>, Query(query): Query<JobQuery>) -> Answer<Json<Page<JobRow>>> {
    if query.kind.is_some_and(|kind| kind != JobKind::Onboarding) {
        return Err(Refusal::malformed("kind", "can only be `onboarding` here"));
    }
    jobs::page(&app, JobQuery { kind: Some(JobKind::Onboarding), ..query }).await.map(Json)
}

/// Accepts an onboarding. spec: S5 4.1
pub async fn create(State(app): State<App>, write: Write<CreateOnboarding>) -> Answer<Response> {
    if let Some(earlier) = &write.earlier {
        return repeated(&app, earlier).await;
    }
    let body = &write.body;
    let site = site_named(&app, "site_id", &body.site_id).await?;
    let profile = profile_of(&app, &site, "profile_id", body.profile_id.as_deref()).await?;
    let sku = sku_named(&app, "sku_id", &body.sku_id).await?;
    let new = create::NewNode {
        site: &site,
        sku: &sku,
        hostname: body.hostname.clone(),
        class: body.class.unwrap_or_default(),
        batch: None,
    };
    only_openchami(&site, body)?;
    let request = write.request(&*app.ids, &body.reason);
    let planned = match &site.provider {
        SiteProvider::Maas(_) => {
            let ipmi_ip = body.ipmi_ip.as_deref().ok_or_else(|| {
                Refusal::invalid("ipmi_ip", "is needed at a MAAS site: the address of the machine's BMC")
            })?;
            let pxe_mac = body.pxe_mac.as_deref();
            create::maas(&request, &new, create::MaasMachine { ipmi_ip, pxe_mac, profile: profile.as_ref() })
        }
        SiteProvider::Lxd(_) => {
            no_hardware(body)?;
            create::lxd(&request, &new)
        }
        SiteProvider::Openchami(_) => {
            let machine = create::OpenchamiMachine {
                xname: body.xname.as_deref(),
                mac: body.pxe_mac.as_deref(),
                bmc_address: body.ipmi_ip.as_deref(),
                boot_profile: body.boot_profile.as_deref(),
            };
            create::openchami(&request, &new, machine)
        }
        SiteProvider::Manual => return Err(by_hand(&site, body)),
    };
    let planned = planned?;
    if let Some(mac) = &body.pxe_mac {
        mac_is_free(&app, &site, mac).await?;
    }
    let (node, job) = (planned.node, planned.job);
    match write.commit(&app, planned.commit).await? {
        Committed::Now => {}
        Committed::Earlier(earlier) => return repeated(&app, &earlier).await,
    }
    let job = job.ok_or_else(|| Refusal::new(Code::Internal, "an onboarding was decided without a job"))?;
    (app.wake)(job);
    Ok(accepted(job, node, JobStatus::Pending))
}

/// Two nodes that boot from one hardware address would be one machine.
async fn mac_is_free(app: &App, site: &Site, mac: &str) -> Answer<()> {
    let Some((_, hostname)) = app.store.node_with_mac(site.id, &mac.to_ascii_lowercase()).await? else { return Ok(()) };
    Err(Refusal::new(Code::Taken, format!("`pxe_mac` {mac} is taken by node {hostname} of site {}", site.name))
        .next(NextAction::run(format!("lattice explain node {hostname}"), "says what that node is")))
}

fn accepted(onboarding_id: JobId, node_id: NodeId, status: JobStatus) -> Response {
    (StatusCode::ACCEPTED, Json(OnboardingAccepted { onboarding_id, node_id, status })).into_response()
}

async fn repeated(app: &App, earlier: &Earlier) -> Answer<Response> {
    match (earlier.job, earlier.node) {
        (Some(job), Some(node)) => {
            let job = find_job(app, &job.to_string()).await?;
            Ok(accepted(job.id, node, job.state.status))
        }
        (Some(_) | None, _) => Err(Refusal::new(Code::KeyReused, "the idempotency key was used for something else")),
    }
}

/// The profile that a request names by id or name, else the site's default one; none: the site's own settings, which
/// are its implicit profile and have the site's own id. spec: S5 3.7
pub async fn profile_of(app: &App, site: &Site, field: &str, named: Option<&str>) -> Answer<Option<SiteProfile>> {
    let unknown = |given: &str| {
        let given: String = given.chars().take(80).collect();
        Refusal::invalid(field, format!("names the profile `{given}`, which site {} does not have", site.name))
            .next(NextAction::run(format!("lattice site profile list {}", site.name), "shows those that there are"))
    };
    let default = match &site.provider {
        SiteProvider::Maas(maas) => maas.default_profile_id,
        SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_) => None,
    };
    let found = match (named, default) {
        (Some(given), _) if given == site.id.to_string() => return Ok(None),
        (None, None) => return Ok(None),
        (None, Some(default)) => app.store.profile(default).await?,
        (Some(given), _) => match given.parse::<ProfileId>() {
            Ok(id) => app.store.profile(id).await?,
            Err(_) => app.store.profile_by_name(site.id, given).await?,
        },
    };
    let found = found.filter(|profile| profile.site == site.id);
    found.map(Some).ok_or_else(|| unknown(named.unwrap_or("its default")))
}

fn no_hardware(body: &CreateOnboarding) -> Answer<()> {
    for (field, value) in [("ipmi_ip", &body.ipmi_ip), ("pxe_mac", &body.pxe_mac)] {
        if value.is_some() {
            return Err(Refusal::invalid(field, "has no meaning at an LXD site: instances have no BMC and no PXE"));
        }
    }
    Ok(())
}

/// Fields that mean something at an OpenCHAMI site alone.
fn only_openchami(site: &Site, body: &CreateOnboarding) -> Answer<()> {
    let is_there = matches!(site.provider, SiteProvider::Openchami(_));
    for (field, value) in [("xname", &body.xname), ("boot_profile", &body.boot_profile)] {
        if value.is_some() && !is_there {
            return Err(Refusal::invalid(field, format!("has no meaning at a {} site", site.provider.kind())));
        }
    }
    Ok(())
}

fn by_hand(site: &Site, body: &CreateOnboarding) -> Refusal {
    let command = format!("lattice node create {} --sku {} --site {}", body.hostname, body.sku_id, site.name);
    Refusal::invalid("site_id", format!("names {}, whose nodes are bootstrapped by hand", site.name))
        .next(NextAction::run(command, "creates the node and prints its bootstrap command"))
}

/// One onboarding with its stages. spec: S5 4.2.1
pub async fn get(State(app): State<App>, Path(id): Path<String>) -> Answer<Json<OnboardingView>> {
    let job = onboarding(&app, &id).await?;
    let last_error = job.state.failure.clone();
    let explained = explanation::job(&job, app.clock.now());
    let view = jobs::view(&app, job).await?;
    let token = match view.outputs.token {
        Some(token) => app.store.enrollment_token(token).await?,
        None => None,
    };
    let now = app.clock.now();
    let diagnostics = Diagnostics {
        failure_class: last_error.as_ref().map(|error| error.class),
        error_code: last_error.as_ref().map(|error| error.error_code.clone()),
        error_message: last_error.map(|error| error.message),
        enrollment_token: token.map(|token| token_state(&token, now)),
        recommended_actions: explained.next.into_iter().map(Into::into).collect(),
        ..diagnostics(&view)
    };
    let (flow, ipmi_ip, pxe_mac, profile) = match view.input {
        JobInput::OnboardMaas { ipmi_ip, pxe_mac, settings, .. } => ("maas", Some(ipmi_ip), pxe_mac, settings.profile),
        JobInput::OnboardLxd { .. } => ("lxd", None, None, None),
        JobInput::OnboardOpenchami { mac, bmc_address, boot_profile, .. } => {
            ("openchami", bmc_address, mac, boot_profile)
        }
        JobInput::OnboardManual { .. } => ("manual", None, None, None),
        JobInput::Drain { .. }
        | JobInput::Retire { .. }
        | JobInput::Remove
        | JobInput::Reboot { .. }
        | JobInput::Reimage { .. }
        | JobInput::ReimageMaas { .. }
        | JobInput::InvestigateBmc
        | JobInput::SecureErase { .. }
        | JobInput::WipeSensitive { .. } => ("none", None, None, None),
    };
    Ok(Json(OnboardingView {
        onboarding_id: view.row.id,
        batch_id: view.row.batch_id,
        node_id: view.row.node_id,
        site_id: view.row.site_id,
        hostname: view.row.hostname,
        flow: flow.to_owned(),
        ipmi_ip,
        pxe_mac,
        profile,
        provider_ref: view.outputs.provider_ref,
        requested_by: view.requested_by.name,
        workflow_id: view.row.id,
        diagnostics,
        status: view.row.status,
        current_stage: view.row.stage.to_string(),
        current_attempt: view.row.attempt,
        failure: view.failure,
        requested_at: view.row.created_at,
        started_at: view.started_at,
        completed_at: view.row.finished_at,
        updated_at: view.row.updated_at,
        stages: view.stages,
        actions: view.actions,
        events: view.events,
    }))
}

/// What the job's own row tells. spec: S5 4.5, 4.12
fn diagnostics(view: &JobView) -> Diagnostics {
    let outputs = &view.outputs;
    let warnings = view.warnings.iter().map(|warning| format!("{}: {}", warning.stage, warning.message));
    Diagnostics {
        failure_class: None,
        error_code: None,
        error_message: None,
        retry_count: view.row.attempt,
        deploy_ip_addresses: match &view.observed {
            Some(observed) if outputs.deployed => observed.addresses.clone(),
            Some(_) | None => Vec::new(),
        },
        observed: view.observed.clone(),
        boot_disk: outputs.boot_disk.clone(),
        power_credentials: outputs.power_credentials.clone(),
        roce_applied: outputs.roce_applied,
        cloud_init_rendered: outputs.user_data_sha256.is_some(),
        deploy_failure: outputs.deploy_failure.clone(),
        ssh_address: outputs.ssh_address.clone(),
        enrollment_token: None,
        warnings: warnings.chain(outputs.warnings.iter().cloned()).collect(),
        recommended_actions: Vec::new(),
    }
}

fn token_state(token: &EnrollmentToken, now: Timestamp) -> TokenState {
    if token.used_at.is_some() {
        TokenState::Used
    } else if token.revoked_at.is_some() {
        TokenState::Revoked
    } else if now >= token.expires_at {
        TokenState::Expired
    } else {
        TokenState::Issued
    }
}

/// `POST /onboardings/{id}/{action}`. spec: S5 4.15
pub async fn act(
    State(app): State<App>,
    Path((id, action)): Path<(String, String)>,
    write: Write<ActOnJob>,
) -> Answer<Json<JobActionAnswer>> {
    let action = jobs::parse_action(&action)?;
    onboarding(&app, &id).await?;
    jobs::answer(&app, &id, action, write).await.map(Json)
}

async fn onboarding(app: &App, id: &str) -> Answer<Job> {
    let job = find_job(app, id).await?;
    match job.kind {
        JobKind::Onboarding => Ok(job),
        JobKind::Drain
        | JobKind::Retire
        | JobKind::Remove
        | JobKind::Reboot
        | JobKind::Reimage
        | JobKind::BmcInvestigation
        | JobKind::SecureErase
        | JobKind::SensitiveWipe => Err(Refusal::not_found("onboarding", id)
            .because(format!("job {id} is a {} job", job.kind))
            .next(NextAction::run(format!("lattice job get {id}"), "shows it"))),
    }
}
