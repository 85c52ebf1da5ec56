//! Webhooks, their place in the outbox and their deliveries, on each backend; and what goes with a removed row.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod fixture;

use fixture::*;
use lattice_core::actor::Actor;
use lattice_core::change::{Change, Guard, Outcome, Removed};
use lattice_core::ids::{EventSeq, Generation, SiteId, WebhookId, WebhookKeyId};
use lattice_core::site::credentials::{CredentialCause, CredentialName, SetBy, SiteCredential};
use lattice_core::webhook::delivery::{Attempted, DELIVERIES_KEPT, Delivery, WebhookProgress, WebhookStep, after};
use lattice_core::webhook::{Webhook, WebhookCause, WebhookChange, WebhookStatus};
use lattice_store::{EventFilter, Store};

mod backends;
use backends::on_each_backend;

fn webhook(name: &str) -> Webhook {
    Webhook {
        id: WebhookId::generate(&Ids, START),
        name: name.to_owned(),
        url: "https://hooks.example:8443/lattice?word=hunter2".to_owned(),
        events: vec!["node.*".parse().unwrap()],
        site: None,
        status: WebhookStatus::Enabled,
        status_reason: String::new(),
        status_since: START,
        key: WebhookKeyId::generate(&Ids, START),
        previous_key: None,
        created_by: Actor::system("test"),
        created_at: START,
        updated_at: START,
        generation: Generation::FIRST,
    }
}

fn created(webhook: &Webhook, from: EventSeq) -> Vec<Change> {
    let step = WebhookStep { after: WebhookProgress::new(webhook.id, from), delivery: None };
    let change = WebhookChange { after: webhook.clone(), before: None, cause: WebhookCause::Created };
    vec![Change::Webhook(Box::new(change)), Change::WebhookStep(Box::new(step))]
}

fn changed(after: Webhook, before: WebhookStatus, cause: WebhookCause) -> Change {
    Change::Webhook(Box::new(WebhookChange { after, before: Some(before), cause }))
}

fn taken(progress: &WebhookProgress, seq: u64) -> (WebhookProgress, Change) {
    let next = after(progress, EventSeq(seq), &Attempted::Taken { status: 204 }, START).progress;
    let delivery = Delivery {
        number: progress.attempts,
        event: EventSeq(seq),
        name: "node.moved".to_owned(),
        attempt: 1,
        at: START,
        status: Some(204),
        error: None,
        took_ms: 3,
    };
    let step = WebhookStep { after: next.clone(), delivery: Some(delivery) };
    (next, Change::WebhookStep(Box::new(step)))
}

async fn apply(store: &Store, changes: Vec<Change>) -> EventSeq {
    applied(&store.commit_one(commit(START, vec![], changes)).await.unwrap())
}

on_each_backend! {
    async fn a_webhook_is_stored_with_its_place_and_told_without_its_address(store: Store) {
        let one = webhook("ticketing");
        let seq = apply(&store, created(&one, EventSeq(7))).await;
        assert_eq!(store.webhook(one.id).await.unwrap(), Some(one.clone()));
        assert_eq!(store.webhook_by_name("ticketing").await.unwrap(), Some(one.clone()));
        assert_eq!(store.webhook_progress(one.id).await.unwrap().unwrap().cursor, EventSeq(7));
        let events = store.events(EventSeq(seq.0 - 1), &EventFilter::default(), 9).await.unwrap();
        let told: Vec<_> = events.iter().map(|event| event.row.name.as_str()).collect();
        assert_eq!(told, ["webhook.created"], "its progress tells nobody");
        assert_eq!(events[0].row.payload["host"], "hooks.example:8443");
        assert!(!events[0].row.payload.to_string().contains("hunter2"), "{:?}", events[0]);
        let twin = store.commit_one(commit(START, vec![], created(&webhook("ticketing"), EventSeq(0)))).await.unwrap();
        assert!(matches!(&twin, Outcome::Conflict { resource, .. } if resource == "webhook name ticketing"), "{twin:?}");
        assert_eq!(store.webhooks().await.unwrap(), [one]);
    }

    async fn a_step_of_a_lost_lease_or_beside_an_operator_is_refused(store: Store) {
        let one = webhook("ticketing");
        apply(&store, created(&one, EventSeq(7))).await;
        let epoch = store.acquire("webhooks", "a", START, std::time::Duration::from_secs(30)).await.unwrap().unwrap();
        let guards = |epoch, have| vec![
            Guard::Lease { name: "webhooks".to_owned(), epoch },
            Guard::WebhookGeneration { webhook: one.id, have },
        ];
        let before = store.webhook_progress(one.id).await.unwrap().unwrap();
        let (progress, step) = taken(&before, 8);
        let outcome = store.commit_one(commit(START, guards(epoch, one.generation), vec![step.clone()])).await.unwrap();
        applied(&outcome);
        assert_eq!(store.webhook_progress(one.id).await.unwrap(), Some(progress.clone()));
        let stale = store.commit_one(commit(START, guards(epoch, one.generation), vec![step])).await.unwrap();
        assert!(matches!(stale, Outcome::Conflict { .. }), "{stale:?}");
        let disabled = one.clone().disabled("maintenance".to_owned(), START);
        apply(&store, vec![changed(disabled, WebhookStatus::Enabled, WebhookCause::Disabled)]).await;
        let (_, next) = taken(&progress, 9);
        let beside = store.commit_one(commit(START, guards(epoch, one.generation), vec![next.clone()])).await.unwrap();
        assert!(matches!(beside, Outcome::Conflict { .. }), "{beside:?}");
        let later = at(60);
        store.acquire("webhooks", "b", later, std::time::Duration::from_secs(30)).await.unwrap().unwrap();
        let fenced = store.commit_one(commit(later, guards(epoch, one.generation.next()), vec![next])).await.unwrap();
        assert_eq!(fenced, Outcome::Fenced);
    }

    async fn the_last_deliveries_are_kept_in_a_ring_and_go_with_the_webhook(store: Store) {
        let (one, other) = (webhook("ticketing"), webhook("mirror"));
        apply(&store, created(&one, EventSeq(0))).await;
        apply(&store, created(&other, EventSeq(0))).await;
        let mut progress = store.webhook_progress(one.id).await.unwrap().unwrap();
        let mut commits = Vec::new();
        for seq in 1..=DELIVERIES_KEPT + 5 {
            let (next, step) = taken(&progress, seq);
            progress = next;
            commits.push(commit(START, vec![], vec![step]));
        }
        store.commit(commits).await.unwrap().iter().for_each(|outcome| assert!(applied(outcome).0 > 0));
        let (_, step) = taken(&store.webhook_progress(other.id).await.unwrap().unwrap(), 1);
        apply(&store, vec![step]).await;
        let kept = store.webhook_deliveries(one.id, 1_000).await.unwrap();
        assert_eq!(kept.len() as u64, DELIVERIES_KEPT);
        assert_eq!((kept[0].number, kept.last().unwrap().number), (DELIVERIES_KEPT + 4, 5), "the newest, newest first");
        assert_eq!(store.webhook_deliveries(one.id, 2).await.unwrap().len(), 2);
        apply(&store, vec![Change::Removed(Box::new(Removed::Webhook(one.clone())))]).await;
        assert_eq!(store.webhook(one.id).await.unwrap(), None);
        assert_eq!(store.webhook_progress(one.id).await.unwrap(), None);
        assert_eq!(store.webhook_deliveries(one.id, 9).await.unwrap(), []);
        assert_eq!(store.webhook_deliveries(other.id, 9).await.unwrap().len(), 1, "another one's stay");
        apply(&store, created(&webhook("ticketing"), EventSeq(0))).await;
    }

    async fn what_is_known_of_its_credentials_goes_with_a_site(store: Store) {
        let (gone, stays) = (site("gone"), site("stays"));
        let known = |site: SiteId, name| {
            let by = SetBy { who: "ops-ci".to_owned(), at: START };
            let after = SiteCredential::unknown(site, name, "kv/maas-sites/x").set(by);
            Change::SiteCredential { after, cause: CredentialCause::Set }
        };
        let mut changes = vec![Change::Site(Box::new(gone.clone())), Change::Site(Box::new(stays.clone()))];
        changes.push(known(gone.id, CredentialName::ApiToken));
        changes.push(known(gone.id, CredentialName::Power));
        changes.push(known(stays.id, CredentialName::ApiToken));
        apply(&store, changes).await;
        assert_eq!(store.site_credentials(Some(gone.id)).await.unwrap().len(), 2);
        apply(&store, vec![Change::Removed(Box::new(Removed::Site(gone.clone())))]).await;
        let left: Vec<_> = store.site_credentials(None).await.unwrap().into_iter().map(|row| row.site).collect();
        assert_eq!(left, [stays.id]);
    }
}
