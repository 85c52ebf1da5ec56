//! Every page as it is rendered, for a fleet that never changes.

use crate::fleet::{self, seed};
use crate::server::{TOKEN, TestServer, Time, VIEWER};

/// The changing part alone: the frame has its own golden.
fn body(page: &str) -> &str {
    let start = page.find("<main").unwrap();
    let end = page.find("</main>").unwrap();
    &page[start..end]
}

/// What stands between two marks.
fn part<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let start = page.find(from).unwrap();
    &page[start..start + page[start..].find(to).unwrap()]
}

#[tokio::test]
async fn pages_look_as_they_did() {
    let server = TestServer::start(Time::Stands).await;
    let fleet = seed(&server).await;
    let rows = [
        ("fleet", "/ui/".to_owned()),
        ("fleet_filtered", "/ui/?status=offline&site=dc1".to_owned()),
        ("node_that_waits", "/ui/nodes/c07u43".to_owned()),
        ("node_active", "/ui/nodes/c07u01".to_owned()),
        ("node_held", "/ui/nodes/c08u16".to_owned()),
        ("job_failed", format!("/ui/jobs/{}", fleet.failed_job)),
        ("jobs_live", "/ui/jobs?status=live".to_owned()),
        ("sites", "/ui/sites".to_owned()),
        ("site", "/ui/sites/dc1".to_owned()),
        ("no_such_node", "/ui/nodes/c99u99".to_owned()),
    ];
    let mut problems = Vec::new();
    for (name, path) in rows {
        let (status, page) = server.page(&path, TOKEN).await;
        assert_eq!(status, if name == "no_such_node" { 404 } else { 200 }, "{path}: {page}");
        for inline in ["style=", "<script>", "onclick=", "javascript:"] {
            if page.contains(inline) {
                problems.push(format!("{path} holds `{inline}`, which the policy refuses"));
            }
        }
        insta::assert_snapshot!(name, body(&page));
    }
    assert!(problems.is_empty(), "{problems:#?}");
    let batch = fleet::batch(&server, fleet.site).await;
    let webhook = fleet::webhooks(&server).await;
    let rows = [
        ("batches", "/ui/batches".to_owned()),
        ("batch", format!("/ui/batches/{batch}")),
        ("webhooks", "/ui/webhooks".to_owned()),
        ("webhook_given_up", format!("/ui/webhooks/{webhook}")),
    ];
    for (name, path) in rows {
        let (status, page) = server.page(&path, TOKEN).await;
        assert_eq!(status, 200, "{path}: {page}");
        insta::assert_snapshot!(name, body(&page));
    }
    let (_, page) = server.page("/ui/", TOKEN).await;
    assert!(page.contains("webhook ticketing gets no events any more"), "what was given up is an incident");
    fleet::silences(&server).await;
    let (_, page) = server.page("/ui/", TOKEN).await;
    insta::assert_snapshot!("fleet_silenced", part(&page, "<h2 id=\"attention-title\"", "id=\"nodes-title-panel\""));
    let (_, page) = server.page("/ui/nodes/c08u17", TOKEN).await;
    insta::assert_snapshot!("node_silenced", part(&page, "id=\"silences-title-panel\"", "</section>"));
    let (_, page) = server.page("/ui/nodes/c07u01", TOKEN).await;
    assert!(
        page.contains("the fans are known") && !page.contains("the rack is moved"),
        "those that cover it, no others"
    );
    let (_, page) = server.page("/ui/sites", TOKEN).await;
    insta::assert_snapshot!("frame", page.replace(body(&page), "…"));
}

#[tokio::test]
async fn the_inventory_shows_no_stage_of_a_job_as_a_status() {
    use strum::VariantArray;
    let server = TestServer::start(Time::Stands).await;
    seed(&server).await;
    let (_, page) = server.page("/ui/", TOKEN).await;
    let coarse: Vec<String> = lattice_core::node::Status::VARIANTS.iter().map(ToString::to_string).collect();
    let table = &page[page.find("<table class=\"nodes\"").unwrap()..page.find("</table>").unwrap()];
    let pills = table.split("class=\"pill ").skip(1).map(|rest| {
        let rest = &rest[rest.find('>').unwrap() + 1..];
        rest[..rest.find('<').unwrap()].to_owned()
    });
    for pill in pills {
        assert!(coarse.contains(&pill), "{pill}");
    }
}

#[tokio::test]
async fn strangers_are_asked_for_a_token_and_guests_see_no_audit_and_no_webhooks() {
    let server = TestServer::start(Time::Stands).await;
    let (status, _) = server.page("/ui/", "lat_api_wrong").await;
    assert_eq!(status, 303);
    for closed in ["/ui/audit", "/ui/webhooks"] {
        let (status, page) = server.page(closed, VIEWER).await;
        assert_eq!(status, 403, "{page}");
    }
    let (status, page) = server.page("/ui/", VIEWER).await;
    assert_eq!((status, page.contains("/ui/audit")), (200, false));
    let (status, page) = server.page("/ui/audit", TOKEN).await;
    assert_eq!((status, page.contains("unbroken")), (200, true), "{page}");
}

#[tokio::test]
async fn what_is_written_by_others_is_escaped() {
    let server = TestServer::start(Time::Stands).await;
    let fleet = seed(&server).await;
    let state = (lattice_core::node::Status::Active, lattice_core::node::Availability::Degraded);
    let mut node = fleet::node(&server, fleet.site, "evil", state, server.now());
    node.minor_issue = Some("<script>alert(1)</script>".to_owned());
    server.commit(server.now(), vec![fleet::created(&node)]).await;
    for path in ["/ui/", "/ui/nodes/evil", "/ui/?q=%22%3E%3Cscript%3E"] {
        let (status, page) = server.page(path, TOKEN).await;
        assert_eq!(status, 200);
        assert!(!page.contains("<script>"), "{path}");
    }
}

#[tokio::test]
async fn a_change_by_cookie_from_another_origin_is_refused() {
    let server = TestServer::start(Time::Stands).await;
    seed(&server).await;
    let ask = |origin: &'static str| {
        let request = reqwest::Client::new()
            .post(server.url("/api/v1/admin/nodes/c07u01/drain"))
            .header("cookie", format!("lattice_token={TOKEN}"))
            .header("content-type", "application/json")
            .header("sec-fetch-site", origin)
            .body("{}");
        async move { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(ask("cross-site").await, 403);
    assert_eq!(ask("same-origin").await, 200);
}
