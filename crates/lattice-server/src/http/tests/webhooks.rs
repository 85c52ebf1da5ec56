//! Webhooks from their creation to a receiver over HTTP on loopback.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, header};
use lattice_core::actor::Role;
use lattice_core::change::{Change, Resource};
use lattice_core::ids::{EventSeq, LeaseEpoch, SiteId, WebhookId};
use lattice_core::time::Clock;
use lattice_core::webhook::WebhookStatus;
use lattice_core::webhook::address::AddressPolicy;
use lattice_core::webhook::delivery::{GIVEN_UP_AFTER, SHOWN_AFTER};
use lattice_providers::webhook::HttpSender;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fixture::{Api, Seen, as_role, request};
use super::receiver::{Receiver, Says};
use crate::metrics::Metrics;
use crate::webhooks::{Courier, Turn, deliver};

const WEBHOOKS: &str = "/api/v1/admin/webhooks";

/// A webhook that gets what is told of the secret store, its key, and the lease to deliver.
struct Hook {
    id: WebhookId,
    key: String,
}

async fn create(api: &Api, name: &str, url: &str, events: &str) -> Hook {
    let body = json!({"name": name, "url": url, "events": [events]}).to_string();
    let seen = api.json(Method::POST, WEBHOOKS, &body).await;
    assert_eq!(seen.status, 201, "{}", seen.body);
    hook(&seen)
}

fn hook(seen: &Seen) -> Hook {
    let key = seen.body["secret"].as_str().unwrap().to_owned();
    assert!(key.starts_with("lat_whk_") && key.len() > 40, "{key}");
    Hook { id: seen.body["webhook"]["id"].as_str().unwrap().parse().unwrap(), key }
}

/// Tells of `count` things.
async fn happen(api: &Api, count: usize) {
    for number in 0..count {
        let name = "secrets.unavailable".to_owned();
        let resource = Resource::System(format!("c07u{number}"));
        api.commit(vec![Change::Note { name, resource, detail: "nobody hears it".to_owned() }]).await;
    }
}

fn courier(api: &Api) -> Courier {
    Courier {
        store: api.store.clone(),
        secrets: api.secrets.clone(),
        sender: Arc::new(HttpSender::new(AddressPolicy::of_trials())),
        clock: api.clock.clone(),
        ids: api.ids.clone(),
        metrics: Arc::new(Metrics::default()),
        holder: "test".to_owned(),
    }
}

/// The lease, taken by a server that has just come.
async fn lease(api: &Api) -> LeaseEpoch {
    let now = api.clock.now();
    api.store.acquire("webhooks", "test", now, Duration::from_secs(30)).await.unwrap().unwrap()
}

/// Turns until nothing is left to do at once.
async fn turn(api: &Api, hook: &Hook) -> Turn {
    let (courier, lease) = (courier(api), lease(api).await);
    loop {
        match courier.turn(hook.id, lease).await.unwrap() {
            Turn::Again => {}
            other => return other,
        }
    }
}

async fn show(api: &Api, name: &str) -> Value {
    let seen = api.get(&format!("{WEBHOOKS}/{name}")).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    seen.body
}

#[tokio::test]
async fn events_are_posted_in_order_signed_and_once() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    happen(&api, 2).await;
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    happen(&api, 3).await;
    let last = api.store.last_event().await.unwrap();
    assert_eq!(show(&api, "ticketing").await["waiting"], 3);
    assert_eq!(turn(&api, &hook).await, Turn::UpTo(last));
    let got = receiver.got();
    assert_eq!(receiver.seqs(), [last.0 - 2, last.0 - 1, last.0], "what happened since it was created, in order");
    for one in &got {
        assert!(one.is_signed_with(&hook.key) && !one.is_signed_with("another"), "{one:?}");
        assert_eq!(one.header("lattice-event"), "secrets.unavailable");
        assert_eq!(one.header("lattice-webhook"), hook.id.to_string());
        assert_eq!(one.header("lattice-timestamp"), (api.clock.now().as_millis() / 1_000).to_string());
        let event = one.event();
        assert_eq!((event["seq"].as_u64(), event["name"].as_str()), (Some(one.seq()), Some("secrets.unavailable")));
    }
    turn(&api, &hook).await;
    assert_eq!(receiver.got().len(), 3, "once");
    let seen = api.get(&format!("{WEBHOOKS}/ticketing/deliveries")).await;
    let rows = seen.body["items"].as_array().unwrap();
    assert_eq!((rows.len(), rows[0]["event"].as_u64(), rows[0]["status"].as_u64()), (3, Some(last.0), Some(204)));
    let view = show(&api, &hook.id.to_string()).await;
    assert_eq!(
        (view["waiting"].as_u64(), view["failed"].as_u64(), view["attempts"].as_u64()),
        (Some(0), Some(0), Some(3))
    );
}

#[tokio::test]
async fn what_is_not_taken_is_tried_again_before_anything_later() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    happen(&api, 2).await;
    let last = api.store.last_event().await.unwrap().0;
    receiver.will_say([Says::Status(500, "<h1>out of\u{7} disk</h1>"), Says::Status(429, "")]);
    let Turn::Until(next, _) = turn(&api, &hook).await else { panic!("it waits") };
    assert_eq!(turn(&api, &hook).await, Turn::Until(next, api.clock.now()), "not before");
    let view = show(&api, "ticketing").await;
    assert_eq!((view["last_error"].as_str(), view["waiting"].as_u64()), (Some("answered 500: out of disk"), Some(2)));
    api.pass(next.since(api.clock.now()));
    assert!(matches!(turn(&api, &hook).await, Turn::Until(later, _) if later > next));
    assert_eq!(receiver.seqs(), [last - 1, last - 1], "the second one waits for the first");
    api.pass(Duration::from_secs(5));
    assert!(matches!(turn(&api, &hook).await, Turn::UpTo(_)));
    assert_eq!(receiver.seqs(), [last - 1, last - 1, last - 1, last]);
    let attempts: Vec<u64> = receiver.got().iter().map(|got| got.event()["seq"].as_u64().unwrap()).collect();
    assert_eq!(attempts, receiver.seqs(), "the id is the event's, each time the same");
}

#[tokio::test]
async fn a_server_that_dies_between_delivery_and_storing_it_delivers_again_and_skips_nothing() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    happen(&api, 2).await;
    let last = api.store.last_event().await.unwrap().0;
    receiver.will_say([Says::Nothing]);
    let (first, old) = (courier(&api), lease(&api).await);
    let dies = tokio::spawn(async move { first.turn(hook.id, old).await });
    receiver.has(1).await;
    dies.abort();
    assert!(dies.await.unwrap_err().is_cancelled());
    assert_eq!(api.store.webhook_progress(hook.id).await.unwrap().unwrap().attempts, 0, "nothing of it was stored");
    turn(&api, &hook).await;
    assert_eq!(receiver.seqs(), [last - 1, last - 1, last]);
    happen(&api, 1).await;
    assert_eq!(courier(&api).turn(hook.id, old).await.unwrap(), Turn::Again, "its lease is lost");
    let progress = api.store.webhook_progress(hook.id).await.unwrap().unwrap();
    assert_eq!(progress.cursor, EventSeq(last), "a server without the lease stores nothing");
}

#[tokio::test]
async fn a_disabled_webhook_gets_nothing_and_goes_on_where_it_stopped() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    let path = |verb: &str| format!("{WEBHOOKS}/ticketing/{verb}");
    let seen = api.json(Method::POST, &path("disable"), r#"{"reason":"maintenance"}"#).await;
    assert_eq!(
        (seen.body["status"].as_str(), seen.body["status_reason"].as_str()),
        (Some("disabled"), Some("maintenance"))
    );
    happen(&api, 2).await;
    assert_eq!(turn(&api, &hook).await, Turn::Nothing);
    assert!(receiver.got().is_empty());
    api.json(Method::POST, &path("enable"), "{}").await;
    turn(&api, &hook).await;
    assert_eq!(receiver.got().len(), 2, "what happened meanwhile");
    api.json(Method::POST, &path("disable"), "{}").await;
    happen(&api, 2).await;
    api.json(Method::POST, &path("enable"), r#"{"skip":true}"#).await;
    happen(&api, 1).await;
    turn(&api, &hook).await;
    assert_eq!(receiver.got().len(), 3, "only what happens from then on");
    let audit = api.get(&format!("/api/v1/admin/audit?resource_kind=webhook&resource_id={}", hook.id)).await;
    let done: Vec<_> =
        audit.body["items"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    let wanted = ["enabled", "disabled", "enabled", "disabled", "created"].map(|verb| format!("webhook.{verb}"));
    assert_eq!(done, wanted);
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_receiver_that_takes_nothing_is_shown_then_given_up_and_enabled_again() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    happen(&api, 1).await;
    receiver.will_say(std::iter::repeat_n(Says::Status(503, ""), 24));
    let begun = api.clock.now();
    turn(&api, &hook).await;
    assert!(incidents(&api).await.is_empty(), "a hiccup needs nobody");
    api.pass(SHOWN_AFTER);
    let shown = &incidents(&api).await[0];
    assert_eq!((shown["severity"].as_str(), shown["mark"].as_str()), (Some("warning"), Some("failing")));
    assert_eq!(shown["next"]["command"], "lattice webhook test ticketing");
    while api.store.webhook(hook.id).await.unwrap().unwrap().status == WebhookStatus::Enabled {
        api.pass(GIVEN_UP_AFTER / 20);
        turn(&api, &hook).await;
    }
    assert!(api.clock.now().since(begun) >= GIVEN_UP_AFTER);
    let shown = &incidents(&api).await[0];
    assert_eq!((shown["severity"].as_str(), shown["mark"].as_str()), (Some("critical"), Some("gave_up")));
    assert!(shown["evidence"][0].as_str().unwrap().contains("answered 503"), "{shown}");
    assert_eq!(shown["next"]["command"], "lattice webhook enable ticketing");
    let audit = api.get(&format!("/api/v1/admin/audit?resource_kind=webhook&resource_id={}&limit=1", hook.id)).await;
    let row = &audit.body["items"][0];
    assert_eq!((row["action"].as_str(), row["actor"].as_str()), (Some("webhook.gave_up"), Some("webhooks")));
    receiver.will_say([]);
    let call = &shown["next"]["api"];
    api.json(Method::POST, call["path"].as_str().unwrap(), &call["body"].to_string()).await;
    while receiver.got().last().is_none_or(|got| got.event()["name"] != "secrets.unavailable")
        || show(&api, "ticketing").await["waiting"] != 0
    {
        api.pass(Duration::from_secs(300));
        turn(&api, &hook).await;
    }
    assert!(incidents(&api).await.is_empty(), "nothing was lost");
}

async fn incidents(api: &Api) -> Vec<Value> {
    api.get("/api/v1/admin/fleet").await.body["attention"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_receiver_that_says_it_is_gone_is_given_up_at_once() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    happen(&api, 2).await;
    receiver.will_say([Says::Status(410, "")]);
    turn(&api, &hook).await;
    assert_eq!(receiver.got().len(), 1);
    assert_eq!(show(&api, "ticketing").await["status"], "gave_up");
}

#[tokio::test]
async fn after_a_rotation_both_keys_sign_until_the_old_one_has_had_its_time() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let old = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    let path = format!("{WEBHOOKS}/ticketing/rotate-secret");
    let new = hook(&api.json(Method::POST, &path, r#"{"grace_seconds":60}"#).await);
    happen(&api, 1).await;
    turn(&api, &old).await;
    let got = receiver.got();
    assert!(got[0].is_signed_with(&old.key) && got[0].is_signed_with(&new.key));
    api.pass(Duration::from_secs(60));
    happen(&api, 1).await;
    turn(&api, &old).await;
    let got = receiver.got();
    assert!(!got[1].is_signed_with(&old.key) && got[1].is_signed_with(&new.key));
    let newest = hook(&api.json(Method::POST, &path, r#"{"grace_seconds":0}"#).await);
    happen(&api, 1).await;
    turn(&api, &old).await;
    let got = receiver.got();
    assert!(!got[2].is_signed_with(&new.key) && got[2].is_signed_with(&newest.key), "a key that leaked signs no more");
    assert_eq!(api.secret_paths("kv/webhooks/").len(), 1, "only the last one is kept");
    api.json(Method::POST, &path, r#"{"grace_seconds":9999999}"#).await.refuses(422, "LAT0010", "31 days and more");
    let seen = api.json(Method::DELETE, &format!("{WEBHOOKS}/ticketing"), "").await;
    assert_eq!((seen.status.as_u16(), api.secret_paths("kv/webhooks/").len()), (200, 0), "{}", seen.body);
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_key_is_in_no_row_no_event_no_audit_and_shown_once() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let body = json!({"name": "ticketing", "url": receiver.url(), "events": ["*"]}).to_string();
    let ask = || {
        let builder = request(Method::POST, WEBHOOKS).header("idempotency-key", "once");
        as_role(builder, Role::PlatformAdmin, &body)
    };
    let created = hook(&api.send(ask()).await);
    api.send(ask()).await.refuses(409, "LAT0011", "a repeat");
    assert_eq!(api.secret_paths("kv/webhooks/").len(), 1);
    turn(&api, &created).await;
    let mut texts = vec![show(&api, "ticketing").await.to_string()];
    for path in ["/api/v1/admin/events?limit=1000", "/api/v1/admin/audit/export", WEBHOOKS] {
        texts.push(String::from_utf8(api.get(path).await.bytes.to_vec()).unwrap());
    }
    texts.push(format!("{:?}", api.store.webhook(created.id).await.unwrap()));
    assert!(texts.iter().all(|text| !text.contains(&created.key)), "{texts:#?}");
    assert!(!texts[1].contains("hunter2") && !texts[2].contains("hunter2"), "an address may hold a secret");
    let viewer = as_role(request(Method::GET, &format!("{WEBHOOKS}/ticketing")), Role::ProjectViewer, "");
    api.send(viewer).await.refuses(403, "LAT0003", "viewers do not see addresses");
}

#[tokio::test]
async fn answers_without_end_and_redirects_do_no_harm() {
    let (api, receiver, other) = (Api::new().await, Receiver::start().await, Receiver::start().await);
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    happen(&api, 2).await;
    receiver.will_say([Says::Endless, Says::Elsewhere(other.url())]);
    assert!(matches!(turn(&api, &hook).await, Turn::Until(..)));
    assert_eq!((receiver.got().len(), other.got().len()), (2, 0));
    let seen = api.get(&format!("{WEBHOOKS}/ticketing/deliveries")).await;
    assert_eq!(seen.body["items"][1]["status"], 200, "an endless 200 is taken: {}", seen.body);
    assert_eq!(seen.body["items"][0]["error"], "answered 302: redirects are not followed");
}

#[tokio::test]
async fn what_answers_only_from_inside_is_not_reached_by_address_or_by_name() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let rows =
        ["http://10.0.0.1/", "https://192.168.0.1/", "https://169.254.169.254/", "https://[fd00::1]/", "gopher://x/"];
    for url in rows {
        let body = json!({"name": "inside", "url": url, "events": ["*"]}).to_string();
        let seen = api.json(Method::POST, WEBHOOKS, &body).await;
        seen.refuses(422, "LAT0010", url);
        assert_eq!(seen.body["field"], "url");
    }
    assert!(api.secret_paths("kv/webhooks/").is_empty());
    // Created while loopback was allowed; judged again at each attempt, by what its name resolves to.
    for (name, url) in [("by-name", receiver.url_by_name()), ("by-address", receiver.url())] {
        let hook = create(&api, name, &url, "secrets.*").await;
        happen(&api, 1).await;
        let strict = Courier { sender: Arc::new(HttpSender::new(AddressPolicy::default())), ..courier(&api) };
        assert!(matches!(strict.turn(hook.id, lease(&api).await).await.unwrap(), Turn::Until(..)));
        let error = show(&api, name).await["last_error"].to_string();
        assert!(error.contains("is this host itself") && error.contains("webhooks.allow"), "{error}");
    }
    assert!(receiver.got().is_empty());
}

#[tokio::test]
async fn a_webhook_of_a_site_gets_that_sites_events_alone() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let body = json!({"name": "dc1", "url": receiver.url(), "events": ["*"], "site": "local"}).to_string();
    let hook = hook(&api.json(Method::POST, WEBHOOKS, &body).await);
    let site = api.store.site_by_name("local").await.unwrap().unwrap();
    let other = SiteId::generate(&*api.ids, api.clock.now());
    for id in [site.id, other] {
        let note =
            Change::Note { name: "site.removed".to_owned(), resource: Resource::Site(id), detail: String::new() };
        api.commit(vec![note]).await;
    }
    happen(&api, 1).await;
    turn(&api, &hook).await;
    let got: Vec<String> = receiver.got().iter().map(|got| got.event()["resource_id"].to_string()).collect();
    assert_eq!(got.last(), Some(&format!("\"{}\"", site.id)), "{got:?}");
    assert!(!got.contains(&format!("\"{other}\"")), "{got:?}");
    let missing = json!({"name": "dc2", "url": receiver.url(), "events": ["*"], "site": "nowhere"}).to_string();
    api.json(Method::POST, WEBHOOKS, &missing).await.refuses(422, "LAT0010", "no such site");
}

#[tokio::test]
async fn a_test_says_what_came_back_and_is_audited() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    let path = format!("{WEBHOOKS}/ticketing/test");
    let seen = api.json(Method::POST, &path, "").await;
    assert_eq!((seen.body["ok"].as_bool(), seen.body["status"].as_u64()), (Some(true), Some(204)), "{}", seen.body);
    let got = &receiver.got()[0];
    assert!(got.is_signed_with(&hook.key));
    assert_eq!((got.seq(), got.header("lattice-event")), (0, "webhook.test"));
    receiver.will_say([Says::Status(401, "who are you")]);
    let seen = api.json(Method::POST, &path, "").await;
    assert_eq!(
        (seen.body["ok"].as_bool(), seen.body["error"].as_str()),
        (Some(false), Some("answered 401: who are you"))
    );
    let audit = api.get(&format!("/api/v1/admin/audit?resource_kind=webhook&resource_id={}&limit=1", hook.id)).await;
    assert_eq!(audit.body["items"][0]["action"], "webhook.tested");
    api.events_are_as_described().await;
}

#[tokio::test]
async fn a_lost_key_is_said_and_a_new_one_helps() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    let hook = create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    happen(&api, 1).await;
    api.lose_secrets("kv/webhooks/");
    turn(&api, &hook).await;
    let error = show(&api, "ticketing").await["last_error"].to_string();
    assert!(error.contains("lattice webhook rotate-secret ticketing"), "{error}");
    api.json(Method::POST, &format!("{WEBHOOKS}/ticketing/rotate-secret"), "{}").await;
    api.json(Method::POST, &format!("{WEBHOOKS}/ticketing/enable"), "{}").await;
    turn(&api, &hook).await;
    assert_eq!(receiver.got().len(), 1);
}

#[tokio::test]
async fn what_is_wrong_with_a_webhook_is_named() {
    let (api, receiver) = (Api::new().await, Receiver::start().await);
    create(&api, "ticketing", &receiver.url(), "secrets.*").await;
    let url = receiver.url();
    let rows = [
        (json!({"name": "a b", "url": url, "events": ["*"]}), 422, "LAT0010", "name"),
        (json!({"name": "a", "url": url, "events": []}), 422, "LAT0010", "events"),
        (json!({"name": "a", "url": url, "events": ["Node"]}), 400, "LAT0001", "events[0]"),
        (json!({"name": "a", "url": url, "events": ["*"], "colour": 1}), 400, "LAT0001", "colour"),
        (json!({"name": "ticketing", "url": url, "events": ["*"]}), 409, "LAT0011", ""),
    ];
    for (body, status, code, field) in rows {
        let seen = api.json(Method::POST, WEBHOOKS, &body.to_string()).await;
        seen.refuses(status, code, &body.to_string());
        assert_eq!(seen.body["field"].as_str().unwrap_or_default(), field, "{}", seen.body);
    }
    let path = format!("{WEBHOOKS}/ticketing");
    let patched = api.json(Method::PATCH, &path, r#"{"name":"paging","events":["node.moved"]}"#).await;
    assert_eq!((patched.body["name"].as_str(), &patched.body["events"]), (Some("paging"), &json!(["node.moved"])));
    let stale =
        Request::builder().method(Method::DELETE).uri(format!("{WEBHOOKS}/paging")).header(header::IF_MATCH, "1");
    api.send(as_role(stale, Role::PlatformAdmin, "")).await.refuses(412, "LAT0005", "an older version");
}

#[tokio::test]
async fn one_server_delivers_and_a_slow_receiver_holds_up_nobody_else() {
    let (api, slow, quick) = (Api::new().await, Receiver::start().await, Receiver::start().await);
    create(&api, "slow", &slow.url(), "secrets.*").await;
    create(&api, "quick", &quick.url(), "secrets.*").await;
    slow.will_say([Says::Nothing]);
    let stop = CancellationToken::new();
    let servers: Vec<_> = ["one", "two"]
        .map(|name| Courier { holder: name.to_owned(), ..courier(&api) })
        .map(|courier| tokio::spawn(deliver(courier, stop.clone())))
        .into_iter()
        .collect();
    slow.has(0).await;
    happen(&api, 3).await;
    quick.has(3).await;
    happen(&api, 2).await;
    let got = quick.has(5).await;
    let seqs: Vec<u64> = got.iter().map(super::receiver::Got::seq).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "once each, in order: {seqs:?}");
    assert_eq!(slow.has(1).await.len(), 1, "one in flight");
    stop.cancel();
    for server in servers {
        server.await.unwrap();
    }
    assert_eq!(api.store.lease("webhooks").await.unwrap(), None, "it is given back");
}

#[tokio::test]
async fn a_secret_store_that_is_away_is_an_incident() {
    let api = Api::new().await;
    let outage = lattice_controllers::SecretOutage {
        since: api.clock.now(),
        cause: "sealed",
        why: "vault is sealed".to_owned(),
        remedy: Some("unseal it".to_owned()),
    };
    api.standing.note(Some(outage));
    let shown = &incidents(&api).await[0];
    assert_eq!((shown["severity"].as_str(), shown["mark"].as_str()), (Some("critical"), Some("sealed")));
    assert_eq!(shown["next"]["effect"], "unseal it");
    api.standing.note(None);
    assert!(incidents(&api).await.is_empty());
}
