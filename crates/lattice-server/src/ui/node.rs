//! A node: where it stands, why it is not schedulable, what happened to it, what may be asked of it.

use std::collections::BTreeMap;

use askama::Template;
use lattice_api::allocation::AllocationRow;
use lattice_api::bmc::BmcView;
use lattice_api::explanation::Reason;
use lattice_api::hold::HoldView;
use lattice_api::node::NodeVerb;
use lattice_api::node::{NodeView, SaidHealth, TimelineEntry};
use lattice_api::silence::SilenceView;
use lattice_api::task::TaskRow;
use lattice_core::job::JobKind;
use lattice_core::node::{Availability, HoldKind};

use super::action::{Button, Remedy, boot_from_button, clear_hold_button, drain_until_button, node_button};
use super::job::{JobParts, JobSection};
use super::shell::Shell;
use super::silences::SilenceLine;
use super::wipe::{WipePanel, WipeParts};
use super::words::{Tone, of_availability, of_status};
use super::work::{BmcPanel, TasksPanel, WorkPanel};

/// Rows of the timeline that are open at once.
const OPEN_ROWS: usize = 30;

/// The page of one node.
#[derive(Template)]
#[template(path = "node.html", blocks = ["main"])]
pub struct NodePage {
    shell: Shell,
    node: NodeView,
    timeline: Vec<TimelineEntry>,
    older: Vec<TimelineEntry>,
    job: Option<JobSection>,
    remedies: Vec<Remedy>,
    holds: Vec<HoldLine>,
    silences: Vec<SilenceLine>,
    buttons: Vec<Button>,
    work: WorkPanel,
    tasks: TasksPanel,
    bmc: Option<BmcPanel>,
    wipe: Option<WipePanel>,
}

/// What else a node's page is made from, as the API answers it.
pub struct NodeParts {
    /// Its timeline, newest first.
    pub timeline: Vec<TimelineEntry>,
    /// The job that owns it, or the last one.
    pub job: Option<JobParts>,
    /// What is placed on it, and whether there is more.
    pub placed: (Vec<AllocationRow>, bool),
    /// The newest tasks of its agent.
    pub tasks: Vec<TaskRow>,
    /// Its BMC.
    pub bmc: Option<BmcView>,
    /// Its last wipe.
    pub wipe: Option<WipeParts>,
    /// The silences that cover it.
    pub silences: Vec<SilenceView>,
}

/// What can be asked of it: the verbs of its states, what to start from where a BMC can be told, and a deadline for a drain
/// that begins or runs.
fn buttons(node: &NodeView, has_bmc: bool, job: Option<&JobParts>, shell: &Shell) -> Vec<Button> {
    let hostname = &node.row.hostname;
    let mut buttons: Vec<Button> = node.verbs.iter().map(|verb| node_button(*verb, hostname, shell)).collect();
    if has_bmc && node.verbs.contains(&NodeVerb::Reboot) {
        buttons.push(boot_from_button(hostname, shell));
    }
    let is_drained_by = |job: &JobParts| job.view.row.kind == JobKind::Drain && job.view.row.status.is_live();
    if node.verbs.contains(&NodeVerb::Drain) {
        buttons.push(drain_until_button("Drain with a deadline", hostname, shell));
    } else if job.is_some_and(is_drained_by) {
        buttons.push(drain_until_button("Set the drain’s deadline", hostname, shell));
    }
    buttons
}

struct HoldLine {
    view: HoldView,
    button: Option<Button>,
}

impl NodePage {
    /// The page of these answers.
    pub fn of(shell: Shell, mut node: NodeView, parts: NodeParts) -> Self {
        let NodeParts { mut timeline, job, placed: (placed, more), tasks, bmc, wipe, silences } = parts;
        let drained = node.row.availability == Availability::Draining;
        let older = timeline.split_off(timeline.len().min(OPEN_ROWS));
        let disks = job.as_ref().map(|job| job.disks.clone()).unwrap_or_default();
        let remedies = Remedy::all(&node.explanation.next_actions, &shell);
        let hostname = node.row.hostname.clone();
        let line = |view: HoldView| HoldLine {
            button: (view.manual && view.job.is_none()).then(|| clear_hold_button(&hostname, view.kind, &shell)),
            view,
        };
        Self {
            holds: std::mem::take(&mut node.hold_details).into_iter().map(line).collect(),
            silences: silences.iter().map(|silence| SilenceLine::of(silence, &shell)).collect(),
            remedies: remedies.into_iter().map(|remedy| remedy.choices(&disks)).collect(),
            buttons: buttons(&node, bmc.is_some(), job.as_ref(), &shell),
            job: job.map(|parts| JobSection::of(parts, &shell)),
            work: WorkPanel::of(&shell, &hostname, drained, placed, more),
            tasks: TasksPanel::of(&hostname, tasks),
            bmc: bmc.map(|view| BmcPanel::of(&shell, view)),
            wipe: wipe.map(|parts| WipePanel::of(&shell, parts)),
            node,
            timeline,
            older,
            shell,
        }
    }

    /// A failure stands over both states.
    fn tone(&self) -> Tone {
        let row = &self.node.row;
        match (self.node.explanation.failure_class, of_status(&row.status), of_availability(&row.availability)) {
            (Some(_), _, _) | (None, Tone::Bad, _) | (None, _, Tone::Bad) => Tone::Bad,
            (None, Tone::Info, _) => Tone::Info,
            (None, Tone::Ok | Tone::Warn | Tone::Off, _) => Tone::Warn,
        }
    }

    fn headline(&self) -> String {
        let summary = &self.node.explanation.summary;
        let mut letters = summary.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    }

    /// The reason that the headline names: only who and how long is left to say of it.
    fn first_reason(&self) -> Option<&Reason> {
        let said = &self.node.explanation;
        said.because.first().filter(|reason| said.summary.contains(&reason.fact))
    }

    fn other_reasons(&self) -> &[Reason] {
        let all = self.node.explanation.because.as_slice();
        if self.first_reason().is_some() { &all[1..] } else { all }
    }

    /// `8 of 8 GPUs, hottest 71 °C, no uncorrectable memory errors`.
    fn said(&self, said: &SaidHealth) -> Vec<String> {
        let gpus = match self.node.health.gpus_expected {
            Some(expected) => format!("{} of {expected} GPUs", said.gpus),
            None => format!("{} GPUs", said.gpus),
        };
        let mut parts = vec![gpus];
        parts.extend(said.max_temperature_c.map(|celsius| format!("hottest {celsius} °C")));
        parts.push(match said.ecc_uncorrected {
            0 => "no uncorrectable memory errors".to_owned(),
            1 => "1 uncorrectable memory error".to_owned(),
            many => format!("{many} uncorrectable memory errors"),
        });
        if said.minor_issue && self.node.minor_issue.is_none() {
            parts.push("its agent reports a minor issue".to_owned());
        }
        parts
    }

    /// What new work a node gets whose fingerprint is not approved.
    fn drifted(&self) -> &'static str {
        if self.node.row.holds.contains(&HoldKind::ConformanceDrift) { "nothing" } else { "work last" }
    }

    /// `8 × amd MI300X, 2.0 TiB RAM, 4 × 400G, 2 disks`.
    fn inventory(&self) -> String {
        let Some(host) = &self.node.host else { return "not reported yet".to_owned() };
        let mut gpus: BTreeMap<String, usize> = BTreeMap::new();
        for gpu in &host.gpus {
            *gpus.entry(format!("{} {}", gpu.vendor, gpu.model)).or_default() += 1;
        }
        let mut speeds: BTreeMap<u32, usize> = BTreeMap::new();
        for nic in &host.nics {
            *speeds.entry(nic.speed_mbps).or_default() += 1;
        }
        let mut parts: Vec<String> = gpus.iter().map(|(model, many)| format!("{many} × {model}")).collect();
        parts.push(format!("{} CPUs", host.cpus));
        parts.push(format!("{} GiB memory", host.memory_mib / 1_024));
        parts.extend(speeds.iter().rev().map(|(mbps, many)| match mbps {
            0 => format!("{many} interfaces of unknown speed"),
            _ => format!("{many} × {} Gbit/s", mbps.div_ceil(1_000)),
        }));
        parts.extend(host.disks.iter().map(|disk| format!("{} {}", disk.name, disk.model)));
        parts.push(host.os.clone());
        parts.push(host.kernel.clone());
        parts.retain(|part| !part.trim().is_empty());
        parts.join(", ")
    }
}
