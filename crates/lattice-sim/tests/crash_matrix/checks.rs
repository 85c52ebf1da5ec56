//! What must hold at the end, whatever died on the way. Each check says what it found.

use std::collections::BTreeSet;
use std::io::BufReader;

use lattice_core::ids::EventSeq;
use lattice_core::job::{Job, JobStatus, StageEventStatus};
use lattice_core::node::{Availability, NodeState, Status};
use lattice_providers::machine::maas::body::LinkMode;
use lattice_sim::maas::status::NodeStatus;
use lattice_store::{EventFilter, PAGE_MAX, PageRequest, audit_verify};

use crate::world::{Kind, World};

/// What was found to be wrong.
pub type Found = Result<(), String>;

fn holds(what: bool, otherwise: impl FnOnce() -> String) -> Found {
    if what { Ok(()) } else { Err(otherwise()) }
}

/// An onboarding that ended well: one node, active and ready, one deployment per round, one token used.
pub async fn onboarded(world: &World, kind: Kind, job: &Job) -> Found {
    let ended_well = matches!(job.state.status, JobStatus::Completed | JobStatus::Reconciled);
    holds(ended_well, || format!("the job is {}: {:?}", job.state.status, job.state.failure))?;
    let node = world.node_row().await;
    holds(node.state == NodeState::new(Status::Active, Availability::Ready), || format!("the node is {}", node.state))?;
    holds(node.owning_job.is_none(), || "the job still owns its node".to_owned())?;
    let kept: Vec<String> = world.secrets.paths().into_iter().filter(|path| path.starts_with("jobs/")).collect();
    holds(kept.is_empty(), || format!("secrets are left: {kept:?}"))?;
    token_used_once(world, job).await?;
    if kind == Kind::Maas {
        holds(node.provider_ref.is_some(), || "the node does not know its machine".to_owned())?;
        let records: Vec<_> = world.region.with(|world| world.machines().into_iter().map(|one| one.record).collect());
        let is_deployed = matches!(records.as_slice(), [Some((_, NodeStatus::Deployed))]);
        holds(is_deployed, || format!("the machine's record is {records:?}"))?;
        as_configured(world, job).await?;
    }
    intact(world, kind).await
}

/// What a job leaves that an operator took up, wherever it ended or stopped.
pub async fn ended(world: &World, kind: Kind, job: &Job) -> Found {
    match job.state.status {
        JobStatus::Completed | JobStatus::Reconciled => onboarded(world, kind, job).await,
        JobStatus::Pending
        | JobStatus::Running
        | JobStatus::Compensating
        | JobStatus::FailedRetryable
        | JobStatus::FailedManualIntervention => intact(world, kind).await,
        JobStatus::Cancelled => {
            intact(world, kind).await?;
            let node = world.node_row().await;
            let is_out = matches!(node.state.status, Status::Deleted | Status::Quarantined);
            holds(is_out, || format!("cancelled, and its node is {}", node.state))
        }
    }
}

/// What was deployed has the storage and the addresses that the job says it gave it.
async fn as_configured(world: &World, job: &Job) -> Found {
    if job.state.adopted {
        // An operator answers for what the job did not do.
        return Ok(());
    }
    let machine = world.machine(job.outputs.provider_ref.as_deref().unwrap_or_default()).await;
    let boots = machine.boot_disk.as_ref().map(|disk| disk.id.to_string());
    let wanted = job.outputs.boot_disk.as_ref().map(|disk| disk.id.clone());
    holds(boots == wanted && wanted.is_some(), || format!("it boots from {boots:?}, the job says {wanted:?}"))?;
    let links = machine.interface_set.iter().flat_map(|interface| &interface.links);
    let applied = links.filter(|link| link.mode == LinkMode::Static).count();
    holds(job.outputs.roce_applied == u32::try_from(applied).ok(), || {
        format!("it has {applied} RoCE addresses, the job says {:?}", job.outputs.roce_applied)
    })
}

/// Each stage succeeded once in each round: nothing was told twice.
pub async fn told_once(world: &World) -> Found {
    let events = world.store.stage_events(world.job).await.unwrap();
    let ended = |status| matches!(status, StageEventStatus::Succeeded | StageEventStatus::Skipped);
    let mut seen = BTreeSet::new();
    for one in events.iter().filter(|one| ended(one.event.status)) {
        let (stage, round) = (one.event.stage, one.event.round);
        holds(seen.insert((stage, round)), || format!("{stage} ended twice in round {round}"))?;
    }
    Ok(())
}

/// What holds at any end: deployments, requests, history, audit, outbox.
pub async fn intact(world: &World, kind: Kind) -> Found {
    if kind == Kind::Maas {
        deployed_with_care(world)?;
    }
    history(world).await?;
    audit(world).await?;
    outbox(world).await
}

/// No deployment without a release since the one before, none that MAAS refused but for a fault, nothing unknown.
fn deployed_with_care(world: &World) -> Found {
    let report = world.region.with(|world| world.report());
    holds(report.unknown_requests.is_empty(), || format!("unknown requests: {:?}", report.unknown_requests))?;
    holds(report.refused_transitions.is_empty(), || format!("MAAS refused: {:?}", report.refused_transitions))?;
    let (mut deployments, mut runs) = (0, false);
    for (kind, description) in world
        .region
        .with(|world| world.events().iter().map(|event| (event.kind, event.description.clone())).collect::<Vec<_>>())
    {
        if kind != "Node changed status" {
            continue;
        }
        if description.ends_with("to 'Deploying'") {
            holds(!runs, || "deployed again without a release".to_owned())?;
            (deployments, runs) = (deployments + 1, true);
        }
        if description.ends_with("to 'Ready'") || description.ends_with("to 'New'") {
            runs = false;
        }
    }
    let asked: u64 = report.calls.iter().filter(|(call, _)| call.ends_with("op=deploy")).map(|(_, count)| *count).sum();
    let rejected = world.rejected();
    holds(asked == deployments + rejected, || {
        format!("deploy was asked for {asked} times: {deployments} began, {rejected} were rejected by a fault")
    })
}

/// The job's token let its agent in; before it, at most one for each clean restart did.
async fn token_used_once(world: &World, job: &Job) -> Found {
    let tokens = world.store.enrollment_tokens_of(world.node).await.unwrap();
    let used: Vec<_> = tokens.iter().filter(|token| token.used_at.is_some()).map(|token| token.id).collect();
    let is_its = job.outputs.token.is_none_or(|token| used.contains(&token));
    let most = usize::from(job.outputs.token.is_some()) + job.state.epoch as usize;
    holds(is_its && used.len() <= most, || format!("tokens used: {used:?}; the job's is {:?}", job.outputs.token))?;
    let open = tokens.iter().filter(|token| token.used_at.is_none() && token.revoked_at.is_none()).count();
    holds(open == 0, || format!("{open} tokens could still be used"))
}

/// The node's history leads without a gap from its creation to where it stands.
async fn history(world: &World) -> Found {
    let page = world.store.history(world.node, &PageRequest::first(PAGE_MAX)).await.unwrap();
    let mut before = None;
    for (expected, entry) in (1..).zip(page.items.iter().rev()) {
        holds(entry.generation.0 == expected, || format!("history has {} for {expected}", entry.generation.0))?;
        holds(entry.row.before == before, || format!("history jumps at {expected}: {entry:?}"))?;
        before = Some(entry.row.after);
    }
    let node = world.node_row().await;
    let is_whole = page.items.first().is_some_and(|last| last.generation == node.generation);
    holds(is_whole && before == Some(node.state), || format!("history ends at {before:?}, the node is {}", node.state))
}

async fn audit(world: &World) -> Found {
    let mut export = Vec::new();
    let written = world.store.audit_export(&mut export).await.map_err(|error| error.to_string())?;
    let read = audit_verify(BufReader::new(export.as_slice())).map_err(|error| error.to_string())?;
    holds(read.rows > 0 && read.rows == written.rows, || format!("audit: {} of {} rows", read.rows, written.rows))
}

async fn outbox(world: &World) -> Found {
    let last = world.store.last_event().await.unwrap();
    let mut seen = EventSeq(0);
    while seen < last {
        let events = world.store.events(seen, &EventFilter::default(), PAGE_MAX).await.unwrap();
        holds(!events.is_empty(), || format!("the outbox ends at {} of {}", seen.0, last.0))?;
        for event in events {
            holds(event.seq.0 == seen.0 + 1, || format!("the outbox has {} after {}", event.seq.0, seen.0))?;
            seen = event.seq;
        }
    }
    Ok(())
}
