//! A node by the command line alone: a real server, the real `lattice`, the printed line run by a real shell as root on
//! a host of its own, the real agent as a process.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[path = "manual/host.rs"]
mod host;
#[path = "manual/world.rs"]
mod world;

use std::time::Duration;

use host::Host;
use lattice_core::node::{Availability, NodeState, Status};
use world::World;

const READY: NodeState = NodeState::new(Status::Active, Availability::Ready);

/// A host, or none where the system gives no mount namespaces: the test is skipped then.
macro_rules! host_or_skip {
    () => {
        match Host::start() {
            Some(host) => host,
            None => return eprintln!("skipped: manual (needs root and unshare)"),
        }
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_becomes_a_node_by_one_line_and_stays_it() {
    let host = host_or_skip!();
    let world = World::start().await;
    world.ok(&["sku", "create", "lab.any", "--gpus", "0"]);
    let created = world.lattice(&["node", "create", "lab01", "--sku", "lab.any"]);
    let (line, told) = (text(&created.stdout), text(&created.stderr));
    let id = world.json(&["node", "show", "lab01"])["id"].as_str().unwrap().to_owned();
    assert!(line.lines().count() == 1 && !line.contains("lat_enroll"), "{line}");
    assert!(told.contains(&id) && told.contains("as root on lab01"), "{told}");
    assert!(world.ok(&["explain", "node", "lab01"]).contains("its bootstrap command was not run yet"));

    let ran = host.run(&line);
    let said = text(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert!(
        said.contains("next: /usr/local/bin/lattice-agent run --bootstrap /etc/lattice/bootstrap.json"),
        "how to start it is said where no systemd runs: {said}"
    );
    let modes = host.run("stat -c %a /etc/lattice/bootstrap.json /etc/lattice/ca.pem /usr/local/bin/lattice-agent");
    assert_eq!(text(&modes.stdout), "600\n644\n755\n");

    let mut agent = host.agent();
    world.until("lab01", READY).await;
    let shown = world.ok(&["node", "show", "lab01"]);
    assert!(shown.contains("active") && shown.contains("ready"), "{shown}");
    assert!(world.ok(&["explain", "node", "lab01"]).contains("schedulable"));
    let history = world.ok(&["node", "history", "lab01"]);
    for step in ["bootstrap_issued", "enrolling", "booting", "active"] {
        assert!(history.contains(step), "{step}: {history}");
    }

    // Killed, it comes back by what lies on its disk: its token is used, and is not asked for again.
    agent.kill().await;
    let mut agent = host.agent();
    agent.registered().await;
    agent.terminate().await;
    let state: serde_json::Value =
        serde_json::from_str(&text(&host.run("cat /var/lib/lattice/agent-state.json").stdout)).unwrap();
    assert_eq!(state["node_id"], id.as_str());

    let mut agent = host.agent();
    agent.registered().await;
    world.ok(&["node", "revoke-certificate", "lab01", "--yes"]);
    let (code, said) = agent.ended().await;
    assert!(code == Some(1) && said.contains("LAT0065"), "{code:?}: {said}");
    assert!(world.ok(&["audit", "list", "-w"]).contains("LAT0065"));
    world.clock.hasten();
    world.until("lab01", NodeState::new(Status::Active, Availability::Degraded)).await;
    world.until("lab01", NodeState::new(Status::Offline, Availability::Down)).await;
    world.clock.slow_down();
    let explained = world.ok(&["explain", "node", "lab01"]);
    assert!(explained.contains("lattice node bootstrap lab01"), "{explained}");

    let again = host.run(&world.ok(&["node", "bootstrap", "lab01"]));
    assert!(again.status.success(), "{}", text(&again.stderr));
    let mut agent = host.agent();
    world.until("lab01", READY).await;
    agent.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_used_twice_for_another_node_withdrawn_or_too_late_is_refused_and_audited() {
    let (first, second) = (host_or_skip!(), host_or_skip!());
    let world = World::start().await;
    world.ok(&["sku", "create", "lab.any"]);
    let line = |words: &[&str]| world.ok(words);
    let create = |name: &str| line(&["node", "create", name, "--sku", "lab.any"]);
    let id = |name: &str| world.json(&["node", "show", name])["id"].as_str().unwrap().to_owned();
    let refused = async |code: &str, why: &str| {
        let (exit, said) = second.agent().ended().await;
        assert!(exit == Some(1) && said.contains(code) && said.contains(why), "{exit:?}: {said}");
        assert!(said.contains("next: lattice node bootstrap"), "{said}");
        let audit = world.ok(&["audit", "list", "-w"]);
        assert!(audit.contains("node.enroll") && audit.contains(why), "{why}: {audit}");
        second.run("rm -rf /var/lib/lattice");
    };

    let lab01 = create("lab01");
    assert!(first.run(&lab01).status.success());
    let mut agent = first.agent();
    world.until("lab01", READY).await;
    assert!(second.run(&lab01).status.success(), "the line can be run again; its token cannot be used again");
    refused("LAT0060", "used before").await;

    assert!(second.run(&create("lab02")).status.success());
    let given = text(&second.run("cat /etc/lattice/bootstrap.json").stdout);
    let foreign = given.replace(&id("lab02"), &id("lab01"));
    second.install(&foreign);
    refused("LAT0063", "belongs to another node").await;
    second.install(&given.replace("lat_enroll_", "lat_enroll_x"));
    refused("LAT0062", "unknown").await;
    let reissued = line(&["node", "bootstrap", "lab02"]);
    second.install(&given);
    refused("LAT0061", "withdrawn").await;
    assert!(second.run(&reissued).status.success());
    let mut other = second.agent();
    world.until("lab02", READY).await;
    other.terminate().await;
    second.run("rm -rf /var/lib/lattice");

    assert!(second.run(&create("lab03")).status.success());
    world.ok(&["node", "withdraw", "lab03", "--yes"]);
    refused("LAT0061", "withdrawn").await;

    assert!(second.run(&create("lab04")).status.success());
    agent.terminate().await;
    world.clock.advance(Duration::from_secs(3 * 3600));
    refused("LAT0061", "expired").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_node_is_refused_and_audited() {
    let host = host_or_skip!();
    let world = World::start().await;
    world.ok(&["sku", "create", "lab.any"]);
    assert!(host.run(&world.ok(&["node", "create", "lab01", "--sku", "lab.any"])).status.success());
    let mut agent = host.agent();
    world.until("lab01", READY).await;
    agent.terminate().await;
    world.ok(&["node", "create", "lab02", "--sku", "lab.any"]);
    let other = world.json(&["node", "show", "lab02"])["id"].as_str().unwrap().to_owned();
    let identity: serde_json::Value =
        serde_json::from_str(&text(&host.run("cat /var/lib/lattice/identity.json").stdout)).unwrap();
    host.write("/run/cert.pem", identity["issued"]["certificate_pem"].as_str().unwrap());
    host.write("/run/key.pem", identity["key_pem"].as_str().unwrap());
    let answer = host.run(&format!(
        "curl -sS --cert /run/cert.pem --key /run/key.pem --cacert /etc/lattice/ca.pem -X POST \
         -H 'content-type: application/json' -d '{{}}' {}/internal/v1/nodes/{other}/heartbeat",
        world.agents
    ));
    assert!(text(&answer.stdout).contains("LAT0064"), "{answer:?}");
    assert!(world.ok(&["audit", "list", "-w"]).contains("LAT0064"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_what_its_sku_asks_stays_booting_and_explain_says_what_is_missing() {
    let host = host_or_skip!();
    let world = World::start().await;
    world.ok(&["sku", "create", "lab.8gpu", "--gpus", "8"]);
    assert!(host.run(&world.ok(&["node", "create", "lab01", "--sku", "lab.8gpu"])).status.success());
    let mut agent = host.agent();
    world.until_registered("lab01").await;
    assert_eq!(world.state("lab01").await, NodeState::new(Status::Enrolling, Availability::Booting));
    let explained = world.ok(&["explain", "node", "lab01"]);
    for said in ["health check: 0 GPUs on the bus, lab.8gpu asks for 8", "bring the host to what its SKU asks"] {
        assert!(explained.contains(said), "{explained}");
    }
    agent.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_says_what_is_missing_and_trusts_no_other_binary() {
    let host = host_or_skip!();
    let world = World::start().await;
    world.ok(&["sku", "create", "lab.any"]);
    let line = world.ok(&["node", "create", "lab01", "--sku", "lab.any"]);
    let digest = world.agent_digest();
    let other = host.run(&line.replace(&digest, &"0".repeat(64)));
    assert!(
        !other.status.success() && text(&other.stderr).contains("is not the one that this line names"),
        "{other:?}"
    );
    let away = host.run(&line.replace(&world.agents, "https://127.0.0.1:1"));
    assert!(!away.status.success() && text(&away.stderr).contains("the agent cannot be fetched"), "{away:?}");
    assert!(!host.run("test -e /etc/lattice/bootstrap.json").status.success(), "no token was put in place");

    let without = World::without_agent().await;
    without.ok(&["sku", "create", "lab.any"]);
    let line = without.ok(&["node", "create", "lab01", "--sku", "lab.any"]);
    let none = host.run(&line);
    assert!(!none.status.success() && text(&none.stderr).contains("bootstrap.agent_binary"), "{none:?}");
    let url = format!("{}/bootstrap/lattice-agent", without.agents);
    let answer = text(&host.run(&format!("curl -sS --cacert /etc/lattice/ca.pem {url}")).stdout);
    assert!(answer.contains("\"status\":404") && answer.contains("bootstrap.agent_binary"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_systemd_runs_the_line_ends_with_a_service_that_starts_with_the_host() {
    let host = host_or_skip!();
    let world = World::start().await;
    world.ok(&["sku", "create", "lab.any"]);
    host.write("/usr/local/bin/systemctl", "#!/bin/sh\necho \"$*\" >>/run/systemctl\n");
    host.run("chmod 755 /usr/local/bin/systemctl; mkdir -p /run/systemd/system");
    let ran = host.run(&world.ok(&["node", "create", "lab01", "--sku", "lab.any"]));
    assert!(ran.status.success() && text(&ran.stderr).contains("lattice-agent runs"), "{ran:?}");
    let asked = text(&host.run("cat /run/systemctl").stdout);
    assert_eq!(asked, "daemon-reload\nenable --quiet lattice-agent.service\nrestart lattice-agent.service\n");
    let unit = text(&host.run("cat /etc/systemd/system/lattice-agent.service").stdout);
    assert_eq!(unit, include_str!("../../../deploy/lattice-agent.service"));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
