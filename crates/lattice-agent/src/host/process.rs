//! Processes of the host, told apart by id **and** start time: ids are used again.

use std::fs;
use std::path::Path;

/// When the process that has `pid` started, in clock ticks since boot; none: it ended, or is only waiting to be reaped.
pub fn start_ticks(root: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(root.join(format!("proc/{pid}/stat"))).ok()?;
    // The name, in parentheses, may hold anything; field 22 counted from the start is the 20th after it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

/// Whether the process that had `pid` and started then still lives.
pub fn lives(root: &Path, pid: u32, ticks: u64) -> bool {
    pid != 0 && start_ticks(root, pid) == Some(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_pid() {
        let root = tempfile::tempdir().unwrap();
        for (pid, state) in [(42, "S"), (43, "Z")] {
            let folder = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&folder).unwrap();
            let stat = format!("{pid} (a) b) {state} 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0\n");
            fs::write(folder.join("stat"), stat).unwrap();
        }
        assert!(lives(root.path(), 42, 777));
        assert!(!lives(root.path(), 42, 778), "the pid was used again");
        assert!(!lives(root.path(), 43, 777), "a zombie has ended");
        assert!(!lives(root.path(), 44, 777));
        assert!(!lives(root.path(), 0, 777), "not started yet");
    }
}
