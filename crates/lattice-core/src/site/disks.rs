//! Which disk a machine boots from. spec: S5 4.3 ConfigureStorage

/// A disk as a provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCandidate {
    /// The provider's id of it.
    pub id: String,
    /// Its name in the OS.
    pub name: String,
    /// Its model.
    pub model: String,
    /// Its path under `/dev/disk/by-id`.
    pub id_path: String,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// Words of which one stands in the model, name or path of a boot card. spec: S5 4.3 `boss|boot optimized|m.2`
pub const BOOT_CARD_WORDS: [&str; 3] = ["boss", "boot optimized", "m.2"];

/// The boot disk among `disks`: the one an operator named, else the first that looks like a boot card.
pub fn boot_disk<'a>(disks: &'a [DiskCandidate], decision: Option<&str>) -> Option<&'a DiskCandidate> {
    match decision {
        Some(wanted) => disks.iter().find(|disk| disk.name == wanted || disk.id == wanted),
        None => disks.iter().find(|disk| is_boot_card(disk)),
    }
}

fn is_boot_card(disk: &DiskCandidate) -> bool {
    let texts = [disk.model.to_lowercase(), disk.name.to_lowercase(), disk.id_path.to_lowercase().replace('_', " ")];
    // Paths under /dev/disk/by-id write spaces as underscores: both spellings count.
    texts.iter().any(|text| BOOT_CARD_WORDS.iter().any(|word| text.contains(word)))
}

/// The disks in a few words, for a person who has to choose one.
pub fn describe(disks: &[DiskCandidate]) -> String {
    if disks.is_empty() {
        return "no disks at all".to_owned();
    }
    let one = |disk: &DiskCandidate| format!("{} ({}, {} GB)", disk.name, disk.model, disk.size_bytes / 1_000_000_000);
    disks.iter().map(one).collect::<Vec<_>>().join(", ")
}
