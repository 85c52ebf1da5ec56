//! The page in a real browser: first load, live, every action by its button, keyboard alone, narrow, dark.

use std::time::Duration;

use lattice_core::actor::{Actor, Role};
use lattice_core::bmc::{Bmc, BmcCause, BmcEndpoint, BmcTls, BmcWay, BreakerState};
use lattice_core::change::Change;
use lattice_core::ids::Generation;
use lattice_core::job::{JobInput, JobKind, JobStatus, StageEventStatus, StageName};
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, OnboardingMode, Status};

use crate::chrome::{Browser, ENTER, ESCAPE, TAB};
use crate::fleet::{self, Fleet, seed};
use crate::server::{TOKEN, TestServer, Time};

/// A browser that is signed in, before a server with the fleet; none where no driver was found.
async fn signed_in() -> Option<(Browser, TestServer, Fleet)> {
    let browser = Browser::start().await?;
    let server = TestServer::start(Time::Runs).await;
    let fleet = seed(&server).await;
    browser.open(&server.url(&format!("/ui/login#token={TOKEN}"))).await;
    browser.until("location.pathname === '/ui/' && document.querySelector('#live').dataset.state === 'live'").await;
    Some((browser, server, fleet))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_load_shows_what_needs_attention_first() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    browser.until("document.querySelectorAll('#attention article').length >= 3").await;
    assert_eq!(browser.run("return location.hash").await, "", "the token left the address");
    assert_eq!(browser.run("return document.cookie").await, "", "scripts cannot read the token");
    browser.screenshot("fleet").await;
    browser.open(&server.url(&format!("/ui/jobs/{}", fleet.failed_job))).await;
    browser.until("document.querySelector('#failure button.primary') && document.querySelector('#live').dataset.state === 'live'").await;
    browser.screenshot("failed-job").await;
    browser.open(&server.url("/ui/nodes/c07u43")).await;
    browser.until("document.querySelector('.stages svg') && document.querySelector('.tl li')").await;
    browser.screenshot("node").await;
    for path in ["/ui/allocations", "/ui/jobs", "/ui/sites", "/ui/audit"] {
        browser.open(&server.url(path)).await;
        browser.until("document.querySelector('#live').dataset.state === 'live'").await;
        browser.screenshot(path.rsplit('/').next().unwrap()).await;
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_shows_without_a_reload_and_disturbs_nobody() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    browser.run("window.unbroken = true; document.querySelector('#n-x'); document.querySelector('.filters input').focus(); window.scrollTo(0, 300)").await;
    let state = (Status::Active, Availability::Ready);
    let node = fleet::node(&server, fleet.site, "c09u01", state, server.now());
    server.commit(server.now(), vec![fleet::created(&node)]).await;
    browser.until("[...document.querySelectorAll('.map a')].some((a) => a.title.startsWith('c09u01'))").await;
    let (_, change) = fleet::moved(&node, (Status::Active, Availability::Degraded), server.now(), "heartbeat_missed");
    server.commit(server.now(), vec![change]).await;
    browser
        .until("[...document.querySelectorAll('.map a')].some((a) => a.title.startsWith('c09u01: active, degraded'))")
        .await;
    browser.until("/live, [0-9.]+ s behind/.test(document.querySelector('#live').textContent)").await;
    let kept = "return window.unbroken && document.activeElement.name === 'q' && window.scrollY === 300";
    assert_eq!(browser.run(kept).await, true, "no reload; focus and scroll stay");
    browser.open(&server.url("/ui/nodes/c07u43")).await;
    browser.until("document.querySelector('#later')").await;
    browser.run("document.querySelector('#later').open = true").await;
    let before = browser.run("return document.querySelector('main').dataset.at").await;
    browser.until(&format!("document.querySelector('main').dataset.at !== {before}")).await;
    assert_eq!(browser.run("return document.querySelector('#later').open").await, true, "what was opened stays open");
    // A panel above goes away, a hold and a button appear: the focus stays on the button that it was on.
    browser.open(&server.url("/ui/nodes/c07u05")).await;
    browser.until("document.querySelector('#live').dataset.state === 'live'").await;
    let button = "#verbs-title-panel button[data-path$='/quarantine']";
    browser.run(&format!("window.held = document.querySelector({button:?}); window.held.focus()")).await;
    let node = server.store.node_by_hostname("c07u05").await.unwrap().unwrap();
    let (after, change) =
        fleet::moved(&node, (Status::Active, Availability::Degraded), server.now(), "heartbeat_missed");
    server.commit(server.now(), vec![change]).await;
    browser.until("document.querySelector('#why')").await;
    let kept = "return document.activeElement === window.held && window.held.dataset.path.endsWith('/quarantine')";
    assert_eq!(browser.run(kept).await, true);
    let (_, change) = fleet::moved(&after, (Status::Active, Availability::Ready), server.now(), "heartbeat_returned");
    server.commit(server.now(), vec![change]).await;
    browser.until("!document.querySelector('#why')").await;
    assert_eq!(browser.run(kept).await, true);
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_narrow_the_table_and_the_address() {
    let Some((browser, _server, _)) = signed_in().await else { return };
    browser.run("const s = document.querySelector('select[name=status]'); s.value = 'offline'; s.dispatchEvent(new Event('change', {bubbles: true}))").await;
    browser
        .until(
            "document.querySelectorAll('table.nodes tbody tr').length === 3 && location.search === '?status=offline'",
        )
        .await;
    browser.keys("/").await;
    browser.until("document.activeElement.id === 'find'").await;
    browser.keys(&format!("c07u05{ENTER}")).await;
    browser.until("location.pathname === '/ui/nodes/c07u05'").await;
    browser.quit().await;
}

/// A node that allows the verb, as the states' table has it.
async fn node_for(server: &TestServer, fleet: &Fleet, verb: &str) -> String {
    let at = server.now();
    let name = format!("v-{verb}");
    let (status, availability) = match verb {
        "drain" | "disable" | "quarantine" | "retire" => (Status::Active, Availability::Ready),
        "undrain" => (Status::Active, Availability::Drained),
        "enable" => (Status::Offline, Availability::Down),
        "reboot" => (Status::Active, Availability::Drained),
        "reset" => (Status::Offline, Availability::Failed),
        "recover" => (Status::Quarantined, Availability::Ready),
        "reactivate" => (Status::Retired, Availability::Drained),
        "remove" => (Status::Retired, Availability::Drained),
        "resume" => (Status::Draining, Availability::Drained),
        "secure-erase" => (Status::Quarantined, Availability::Drained),
        "withdraw" => (Status::BootstrapIssued, Availability::Unknown),
        other => panic!("{other}"),
    };
    let mut node = fleet::node(server, fleet.site, &name, (status, availability), at);
    node.sku = "vm.small".to_owned();
    if verb == "withdraw" {
        node.mode = OnboardingMode::Manual;
    }
    if verb == "enable" {
        node.down_cause = Some(DownCause::Disabled);
        let by = Actor { name: "mara".to_owned(), role: Role::PlatformAdmin };
        let (kind, reason) = (HoldKind::Disabled, String::new());
        node.holds.push(Hold { kind, by, reason, since: at, until: None, job: None });
    }
    let facts = Change::HostFacts { node: node.id, facts: Default::default() };
    server.commit(at, vec![fleet::created(&node), facts]).await;
    if verb == "secure-erase" {
        let endpoint = BmcEndpoint {
            address: "10.1.0.7".parse().unwrap(),
            port: None,
            credential_path: "kv/bmcs/1".to_owned(),
            way: BmcWay::Redfish { tls: BmcTls::SiteAuthority, system: None },
        };
        let after = Bmc {
            node: node.id,
            site: fleet.site,
            endpoint,
            breaker: BreakerState::Closed,
            refusals: 0,
            set_at: at,
            set_by: "mara".to_owned(),
            generation: Generation::FIRST,
        };
        server.commit(at, vec![Change::Bmc { after, cause: BmcCause::Set }]).await;
    }
    server.hear(node.id, Duration::ZERO);
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_of_a_node_works_by_its_button() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    let rows = [
        ("drain", "done"),
        ("undrain", "done"),
        ("disable", "done"),
        ("enable", "done"),
        ("reboot", "done"),
        ("reset", "done"),
        ("quarantine", "done"),
        ("recover", "done"),
        ("retire", "done"),
        ("reactivate", "done"),
        ("remove", "done"),
        ("resume", "done"),
        ("secure-erase", "done"),
        ("withdraw", "done"),
    ];
    let mut wrong = Vec::new();
    for (verb, expected) in rows {
        let name = node_for(&server, &fleet, verb).await;
        browser.open(&server.url(&format!("/ui/nodes/{name}"))).await;
        let button = format!("#verbs-title-panel button[data-path$='/{verb}']");
        browser
            .until(&format!("document.querySelector({button:?}) && document.querySelector('#live').dataset.state"))
            .await;
        let command =
            browser.run(&format!("return document.querySelector({button:?}).nextElementSibling.textContent")).await;
        let options = if verb == "secure-erase" { " --drive all" } else { "" };
        assert_eq!(command, format!("lattice node {verb} {name}{options}"));
        press(&browser, &button).await;
        let (kind, text) = outcome(&browser).await;
        if kind != expected {
            wrong.push(format!("{verb}: {kind}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_gets_its_deadline_when_it_begins_and_later() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    let name = node_for(&server, &fleet, "drain").await;
    let node = server.store.node_by_hostname(&name).await.unwrap().unwrap().id;
    browser.open(&server.url(&format!("/ui/nodes/{name}"))).await;
    for (label, span, ms) in
        [("Drain with a deadline…", "45m", 2_700_000), ("Set the drain’s deadline…", "2h", 7_200_000)]
    {
        let button = "#verbs-title-panel button[data-body*='deadline_ms']";
        let says = format!("document.querySelector({button:?})?.textContent === {label:?}");
        browser.until(&format!("{says} && document.querySelector('#live').dataset.state")).await;
        browser.click(button).await;
        browser.until("document.activeElement.name === 'blank-deadline'").await;
        browser.keys(span).await;
        let shown = browser.run("return document.querySelector('#ask-command').textContent").await;
        assert_eq!(shown, format!("lattice node drain {name} --deadline {span}"));
        browser.click("#ask-ok").await;
        let (kind, text) = outcome(&browser).await;
        assert_eq!(kind, "done", "{text}");
        let job = server.store.live_job(node).await.unwrap().unwrap();
        let JobInput::Drain { deadline_ms: Some(deadline), .. } = job.input else { panic!("{:?}", job.input) };
        let asked_after = u64::try_from(server.now().since(job.created_at).as_millis()).unwrap();
        assert!((ms..=ms + asked_after).contains(&deadline), "{deadline} ms from its beginning");
        browser.click("#outcome button").await;
    }
    browser.quit().await;
}

/// Clicks, and confirms where it asks.
async fn press(browser: &Browser, button: &str) {
    browser.click(button).await;
    if browser.run("return document.querySelector('#ask').open").await == true {
        let effect = browser.run("return document.querySelector('#ask-effect').textContent").await;
        assert!(effect.as_str().is_some_and(|effect| effect.len() > 20), "{button}: it says what happens");
        let field = browser.run("return document.querySelectorAll('#ask-blanks input').length").await;
        if field == 1 {
            browser.keys("nvme0n1").await;
        }
        browser.click("#ask-ok").await;
    }
}

async fn outcome(browser: &Browser) -> (String, String) {
    browser.until("document.querySelector('#outcome').classList.contains('shown')").await;
    let kind = browser.run("return document.querySelector('#outcome').className.replace('shown ', '')").await;
    let text = browser.run("return document.querySelector('#outcome').innerText").await;
    (kind.as_str().unwrap().to_owned(), text.as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_on_a_job_works_by_its_button() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    let rows = [
        ("retry-stage", JobStatus::FailedRetryable),
        ("resume", JobStatus::FailedRetryable),
        ("rerun", JobStatus::FailedRetryable),
        ("restart-clean", JobStatus::FailedRetryable),
        ("cancel", JobStatus::FailedRetryable),
        ("mark-manual-intervention", JobStatus::FailedRetryable),
    ];
    let mut wrong = Vec::new();
    for (action, status) in rows {
        let at = server.now();
        let state = (Status::Enrolling, Availability::Unknown);
        let mut node = fleet::node(&server, fleet.site, &format!("j-{action}"), state, at);
        let mut job = fleet::job(&server, &node, JobKind::Onboarding, at);
        node.owning_job = Some(job.id);
        job.state.status = status;
        job.state.stage = StageName::CommissionNode;
        job.state.highest_stage = StageName::CommissionNode;
        job.state.failure = Some(lattice_core::job::Failure {
            stage: StageName::CommissionNode,
            class: lattice_core::failure::FailureClass::UpstreamTransient,
            error_code: "maas_unavailable".to_owned(),
            message: "the region answered 503".to_owned(),
            at,
            next_action: lattice_core::explain::NextAction::run(
                format!("lattice job retry-stage {}", job.id),
                "runs the stage again",
            ),
        });
        let failed = (StageName::CommissionNode, StageEventStatus::Failed, "the region answered 503");
        server.commit(at, vec![fleet::created(&node), fleet::job_change(&job, None, "created", &[failed])]).await;
        browser.open(&server.url(&format!("/ui/jobs/{}", job.id))).await;
        let button = format!("#ask-of-job-panel button[data-path$='/{action}']");
        browser
            .until(&format!("document.querySelector({button:?}) && document.querySelector('#live').dataset.state"))
            .await;
        press(&browser, &button).await;
        let (kind, text) = outcome(&browser).await;
        if kind != "done" {
            wrong.push(format!("{action}: {kind}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The decision that a stage asks for is typed into the dialog.
    browser.open(&server.url(&format!("/ui/jobs/{}", fleet.failed_job))).await;
    browser
        .until("document.querySelector('#failure button.primary') && document.querySelector('#live').dataset.state")
        .await;
    press(&browser, "#failure button.primary").await;
    let (kind, text) = outcome(&browser).await;
    assert_eq!(kind, "done", "{text}");
    let job = server.store.job(fleet.failed_job).await.unwrap().unwrap();
    assert_eq!(job.state.decisions.boot_disk.as_deref(), Some("nvme0n1"));
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sites_are_probed_and_holds_cleared_by_their_buttons() {
    let Some((browser, server, _)) = signed_in().await else { return };
    browser.open(&server.url("/ui/sites")).await;
    browser.until("document.querySelector('#live').dataset.state").await;
    browser.click("#site-dc1 button").await;
    let (kind, text) = outcome(&browser).await;
    assert_eq!((kind.as_str(), text.contains("3.5.2")), ("done", true), "{text}");
    browser.open(&server.url("/ui/nodes/c08u16")).await;
    browser.until("document.querySelector('#live').dataset.state").await;
    browser.click("#h-maintenance button").await;
    assert_eq!(outcome(&browser).await.0, "done");
    browser.until("!document.querySelector('#h-maintenance')").await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incident_is_silenced_by_the_keyboard_and_comes_back_when_lifted() {
    let Some((browser, _server, _)) = signed_in().await else { return };
    let button = "#attention button[data-body*='c08u17']";
    browser.until(&format!("document.querySelector(\"{button}\")")).await;
    browser.run(&format!("document.querySelector(\"{button}\").focus()")).await;
    browser.keys(ENTER).await;
    browser.until("document.activeElement.name === 'blank-for'").await;
    browser.keys("4h").await;
    browser.keys(ENTER).await;
    // Without a reason nothing is sent: the browser asks for it.
    browser.until("document.querySelector('#ask').open && document.activeElement.name === 'reason'").await;
    browser.keys("its board is on the way").await;
    let command = "return document.querySelector('#ask-command').textContent";
    let shown = browser.run(command).await;
    let whole =
        "lattice silence create --node c08u17 --kind node_quarantined --for 4h --reason 'its board is on the way'";
    assert_eq!(shown, whole);
    browser.keys(ENTER).await;
    let (kind, text) = outcome(&browser).await;
    assert_eq!(kind, "done", "{text}");
    browser.until(&format!("!document.querySelector(\"{button}\")")).await;
    let folded = "document.querySelector('#silences details.silenced summary')";
    browser.until(folded).await;
    let text = browser.run(&format!("return {folded}.textContent")).await;
    let text = text.as_str().unwrap_or_default();
    assert!(text.contains("c08u17") && text.contains("in 3 h 59 min") && text.contains("board"), "{text}");
    browser.click("#silences-in-force summary").await;
    browser.click("#silences-in-force button").await;
    browser.until(&format!("document.querySelector(\"{button}\")")).await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_what_why_and_what_next() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    let name = node_for(&server, &fleet, "recover").await;
    browser.open(&server.url(&format!("/ui/nodes/{name}"))).await;
    browser.until("document.querySelector('#live').dataset.state").await;
    // The page shows a button that another operator makes pointless meanwhile.
    browser.run("document.querySelector('main').dataset.keep = ''").await;
    let node = server.store.node_by_hostname(&name).await.unwrap().unwrap();
    let (_, change) = fleet::moved(&node, (Status::Active, Availability::Ready), server.now(), "recovered");
    server.commit(server.now(), vec![change]).await;
    press(&browser, "#verbs-title-panel button[data-path$='/recover']").await;
    let (kind, text) = outcome(&browser).await;
    assert_eq!(kind, "refused");
    assert!(["error:", "because:", "next:"].iter().all(|part| text.contains(part)), "{text}");
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_alone_is_enough() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    let name = node_for(&server, &fleet, "disable").await;
    browser.open(&server.url(&format!("/ui/nodes/{name}"))).await;
    browser.until("document.querySelector('#live').dataset.state").await;
    browser.keys(TAB).await;
    assert_eq!(
        browser.run("return document.activeElement.className").await,
        "skip",
        "the way to the content comes first"
    );
    let wanted = "document.activeElement.dataset.path?.endsWith('/disable')";
    for _ in 0..60 {
        if browser.run(&format!("return Boolean({wanted})")).await == true {
            break;
        }
        browser.keys(TAB).await;
    }
    browser.until(wanted).await;
    let outlined = "return getComputedStyle(document.activeElement).outlineStyle !== 'none'";
    assert_eq!(browser.run(outlined).await, true, "the focus is seen");
    browser.keys(ENTER).await;
    browser.until("document.querySelector('#ask').open && document.activeElement.id === 'ask-cancel'").await;
    browser.keys(ESCAPE).await;
    browser.until("!document.querySelector('#ask').open").await;
    browser.until(wanted).await;
    browser.keys(ENTER).await;
    browser.until("document.querySelector('#ask').open").await;
    browser.keys(TAB).await;
    browser.until("document.activeElement.id === 'ask-ok'").await;
    browser.keys(ENTER).await;
    assert_eq!(outcome(&browser).await.0, "done");
    let node = server.store.node_by_hostname(&name).await.unwrap().unwrap();
    assert_eq!(node.state.availability, Availability::Down);
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_and_a_dark_room_are_served_too() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    let pages = [
        ("fleet", "/ui/".to_owned()),
        ("node", "/ui/nodes/c07u43".to_owned()),
        ("job", format!("/ui/jobs/{}", fleet.failed_job)),
        ("allocations", "/ui/allocations".to_owned()),
    ];
    browser.prefer(&[("prefers-color-scheme", "dark"), ("prefers-reduced-motion", "reduce")]).await;
    for (name, path) in &pages {
        browser.open(&server.url(path)).await;
        browser.until("document.querySelector('#live').dataset.state === 'live'").await;
        let dark = "return getComputedStyle(document.body).backgroundColor";
        assert_eq!(browser.run(dark).await, "rgb(15, 20, 26)", "{path}");
        browser.screenshot(&format!("{name}-dark")).await;
    }
    browser.prefer(&[]).await;
    browser.width(390, 844).await;
    for (name, path) in &pages {
        browser.open(&server.url(path)).await;
        browser.until("document.querySelector('#live').dataset.state === 'live'").await;
        let wide = browser.run("return document.documentElement.scrollWidth").await;
        assert!(wide.as_u64().is_some_and(|wide| wide <= 390), "{path} is {wide} wide");
        browser.screenshot(&format!("{name}-narrow")).await;
    }
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_stand_out_enough_to_be_read_and_everything_has_a_name() {
    let Some((browser, server, fleet)) = signed_in().await else { return };
    for path in [
        "/ui/".to_owned(),
        "/ui/nodes/c07u43".to_owned(),
        format!("/ui/jobs/{}", fleet.failed_job),
        "/ui/audit".to_owned(),
    ] {
        browser.open(&server.url(&path)).await;
        browser.until("document.querySelector('#live').dataset.state === 'live'").await;
        let nameless = browser.run("return [...document.querySelectorAll('button, a, input, select')].filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length || e.type === 'hidden' || e.closest('dialog'))).map((e) => e.outerHTML)").await;
        assert_eq!(nameless, serde_json::json!([]), "{path}");
        let headers = browser.run("return [...document.querySelectorAll('th')].every((th) => th.scope)").await;
        assert_eq!(headers, true, "{path}: every table header says what it heads");
        let double = browser.run("const ids = [...document.querySelectorAll('[id]')].map((e) => e.id); return ids.filter((id, at) => ids.indexOf(id) !== at)").await;
        assert_eq!(double, serde_json::json!([]), "{path}: ids stand once");
    }
    for scheme in ["light", "dark"] {
        browser.prefer(&[("prefers-color-scheme", scheme)]).await;
        let faint = browser.run(CONTRAST).await;
        assert_eq!(faint, serde_json::json!([]), "{scheme}");
    }
    browser.quit().await;
}

/// Text whose contrast with what is behind it is below 4.5 (WCAG AA).
const CONTRAST: &str = "
    const parse = (text) => (text.match(/[0-9.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; })
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
    const faint = new Set();
    for (const e of document.querySelectorAll('main *, header *')) {
        if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.disabled || e.closest('.sr')) continue;
        const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) faint.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)} ${e.textContent.trim().slice(0, 20)}`);
    }
    return [...faint];";
