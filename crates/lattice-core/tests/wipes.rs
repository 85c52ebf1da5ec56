//! Wipe certificates: signed once, read anywhere, refused when a byte was changed.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::collections::BTreeSet;

use lattice_core::agent::task::{SigningKey, TaskKey, WipeEvidence};
use lattice_core::ids::{CertificateId, JobId, NodeId, SiteId, TaskId, uuid_v7};
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use lattice_core::wipe::{CertificateFile, NotProven, WipeCertificate, WipeTarget, check_keys};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&Secret::new(vec![number; 32])).unwrap()
}

fn certificate() -> WipeCertificate {
    WipeCertificate {
        id: CertificateId::new(uuid_v7(NOW, [1; 10])),
        node: NodeId::new(uuid_v7(NOW, [2; 10])),
        hostname: "c07u31".to_owned(),
        site: SiteId::new(uuid_v7(NOW, [3; 10])),
        job: JobId::new(uuid_v7(NOW, [4; 10])),
        task: TaskId::new(uuid_v7(NOW, [5; 10])),
        erased: WipeTarget::NvmeDrive,
        evidence: WipeEvidence {
            device: "nvme0n1".to_owned(),
            model: "INTEL SSDPF2KX076".to_owned(),
            serial: "PHAC1234".to_owned(),
            bytes: Some(7_681_501_126_656),
            method: "crypto".to_owned(),
            tool: "/usr/sbin/nvme".to_owned(),
            tool_version: "nvme version 2.8".to_owned(),
            exit_code: 0,
            status_before: "nuse 0x37e3e92b0".to_owned(),
            status_after: "nuse 0".to_owned(),
            started_at: NOW,
            finished_at: NOW,
        },
        inventory: BTreeSet::from(["nvme0n1".to_owned(), "nvme1n1".to_owned()]),
        kept: BTreeSet::new(),
        boot_before: "b1".to_owned(),
        boot_after: "b2".to_owned(),
        wipe_started_at: NOW,
        confirmed_at: NOW,
    }
}

fn file() -> CertificateFile {
    certificate().signed(&key(7))
}

#[test]
fn a_certificate_is_read_back_and_says_which_key_signed_it() {
    let file = file();
    assert_eq!(CertificateFile::verify(file.text().as_bytes()), Ok(file.clone()));
    assert_eq!(file.key_id(), key(7).public().key_id);
    assert_eq!(file.text(), CertificateFile::verify(file.text().as_bytes()).unwrap().text(), "one text for each");
}

#[test]
fn no_byte_of_it_can_be_changed_removed_or_added() {
    let text = file().text().into_bytes();
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= [1_u8, 0x20, 0x80][at % 3];
        assert!(CertificateFile::verify(&changed).is_err(), "byte {at}");
    }
    for at in (0..text.len()).step_by(5) {
        let mut shorter = text.clone();
        shorter.remove(at);
        assert!(CertificateFile::verify(&shorter).is_err(), "without byte {at}");
        let mut longer = text.clone();
        longer.insert(at, b' ');
        assert!(CertificateFile::verify(&longer).is_err(), "a blank before byte {at}");
    }
    assert!(CertificateFile::verify(&[text.as_slice(), b"\n"].concat()).is_err());
    assert!(CertificateFile::verify(b"").is_err() && CertificateFile::verify(&vec![b' '; 1 << 20]).is_err());
}

#[test]
fn what_does_not_fit_is_named() {
    let text = file().text();
    let said = |changed: String| CertificateFile::verify(changed.as_bytes()).unwrap_err().to_string();
    let serial = said(text.replacen("PHAC1234", "PHAC1235", 1));
    assert_eq!(serial, "`certificate.evidence.serial` says \"PHAC1235\", what was signed says \"PHAC1234\"");
    let blank = said(text.replacen("  \"certificate\"", "   \"certificate\"", 1));
    assert_eq!(blank, "its text was changed: line 2 is not as it was written");
    let mut other = file();
    other.public_key = key(8).public().public_key;
    assert!(said(other.text()).contains("`public_key` is key"));
    let mut forged = file();
    let another = WipeCertificate { hostname: "c07u32".to_owned(), ..certificate() };
    forged.envelope.payload = another.clone().signed(&key(8)).envelope.payload;
    let forged = said(forged.text());
    assert!(forged.contains("signature does not fit") && forged.contains("certificate.hostname"), "{forged}");
    let mut of_a_task = file();
    of_a_task.envelope.payload_type = "application/vnd.lattice.task.v1+json".to_owned();
    assert!(said(of_a_task.text()).contains("another type"));
}

#[test]
fn who_signs_it_anew_with_a_key_of_his_own_is_found_by_the_keys_that_are_known() {
    let forged = WipeCertificate { hostname: "c07u99".to_owned(), ..certificate() }.signed(&key(8));
    let read = CertificateFile::verify(forged.text().as_bytes()).unwrap();
    let known: Vec<TaskKey> = vec![key(7).public(), key(6).public()];
    assert!(matches!(check_keys(&read, &known), Err(NotProven::Foreign { .. })));
    assert!(matches!(check_keys(&read, &[]), Err(NotProven::Foreign { .. })));
    assert_eq!(check_keys(&file(), &known), Ok(()));
    // The id alone proves nothing: a key is compared as a whole.
    let same_id = TaskKey { key_id: key(8).public().key_id, public_key: key(7).public().public_key };
    assert!(check_keys(&read, &[same_id]).is_err());
}

#[test]
fn a_signed_certificate_without_evidence_proves_nothing() {
    let mut empty = certificate();
    empty.evidence.status_after = String::new();
    let found = CertificateFile::verify(empty.signed(&key(7)).text().as_bytes()).unwrap_err();
    assert!(matches!(found, NotProven::Evidence { .. }), "{found}");
}
