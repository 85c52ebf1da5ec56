//! The operator's verbs on a node: parsed, decided by core, committed, and the job's driver woken.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use lattice_api::allocation::AllocationImpact;
use lattice_api::node::{ActOnNode, NodeActionAnswer, NodeVerb, UsualTime};
use lattice_core::change::Change;
use lattice_core::command::drain::{self, Deadline, Drain, Redrain};
use lattice_core::command::node::{self as commands, Known, ResumeNode};
use lattice_core::command::{Planned, Refused, Request, secure_erase, wipe};
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::JobId;
use lattice_core::job::{OperatorAction, StageName};
use lattice_core::node::availability::Effect;
use lattice_core::node::{Node, NodeState};
use lattice_core::site::{Site, SiteProfile, SiteProvider};

use super::extract::{Committed, Write};
use super::jobs;
use super::node_view::millis;
use super::nodes::present;
use super::onboardings::profile_of;
use super::rows::{NodeFile, find_node};
use super::{App, allocations};
use crate::error::{Answer, Refusal};

/// `POST /nodes/{id}/{verb}`.
pub async fn act(
    State(app): State<App>,
    Path((node, verb)): Path<(String, String)>,
    write: Write<ActOnNode>,
) -> Answer<Json<NodeActionAnswer>> {
    let verb = parse(&verb)?;
    check_fields(verb, &write.body)?;
    let node = find_node(&app, &node).await?;
    if write.earlier.is_some() {
        return repeated(&app, &node, write.earlier.as_ref().and_then(|earlier| earlier.job)).await;
    }
    write.check_version(node.generation)?;
    if needs_health(verb) && app.registry.stands_by() {
        return Err(stands_by(&app, verb, &node));
    }
    let file = NodeFile::open(&app, node, write.at).await?;
    let request = write.request(&*app.ids, &write.body.reason);
    let profile = profile_meant(&app, verb, &file.site, &write.body).await?;
    let image = commands::Image { name: write.body.image.as_deref(), profile: profile.as_ref() };
    let (planned, how, words) = match plan(verb, &file.known(), &request, (&write.body, image), &|| app.nonce())? {
        Plan::Commit(planned) => (*planned, how(&write.body), Vec::new()),
        Plan::Redrain(changed) => (changed.planned, changed.how, changed.words),
        Plan::Live(job) => return unchanged(&app, &file.node, Some(job)).await,
        Plan::ActOnJob(job, action) => return act_on_job(&app, &write, &file.node, (job, action)).await,
    };
    let impacts = allocations::impacts(verb, how, &file.placed, write.at);
    let mut answer = carry_out(&app, verb, &write, &file.node, planned, impacts).await?;
    answer.effects.splice(0..0, words);
    if verb == NodeVerb::Wipe {
        answer.effects.extend(WIPE.map(str::to_owned));
    }
    Ok(answer)
}

/// Whether it is judged by what the node's agent said last.
const fn needs_health(verb: NodeVerb) -> bool {
    match verb {
        NodeVerb::Undrain | NodeVerb::Enable | NodeVerb::Recover | NodeVerb::Reactivate => true,
        NodeVerb::Drain
        | NodeVerb::Disable
        | NodeVerb::Reboot
        | NodeVerb::Reset
        | NodeVerb::Reimage
        | NodeVerb::Quarantine
        | NodeVerb::Retire
        | NodeVerb::Remove
        | NodeVerb::Resume
        | NodeVerb::Withdraw
        | NodeVerb::SecureErase
        | NodeVerb::Wipe => false,
    }
}

/// How a node is, the server knows that hears the agents.
fn stands_by(app: &App, verb: NodeVerb, node: &Node) -> Refusal {
    let at = app.registry.elsewhere().map_or_else(String::new, |at| format!("; agents reach it at {at}"));
    Refusal::new(Code::StandsBy, format!("this server stands by: how {} is, it does not know", node.hostname))
        .because(format!("`{verb}` needs a health check that passes, and another server hears the agents{at}"))
        .next(NextAction::Fix { what: "ask that server: its `/readyz` says `hears_agents`".to_owned() })
}

/// The profile of a MAAS site that a reimage names, or the default one.
async fn profile_meant(app: &App, verb: NodeVerb, site: &Site, body: &ActOnNode) -> Answer<Option<SiteProfile>> {
    match (verb, &site.provider) {
        (NodeVerb::Reimage, SiteProvider::Maas(_)) => profile_of(app, site, "image", body.image.as_deref()).await,
        (_, _) => Ok(None),
    }
}

/// What a wipe does, in words.
const WIPE: [&str; 4] = [
    "it gets no new work, and what runs on it ends first",
    "its agent clears the memory of its GPUs, erases its NVMe drives and overwrites its memory, each with evidence",
    "it restarts, and its health check passes",
    "each device gets a signed certificate, and the node is given back",
];

fn parse(verb: &str) -> Answer<NodeVerb> {
    verb.parse().map_err(|_| {
        use strum::VariantArray;
        let known: Vec<String> = NodeVerb::VARIANTS.iter().map(ToString::to_string).collect();
        let given: String = verb.chars().take(40).collect();
        Refusal::new(Code::NotFound, format!("a node has no verb `{given}`"))
            .because(format!("it has {}", known.join(", ")))
            .next(NextAction::Fix { what: "see /api/v1/openapi.json".to_owned() })
    })
}

/// Fields that only one verb takes are refused on the others: ignoring them would not do what was asked.
fn check_fields(verb: NodeVerb, body: &ActOnNode) -> Answer<()> {
    if body.urgent.is_some() && verb != NodeVerb::Drain {
        return Err(Refusal::malformed("urgent", format!("is only for `drain`, not for `{verb}`")));
    }
    if body.deadline_ms.is_some() && verb != NodeVerb::Drain {
        return Err(Refusal::malformed("deadline_ms", format!("is only for `drain`, not for `{verb}`")));
    }
    if body.no_deadline.is_some() && verb != NodeVerb::Drain {
        return Err(Refusal::malformed("no_deadline", format!("is only for `drain`, not for `{verb}`")));
    }
    if body.no_deadline == Some(true) && body.deadline_ms.is_some() {
        return Err(Refusal::malformed("no_deadline", "stands beside `deadline_ms`: give one of them"));
    }
    if body.force.is_some() && verb != NodeVerb::Wipe {
        return Err(Refusal::malformed("force", format!("is only for `wipe`, not for `{verb}`")));
    }
    if body.disposal.is_some() && verb != NodeVerb::Retire {
        return Err(Refusal::malformed("disposal", format!("is only for `retire`, not for `{verb}`")));
    }
    if body.drives.is_some() && verb != NodeVerb::SecureErase {
        return Err(Refusal::malformed("drives", format!("is only for `secure-erase`, not for `{verb}`")));
    }
    if body.powered_on.is_some() && verb != NodeVerb::SecureErase {
        return Err(Refusal::malformed("powered_on", format!("is only for `secure-erase`, not for `{verb}`")));
    }
    if body.boot.is_some() && verb != NodeVerb::Reboot {
        return Err(Refusal::malformed("boot", format!("is only for `reboot`, not for `{verb}`")));
    }
    if body.image.is_some() && verb != NodeVerb::Reimage {
        return Err(Refusal::malformed("image", format!("is only for `reimage`, not for `{verb}`")));
    }
    Ok(())
}

fn how(body: &ActOnNode) -> Drain {
    let deadline = match (body.deadline_ms, body.no_deadline) {
        (Some(after), _) => Deadline::After(Duration::from_millis(after)),
        (None, Some(true)) => Deadline::Never,
        (None, Some(false) | None) => Deadline::Unsaid,
    };
    Drain { urgent: body.urgent.unwrap_or(false), deadline }
}

enum Plan {
    Commit(Box<Planned>),
    Redrain(Box<drain::Changed>),
    Live(JobId),
    ActOnJob(JobId, OperatorAction),
}

impl Plan {
    /// What asking for a job again came to; `again` is what a job that failed is asked.
    fn of(asked: ResumeNode, again: OperatorAction) -> Self {
        match asked {
            ResumeNode::Live(job) => Self::Live(job),
            ResumeNode::Job(job) => Self::ActOnJob(job, again),
            ResumeNode::Created(planned) => Self::Commit(planned),
        }
    }
}

fn plan(
    verb: NodeVerb,
    known: &Known,
    request: &Request,
    (body, image): (&ActOnNode, commands::Image<'_>),
    nonces: &dyn Fn() -> [u8; 16],
) -> Result<Plan, Refused> {
    let planned = match verb {
        NodeVerb::Drain => match drain::redrain(known, request, how(body), nonces)? {
            Some(Redrain::AlreadySo(job)) => return Ok(Plan::Live(job)),
            Some(Redrain::Changed(changed)) => return Ok(Plan::Redrain(changed)),
            None => drain::drain(known, request, how(body), nonces),
        },
        NodeVerb::Undrain => commands::undrain(known, request),
        NodeVerb::Disable => commands::disable(known, request),
        NodeVerb::Enable => commands::enable(known, request),
        NodeVerb::Reboot => commands::reboot(known, request, body.boot),
        NodeVerb::Reset => commands::reset(known, request),
        NodeVerb::Reimage => commands::reimage(known, request, image),
        NodeVerb::SecureErase => {
            let (drives, powered_on) = (body.drives.as_deref().unwrap_or_default(), body.powered_on.unwrap_or(false));
            secure_erase::secure_erase(known, request, drives, powered_on)
        }
        NodeVerb::Quarantine => commands::quarantine(known, request),
        NodeVerb::Recover => commands::recover(known, request),
        NodeVerb::Retire => commands::retire(known, request, body.disposal.unwrap_or_default()),
        NodeVerb::Reactivate => commands::reactivate(known, request),
        NodeVerb::Remove => commands::remove(known, request),
        NodeVerb::Withdraw => commands::withdraw(known, request),
        NodeVerb::Resume => {
            return Ok(Plan::of(commands::resume(known, request)?, OperatorAction::Resume));
        }
        NodeVerb::Wipe => {
            let urge = if body.force == Some(true) { wipe::Urge::Forced } else { wipe::Urge::AsDue };
            return Ok(Plan::of(wipe::asked(known, request, urge)?, OperatorAction::RestartClean));
        }
    }?;
    Ok(Plan::Commit(Box::new(planned)))
}

async fn carry_out(
    app: &App,
    verb: NodeVerb,
    write: &Write<ActOnNode>,
    before: &Node,
    planned: Planned,
    allocations: Vec<AllocationImpact>,
) -> Answer<Json<NodeActionAnswer>> {
    let after = state_after(&planned, before.state);
    let effects = planned.effects.iter().map(|effect| in_words(*effect).to_owned()).collect();
    let is_dry = write.body.dry_run.unwrap_or(false);
    let job_id = planned.job.filter(|_| !is_dry);
    if !is_dry {
        match write.commit(app, planned.commit).await? {
            Committed::Now => {}
            Committed::Earlier(earlier) => return repeated(app, before, earlier.job).await,
        }
        if let Some(job) = planned.job.or(before.owning_job) {
            (app.wake)(job);
        }
    }
    let node = present(app, before.id).await?;
    let usually = if verb == NodeVerb::Drain { usual_drain(app, before).await? } else { None };
    let (before, changed) = (before.state, !is_dry);
    Ok(Json(NodeActionAnswer { changed, before, after, effects, allocations, usually, job_id, node }))
}

/// How long nodes of the same SKU have taken to be empty.
async fn usual_drain(app: &App, node: &Node) -> Answer<Option<UsualTime>> {
    let times = app.store.stage_times(&[StageName::WaitForDrained], Some(&node.sku)).await?;
    Ok(times.first().map(|times| UsualTime {
        p50_ms: millis(times.p50),
        p95_ms: millis(times.p95),
        runs: times.runs as u64,
    }))
}

fn state_after(planned: &Planned, before: NodeState) -> NodeState {
    let changed = planned
        .commit
        .changes
        .iter()
        .find_map(|change| if let Change::Node(change) = change { Some(change.after.state) } else { None });
    changed.unwrap_or(before)
}

/// The node's job failed: it is that job that is asked to go on, or to begin anew.
async fn act_on_job(
    app: &App,
    write: &Write<ActOnNode>,
    node: &Node,
    (job, action): (JobId, OperatorAction),
) -> Answer<Json<NodeActionAnswer>> {
    if write.body.dry_run == Some(true) {
        return unchanged(app, node, Some(job)).await;
    }
    let asked = lattice_core::command::job::Asked {
        action,
        decisions: lattice_core::job::Decisions::default(),
        observed: None,
    };
    let changed = jobs::carry_out(app, write, &write.body.reason, job, &asked).await?;
    let view = present(app, node.id).await?;
    let after = NodeState::new(view.row.status, view.row.availability);
    let answer = NodeActionAnswer {
        changed,
        before: node.state,
        after,
        effects: Vec::new(),
        allocations: Vec::new(),
        usually: None,
        job_id: Some(job),
        node: view,
    };
    Ok(Json(answer))
}

async fn unchanged(app: &App, node: &Node, job: Option<JobId>) -> Answer<Json<NodeActionAnswer>> {
    let view = present(app, node.id).await?;
    let answer = NodeActionAnswer {
        changed: false,
        before: node.state,
        after: node.state,
        effects: Vec::new(),
        allocations: Vec::new(),
        usually: None,
        job_id: job,
        node: view,
    };
    Ok(Json(answer))
}

/// A repeat of a request that was carried out: it changed the node then, and changes nothing now.
async fn repeated(app: &App, node: &Node, job: Option<JobId>) -> Answer<Json<NodeActionAnswer>> {
    let mut answer = unchanged(app, node, job).await?;
    answer.changed = true;
    Ok(answer)
}

const fn in_words(effect: Effect) -> &'static str {
    match effect {
        Effect::StartDeadline => "a boot deadline starts",
        Effect::Alert => "operators are alerted",
        Effect::BmcCheck => "the provider is asked for an out-of-band check",
        Effect::ReleaseOwnership => "its ownership is released",
        Effect::EvaluateRequeue => "its allocations are requeued or failed, by their policy",
        Effect::RequestCheckpoint => "checkpointable allocations are asked to checkpoint",
        Effect::SetDrainIntent => "recovery ends in drained from now on",
        Effect::ClearDrainIntent => "recovery ends in ready again",
        Effect::BootAgain => "its boot is tried again",
        Effect::ProviderBoots => "its provider boots the assigned image",
        Effect::Deprioritise => "it is placed last",
        Effect::HoldDisabled => "the hold `disabled` is set",
        Effect::ClearDisabled => "the hold `disabled` is cleared",
        Effect::HoldWipeFailed => "the hold `wipe_failed` is set",
    }
}
