//! Over a real socket with a plain HTTP client.

use std::sync::Arc;

use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::faults::{Fault, SiteFault};
use lattice_sim::maas::mishaps::Mishaps;
use lattice_sim::maas::oauth::sign;
use lattice_sim::maas::site::SimulatedSite;
use lattice_sim::maas::world::Effect;
use lattice_sim::machine::agent::NoAgent;

use crate::site::{Site, quick};

#[tokio::test]
async fn a_plain_client_takes_a_machine_from_new_to_deployed() {
    let config = quick(1);
    let bmc = config.population.machines[0].bmc.clone();
    let mut site = Site::start(config).await;
    let mut effects = site.handle.effects();
    let (status, version) = site.send("GET", "version/", &[]).await.expect("an answer");
    assert_eq!((status, version.contains("3.7.3")), (200, true));
    let form = [
        ("hostname", "c01u43"),
        ("commission", "false"),
        ("power_type", "ipmi"),
        ("power_parameters_power_address", &*bmc.address.to_string()),
        ("power_parameters_power_user", &bmc.user),
        ("power_parameters_power_pass", &bmc.password),
    ];
    let machine = site.json("POST", "machines/", &form).await;
    let path = format!("machines/{}/", machine["system_id"].as_str().expect("an id"));
    site.json("POST", &format!("{path}?op=commission"), &[("testing_scripts", "none")]).await;
    site.wait_for(&path, "Ready").await;
    site.json("POST", &format!("{path}?op=deploy"), &[("user_data", "I2Nsb3Vk")]).await;
    site.wait_for(&path, "Deployed").await;
    loop {
        match effects.recv().await.expect("the site runs") {
            Effect::Booted(boot) => break assert_eq!(boot.user_data, b"#cloud"),
            Effect::PoweredOff { .. } | Effect::Wiped { .. } => {}
        }
    }
    assert_eq!(site.handle.report().unknown_requests, []);
    site.stop().await;
}

#[tokio::test]
async fn a_site_that_is_down_breaks_connections_and_comes_back_when_healed() {
    let mut site = Site::start(quick(1)).await;
    let down = Fault::Site { what: SiteFault::Down };
    site.handle.arm(down.clone(), None);
    assert!(site.send("GET", "machines/", &[]).await.is_err());
    assert!(site.handle.heal(&down));
    assert_eq!(site.json("GET", "machines/", &[]).await, serde_json::json!([]));
    site.handle.arm(Fault::Site { what: SiteFault::Html }, Some(1));
    let (status, text) = site.send("GET", "machines/", &[]).await.expect("an answer");
    assert!(status == 502 && text.starts_with("<html>"));
    site.stop().await;
}

#[tokio::test]
async fn a_whole_site_starts_in_one_call_and_is_gone_when_stopped() {
    let config = SiteConfig { faults: Mishaps::Healing.faults(1, &quick(3).population), ..quick(3) };
    let address = "127.0.0.1:0".parse().expect("an address");
    let site = SimulatedSite::start(config, address, Arc::new(NoAgent), 0).await.expect("a site");
    let http = reqwest::Client::new();
    let whoami = format!("{}/api/2.0/users/?op=whoami", site.url);
    let mut statuses = Vec::new();
    for nonce in ["first", "second"] {
        let seconds = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let header = sign(&site.key, nonce, seconds as i64);
        let answer = http.get(&whoami).header("Authorization", header).send().await.expect("an answer");
        statuses.push(answer.status().as_u16());
    }
    assert_eq!(statuses, [503, 200], "the first call meets the site's mishap");
    assert_eq!(site.handle.machines().len(), 3);
    site.stop().await;
    assert!(http.get(&whoami).send().await.is_err());
}
