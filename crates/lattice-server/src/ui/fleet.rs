//! The fleet: counts, what needs attention, the nodes, a map, work in progress.

use std::collections::BTreeMap;

use askama::Template;
use lattice_api::explanation::Subject;
use lattice_api::fleet::{Fleet, Incident};
use lattice_api::job::{JobView, StageProgress};
use lattice_api::node::{NodeQuery, NodeRow};
use lattice_core::ids::JobId;
use lattice_core::job::{JobKind, StageName};
use lattice_core::node::{Availability, Status};
use strum::VariantArray;

use super::action::{Button, Remedy};
use super::shell::{Shell, given};
use super::silences::{Silenced, silence_button};
use super::words::{Tone, When, lasting, of_availability, of_severity, of_status};

/// Names that an incident spells out; more are counted.
const NAMED_SUBJECTS: usize = 8;

/// Most nodes that the map draws: a square takes 100 bytes, and nobody tells more of them apart.
pub const MAP_NODES: u32 = 1_000;

/// Jobs shown as in progress; more are linked.
pub const PROGRESS_JOBS: u32 = 6;

/// What the fleet page is made of, as the API answers it.
pub struct FleetParts {
    /// Counts and incidents.
    pub fleet: Fleet,
    /// The rows of the table.
    pub nodes: Vec<NodeRow>,
    /// Where the next page of it begins.
    pub next: Option<String>,
    /// The nodes of the map.
    pub mapped: Vec<NodeRow>,
    /// Whether there are more than those.
    pub map_cut: bool,
    /// Names of all sites.
    pub sites: Vec<String>,
    /// Jobs that move.
    pub moving: Vec<JobView>,
    /// Whether there are more than those.
    pub moving_cut: bool,
}

/// The page.
#[derive(Template)]
#[template(path = "fleet.html", blocks = ["main"])]
pub struct FleetPage {
    shell: Shell,
    fleet: Fleet,
    tiles: Vec<Tile>,
    incidents: Vec<Card>,
    silenced: Silenced,
    filter: Filter,
    statuses: Vec<Choice>,
    availabilities: Vec<Choice>,
    sites: Vec<Choice>,
    nodes: Vec<NodeRow>,
    next: Option<String>,
    map: Vec<MapSite>,
    map_cut: bool,
    progress: Vec<Progress>,
    progress_more: bool,
}

struct Tile {
    status: Status,
    tone: Tone,
    nodes: u64,
    href: String,
    here: bool,
}

/// An incident, as it is shown.
pub struct Card {
    /// Tells it apart from the others.
    pub key: String,
    /// How urgent.
    pub tone: Tone,
    /// What is the matter.
    pub title: String,
    mark: String,
    /// What shows it, but for what the title says.
    pub evidence: Vec<String>,
    /// Since when.
    pub since: When,
    /// What it is about, the first of them.
    pub subjects: Vec<SubjectLink>,
    /// How many more it is about.
    pub more: u64,
    /// The one thing to do.
    pub remedy: Remedy,
    silence: Option<Button>,
}

/// Something that an incident is about.
pub struct SubjectLink {
    /// Its page.
    pub href: String,
    /// Its name.
    pub name: String,
}

struct MapSite {
    name: String,
    squares: Vec<Square>,
}

struct Square {
    hostname: String,
    class: &'static str,
    words: String,
}

struct Progress {
    id: JobId,
    kind: JobKind,
    hostname: String,
    stage: StageName,
    done: usize,
    total: usize,
    since: When,
}

/// One entry of a list to choose from.
pub struct Choice {
    /// Its word.
    pub word: String,
    /// Whether it is chosen.
    pub here: bool,
}

/// What the table is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Filter {
    /// How the name begins.
    pub q: String,
    /// Inventory status; empty: any.
    pub status: String,
    /// Availability; empty: any.
    pub availability: String,
    /// Site; empty: any.
    pub site: String,
    /// Where the page begins.
    pub cursor: String,
}

impl Filter {
    /// Whether it leaves anything out.
    pub fn is_set(&self) -> bool {
        [&self.q, &self.status, &self.availability, &self.site].iter().any(|field| !field.is_empty())
    }

    /// The same question to the API. A word that is no state asks for nothing.
    pub fn query(&self) -> NodeQuery {
        NodeQuery {
            cursor: given(&self.cursor),
            status: self.status.parse().ok(),
            availability: self.availability.parse().ok(),
            site: given(&self.site),
            hostname_prefix: given(&self.q),
            ..NodeQuery::default()
        }
    }

    /// The address of the page that shows it from there.
    fn href(&self, cursor: &str) -> String {
        let fields = [
            ("q", self.q.as_str()),
            ("status", &self.status),
            ("availability", &self.availability),
            ("site", &self.site),
            ("cursor", cursor),
        ];
        format!("/ui/{}", super::shell::query(&fields))
    }
}

impl FleetPage {
    /// The page of these answers.
    pub fn of(shell: Shell, filter: Filter, parts: FleetParts) -> Self {
        Self {
            tiles: tiles(&parts.fleet, &filter),
            incidents: parts.fleet.attention.iter().map(|incident| card(incident, &shell)).collect(),
            silenced: Silenced::of(&parts.fleet, &shell),
            statuses: choices(Status::VARIANTS.iter().filter(|status| **status != Status::Deleted), &filter.status),
            availabilities: choices(Availability::VARIANTS, &filter.availability),
            sites: choices(&parts.sites, &filter.site),
            next: parts.next.map(|cursor| filter.href(&cursor)),
            map: map(&parts.mapped),
            map_cut: parts.map_cut,
            progress: parts.moving.iter().map(|job| progress(job, &shell)).collect(),
            progress_more: parts.moving_cut,
            nodes: parts.nodes,
            fleet: parts.fleet,
            filter,
            shell,
        }
    }

    /// What a screen reader says when it changes: no ages in it, or it would be said every second.
    fn attention_said(&self) -> String {
        match self.incidents.as_slice() {
            [] => "nothing needs attention".to_owned(),
            [one] => format!("1 thing needs attention: {}", one.title),
            [first, ..] => format!("{} things need attention, first: {}", self.incidents.len(), first.title),
        }
    }
}

/// The entries of a list to choose from.
pub fn choices<T: ToString>(all: impl IntoIterator<Item = T>, chosen: &str) -> Vec<Choice> {
    all.into_iter()
        .map(|item| {
            let word = item.to_string();
            Choice { here: word == chosen, word }
        })
        .collect()
}

fn tiles(fleet: &Fleet, filter: &Filter) -> Vec<Tile> {
    let shown = Status::VARIANTS.iter().copied().filter(|status| *status != Status::Deleted);
    shown
        .map(|status| {
            let nodes = fleet.counts.iter().filter(|count| count.status == status).map(|count| count.nodes).sum();
            let here = filter.status == status.to_string();
            let narrowed =
                Filter { status: if here { String::new() } else { status.to_string() }, ..Filter::default() };
            Tile { status, tone: of_status(&status), nodes, href: narrowed.href(""), here }
        })
        .collect()
}

/// An incident, as it is shown to whoever looks.
pub fn card(incident: &Incident, shell: &Shell) -> Card {
    let key = incident.subjects.first().map_or_else(|| incident.mark.clone(), |subject| subject.id.clone());
    let named = incident.subjects.iter().take(NAMED_SUBJECTS).filter_map(link);
    // What the title and the links say already is no further evidence.
    let names: Vec<&str> = incident.subjects.iter().map(|subject| subject.name.as_str()).collect();
    let is_new = |fact: &&String| !incident.title.contains(fact.as_str()) && **fact != names.join(", ");
    let mut remedy = Remedy::all(std::slice::from_ref(&incident.next), shell);
    Card {
        key: format!("i-{}-{key}", incident.mark),
        tone: of_severity(&incident.severity),
        title: incident.title.clone(),
        mark: incident.mark.clone(),
        evidence: incident.evidence.iter().filter(is_new).cloned().collect(),
        since: lasting(&incident.since, &shell.at),
        subjects: named.collect(),
        more: incident.subjects.len().saturating_sub(NAMED_SUBJECTS) as u64 + incident.more,
        remedy: remedy.remove(0),
        silence: silence_button(incident, shell),
    }
}

fn link(subject: &Subject) -> Option<SubjectLink> {
    let href = match subject.kind.as_str() {
        "node" => format!("/ui/nodes/{}", subject.id),
        "job" => format!("/ui/jobs/{}", subject.id),
        "site" => format!("/ui/sites#site-{}", subject.name),
        "webhook" => format!("/ui/webhooks/{}", subject.id),
        _ => return None,
    };
    let name = if subject.kind == "job" { format!("job of {}", subject.name) } else { subject.name.clone() };
    Some(SubjectLink { href, name })
}

fn map(nodes: &[NodeRow]) -> Vec<MapSite> {
    let mut sites: BTreeMap<&str, Vec<Square>> = BTreeMap::new();
    for node in nodes {
        sites.entry(&node.site).or_default().push(square(node));
    }
    sites.into_iter().map(|(name, squares)| MapSite { name: name.to_owned(), squares }).collect()
}

fn square(node: &NodeRow) -> Square {
    let tone = match (of_status(&node.status), node.schedulable) {
        (Tone::Ok, true) => Tone::Ok,
        // An active node that is not schedulable shows why by its availability, or as held.
        (Tone::Ok, false) if of_availability(&node.availability) == Tone::Ok => Tone::Warn,
        (Tone::Ok, false) => of_availability(&node.availability),
        (tone @ (Tone::Info | Tone::Warn | Tone::Bad | Tone::Off), _) => tone,
    };
    let why = node.why_not.as_deref().map_or_else(String::new, |why| format!(", {why}"));
    Square {
        hostname: node.hostname.clone(),
        class: tone.class(),
        words: format!("{}, {}{why}", node.status, node.availability),
    }
}

fn progress(job: &JobView, shell: &Shell) -> Progress {
    let done = job.stages.iter().filter(|stage| is_past(stage.progress)).count();
    Progress {
        id: job.row.id,
        kind: job.row.kind,
        hostname: job.row.hostname.clone(),
        stage: job.row.stage,
        done,
        total: job.stages.len(),
        since: lasting(&job.row.created_at, &shell.at),
    }
}

/// Whether nothing is left to do at a stage.
pub const fn is_past(progress: StageProgress) -> bool {
    match progress {
        StageProgress::Succeeded | StageProgress::Skipped => true,
        StageProgress::Pending | StageProgress::Running | StageProgress::Failed | StageProgress::Compensated => false,
    }
}
