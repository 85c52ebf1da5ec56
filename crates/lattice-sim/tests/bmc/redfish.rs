//! What only Redfish has: versions, tasks, links, and every fault of the simulator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::bmc::{Component, HealthReport, judge};
use lattice_core::node::PowerFact;
use lattice_providers::error::ErrorKind;
use lattice_providers::machine::bmc::{BmcObserver, BootDevice, NextBoot, PowerOrder};
use lattice_providers::machine::redfish::{RedfishClient, RedfishSettings, RedfishTrust};
use lattice_sim::bmc::{BmcFault, Resets};
use lattice_sim::clock::SystemClock;
use sha2::Digest;

use crate::plane::HandClock;
use crate::target::{PASSWORD, Target, given, login, redfish};

#[tokio::test]
async fn critical_evidence_is_told_from_warnings() {
    for (fault, component, critical) in [
        (BmcFault::PowerSupplyFailed, Component::PowerSupply, true),
        (BmcFault::UncorrectableMemory, Component::Memory, true),
        (BmcFault::GpuOffBus, Component::Gpu, true),
        (BmcFault::GpuAbsent, Component::Gpu, true),
        (BmcFault::FanSlow, Component::Cooling, false),
    ] {
        let target = Target::simulator().await;
        target.sim().switch(true);
        assert!(target.client().health(None).await.unwrap().evidence.is_empty());
        target.sim().add(fault.clone());
        let report = target.client().health(None).await.unwrap();
        assert_eq!(report.evidence.len(), 1, "{fault:?}: {report:?}");
        assert_eq!(report.evidence[0].component, component, "{fault:?}");
        assert_eq!(!judge(&report, 2).is_empty(), critical, "{fault:?}: {report:?}");
    }
}

#[tokio::test]
async fn an_empty_gpu_slot_of_a_machine_whose_sku_has_fewer_gpus_proves_nothing() {
    let target = Target::simulator().await;
    target.sim().switch(true);
    target.sim().add(BmcFault::GpuAbsent);
    let report = target.client().health(None).await.unwrap();
    assert_eq!(report.gpus_present, Some(1));
    assert!(judge(&report, 1).is_empty(), "{report:?}");
}

const GPU: &str = "/redfish/v1/Systems/1/Processors/GPU1";
const SECOND_PAGE: &str = "/redfish/v1/Systems/1/Processors?$skip=2";

/// A machine of two GPUs, one of which has a warning: with one GPU less the node would go down.
async fn of_a_warning(faults: &[BmcFault]) -> HealthReport {
    let target = Target::simulator().await;
    target.sim().switch(true);
    target.sim().add(BmcFault::GpuWarns);
    faults.iter().for_each(|fault| target.sim().add(fault.clone()));
    target.client().health(None).await.unwrap()
}

#[tokio::test]
async fn a_gpu_that_could_not_be_read_is_not_gone() {
    for status in [200, 403, 404, 500] {
        let report = of_a_warning(&[BmcFault::Unreadable { path: GPU, status }]).await;
        assert_eq!((report.evidence.len(), report.gpus_present), (1, None), "{status}: {report:?}");
        assert!(judge(&report, 2).is_empty(), "{status}: {report:?}");
    }
    let absent = of_a_warning(&[BmcFault::GpuAbsent]).await;
    assert_eq!((absent.gpus_present, judge(&absent, 2).len()), (Some(1), 2), "what the BMC calls absent is");
}

#[tokio::test]
async fn a_collection_is_read_over_its_pages_and_one_that_is_not_whole_counts_nothing() {
    let whole = of_a_warning(&[BmcFault::Pages]).await;
    assert_eq!((whole.gpus_present, whole.not_read.len()), (Some(2), 0), "{whole:?}");
    let gone = of_a_warning(&[BmcFault::Pages, BmcFault::GpuOffBus]).await;
    assert_eq!((gone.gpus_present, gone.evidence.len()), (Some(1), 2), "{gone:?}");
    for broken in [BmcFault::Unreadable { path: SECOND_PAGE, status: 500 }, BmcFault::PagesWithoutEnd] {
        let report = of_a_warning(&[BmcFault::Pages, broken.clone()]).await;
        assert_eq!(report.gpus_present, None, "{broken:?}: {report:?}");
        assert!(report.not_read.iter().any(|what| what.contains("beyond the first")), "{broken:?}: {report:?}");
        assert!(judge(&report, 2).is_empty(), "{broken:?}: {report:?}");
    }
}

#[tokio::test]
async fn the_bus_of_a_machine_that_is_off_proves_nothing_about_its_gpus() {
    let target = Target::simulator().await;
    target.sim().add(BmcFault::GpuOffBus);
    let report = target.client().health(None).await.unwrap();
    assert!(judge(&report, 8).is_empty(), "{report:?}");
}

#[tokio::test]
async fn a_reset_that_takes_its_time_is_believed_only_when_the_power_is_seen() {
    let clock = HandClock::at_start();
    let target = Target::simulator_with(clock.clone()).await;
    let (bmc, takes) = (target.client(), Duration::from_secs(1));
    target.sim().set_resets(Resets::After(takes));
    bmc.order(PowerOrder::On).await.unwrap();
    assert_eq!(bmc.power().await.unwrap().fact(), PowerFact::Off, "the order was taken, the machine is not on yet");
    clock.pass(takes);
    assert_eq!(bmc.power().await.unwrap().fact(), PowerFact::On);
}

#[tokio::test]
async fn a_bmc_that_takes_an_order_and_does_nothing_is_not_believed() {
    let target = Target::simulator().await;
    target.sim().switch(true);
    target.sim().add(BmcFault::IgnoresOrders);
    target.client().order(PowerOrder::Off).await.unwrap();
    assert_eq!(target.client().power().await.unwrap().fact(), PowerFact::On);
}

#[tokio::test]
async fn a_word_that_nobody_knows_is_unknown_and_html_is_no_answer() {
    let target = Target::simulator().await;
    target.sim().add(BmcFault::SaysNonsense);
    let reading = target.client().power().await.unwrap();
    assert!(reading.to_string().contains("the BMC says Sideways"), "{reading}");
    assert_eq!(reading.fact(), PowerFact::Unknown);
    target.sim().repair();
    target.sim().add(BmcFault::AnswersHtml);
    let refused = target.client().power().await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Malformed { .. }), "{refused}");
}

#[tokio::test]
async fn a_task_is_watched_to_its_end_and_its_failure_told_in_its_words() {
    let target = Target::simulator().await;
    let bmc = target.client();
    target.sim().set_resets(Resets::AsTask(Duration::from_millis(300)));
    bmc.order(PowerOrder::On).await.unwrap();
    assert_eq!(bmc.power().await.unwrap().fact(), PowerFact::On, "the order ended with its task");
    target.sim().fail_tasks();
    let failed = bmc.order(PowerOrder::Off).await.unwrap_err();
    assert_eq!(failed.to_string(), "redfish off: power control failed: task Exception: the power button is stuck");
}

#[tokio::test]
async fn a_change_that_is_lost_to_another_writer_is_made_once_more_on_the_newer_version() {
    let target = Target::simulator().await;
    let bmc = target.client();
    target.sim().add(BmcFault::LosesNextVersion);
    bmc.boot_once(BootDevice::Pxe).await.unwrap();
    assert_eq!(bmc.next_boot().await.unwrap(), NextBoot::Once(BootDevice::Pxe));
    target.sim().add(BmcFault::LosesNextVersion);
    target.sim().add(BmcFault::LosesNextVersion);
    let lost = bmc.boot_once(BootDevice::Disk).await.unwrap_err();
    assert!(matches!(lost.kind, ErrorKind::Refused { status: 412, .. }), "{lost}");
}

#[tokio::test]
async fn a_link_to_another_host_gets_neither_a_request_nor_the_password() {
    let target = Target::simulator().await;
    target.sim().add(BmcFault::LinksElsewhere);
    let refused = target.client().power().await.unwrap_err();
    assert!(refused.to_string().contains("not one of its own paths"), "{refused}");
}

#[tokio::test]
async fn a_hanging_bmc_is_a_timeout_for_a_look_and_an_unknown_effect_for_an_order() {
    let target = Target::simulator().await;
    let Target::Simulator { address, .. } = &target else { unreachable!() };
    let within = Duration::from_millis(300);
    let settings =
        RedfishSettings { address: *address, trust: RedfishTrust::Plain, system: None, answer_within: within };
    let bmc = RedfishClient::new(settings, login(PASSWORD), Arc::new(SystemClock)).unwrap();
    target.client().power().await.unwrap();
    target.sim().add(BmcFault::Hangs);
    let late = bmc.power().await.unwrap_err();
    assert_eq!(late.kind, ErrorKind::Timeout { limit: within });
}

/// The emulator behind TLS, with this trust.
fn over_tls(address: SocketAddr, trust: RedfishTrust) -> RedfishClient {
    let system = Some(uuid::Uuid::from_u128(1).to_string());
    let settings = RedfishSettings { address, trust, system, answer_within: RedfishSettings::ANSWER };
    RedfishClient::new(settings, login(PASSWORD), Arc::new(SystemClock)).unwrap()
}

#[tokio::test]
async fn only_the_pinned_certificate_or_one_of_the_site_s_authority_is_believed() {
    let Some(address) = given("LATTICE_TEST_REDFISH_TLS") else { return };
    let pem = std::fs::read(std::env::var_os("LATTICE_TEST_REDFISH_CERT").unwrap()).unwrap();
    let text = String::from_utf8(pem.clone()).unwrap();
    let base64: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, base64).unwrap();
    let pin: [u8; 32] = sha2::Sha256::digest(&der).into();
    over_tls(address, RedfishTrust::Pinned(pin)).power().await.unwrap();
    over_tls(address, RedfishTrust::Authority(pem)).power().await.unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem();
    for wrong in [RedfishTrust::Pinned([7; 32]), RedfishTrust::Authority(other.into_bytes())] {
        let refused = over_tls(address, wrong).power().await.unwrap_err();
        assert!(matches!(refused.kind, ErrorKind::BadCertificate { .. }), "{refused}");
    }
}

#[tokio::test]
async fn a_service_of_many_systems_asks_which_one_is_meant() {
    let Some(address) = given("LATTICE_TEST_REDFISH") else { return };
    let several = redfish(address, None, login(PASSWORD)).power().await.unwrap_err();
    assert!(matches!(several.kind, ErrorKind::SeveralMatch { .. }), "{several}");
    let unknown = redfish(address, Some("nobody".to_owned()), login(PASSWORD)).power().await.unwrap_err();
    assert!(unknown.is_not_found(), "{unknown}");
}

#[tokio::test]
async fn nobody_at_the_address_is_unreachable() {
    let nobody = redfish("127.0.0.1:1".parse().unwrap(), None, login(PASSWORD)).power().await.unwrap_err();
    assert!(matches!(nobody.kind, ErrorKind::Unreachable { .. }), "{nobody}");
}
