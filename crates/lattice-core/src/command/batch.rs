//! Batches of onboardings: created whole or not at all, paused, resumed and cancelled. spec: S5 4.1, 4.4

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::create::{self, MaasMachine, NewNode};
use super::{Refused, Request};
use crate::batch::{self, Batch, BatchCause, BatchChange, BatchControl, BatchStatus, Children, MACHINES_MAX};
use crate::change::{Change, Commit};
use crate::ids::{BatchId, Generation, JobId, NodeId};
use crate::node::NodeClass;
use crate::site::{Site, SiteProfile, SiteProvider};
use crate::sku::Sku;

/// Machines that are to become nodes together.
#[derive(Debug, Clone)]
pub struct NewBatch<'a> {
    /// Where.
    pub site: &'a Site,
    /// What kind of machines.
    pub sku: &'a Sku,
    /// Profile of their onboardings; none: the site's own settings.
    pub profile: Option<&'a SiteProfile>,
    /// Their default class.
    pub class: NodeClass,
    /// So many at once, if that is less than the site's policy allows.
    pub max_parallel: Option<u32>,
    /// Which machines; their place in this list names them in refusals.
    pub machines: Vec<NewMachine>,
}

/// One machine of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMachine {
    /// Hostname to give.
    pub hostname: String,
    /// Address of its BMC; MAAS sites need it.
    pub ipmi_ip: Option<String>,
}

/// What is in use already.
#[derive(Debug, Clone, Default)]
pub struct InUse {
    /// Nodes by hostname.
    pub hostnames: HashMap<String, NodeId>,
    /// Hostnames of the site's nodes by BMC address.
    pub bmc_addresses: HashMap<String, String>,
}

/// A batch that was decided.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedBatch {
    /// To be committed as it is: all of it, or nothing.
    pub commit: Commit,
    /// The batch.
    pub batch: BatchId,
    /// Its children, in the order asked for.
    pub children: Vec<PlannedChild>,
}

/// One child of a batch that was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChild {
    /// Hostname.
    pub hostname: String,
    /// Its onboarding.
    pub job: JobId,
    /// Its node.
    pub node: NodeId,
}

/// Why a batch is not created; nothing of it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchRefused {
    /// The request as a whole.
    Whole(Refused),
    /// Fields of it, every one that is wrong.
    Fields(Vec<WrongField>),
}

/// One wrong field of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongField {
    /// Its path: `nodes[3].ipmi_ip`.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
    /// Whether somebody else has the name or address.
    pub taken: bool,
}

/// Decides a batch: every machine is checked before anything is written, and every wrong field is named.
///
/// # Errors
/// [`BatchRefused::Whole`] for a disabled site, a site of another kind, or a wrong number of machines;
/// [`BatchRefused::Fields`] with all that is wrong with single machines.
pub fn create(request: &Request, new: &NewBatch, in_use: &InUse) -> Result<PlannedBatch, BatchRefused> {
    check_whole(new)?;
    let id = BatchId::generate(request.ids, request.now);
    let mut wrong = Vec::new();
    let mut seen = Seen::default();
    let (mut guards, mut changes, mut children) = (Vec::new(), Vec::new(), Vec::new());
    for (place, machine) in new.machines.iter().enumerate() {
        let planned = match one(request, new, machine, id) {
            Ok(planned) => planned,
            Err(Refused::Invalid { field, problem }) => {
                wrong.push(WrongField { field: at(place, field), problem, taken: false });
                continue;
            }
            Err(refused) => return Err(BatchRefused::Whole(refused)),
        };
        let (hostname, address) = names(&planned.commit);
        wrong.extend(seen.take(place, &hostname, address.as_deref(), in_use));
        guards.extend(planned.commit.guards);
        changes.extend(planned.commit.changes);
        let job = planned.job.expect("an onboarding has a job");
        children.push(PlannedChild { hostname, job, node: planned.node });
    }
    if !wrong.is_empty() {
        return Err(BatchRefused::Fields(wrong));
    }
    // The batch's own event is the last of the commit: a repeat of the request finds it there.
    changes.push(Change::Batch(Box::new(created(request, new, id))));
    Ok(PlannedBatch { commit: request.commit(guards, changes), batch: id, children })
}

fn check_whole(new: &NewBatch) -> Result<(), BatchRefused> {
    let invalid = |field, problem| Err(BatchRefused::Whole(Refused::Invalid { field, problem }));
    let count = new.machines.len();
    if count == 0 || count > MACHINES_MAX {
        return invalid("nodes", format!("must name 1 to {MACHINES_MAX} machines, not {count}"));
    }
    if new.max_parallel == Some(0) {
        return invalid("max_parallel", "must be at least 1; pause the batch to start nothing".to_owned());
    }
    Ok(())
}

fn one(request: &Request, new: &NewBatch, machine: &NewMachine, batch: BatchId) -> Result<super::Planned, Refused> {
    let node = NewNode {
        site: new.site,
        sku: new.sku,
        hostname: machine.hostname.clone(),
        class: new.class,
        batch: Some(batch),
    };
    match &new.site.provider {
        SiteProvider::Maas(_) => {
            let ipmi_ip = machine.ipmi_ip.as_deref().ok_or_else(|| Refused::Invalid {
                field: "ipmi_ip",
                problem: "is needed at a MAAS site: the address of the machine's BMC".to_owned(),
            })?;
            create::maas(request, &node, MaasMachine { ipmi_ip, pxe_mac: None, profile: new.profile })
        }
        SiteProvider::Lxd(_) if machine.ipmi_ip.is_some() => Err(Refused::Invalid {
            field: "ipmi_ip",
            problem: "has no meaning at an LXD site: instances have no BMC".to_owned(),
        }),
        SiteProvider::Lxd(_) => create::lxd(request, &node),
        SiteProvider::Openchami(_) => {
            let bmc_address = machine.ipmi_ip.as_deref();
            create::openchami(request, &node, create::OpenchamiMachine { bmc_address, ..Default::default() })
        }
        SiteProvider::Manual => Err(Refused::WrongSiteKind {
            site: new.site.name.clone(),
            kind: "manual",
            needed: "maas, lxd or openchami",
        }),
    }
}

/// Hostname and BMC address as they will be stored.
fn names(commit: &Commit) -> (String, Option<String>) {
    let node = commit.changes.iter().find_map(|change| if let Change::Node(node) = change { Some(node) } else { None });
    let node = &node.expect("an onboarding creates its node").after;
    (node.hostname.clone(), node.bmc_address.clone())
}

fn at(place: usize, field: &str) -> String {
    format!("nodes[{place}].{field}")
}

/// Names and addresses of the machines before, by their places.
#[derive(Default)]
struct Seen {
    hostnames: HashMap<String, usize>,
    addresses: HashMap<String, usize>,
}

impl Seen {
    fn take(&mut self, place: usize, hostname: &str, address: Option<&str>, in_use: &InUse) -> Vec<WrongField> {
        let mut wrong = Vec::new();
        if let Some(first) = self.hostnames.insert(hostname.to_owned(), place) {
            wrong.push(twice(place, "hostname", hostname, first));
        } else if let Some(node) = in_use.hostnames.get(hostname) {
            let problem = format!("{hostname} is taken by node {node}");
            wrong.push(WrongField { field: at(place, "hostname"), problem, taken: true });
        }
        let Some(address) = address else { return wrong };
        if let Some(first) = self.addresses.insert(address.to_owned(), place) {
            wrong.push(twice(place, "ipmi_ip", address, first));
        } else if let Some(other) = in_use.bmc_addresses.get(address) {
            let problem = format!("{address} is the BMC of {other} already");
            wrong.push(WrongField { field: at(place, "ipmi_ip"), problem, taken: true });
        }
        wrong
    }
}

fn twice(place: usize, field: &str, value: &str, first: usize) -> WrongField {
    let problem = format!("{value} stands in nodes[{first}] already");
    WrongField { field: at(place, field), problem, taken: false }
}

fn created(request: &Request, new: &NewBatch, id: BatchId) -> BatchChange {
    let machines = new.machines.len() as u64;
    let after = Batch {
        id,
        site: new.site.id,
        sku: new.sku.name.clone(),
        profile: new.profile.map(|profile| profile.name.clone()),
        profile_parallel: new.profile.map(|profile| profile.settings.policy.batch_max_parallel),
        machines,
        max_parallel: new.max_parallel,
        control: BatchControl::Run,
        control_by: request.actor.clone(),
        control_since: request.now,
        status: BatchStatus::Pending,
        status_since: request.now,
        requested_by: request.actor.clone(),
        reason: request.reason.clone(),
        correlation: request.correlation,
        created_at: request.now,
        started_at: None,
        finished_at: None,
        updated_at: request.now,
        generation: Generation::FIRST,
    };
    let children = Children { pending: machines, ..Children::default() };
    BatchChange { after, before: None, cause: BatchCause::Created, children }
}

/// What an operator asks of a batch.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BatchAction {
    /// Start no further child; those that run go on.
    Pause,
    /// Start children again.
    Resume,
    /// Cancel every child that is not over, and undo as far as each one's rule says.
    Cancel,
}

impl BatchAction {
    const fn leads_to(self) -> (BatchControl, BatchCause) {
        match self {
            Self::Pause => (BatchControl::Pause, BatchCause::Paused),
            Self::Resume => (BatchControl::Run, BatchCause::Resumed),
            Self::Cancel => (BatchControl::Cancel, BatchCause::CancelRequested),
        }
    }

    /// Whether it changes a batch with that control and status; none: it is so already.
    pub fn allowed(self, control: BatchControl, status: BatchStatus) -> Option<bool> {
        let (wanted, _) = self.leads_to();
        if wanted == control {
            return None;
        }
        Some(!status.is_terminal() && control != BatchControl::Cancel)
    }
}

/// Decides an operator's action; none when it is so already.
///
/// # Errors
/// [`Refused::BatchOver`]: the batch is over, or cancelled.
pub fn control(
    request: &Request,
    batch: &Batch,
    children: &Children,
    asked: BatchAction,
) -> Result<Option<Commit>, Refused> {
    let status = batch::status(batch.control, children);
    match asked.allowed(batch.control, status) {
        None => return Ok(None),
        Some(false) => return Err(Refused::BatchOver { batch: batch.id, status, asked }),
        Some(true) => {}
    }
    let (control, cause) = asked.leads_to();
    let now = request.now;
    let status = batch::status(control, children);
    let after = Batch {
        control,
        control_by: request.actor.clone(),
        control_since: now,
        status,
        status_since: if status == batch.status { batch.status_since } else { now },
        finished_at: status.is_terminal().then_some(now),
        updated_at: now,
        generation: batch.generation.next(),
        ..batch.clone()
    };
    let change = BatchChange { after, before: Some(batch.status), cause, children: *children };
    Ok(Some(request.commit(Vec::new(), vec![Change::Batch(Box::new(change))])))
}
