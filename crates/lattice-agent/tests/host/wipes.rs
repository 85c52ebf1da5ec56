//! Wipes with tools that only pretend: what they say is recorded, what they refuse is not a wipe.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use lattice_agent::{HandError, Hands, Host, LinuxHost, Workplace};
use lattice_core::agent::task::{EraseMethod, GpuScrub, NvmeErase, RamScrub, TaskErrorCode, TaskInput};

use crate::place::FixedClock;

/// A program that does what the file beside it says, which has its name and `.script`.
///
/// What a test writes is never run itself: a process that another test starts at that moment has a copy of the open file
/// until its program begins, and what somebody may write cannot be run.
const STUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host/stub.sh");

/// A machine with two NVMe drives and one GPU, and its tools.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        for (path, text) in [
            ("sys/block/nvme0n1/size", "1000\n"),
            ("sys/block/nvme1n1/size", "2000\n"),
            ("sys/block/nvme1n1/device/model", "INTEL X\n"),
            ("sys/block/nvme1n1/device/serial", "S1\n"),
            ("sys/block/nvme1c1n1/size", "2000\n"),
            ("sys/block/nvme1c1n1/hidden", "1\n"),
            ("dev/nvme0n1", ""),
            ("dev/nvme1n1", ""),
            ("sys/block/sda/size", "1\n"),
            ("sys/bus/pci/devices/0000:26:00.0/class", "0x120000\n"),
            ("sys/bus/pci/devices/0000:26:00.0/vendor", "0x1002\n"),
            ("sys/bus/pci/devices/0000:26:00.0/device", "0x74a1\n"),
            ("sys/bus/pci/devices/0000:26:00.0/mem_info_vram_used", "4096\n"),
            ("sys/bus/pci/devices/0000:26:00.0/mem_info_vram_total", "8192\n"),
            ("proc/self/mountinfo", "1 0 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n"),
        ] {
            machine.write(path, text);
        }
        machine
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A tool that is this script; what it is asked is in `asked`.
    fn tool(&self, name: &str, script: &str) {
        let asked = self.root.path().join("asked");
        let text = format!("echo \"$@\" >> {}\n{script}\n", asked.display());
        let tool = self.write(&format!("tools/{name}.script"), &text).with_extension("");
        // It stays where its script is replaced.
        if !tool.exists() {
            symlink(STUB, tool).unwrap();
        }
    }

    fn asked(&self) -> String {
        fs::read_to_string(self.root.path().join("asked")).unwrap_or_default()
    }

    fn hands(&self) -> Arc<dyn Hands> {
        let workplace = Workplace {
            tools: vec![self.root.path().join("tools")],
            agent: Path::new(env!("CARGO_BIN_EXE_lattice-agent")).to_owned(),
            ..Workplace::default()
        };
        LinuxHost::at(self.root.path()).working_at(workplace).hands()
    }
}

fn erase(devices: &[&str], keep: &[&str]) -> TaskInput {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    TaskInput::NvmeErase(NvmeErase { devices: named(devices), keep: named(keep), method: EraseMethod::Crypto })
}

const NVME: &str = r#"case "$1" in
  version) echo "nvme version 2.8 (git 2.8)" ;;
  id-ns) echo "nsze    : 0x800"; echo "nuse    : 0x0"; echo "other : 1" ;;
esac"#;

#[tokio::test]
async fn a_drive_is_erased_with_a_record_of_what_it_said() {
    let machine = Machine::new();
    machine.tool("nvme", NVME);
    let input = erase(&["nvme1n1"], &["nvme0n1"]);
    let wiped = machine.hands().wipe(&input, &FixedClock).await.unwrap();
    wiped.proves(&input).unwrap();
    let record = &wiped.evidence[0];
    assert_eq!((record.model.as_str(), record.serial.as_str(), record.bytes), ("INTEL X", "S1", Some(1_024_000)));
    assert_eq!(record.tool_version, "nvme version 2.8 (git 2.8)");
    assert_eq!(record.status_after, "nsze    : 0x800; nuse    : 0x0");
    assert!(machine.asked().contains("format /dev/nvme1n1 --ses=2 --force"), "{}", machine.asked());
    assert!(!machine.asked().contains("nvme0n1"), "what was not named is not touched");
}

#[tokio::test]
async fn a_drive_that_is_used_absent_or_refuses_is_not_erased() {
    let machine = Machine::new();
    machine.tool("nvme", NVME);
    let hands = machine.hands();
    let why = async |input: TaskInput| -> HandError { hands.wipe(&input, &FixedClock).await.unwrap_err() };
    assert!(why(erase(&["nvme0n1"], &[])).await.detail.contains("/dev/nvme0n1p1 is mounted"));
    assert!(why(erase(&["nvme9n1"], &[])).await.detail.contains("not there"));
    assert!(machine.asked().is_empty(), "nothing was tried");
    machine.write("sys/block/nvme1n1/nvme1n1p1/holders/md0", "");
    assert!(why(erase(&["nvme1n1"], &["nvme0n1"])).await.detail.contains("in use by md0"));
    fs::remove_dir_all(machine.root.path().join("sys/block/nvme1n1/nvme1n1p1")).unwrap();
    machine.tool("nvme", &NVME.replace("esac", "  format) echo 'Invalid Format' >&2; exit 2 ;;\nesac"));
    let refused = why(erase(&["nvme1n1"], &["nvme0n1"])).await;
    assert!(refused.detail.contains("ended with 2: Invalid Format"), "{refused}");
}

#[tokio::test]
async fn a_drive_that_something_holds_or_of_which_nothing_is_known_is_not_erased() {
    let machine = Machine::new();
    machine.tool("nvme", NVME);
    let (hands, input) = (machine.hands(), erase(&["nvme1n1"], &["nvme0n1"]));
    let device = machine.root.path().join("dev/nvme1n1");
    fs::remove_file(&device).unwrap();
    let unknown = hands.wipe(&input, &FixedClock).await.unwrap_err();
    assert!(unknown.detail.contains("cannot be told"), "{unknown}");
    assert!(!machine.asked().contains("format"), "{}", machine.asked());
    let Some(backed) = Loop::over(&machine.write("backing", &"0".repeat(1 << 20))) else {
        println!("skipped: a_drive_that_something_holds_or_of_which_nothing_is_known_is_not_erased (no loop device)");
        return;
    };
    symlink(&backed.0, &device).unwrap();
    let holder = Holder::of(&backed.0);
    let held = hands.wipe(&input, &FixedClock).await.unwrap_err();
    assert!(held.detail.contains("something on this host holds it"), "{held}");
    assert!(!machine.asked().contains("format"), "{}", machine.asked());
    drop(holder);
    hands.wipe(&input, &FixedClock).await.unwrap().proves(&input).unwrap();
}

/// A process of its own that holds a block device: what this one opens, the children of other tests have for a moment, too.
struct Holder(Child);

impl Holder {
    fn of(device: &str) -> Self {
        let holds =
            r#"use Fcntl; sysopen(my $held, $ARGV[0], O_RDONLY | O_EXCL) or die $!; $| = 1; print "held\n"; <STDIN>"#;
        let (quiet, said) = (Stdio::piped(), Stdio::piped());
        let mut child = Command::new("perl").args(["-e", holds, device]).stdin(quiet).stdout(said).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A block device over a file, for as long as it is kept.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        output.status.success().then(|| Self(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[tokio::test]
async fn a_tool_that_says_nothing_about_the_device_proves_nothing() {
    let machine = Machine::new();
    machine.tool("nvme", r#"[ "$1" = version ] && echo "nvme 1"; exit 0"#);
    let input = erase(&["nvme1n1"], &["nvme0n1"]);
    let wiped = machine.hands().wipe(&input, &FixedClock).await.unwrap();
    assert!(wiped.proves(&input).unwrap_err().to_string().contains("said of itself"));
}

#[tokio::test]
async fn gpus_are_reset_and_what_is_missing_is_said() {
    let machine = Machine::new();
    let scrub = TaskInput::GpuScrub(GpuScrub { gpus: 1 });
    assert_eq!(machine.hands().lacks(&scrub).as_deref(), Some("`amd-smi` is not installed on this host"));
    assert!(machine.hands().lacks(&erase(&["nvme1n1"], &[])).is_some());
    assert!(machine.hands().lacks(&erase(&[], &["nvme0n1"])).is_none(), "nothing is to be done with it");
    machine.tool("amd-smi", r#"[ "$1" = version ] && echo "AMDSMI Tool: 24.6"; exit 0"#);
    assert_eq!(machine.hands().lacks(&scrub), None);
    let wiped = machine.hands().wipe(&scrub, &FixedClock).await.unwrap();
    wiped.proves(&scrub).unwrap();
    assert!(machine.asked().contains("reset --gpureset --gpu 0000:26:00.0"), "{}", machine.asked());
    assert_eq!(wiped.evidence[0].status_before, "vram used 4096");
    let two = TaskInput::GpuScrub(GpuScrub { gpus: 2 });
    assert!(wiped.proves(&two).is_err(), "one has fallen off the bus");
    machine.tool("amd-smi", r#"[ "$1" = reset ] && { echo "GPU is busy" >&2; exit 1; }; echo 1"#);
    let failed = machine.hands().wipe(&scrub, &FixedClock).await.unwrap_err();
    assert_eq!(failed.code, TaskErrorCode::EffectFailed);
    assert!(failed.detail.contains("GPU is busy"));
}

#[tokio::test]
async fn free_memory_is_overwritten_by_a_process_of_its_own() {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let mib: u64 = available.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024;
    // All but a little is left alone: this machine has other things to do.
    let scrub = TaskInput::RamScrub(RamScrub { reserve_mib: mib.saturating_sub(128) });
    let machine = Machine::new();
    let wiped = machine.hands().wipe(&scrub, &FixedClock).await;
    match wiped {
        // Others took what was free meanwhile.
        Ok(wiped) if wiped.evidence[0].bytes == Some(0) => assert!(wiped.proves(&scrub).is_err()),
        wiped => wiped.unwrap().proves(&scrub).unwrap(),
    }
}
