//! Starting, stopping, checkpoints, limits, mounts, rights.

use std::time::{Duration, Instant};

use lattice_core::agent::task::{
    AllocationCheckpoint, AllocationStart, CheckpointHow, CheckpointResult, CpuLimit, DrainMode, ExitStatus, Limits,
    Mount, StopResult, TaskErrorCode, TaskOutput, User,
};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::place::{Place, born, catches, is_alive, one, running, start, stop, until};

#[tokio::test]
async fn an_allocation_runs_in_a_scope_and_a_session_of_its_own() {
    let Some(place) = Place::new("an_allocation_runs_in_a_scope_and_a_session_of_its_own") else { return };
    let workloads = place.recover().await;
    let (pid, scope) = born(&workloads.start(&start(1, 3, "exec sleep 1000")).await.unwrap());
    assert_eq!(place.procs(&scope), [pid], "it is in its scope before it runs");
    assert!(scope.ends_with("-3.scope"), "the scope's name says the ownership: {scope}");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    assert_eq!(fields[3], pid.to_string(), "it leads a session: {stat}");
    let state = place.state().await;
    assert_eq!((one(&state).pid, one(&state).cgroup.as_str()), (pid, scope.as_str()));
    assert_eq!(workloads.running(), [running(1, 3)]);
    let again = workloads.start(&start(1, 3, "exec sleep 1000")).await.unwrap();
    assert_eq!(born(&again).0, pid, "it runs already");
    workloads.stop(&stop(1, 3, 1_000)).await.unwrap();
}

#[tokio::test]
async fn a_stop_is_graceful_while_its_grace_lasts_and_then_kills_all_of_it() {
    let Some(place) = Place::new("a_stop_is_graceful_while_its_grace_lasts_and_then_kills_all_of_it") else { return };
    let workloads = place.recover().await;
    let kind = place.folder.path().join("kind");
    let polite = format!("trap 'echo bye > {}; exit 7' TERM; while :; do sleep 0.01; done", kind.display());
    let (pid, _) = born(&workloads.start(&start(1, 1, &polite)).await.unwrap());
    until("the trap is set", || catches(pid, 15)).await;
    let stopped = workloads.stop(&stop(1, 1, 15_000)).await.unwrap();
    let graceful = TaskOutput::Stopped { how: StopResult::Graceful, exit: Some(ExitStatus::Code(7)) };
    assert_eq!(stopped, graceful);
    assert_eq!(std::fs::read_to_string(&kind).unwrap(), "bye\n");
    let ready = place.folder.path().join("ready");
    let stubborn =
        format!("trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo > {}; wait", ready.display());
    let (pid, scope) = born(&workloads.start(&start(2, 1, &stubborn)).await.unwrap());
    until("it ignores", || ready.exists() && place.procs(&scope).len() >= 3).await;
    let all = place.procs(&scope);
    let stopped = workloads.stop(&stop(2, 1, 50)).await.unwrap();
    assert_eq!(stopped, TaskOutput::Stopped { how: StopResult::Killed, exit: Some(ExitStatus::Signal(9)) });
    assert!(all.into_iter().chain([pid]).all(|pid| !is_alive(pid)), "its children too");
    assert!(place.scopes().is_empty() && place.state().await.allocations.is_empty());
    let gone = workloads.stop(&stop(2, 1, 50)).await.unwrap();
    assert_eq!(gone, TaskOutput::Stopped { how: StopResult::WasGone, exit: None }, "a second time is fine");
}

#[tokio::test]
async fn a_program_that_cannot_start_leaves_nothing_and_says_why() {
    let Some(place) = Place::new("a_program_that_cannot_start_leaves_nothing_and_says_why") else { return };
    let workloads = place.recover().await;
    let nowhere = AllocationStart { argv: vec!["/nowhere/program".to_owned()], ..start(1, 1, "") };
    let outside = AllocationStart { directory: Some("/nowhere".to_owned()), ..start(2, 1, "true") };
    let mount = Mount { source: "/nowhere".to_owned(), target: "/mnt".to_owned(), read_only: true };
    let unmounted = AllocationStart { mounts: vec![mount], ..start(3, 1, "true") };
    for (start, why) in [(nowhere, "/nowhere/program"), (outside, "/nowhere"), (unmounted, "cannot be mounted")] {
        let refused = workloads.start(&start).await.unwrap_err();
        assert_eq!(refused.code, TaskErrorCode::EffectFailed);
        assert!(refused.detail.contains(why), "{refused}");
    }
    assert!(place.scopes().is_empty() && place.state().await.allocations.is_empty() && workloads.count() == 0);
}

#[tokio::test]
async fn what_ended_by_itself_is_cleaned_up_and_told_until_the_server_knows() {
    let Some(place) = Place::new("what_ended_by_itself_is_cleaned_up_and_told_until_the_server_knows") else { return };
    let workloads = place.recover().await;
    let forked = place.folder.path().join("forked");
    let script = format!("sleep 1000 & echo > {}; exit 3", forked.display());
    let (_, scope) = born(&workloads.start(&start(1, 2, &script)).await.unwrap());
    until("its first process ended", || forked.exists() && place.procs(&scope).len() == 1).await;
    let left = place.procs(&scope);
    while workloads.count() > 0 {
        workloads.sweep().await.unwrap();
    }
    let ended = workloads.ended();
    assert_eq!((ended[0].allocation, ended[0].exit), (running(1, 2).allocation, Some(ExitStatus::Code(3))));
    assert!(left.into_iter().all(|pid| !is_alive(pid)), "its children do not outlive it");
    assert!(place.scopes().is_empty());
    workloads.told(&ended);
    assert!(workloads.ended().is_empty());
}

#[tokio::test]
async fn an_earlier_ownership_is_ended_before_a_later_one_starts_and_never_the_other_way() {
    let Some(place) = Place::new("an_earlier_ownership_is_ended_before_a_later_one_starts_and_never_the_other_way")
    else {
        return;
    };
    let workloads = place.recover().await;
    let (old, _) = born(&workloads.start(&start(1, 1, "exec sleep 1000")).await.unwrap());
    let (new, _) = born(&workloads.start(&start(1, 2, "exec sleep 1000")).await.unwrap());
    assert!(!is_alive(old) && is_alive(new), "never twice");
    for refused in [
        workloads.start(&start(1, 1, "exec sleep 1000")).await.unwrap_err(),
        workloads.stop(&stop(1, 1, 0)).await.unwrap_err(),
    ] {
        assert_eq!(refused.code, TaskErrorCode::StaleOwnership);
    }
    assert!(is_alive(new));
    workloads.disown(&[running(1, 1)]).await.unwrap();
    assert!(is_alive(new), "that ownership is gone already");
    workloads.disown(&[running(1, 2)]).await.unwrap();
    assert!(!is_alive(new) && workloads.running().is_empty());
}

#[tokio::test]
async fn a_draining_host_takes_nothing_new_until_it_is_told_so_even_after_a_restart() {
    let Some(place) = Place::new("a_draining_host_takes_nothing_new_until_it_is_told_so_even_after_a_restart") else {
        return;
    };
    let workloads = place.recover().await;
    workloads.start(&start(1, 1, "exec sleep 1000")).await.unwrap();
    let drained = workloads.drain(DrainMode::Begin).await.unwrap();
    assert_eq!(drained, TaskOutput::Drain { running: vec![running(1, 1)] });
    let workloads = place.recover().await;
    assert_eq!(workloads.start(&start(2, 1, "true")).await.unwrap_err().code, TaskErrorCode::Draining);
    workloads.drain(DrainMode::End).await.unwrap();
    assert!(workloads.start(&start(2, 1, "exec sleep 1000")).await.is_ok());
}

#[tokio::test]
async fn mounts_are_seen_by_the_workload_alone_and_end_with_it() {
    let Some(place) = Place::new("mounts_are_seen_by_the_workload_alone_and_end_with_it") else { return };
    let (source, target) = (place.folder.path().join("data"), place.folder.path().join("inside"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "here").unwrap();
    let said = place.folder.path().join("said");
    let mount = Mount {
        source: source.to_str().unwrap().to_owned(),
        target: target.to_str().unwrap().to_owned(),
        read_only: true,
    };
    let script = format!(
        "cat {0}/file > {1}.new; touch {0}/other 2>/dev/null && echo written >> {1}.new; mv {1}.new {1}; exec sleep 1000",
        target.display(),
        said.display()
    );
    let workloads = place.recover().await;
    let started = workloads.start(&AllocationStart { mounts: vec![mount], ..start(1, 1, &script) }).await;
    match started {
        Err(error) if error.detail.contains("mounts of its own") => {
            println!("skipped: mounts_are_seen_by_the_workload_alone_and_end_with_it (no mount namespaces)");
            return;
        }
        other => drop(other.unwrap()),
    }
    until("it looked", || said.exists()).await;
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "here", "it reads, and cannot write");
    assert!(crate::place::mounts_below(&target).is_empty(), "the host does not see it");
    assert_eq!(one(&place.state().await).mounts, [target.to_str().unwrap()]);
    workloads.stop(&stop(1, 1, 1_000)).await.unwrap();
    assert!(std::fs::read_dir(&target).unwrap().next().is_none());
}

#[tokio::test]
async fn a_read_only_mount_is_read_only_down_to_what_is_mounted_inside_it() {
    let test = "a_read_only_mount_is_read_only_down_to_what_is_mounted_inside_it";
    let Some(place) = Place::new(test) else { return };
    let folder = place.folder.path();
    let (source, target) = (folder.join("data"), folder.join("inside"));
    let inner = source.join("inner");
    std::fs::create_dir_all(&inner).unwrap();
    let none: Option<&str> = None;
    if mount(Some("tmpfs"), &inner, Some("tmpfs"), MsFlags::MS_NOEXEC, none).is_err() {
        println!("skipped: {test} (mounting is not allowed)");
        return;
    }
    let said = folder.join("said");
    let script = format!(
        "(touch {0}/a && echo outer; touch {0}/inner/a && echo inner; grep -o '{0}/inner .*noexec' /proc/self/mountinfo \
         > /dev/null && echo noexec) > {1}.new 2>/dev/null; mv {1}.new {1}; exec sleep 1000",
        target.display(),
        said.display()
    );
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let bind = Mount { source: path(&source), target: path(&target), read_only: true };
    let workloads = place.recover().await;
    workloads.start(&AllocationStart { mounts: vec![bind], ..start(1, 1, &script) }).await.unwrap();
    until("it looked", || said.exists()).await;
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "noexec\n", "what it could write, and what is still forbidden");
    std::fs::write(inner.join("host"), "the host writes on").unwrap();
    workloads.stop(&stop(1, 1, 1_000)).await.unwrap();
    umount2(&inner, MntFlags::MNT_DETACH).unwrap();
}

#[tokio::test]
async fn a_checkpoint_sees_what_its_allocation_has_mounted() {
    let test = "a_checkpoint_sees_what_its_allocation_has_mounted";
    let Some(place) = Place::new(test) else { return };
    let (source, target) = (place.folder.path().join("data"), place.folder.path().join("inside"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&target).unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let mount = Mount { source: path(&source), target: path(&target), read_only: false };
    let script = format!("trap 'echo done > {0}/done; exit 0' USR1; while :; do sleep 0.01; done", target.display());
    let workloads = place.recover().await;
    let started = workloads.start(&AllocationStart { mounts: vec![mount], ..start(1, 1, &script) }).await;
    let pid = match started {
        Err(error) if error.detail.contains("mounts of its own") => {
            println!("skipped: {test} (no mount namespaces)");
            return;
        }
        other => born(&other.unwrap()).0,
    };
    until("the trap is set", || catches(pid, 10)).await;
    let ask = |how: CheckpointHow| AllocationCheckpoint {
        allocation: running(1, 1).allocation,
        ownership_epoch: running(1, 1).ownership_epoch,
        how,
        timeout_ms: 15_000,
    };
    let save = format!("echo saved > {}/saved", target.display());
    let command = CheckpointHow::Command { argv: ["/bin/sh", "-c", &save].map(str::to_owned).into() };
    assert_eq!(workloads.checkpoint(&ask(command.clone())).await.unwrap(), CheckpointResult::Done);
    assert_eq!(std::fs::read_to_string(source.join("saved")).unwrap(), "saved\n");
    // It ends as soon as it has saved its state, and its mounts with it.
    let usr1 = CheckpointHow::Signal { number: 10, done_file: Some(path(&target.join("done"))) };
    assert_eq!(workloads.checkpoint(&ask(usr1)).await.unwrap(), CheckpointResult::Done);
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "nothing was written beside the mount");
    until("it ended", || !is_alive(pid)).await;
    assert!(workloads.checkpoint(&ask(command)).await.is_err(), "there is nothing to be saved any more");
}

#[tokio::test]
async fn limits_are_set_where_the_controller_is_and_said_where_it_is_not() {
    let Some(place) = Place::new("limits_are_set_where_the_controller_is_and_said_where_it_is_not") else { return };
    let limits = Limits {
        memory_bytes: Some(64 << 20),
        cpu: Some(CpuLimit { quota_us: 50_000, period_us: 100_000 }),
        pids: Some(32),
    };
    let workloads = place.recover().await;
    let output = workloads.start(&AllocationStart { limits, ..start(1, 1, "exec sleep 1000") }).await.unwrap();
    let TaskOutput::Started { cgroup, not_limited, .. } = output else { panic!("{output:?}") };
    let scope = place.root.join(cgroup);
    for (name, value) in [("memory", "67108864"), ("cpu", "50000 100000"), ("pids", "32")] {
        match std::fs::read_to_string(scope.join(format!("{name}.max"))) {
            Ok(text) => assert_eq!(text.trim(), value, "{name}"),
            Err(_) => assert!(not_limited.contains(&name.to_owned()), "{name} is neither set nor said"),
        }
    }
}

#[tokio::test]
async fn a_workload_has_its_own_environment_and_rights_alone() {
    let Some(place) = Place::new("a_workload_has_its_own_environment_and_rights_alone") else { return };
    let folder = place.folder.path();
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let said = folder.join("said");
    let script =
        format!("(env | sort; id -u; id -g; id -G) > {0}.new; mv {0}.new {0}; exec sleep 1000", said.display());
    let user = Some(User { uid: 65_534, gid: 65_534 });
    let workloads = place.recover().await;
    workloads.start(&AllocationStart { user, ..start(1, 1, &script) }).await.unwrap();
    until("it said", || said.exists()).await;
    let text = std::fs::read_to_string(&said).unwrap();
    assert!(text.ends_with("65534\n65534\n65534\n"), "{text}");
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert!(names.iter().all(|name| ["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(name)), "{names:?}");
}

#[tokio::test]
async fn a_checkpoint_is_done_unsupported_or_too_late_and_says_which() {
    let Some(place) = Place::new("a_checkpoint_is_done_unsupported_or_too_late_and_says_which") else { return };
    let workloads = place.recover().await;
    let done = place.folder.path().join("done");
    std::fs::write(&done, "of before\ndone\n").unwrap();
    let script = format!("trap 'printf \"saved\\ndone\\n\" > {}' USR1; while :; do sleep 0.01; done", done.display());
    let (pid, _) = born(&workloads.start(&start(1, 1, &script)).await.unwrap());
    until("the trap is set", || catches(pid, 10)).await;
    let ask = |how: CheckpointHow, timeout_ms: u64| AllocationCheckpoint {
        allocation: running(1, 1).allocation,
        ownership_epoch: running(1, 1).ownership_epoch,
        how,
        timeout_ms,
    };
    let file = Some(done.to_str().unwrap().to_owned());
    let usr1 = CheckpointHow::Signal { number: 10, done_file: file };
    assert_eq!(workloads.checkpoint(&ask(usr1, 15_000)).await.unwrap(), CheckpointResult::Done);
    assert!(std::fs::read_to_string(&done).unwrap().starts_with("saved"), "not the file of before");
    assert_eq!(workloads.checkpoint(&ask(CheckpointHow::None, 1)).await.unwrap(), CheckpointResult::Unsupported);
    let command = |script: &str| CheckpointHow::Command { argv: ["/bin/sh", "-c", script].map(str::to_owned).into() };
    for (script, expected) in [("exit 0", Ok(CheckpointResult::Done)), ("exit 64", Ok(CheckpointResult::Unsupported))] {
        assert_eq!(workloads.checkpoint(&ask(command(script), 15_000)).await.map_err(|e| e.code), expected);
    }
    let failed = workloads.checkpoint(&ask(command("exit 3"), 15_000)).await.unwrap_err();
    assert_eq!(failed.code, TaskErrorCode::EffectFailed);
    let begun = Instant::now();
    let late = workloads.checkpoint(&ask(command("sleep 1000"), 50)).await.unwrap_err();
    assert_eq!(late.code, TaskErrorCode::TimedOut);
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert!(is_alive(pid), "a checkpoint ends nothing");
    let other = AllocationCheckpoint { allocation: running(9, 1).allocation, ..ask(CheckpointHow::None, 1) };
    assert_eq!(workloads.checkpoint(&other).await.unwrap_err().code, TaskErrorCode::NotRunning);
}
