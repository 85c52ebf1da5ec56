//! Scopes of workloads in the unified cgroup hierarchy. design: 4 "On the host"

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lattice_core::agent::task::{Limits, Running};
use lattice_core::ids::OwnershipEpoch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracing::warn;

use super::process::{Seen, seen};
use crate::hands::Found;

/// What is killed is gone within this, unless a driver holds it.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two looks at a scope that empties.
const LOOK: Duration = Duration::from_millis(10);
/// Depth of groups that a workload may make inside its scope, as far as they are followed.
const DEEPEST: usize = 16;

/// The slice of workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    root: PathBuf,
    slice: String,
}

/// Where the unified hierarchy is mounted: at /sys/fs/cgroup, or beside the older ones at /sys/fs/cgroup/unified.
pub fn mounted(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let is_unified = kind.split(' ').next() == Some("cgroup2");
        is_unified.then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The name of an allocation's scope carries its ownership, so that it is known whatever else is lost.
pub fn scope_name(running: Running) -> String {
    format!("alloc-{}-{}.scope", running.allocation, running.ownership_epoch.0)
}

/// What a scope's name says; without an ownership it is older than any.
fn named(scope: &str) -> Option<Running> {
    let name = scope.strip_prefix("alloc-")?.strip_suffix(".scope")?;
    let (allocation, epoch) = match name.split_at_checked(36)? {
        (allocation, "") => (allocation, 0),
        (allocation, rest) => (allocation, rest.strip_prefix('-')?.parse().ok()?),
    };
    Some(Running { allocation: allocation.parse().ok()?, ownership_epoch: OwnershipEpoch(epoch) })
}

impl Cgroups {
    /// The slice of that name below `root`.
    pub fn new(root: PathBuf, slice: String) -> Self {
        Self { root, slice }
    }

    /// A scope's place below the root.
    pub fn scope(&self, running: Running) -> String {
        format!("{}/{}", self.slice, scope_name(running))
    }

    /// The file through which a process enters a scope.
    pub fn procs_file(&self, scope: &str) -> PathBuf {
        self.root.join(scope).join("cgroup.procs")
    }

    /// Why no scope can be made here; none: it can.
    pub fn lacks(&self) -> Option<String> {
        match fs::create_dir_all(self.root.join(&self.slice)) {
            Ok(()) => None,
            Err(error) => Some(format!("{} cannot be made: {error}", self.root.join(&self.slice).display())),
        }
    }

    /// Makes a scope with its limits; says which of them this hierarchy cannot enforce.
    ///
    /// # Errors
    /// The scope cannot be made, or a limit is refused.
    pub fn create(&self, scope: &str, limits: &Limits) -> io::Result<Vec<String>> {
        let folder = self.root.join(scope);
        for above in [self.root.clone(), self.root.join(&self.slice)] {
            fs::create_dir_all(&above)?;
            for controller in ["memory", "cpu", "pids"] {
                // A controller that is not there is told below, by the file that is missing.
                let _ = fs::write(above.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
        fs::create_dir_all(&folder)?;
        let memory = limits.memory_bytes.map(|bytes| bytes.to_string());
        let cpu = limits.cpu.map(|cpu| format!("{} {}", cpu.quota_us, cpu.period_us));
        let pids = limits.pids.map(|pids| pids.to_string());
        let mut missing = Vec::new();
        for (name, value) in [("memory", memory), ("cpu", cpu), ("pids", pids)] {
            let Some(value) = value else { continue };
            let file = folder.join(format!("{name}.max"));
            match file.exists() {
                true => fs::write(file, value)?,
                false => missing.push(name.to_owned()),
            }
        }
        Ok(missing)
    }

    /// Processes in a scope and in the groups inside it.
    pub fn processes(&self, scope: &str) -> Vec<u32> {
        let mut found = Vec::new();
        for group in groups(&self.root.join(scope), DEEPEST) {
            let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
        }
        found
    }

    /// Whether anything runs in a scope.
    pub fn is_populated(&self, scope: &str) -> bool {
        match fs::read_to_string(self.root.join(scope).join("cgroup.events")) {
            Ok(events) => events.lines().any(|line| line == "populated 1"),
            Err(_) => !self.processes(scope).is_empty(),
        }
    }

    /// Until nothing runs in a scope, at most for `patience`; whether that came.
    pub async fn emptied(&self, scope: &str, patience: Duration) -> bool {
        let empties = async {
            while self.is_populated(scope) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(patience, empties).await.is_ok()
    }

    /// Kills everything in a scope.
    ///
    /// # Errors
    /// Something in it survived.
    pub async fn kill(&self, scope: &str) -> io::Result<()> {
        let killed = async {
            while self.is_populated(scope) {
                // Kernels before 5.14 have no such file: then one by one, again and again, since they may fork meanwhile.
                if fs::write(self.root.join(scope).join("cgroup.kill"), "1").is_err() {
                    for pid in self.processes(scope) {
                        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
                    }
                }
                self.emptied(scope, LOOK * 10).await;
            }
        };
        let survived = |_| io::Error::other(format!("processes {:?} cannot be killed", self.processes(scope)));
        tokio::time::timeout(KILLED_WITHIN, killed).await.map_err(survived)
    }

    /// Removes an empty scope with the groups inside it; one that is not there is fine.
    ///
    /// # Errors
    /// It cannot be removed.
    pub async fn remove(&self, scope: &str) -> io::Result<()> {
        let removed = async {
            for group in groups(&self.root.join(scope), DEEPEST).into_iter().rev() {
                remove_group(&group).await?;
            }
            Ok(())
        };
        let busy = |_| io::Error::from(io::ErrorKind::ResourceBusy);
        tokio::time::timeout(KILLED_WITHIN, removed).await.map_err(busy)?
    }

    /// Every scope in the slice, but for those of whose processes none can be read: nothing is known of these.
    pub fn scopes(&self, machine: &Path) -> Vec<Found> {
        let entries = fs::read_dir(self.root.join(&self.slice)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let scopes = names.filter(|name| name.starts_with("alloc-") && name.ends_with(".scope"));
        let found = |name: String| {
            let cgroup = format!("{}/{name}", self.slice);
            let seen: Vec<_> = self.processes(&cgroup).into_iter().map(|pid| (seen(machine, pid), pid)).collect();
            let started = |(seen, pid): &(Seen, u32)| match seen {
                Seen::Lives(ticks) => Some((*ticks, *pid)),
                Seen::Gone | Seen::Unknown => None,
            };
            let oldest = seen.iter().filter_map(started).min();
            if oldest.is_none() && seen.iter().any(|(seen, _)| *seen == Seen::Unknown) {
                warn!(cgroup, "left alone: its processes cannot be read");
                return None;
            }
            Some(Found { running: named(&name), process: oldest.map(|(ticks, pid)| (pid, ticks)), cgroup })
        };
        scopes.filter_map(found).collect()
    }
}

/// When the last process is gone, the kernel may not have finished with it yet.
async fn remove_group(group: &Path) -> io::Result<()> {
    loop {
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => tokio::time::sleep(LOOK).await,
            Err(error) => return Err(error),
        }
    }
}

/// A group and those inside it, the outer ones first.
fn groups(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    if depth > 0 {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                all.extend(groups(&entry.path(), depth - 1));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::{AllocationId, uuid_v7};
    use lattice_core::time::Timestamp;

    use super::*;

    #[test]
    fn the_unified_hierarchy_is_found_wherever_it_is_mounted() {
        let hybrid = "30 20 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
            32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(mounted(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let unified = "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mounted(unified), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(mounted("25 20 0:22 / /proc rw - proc proc rw\n"), None);
    }

    #[test]
    fn a_scope_says_whose_it_is_and_under_which_ownership() {
        let allocation = AllocationId::new(uuid_v7(Timestamp::from_millis(1), [7; 10]));
        let running = Running { allocation, ownership_epoch: OwnershipEpoch(42) };
        assert_eq!(named(&scope_name(running)), Some(running));
        let unknown = Running { ownership_epoch: OwnershipEpoch(0), ..running };
        assert_eq!(named(&format!("alloc-{allocation}.scope")), Some(unknown), "older than any");
        for strange in ["alloc-.scope", "alloc-web.scope", "alloc-ä.scope", "other.scope", "alloc-web"] {
            assert_eq!(named(strange), None, "{strange}");
        }
        assert_eq!(named(&format!("alloc-{allocation}-x.scope")), None);
    }
}
