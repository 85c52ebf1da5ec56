//! One suite for all BMCs.

use lattice_core::bmc::{CipherSuite, Severity, judge};
use lattice_core::node::PowerFact;
use lattice_core::time::Clock;
use lattice_providers::error::{ErrorKind, Remedy};
use lattice_providers::machine::bmc::{BmcControl, BootDevice, Erasure, NextBoot, PowerOrder};
use lattice_sim::clock::SystemClock;

use crate::target::{Target, reaches};

async fn power_goes_on_and_off_and_is_read_with_its_time(bmc: &dyn BmcControl) {
    bmc.order(PowerOrder::Off).await.unwrap();
    reaches(bmc, PowerFact::Off).await;
    let before = SystemClock.now();
    bmc.order(PowerOrder::On).await.unwrap();
    let reading = reaches(bmc, PowerFact::On).await;
    assert!(reading.at >= before && reading.at <= SystemClock.now(), "{reading:?}");
    assert!(reading.source.ends_with(" 127.0.0.1"), "{reading:?}");
    bmc.order(PowerOrder::On).await.expect("a machine that is on already is success");
    bmc.order(PowerOrder::Cycle).await.unwrap();
    reaches(bmc, PowerFact::On).await;
    bmc.order(PowerOrder::SoftOff).await.unwrap();
    reaches(bmc, PowerFact::Off).await;
    bmc.order(PowerOrder::Off).await.expect("a machine that is off already is success");
}

async fn the_next_start_is_from_the_network(bmc: &dyn BmcControl, told_as: &NextBoot) {
    bmc.boot_once(BootDevice::Pxe).await.unwrap();
    assert_eq!(bmc.next_boot().await.as_ref(), Ok(told_as));
}

async fn a_well_machine_has_no_critical_evidence_and_what_is_not_read_is_named(bmc: &dyn BmcControl, named: &str) {
    let report = bmc.health(None).await.unwrap();
    assert!(judge(&report, 0).is_empty(), "{report:?}");
    assert!(report.evidence.iter().all(|evidence| evidence.severity == Severity::Warning), "{report:?}");
    assert!(report.not_read.iter().any(|what| what.contains(named)), "{report:?}");
}

async fn it_says_what_it_is_and_a_wrong_password_is_told_apart_from_a_silent_bmc(target: &Target, vendor: &str) {
    let about = target.client().about().await.unwrap();
    assert_eq!(about.vendor, vendor);
    let refused = target.client_with("wrong-password").power().await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Unauthorised { .. }), "{refused}");
    assert_eq!(refused.remedy(), Remedy::Stop);
    assert!(!refused.to_string().contains("wrong-password"), "{refused}");
}

async fn secure_erase_is_offered_or_said_not_to_be(bmc: &dyn BmcControl, offered: bool) {
    match bmc.drives().await {
        Ok(drives) if offered => {
            assert!(drives.iter().all(|drive| drive.erasable), "{drives:?}");
            let another = bmc.erase(&drives[0].id, "another drive").await.unwrap();
            assert_eq!(another, Erasure::Another { name: drives[0].name.clone() });
            let outcome = bmc.erase(&drives[0].id, &drives[0].name).await.unwrap();
            assert!(matches!(outcome, Erasure::Running { .. }), "{outcome:?}");
        }
        Err(error) if !offered => assert!(matches!(error.kind, ErrorKind::NotOffered { .. }), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// What of a BMC differs from others.
struct Traits {
    vendor: &'static str,
    next_boot: NextBoot,
    not_read: &'static str,
    erases: bool,
}

async fn conforms(target: Option<Target>, traits: Traits) {
    let Some(target) = target else { return };
    let bmc = target.client();
    it_says_what_it_is_and_a_wrong_password_is_told_apart_from_a_silent_bmc(&target, traits.vendor).await;
    power_goes_on_and_off_and_is_read_with_its_time(&*bmc).await;
    the_next_start_is_from_the_network(&*bmc, &traits.next_boot).await;
    a_well_machine_has_no_critical_evidence_and_what_is_not_read_is_named(&*bmc, traits.not_read).await;
    secure_erase_is_offered_or_said_not_to_be(&*bmc, traits.erases).await;
}

const ONCE: NextBoot = NextBoot::Once(BootDevice::Pxe);

#[tokio::test]
async fn the_simulator_conforms() {
    let traits = Traits { vendor: "Simulated", next_boot: ONCE, not_read: "GPUs: the machine is not on", erases: true };
    conforms(Some(Target::simulator().await), traits).await;
}

#[tokio::test]
async fn the_redfish_emulator_conforms() {
    // It tells every override as one that lasts.
    let next_boot = NextBoot::Always(BootDevice::Pxe);
    let traits = Traits { vendor: "Sushy Emulator", next_boot, not_read: "power supplies", erases: false };
    conforms(Target::redfish("LATTICE_TEST_REDFISH", 0), traits).await;
}

#[tokio::test]
async fn the_strict_redfish_emulator_conforms() {
    let next_boot = NextBoot::Always(BootDevice::Pxe);
    let traits = Traits { vendor: "Sushy Emulator", next_boot, not_read: "power supplies", erases: false };
    conforms(Target::redfish("LATTICE_TEST_REDFISH_STRICT", 0), traits).await;
}

#[tokio::test]
async fn ipmi_sim_conforms_with_cipher_suite_3() {
    let traits = Traits { vendor: "MontaVista Software, Inc.", next_boot: ONCE, not_read: "GPUs", erases: false };
    conforms(Target::ipmi("LATTICE_TEST_IPMI_SIM", CipherSuite::Three, 0), traits).await;
}

#[tokio::test]
async fn pyghmi_conforms_with_cipher_suite_17() {
    let traits = Traits { vendor: "Unknown", next_boot: ONCE, not_read: "event log", erases: false };
    conforms(Target::ipmi("LATTICE_TEST_PYGHMI", CipherSuite::Seventeen, 0), traits).await;
}
