//! The last steps before a workload's program: done by a process of its own, which becomes that program.
//!
//! The agent starts itself as `lattice-agent enter`. That process joins the scope before anything of the workload runs,
//! leaves the agent's session, makes its mounts where nobody else sees them, gives up its rights, and executes. What it
//! is to do comes over standard input, what went wrong goes over standard output; both end there.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lattice_core::agent::task::{Mount, User};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Gid, Uid, dup2_stderr, dup2_stdin, dup2_stdout, setgid, setgroups, setsid, setuid};
use serde::{Deserialize, Serialize};

use super::process::lives;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entering {
    /// The `cgroup.procs` of its scope.
    pub procs: PathBuf,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Its working directory.
    pub directory: String,
    /// User and group it runs as.
    pub user: Option<User>,
    /// What is mounted for it.
    pub mounts: Vec<Mount>,
    /// Whose mounts it sees, besides.
    pub joined: Option<Joined>,
}

/// A process of the workload, by id and start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// Becomes the workload's program; returns only when that failed, after saying so on standard output.
pub fn enter() -> io::Error {
    let failed = match prepare() {
        Ok((mut command, mut status)) => {
            let error = command.exec();
            let failed = io::Error::other(format!("{}: {error}", Path::new(command.get_program()).display()));
            let _ = write!(status, "{failed}");
            return failed;
        }
        Err(failed) => failed,
    };
    print!("{failed}");
    failed
}

/// Everything before the program; with it, where a failure of the last step is said: it closes itself when it works.
fn prepare() -> io::Result<(Command, File)> {
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    let entering: Entering = serde_json::from_slice(&text)?;
    let step = |what: &str, error: io::Error| io::Error::other(format!("{what}: {error}"));
    // 0 is the process that writes it.
    std::fs::write(&entering.procs, "0").map_err(|error| step("the scope cannot be entered", error))?;
    setsid().map_err(|error| step("no session of its own", error.into()))?;
    if let Some(joined) = entering.joined {
        join(joined)?;
    }
    if !entering.mounts.is_empty() {
        private_mounts(&entering.mounts)?;
    }
    // A copy made this way is closed when the program is executed.
    let status = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nowhere)?;
    dup2_stdout(&nowhere)?;
    dup2_stderr(&nowhere)?;
    let result = drop_rights(entering.user).and_then(|()| {
        std::env::set_current_dir(&entering.directory).map_err(|error| step(&entering.directory, error))?;
        let (program, arguments) = entering.argv.split_first().ok_or_else(|| io::Error::other("no program"))?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(&entering.env);
        Ok(command)
    });
    match result {
        Ok(command) => Ok((command, status)),
        Err(error) => {
            let mut status = status;
            let _ = write!(status, "{error}");
            Err(error)
        }
    }
}

/// Mounts in a namespace of its own: they end with the last process that sees them, whatever happens to the agent.
fn private_mounts(mounts: &[Mount]) -> io::Result<()> {
    let none: Option<&str> = None;
    let step = |what: String, error: nix::Error| io::Error::other(format!("{what}: {error}"));
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| step("no mounts of its own".to_owned(), error))?;
    // What the host mounts later is seen, what is mounted here is not seen there.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(|error| step("mounts cannot be made its own".to_owned(), error))?;
    for one in mounts {
        let said = || format!("{} cannot be mounted at {}", one.source, one.target);
        place(one).map_err(|error| io::Error::other(format!("{}: {error}", said())))?;
        mount(Some(one.source.as_str()), one.target.as_str(), none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
            .map_err(|error| step(said(), error))?;
        if one.read_only {
            read_only(&one.target).map_err(|error| io::Error::other(format!("{} read-only: {error}", said())))?;
        }
    }
    Ok(())
}

/// Makes a mount and all mounts below it read-only, at once. A remount would reach the topmost alone, and take away what
/// else the source forbids (`nosuid`, `nodev`).
#[allow(unsafe_code, reason = "no safe function makes this system call")]
fn read_only(target: &str) -> io::Result<()> {
    let target = CString::new(target)?;
    let change = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_RECURSIVE;
    // SAFETY: path and structure outlive the call, the size is the structure's own, and the kernel only reads them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sees from now on what that process sees.
fn join(joined: Joined) -> io::Result<()> {
    let step =
        |error: io::Error| io::Error::other(format!("the mounts of process {} cannot be joined: {error}", joined.pid));
    let theirs = File::open(format!("/proc/{}/ns/mnt", joined.pid)).map_err(step)?;
    if !lives(Path::new("/"), joined.pid, joined.start_ticks) {
        return Err(step(io::Error::other("it ended")));
    }
    let (ours, namespace) = (std::fs::metadata("/proc/self/ns/mnt")?, theirs.metadata()?);
    if (ours.dev(), ours.ino()) == (namespace.dev(), namespace.ino()) {
        return Ok(());
    }
    setns(theirs, CloneFlags::CLONE_NEWNS).map_err(|error| step(error.into()))
}

/// Something to mount over: a folder for a folder, a file for a file.
fn place(one: &Mount) -> io::Result<()> {
    let target = Path::new(&one.target);
    if target.exists() {
        return Ok(());
    }
    if std::fs::metadata(&one.source)?.is_dir() {
        return std::fs::create_dir_all(target);
    }
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(target).map(drop)
}

fn drop_rights(user: Option<User>) -> io::Result<()> {
    let Some(User { uid, gid }) = user else { return Ok(()) };
    let step = |error: nix::Error| io::Error::other(format!("it cannot run as user {uid}, group {gid}: {error}"));
    setgroups(&[]).map_err(step)?;
    setgid(Gid::from_raw(gid)).map_err(step)?;
    setuid(Uid::from_raw(uid)).map_err(step)
}

/// Overwrites free memory but for `reserve_mib`, and says how many bytes. spec: S1 "Sensitive Release Sequence"
///
/// # Errors
/// How much is free cannot be read.
pub fn scrub_memory(reserve_mib: u64) -> io::Result<u64> {
    const CHUNK: usize = 16 << 20;
    let available = available_bytes()?;
    let wanted = available.saturating_sub(reserve_mib << 20);
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let mut done = 0_u64;
    // What others took meanwhile is theirs, and not free.
    while done + CHUNK as u64 <= wanted && available_bytes()? > (reserve_mib << 20) + CHUNK as u64 {
        let mut chunk = Vec::new();
        if chunk.try_reserve_exact(CHUNK).is_err() {
            break;
        }
        chunk.resize(CHUNK, 0xa5_u8);
        chunk.fill(0);
        // Keeps the compiler from removing the writes as dead.
        std::hint::black_box(chunk.as_slice());
        chunks.push(chunk);
        done += CHUNK as u64;
    }
    Ok(done)
}

fn available_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("MemAvailable is not in /proc/meminfo"))
}
