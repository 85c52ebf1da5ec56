//! What only IPMI has: sensors, an event log, cipher suites, and a child process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::bmc::{CipherSuite, Severity};
use lattice_providers::error::ErrorKind;
use lattice_providers::machine::bmc::{BmcControl, BmcObserver, PowerOrder};
use lattice_providers::machine::ipmi::{IpmiClient, IpmiSettings};
use lattice_sim::clock::SystemClock;

use crate::target::{PASSWORD, PATIENCE, Target, login};

/// A program that does what the file beside it says, which has its name and `.script`.
///
/// What a test writes is never run itself: a process that another test starts at that moment has a copy of the open file
/// until its program begins, and what somebody may write cannot be run.
const STUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bmc/stub.sh");

/// Tells ipmi_sim's console something, and waits for its next prompt.
fn console(address: SocketAddr, commands: &[&str]) {
    let mut console = TcpStream::connect(address).unwrap();
    console.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    prompt(&mut console);
    for command in commands {
        console.write_all(format!("{command}\n").as_bytes()).unwrap();
        prompt(&mut console);
    }
}

fn prompt(console: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"> ") {
        console.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
}

#[tokio::test]
async fn sensors_and_new_log_entries_of_ipmi_sim_are_evidence_and_old_entries_are_not() {
    let Some(target) = Target::ipmi("LATTICE_TEST_IPMI_SIM", CipherSuite::Three, 2) else { return };
    let Target::Ipmi { address, .. } = &target else { unreachable!() };
    let consoles = SocketAddr::new(address.ip(), address.port() + 4);
    let bmc = target.client();
    let clean = bmc.health(None).await.unwrap();
    assert!(clean.evidence.is_empty(), "{clean:?}");
    let before = clean.log_position;
    // A power supply fails and stays failed; memory has one uncorrectable error, which only the log remembers.
    console(consoles, &["sensor_set_bit 0x20 0 1 1 1 0", "sel_add 0x20 2 0 0 0 0 0x20 0 4 0x0c 2 0x6f 0x01 0xff 0x03"]);
    let report = bmc.health(before).await.unwrap();
    let told: Vec<_> = report.evidence.iter().map(|e| format!("{} {}: {}", e.component, e.part, e.detail)).collect();
    assert!(told.iter().any(|line| line == "power_supply PSU1: Failure detected"), "{told:?}");
    assert!(told.iter().any(|line| line.ends_with("DIM1: Uncorrectable ECC")), "{told:?}");
    assert!(report.evidence.iter().all(|evidence| evidence.severity == Severity::Critical), "{report:?}");
    assert!(report.log_position > before, "{report:?}");
    console(consoles, &["sensor_set_bit 0x20 0 1 1 0 0"]);
    let later = bmc.health(report.log_position).await.unwrap();
    assert!(later.evidence.is_empty(), "{later:?}");
}

#[tokio::test]
async fn a_cipher_suite_that_the_bmc_lacks_is_said_to_be_that() {
    for (variable, wrong) in
        [("LATTICE_TEST_IPMI_SIM", CipherSuite::Seventeen), ("LATTICE_TEST_PYGHMI", CipherSuite::Three)]
    {
        let Some(target) = Target::ipmi(variable, wrong, 3) else { continue };
        let refused = target.client().power().await.unwrap_err();
        assert!(matches!(refused.kind, ErrorKind::NotOffered { .. }), "{variable}: {refused}");
    }
}

#[tokio::test]
async fn a_user_that_the_bmc_drops_in_silence_counts_as_refused() {
    let Some(Target::Ipmi { address, cipher }) = Target::ipmi("LATTICE_TEST_PYGHMI", CipherSuite::Seventeen, 2) else {
        return;
    };
    let login = lattice_providers::machine::bmc::BmcLogin { user: "nobody".to_owned(), ..login(PASSWORD) };
    let bmc = IpmiClient::new(IpmiSettings::new(address, cipher), login, Arc::new(SystemClock));
    let refused = bmc.power().await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Unauthorised { .. }), "{refused}");
}

/// A program in ipmitool's place.
fn stand_in(directory: &Path, script: &str) -> IpmiSettings {
    let program = directory.join("ipmitool");
    std::fs::write(program.with_extension("script"), format!("{script}\n")).unwrap();
    symlink(STUB, &program).unwrap();
    let settings = IpmiSettings::new("127.0.0.1:9".parse().unwrap(), CipherSuite::Seventeen);
    IpmiSettings { program: program.to_str().unwrap().to_owned(), ..settings }
}

/// Returns once the program has written its process into `pid`; then its limit is over, in a leap.
async fn outlives(limit: Duration, pid: &Path) {
    let begins = async {
        while !std::fs::read_to_string(pid).is_ok_and(|text| text.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begins).await.expect("the child does not begin");
    tokio::time::pause();
    tokio::time::advance(limit).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_child_that_hangs_is_killed_and_its_effect_is_unknown_only_for_an_order() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let settings = stand_in(directory.path(), &format!("echo $$ > {}\nexec sleep 600", pid.display()));
    let limit = settings.limit;
    let bmc = IpmiClient::new(settings, login(PASSWORD), Arc::new(SystemClock));
    let is_gone = |pid: &Path| {
        let pid = std::fs::read_to_string(pid).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    };
    let (late, ()) = tokio::join!(bmc.power(), outlives(limit, &pid));
    let late = late.unwrap_err();
    assert!(matches!(late.kind, ErrorKind::Timeout { .. }), "{late}");
    gone(|| is_gone(&pid)).await;
    std::fs::remove_file(&pid).unwrap();
    let (late, ()) = tokio::join!(bmc.order(PowerOrder::On), outlives(limit, &pid));
    let late = late.unwrap_err();
    assert!(late.is_ambiguous(), "{late}");
    gone(|| is_gone(&pid)).await;
}

async fn gone(is_gone: impl Fn() -> bool) {
    let looks = async {
        while !is_gone() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), looks).await.expect("the child lives on");
}

/// A BMC whose event log is the file `log` and says how many entries it has in the file `count`.
fn of_a_log(directory: &Path) -> IpmiClient {
    let script = format!(
        "case \"$*\" in *'sdr info'*) echo 'Record Count : 0';; *'sel elist'*) cat {0}/log;; \
         *'sel info'*) echo 'SEL Information'; echo \"Entries          : $(cat {0}/count)\";; esac",
        directory.display()
    );
    IpmiClient::new(stand_in(directory, &script), login(PASSWORD), Arc::new(SystemClock))
}

#[tokio::test]
async fn a_log_that_was_cleared_begins_anew_and_one_that_was_cut_off_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let bmc = of_a_log(directory.path());
    let entry = |id: u32| format!("{id:4x} | 11/21/2026 | 10:00:00 | Memory DIM{id} | Uncorrectable ECC | Asserted\n");
    let log = |entries: u32, count: u32| {
        let log: String = (1..=entries).map(entry).collect();
        std::fs::write(directory.path().join("log"), log).unwrap();
        std::fs::write(directory.path().join("count"), count.to_string()).unwrap();
    };
    log(12, 12);
    let first = bmc.health(None).await.unwrap();
    assert_eq!((first.evidence.len(), first.log_position), (0, Some(12)), "what was there before is history");
    log(2, 12);
    let cut_off = bmc.health(first.log_position).await.unwrap();
    assert_eq!((cut_off.evidence.len(), cut_off.log_position), (0, Some(12)), "{cut_off:?}");
    assert!(cut_off.not_read.iter().any(|what| what.starts_with("event log")), "{cut_off:?}");
    log(2, 2);
    let cleared = bmc.health(cut_off.log_position).await.unwrap();
    assert_eq!((cleared.evidence.len(), cleared.log_position), (2, Some(2)), "{cleared:?}");
    log(0, 0);
    let empty = bmc.health(cleared.log_position).await.unwrap();
    assert_eq!((empty.evidence.len(), empty.log_position), (0, Some(0)), "{empty:?}");
    log(1, 1);
    assert_eq!(bmc.health(empty.log_position).await.unwrap().evidence.len(), 1);
}

#[tokio::test]
async fn the_password_is_in_the_child_s_environment_alone_and_in_no_message() {
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let script = format!(
        "echo \"$@\" > {0}; env | sort >> {0}; echo \"Get Chassis Power Status failed: $IPMI_PASSWORD\" >&2; exit 1",
        seen.display()
    );
    let secret = "hunter22-of-the-bmc";
    let bmc = IpmiClient::new(stand_in(directory.path(), &script), login(secret), Arc::new(SystemClock));
    let failed = bmc.power().await.unwrap_err();
    assert!(failed.to_string().contains("***") && !failed.to_string().contains(secret), "{failed}");
    let seen = std::fs::read_to_string(seen).unwrap();
    let (arguments, environment) = seen.split_once('\n').unwrap();
    assert!(!arguments.contains(secret), "{arguments}");
    assert!(arguments.contains("-C 17 -U admin -v chassis power status"), "{arguments}");
    assert!(environment.contains(&format!("IPMI_PASSWORD={secret}")), "{environment}");
    assert!(!environment.contains("CARGO"), "nothing else of ours is handed down: {environment}");
}

#[tokio::test]
async fn nobody_at_the_address_is_unreachable_and_a_missing_program_is_said_to_be_missing() {
    let settings = IpmiSettings::new("127.0.0.1:9".parse().unwrap(), CipherSuite::Seventeen);
    let missing = IpmiSettings { program: "/nonexistent/ipmitool".to_owned(), ..settings.clone() };
    let refused = IpmiClient::new(missing, login(PASSWORD), Arc::new(SystemClock)).power().await.unwrap_err();
    assert!(refused.to_string().contains("install ipmitool"), "{refused}");
    if std::env::var_os("LATTICE_TEST_IPMI_SIM").is_none() {
        eprintln!("skipped: LATTICE_TEST_IPMI_SIM names no BMC");
        return;
    }
    let nobody = IpmiClient::new(settings, login(PASSWORD), Arc::new(SystemClock)).power().await.unwrap_err();
    assert!(matches!(nobody.kind, ErrorKind::Unreachable { .. }), "{nobody}");
}
