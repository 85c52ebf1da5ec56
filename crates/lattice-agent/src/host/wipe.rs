//! Wipes devices of the real machine, with a record of each. spec: S1 "Sensitive Release Sequence"
//!
//! What the device says of itself before and after, which program did it and how that ended: all of it or nothing.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use lattice_core::agent::task::{EraseMethod, NvmeErase, RamScrub, TaskInput, WipeEvidence, WipeOutput};
use lattice_core::time::Clock;
use nix::fcntl::OFlag;
use tokio::process::Command;

use super::pci;
use super::workplace::Workplace;
use crate::config::VERSION;
use crate::hands::HandError;

/// What is kept of what a device or a program says, in bytes.
const KEPT: usize = 512;
/// How often, and how far apart, a device that is held is looked at before it counts as in use.
const LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);
const NVIDIA: &str = "nvidia";
const AMD: &str = "amd";

/// Wipes devices.
pub struct Wiper {
    machine: PathBuf,
    tools: Vec<PathBuf>,
    agent: PathBuf,
}

/// How a program ended.
struct Ran {
    code: i32,
    said: String,
}

impl Wiper {
    /// With the tools of that workplace.
    pub fn new(machine: PathBuf, workplace: &Workplace) -> Self {
        Self { machine, tools: workplace.tools.clone(), agent: workplace.agent.clone() }
    }

    /// A program, by its path; else what is missing.
    pub fn tool(&self, name: &str) -> Result<PathBuf, String> {
        let found = self.tools.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        found.ok_or_else(|| format!("`{name}` is not installed on this host"))
    }

    /// What is missing to do that.
    pub fn lacks(&self, input: &TaskInput) -> Option<String> {
        match input {
            TaskInput::GpuScrub(_) => {
                let vendors: BTreeSet<String> =
                    pci::gpus(&self.machine).into_iter().map(|gpu| gpu.fact.vendor).collect();
                vendors.iter().find_map(|vendor| self.gpu_tool(vendor).err())
            }
            TaskInput::NvmeErase(erase) if erase.devices.is_empty() => None,
            TaskInput::NvmeErase(_) => self.tool("nvme").err(),
            TaskInput::RamScrub(_)
            | TaskInput::NodeDrain(_)
            | TaskInput::AllocationStart(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::HeartbeatCheck(_)
            | TaskInput::NodeReboot(_) => None,
        }
    }

    /// Wipes what `input` says.
    ///
    /// # Errors
    /// A device was not wiped; those before it were.
    pub async fn wipe(&self, input: &TaskInput, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        match input {
            TaskInput::GpuScrub(_) => self.gpus(clock).await,
            TaskInput::NvmeErase(erase) => self.drives(erase, clock).await,
            TaskInput::RamScrub(scrub) => self.memory(scrub, clock).await,
            TaskInput::NodeDrain(_)
            | TaskInput::AllocationStart(_)
            | TaskInput::AllocationStop(_)
            | TaskInput::AllocationCheckpoint(_)
            | TaskInput::HeartbeatCheck(_)
            | TaskInput::NodeReboot(_) => Err(HandError::lacks("it is no wipe")),
        }
    }

    fn gpu_tool(&self, vendor: &str) -> Result<PathBuf, String> {
        match vendor {
            NVIDIA => self.tool("nvidia-smi"),
            AMD => self.tool("amd-smi"),
            other => Err(format!("no program is known that clears GPUs of {other}")),
        }
    }

    /// A reset clears a GPU's memory; processes that use one make it fail.
    async fn gpus(&self, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        let mut wiped = WipeOutput { inventory: BTreeSet::new(), evidence: Vec::new() };
        for gpu in pci::gpus(&self.machine) {
            let (address, vendor) = (gpu.fact.address.clone(), gpu.fact.vendor.clone());
            let tool = self.gpu_tool(&vendor).map_err(HandError::lacks)?;
            let (version, reset): (&[&str], [&str; 4]) = match vendor.as_str() {
                NVIDIA => (&["--version"], ["--gpu-reset", "--id", &address, ""]),
                _ => (&["version"], ["reset", "--gpureset", "--gpu", &address]),
            };
            let reset: Vec<&str> = reset.into_iter().filter(|word| !word.is_empty()).collect();
            let tool_version = first_line(&run(&tool, version).await?.said);
            let (before, started_at) = (self.gpu_status(&tool, &vendor, &gpu.folder, &address).await, clock.now());
            let ran = run(&tool, &reset).await?;
            let finished_at = clock.now();
            wiped.inventory.insert(address.clone());
            wiped.evidence.push(WipeEvidence {
                device: address.clone(),
                model: gpu.fact.model,
                serial: text(&gpu.folder.join("serial_number")),
                bytes: number(&gpu.folder.join("mem_info_vram_total")),
                method: "gpu_reset".to_owned(),
                tool: tool.display().to_string(),
                tool_version,
                exit_code: ran.code,
                status_before: before,
                status_after: self.gpu_status(&tool, &vendor, &gpu.folder, &address).await,
                started_at,
                finished_at,
            });
            ran.succeeded(&address)?;
        }
        Ok(wiped)
    }

    async fn gpu_status(&self, tool: &Path, vendor: &str, folder: &Path, address: &str) -> String {
        if vendor == NVIDIA {
            let query =
                ["--query-gpu=memory.used,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader", "--id"];
            let words: Vec<&str> = query.into_iter().chain([address]).collect();
            return run(tool, &words)
                .await
                .map(|ran| format!("memory used, ECC errors: {}", ran.said))
                .unwrap_or_default();
        }
        number(&folder.join("mem_info_vram_used")).map(|used| format!("vram used {used}")).unwrap_or_default()
    }

    /// The drives that are named, and no others; none that is in use.
    async fn drives(&self, erase: &NvmeErase, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        let inventory = self.nvme_names();
        if let Some(absent) = erase.devices.iter().find(|name| !inventory.contains(*name)) {
            return Err(HandError::failed(format!("{absent} is not there")));
        }
        for name in &erase.devices {
            self.is_unused(name)?;
        }
        let mut evidence = Vec::new();
        if !erase.devices.is_empty() {
            let tool = self.tool("nvme").map_err(HandError::lacks)?;
            let version = first_line(&run(&tool, &["version"]).await?.said);
            for name in &erase.devices {
                evidence.push(self.drive(&tool, &version, name, erase.method, clock).await?);
            }
        }
        Ok(WipeOutput { inventory, evidence })
    }

    async fn drive(
        &self,
        tool: &Path,
        version: &str,
        name: &str,
        method: EraseMethod,
        clock: &dyn Clock,
    ) -> Result<WipeEvidence, HandError> {
        let device = format!("/dev/{name}");
        let setting = match method {
            EraseMethod::Crypto => "--ses=2",
            EraseMethod::UserData => "--ses=1",
        };
        let status = async || -> Result<String, HandError> {
            let ran = run(tool, &["id-ns", &device]).await?;
            ran.succeeded(name)?;
            let told = ran.said.lines().map(str::trim);
            let kept: Vec<&str> =
                told.filter(|line| ["nsze", "nuse", "fpi"].iter().any(|word| line.starts_with(word))).collect();
            Ok(kept.join("; "))
        };
        let (status_before, started_at) = (status().await?, clock.now());
        // Once more: the drives before it took their time.
        self.is_unused(name)?;
        let ran = run(tool, &["format", &device, setting, "--force"]).await?;
        let finished_at = clock.now();
        ran.succeeded(name)?;
        let folder = self.machine.join("sys/block").join(name);
        Ok(WipeEvidence {
            device: name.to_owned(),
            model: text(&folder.join("device/model")),
            serial: text(&folder.join("device/serial")),
            bytes: number(&folder.join("size")).map(|sectors| sectors * 512),
            method: method.to_string(),
            tool: tool.display().to_string(),
            tool_version: version.to_owned(),
            exit_code: ran.code,
            status_before,
            status_after: status().await?,
            started_at,
            finished_at,
        })
    }

    fn nvme_names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.machine.join("sys/block")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("nvme") && !is_hidden(&self.machine, name)).collect()
    }

    /// One that is in use is not what was meant.
    fn is_unused(&self, name: &str) -> Result<(), HandError> {
        match in_use(&self.machine, name) {
            Ok(None) => Ok(()),
            Ok(Some(how)) => Err(HandError::failed(format!("{name} is {how}"))),
            Err(error) => Err(HandError::failed(format!("whether {name} is in use cannot be told: {error}"))),
        }
    }

    /// A process of its own takes all free memory, overwrites it and ends: the agent itself stays small.
    async fn memory(&self, scrub: &RamScrub, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        let status = || {
            let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
            let told: Vec<&str> = text.lines().filter(|line| line.starts_with("Mem")).collect();
            told.join("; ")
        };
        let (status_before, started_at) = (status(), clock.now());
        let ran = run(&self.agent, &["scrub-memory", "--reserve-mib", &scrub.reserve_mib.to_string()]).await?;
        ran.succeeded("memory")?;
        let evidence = WipeEvidence {
            device: "memory".to_owned(),
            model: String::new(),
            serial: String::new(),
            bytes: Some(ran.said.trim().parse().map_err(|_| HandError::failed("it does not say how much"))?),
            method: "overwrite".to_owned(),
            tool: "lattice-agent scrub-memory".to_owned(),
            tool_version: VERSION.to_owned(),
            exit_code: ran.code,
            status_before,
            status_after: status(),
            started_at,
            finished_at: clock.now(),
        };
        Ok(WipeOutput { inventory: BTreeSet::from(["memory".to_owned()]), evidence: vec![evidence] })
    }
}

impl Ran {
    fn succeeded(&self, device: &str) -> Result<(), HandError> {
        match self.code {
            0 => Ok(()),
            code => Err(HandError::failed(format!("{device}: the tool ended with {code}: {}", self.said))),
        }
    }
}

/// Runs a program to its end, without a shell and without an environment.
async fn run(program: &Path, arguments: &[&str]) -> Result<Ran, HandError> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    let output =
        command.output().await.map_err(|error| HandError::failed(format!("{}: {error}", program.display())))?;
    let said = if output.status.success() { &output.stdout } else { &output.stderr };
    let said = String::from_utf8_lossy(said).trim().chars().take(KEPT * 8).collect();
    Ok(Ran { code: output.status.code().unwrap_or(-1), said })
}

/// How a disk is used: mounted, swapped to, part of an array or a pool, or held by a program; none: it is not.
///
/// # Errors
/// Its device cannot be opened, and nothing else shows that it is in use: then it is not known.
pub fn in_use(machine: &Path, name: &str) -> io::Result<Option<String>> {
    let of_it = |device: &str| device.strip_prefix("/dev/").is_some_and(|device| device.starts_with(name));
    let mounts = fs::read_to_string(machine.join("proc/self/mountinfo")).unwrap_or_default();
    let sources = mounts.lines().filter_map(|line| line.split_once(" - ")?.1.split(' ').nth(1));
    let swaps = fs::read_to_string(machine.join("proc/swaps")).unwrap_or_default();
    let swapped = swaps.lines().filter_map(|line| line.split_ascii_whitespace().next());
    if let Some(used) = sources.chain(swapped).find(|device| of_it(device)) {
        return Ok(Some(format!("in use: {used} is mounted or swapped to")));
    }
    let folder = machine.join("sys/block").join(name);
    let inside = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_part = |path: &PathBuf| path.file_name().is_some_and(|part| part.to_string_lossy().starts_with(name));
    match inside.filter(is_part).chain([folder.clone()]).find_map(|part| holder(&part)) {
        Some(by) => Ok(Some(format!("in use by {by}"))),
        None => held(&machine.join("dev").join(name)),
    }
}

/// The kernel's own answer: nobody opens a device alone of which another one has a part. Pools of ZFS, further members of
/// btrfs and programs that use it raw are shown nowhere else.
///
/// Who is told that it is held looks again: another look of this agent, and a process that it starts meanwhile and which
/// has a copy of what is open until its program begins, hold it too, for a moment.
fn held(device: &Path) -> io::Result<Option<String>> {
    let alone = OFlag::O_EXCL | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    for look in 1.. {
        match OpenOptions::new().read(true).custom_flags(alone.bits()).open(device) {
            Ok(_) => break,
            Err(error) if error.kind() != io::ErrorKind::ResourceBusy => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", device.display())));
            }
            Err(_) if look == LOOKS => return Ok(Some("in use: something on this host holds it".to_owned())),
            Err(_) => thread::sleep(BETWEEN_LOOKS),
        }
    }
    Ok(None)
}

/// Whether the kernel keeps a block device to itself: one path of several to the same drive, without a device of its own.
pub fn is_hidden(machine: &Path, name: &str) -> bool {
    text(&machine.join("sys/block").join(name).join("hidden")) == "1"
}

fn holder(folder: &Path) -> Option<String> {
    let holder = fs::read_dir(folder.join("holders")).into_iter().flatten().flatten().next()?;
    Some(holder.file_name().to_string_lossy().into_owned())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().chars().take(KEPT).collect()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
