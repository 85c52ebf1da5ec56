//! GPUs on the PCI bus, from /sys alone: they are found with or without a driver.

use std::fs;
use std::path::{Path, PathBuf};

use lattice_core::node::row::GpuFact;

/// PCI classes that a GPU can have: VGA, 3D, other display, and processing accelerator (AMD Instinct).
const CLASSES: [&str; 4] = ["0x0300", "0x0302", "0x0380", "0x1200"];
const VENDORS: [(&str, &str); 2] = [("0x10de", "nvidia"), ("0x1002", "amd")];

/// Device ids of data-centre GPUs, for hosts whose driver does not tell. Source: pci.ids.
const MODELS: [(&str, &str, &str); 12] = [
    ("nvidia", "0x20b0", "A100-SXM4-40GB"),
    ("nvidia", "0x20b2", "A100-SXM4-80GB"),
    ("nvidia", "0x20b5", "A100-PCIE-80GB"),
    ("nvidia", "0x20f1", "A100-PCIE-40GB"),
    ("nvidia", "0x2330", "H100-SXM5-80GB"),
    ("nvidia", "0x2331", "H100-PCIE-80GB"),
    ("nvidia", "0x2335", "H200-SXM-141GB"),
    ("amd", "0x7408", "MI250X"),
    ("amd", "0x740c", "MI250X"),
    ("amd", "0x740f", "MI210"),
    ("amd", "0x74a1", "MI300X"),
    ("amd", "0x74a5", "MI325X"),
];

/// One GPU and where /sys keeps it.
pub(super) struct PciGpu {
    pub(super) fact: GpuFact,
    pub(super) folder: PathBuf,
}

/// The GPUs on the bus below `root`, in the order of their addresses.
pub(super) fn gpus(root: &Path) -> Vec<PciGpu> {
    let Ok(devices) = fs::read_dir(root.join("sys/bus/pci/devices")) else { return Vec::new() };
    let mut gpus: Vec<_> = devices.flatten().filter_map(|device| gpu(root, device.path())).collect();
    gpus.sort_by(|a, b| a.fact.address.cmp(&b.fact.address));
    gpus
}

fn gpu(root: &Path, folder: PathBuf) -> Option<PciGpu> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).map(|text| text.trim().to_owned());
    let class = read("class").ok()?;
    if !CLASSES.iter().any(|known| class.starts_with(known)) {
        return None;
    }
    let vendor_id = read("vendor").ok()?;
    let (_, vendor) = VENDORS.iter().find(|(id, _)| *id == vendor_id)?;
    let device_id = read("device").ok()?;
    let address = folder.file_name()?.to_str()?.to_owned();
    let known =
        MODELS.iter().find(|(of, id, _)| of == vendor && *id == device_id).map(|(_, _, name)| (*name).to_owned());
    let model = driver_model(root, &address).or(known).unwrap_or(device_id);
    Some(PciGpu { fact: GpuFact { address, vendor: (*vendor).to_owned(), model }, folder })
}

/// What the NVIDIA driver calls it.
fn driver_model(root: &Path, address: &str) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/driver/nvidia/gpus").join(address).join("information")).ok()?;
    let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim();
    (!model.is_empty()).then(|| model.to_owned())
}
