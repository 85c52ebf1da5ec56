//! What every page carries: its title, where it stands in the navigation, who looks, and for which moment.

use lattice_core::actor::Role;
use lattice_core::ids::EventSeq;
use lattice_core::time::Timestamp;

use crate::auth::allows;

/// A page of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// The fleet and its nodes.
    Fleet,
    /// Jobs.
    Jobs,
    /// Allocations.
    Allocations,
    /// Batches of onboardings.
    Batches,
    /// Sites.
    Sites,
    /// Receivers of events.
    Webhooks,
    /// The audit.
    Audit,
    /// None of them: signing in, a refusal.
    Outside,
}

impl Section {
    const fn link(self) -> (&'static str, &'static str) {
        match self {
            Self::Fleet => ("/ui/", "Fleet"),
            Self::Jobs => ("/ui/jobs", "Jobs"),
            Self::Allocations => ("/ui/allocations", "Allocations"),
            Self::Batches => ("/ui/batches", "Batches"),
            Self::Sites => ("/ui/sites", "Sites"),
            Self::Webhooks => ("/ui/webhooks", "Webhooks"),
            Self::Audit => ("/ui/audit", "Audit"),
            Self::Outside => ("/ui/login", "Sign in"),
        }
    }
}

/// An entry of the navigation.
pub struct NavEntry {
    /// Where it leads.
    pub href: &'static str,
    /// What it says.
    pub name: &'static str,
    /// Whether the page belongs to it.
    pub here: bool,
}

/// The frame of a page.
#[derive(Debug, Clone)]
pub struct Shell {
    /// Of the browser's tab.
    pub title: String,
    /// Where it stands.
    pub section: Section,
    /// Who looks.
    pub caller: String,
    /// In which role.
    pub role: Role,
    /// For which moment it is true.
    pub at: Timestamp,
    /// Everything up to this event is in it: the live stream goes on from here.
    pub seq: EventSeq,
    /// The stream whose events change it.
    pub events: String,
    /// Another server hears the agents: what nodes said last is not known here.
    pub stands_by: bool,
}

impl Shell {
    /// Whether the caller's role may change nodes and jobs; the API asks the same.
    pub const fn may_act(&self) -> bool {
        allows(self.role, Role::PlatformAdmin)
    }

    /// The entries that this caller can open.
    pub fn nav(&self) -> Vec<NavEntry> {
        let all = [
            Section::Fleet,
            Section::Allocations,
            Section::Jobs,
            Section::Batches,
            Section::Sites,
            Section::Webhooks,
            Section::Audit,
        ];
        all.into_iter()
            .filter(|section| self.may_act() || !matches!(section, Section::Webhooks | Section::Audit))
            .map(|section| {
                let (href, name) = section.link();
                NavEntry { href, name, here: section == self.section }
            })
            .collect()
    }

    /// Whether somebody is signed in.
    pub fn signed_in(&self) -> bool {
        self.section != Section::Outside || !self.caller.is_empty()
    }
}

/// What a field of a form holds; none: it was left empty.
pub fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A query string of the fields that are not empty, escaped.
pub fn query(fields: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(char::from(byte)),
                other => text.push_str(&format!("%{other:02X}")),
            }
        }
    }
    text
}
