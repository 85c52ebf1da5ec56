//! `lattice dev --scenario maas-mishaps`: each of the eleven failure classes appears, is explained, and is recovered by
//! the very command that its explanation prints.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::collections::BTreeSet;
use std::process::Command;

use lattice_core::failure::FailureClass;
use serde_json::Value;
use strum::VariantArray;

#[test]
fn every_failure_class_appears_is_explained_and_is_recovered_by_its_printed_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lattice"))
        .args(["dev", "--scenario", "maas-mishaps", "--until", "recovered", "--timeout", "5m", "-o", "json"])
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["recovered"], &told["missing"]), (&Value::Bool(true), &Value::Array(Vec::new())));
    let mishaps = told["mishaps"].as_array().unwrap();
    let recovered = mishaps.iter().filter(|mishap| mishap["recovered"] == true);
    let appeared = recovered.filter_map(|mishap| {
        let class = mishap["class"].as_str()?;
        let failures = mishap["failures"].as_array()?;
        failures.iter().any(|failure| failure["class"] == class).then(|| class.to_owned())
    });
    let all: BTreeSet<String> = FailureClass::VARIANTS.iter().map(ToString::to_string).collect();
    assert_eq!(appeared.collect::<BTreeSet<_>>(), all, "{told:#}");
}

#[test]
fn a_scenario_that_is_not_there_is_refused_with_those_that_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_lattice")).args(["dev", "--scenario", "nonsense"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("built in are maas-mishaps"));
    let output = Command::new(env!("CARGO_BIN_EXE_lattice")).args(["dev", "--until", "recovered"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--scenario maas-mishaps"));
}
