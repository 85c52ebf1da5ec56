//! The conformance fingerprint: two hosts that should behave alike have the same one.

use lattice_core::node::HostFacts;
use sha2::{Digest, Sha256};

/// SHA-256 over operating system, kernel and the models of GPUs, interfaces and disks, in hex.
///
/// Addresses, names and order do not count: they differ between equal machines. Nor does the speed of a link, which is none
/// while a switch restarts. The agent's version does not either: it is Lattice's own, is desired and reported by itself, and
/// an upgrade of agents makes no node another one.
pub fn fingerprint(facts: &HostFacts) -> String {
    let gpus = facts.gpus.iter().map(|gpu| format!("gpu {} {}", gpu.vendor, gpu.model));
    let nics = facts.nics.iter().map(|nic| format!("nic {}", nic.firmware));
    let disks = facts.disks.iter().map(|disk| format!("disk {} {}", disk.size_bytes, disk.model));
    let mut devices: Vec<String> = gpus.chain(nics).chain(disks).collect();
    devices.sort_unstable();
    let mut hash = Sha256::new();
    for line in [format!("os {}", facts.os), format!("kernel {}", facts.kernel)].iter().chain(&devices) {
        hash.update(line.as_bytes());
        hash.update(b"\n");
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use lattice_core::node::row::{DiskFact, GpuFact};

    use super::*;

    fn facts() -> HostFacts {
        let gpu = |address: &str| GpuFact { address: address.into(), vendor: "amd".into(), model: "MI300X".into() };
        let disk =
            |name: &str, model: &str| DiskFact { name: name.into(), model: model.into(), size_bytes: 1, in_use: false };
        HostFacts {
            gpus: vec![gpu("0000:05:00.0"), gpu("0000:26:00.0")],
            disks: vec![disk("nvme0n1", "A"), disk("nvme1n1", "B")],
            kernel: "6.8.0".into(),
            ..HostFacts::default()
        }
    }

    #[test]
    fn equal_machines_have_equal_fingerprints_and_any_difference_shows() {
        let base = fingerprint(&facts());
        let mut renamed = facts();
        renamed.disks.reverse();
        renamed.disks[0].name = "sda".into();
        renamed.gpus[0].address = "0000:99:00.0".into();
        assert_eq!(fingerprint(&renamed), base);
        let mut fewer = facts();
        fewer.gpus.pop();
        let kernel = HostFacts { kernel: "6.8.1".into(), ..facts() };
        let os = HostFacts { os: "Debian GNU/Linux 13 (trixie)".into(), ..facts() };
        for other in [fewer, kernel, os] {
            assert_ne!(fingerprint(&other), base);
        }
    }
}
