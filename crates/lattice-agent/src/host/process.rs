//! Processes of the host, told apart by id **and** start time: ids are used again.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;

/// What /proc says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It lives, and started then, in clock ticks since boot.
    Lives(u64),
    /// There is none with that id, or it is only waiting to be reaped.
    Gone,
    /// It could not be read: that proves nothing.
    Unknown,
}

/// What is known of the process that has `pid`.
pub fn seen(root: &Path, pid: u32) -> Seen {
    match fs::read(root.join(format!("proc/{pid}/stat"))) {
        // A program's name may be no text.
        Ok(stat) => of_stat(&String::from_utf8_lossy(&stat)),
        Err(error) => unread(&error),
    }
}

/// Whether the process that had `pid` and started then still lives, as far as is known: its end has to be proven.
pub fn lives(root: &Path, pid: u32, ticks: u64) -> bool {
    match seen(root, pid) {
        Seen::Lives(since) => pid != 0 && since == ticks,
        Seen::Gone => false,
        Seen::Unknown => pid != 0,
    }
}

fn of_stat(stat: &str) -> Seen {
    // The name, in parentheses, may hold anything; field 3 is the first after it.
    let Some((_, rest)) = stat.rsplit_once(')') else { return Seen::Unknown };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    let (Some(state), Some(threads), Some(ticks)) = (fields.first(), number(20), number(22)) else {
        return Seen::Unknown;
    };
    // A first thread that ended before the others is a zombie, too: the process lives until the last one ended.
    match ["Z", "X"].contains(state) && threads <= 1 {
        true => Seen::Gone,
        false => Seen::Lives(ticks),
    }
}

fn unread(error: &io::Error) -> Seen {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ESRCH) => Seen::Gone,
        Some(_) | None => Seen::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use super::*;

    fn stat(pid: u32, state: &str, threads: u32) -> String {
        format!("{pid} (a) b) {state} 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 777 0 0\n")
    }

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_pid() {
        let root = tempfile::tempdir().unwrap();
        for (pid, state, threads) in [(42, "S", 1), (43, "Z", 1), (45, "Z", 3), (46, "X", 0)] {
            let folder = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("stat"), stat(pid, state, threads)).unwrap();
        }
        assert!(lives(root.path(), 42, 777));
        assert!(!lives(root.path(), 42, 778), "the pid was used again");
        assert!(!lives(root.path(), 43, 777), "a zombie has ended");
        assert!(!lives(root.path(), 44, 777));
        assert!(lives(root.path(), 45, 777), "its first thread ended, others live");
        assert!(!lives(root.path(), 46, 777));
        assert!(!lives(root.path(), 0, 777), "not started yet");
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_dead() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        fs::create_dir_all(proc.join("47")).unwrap();
        fs::create_dir_all(proc.join("48/stat")).unwrap();
        fs::create_dir_all(proc.join("49")).unwrap();
        fs::write(proc.join("47/stat"), "47 (half a li").unwrap();
        symlink("stat", proc.join("49/stat")).unwrap();
        for pid in [47, 48, 49] {
            assert_eq!(seen(root.path(), pid), Seen::Unknown, "{pid}");
            assert!(lives(root.path(), pid, 777), "{pid}");
        }
        let errors = [(Errno::ENOENT, Seen::Gone), (Errno::ESRCH, Seen::Gone), (Errno::EMFILE, Seen::Unknown)];
        for (errno, expected) in errors {
            assert_eq!(unread(&io::Error::from(errno)), expected, "{errno}");
        }
        assert_eq!(unread(&io::Error::other("no number")), Seen::Unknown);
    }

    /// Ends its first thread, says so once the kernel shows it, and goes on in another one.
    const FIRST_THREAD_ENDS: &str = "
import ctypes, os, threading, time
def other():
    while open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': time.sleep(0.001)
    os.write(1, b'ready\\n'); time.sleep(1000)
threading.Thread(target=other).start()
ctypes.CDLL(None).pthread_exit(None)
";

    #[test]
    fn a_process_whose_first_thread_ended_lives_while_another_one_does() {
        let spawned = Command::new("python3").args(["-c", FIRST_THREAD_ENDS]).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = spawned else {
            println!("skipped: a_process_whose_first_thread_ended_lives_while_another_one_does (no python3)");
            return;
        };
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        let root = Path::new("/");
        let before = seen(root, child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(before, Seen::Lives(_)), "{before:?}");
        assert_eq!(seen(root, child.id()), Seen::Gone);
    }
}
