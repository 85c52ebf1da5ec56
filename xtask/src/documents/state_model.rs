//! `docs/state-model.md`: both node machines as diagrams and tables.

use std::collections::BTreeSet;
use std::time::Duration;

use lattice_core::node::availability::{AVAILABILITY_EDGES, AvailabilityGuard, BOOT_FAILURES};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::state::allowed_availabilities;
use lattice_core::node::status::{STATUS_EDGES, StatusGuard};
use lattice_core::node::{Availability, HoldKind, NodeClass, NodeState, Status};
use strum::VariantArray;

use super::table;
use crate::repository::SourceFile;

const PATH: &str = "docs/state-model.md";

const HEAD: &str = "\
# State model

Drawn from the tables in `lattice-core` by `cargo run -p xtask -- docs`; do not edit.

A node has two states that are never collapsed into one: its **inventory status**, which lifecycle operations and jobs \
move, and its **availability**, which the failure detector, the agent, drains and boots move. It may be given work when \
it is `active`, `ready`, and no hold is in force.
";

/// The document.
pub fn document() -> SourceFile {
    let parts = [HEAD.to_owned(), status(), availability(), pairs(), holds(), times()];
    SourceFile { path: PATH.to_owned(), text: parts.join("\n") }
}

fn status() -> String {
    let arrows: BTreeSet<(Status, Status)> = STATUS_EDGES.iter().map(|edge| (edge.from, edge.to)).collect();
    let mut text = "## Inventory status\n\n```mermaid\nstateDiagram-v2\n".to_owned();
    text.push_str("    [*] --> bootstrap_issued: created by hand\n    [*] --> enrolling: onboarding accepted\n");
    for (from, to) in arrows {
        let events: Vec<String> = STATUS_EDGES
            .iter()
            .filter(|edge| (edge.from, edge.to) == (from, to))
            .map(|edge| edge.event.to_string())
            .collect();
        text.push_str(&format!("    {from} --> {to}: {}\n", events.join(", ")));
    }
    text.push_str("    deleted --> [*]\n```\n\n");
    let rows = STATUS_EDGES.iter().map(|edge| {
        let owners: Vec<String> = edge.owners.iter().map(ToString::to_string).collect();
        let guard = if edge.guard == StatusGuard::None { "" } else { edge.guard.into() };
        vec![code(edge.from), code(edge.event), guard.replace('_', " "), code(edge.to), owners.join(", ")]
    });
    text + &table(&["from", "event", "if", "to", "may be asked for by"], rows)
}

fn availability() -> String {
    let mut arrows: BTreeSet<(Availability, Availability)> = BTreeSet::new();
    for edge in AVAILABILITY_EDGES {
        arrows.extend(edge.from.iter().map(|from| (*from, edge.to)));
    }
    let mut text = "## Availability\n\n```mermaid\nstateDiagram-v2\n    [*] --> unknown\n".to_owned();
    for (from, to) in arrows {
        let mut events: Vec<String> = AVAILABILITY_EDGES
            .iter()
            .filter(|edge| edge.from.contains(&from) && edge.to == to)
            .map(|edge| edge.event.to_string())
            .collect();
        events.dedup();
        text.push_str(&format!("    {from} --> {to}: {}\n", events.join(", ")));
    }
    text.push_str("```\n\n");
    let rows = AVAILABILITY_EDGES.iter().map(|edge| {
        let from: Vec<String> = edge.from.iter().map(ToString::to_string).collect();
        let from = if edge.from.len() == Availability::VARIANTS.len() { "any".to_owned() } else { from.join(", ") };
        let effects: Vec<String> = edge.effects.iter().map(|effect| effect.to_string().replace('_', " ")).collect();
        let guard = if edge.guard == AvailabilityGuard::None { "" } else { edge.guard.into() };
        vec![from, code(edge.event), guard.replace('_', " "), code(edge.to), effects.join(", ")]
    });
    text.push_str(&table(&["from", "event", "if", "to", "effects"], rows));
    text + &format!("\nA node is `failed` after {BOOT_FAILURES} failed boots in a row.\n")
}

fn pairs() -> String {
    let mut head = vec!["status"];
    head.extend(Availability::VARIANTS.iter().map(|availability| <&str>::from(*availability)));
    let rows = Status::VARIANTS.iter().map(|status| {
        let mut row = vec![code(*status)];
        row.extend(Availability::VARIANTS.iter().map(|availability| {
            let allowed = NodeState::new(*status, *availability).is_allowed();
            assert_eq!(allowed, allowed_availabilities(*status).contains(availability), "two answers about one pair");
            if allowed { "yes".to_owned() } else { "–".to_owned() }
        }));
        row
    });
    format!("## Which pairs may stand together\n\nThe store refuses every other pair.\n\n{}", table(&head, rows))
}

fn holds() -> String {
    let rows = HoldKind::VARIANTS.iter().map(|kind| {
        let by = if kind.is_manual() { "an operator, or a job" } else { "the code that owns it" };
        vec![code(*kind), by.to_owned()]
    });
    format!("## Holds\n\n{}", table(&["hold", "set and cleared by"], rows))
}

fn times() -> String {
    let policy = HeartbeatPolicy::default();
    let rows = NodeClass::VARIANTS.iter().map(|class| {
        let times = policy.times(*class);
        vec![code(*class), span(times.window()), span(times.grace())]
    });
    format!(
        "## Times\n\nDefaults; a site may set each. Agents send every {}. A boot may take {}.\n\n{}",
        span(Duration::from_millis(policy.interval_ms)),
        span(policy.boot_timeout()),
        table(&["class", "silence until degraded", "further silence until down"], rows)
    )
}

/// Whole minutes where they are, else seconds.
fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

fn code(name: impl std::fmt::Display) -> String {
    format!("`{name}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_has_its_row() {
        let text = document().text;
        for edge in STATUS_EDGES {
            let row = format!("| `{}` | `{}` |", edge.from, edge.event);
            assert!(text.contains(&row), "{row}");
        }
        for edge in AVAILABILITY_EDGES {
            assert!(text.contains(&format!("| `{}` |", edge.event)), "{}", edge.event);
        }
    }

    #[test]
    fn times_are_those_of_the_code() {
        let text = times();
        assert!(text.contains("| `sensitive` | 2 min | 5 min |"), "{text}");
        assert!(text.contains("| `standard` | 30 s | 1 min |"), "{text}");
    }
}
