//! The descriptions in `api/` are what the server serves.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::path::Path;
use std::process::Command;

fn is_fresh(name: &str, path: &str) {
    let printed = Command::new(env!("CARGO_BIN_EXE_lattice")).args(["docs", name]).output().unwrap();
    assert!(printed.status.success());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let written = std::fs::read(root.join(path)).unwrap_or_default();
    assert!(
        written == printed.stdout,
        "{path} is stale: write it with `cargo run -- docs {name} > {path}`, and look at what changes for callers"
    );
}

#[test]
fn the_openapi_document_is_fresh() {
    is_fresh("openapi", "api/openapi.json");
}

#[test]
fn the_document_of_the_events_is_fresh() {
    is_fresh("events", "api/events.json");
}
