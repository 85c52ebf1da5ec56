//! A node's BMC: set, shown, looked at, its breaker reset. Its login goes to the secret store and never comes out.

use axum::Json;
use axum::extract::{Path, State};
use lattice_api::bmc::{BmcCaller, BmcCheck, BmcDrive, BmcView, SetBmc};
use lattice_api::node::Reason;
use lattice_core::bmc::{Bmc, BmcEndpoint, BmcProtocol, BmcReport, BmcTls, BmcWay, CipherSuite, EndpointProblem};
use lattice_core::command::bmc::{self as commands, Look, OfNode};
use lattice_core::explain::{Code, NextAction};
use lattice_core::node::Node;
use lattice_core::secret::Secret;
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::bmc::{BmcAbout, Caller, DriveSeen, Waiting};
use lattice_providers::secret::{SecretError, SecretObject, SecretPath};

use super::App;
use super::extract::{NoBody, Write};
use super::power_overrides::check_login;
use super::rows::{find_node, site_of};
use crate::error::{Answer, Refusal};

/// A node's BMC, with who uses it and what it said last.
pub async fn get(State(app): State<App>, Path(node): Path<String>) -> Answer<Json<BmcView>> {
    let node = find_node(&app, &node).await?;
    let bmc = known(&app, &node).await?;
    view(&app, &node, bmc).await.map(Json)
}

/// Sets a node's BMC. The login is kept before the row says so: no row ever names a login that is not there.
pub async fn set(State(app): State<App>, Path(node): Path<String>, write: Write<SetBmc>) -> Answer<Json<BmcView>> {
    let node = find_node(&app, &node).await?;
    if write.earlier.is_none() {
        let site = site_of(&app, node.site).await?;
        let earlier = app.store.bmc(node.id).await?;
        let endpoint = endpoint(&node, &write.body)?;
        endpoint.check(&site.bmc).map_err(|problem| refused(&problem, &site.name))?;
        keep_login(&app, &endpoint.credential_path, &write.body).await?;
        let request = write.request(&*app.ids, &write.body.reason);
        let commit = commands::set(&request, &node, &site, earlier.as_ref(), endpoint)
            .map_err(|problem| refused(&problem, &site.name))?;
        write.commit(&app, commit).await?;
    }
    let node = find_node(&app, &node.id.to_string()).await?;
    let bmc = known(&app, &node).await?;
    view(&app, &node, bmc).await.map(Json)
}

/// Looks at a BMC now: what it is, its machine's power and hardware. What is seen counts like any other look.
pub async fn check(State(app): State<App>, Path(node): Path<String>, write: Write<NoBody>) -> Answer<Json<BmcCheck>> {
    let node = find_node(&app, &node).await?;
    let bmc = known(&app, &node).await?;
    let site = site_of(&app, node.site).await?;
    let earlier = app.store.bmc_report(node.id).await?;
    let caller = Caller { who: format!("operator {}", write.caller.actor().name), why: "check".to_owned() };
    let since = earlier.as_ref().and_then(BmcReport::log_position);
    let mut drives = Ok(Vec::new());
    let (about, look) = match app.bmcs.reader(&bmc, &site.bmc, caller).await {
        Ok(reader) => match reader.about().await {
            Ok(about) => {
                let power = reader.power().await.map_err(|error| error.to_string());
                let health = reader.health(since).await.map_err(|error| error.to_string());
                drives = reader.drives().await;
                (Ok(about), Look { power, health })
            }
            Err(error) => unread(error),
        },
        Err(error) => unread(error),
    };
    let gpus = app.store.sku(&node.sku).await?.map_or(0, |sku| sku.gpus);
    let placed = app.store.placed_on(node.id).await?;
    let of_node = OfNode { gpus_of_sku: gpus, placed: &placed };
    let looked = commands::looked(&write.request(&*app.ids, ""), &node, earlier.as_ref(), look, of_node);
    app.store.commit(looked.commits).await?;
    if let Some(after) = looked.moved {
        app.registry.end_session(after.id);
    }
    let failure = about.as_ref().err().map(ToString::to_string).or_else(|| looked.report.failure.clone());
    let mut about = about.unwrap_or_default();
    // One that fails to list its drives is looked at none the less; that it offers no list it says itself.
    let drives = drives.unwrap_or_else(|error| {
        if !matches!(error.kind, ErrorKind::NotOffered { .. }) {
            about.not_offered.push(format!("drives now: {error}"));
        }
        Vec::new()
    });
    let drives = drives.into_iter().map(|DriveSeen { id, name, erasable }| BmcDrive { drive: id, name, erasable });
    Ok(Json(BmcCheck {
        ok: failure.is_none(),
        vendor: about.vendor,
        model: about.model,
        firmware: about.firmware,
        not_offered: about.not_offered,
        drives: drives.collect(),
        failure,
        report: looked.report,
    }))
}

fn unread(error: ProviderError) -> (Result<BmcAbout, ProviderError>, Look) {
    let why = error.to_string();
    (Err(error), Look { power: Err(why.clone()), health: Err(why) })
}

/// Has the credential tried again that was refused too often.
pub async fn reset_breaker(
    State(app): State<App>,
    Path(node): Path<String>,
    write: Write<Reason>,
) -> Answer<Json<BmcView>> {
    let node = find_node(&app, &node).await?;
    if write.earlier.is_none() {
        let bmc = known(&app, &node).await?;
        let request = write.request(&*app.ids, &write.body.reason);
        write.commit(&app, commands::reset_breaker(&request, &bmc)).await?;
    }
    let bmc = known(&app, &node).await?;
    view(&app, &node, bmc).await.map(Json)
}

async fn known(app: &App, node: &Node) -> Answer<Bmc> {
    app.store.bmc(node.id).await?.ok_or_else(|| {
        let set = format!("lattice node bmc set {} --address ADDRESS --protocol redfish --from-stdin", node.hostname);
        Refusal::new(Code::NotFound, format!("{} has no BMC", node.hostname)).next(NextAction::run(set, "gives it one"))
    })
}

async fn view(app: &App, node: &Node, bmc: Bmc) -> Answer<BmcView> {
    let report = app.store.bmc_report(node.id).await?;
    let queue = app.bmcs.queue(&bmc);
    let (port, protocol) = (bmc.endpoint.port(), bmc.endpoint.way.protocol());
    let (cipher, tls, system) = match bmc.endpoint.way {
        BmcWay::Ipmi { cipher } => (Some(u8::from(cipher)), None, None),
        BmcWay::Redfish { tls, system } => (None, Some(tls), system),
    };
    Ok(BmcView {
        node_id: node.id,
        hostname: node.hostname.clone(),
        address: bmc.endpoint.address.to_string(),
        port,
        protocol,
        cipher,
        tls,
        system,
        credential_path: bmc.endpoint.credential_path,
        breaker: queue.breaker,
        refusals: queue.refusals,
        running: queue.running.map(caller),
        waiting: queue.waiting.into_iter().map(caller).collect(),
        report,
        set_at: bmc.set_at,
        set_by: bmc.set_by,
        generation: bmc.generation,
    })
}

fn caller(waiting: Waiting) -> BmcCaller {
    BmcCaller { who: waiting.caller.who, why: waiting.caller.why, since: waiting.since }
}

fn endpoint(node: &Node, body: &SetBmc) -> Answer<BmcEndpoint> {
    let address = body
        .address
        .parse()
        .map_err(|_| Refusal::malformed("address", "must be an IP address such as 10.0.0.7: names are not called"))?;
    let foreign = |field: &str| Refusal::invalid(field, format!("has no meaning with protocol {}", body.protocol));
    let way = match body.protocol {
        BmcProtocol::Ipmi => {
            if body.tls.is_some() || body.system.is_some() {
                return Err(foreign(if body.tls.is_some() { "tls" } else { "system" }));
            }
            let cipher = CipherSuite::try_from(body.cipher.unwrap_or(17))
                .map_err(|problem| Refusal::invalid("cipher", problem.to_string()))?;
            BmcWay::Ipmi { cipher }
        }
        BmcProtocol::Redfish => {
            if body.cipher.is_some() {
                return Err(foreign("cipher"));
            }
            let is_id =
                |id: &String| (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
            if body.system.as_ref().is_some_and(|id| !is_id(id)) {
                return Err(Refusal::invalid("system", "must be the Id of a system, such as 1 or System.Embedded.1"));
            }
            BmcWay::Redfish { tls: body.tls.clone().unwrap_or(BmcTls::SiteAuthority), system: body.system.clone() }
        }
    };
    Ok(BmcEndpoint { address, port: body.port, way, credential_path: format!("kv/nodes/{}/bmc", node.id) })
}

fn refused(problem: &EndpointProblem, site: &str) -> Refusal {
    let field = match problem {
        EndpointProblem::Address(_) => "address",
        EndpointProblem::PlainBeyondLoopback(_) | EndpointProblem::NoAuthority | EndpointProblem::BadPin => "tls",
        EndpointProblem::BadPort => "port",
    };
    let set = format!("lattice site set {site} bmc.networks='[\"10.0.0.0/8\"]'");
    let refusal = Refusal::invalid(field, problem.to_string());
    match problem {
        EndpointProblem::Address(_) => refusal.next(NextAction::run(set, "lets BMCs of these networks be called")),
        EndpointProblem::PlainBeyondLoopback(_)
        | EndpointProblem::NoAuthority
        | EndpointProblem::BadPin
        | EndpointProblem::BadPort => refusal,
    }
}

/// Keeps the login that is given; without one, one must be there.
async fn keep_login(app: &App, path: &str, body: &SetBmc) -> Answer<()> {
    let path: SecretPath =
        path.parse().map_err(|_| Refusal::new(Code::Internal, "a path of a secret was made that cannot be one"))?;
    match &body.login {
        Some(login) => {
            check_login(login)?;
            let object =
                [("user".to_owned(), Secret::new(login.user.clone())), ("pass".to_owned(), login.pass.clone())];
            app.secrets.write(&path, SecretObject::from(object)).await.map_err(|error| Refusal::explained(&error))
        }
        None => match app.secrets.read(&path).await {
            Ok(_) => Ok(()),
            Err(SecretError::NotFound { .. }) => {
                Err(Refusal::invalid("login", "must be given: none is kept for this BMC yet"))
            }
            Err(error) => Err(Refusal::explained(&error)),
        },
    }
}
