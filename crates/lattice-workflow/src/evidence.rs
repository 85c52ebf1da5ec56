//! Whether a node's OS or instance is gone, by fresh evidence. design: 2-state-model "removing → deleted", 3-jobs

use std::time::Duration;

use lattice_core::change::NodeAction;
use lattice_core::failure::FailureClass;
use lattice_core::ids::JobId;
use lattice_core::job::StageError;
use lattice_core::node::Availability;
use lattice_core::site::{MaasSite, SiteProvider};
use lattice_providers::machine::maas::MachineStatus;
use lattice_providers::machine::maas::machines::Presence;
use lattice_providers::observer::MachineObservation;
use lattice_store::PageRequest;

use crate::providers::failed;
use crate::stage::{Context, error, store_failed};

/// How far back the revocation is looked for: nothing but a few moves follow it.
const HISTORY: usize = 100;

/// What the evidence says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// It is gone.
    Gone {
        /// How that is known, for people.
        how: String,
    },
    /// It is not, or it is not proven.
    Waits {
        /// For what, for people.
        for_what: String,
    },
}

fn waits(for_what: impl Into<String>) -> Evidence {
    Evidence::Waits { for_what: for_what.into() }
}

/// The name of a node's instance.
pub fn instance_name<'a>(ctx: &'a Context<'_>) -> &'a str {
    ctx.node.provider_ref.as_deref().unwrap_or(&ctx.node.hostname)
}

/// Whether a job of this node made an instance or deployed a machine, by the stamp that it carries: what another one
/// made, or nobody stamped, is not this node's to be stopped or deleted.
///
/// # Errors
/// The store cannot be read.
pub async fn is_of_node(ctx: &Context<'_>, stamp: Option<&str>) -> Result<bool, StageError> {
    for job in stamp.into_iter().flat_map(|stamp| stamp.split('/')).filter_map(|part| part.parse::<JobId>().ok()) {
        let job = ctx.tools.store.job(job).await.map_err(store_failed)?;
        if job.is_some_and(|job| job.node == ctx.node.id) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The instance of the node; none when there is none of its name.
///
/// # Errors
/// The server cannot be asked, or the instance of that name is somebody else's.
pub async fn own_instance(ctx: &Context<'_>) -> Result<Option<MachineObservation>, StageError> {
    let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
    let Some(found) = instances.observe(instance_name(ctx)).await.map_err(failed(ctx.now))? else { return Ok(None) };
    if is_of_node(ctx, found.stamp.as_deref()).await? {
        return Ok(Some(found));
    }
    Err(error(
        FailureClass::StateAmbiguity,
        "instance_not_ours",
        format!("the instance named {} was not made for {}: it is left alone", found.name, ctx.node.hostname),
    ))
}

/// Looks for evidence now.
///
/// # Errors
/// The provider or the store cannot be asked: nothing is proven then.
pub async fn evidence(ctx: &Context<'_>) -> Result<Evidence, StageError> {
    match &ctx.site.provider {
        SiteProvider::Lxd(_) => instance(ctx).await,
        SiteProvider::Maas(site) => machine(ctx, site).await,
        SiteProvider::Manual | SiteProvider::Openchami(_) => host(ctx).await,
    }
}

async fn instance(ctx: &Context<'_>) -> Result<Evidence, StageError> {
    let name = instance_name(ctx);
    let instances = ctx.tools.providers.instances(ctx.site).await.map_err(failed(ctx.now))?;
    // A server that lists nothing at all may be another one: the listing must be possible, then the thing is asked for.
    let listing = async { instances.observe_all().await.map(drop) };
    ctx.tools.sites.listed(ctx.site.id, listing).await.map_err(failed(ctx.now))?;
    match instances.observe(name).await.map_err(failed(ctx.now))? {
        None => Ok(Evidence::Gone { how: format!("the server has no instance {name}") }),
        Some(found) => Ok(waits(format!("instance {name} to be deleted; it is {}", found.status))),
    }
}

/// In MAAS: the machine is not there, or MAAS has taken its OS away.
async fn machine(ctx: &Context<'_>, _: &MaasSite) -> Result<Evidence, StageError> {
    let Some(name) = ctx.node.provider_ref.as_deref() else {
        return Ok(Evidence::Gone { how: "it never had a machine".to_owned() });
    };
    let id = super::stages::maas::system_id(name)?;
    let region = ctx.tools.providers.maas(ctx.site).await.map_err(failed(ctx.now))?;
    let client = region.client();
    if let Some(found) = client.machine(&id).await.map_err(failed(ctx.now))? {
        return Ok(match found.status {
            MachineStatus::Ready | MachineStatus::New => {
                Evidence::Gone { how: format!("machine {id} is {} in MAAS, without an OS", found.status) }
            }
            other => waits(format!("machine {id} to be released in MAAS, or its agent to be gone; it is {other}")),
        });
    }
    // The listing does not hold it: a 404 on the machine itself is the proof.
    let others = client.whoami().await.map_err(failed(ctx.now))?;
    match client.presence(&id).await.map_err(failed(ctx.now))? {
        Presence::Absent => {
            Ok(Evidence::Gone { how: format!("MAAS has no machine {id}; asked as {}", others.username) })
        }
        Presence::Present => Ok(waits(format!("MAAS to list machine {id}, which it says it has"))),
    }
}

/// A host that an operator bootstrapped: nothing but its silence and an operator's word can prove it.
async fn host(ctx: &Context<'_>) -> Result<Evidence, StageError> {
    let node = ctx.node;
    let times = ctx.site.heartbeat.times(node.effective_class());
    let patience: Duration = times.window() + times.grace();
    let heard = ctx.tools.live_work.last_heard(node.id).await;
    if let Some(at) = heard.filter(|at| ctx.now.since(*at) < patience) {
        return Ok(waits(format!(
            "the agent of {} to be stopped: run `systemctl disable --now lattice-agent` on the host; heard {} ago",
            node.hostname,
            lattice_core::time::human(ctx.now.since(at))
        )));
    }
    let is_silent = match node.state.availability {
        Availability::Down | Availability::Failed | Availability::Unknown => true,
        Availability::Booting
        | Availability::Ready
        | Availability::Degraded
        | Availability::Draining
        | Availability::Drained => ctx.now.since(node.availability_since) >= patience,
    };
    if !is_silent {
        return Ok(waits(format!("{} to be silent for {}", node.hostname, lattice_core::time::human(patience))));
    }
    if !is_revoked(ctx).await? {
        return Ok(waits(format!("its certificate to be revoked: `lattice node revoke {}`", node.hostname)));
    }
    if !ctx.job.state.decisions.os_gone {
        return Ok(waits(format!(
            "an operator's word that its OS is gone: `lattice job resume {} --os-gone`",
            ctx.job.id
        )));
    }
    Ok(Evidence::Gone {
        how: "silent, its certificate is revoked, and an operator says that its OS is gone".to_owned(),
    })
}

/// Whether its certificates were revoked after its agent registered last.
async fn is_revoked(ctx: &Context<'_>) -> Result<bool, StageError> {
    let history = ctx.tools.store.history(ctx.node.id, &PageRequest::first(HISTORY)).await.map_err(store_failed)?;
    let newest = history.items.iter().map(|entry| entry.row.action).find(|action| match action {
        NodeAction::Revoked | NodeAction::Registered => true,
        NodeAction::Created
        | NodeAction::Moved
        | NodeAction::HoldSet
        | NodeAction::HoldCleared
        | NodeAction::Updated => false,
    });
    Ok(newest == Some(NodeAction::Revoked))
}
