//! Acts on the real machine: scopes, processes, signals, its reboot.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::agent::task::{
    AllocationStart, CheckpointHow, CheckpointResult, ExitStatus, Running, StopResult, TaskErrorCode, TaskInput,
    WipeOutput,
};
use lattice_core::time::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::cgroup::{Cgroups, mounted};
use super::enter::{Entering, Joined};
use super::process::{Seen, lives, seen};
use super::wipe::Wiper;
use crate::hands::{Born, Found, HandError, Hands};
use crate::state::AllocationState;

/// The program that becomes a workload says within this that it could not.
const ENTERED_WITHIN: Duration = Duration::from_secs(10);
/// A process that has ended is reaped at once.
const REAPED_WITHIN: Duration = Duration::from_secs(1);
/// Ends of children that are kept for those who ask; each is asked for within a heartbeat.
const MOST_ENDS: usize = 1_024;
/// Pause between two looks at what a checkpoint brings about.
const LOOK: Duration = Duration::from_millis(20);
/// How a checkpoint's command says that it is not supported: EX_USAGE of sysexits.
const UNSUPPORTED: i32 = 64;

/// Where an agent's workloads are, and with what it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workplace {
    /// Root of the unified cgroup hierarchy; none: as it is mounted.
    pub cgroup_root: Option<PathBuf>,
    /// Slice below it that holds the scopes of allocations.
    pub slice: String,
    /// This program, as which a workload is entered.
    pub agent: PathBuf,
    /// Folders of the programs that wipe devices.
    pub tools: Vec<PathBuf>,
}

impl Default for Workplace {
    fn default() -> Self {
        let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin", "/opt/rocm/bin"];
        Self {
            cgroup_root: None,
            slice: "workload.slice".to_owned(),
            // Also when the file was replaced by a newer one since.
            agent: PathBuf::from("/proc/self/exe"),
            tools: folders.map(PathBuf::from).into(),
        }
    }
}

/// How the agent's own children ended, by id and start.
type Children = Mutex<HashMap<(u32, u64), watch::Receiver<Option<ExitStatus>>>>;

/// Acts on the real machine.
pub struct LinuxHands {
    machine: PathBuf,
    cgroups: Result<Cgroups, String>,
    agent: PathBuf,
    wiper: Wiper,
    children: Children,
}

impl LinuxHands {
    /// On the machine whose file system is at `machine`.
    pub fn new(machine: PathBuf, workplace: &Workplace) -> Self {
        let found = || {
            let mounts = std::fs::read_to_string(machine.join("proc/self/mountinfo")).unwrap_or_default();
            mounted(&mounts).ok_or_else(|| "no cgroup2 file system is mounted on this host".to_owned())
        };
        let root = workplace.cgroup_root.clone().map_or_else(found, Ok);
        let cgroups = root.map(|root| Cgroups::new(root, workplace.slice.clone()));
        let wiper = Wiper::new(machine.clone(), workplace);
        Self { machine, cgroups, agent: workplace.agent.clone(), wiper, children: Mutex::default() }
    }

    fn cgroups(&self) -> Result<&Cgroups, HandError> {
        self.cgroups.as_ref().map_err(|why| HandError::lacks(why.clone()))
    }

    /// What the first process of an allocation sees.
    fn view(&self, one: &AllocationState) -> Result<View, HandError> {
        let folder = self.machine.join(format!("proc/{}", one.pid));
        let open = |path: PathBuf| {
            File::open(&path).map_err(|error| HandError::failed(format!("{}: {error}", path.display())))
        };
        let opened =
            open(folder.join("root")).and_then(|root| Ok(View { root, _mounts: open(folder.join("ns/mnt"))? }));
        // The id may be another process's by now.
        match lives(&self.machine, one.pid, one.start_ticks) {
            true => opened,
            false => Err(gone()),
        }
    }

    /// Starts a program in a scope, and returns when it runs.
    async fn spawn(&self, entering: &Entering) -> Result<Child, HandError> {
        let spec = serde_json::to_vec(entering).map_err(|error| HandError::failed(error.to_string()))?;
        let unstarted =
            |error: io::Error| HandError::failed(format!("{} does not start: {error}", self.agent.display()));
        let mut child = Command::new(&self.agent)
            .arg("enter")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(unstarted)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let said = tokio::time::timeout(ENTERED_WITHIN, async {
            if let Some(mut stdin) = stdin {
                stdin.write_all(&spec).await?;
            }
            let mut said = String::new();
            if let Some(stdout) = stdout {
                stdout.take(4_096).read_to_string(&mut said).await?;
            }
            Ok::<_, io::Error>(said)
        });
        let why = match said.await {
            Ok(Ok(said)) if said.is_empty() => return Ok(child),
            Ok(Ok(said)) => said,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not begin within {} s", ENTERED_WITHIN.as_secs()),
        };
        let _ = child.kill().await;
        Err(HandError::failed(why))
    }

    fn entering(&self, one: &AllocationState, argv: &[String]) -> Result<Entering, HandError> {
        Ok(Entering {
            procs: self.cgroups()?.procs_file(&one.cgroup),
            argv: argv.to_vec(),
            env: [("LATTICE_ALLOCATION".to_owned(), one.allocation.to_string())].into(),
            directory: "/".to_owned(),
            user: one.user,
            mounts: Vec::new(),
            joined: Some(Joined { pid: one.pid, start_ticks: one.start_ticks }),
        })
    }

    /// Keeps how it ends, for whoever asks.
    fn watch_over(&self, pid: u32, ticks: u64, mut child: Child) {
        let (tell, told) = watch::channel(None);
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        if children.len() >= MOST_ENDS {
            children.retain(|_, told| told.borrow().is_none());
        }
        children.insert((pid, ticks), told);
        drop(children);
        tokio::spawn(async move {
            let exit = child.wait().await.ok().map(exit_of);
            // The map has the other end for as long as somebody may ask.
            let _ = tell.send(exit);
        });
    }

    fn child(&self, pid: u32, ticks: u64) -> Option<watch::Receiver<Option<ExitStatus>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).get(&(pid, ticks)).cloned()
    }

    /// Signals the first process, if it is still the one that was started, in its scope.
    fn signal_first(&self, one: &AllocationState, signal: i32) -> bool {
        let Ok(cgroups) = &self.cgroups else { return false };
        let is_it = lives(&self.machine, one.pid, one.start_ticks) && cgroups.processes(&one.cgroup).contains(&one.pid);
        is_it && send(one.pid, signal)
    }

    async fn signalled(
        &self,
        one: &AllocationState,
        (number, done_file): (u8, Option<&Path>),
        timeout: Duration,
    ) -> Result<CheckpointResult, HandError> {
        let stamp = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.len(), meta.modified().ok()));
        // Kept to the end: the process may save its state and end.
        let view = done_file.map(|_| self.view(one)).transpose()?;
        let done_file = view.as_ref().zip(done_file).map(|(view, path)| view.path(path));
        let done_file = done_file.as_deref();
        let before = done_file.and_then(stamp);
        if !self.signal_first(one, i32::from(number)) {
            return Err(gone());
        }
        let done = async {
            loop {
                let is_done = match done_file {
                    Some(path) => stamp(path) != before && says_done(path),
                    None => !lives(&self.machine, one.pid, one.start_ticks),
                };
                if is_done {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        match tokio::time::timeout(timeout, done).await {
            Ok(()) => Ok(CheckpointResult::Done),
            Err(_) => Err(too_long(timeout)),
        }
    }

    async fn commanded(
        &self,
        one: &AllocationState,
        argv: &[String],
        timeout: Duration,
    ) -> Result<CheckpointResult, HandError> {
        let mut child = self.spawn(&self.entering(one, argv)?).await?;
        let Ok(ended) = tokio::time::timeout(timeout, child.wait()).await else {
            let _ = child.kill().await;
            return Err(too_long(timeout));
        };
        match ended.map(exit_of).map_err(|error| HandError::failed(error.to_string()))? {
            ExitStatus::Code(0) => Ok(CheckpointResult::Done),
            ExitStatus::Code(UNSUPPORTED) => Ok(CheckpointResult::Unsupported),
            ExitStatus::Code(code) => Err(HandError::failed(format!("its command ended with {code}"))),
            ExitStatus::Signal(signal) => Err(HandError::failed(format!("its command ended by signal {signal}"))),
        }
    }
}

#[async_trait]
impl Hands for LinuxHands {
    fn lacks(&self, input: &TaskInput) -> Option<String> {
        match input {
            TaskInput::NodeDrain(_) | TaskInput::HeartbeatCheck(_) => None,
            TaskInput::AllocationStart(_) | TaskInput::AllocationStop(_) | TaskInput::AllocationCheckpoint(_) => {
                match &self.cgroups {
                    Ok(cgroups) => cgroups.lacks(),
                    Err(why) => Some(why.clone()),
                }
            }
            TaskInput::GpuScrub(_) | TaskInput::NvmeErase(_) | TaskInput::RamScrub(_) => self.wiper.lacks(input),
            TaskInput::NodeReboot(_) => self.wiper.tool("systemctl").err(),
        }
    }

    fn scope(&self, running: Running) -> String {
        match &self.cgroups {
            Ok(cgroups) => cgroups.scope(running),
            Err(_) => super::cgroup::scope_name(running),
        }
    }

    async fn start(&self, start: &AllocationStart, scope: &str) -> Result<Born, HandError> {
        let cgroups = self.cgroups()?;
        let not_limited = cgroups
            .create(scope, &start.limits)
            .map_err(|error| HandError::failed(format!("the scope {scope} cannot be made: {error}")))?;
        let entering = Entering {
            procs: cgroups.procs_file(scope),
            argv: start.argv.clone(),
            env: start.env.clone(),
            directory: start.directory.clone().unwrap_or_else(|| "/".to_owned()),
            user: start.user,
            mounts: start.mounts.clone(),
            joined: None,
        };
        let mut child = self.spawn(&entering).await?;
        let pid = child.id().unwrap_or_default();
        let ticks = match seen(&self.machine, pid) {
            Seen::Lives(ticks) => ticks,
            // It waits to be reaped: its end is what there is to be told.
            Seen::Gone => 0,
            Seen::Unknown => {
                let _ = child.kill().await;
                return Err(HandError::failed(format!("when process {pid} started cannot be read")));
            }
        };
        self.watch_over(pid, ticks, child);
        Ok(Born { pid, start_ticks: ticks, not_limited })
    }

    async fn first_process(&self, one: &AllocationState) -> Result<(), Option<ExitStatus>> {
        if lives(&self.machine, one.pid, one.start_ticks) {
            return Ok(());
        }
        let Some(mut child) = self.child(one.pid, one.start_ticks) else { return Err(None) };
        let _ = tokio::time::timeout(REAPED_WITHIN, child.wait_for(Option::is_some)).await;
        // Looked at once more: who is late to look may find both the exit and the end of the wait.
        let exit = *child.borrow();
        Err(exit)
    }

    async fn stop(&self, one: &AllocationState, grace: Duration) -> Result<StopResult, HandError> {
        let cgroups = self.cgroups()?;
        if !cgroups.is_populated(&one.cgroup) {
            return Ok(StopResult::WasGone);
        }
        if !self.signal_first(one, Signal::SIGTERM as i32) {
            for pid in cgroups.processes(&one.cgroup) {
                send(pid, Signal::SIGTERM as i32);
            }
        }
        if cgroups.emptied(&one.cgroup, grace).await {
            return Ok(StopResult::Graceful);
        }
        cgroups.kill(&one.cgroup).await.map_err(|error| HandError::failed(error.to_string()))?;
        Ok(StopResult::Killed)
    }

    async fn checkpoint(
        &self,
        one: &AllocationState,
        how: &CheckpointHow,
        timeout: Duration,
    ) -> Result<CheckpointResult, HandError> {
        match how {
            CheckpointHow::None => Ok(CheckpointResult::Unsupported),
            CheckpointHow::Signal { number, done_file } => {
                self.signalled(one, (*number, done_file.as_deref().map(Path::new)), timeout).await
            }
            CheckpointHow::Command { argv } => self.commanded(one, argv, timeout).await,
        }
    }

    /// Nothing is unmounted: a workload's mounts are in a namespace that ends with its last process. What the agent
    /// sees at their targets is the host's own.
    async fn clean(&self, cgroup: &str) -> Result<(), HandError> {
        let failed = |error: io::Error| HandError::failed(format!("{cgroup}: {error}"));
        if let Ok(cgroups) = &self.cgroups {
            cgroups.kill(cgroup).await.map_err(failed)?;
            cgroups.remove(cgroup).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn scopes(&self) -> Vec<Found> {
        self.cgroups.as_ref().map_or_else(|_| Vec::new(), |cgroups| cgroups.scopes(&self.machine))
    }

    async fn wipe(&self, input: &TaskInput, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        self.wiper.wipe(input, clock).await
    }

    async fn reboot(&self) -> Result<(), HandError> {
        let systemctl = self.wiper.tool("systemctl").map_err(HandError::lacks)?;
        let ended = Command::new(&systemctl).arg("reboot").stdin(Stdio::null()).output().await;
        match ended {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(HandError::failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
            Err(error) => Err(HandError::failed(format!("{}: {error}", systemctl.display()))),
        }
    }
}

/// What a process sees, also after it ended.
struct View {
    root: File,
    /// Keeps what is mounted there.
    _mounts: File,
}

impl View {
    /// The agent's way to a file that the process knows as `path`.
    fn path(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

fn gone() -> HandError {
    HandError { code: TaskErrorCode::NotRunning, detail: "its first process ended".to_owned() }
}

fn too_long(timeout: Duration) -> HandError {
    let detail = format!("its state was not saved within {} ms", timeout.as_millis());
    HandError { code: TaskErrorCode::TimedOut, detail }
}

fn says_done(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.lines().next_back() == Some("done"))
}

fn exit_of(status: std::process::ExitStatus) -> ExitStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, signal) => ExitStatus::Signal(signal.unwrap_or_default()),
    }
}

/// Whether a process got a signal; numbers beyond the named ones are not sent.
fn send(pid: u32, signal: i32) -> bool {
    Signal::try_from(signal).is_ok_and(|signal| kill(Pid::from_raw(pid.cast_signed()), signal).is_ok())
}
