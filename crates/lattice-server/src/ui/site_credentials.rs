//! Credentials of a site on its card: when each was set and whether the provider took it, never its value.

use askama::Template;
use askama::filters::HtmlSafe;
use lattice_api::site::{CredentialName, SiteCredential, SiteView};
use lattice_core::time::Timestamp;

use super::words::ago;

/// The lines of a card.
#[derive(Template)]
#[template(path = "site_credentials.html")]
pub struct CredentialLines {
    rows: Vec<Line>,
    command: Option<String>,
}
impl HtmlSafe for CredentialLines {}

struct Line {
    title: &'static str,
    /// What is wrong, in a word; the story has the rest.
    problem: Option<&'static str>,
    missing: bool,
    story: String,
}

impl CredentialLines {
    /// The lines of a site at `now`.
    pub fn of(view: &SiteView, now: Timestamp) -> Self {
        let rows: Vec<Line> = view.credentials.iter().map(|row| line(row, now)).collect();
        let is_wanting = rows.iter().any(|row| row.problem.is_some());
        Self { rows, command: is_wanting.then(|| format!("lattice site credentials set {}", view.name)) }
    }
}

fn line(row: &SiteCredential, now: Timestamp) -> Line {
    let missing = row.generation.0 == 0;
    let mut story = Vec::new();
    if let Some(problem) = &row.problem {
        story.push(problem.clone());
    }
    match (row.set_at, &row.set_by) {
        (Some(at), Some(who)) => story.push(format!("set {} by {who}", ago(&at, &now))),
        (Some(at), None) => story.push(format!("set {}", ago(&at, &now))),
        (None, _) if !missing => story.push("set by other means than Lattice".to_owned()),
        (None, _) => {}
    }
    match row.validated_at {
        Some(at) => story.push(format!("accepted by the provider {}", ago(&at, &now))),
        None if row.name.is_tried() && !missing => story.push("not tried yet".to_owned()),
        None => {}
    }
    let problem = match (missing, &row.problem) {
        (true, _) => Some("missing"),
        (false, Some(_)) => Some("refused"),
        (false, None) => None,
    };
    Line { title: title(row.name), problem, missing, story: story.join(" · ") }
}

const fn title(name: CredentialName) -> &'static str {
    match name {
        CredentialName::ApiToken => "API token",
        CredentialName::Power => "BMC login",
        CredentialName::DeployPassword => "Deploy password",
        CredentialName::ClientCertificate => "Client certificate",
        CredentialName::ClientKey => "Client key",
        CredentialName::ServerCertificate => "Server certificate",
        CredentialName::BearerToken => "Bearer token",
    }
}
