//! What each kind of task is told. Parsed once; checked before a task is issued and again by its agent.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::TaskKind;
use crate::ids::{AllocationId, OwnershipEpoch};

/// Most arguments, variables, mounts or devices of one task: a bound for hostile rows, far above what work needs.
const MOST: usize = 256;
/// Longest single text, in bytes: the kernel takes 128 KiB for one argument, nobody needs it.
const LONGEST: usize = 8 * 1024;
/// Longest grace before a kill, in milliseconds.
const LONGEST_GRACE_MS: u64 = 540_000;
/// Variables that would make the loader run something else than what was asked for.
const LOADER_PREFIX: &str = "LD_";

/// A kind with its input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", content = "input")]
pub enum TaskInput {
    /// Accept nothing new, or accept again.
    #[serde(rename = "node.drain")]
    NodeDrain(NodeDrain),
    /// Start an allocation.
    #[serde(rename = "allocation.start")]
    AllocationStart(AllocationStart),
    /// End an allocation.
    #[serde(rename = "allocation.stop")]
    AllocationStop(AllocationStop),
    /// Have an allocation save its state.
    #[serde(rename = "allocation.checkpoint")]
    AllocationCheckpoint(AllocationCheckpoint),
    /// Clear the memory of GPUs.
    #[serde(rename = "node.gpu_scrub")]
    GpuScrub(GpuScrub),
    /// Erase NVMe drives.
    #[serde(rename = "node.nvme_erase")]
    NvmeErase(NvmeErase),
    /// Overwrite free memory.
    #[serde(rename = "node.ram_scrub")]
    RamScrub(RamScrub),
    /// Say how the host is.
    #[serde(rename = "node.heartbeat_check")]
    HeartbeatCheck(HeartbeatCheck),
    /// Restart the host.
    #[serde(rename = "node.reboot")]
    NodeReboot(NodeReboot),
}

/// Whether the host takes new allocations.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, strum::Display, strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DrainMode {
    /// It takes none.
    Begin,
    /// It takes them again.
    End,
}

/// `node.drain`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeDrain {
    /// Which way.
    pub mode: DrainMode,
}

/// `allocation.start`. The process sees these variables and no others; secrets do not belong here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AllocationStart {
    /// Which allocation.
    pub allocation: AllocationId,
    /// Ownership under which it starts.
    pub ownership_epoch: OwnershipEpoch,
    /// Program, by its absolute path, and its arguments. No shell is between.
    pub argv: Vec<String>,
    /// Its whole environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its working directory; none: `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// User and group it runs as; none: the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// What it may use at most.
    #[serde(default)]
    pub limits: Limits,
    /// What is mounted for it, in this order.
    #[serde(default)]
    pub mounts: Vec<Mount>,
}

/// A numeric user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// What an allocation may use at most; none: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
pub struct Limits {
    /// `memory.max`, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// `cpu.max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuLimit>,
    /// `pids.max`: processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
}

/// Processor time in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CpuLimit {
    /// Time of all processors together, in microseconds.
    pub quota_us: u64,
    /// Length of a period, in microseconds.
    pub period_us: u64,
}

/// A folder or file that is bound to another place while the allocation runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Mount {
    /// What, by its absolute path on the host.
    pub source: String,
    /// Where, by its absolute path on the host.
    pub target: String,
    /// Whether nothing can be written through it.
    #[serde(default)]
    pub read_only: bool,
}

/// `allocation.stop`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AllocationStop {
    /// Which allocation.
    pub allocation: AllocationId,
    /// Ownership under which it was started; what was started under a later one is left alone.
    pub ownership_epoch: OwnershipEpoch,
    /// Time between SIGTERM and SIGKILL, in milliseconds.
    pub grace_ms: u64,
}

/// `allocation.checkpoint`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AllocationCheckpoint {
    /// Which allocation.
    pub allocation: AllocationId,
    /// Ownership under which it was started.
    pub ownership_epoch: OwnershipEpoch,
    /// How it is told.
    pub how: CheckpointHow,
    /// Longest wait for it, in milliseconds.
    pub timeout_ms: u64,
}

/// How an allocation is told to save its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointHow {
    /// It cannot be told: the answer is `unsupported`.
    None,
    /// A signal to its first process, 1 to 64; it is done when the process has ended, or wrote `done` as the last line of
    /// this file.
    Signal {
        /// Its number.
        number: u8,
        /// File that says `done`; none: the process ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        done_file: Option<String>,
    },
    /// A command in its scope, done when it ends with 0; 64 says that it is not supported.
    Command {
        /// Program, by its absolute path, and its arguments.
        argv: Vec<String>,
    },
}

/// `node.gpu_scrub`: all GPUs of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct GpuScrub {
    /// How many GPUs the host must show; with fewer it is not done.
    pub gpus: u32,
}

/// `node.nvme_erase`: these drives, and no others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NvmeErase {
    /// Names of the drives: `nvme0n1`. Empty: the host has none, and must show none but the excluded ones.
    pub devices: BTreeSet<String>,
    /// Drives that stay as they are: the one the system runs from.
    #[serde(default)]
    pub keep: BTreeSet<String>,
    /// How.
    pub method: EraseMethod,
}

/// How a drive is erased.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, strum::Display, strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EraseMethod {
    /// Format with secure erase setting 2: the media key is thrown away.
    Crypto,
    /// Format with secure erase setting 1: all user data is erased.
    UserData,
}

/// `node.ram_scrub`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RamScrub {
    /// Memory left alone for the system that runs, in MiB.
    pub reserve_mib: u64,
}

/// `node.heartbeat_check`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
pub struct HeartbeatCheck {}

/// `node.reboot`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeReboot {
    /// The boot to be ended: one that came meanwhile is left alone.
    pub boot_id: String,
}

/// An input that cannot be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct Invalid {
    /// Which field.
    pub field: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

fn invalid(field: &'static str, problem: impl Into<String>) -> Invalid {
    Invalid { field, problem: problem.into() }
}

impl TaskInput {
    /// Its kind.
    pub const fn kind(&self) -> TaskKind {
        match self {
            Self::NodeDrain(_) => TaskKind::NodeDrain,
            Self::AllocationStart(_) => TaskKind::AllocationStart,
            Self::AllocationStop(_) => TaskKind::AllocationStop,
            Self::AllocationCheckpoint(_) => TaskKind::AllocationCheckpoint,
            Self::GpuScrub(_) => TaskKind::GpuScrub,
            Self::NvmeErase(_) => TaskKind::NvmeErase,
            Self::RamScrub(_) => TaskKind::RamScrub,
            Self::HeartbeatCheck(_) => TaskKind::HeartbeatCheck,
            Self::NodeReboot(_) => TaskKind::NodeReboot,
        }
    }

    /// The allocation it is about.
    pub const fn allocation(&self) -> Option<AllocationId> {
        match self {
            Self::AllocationStart(start) => Some(start.allocation),
            Self::AllocationStop(stop) => Some(stop.allocation),
            Self::AllocationCheckpoint(checkpoint) => Some(checkpoint.allocation),
            Self::NodeDrain(_)
            | Self::GpuScrub(_)
            | Self::NvmeErase(_)
            | Self::RamScrub(_)
            | Self::HeartbeatCheck(_)
            | Self::NodeReboot(_) => None,
        }
    }

    /// Whether it can be done at all.
    ///
    /// # Errors
    /// [`Invalid`] names the field and what would be right.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::NodeDrain(_) | Self::GpuScrub(_) | Self::RamScrub(_) | Self::HeartbeatCheck(_) => Ok(()),
            Self::AllocationStart(start) => check_start(start),
            Self::AllocationStop(stop) => check_ms("grace_ms", stop.grace_ms),
            Self::AllocationCheckpoint(checkpoint) => {
                check_ms("timeout_ms", checkpoint.timeout_ms)?;
                match &checkpoint.how {
                    CheckpointHow::None => Ok(()),
                    CheckpointHow::Signal { number, done_file } => {
                        if !(1..=64).contains(number) {
                            return Err(invalid("how.signal.number", "must be 1 to 64"));
                        }
                        done_file.as_deref().map_or(Ok(()), |file| check_path("how.signal.done_file", file))
                    }
                    CheckpointHow::Command { argv } => check_argv("how.command.argv", argv),
                }
            }
            Self::NvmeErase(erase) => check_erase(erase),
            Self::NodeReboot(reboot) => match reboot.boot_id.is_empty() || reboot.boot_id.len() > 256 {
                true => Err(invalid("boot_id", "must be the boot to be ended, as the agent registered it")),
                false => Ok(()),
            },
        }
    }
}

fn check_start(start: &AllocationStart) -> Result<(), Invalid> {
    check_argv("argv", &start.argv)?;
    if start.env.len() > MOST {
        return Err(invalid("env", format!("has more than {MOST} variables")));
    }
    for (name, value) in &start.env {
        let well_formed = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && !name.is_empty();
        if !well_formed || name.len() > 256 {
            return Err(invalid("env", "has a name that is not of letters, digits and underscores"));
        }
        if name.starts_with(LOADER_PREFIX) {
            return Err(invalid("env", format!("must not set {name}: it changes which program runs")));
        }
        check_text("env", value)?;
    }
    if let Some(directory) = &start.directory {
        check_path("directory", directory)?;
    }
    if let Some(cpu) = start.limits.cpu
        && (cpu.quota_us < 1_000 || !(1_000..=1_000_000).contains(&cpu.period_us))
    {
        return Err(invalid("limits.cpu", "needs a quota of at least 1000 us and a period of 1000 to 1000000 us"));
    }
    if start.limits.pids == Some(0) || start.limits.memory_bytes == Some(0) {
        return Err(invalid("limits", "of 0 would let nothing run: leave it out for no limit"));
    }
    if start.mounts.len() > MOST {
        return Err(invalid("mounts", format!("has more than {MOST} entries")));
    }
    let mut targets = BTreeSet::new();
    for mount in &start.mounts {
        check_path("mounts.source", &mount.source)?;
        check_path("mounts.target", &mount.target)?;
        if mount.target == "/" || !targets.insert(&mount.target) {
            return Err(invalid("mounts.target", format!("`{}` is the root, or is there twice", mount.target)));
        }
    }
    Ok(())
}

fn check_erase(erase: &NvmeErase) -> Result<(), Invalid> {
    if erase.devices.len() + erase.keep.len() > MOST {
        return Err(invalid("devices", format!("has more than {MOST} entries")));
    }
    for name in erase.devices.iter().chain(&erase.keep) {
        let rest = name.strip_prefix("nvme").unwrap_or_default();
        if rest.is_empty() || rest.len() > 16 || !rest.chars().all(|letter| letter.is_ascii_alphanumeric()) {
            return Err(invalid("devices", format!("has `{name}`, which is not the name of a drive such as nvme0n1")));
        }
    }
    match erase.devices.intersection(&erase.keep).next() {
        Some(both) => Err(invalid("keep", format!("has `{both}`, which is also to be erased"))),
        None => Ok(()),
    }
}

fn check_argv(field: &'static str, argv: &[String]) -> Result<(), Invalid> {
    match argv.first() {
        Some(program) => check_path(field, program)?,
        None => return Err(invalid(field, "is empty: the first entry is the program, by its absolute path")),
    }
    if argv.len() > MOST {
        return Err(invalid(field, format!("has more than {MOST} entries")));
    }
    argv.iter().try_for_each(|argument| check_text(field, argument))
}

fn check_text(field: &'static str, text: &str) -> Result<(), Invalid> {
    match text.len() > LONGEST || text.contains('\0') {
        true => Err(invalid(field, format!("has a text longer than {LONGEST} bytes, or with a zero byte"))),
        false => Ok(()),
    }
}

/// Absolute, and without steps upwards: what is written is what is meant.
fn check_path(field: &'static str, path: &str) -> Result<(), Invalid> {
    check_text(field, path)?;
    match path.starts_with('/') && !path.split('/').any(|part| part == ".." || part == ".") {
        true => Ok(()),
        false => Err(invalid(field, format!("`{path}` is not an absolute path without `.` and `..`"))),
    }
}

fn check_ms(field: &'static str, millis: u64) -> Result<(), Invalid> {
    match millis <= LONGEST_GRACE_MS {
        true => Ok(()),
        false => Err(invalid(field, format!("is more than {LONGEST_GRACE_MS} ms"))),
    }
}
