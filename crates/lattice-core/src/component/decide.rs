//! Which word Lattice tells of a node, and what becomes of another system's.
//!
//! Lattice knows whether an agent is heard: of a node that is, and of Ready, its own word stands. Of a node that is not
//! heard it knows no more than others, so it takes back its own word and Ready, and leaves theirs. A warning or an alert
//! that another system raised is never lowered.

use std::time::Duration;

use super::{ComponentFlag, ComponentReport, ComponentState, Word};
use crate::change::{Change, Resource};
use crate::node::{Availability, DownCause, Node, PowerFact, Status};
use crate::time::Timestamp;

/// Shortest pause before another system's word is corrected again: two that disagree must not fill a network.
const AGAIN: Duration = Duration::from_secs(60);
/// A report without news is written again after this time, so that its age can be seen.
const REFRESH: Duration = Duration::from_secs(300);

/// One look at a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// What State Manager says; none: it has no such component.
    pub said: Option<Word>,
    /// Power as it was read at that time; never taken from State Manager.
    pub power: PowerFact,
}

/// What a look leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What is known now, before anything is told.
    pub report: ComponentReport,
    /// What State Manager is to be told; none: nothing.
    pub tell: Option<Word>,
    /// To be committed; empty: nothing is news.
    pub changes: Vec<Change>,
}

/// The word for a node as it stands; none: Lattice says nothing of it. Off only where power was seen to be off.
pub fn wanted(node: &Node, power: PowerFact) -> Option<Word> {
    use ComponentFlag::{Alert, Ok, Warning};
    let standby = |flag| Some(Word::new(ComponentState::Standby, flag));
    let silent = |flag| match power {
        PowerFact::Off => Some(Word::new(ComponentState::Off, flag)),
        PowerFact::On | PowerFact::Unknown => standby(flag),
    };
    match node.state.status {
        Status::BootstrapIssued | Status::Deleted => return None,
        Status::Active
        | Status::Enrolling
        | Status::Offline
        | Status::Quarantined
        | Status::Draining
        | Status::Retired
        | Status::Removing => {}
    }
    let is_active = node.state.status == Status::Active;
    let is_blocked = node.state.status == Status::Quarantined;
    match node.state.availability {
        Availability::Ready if is_active => Some(Word::new(ComponentState::Ready, Ok)),
        Availability::Degraded if is_active => Some(Word::new(ComponentState::Ready, Warning)),
        Availability::Ready | Availability::Draining | Availability::Drained if !is_blocked => standby(Ok),
        Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => {
            standby(Warning)
        }
        Availability::Unknown | Availability::Booting => silent(Ok),
        Availability::Down => match node.down_cause {
            Some(DownCause::Disabled) => silent(Ok),
            Some(DownCause::HeartbeatLost | DownCause::CriticalHardware | DownCause::WipeFailed) | None => {
                silent(Alert)
            }
        },
        Availability::Failed => silent(Alert),
    }
}

/// Whether the node's agent is heard, by its availability.
const fn is_heard(availability: Availability) -> bool {
    match availability {
        Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => true,
        Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => false,
    }
}

/// Decides what is kept of a look at the component `report` is about, and what is told. `is_first`: nothing is stored yet.
pub fn decide(node: &Node, report: &ComponentReport, is_first: bool, seen: Seen, now: Timestamp) -> Verdict {
    let mut after = ComponentReport { looked_at: now, ..report.clone() };
    let is_news = is_first || seen.said != report.said;
    if is_news {
        after.said = seen.said;
        after.said_since = now;
    }
    after.raised = raised(report, seen.said);
    let want = claim(node, &after, seen.power);
    let is_met = want.is_some() && want == seen.said;
    if is_met && report.told != want {
        // Told before, and not kept; or said by others already.
        after.told = want;
        after.told_at = Some(now);
    }
    let tell = want.filter(|want| !is_met && is_told(node, &after, seen.said, *want, now));
    let is_theirs = seen.said != report.told && (!is_met || after.raised != report.raised);
    let mut changes = Vec::new();
    if is_news && is_theirs && !is_first {
        changes.push(Change::Note {
            name: "node.component.changed".to_owned(),
            resource: Resource::Node(node.id),
            detail: told_by_others(report, seen.said, tell),
        });
    }
    let is_old = now.since(report.looked_at) >= REFRESH;
    if is_news || is_old || after.raised != report.raised || after.told != report.told {
        changes.push(Change::ComponentReport(Box::new(after.clone())));
    }
    Verdict { report: after, tell, changes }
}

fn told_by_others(report: &ComponentReport, said: Option<Word>, tell: Option<Word>) -> String {
    let word = |word: Option<Word>| word.map_or_else(|| "nothing".to_owned(), |word| word.to_string());
    let then = match tell {
        Some(word) => format!("it is told {word}"),
        None => "it is left so".to_owned(),
    };
    format!("State Manager says {} of {}, {} before: {then}", word(said), report.xname, word(report.said))
}

/// The report after State Manager was told `word`, and said `said` then. Another word than that is left to the next look:
/// it is news there, if it was not the word before.
pub fn told(report: &ComponentReport, word: Word, said: Option<Word>, now: Timestamp) -> ComponentReport {
    let after = ComponentReport { told: Some(word), told_at: Some(now), ..report.clone() };
    match said == Some(word) {
        true => ComponentReport { said, said_since: now, looked_at: now, ..after },
        false => after,
    }
}

/// The flag that another system raised: one that Lattice did not tell, and that stands still.
fn raised(report: &ComponentReport, said: Option<Word>) -> Option<ComponentFlag> {
    let flag = said?.flag;
    match flag {
        ComponentFlag::Unknown | ComponentFlag::Ok => None,
        ComponentFlag::Warning | ComponentFlag::Alert | ComponentFlag::Locked => {
            let is_told = report.told.is_some_and(|told| told.flag == flag);
            let stands = report.raised == Some(flag);
            (stands || !is_told).then_some(flag)
        }
    }
}

/// What Lattice says of the node, beside what others raised; none: nothing.
fn claim(node: &Node, report: &ComponentReport, power: PowerFact) -> Option<Word> {
    // Until its first boot is over nothing is claimed of a machine that others may have used.
    let is_claimed = node.state.status != Status::Enrolling || report.told.is_some();
    if !is_claimed || report.raised == Some(ComponentFlag::Locked) {
        return None;
    }
    let want = wanted(node, power)?;
    Some(Word { flag: want.flag.max(report.raised.unwrap_or(ComponentFlag::Ok)), ..want })
}

/// Whether State Manager is told a word that it does not say.
fn is_told(node: &Node, report: &ComponentReport, said: Option<Word>, want: Word, now: Timestamp) -> bool {
    let Some(said) = said else { return false };
    let is_our_word = report.told.is_some_and(|told| told.state == said.state);
    let is_ours_to_say = is_heard(node.state.availability) || said.state == ComponentState::Ready || is_our_word;
    let is_our_news = report.told != Some(want);
    let is_soon = report.told_at.is_some_and(|at| now.since(at) < AGAIN);
    is_ours_to_say && (is_our_news || !is_soon)
}
