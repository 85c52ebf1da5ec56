//! A node: where it stands, why it is not schedulable, what happened to it, what may be asked of it.

use std::collections::BTreeMap;

use askama::Template;
use lattice_api::explanation::Reason;
use lattice_api::hold::HoldView;
use lattice_api::node::{NodeView, TimelineEntry};

use super::action::{Button, Remedy, clear_hold_button, node_button};
use super::job::{JobParts, JobSection};
use super::shell::Shell;
use super::words::{Tone, of_availability, of_status};

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
    buttons: Vec<Button>,
}

struct HoldLine {
    view: HoldView,
    button: Option<Button>,
}

impl NodePage {
    /// The page of these answers; `job` is the job that owns the node, or the last one.
    pub fn of(shell: Shell, mut node: NodeView, mut timeline: Vec<TimelineEntry>, job: Option<JobParts>) -> Self {
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
            remedies: remedies.into_iter().map(|remedy| remedy.choices(&disks)).collect(),
            buttons: node.verbs.iter().map(|verb| node_button(*verb, &hostname, &shell)).collect(),
            job: job.map(|parts| JobSection::of(parts, &shell)),
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
