//! The agent dies, its state file is missing, torn or stale, ids are used again: nothing that should live dies, nothing
//! that should die lives.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use lattice_agent::{AgentState, AllocationState, Item};
use lattice_core::agent::task::{AllocationStart, Mount, Running};
use lattice_core::ids::OwnershipEpoch;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proptest::prelude::*;

use crate::place::{BOOT, Place, born, is_alive, mounts_below, node, one, running, start, stop, until};

#[tokio::test]
async fn the_living_are_reattached_and_the_dead_are_cleaned_up_after() {
    let Some(place) = Place::new("the_living_are_reattached_and_the_dead_are_cleaned_up_after") else { return };
    let (lives, dies, scope) = {
        let workloads = place.recover().await;
        let (lives, _) = born(&workloads.start(&start(1, 1, "exec sleep 1000")).await.unwrap());
        let (dies, scope) = born(&workloads.start(&start(2, 1, "sleep 1000 & exec sleep 1000")).await.unwrap());
        until("it forked", || place.procs(&scope).len() == 2).await;
        (lives, dies, scope)
    };
    // The agent is gone without a word; while it is, one of the two ends.
    let children = place.procs(&scope);
    kill(Pid::from_raw(dies as i32), Signal::SIGKILL).unwrap();
    until("it ended", || !is_alive(dies)).await;
    let workloads = place.recover().await;
    assert_eq!(workloads.running(), [running(1, 1)]);
    assert!(is_alive(lives));
    assert!(children.into_iter().all(|pid| !is_alive(pid)), "what the dead one left is ended");
    assert_eq!(place.scopes().len(), 1);
    let ended = workloads.ended();
    assert_eq!((ended.len(), ended[0].allocation, ended[0].exit), (1, running(2, 1).allocation, None));
    workloads.stop(&stop(1, 1, 1_000)).await.unwrap();
    assert!(!is_alive(lives), "a reattached one can be stopped");
}

#[tokio::test]
async fn a_process_id_that_was_used_again_is_not_taken_for_the_workload() {
    let Some(place) = Place::new("a_process_id_that_was_used_again_is_not_taken_for_the_workload") else { return };
    let mut bystander = sleeper();
    drop(place.recover().await);
    let mut state = place.state().await;
    state.allocations.push(entry(&place, running(1, 1), bystander.id(), 1));
    state.save(&place.storage()).await.unwrap();
    let workloads = place.recover().await;
    assert!(workloads.running().is_empty(), "it is another process");
    assert!(is_alive(bystander.id()), "and none of our business");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[tokio::test]
async fn without_a_whole_state_file_what_runs_is_kept_and_reported_with_its_ownership() {
    let Some(place) = Place::new("without_a_whole_state_file_what_runs_is_kept_and_reported_with_its_ownership") else {
        return;
    };
    let pid = {
        let workloads = place.recover().await;
        born(&workloads.start(&start(1, 7, "exec sleep 1000")).await.unwrap()).0
    };
    std::fs::remove_file(place.state_file()).unwrap();
    assert_eq!(place.recover().await.running(), [running(1, 7)], "missing");
    for text in ["", "{", "not json", "{\"node_id\":7}"] {
        std::fs::write(place.state_file(), text).unwrap();
        let workloads = place.recover().await;
        assert_eq!(workloads.running(), [running(1, 7)], "torn: {text}");
        assert_eq!(one(&place.state().await).pid, pid, "the state file is whole again");
    }
    // A scope that no agent of ours could have named, and an empty one.
    let slice = place.root.join(&place.slice);
    std::fs::create_dir(slice.join("alloc-web.scope")).unwrap();
    let mut stranger = sleeper();
    std::fs::write(slice.join("alloc-web.scope/cgroup.procs"), stranger.id().to_string()).unwrap();
    std::fs::create_dir(slice.join(format!("alloc-{}-9.scope", running(3, 9).allocation))).unwrap();
    std::fs::remove_file(place.state_file()).unwrap();
    let workloads = place.recover().await;
    assert_eq!(workloads.running(), [running(1, 7)]);
    assert_eq!(place.scopes().len(), 1, "{:?}", place.scopes());
    stranger.wait().unwrap();
    assert!(is_alive(pid));
}

#[tokio::test]
async fn a_stray_scope_is_removed_when_the_state_file_is_whole() {
    let Some(place) = Place::new("a_stray_scope_is_removed_when_the_state_file_is_whole") else { return };
    let workloads = place.recover().await;
    let (pid, _) = born(&workloads.start(&start(1, 1, "exec sleep 1000")).await.unwrap());
    drop(workloads);
    let stray = place.root.join(&place.slice).join(format!("alloc-{}-1.scope", running(2, 1).allocation));
    std::fs::create_dir(&stray).unwrap();
    std::fs::create_dir(stray.join("inner")).unwrap();
    let mut left = sleeper();
    std::fs::write(stray.join("inner/cgroup.procs"), left.id().to_string()).unwrap();
    let workloads = place.recover().await;
    left.wait().unwrap();
    assert!(!stray.exists() && is_alive(pid));
    assert_eq!(workloads.running(), [running(1, 1)]);
}

#[tokio::test]
async fn a_state_of_another_boot_or_node_keeps_nothing_alive() {
    let Some(place) = Place::new("a_state_of_another_boot_or_node_keeps_nothing_alive") else { return };
    let workloads = place.recover().await;
    let (pid, _) = born(&workloads.start(&start(1, 1, "exec sleep 1000")).await.unwrap());
    drop(workloads);
    let mut state = place.state().await;
    state.node_id = node(2);
    state.save(&place.storage()).await.unwrap();
    let workloads = place.recover().await;
    assert!(workloads.running().is_empty() && !is_alive(pid), "another node's identity started it");
    let mut state = place.state().await;
    state.allocations.push(entry(&place, running(2, 1), std::process::id(), 1));
    state.save(&place.storage()).await.unwrap();
    assert!(place.recover_in("boot-2").await.running().is_empty());
    assert_eq!(place.state().await.boot_id, "boot-2");
}

#[tokio::test]
async fn an_agent_that_died_between_the_start_and_its_record_finds_the_process() {
    let Some(place) = Place::new("an_agent_that_died_between_the_start_and_its_record_finds_the_process") else {
        return;
    };
    let workloads = place.recover().await;
    let (pid, _) = born(&workloads.start(&start(1, 1, "exec sleep 1000")).await.unwrap());
    drop(workloads);
    let mut state = place.state().await;
    (state.allocations[0].pid, state.allocations[0].start_ticks) = (0, 0);
    state.save(&place.storage()).await.unwrap();
    let workloads = place.recover().await;
    let found = workloads.probe_start(&start(1, 1, "exec sleep 1000")).await.unwrap();
    assert_eq!(born(&found).0, pid);
    assert_eq!(one(&place.state().await).pid, pid);
    // And the other way: it died before anything was started.
    workloads.stop(&stop(1, 1, 0)).await.unwrap();
    let mut state = place.state().await;
    state.allocations.push(entry(&place, running(2, 1), 0, 0));
    state.save(&place.storage()).await.unwrap();
    let workloads = place.recover().await;
    assert_eq!(workloads.probe_start(&start(2, 1, "")).await, None);
    assert!(workloads.running().is_empty());
}

#[tokio::test]
async fn an_agent_that_died_while_it_ended_what_it_lost_says_that_it_still_runs_and_ends_it() {
    let test = "an_agent_that_died_while_it_ended_what_it_lost_says_that_it_still_runs_and_ends_it";
    let Some(place) = Place::new(test) else { return };
    let workloads = place.recover().await;
    let (pid, _) = born(&workloads.start(&start(1, 1, "exec sleep 1000")).await.unwrap());
    drop(workloads);
    // It wrote down the ownership that it was told of, and no more.
    let mut state = place.state().await;
    state.ownership_epoch = OwnershipEpoch(2);
    state.save(&place.storage()).await.unwrap();
    let workloads = place.recover().await;
    assert_eq!((workloads.running(), workloads.ownership_epoch()), (vec![running(1, 1)], OwnershipEpoch(2)));
    assert!(is_alive(pid), "it is the server that says what the node owns");
    assert!(workloads.start(&start(2, 1, "exec sleep 1000")).await.is_err(), "it begins nothing that was asked before");
    workloads.disown(&[running(1, 1)]).await.unwrap();
    assert!(!is_alive(pid) && workloads.running().is_empty());
    // One that it was not told to end, of an ownership that it knows to be over.
    let (pid, _) = born(&workloads.start(&start(3, 2, "exec sleep 1000")).await.unwrap());
    workloads.fence(OwnershipEpoch(3)).await.unwrap();
    assert!(!is_alive(pid) && place.scopes().is_empty());
    assert_eq!(place.state().await.ownership_epoch, OwnershipEpoch(3));
}

/// The host mounts `/scratch`, a workload mounts `/scratch/a` over it: the host's stays, the workload's does not.
#[tokio::test]
async fn a_mount_of_the_host_outlives_the_workload_that_mounted_over_it() {
    let test = "a_mount_of_the_host_outlives_the_workload_that_mounted_over_it";
    let Some(place) = Place::new(test) else { return };
    let scratch = place.folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let none: Option<&str> = None;
    if mount(Some("tmpfs"), &scratch, Some("tmpfs"), MsFlags::empty(), none).is_err() {
        println!("skipped: {test} (mounting is not allowed)");
        return;
    }
    std::fs::create_dir(scratch.join("a")).unwrap();
    let before = mounts_below(place.folder.path());
    let bind = Mount {
        source: scratch.join("a").to_str().unwrap().to_owned(),
        target: scratch.to_str().unwrap().to_owned(),
        read_only: false,
    };
    let workloads = place.recover().await;
    let with_mount = |number| AllocationStart { mounts: vec![bind.clone()], ..start(number, 1, "exec sleep 1000") };
    let (stopped, _) = born(&workloads.start(&with_mount(1)).await.unwrap());
    workloads.stop(&stop(1, 1, 1_000)).await.unwrap();
    assert_eq!(mounts_below(place.folder.path()), before, "after a stop");
    let (orphan, _) = born(&workloads.start(&with_mount(2)).await.unwrap());
    drop(workloads);
    kill(Pid::from_raw(orphan as i32), Signal::SIGKILL).unwrap();
    until("it ended", || !is_alive(orphan)).await;
    assert!(place.recover().await.running().is_empty());
    assert_eq!(mounts_below(place.folder.path()), before, "after it died while no agent was there");
    assert!(!is_alive(stopped) && !is_alive(orphan), "nobody is left who could see a mount of theirs");
    umount2(&scratch, MntFlags::MNT_DETACH).unwrap();
}

#[tokio::test]
async fn whatever_the_state_file_holds_the_living_stay_alive_and_known() {
    let Some(place) = Place::new("whatever_the_state_file_holds_the_living_stay_alive_and_known") else { return };
    let workloads = place.recover().await;
    let (pid, _) = born(&workloads.start(&start(1, 4, "exec sleep 1000")).await.unwrap());
    drop(workloads);
    let whole = place.storage().read(Item::State).await.unwrap().unwrap();
    for end in (0..whole.len()).step_by(13) {
        place.storage().write(Item::State, whole[..end].to_vec()).await.unwrap();
        assert_eq!(place.recover().await.running(), [running(1, 4)], "cut at {end}");
        assert!(is_alive(pid));
    }
}

proptest! {
    #[test]
    fn a_changed_state_file_is_torn_or_read_and_never_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let whole = serde_json::to_vec(&AgentState::empty(node(1), BOOT.to_owned(), lattice_core::time::Timestamp::from_millis(1))).unwrap();
        let mut changed = whole.clone();
        let at = at.index(changed.len());
        changed[at] = byte;
        if let Ok(state) = serde_json::from_slice::<AgentState>(&changed) {
            prop_assert!(state.allocations.is_empty());
        }
    }
}

/// The agent's process, with no server to reach.
fn agent(place: &Place) -> Child {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let bootstrap = place.folder.path().join("bootstrap.json");
    let text = serde_json::json!({
        "server": "https://127.0.0.1:1", "node_id": node(1), "token": "lat_enroll_hush", "ca_pem": key.cert.pem(),
    });
    std::fs::write(&bootstrap, text.to_string()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_lattice-agent"))
        .args(["run", "--bootstrap"])
        .arg(&bootstrap)
        .arg("--state-dir")
        .arg(place.folder.path().join("state"))
        .arg("--cgroup-root")
        .arg(&place.root)
        .args(["--slice", &place.slice])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn written(path: &Path) -> Option<serde_json::Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[tokio::test]
async fn workloads_outlive_sigterm_and_sigkill_of_the_agents_process() {
    let Some(place) = Place::new("workloads_outlive_sigterm_and_sigkill_of_the_agents_process") else { return };
    // The process reads the machine's own boot id.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned();
    let workloads = place.recover_in(&boot).await;
    let (pid, _) = born(&workloads.start(&start(1, 5, "exec sleep 1000")).await.unwrap());
    drop(workloads);
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let before = written(&place.state_file());
        let mut process = agent(&place);
        until("it took up its state", || {
            written(&place.state_file()).is_some_and(|state| Some(&state) != before.as_ref())
        })
        .await;
        kill(Pid::from_raw(process.id() as i32), signal).unwrap();
        process.wait().unwrap();
        assert!(is_alive(pid), "{signal}");
        let state = written(&place.state_file()).unwrap();
        assert_eq!(state["allocations"][0]["pid"], pid, "{signal}");
        assert_eq!(state["allocations"][0]["ownership_epoch"], 5);
    }
    assert_eq!(place.recover_in(&boot).await.running(), [running(1, 5)]);
}

fn sleeper() -> Child {
    Command::new("/bin/sleep").arg("1000").spawn().unwrap()
}

fn entry(place: &Place, running: Running, pid: u32, start_ticks: u64) -> AllocationState {
    AllocationState {
        allocation: running.allocation,
        ownership_epoch: running.ownership_epoch,
        pid,
        start_ticks,
        cgroup: place.hands().scope(running),
        runtime: "process".to_owned(),
        mounts: Vec::new(),
        user: None,
    }
}
