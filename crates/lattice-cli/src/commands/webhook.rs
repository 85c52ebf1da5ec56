//! `lattice webhook`: receivers that events are posted to. The key that signs is printed once, when it is made.

use std::time::Duration;

use clap::{Args, Subcommand};
use lattice_api::Gone;
use lattice_api::client::{get, post};
use lattice_api::page::{Page, PageQuery};
use lattice_api::webhook::{
    CreateWebhook, Delivery, DisableWebhook, EnableWebhook, EventPattern, PatchWebhook, RotateWebhookKey,
    WebhookStatus, WebhookTest, WebhookView, WebhookWithKey,
};

use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown, facts};
use crate::session::{Session, request};
use crate::span;

/// What can be done with webhooks.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a webhook and print the key that signs its deliveries, this once
    Create(Create),
    /// List webhooks
    List,
    /// Show a webhook, and how far it is
    #[command(alias = "get")]
    Show(Named),
    /// Change name, address, events or site of a webhook
    Update(Update),
    /// Remove a webhook with its keys
    Remove(Named),
    /// Post an event of its own to the receiver now, and say what came back
    Test(Named),
    /// Let a webhook get events again, from where it stopped
    Enable(Enable),
    /// Keep events from a webhook; its place is kept
    Disable(Disable),
    /// Give a webhook a new key and print it, this once; the present one signs too for a while
    RotateSecret(Rotate),
    /// Show its last deliveries, newest first
    Deliveries(Deliveries),
}

/// One webhook.
#[derive(Debug, Args)]
pub struct Named {
    /// Id or name
    webhook: String,
}

/// A webhook to create.
#[derive(Debug, Args)]
pub struct Create {
    /// What people call it
    name: String,
    /// Where events are posted to: https://hooks.example/lattice
    #[arg(long)]
    url: String,
    /// Which events: node.moved, node.onboarding.*, *; several with commas
    #[arg(long, value_delimiter = ',', required = true, value_name = "PATTERN")]
    events: Vec<EventPattern>,
    /// Only events of this site, by id or name
    #[arg(long)]
    site: Option<String>,
}

/// A webhook to change.
#[derive(Debug, Args)]
pub struct Update {
    /// Id or name
    webhook: String,
    /// Another name
    #[arg(long)]
    name: Option<String>,
    /// Another address
    #[arg(long)]
    url: Option<String>,
    /// Other events, in place of those before
    #[arg(long, value_delimiter = ',', value_name = "PATTERN")]
    events: Option<Vec<EventPattern>>,
    /// Only events of this site, by id or name; an empty text: of all sites
    #[arg(long)]
    site: Option<String>,
}

/// A webhook to enable.
#[derive(Debug, Args)]
pub struct Enable {
    /// Id or name
    webhook: String,
    /// Leave out what happened meanwhile
    #[arg(long)]
    skip: bool,
    /// Why, for the audit
    #[arg(long)]
    reason: Option<String>,
}

/// A webhook to disable.
#[derive(Debug, Args)]
pub struct Disable {
    /// Id or name
    webhook: String,
    /// Why; shown to everybody who wonders
    #[arg(long)]
    reason: Option<String>,
}

/// A webhook that gets a new key.
#[derive(Debug, Args)]
pub struct Rotate {
    /// Id or name
    webhook: String,
    /// How long the present key signs too, 30d at most: 24h when absent, 0 for one that leaked
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    grace: Option<Duration>,
}

/// Deliveries of a webhook.
#[derive(Debug, Args)]
pub struct Deliveries {
    /// Id or name
    webhook: String,
    /// At most so many
    #[arg(long)]
    limit: Option<u32>,
}

/// Runs one of them.
///
/// # Errors
/// Refused, or a test that the receiver did not take.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Create(create) => {
            let body = CreateWebhook { name: create.name, url: create.url, events: create.events, site: create.site };
            session.show::<WebhookWithKey>(post(&["webhooks"]).json(&body)).await
        }
        Command::List => session.show::<Page<WebhookView>>(get(&["webhooks"])).await,
        Command::Show(named) => {
            let answer = session.ask::<WebhookView>(get(&["webhooks", &named.webhook])).await?;
            if !session.format().is_for_people() {
                return session.print(&answer);
            }
            output::text(&whole(&answer.value, session.look()))
        }
        Command::Update(update) => {
            let body = PatchWebhook { name: update.name, url: update.url, events: update.events, site: update.site };
            if body == PatchWebhook::default() {
                return Err(
                    Failure::refused("nothing is to be changed").next("", "give --name, --url, --events or --site")
                );
            }
            let call = request(reqwest::Method::PATCH, &["webhooks", &update.webhook]).json(&body);
            session.show::<WebhookView>(call).await
        }
        Command::Remove(named) => {
            let effect = "it gets no more events; its keys and its deliveries are deleted";
            session.confirm(&format!("remove webhook {}", named.webhook), effect)?;
            session.show::<Gone>(request(reqwest::Method::DELETE, &["webhooks", &named.webhook])).await
        }
        Command::Test(named) => test(&named.webhook, session).await,
        Command::Enable(enable) => {
            let body = EnableWebhook { skip: enable.skip, reason: enable.reason };
            session.show::<WebhookView>(post(&["webhooks", &enable.webhook, "enable"]).json(&body)).await
        }
        Command::Disable(disable) => {
            let body = DisableWebhook { reason: disable.reason };
            session.show::<WebhookView>(post(&["webhooks", &disable.webhook, "disable"]).json(&body)).await
        }
        Command::RotateSecret(rotate) => {
            let body = RotateWebhookKey { grace_seconds: rotate.grace.map(|grace| grace.as_secs()) };
            let call = post(&["webhooks", &rotate.webhook, "rotate-secret"]).json(&body);
            session.show::<WebhookWithKey>(call).await
        }
        Command::Deliveries(asked) => {
            let query = PageQuery { limit: asked.limit, ..PageQuery::default() };
            let call = get(&["webhooks", &asked.webhook, "deliveries"]).query(&query);
            session.show::<Page<Delivery>>(call).await
        }
    }
}

async fn test(webhook: &str, session: &Session) -> Result<(), Failure> {
    let answer = session.ask::<WebhookTest>(post(&["webhooks", webhook, "test"])).await?;
    session.print(&answer)?;
    match answer.value.error {
        None => Ok(()),
        Some(error) => Err(Failure::refused("the receiver did not take the event").because(error)),
    }
}

fn whole(one: &WebhookView, look: Look) -> String {
    let patterns: Vec<String> = one.events.iter().map(ToString::to_string).collect();
    let failing = match one.failed {
        0 => String::new(),
        failed => format!("{failed} attempts in a row: {}", one.last_error.as_deref().unwrap_or_default()),
    };
    let status = match one.status {
        WebhookStatus::Enabled => one.status.to_string(),
        WebhookStatus::Disabled | WebhookStatus::GaveUp => format!("{}: {}", one.status, one.status_reason),
    };
    facts(&[
        ("name", one.name.clone()),
        ("id", one.id.to_string()),
        ("url", one.url.clone()),
        ("events", patterns.join(", ")),
        ("site", one.site.clone().unwrap_or_default()),
        ("status", status),
        ("since", look.age(one.status_since.as_millis())),
        ("waiting", one.waiting.to_string()),
        ("failed", failing),
        ("failing since", text(one.failing_since)),
        ("next attempt", text(one.next_at)),
        ("last taken", text(one.delivered_at)),
        ("attempts", one.attempts.to_string()),
        ("old key until", text(one.previous_key_until)),
        ("created by", one.created_by.name.clone()),
    ])
}

fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

impl Shown for WebhookWithKey {
    fn text(&self, _: Look) -> String {
        format!("{}\n", self.secret.expose())
    }

    fn names(&self) -> Vec<String> {
        vec![self.webhook.name.clone()]
    }

    fn note(&self) -> Option<String> {
        let old = self.webhook.previous_key_until.map(|at| format!("; the one before signs too until {at}"));
        let old = old.unwrap_or_default();
        Some(format!("deliveries of {} are signed with it{old}; the key is shown this once", self.webhook.name))
    }
}

impl Row for WebhookView {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["NAME", "STATUS", "WAITING", "FAILED", "LAST TAKEN", "EVENTS", "SITE"];
        if wide {
            head.extend(["URL", "ID"]);
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let patterns: Vec<String> = self.events.iter().map(ToString::to_string).collect();
        let mut cells = vec![
            self.name.clone(),
            self.status.to_string(),
            self.waiting.to_string(),
            self.failed.to_string(),
            self.delivered_at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", look.age(at.as_millis()))),
            patterns.join(","),
            self.site.clone().unwrap_or_else(|| "all".to_owned()),
        ];
        if look.wide {
            cells.extend([self.url.clone(), self.id.to_string()]);
        }
        cells
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Shown for WebhookView {
    fn text(&self, look: Look) -> String {
        output::rows(std::slice::from_ref(self), look)
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

impl Shown for WebhookTest {
    fn text(&self, _: Look) -> String {
        match self.status {
            Some(status) => format!("answered {status} after {} ms\n", self.took_ms),
            None => format!("no answer after {} ms\n", self.took_ms),
        }
    }

    fn names(&self) -> Vec<String> {
        vec![if self.ok { "taken" } else { "failed" }.to_owned()]
    }
}

impl Row for Delivery {
    fn head(_: bool) -> Vec<&'static str> {
        vec!["AGE", "EVENT", "SEQ", "ATTEMPT", "STATUS", "TOOK", "ERROR"]
    }

    fn cells(&self, look: Look) -> Vec<String> {
        vec![
            look.age(self.at.as_millis()),
            self.name.clone(),
            self.event.0.to_string(),
            self.attempt.to_string(),
            self.status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
            format!("{} ms", self.took_ms),
            self.error.clone().unwrap_or_default(),
        ]
    }

    fn name(&self) -> String {
        self.event.0.to_string()
    }
}
