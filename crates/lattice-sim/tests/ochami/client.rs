//! State Manager and Boot Script Service: each case against the simulated ones, and against real ones.

use std::sync::Arc;
use std::time::Duration;

use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use lattice_providers::error::ErrorKind;
use lattice_providers::machine::openchami::{
    BootParameters, BootScript, Boots, Flag, Machine, NewEndpoint, NewSystem, OchamiClient, State, StateChange, Xname,
};
use lattice_sim::clock::SystemClock;
use lattice_sim::openchami::SimOpenchami;

use crate::{NOWHERE, real, xname};

/// A case that holds for the simulated services and for the real ones.
macro_rules! both {
    ($($name:ident = $check:path;)*) => {$(
        mod $name {
            #[tokio::test]
            async fn simulated() {
                let sim = super::simulated().await;
                $check(&crate::client(&sim.urls[0], &sim.urls[1], None)).await;
            }

            #[tokio::test]
            async fn real() {
                let Some([smd, bss]) = crate::real() else { return };
                $check(&crate::client(&smd, &bss, None)).await;
            }
        }
    )*};
}

both! {
    a_machine_is_made_known_and_found_by_each_of_its_names = super::found_by_each_name;
    states_go_both_ways_and_a_state_that_nobody_knows_is_refused_before = super::states_go_both_ways;
    a_subscription_is_made_once_and_ended = super::subscribed_once;
    boot_parameters_are_set_replaced_found_by_both_names_and_forgotten = super::parameters;
    boot_parameters_of_each_name_are_put_back_as_they_were = super::put_back;
    a_machine_that_bss_does_not_know_is_told_to_wait = super::told_to_wait;
}

async fn simulated() -> SimOpenchami {
    SimOpenchami::start(&[], Arc::new(SystemClock), None).await.unwrap()
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

async fn found_by_each_name(client: &OchamiClient) {
    client.smd_ready().await.unwrap();
    let machine = known(client, 1).await;
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
    assert_eq!(client.interfaces_of(&machine.xname).await.unwrap(), interfaces);
    assert_eq!(client.interfaces_of(&xname("x9c0s0b0n0")).await.unwrap(), Vec::new());
    let bmcs = client.endpoints_at("10.0.0.1").await.unwrap();
    assert_eq!(bmcs.iter().map(|bmc| bmc.id.as_str()).collect::<Vec<_>>(), ["x1000c0s1b0"]);
    assert_eq!(client.endpoints_at("10.0.0.250").await.unwrap(), Vec::new());
    assert!(client.endpoints().await.unwrap().contains(&bmcs[0]));
    let logins = client.endpoint_logins().await.unwrap();
    let login = logins.iter().find(|one| one.endpoint == bmcs[0]).unwrap();
    assert_eq!((login.user.as_str(), login.password.expose().as_str()), ("root", ""));
    assert_eq!(client.systems().await.unwrap().get(&machine.xname).map(String::as_str), Some("1"));
    let below = client.nodes_below(&bmcs[0].id).await.unwrap();
    assert_eq!(below.iter().map(|node| &node.id).collect::<Vec<_>>(), [&machine.xname]);
}

async fn states_go_both_ways(client: &OchamiClient) {
    let machine = known(client, 2).await;
    for state in [State::Ready, State::Off] {
        client.set_states(std::slice::from_ref(&machine.xname), state, Flag::Ok).await.unwrap();
        assert_eq!(client.component(&machine.xname).await.unwrap().unwrap().state, Some(state));
    }
    // Standby may not follow Off: it is taken, and nothing comes of it, unless it is forced.
    client.set_states(std::slice::from_ref(&machine.xname), State::Standby, Flag::Ok).await.unwrap();
    assert_eq!(client.component(&machine.xname).await.unwrap().unwrap().state, Some(State::Off));
    let ready = (State::Ready, Flag::Ok);
    for (state, flag) in [(State::Standby, Flag::Alert), ready, (State::Ready, Flag::Warning), (State::Off, Flag::Ok)] {
        client.set_state(&machine.xname, state, flag).await.unwrap();
        let said = client.component(&machine.xname).await.unwrap().unwrap();
        assert_eq!((said.state, said.flag.as_deref()), (Some(state), Some(flag.to_string().as_str())));
    }
    client.set_state(&xname("x9999c0s1b0n0"), State::Ready, Flag::Ok).await.expect("what is not there is passed over");
    assert_eq!(client.component(&xname("x9999c0s1b0n0")).await.unwrap(), None);
    client.set_enabled(&machine.xname, false).await.unwrap();
    assert_eq!(client.component(&machine.xname).await.unwrap().unwrap().enabled, Some(false));
    client.set_enabled(&machine.xname, true).await.unwrap();
    assert!(Xname::parse("c07u31").is_err() && Xname::parse("x1/../..").is_err());
}

async fn subscribed_once(client: &OchamiClient) {
    let url = format!("{NOWHERE}/notices");
    let first = client.subscribe("lattice@test", &[State::Ready, State::Off], &url).await.unwrap();
    let again = client.subscribe("lattice@test", &[State::Ready, State::Off], &url).await.unwrap();
    assert_eq!(first.id, again.id);
    client.unsubscribe(first.id).await.unwrap();
    client.unsubscribe(first.id).await.expect("one that is not there is success");
    assert!(client.subscriptions().await.unwrap().iter().all(|one| one.id != first.id));
}

async fn parameters(client: &OchamiClient) {
    client.bss_ready().await.unwrap();
    let machine = known(client, 3).await;
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

async fn told_to_wait(client: &OchamiClient) {
    let stranger = Machine { xname: xname("x8c0s0b0n0"), mac: "52:54:00:00:ff:ff".to_owned() };
    assert_eq!(client.boot_script(&stranger).await.unwrap(), BootScript::Waits);
    assert_eq!(client.asked_at(&stranger).await.unwrap(), None);
}

/// smd answers every unknown path with 200 and nothing.
async fn no_bss(smd: &str) {
    let confused = crate::client(smd, smd, None);
    let stranger = Machine { xname: xname("x8c0s0b0n0"), mac: "52:54:00:00:ff:ff".to_owned() };
    let refused = confused.boot(&stranger).await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Malformed { .. }), "{refused}");
}

#[tokio::test]
async fn an_address_that_is_no_bss_is_told_by_its_empty_answer() {
    no_bss(&simulated().await.urls[0]).await;
    if let Some([smd, _]) = real() {
        no_bss(&smd).await;
    }
}

async fn put_back(client: &OchamiClient) {
    let machine = known(client, 4).await;
    let boot = |kernel: &str| BootParameters {
        kernel: format!("http://images.site/{kernel}"),
        initrd: "http://images.site/initrd".to_owned(),
        params: "quiet".to_owned(),
    };
    client.set_boot(&machine, &boot("before")).await.unwrap();
    let by_name_alone = Boots { by_name: Some(boot("before")), by_mac: None };
    client.restore_boots(&machine, &by_name_alone).await.unwrap();
    assert_eq!(client.boots(&machine).await.unwrap(), by_name_alone);
    let differ = client.boot(&machine).await.unwrap_err();
    assert!(matches!(differ.kind, ErrorKind::SeveralMatch { .. }), "{differ}");
    client.set_boot(&machine, &boot("after")).await.unwrap();
    assert!(client.boots(&machine).await.unwrap().are(&boot("after")));
    client.restore_boots(&machine, &by_name_alone).await.unwrap();
    assert_eq!(client.boots(&machine).await.unwrap(), by_name_alone);
    client.forget_boot(&machine).await.unwrap();
    assert_eq!(client.boots(&machine).await.unwrap(), Boots::default());
}

#[test]
fn a_notice_of_a_state_change_is_read_with_what_it_has() {
    let notice = r#"{"Components":["x1000c0s1b0n0"],"State":"Ready","Flag":"OK","Extra":1}"#;
    let notice: StateChange = serde_json::from_str(notice).unwrap();
    assert_eq!((notice.components[0].as_str(), notice.state), ("x1000c0s1b0n0", Some(State::Ready)));
    let odd: StateChange = serde_json::from_str(r#"{"Components":[],"State":"Levitating"}"#).unwrap();
    assert_eq!(odd.state, Some(State::Unknown));
}
