//! Finds rows by what people call them, and what is known about a node when something is asked of it.

use std::collections::HashMap;

use lattice_core::allocation::Allocation;
use lattice_core::batch::Batch;
use lattice_core::bmc::{Bmc, BmcReport};
use lattice_core::command::agent::health_now;
use lattice_core::command::node::Known;
use lattice_core::command::remedy::{Remedy, Standing, may_be_ours, remedy};
use lattice_core::component::ComponentReport;
use lattice_core::explain::{Code, NextAction};
use lattice_core::heartbeat::{Said, brake};
use lattice_core::ids::{BatchId, JobId, NodeId, SiteId};
use lattice_core::job::Job;
use lattice_core::node::health;
use lattice_core::node::machine::Health;
use lattice_core::node::{HostFacts, Node};
use lattice_core::site::{Governor, Site};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;

use super::App;
use super::extract::parse_id;
use crate::error::{Answer, Refusal};

/// The node of that id or hostname; deleted ones only by their id.
pub async fn find_node(app: &App, text: &str) -> Answer<Node> {
    let found = match text.parse::<NodeId>() {
        Ok(id) => app.store.node(id).await?,
        Err(_) => app.store.node_by_hostname(&text.to_ascii_lowercase()).await?,
    };
    found.ok_or_else(|| Refusal::not_found("node", text))
}

/// The site of that id or name.
pub async fn find_site(app: &App, text: &str) -> Answer<Site> {
    let found = match text.parse::<SiteId>() {
        Ok(id) => app.store.site(id).await?,
        Err(_) => app.store.site_by_name(text).await?,
    };
    found.ok_or_else(|| Refusal::not_found("site", text))
}

/// The site that a stored row names: it cannot be missing.
pub async fn site_of(app: &App, id: SiteId) -> Answer<Site> {
    app.store.site(id).await?.ok_or_else(|| Refusal::not_found("site", &id.to_string()))
}

/// The SKU of that name.
pub async fn find_sku(app: &App, name: &str) -> Answer<Sku> {
    app.store.sku(name).await?.ok_or_else(|| Refusal::not_found("sku", name))
}

/// The job of that id.
pub async fn find_job(app: &App, text: &str) -> Answer<Job> {
    let id: JobId = parse_id("job", text)?;
    app.store.job(id).await?.ok_or_else(|| Refusal::not_found("job", text))
}

/// The batch of that id.
pub async fn find_batch(app: &App, text: &str) -> Answer<Batch> {
    let missing = || {
        Refusal::new(Code::NotFound, format!("no batch has the id `{}`", text.chars().take(80).collect::<String>()))
            .next(NextAction::run("lattice onboarding batch list", "shows those that there are"))
    };
    let id: BatchId = text.parse().map_err(|_| missing())?;
    app.store.batch(id).await?.ok_or_else(missing)
}

/// Names of all sites.
pub async fn site_names(app: &App) -> Answer<HashMap<SiteId, String>> {
    Ok(app.store.sites().await?.into_iter().map(|site| (site.id, site.name)).collect())
}

/// A node with everything that a decision about it, or an explanation of it, needs.
pub struct NodeFile {
    /// Its row.
    pub node: Node,
    /// Its site.
    pub site: Site,
    /// Its unfinished or failed job, if one stands.
    pub job: Option<Job>,
    /// What its agent found on the host.
    pub facts: Option<HostFacts>,
    /// Its health as the agent last showed it, against its SKU.
    pub health: Health,
    /// What this server heard of it last.
    pub said: Option<Said>,
    /// GPUs that its SKU asks for.
    pub gpus_expected: Option<u32>,
    /// From when its silence counts: when it was heard last, or when watching it began.
    pub silent_from: Option<Timestamp>,
    /// Work that runs on it, as its agent last said.
    pub live_allocations: u32,
    /// What is placed on it.
    pub placed: Vec<Allocation>,
    /// Its BMC, if one is set.
    pub bmc: Option<Bmc>,
    /// What was seen of it last.
    pub bmc_report: Option<BmcReport>,
    /// What State Manager says of it, at an OpenCHAMI site.
    pub component: Option<ComponentReport>,
    /// Whether Lattice itself will reboot or drain it.
    pub remedy: Remedy,
}

impl NodeFile {
    /// Reads what belongs to a node.
    pub async fn open(app: &App, node: Node, now: Timestamp) -> Answer<Self> {
        let site = site_of(app, node.site).await?;
        let job = app.store.live_job(node.id).await?;
        let facts = app.store.host_facts(node.id).await?.map(|(facts, _)| facts);
        let said = app.registry.said(node.id);
        // A node whose agent never registered was merely admitted.
        let silent_from = node.boot_id.as_ref().and_then(|_| app.registry.last_heard(node.id));
        // Silence longer than the window makes every earlier report old. spec: S1 "Heartbeat Protocol"
        let is_fresh =
            silent_from.is_some_and(|at| now.since(at) <= site.heartbeat.times(node.effective_class()).window());
        let sku = app.store.sku(&node.sku).await?;
        let gpus_expected = sku.as_ref().map(|sku| sku.gpus);
        let health = match (&facts, sku, app.registry.vitals_now(node.id)) {
            (Some(facts), Some(sku), Some(said)) if is_fresh => {
                let checked = health::check(&sku, facts, node.fingerprint.as_deref());
                health_now(checked, &said, &sku)
            }
            (Some(_) | None, _, _) => Health::NotReported,
        };
        let reported = app.registry.vitals(node.id).map_or(0, |vitals| vitals.allocations);
        let live_allocations = reported.max(node.ownership.allocations);
        let placed = if node.ownership.allocations > 0 { app.store.placed_on(node.id).await? } else { Vec::new() };
        let bmc = app.store.bmc(node.id).await?;
        let bmc_report = app.store.bmc_report(node.id).await?;
        let component = app.store.component(node.id).await?;
        let (governor, (fell, members)) = automation(app, &node, &site, now).await?;
        let standing = Standing {
            site: &site,
            job: job.as_ref(),
            report: bmc_report.as_ref(),
            has_bmc: bmc.is_some(),
            governor,
            fell,
            members,
        };
        let remedy = remedy(&node, &standing, now);
        Ok(Self {
            remedy,
            placed,
            bmc,
            bmc_report,
            component,
            node,
            site,
            job,
            facts,
            health,
            said,
            gpus_expected,
            silent_from,
            live_allocations,
        })
    }

    /// As commands take it.
    pub fn known(&self) -> Known<'_> {
        Known {
            node: &self.node,
            job: self.job.as_ref(),
            health: self.health.clone(),
            live_allocations: self.live_allocations,
            site: &self.site,
            placed: &self.placed,
            has_bmc: self.bmc.is_some(),
        }
    }
}

/// How a node's site stands towards its limit, and how many of its nodes fell silent lately, where that matters.
async fn automation(app: &App, node: &Node, site: &Site, now: Timestamp) -> Answer<(Governor, (u64, u64))> {
    if !may_be_ours(node, site) {
        return Ok((Governor::new(&site.automation, 0, 0), (0, 0)));
    }
    let (in_service, taken) = app.store.taken_at(site.id).await?;
    let silenced = app.store.silenced_at(site.id, brake::silenced_since(now)).await?;
    Ok((Governor::new(&site.automation, in_service, taken), silenced))
}
