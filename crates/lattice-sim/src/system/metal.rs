//! What a host is made of, whatever boots on it: its devices, and which of them still hold what work left there.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lattice_core::agent::task::{TaskInput, WipeOutput};
use lattice_core::node::{DiskFact, GpuFact, HostFacts};

use super::host::GPUS;
use super::luck::Luck;

/// Name of the main memory among devices.
const MEMORY: &str = "memory";

/// The devices of one host.
pub struct Metal {
    disks: Vec<DiskFact>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// GPUs that are gone from the bus, the last ones: nobody sees them, and what is in their memory stays there.
    lost_gpus: usize,
    /// Devices on which work may have left something.
    soiled: BTreeSet<String>,
    /// Boot in which one of them was erased last.
    erased_in: Option<String>,
    /// Another system than the one it was installed with.
    renewed: bool,
}

/// What is left of work on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// Devices that were not erased since something ran.
    pub soiled: BTreeSet<String>,
    /// It still runs as it did when it was erased.
    pub same_boot: bool,
}

impl Metal {
    /// Some hosts have no NVMe drive, and not every system runs from one.
    pub fn new(luck: &Luck) -> Self {
        let drives = luck.below(4);
        let from_nvme = luck.once_in(600);
        let nvme = |index| disk(format!("nvme{index}n1"), from_nvme && index == 0);
        let disks = (0..drives).map(nvme).chain([disk("sda".to_owned(), !(from_nvme && drives > 0))]).collect();
        Self { disks, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many GPUs are gone from the bus from now on.
    pub fn lose_gpus(&self, lost: u32) {
        self.inner().lost_gpus = lost as usize;
    }

    /// GPUs that can be seen.
    pub fn gpus(&self) -> u32 {
        GPUS - u32::try_from(self.inner().lost_gpus).unwrap_or(GPUS)
    }

    /// What can be seen of it.
    pub fn facts(&self) -> HostFacts {
        let gpus = (0..GPUS).map(gpu_address).take(self.gpus() as usize);
        let gpu = |address| GpuFact { address, vendor: "10de".to_owned(), model: "simulated".to_owned() };
        HostFacts {
            gpus: gpus.map(gpu).collect(),
            nics: Vec::new(),
            disks: self.disks.clone(),
            memory_mib: 1 << 20,
            cpus: 64,
            kernel: if self.inner().renewed { "6.13" } else { "6.12" }.to_owned(),
            os: "simulated".to_owned(),
        }
    }

    /// Another system is installed, or the first one again: it runs from the next boot on.
    pub fn renew(&self) {
        let mut inner = self.inner();
        inner.renewed = !inner.renewed;
    }

    /// Names of its drives, those that a BMC can erase.
    pub fn drives(&self) -> Vec<String> {
        self.disks.iter().map(|disk| disk.name.clone()).collect()
    }

    /// A drive was erased by other means than the host's; whether the system was on it. None: it has no such drive.
    pub fn erase(&self, drive: &str) -> Option<bool> {
        let disk = self.disks.iter().find(|disk| disk.name == drive)?;
        self.inner().soiled.remove(drive);
        Some(disk.in_use)
    }

    /// Something runs there: it may leave something anywhere.
    pub fn soil(&self) {
        let drives = self.disks.iter().map(|disk| disk.name.clone()).filter(|name| name.starts_with("nvme"));
        let all = (0..GPUS).map(gpu_address).chain(drives).chain([MEMORY.to_owned()]);
        self.inner().soiled.extend(all);
    }

    /// What is not on the bus is neither seen nor erased.
    pub fn hide_lost(&self, input: &TaskInput, output: &mut WipeOutput) {
        if matches!(input, TaskInput::GpuScrub(_)) {
            let seen: BTreeSet<String> = self.facts().gpus.into_iter().map(|gpu| gpu.address).collect();
            output.inventory.retain(|device| seen.contains(device));
            output.evidence.retain(|record| seen.contains(&record.device));
        }
    }

    /// Devices were erased, in that boot.
    pub fn erased(&self, output: &WipeOutput, boot: &str) {
        let mut inner = self.inner();
        for record in &output.evidence {
            inner.soiled.remove(&record.device);
        }
        inner.erased_in = Some(boot.to_owned());
    }

    /// What work left on it, as it runs now. The drive that the running system uses counts, unless it may be kept.
    pub fn left(&self, keeps_system_drive: bool, boot: Option<&str>) -> Left {
        let system = self.disks.iter().find(|disk| disk.in_use).map(|disk| disk.name.as_str());
        let inner = self.inner();
        let counts = |device: &&String| !(keeps_system_drive && Some(device.as_str()) == system);
        Left {
            soiled: inner.soiled.iter().filter(counts).cloned().collect(),
            same_boot: inner.erased_in.is_some() && inner.erased_in.as_deref() == boot,
        }
    }
}

fn gpu_address(index: u32) -> String {
    format!("0000:{index:02x}:00.0")
}

fn disk(name: String, in_use: bool) -> DiskFact {
    DiskFact { name, model: "simulated".to_owned(), size_bytes: 1 << 40, in_use }
}
