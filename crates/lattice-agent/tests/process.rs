//! The agent as a process: what it says when it cannot start, what it leaves when it stops.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(20);
const NODE: &str = "0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11";

fn agent(folder: &Path, bootstrap: &str) -> Child {
    let path = folder.join("bootstrap.json");
    std::fs::write(&path, bootstrap).unwrap();
    Command::new(env!("CARGO_BIN_EXE_lattice-agent"))
        .args(["run", "--bootstrap"])
        .arg(&path)
        .arg("--state-dir")
        .arg(folder.join("state"))
        .arg("--state-file")
        .arg(folder.join("elsewhere/agent-state.json"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn ends(mut child: Child) -> Output {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it did not end");
        std::thread::yield_now();
    }
    child.wait_with_output().unwrap()
}

/// A bootstrap whose server cannot be there: nothing may listen at port 1 of loopback.
fn unreachable_server() -> String {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    serde_json::json!({
        "server": "https://127.0.0.1:1", "node_id": NODE, "token": "lat_enroll_hush", "ca_pem": key.cert.pem(),
    })
    .to_string()
}

#[test]
fn a_bootstrap_that_cannot_be_used_ends_with_1_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let without_tls = unreachable_server().replace("https:", "http:");
    for (bootstrap, why) in [("{}", "expected an object with server"), (without_tls.as_str(), "https://")] {
        let ended = ends(agent(folder.path(), bootstrap));
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("error: ") && said.contains(why) && !said.contains("hush"), "{said}");
    }
}

#[test]
fn sigterm_ends_it_with_0_and_kill_leaves_a_whole_state_file() {
    let folder = tempfile::tempdir().unwrap();
    let state_file = folder.path().join("elsewhere/agent-state.json");
    let mut written = Vec::new();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let before = std::fs::read(&state_file).ok();
        let child = agent(folder.path(), &unreachable_server());
        let deadline = Instant::now() + PATIENCE;
        // It listens to signals before it writes its state for the first time.
        while std::fs::read(&state_file).ok() == before {
            assert!(Instant::now() < deadline, "it did not start");
            std::thread::yield_now();
        }
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let ended = ends(child);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), (signal == Signal::SIGTERM).then_some(0), "{said}");
        assert!(!said.contains("hush"), "{said}");
        let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&state_file).unwrap()).unwrap();
        assert_eq!(state["node_id"], NODE);
        written.push(state["written_at"].clone());
    }
    assert_ne!(written[0], written[1]);
}
