//! Which machine, which disk, which login: decided purely.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use lattice_core::site::discovery::{Candidate, Claim, MatchedBy, Wanted, claim};
use lattice_core::site::disks::{DiskCandidate, boot_disk};

fn machine(id: &str, hostname: &str, bmc: Option<&str>) -> Candidate {
    Candidate {
        id: id.to_owned(),
        hostname: hostname.to_owned(),
        power_address: bmc.map(str::to_owned),
        macs: vec![format!("AA:BB:CC:00:00:{id}")],
        is_new: true,
        appeared: false,
    }
}

const WANTED: Wanted<'static> = Wanted { hostname: "c07u43", power_address: "10.0.0.43", pxe_mac: None };

fn found(claim: Claim) -> Option<(String, MatchedBy)> {
    match claim {
        Claim::Found { id, by } => Some((id, by)),
        Claim::Absent | Claim::Ambiguous(_) => None,
    }
}

#[test]
fn the_host_name_is_stronger_than_the_bmc_address() {
    let list = [machine("01", "keen-ant", Some("10.0.0.43")), machine("02", "c07u43", None)];
    assert_eq!(found(claim(&WANTED, &list, None, false)), Some(("02".to_owned(), MatchedBy::Hostname)));
}

#[test]
fn a_host_name_on_another_bmc_while_ours_is_elsewhere_is_ambiguous() {
    let list = [machine("01", "keen-ant", Some("10.0.0.43")), machine("02", "c07u43", Some("10.0.0.99"))];
    assert!(matches!(claim(&WANTED, &list, None, false), Claim::Ambiguous(both) if both.len() == 2));
    assert_eq!(found(claim(&WANTED, &list, Some("01"), false)), Some(("01".to_owned(), MatchedBy::Decision)));
}

#[test]
fn a_machine_that_was_there_before_is_not_claimed() {
    let list = [machine("01", "keen-ant", None)];
    assert_eq!(claim(&WANTED, &list, None, false), Claim::Absent);
    assert_eq!(found(claim(&WANTED, &list, None, true)), Some(("01".to_owned(), MatchedBy::OnlyNew)));
}

#[test]
fn the_only_machine_that_appeared_is_claimed_and_two_are_not() {
    let mut list = vec![machine("01", "keen-ant", None), machine("02", "swift-gnu", None)];
    list[1].appeared = true;
    assert_eq!(found(claim(&WANTED, &list, None, false)), Some(("02".to_owned(), MatchedBy::Appeared)));
    list[0].appeared = true;
    assert!(matches!(claim(&WANTED, &list, None, false), Claim::Ambiguous(_)));
    list[0].power_address = Some("10.0.0.7".to_owned());
    assert_eq!(found(claim(&WANTED, &list, None, false)), Some(("02".to_owned(), MatchedBy::Appeared)));
}

fn disk(name: &str, model: &str, id_path: &str) -> DiskCandidate {
    DiskCandidate {
        id: format!("id-{name}"),
        name: name.to_owned(),
        model: model.to_owned(),
        id_path: id_path.to_owned(),
        size_bytes: 480_000_000_000,
    }
}

#[test]
fn a_boot_card_is_known_by_model_or_path_and_an_operator_overrules_it() {
    let disks = [
        disk("nvme0n1", "INTEL SSDPF2KX076", "/dev/disk/by-id/nvme-INTEL"),
        disk("sda", "DELLBOSS VD", "/dev/disk/by-id/ata-DELLBOSS"),
    ];
    assert_eq!(boot_disk(&disks, None).map(|disk| disk.name.as_str()), Some("sda"));
    assert_eq!(boot_disk(&disks, Some("nvme0n1")).map(|disk| disk.name.as_str()), Some("nvme0n1"));
    assert_eq!(boot_disk(&disks[..1], None), None);
    let by_path = [disk("sdb", "x", "/dev/disk/by-id/Boot_Optimized_0")];
    assert!(boot_disk(&by_path, None).is_some());
}
