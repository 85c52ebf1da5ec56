//! The real machine, from /proc and /sys alone: no external tools, nothing to install.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_api::agent::HealthSummary;
use lattice_core::node::HostFacts;
use lattice_core::node::row::{DiskFact, NicFact};
use tracing::warn;

use super::Host;
use super::pci::{self, PciGpu};
use super::reading::Reading;
use super::wipe::{in_use, is_hidden};
use super::workplace::{LinuxHands, Workplace};
use crate::hands::Hands;

/// A driver that hangs must not hang the heartbeat.
const SENSOR_TIMEOUT: Duration = Duration::from_secs(5);
/// `/sys/class/net/*/type` of Ethernet and InfiniBand.
const NIC_TYPES: [&str; 2] = ["1", "32"];
/// Block devices that are no disks.
const NO_DISKS: [&str; 7] = ["loop", "ram", "zram", "dm-", "md", "sr", "nbd"];
const SECTOR_BYTES: u64 = 512;

/// The machine whose file system is mounted at `root`.
#[derive(Debug, Clone)]
pub struct LinuxHost {
    root: PathBuf,
    workplace: Workplace,
    patience: Duration,
    facts: Arc<Reading<HostFacts>>,
    health: Arc<Reading<HealthSummary>>,
    /// What was read last.
    known: Arc<Mutex<Option<HostFacts>>>,
}

impl LinuxHost {
    /// The machine that this process runs on.
    pub fn new() -> Self {
        Self::at("/")
    }

    /// The machine whose /proc, /sys and /etc are below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            workplace: Workplace::default(),
            patience: SENSOR_TIMEOUT,
            facts: Arc::default(),
            health: Arc::default(),
            known: Arc::default(),
        }
    }

    /// The same machine, with its workloads elsewhere.
    #[must_use]
    pub fn working_at(self, workplace: Workplace) -> Self {
        Self { workplace, ..self }
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    fn read_facts(&self) -> HostFacts {
        HostFacts {
            gpus: pci::gpus(&self.root).into_iter().map(|gpu| gpu.fact).collect(),
            nics: self.nics(),
            disks: self.disks(),
            memory_mib: self.memory_mib(),
            cpus: self.cpus(),
            kernel: self.read("proc/sys/kernel/osrelease").unwrap_or_default(),
            os: self.os(),
        }
    }

    fn read_health(&self) -> HealthSummary {
        let gpus = pci::gpus(&self.root);
        HealthSummary {
            gpu_count: gpus.len() as u32,
            max_temperature_c: gpus.iter().filter_map(temperature_c).max(),
            ecc_uncorrected: self.memory_errors() + gpus.iter().map(gpu_memory_errors).sum::<u64>(),
            minor_issue: None,
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<HostFacts>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory_mib(&self) -> u64 {
        let text = self.read("proc/meminfo").unwrap_or_default();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) / 1024
    }

    /// `0-63,128-191` names 128 processors.
    fn cpus(&self) -> u32 {
        let online = self.read("sys/devices/system/cpu/online").unwrap_or_default();
        let count = |range: &str| -> Option<u32> {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(last.parse::<u32>().ok()?.checked_sub(first.parse::<u32>().ok()?)? + 1)
        };
        online.split(',').filter_map(count).sum()
    }

    fn os(&self) -> String {
        let text = self.read("etc/os-release").unwrap_or_default();
        let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        name.map(|name| name.trim_matches('"').to_owned()).unwrap_or_default()
    }

    /// Interfaces with a device below them; in a container, where none has one, those that are there.
    fn nics(&self) -> Vec<NicFact> {
        let mut folders = entries(&self.root.join("sys/class/net"));
        folders.retain(|folder| {
            let kind = fs::read_to_string(folder.join("type")).unwrap_or_default();
            name(folder) != "lo" && NIC_TYPES.contains(&kind.trim())
        });
        if folders.iter().any(|folder| folder.join("device").exists()) {
            folders.retain(|folder| folder.join("device").exists());
        }
        folders.iter().map(|folder| nic(folder)).collect()
    }

    fn disks(&self) -> Vec<DiskFact> {
        let mut folders = entries(&self.root.join("sys/block"));
        folders.retain(|folder| {
            let removable = fs::read_to_string(folder.join("removable")).is_ok_and(|text| text.trim() == "1");
            !removable
                && !is_hidden(&self.root, name(folder))
                && !NO_DISKS.iter().any(|prefix| name(folder).starts_with(prefix))
        });
        // Where it cannot be told, a wipe looks again and is refused.
        let in_use = |name: &str| in_use(&self.root, name).is_ok_and(|how| how.is_some());
        let disks = folders.iter().filter_map(|folder| disk(folder));
        disks.map(|disk| DiskFact { in_use: in_use(&disk.name), ..disk }).collect()
    }

    fn memory_errors(&self) -> u64 {
        let controllers = entries(&self.root.join("sys/devices/system/edac/mc"));
        controllers.iter().filter_map(|controller| number(&controller.join("ue_count"))).sum()
    }
}

impl Default for LinuxHost {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Host for LinuxHost {
    async fn boot_id(&self) -> io::Result<String> {
        let text = fs::read_to_string(self.root.join("proc/sys/kernel/random/boot_id"))?;
        Ok(text.trim().to_owned())
    }

    /// While the machine hangs, what was read last; [`Host::health`] says so. The first time it is waited for: a machine
    /// that says nothing is not one that has nothing.
    async fn facts(&self) -> HostFacts {
        loop {
            let host = self.clone();
            if let Some(facts) = self.facts.within(self.patience, move || host.read_facts()).await {
                self.known().replace(facts.clone());
                return facts;
            }
            if let Some(facts) = self.known().clone() {
                return facts;
            }
            warn!("the hardware cannot be read yet");
            tokio::time::sleep(self.patience).await;
        }
    }

    async fn health(&self) -> HealthSummary {
        let host = self.clone();
        let late = || Some(format!("sensors did not answer within {} s", self.patience.as_secs()));
        match self.health.within(self.patience, move || host.read_health()).await {
            Some(health) if self.facts.is_late() => HealthSummary { minor_issue: late(), ..health },
            Some(health) => health,
            None => HealthSummary { minor_issue: late(), ..HealthSummary::default() },
        }
    }

    fn hands(&self) -> Arc<dyn Hands> {
        Arc::new(LinuxHands::new(self.root.clone(), &self.workplace))
    }
}

fn nic(folder: &Path) -> NicFact {
    let read = |file: &str| fs::read_to_string(folder.join(file)).map(|text| text.trim().to_owned());
    // Only RDMA-capable adapters show their firmware in /sys; others need an ioctl, which needs unsafe code.
    let adapters = entries(&folder.join("device/infiniband"));
    let firmware = adapters.iter().find_map(|adapter| fs::read_to_string(adapter.join("fw_ver")).ok());
    NicFact {
        name: name(folder).to_owned(),
        mac: read("address").unwrap_or_default(),
        firmware: firmware.map(|text| text.trim().to_owned()).unwrap_or_default(),
        // -1 or an error while the link is down.
        speed_mbps: read("speed").ok().and_then(|text| text.parse().ok()).unwrap_or(0),
    }
}

fn disk(folder: &Path) -> Option<DiskFact> {
    let size_bytes = number(&folder.join("size"))? * SECTOR_BYTES;
    let model = fs::read_to_string(folder.join("device/model")).unwrap_or_default();
    (size_bytes > 0).then(|| DiskFact {
        name: name(folder).to_owned(),
        model: model.trim().to_owned(),
        size_bytes,
        in_use: false,
    })
}

fn temperature_c(gpu: &PciGpu) -> Option<i16> {
    let sensors = entries(&gpu.folder.join("hwmon"));
    let millis = sensors.iter().filter_map(|sensor| number(&sensor.join("temp1_input"))).max()?;
    i16::try_from(millis / 1000).ok()
}

/// amdgpu counts in `ras/umc_err_count`: `ue: 0`, `ce: 0`.
fn gpu_memory_errors(gpu: &PciGpu) -> u64 {
    let text = fs::read_to_string(gpu.folder.join("ras/umc_err_count")).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("ue:")?.trim().parse::<u64>().ok()).sum()
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with two MI300X, one of them with a sensor, a BMC's VGA, an mlx5 and a bridge, two disks and a loop.
    fn machine() -> (tempfile::TempDir, LinuxHost) {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("proc/sys/kernel/random/boot_id", "b00t\n"),
            ("proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
            ("proc/meminfo", "MemTotal:       2113929216 kB\nMemFree: 1 kB\n"),
            ("etc/os-release", "NAME=x\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n"),
            ("sys/devices/system/cpu/online", "0-63,128-191\n"),
            ("sys/devices/system/edac/mc/mc0/ue_count", "0\n"),
            ("sys/devices/system/edac/mc/mc1/ue_count", "2\n"),
            ("sys/bus/pci/devices/0000:26:00.0/class", "0x120000\n"),
            ("sys/bus/pci/devices/0000:26:00.0/vendor", "0x1002\n"),
            ("sys/bus/pci/devices/0000:26:00.0/device", "0x74a1\n"),
            ("sys/bus/pci/devices/0000:26:00.0/hwmon/hwmon3/temp1_input", "61000\n"),
            ("sys/bus/pci/devices/0000:26:00.0/ras/umc_err_count", "ue: 1\nce: 7\n"),
            ("sys/bus/pci/devices/0000:05:00.0/class", "0x038000\n"),
            ("sys/bus/pci/devices/0000:05:00.0/vendor", "0x1002\n"),
            ("sys/bus/pci/devices/0000:05:00.0/device", "0xffff\n"),
            ("sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:02:00.0/vendor", "0x1a03\n"),
            ("sys/bus/pci/devices/0000:02:00.0/device", "0x2000\n"),
            ("sys/class/net/lo/type", "772\n"),
            ("sys/class/net/br0/type", "1\n"),
            ("sys/class/net/ens1/type", "1\n"),
            ("sys/class/net/ens1/address", "b8:3f:d2:00:00:01\n"),
            ("sys/class/net/ens1/speed", "400000\n"),
            ("sys/class/net/ens1/device/infiniband/mlx5_0/fw_ver", "28.39.1002\n"),
            ("sys/block/nvme0n1/size", "15002931888\n"),
            ("sys/block/nvme0n1/device/model", "INTEL SSDPF2KX076   \n"),
            ("sys/block/nvme0c1n1/size", "15002931888\n"),
            ("sys/block/nvme0c1n1/hidden", "1\n"),
            ("sys/block/sda/size", "1000\n"),
            ("sys/block/sda/removable", "1\n"),
            ("sys/block/loop0/size", "8\n"),
        ];
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = LinuxHost::at(root.path());
        (root, host)
    }

    #[tokio::test]
    async fn facts_are_read_from_proc_and_sys() {
        let (_root, host) = machine();
        let facts = host.facts().await;
        let gpus: Vec<_> = facts.gpus.iter().map(|gpu| (gpu.address.as_str(), gpu.model.as_str())).collect();
        assert_eq!(gpus, [("0000:05:00.0", "0xffff"), ("0000:26:00.0", "MI300X")], "the BMC's VGA is no GPU");
        let nic = NicFact {
            name: "ens1".into(),
            mac: "b8:3f:d2:00:00:01".into(),
            firmware: "28.39.1002".into(),
            speed_mbps: 400_000,
        };
        assert_eq!(facts.nics, [nic], "the bridge has no device");
        assert_eq!(facts.disks.len(), 1, "neither a second path to it nor what can be pulled out");
        assert_eq!(
            (facts.disks[0].model.as_str(), facts.disks[0].size_bytes),
            ("INTEL SSDPF2KX076", 7_681_501_126_656)
        );
        assert_eq!((facts.memory_mib, facts.cpus), (2_064_384, 128));
        assert_eq!((facts.kernel.as_str(), facts.os.as_str()), ("6.8.0-45-generic", "Ubuntu 24.04 LTS"));
        assert_eq!(host.boot_id().await.unwrap(), "b00t");
    }

    #[tokio::test]
    async fn health_adds_up_errors_and_takes_the_hottest_gpu() {
        let (_root, host) = machine();
        let health = host.health().await;
        assert_eq!((health.gpu_count, health.max_temperature_c, health.ecc_uncorrected), (2, Some(61), 3));
    }

    /// Reading a FIFO to which nobody writes hangs.
    #[tokio::test]
    async fn a_machine_that_hangs_has_what_it_had_and_says_so() {
        let (root, host) = machine();
        let host = LinuxHost { patience: Duration::from_secs(20), ..host };
        // Of the same machine, with the same readings: it is asked where there is nothing to wait for.
        let hasty = LinuxHost { patience: Duration::from_millis(20), ..host.clone() };
        let before = host.facts().await;
        let (meminfo, count) =
            (root.path().join("proc/meminfo"), root.path().join("sys/devices/system/edac/mc/mc0/ue_count"));
        for path in [&meminfo, &count] {
            fs::remove_file(path).unwrap();
        }
        nix::unistd::mkfifo(&meminfo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(hasty.facts().await, before);
        let health = host.health().await;
        assert_eq!((health.gpu_count, health.minor_issue.is_some()), (2, true), "{health:?}");
        nix::unistd::mkfifo(&count, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let health = hasty.health().await;
        assert_eq!((health.gpu_count, health.minor_issue.is_some()), (0, true), "{health:?}");
        for path in [&meminfo, &count] {
            drop(fs::OpenOptions::new().write(true).open(path).unwrap());
            fs::remove_file(path).unwrap();
        }
        while host.facts.is_late() || host.health.is_late() {
            tokio::task::yield_now().await;
        }
        assert_eq!(host.facts().await.memory_mib, 0, "read anew");
        assert_eq!(host.health().await.minor_issue, None);
    }

    #[tokio::test]
    async fn a_machine_that_shows_nothing_has_nothing() {
        let root = tempfile::tempdir().unwrap();
        let host = LinuxHost::at(root.path());
        assert_eq!(host.facts().await, HostFacts::default());
        assert_eq!(host.health().await, HealthSummary::default());
        assert!(host.boot_id().await.is_err());
    }
}
