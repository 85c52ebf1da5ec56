//! The OpenCHAMI client: against a simulated power control always, and against real smd and bss where the environment
//! names them (`LATTICE_TEST_SMD`, `LATTICE_TEST_BSS`). `tests/peers/ochami/start.sh` starts them.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::sync::Arc;
use std::time::Duration;

use lattice_core::node::PowerFact;
use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use lattice_providers::error::ErrorKind;
use lattice_providers::machine::maas::Roots;
use lattice_providers::machine::openchami::{
    BootParameters, BootScript, Machine, NewEndpoint, NewSystem, OchamiClient, OchamiSettings, PowerOperation, State,
    StateChange, Transition, TransitionId, Xname,
};
use lattice_sim::clock::SystemClock;
use lattice_sim::pcs::{PcsFault, SimPcs, serve};
use lattice_sim::stop::Stop;
use tokio::net::TcpListener;

const NOWHERE: &str = "http://127.0.0.1:9";

fn client(smd: &str, bss: &str, pcs: Option<String>) -> OchamiClient {
    let settings = OchamiSettings { smd: smd.to_owned(), bss: bss.to_owned(), pcs, roots: Roots::System };
    OchamiClient::new(settings, None, Arc::new(SystemClock)).unwrap()
}

/// The real services, if there are any.
fn real() -> Option<OchamiClient> {
    match (std::env::var("LATTICE_TEST_SMD"), std::env::var("LATTICE_TEST_BSS")) {
        (Ok(smd), Ok(bss)) => Some(client(&smd, &bss, None)),
        (_, _) => {
            eprintln!("skipped: LATTICE_TEST_SMD and LATTICE_TEST_BSS name no OpenCHAMI");
            None
        }
    }
}

fn xname(text: &str) -> Xname {
    Xname::parse(text).unwrap()
}

/// A machine of its own for each test: no two share one.
async fn known(client: &OchamiClient, slot: u32) -> Machine {
    let (bmc, mac) = (format!("x1000c0s{slot}b0"), format!("52:54:00:00:00:{slot:02x}"));
    let system = NewSystem {
        uri: "/redfish/v1/Systems/1".to_owned(),
        uuid: uuid::Uuid::from_u128(u128::from(slot) + 1).to_string(),
        name: format!("n{slot}"),
        boot_interface: (mac.clone(), format!("10.1.0.{slot}")),
    };
    let endpoint = NewEndpoint {
        id: xname(&bmc),
        address: format!("10.0.0.{slot}"),
        user: "root".to_owned(),
        password: Secret::new(String::new()),
        mac: format!("aabbccddee{slot:02x}"),
        systems: vec![system],
    };
    client.make_known(&endpoint).await.unwrap();
    client.make_known(&endpoint).await.expect("what is known already is success");
    Machine { xname: xname(&format!("{bmc}n0")), mac }
}

#[tokio::test]
async fn a_machine_is_made_known_and_found_by_name_and_by_hardware_address() {
    let Some(client) = real() else { return };
    client.smd_ready().await.unwrap();
    let machine = known(&client, 1).await;
    let component = client.component(&machine.xname).await.unwrap().unwrap();
    assert_eq!((component.id.as_str(), component.kind.as_str()), ("x1000c0s1b0n0", "Node"));
    assert!(component.nid.is_some() && component.flag.is_none(), "fields that are not set are absent: {component:?}");
    assert!(client.nodes().await.unwrap().iter().any(|node| node.id == machine.xname));
    let interfaces = client.interfaces(&machine.mac).await.unwrap();
    assert_eq!(
        (interfaces[0].component.as_str(), interfaces[0].addresses[0].address.as_str()),
        ("x1000c0s1b0n0", "10.1.0.1")
    );
    assert_eq!(client.component(&xname("x9c9s9b9n9")).await.unwrap(), None);
}

#[tokio::test]
async fn states_go_both_ways_and_a_state_that_nobody_knows_is_refused_before() {
    let Some(client) = real() else { return };
    let machine = known(&client, 2).await;
    for state in [State::Ready, State::Off] {
        client.set_states(std::slice::from_ref(&machine.xname), state).await.unwrap();
        assert_eq!(client.component(&machine.xname).await.unwrap().unwrap().state, Some(state));
    }
    client.set_enabled(&machine.xname, false).await.unwrap();
    assert_eq!(client.component(&machine.xname).await.unwrap().unwrap().enabled, Some(false));
    client.set_enabled(&machine.xname, true).await.unwrap();
    assert!(Xname::parse("c07u31").is_err() && Xname::parse("x1/../..").is_err());
}

#[tokio::test]
async fn a_subscription_is_made_once_and_ended() {
    let Some(client) = real() else { return };
    let url = format!("{NOWHERE}/notices");
    let first = client.subscribe("lattice@test", &[State::Ready, State::Off], &url).await.unwrap();
    let again = client.subscribe("lattice@test", &[State::Ready, State::Off], &url).await.unwrap();
    assert_eq!(first.id, again.id);
    client.unsubscribe(first.id).await.unwrap();
    client.unsubscribe(first.id).await.expect("one that is not there is success");
    assert!(client.subscriptions().await.unwrap().iter().all(|one| one.id != first.id));
}

#[tokio::test]
async fn boot_parameters_are_set_replaced_found_by_both_names_and_forgotten() {
    let Some(client) = real() else { return };
    client.bss_ready().await.unwrap();
    let machine = known(&client, 3).await;
    assert_eq!(client.boot(&machine).await.unwrap(), None);
    let boot = |kernel: &str| BootParameters {
        kernel: format!("http://images.site/{kernel}"),
        initrd: "http://images.site/initrd".to_owned(),
        params: "console=ttyS0".to_owned(),
    };
    for kernel in ["one", "two"] {
        client.set_boot(&machine, &boot(kernel)).await.unwrap();
        assert_eq!(client.boot(&machine).await.unwrap(), Some(boot(kernel)));
    }
    // bss reads smd's list of machines once a second.
    let told = async {
        loop {
            if let BootScript::Boots { kernel } = client.boot_script(&machine).await.unwrap() {
                return kernel;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let kernel = tokio::time::timeout(Duration::from_secs(20), told).await.expect("bss learns the machine");
    assert_eq!(kernel, "http://images.site/two");
    let asked = client.asked_at(&machine).await.unwrap().expect("asking for the script leaves a trace");
    assert!(SystemClock.now().since(asked) < Duration::from_secs(60));
    client.forget_boot(&machine).await.unwrap();
    client.forget_boot(&machine).await.expect("nothing to forget is success");
    assert_eq!(client.boot(&machine).await.unwrap(), None);
}

#[tokio::test]
async fn a_machine_that_bss_does_not_know_is_told_to_wait() {
    let Some(client) = real() else { return };
    let stranger = Machine { xname: xname("x8c0s0b0n0"), mac: "52:54:00:00:ff:ff".to_owned() };
    assert_eq!(client.boot_script(&stranger).await.unwrap(), BootScript::Waits);
    assert_eq!(client.asked_at(&stranger).await.unwrap(), None);
}

#[tokio::test]
async fn an_address_that_is_no_bss_is_told_by_its_empty_answer() {
    let Some(smd) = std::env::var("LATTICE_TEST_SMD").ok() else {
        eprintln!("skipped: LATTICE_TEST_SMD names no OpenCHAMI");
        return;
    };
    // smd answers every unknown path with 200 and nothing.
    let confused = client(&smd, &smd, None);
    let stranger = Machine { xname: xname("x8c0s0b0n0"), mac: "52:54:00:00:ff:ff".to_owned() };
    let refused = confused.boot(&stranger).await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Malformed { .. }), "{refused}");
}

async fn power_control(nodes: &[&str]) -> (Arc<SimPcs>, OchamiClient, Stop) {
    let pcs = SimPcs::new(nodes, Arc::new(SystemClock));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = serve(listener, Arc::clone(&pcs));
    (pcs, client(NOWHERE, NOWHERE, Some(url)), stop)
}

async fn over(client: &OchamiClient, id: &TransitionId) -> Transition {
    let looks = async {
        loop {
            match client.transition(id).await.unwrap() {
                Transition::Running => tokio::time::sleep(Duration::from_millis(20)).await,
                over => return over,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), looks).await.unwrap()
}

#[tokio::test]
async fn power_goes_on_and_off_by_transitions_that_are_watched_to_their_end() {
    let (pcs, client, _stop) = power_control(&["x1n0"]).await;
    let node = xname("x1n0");
    client.pcs_ready().await.unwrap();
    pcs.set_duration(Duration::from_millis(200));
    assert_eq!(client.power(&node).await.unwrap().fact(), PowerFact::Off);
    let id = client.begin_power(&node, PowerOperation::On).await.unwrap();
    assert_eq!(client.transition(&id).await.unwrap(), Transition::Running);
    assert_eq!(client.power(&node).await.unwrap().fact(), PowerFact::Off, "begun is not done");
    assert_eq!(over(&client, &id).await, Transition::Succeeded);
    assert_eq!(client.power(&node).await.unwrap().fact(), PowerFact::On);
    let id = client.begin_power(&node, PowerOperation::ForceOff).await.unwrap();
    assert_eq!(over(&client, &id).await, Transition::Succeeded);
    assert!(!pcs.is_on("x1n0"));
}

#[tokio::test]
async fn a_completed_transition_whose_task_failed_is_a_power_failure_even_when_its_record_was_compressed() {
    let (pcs, client, _stop) = power_control(&["x1n0"]).await;
    let node = xname("x1n0");
    for (fault, compressed) in
        [(PcsFault::TaskFails, false), (PcsFault::Unsupported, false), (PcsFault::TaskFails, true)]
    {
        pcs.set_fault("x1n0", Some(fault));
        if compressed {
            pcs.compress();
        }
        let id = client.begin_power(&node, PowerOperation::On).await.unwrap();
        let failed = over(&client, &id).await.checked().unwrap_err();
        assert!(matches!(failed.kind, ErrorKind::PowerFailed { .. }), "{failed}");
        assert_eq!(client.power(&node).await.unwrap().fact(), PowerFact::Off);
    }
}

#[tokio::test]
async fn power_of_a_node_that_cannot_be_reached_or_is_not_known_is_unknown_with_its_reason() {
    let (pcs, client, _stop) = power_control(&["x1n0"]).await;
    pcs.set_fault("x1n0", Some(PcsFault::Unreachable));
    let reading = client.power(&xname("x1n0")).await.unwrap();
    assert_eq!(reading.to_string(), "unknown (pcs: no answer from the BMC)");
    assert_eq!(client.power(&xname("x2n0")).await.unwrap().fact(), PowerFact::Unknown);
    let refused = client.transition(&TransitionId("77".to_owned())).await.unwrap_err();
    assert!(refused.is_not_found(), "{refused}");
    let none = real_less().power(&xname("x1n0")).await.unwrap_err();
    assert!(matches!(none.kind, ErrorKind::NotOffered { .. }), "{none}");
}

fn real_less() -> OchamiClient {
    client(NOWHERE, NOWHERE, None)
}

#[test]
fn a_notice_of_a_state_change_is_read_with_what_it_has() {
    let notice = r#"{"Components":["x1000c0s1b0n0"],"State":"Ready","Flag":"OK","Extra":1}"#;
    let notice: StateChange = serde_json::from_str(notice).unwrap();
    assert_eq!((notice.components[0].as_str(), notice.state), ("x1000c0s1b0n0", Some(State::Ready)));
    let odd: StateChange = serde_json::from_str(r#"{"Components":[],"State":"Levitating"}"#).unwrap();
    assert_eq!(odd.state, Some(State::Unknown));
}
