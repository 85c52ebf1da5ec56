//! Webhooks: who gets events, how far each is, and its last deliveries.

use askama::Template;
use lattice_api::error::ApiCall;
use lattice_api::webhook::{Delivery, WebhookStatus, WebhookView};
use serde_json::json;

use super::action::{Button, Manner};
use super::shell::Shell;

/// The list.
#[derive(Template)]
#[template(path = "webhooks.html", blocks = ["main"])]
pub struct WebhooksPage {
    shell: Shell,
    webhooks: Vec<WebhookView>,
}

impl WebhooksPage {
    /// The page of this answer.
    pub const fn of(shell: Shell, webhooks: Vec<WebhookView>) -> Self {
        Self { shell, webhooks }
    }
}

/// The page of one webhook.
#[derive(Template)]
#[template(path = "webhook.html", blocks = ["main"])]
pub struct WebhookPage {
    shell: Shell,
    view: WebhookView,
    deliveries: Vec<Delivery>,
    buttons: Vec<Button>,
}

impl WebhookPage {
    /// The page of these answers.
    pub fn of(mut shell: Shell, view: WebhookView, deliveries: Vec<Delivery>) -> Self {
        shell.title = view.name.clone();
        let verbs: &[WebhookVerb] = match view.status {
            WebhookStatus::Enabled => &[WebhookVerb::Test, WebhookVerb::Disable, WebhookVerb::Remove],
            WebhookStatus::Disabled | WebhookStatus::GaveUp => {
                &[WebhookVerb::Enable, WebhookVerb::Test, WebhookVerb::Remove]
            }
        };
        let buttons = verbs.iter().map(|verb| button(*verb, &view.name, &shell)).collect();
        Self { shell, view, deliveries, buttons }
    }

    /// Whether it gets nothing, or takes nothing.
    fn needs_attention(&self) -> bool {
        self.view.status != WebhookStatus::Enabled || self.view.failed > 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WebhookVerb {
    Test,
    Enable,
    Disable,
    Remove,
}

fn button(verb: WebhookVerb, webhook: &str, shell: &Shell) -> Button {
    let (label, word, effect, manner) = match verb {
        WebhookVerb::Test => ("Test", "test", "posts an event of its own now, and says what came back", Manner::Plain),
        WebhookVerb::Enable => {
            ("Enable", "enable", "it goes on where it stopped: nothing is left out", Manner::Primary)
        }
        WebhookVerb::Disable => ("Disable…", "disable", "it gets no events; its place is kept", Manner::Asks),
        WebhookVerb::Remove => {
            ("Remove…", "remove", "it gets no more events; its keys and its deliveries are deleted", Manner::Asks)
        }
    };
    let path = format!("/api/v1/admin/webhooks/{webhook}");
    let call = match verb {
        WebhookVerb::Remove => ApiCall { method: "DELETE".to_owned(), path, body: None },
        WebhookVerb::Test => ApiCall { method: "POST".to_owned(), path: format!("{path}/{word}"), body: None },
        WebhookVerb::Enable | WebhookVerb::Disable => {
            ApiCall { method: "POST".to_owned(), path: format!("{path}/{word}"), body: Some(json!({})) }
        }
    };
    Button {
        label: label.to_owned(),
        command: format!("lattice webhook {word} {webhook}"),
        call,
        effect: effect.to_owned(),
        manner,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}
