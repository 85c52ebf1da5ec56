//! `lattice fleet`: the fleet at a glance, what needs attention first.

use lattice_api::client::get;
use lattice_api::fleet::{Fleet, Incident, SilencedIncident};
use lattice_api::silence::SilenceView;

use crate::failure::{Failure, joined, step_texts};
use crate::output::{Look, Shown, table};
use crate::session::Session;
use crate::span;

/// Prints it.
///
/// # Errors
/// Refused.
pub async fn run(session: &Session) -> Result<(), Failure> {
    session.show::<Fleet>(get(&["fleet"])).await
}

impl Shown for Fleet {
    fn text(&self, _: Look) -> String {
        let mut text = String::new();
        if !self.attention.is_empty() {
            text.push_str("needs attention\n");
        }
        for incident in &self.attention {
            text.push_str(&incident_text(incident));
        }
        if self.attention.is_empty() {
            text.push_str("nothing needs attention\n");
        }
        if !self.silenced.is_empty() {
            text.push_str("silenced\n");
        }
        for one in &self.silenced {
            text.push_str(&silenced_text(one, self.silences.iter().find(|silence| silence.id == one.silence)));
        }
        text.push_str(&format!("\n{} nodes, {} schedulable\n", self.nodes, self.schedulable));
        let rows = self
            .counts
            .iter()
            .map(|count| vec![format!("  {}", count.nodes), count.status.to_string(), count.availability.to_string()]);
        text + &table(&[], rows)
    }

    fn names(&self) -> Vec<String> {
        self.attention
            .iter()
            .flat_map(|incident| incident.subjects.iter().map(|subject| subject.name.clone()))
            .collect()
    }
}

/// One line: who hides it, until when, why.
fn silenced_text(one: &SilencedIncident, silence: Option<&SilenceView>) -> String {
    let by = silence.map_or_else(String::new, |silence| {
        format!("  by {} until {}: {}", silence.by.name, silence.until, silence.reason)
    });
    format!("  {}  {}{by}\n", one.incident.severity, one.incident.title)
}

fn incident_text(incident: &Incident) -> String {
    let mut text = format!("  {}  ", incident.severity);
    // The title names one subject; a list of several says which they are.
    let mut unnamed: Vec<&str> = incident.subjects.iter().map(|subject| subject.name.as_str()).collect();
    unnamed.retain(|name| !incident.title.contains(name));
    if !unnamed.is_empty() {
        let more = if incident.more > 0 { format!(" and {} more", incident.more) } else { String::new() };
        text.push_str(&format!("{}{more}: ", unnamed.join(", ")));
    }
    text.push_str(&format!("{}  for {}  [{}]\n", incident.title, span::words(incident.age_ms), incident.mark));
    for fact in &incident.evidence {
        text.push_str(&format!("    because  {fact}\n"));
    }
    let (command, effect) = step_texts(&incident.next);
    text.push_str(&format!("    next     {}\n", joined(&command, &effect)));
    text
}
