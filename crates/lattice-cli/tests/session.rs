//! The terminal sessions of the guides: each command is run again against a `lattice dev`, and must say the same.
//!
//! A block that begins with ```console is a session. Ids, times, spans and widths of columns differ from run to run: they
//! stand there as `<id-1>`, `<time>`, `<span>`, keys and boots as `<key>`, `<boot>`, and with two spaces between columns.
//! An id that was printed may stand in a later command. `LATTICE_SESSION_UPDATE=1` writes what was said into the guide.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/a-bad-day.md");

/// A `lattice dev` with a few machines that have no mishaps, ended with the value.
struct Dev {
    child: Child,
    folder: tempfile::TempDir,
}

impl Dev {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lattice"))
            .args([
                "dev",
                "--nodes",
                "4",
                "--mishaps",
                "none",
                "--listen",
                "127.0.0.1:0",
                "--agent-listen",
                "127.0.0.1:0",
            ])
            .env("XDG_RUNTIME_DIR", folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        loop {
            let Some(Ok(line)) = lines.next() else { panic!("lattice dev ended: {said:#?}") };
            let all = line.starts_with("All are active");
            said.push(line);
            if all {
                break;
            }
        }
        // Whoever does not read any more must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, folder }
    }

    fn run(&self, command: &str) -> Output {
        let words = words(command);
        let program = match words.first().map(String::as_str) {
            Some("lattice") => env!("CARGO_BIN_EXE_lattice"),
            // A person tampers with a file.
            Some("sed") => "/usr/bin/sed",
            Some(_) | None => panic!("a session has no `{command}`"),
        };
        Command::new(program)
            .args(&words[1..])
            .env_clear()
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// Words of a command line; single and double quotes hold some together.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut begun) = (String::new(), None, false);
    for c in command.chars() {
        match (c, quote) {
            ('\'' | '"', None) => (quote, begun) = (Some(c), true),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) if begun => {
                words.push(std::mem::take(&mut word));
                begun = false;
            }
            (' ', None) => {}
            (c, _) => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// Ids in the order in which they were seen.
#[derive(Default)]
struct Ids(Vec<String>);

impl Ids {
    /// The text without what differs from run to run.
    fn hide(&mut self, text: &str) -> String {
        let mut told = String::new();
        for line in text.lines() {
            let mut cells: Vec<String> = Vec::new();
            for word in line.split(' ') {
                cells.push(self.word(word));
            }
            told.push_str(&columns(&spans(&cells.join(" "))));
            told.push('\n');
        }
        told
    }

    fn word(&mut self, word: &str) -> String {
        let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_id(core) {
            let at = self.0.iter().position(|known| known == core).unwrap_or_else(|| {
                self.0.push(core.to_owned());
                self.0.len() - 1
            });
            return word.replace(core, &format!("<id-{}>", at + 1));
        }
        if core.len() == 16 && core.chars().all(|c| c.is_ascii_hexdigit()) {
            return word.replace(core, "<key>");
        }
        if is_boot(core) {
            return word.replace(core, "<boot>");
        }
        if core.len() >= 20 && core.starts_with("20") && core.as_bytes().get(10) == Some(&b'T') {
            return word.replace(core, "<time>");
        }
        word.to_owned()
    }

    /// The command with the ids that its names stand for.
    fn show(&self, command: &str) -> String {
        let mut command = command.to_owned();
        for (at, id) in self.0.iter().enumerate() {
            command = command.replace(&format!("<id-{}>", at + 1), id);
        }
        command
    }
}

/// Five groups of hexadecimal digits.
fn is_id(word: &str) -> bool {
    let groups: Vec<usize> = word.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && word.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// A boot of a simulated machine: its name in its region, then two numbers.
fn is_boot(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    matches!(parts.as_slice(), [name, life, boot] if name.len() == 6 && is_number(life) && is_number(boot))
}

/// `12.3 s`, `4 min 2 s`, `1 h 0 min` become `<span>`: numbers before units, as many as follow each other.
fn spans(line: &str) -> String {
    const UNITS: [&str; 5] = ["ms", "s", "min", "h", "d"];
    let words: Vec<&str> = line.split(' ').collect();
    let mut told: Vec<String> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let number = words[at].trim_start_matches(['(', '[']);
        let unit = words.get(at + 1).map(|unit| unit.trim_end_matches([',', ';', ':', '.', ')', ']']));
        let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
        if is_number && unit.is_some_and(|unit| UNITS.contains(&unit)) {
            let before = &words[at][..words[at].len() - number.len()];
            let after = &words[at + 1][unit.unwrap_or_default().len()..];
            let joins = told.last().is_some_and(|last| last == "<span>") && before.is_empty();
            if joins {
                told.pop();
            }
            told.push(format!("{before}<span>{after}"));
            at += 2;
        } else {
            told.push(words[at].to_owned());
            at += 1;
        }
    }
    told.join(" ")
}

/// Columns are as wide as their widest cell: two spaces stand for any number more.
fn columns(line: &str) -> String {
    let mut told = String::new();
    let mut spaces = 0;
    for c in line.trim_end().chars() {
        if c == ' ' {
            spaces += 1;
            continue;
        }
        told.push_str(&" ".repeat(if told.is_empty() { spaces } else { spaces.min(2) }));
        spaces = 0;
        told.push(c);
    }
    told
}

/// The guide with what its sessions say now.
fn played(guide: &str, dev: &Dev) -> String {
    let mut ids = Ids::default();
    let (mut told, mut within) = (String::new(), false);
    for line in guide.lines() {
        let fence = line.starts_with("```");
        within = if fence { line == "```console" } else { within };
        match line.strip_prefix("$ ").filter(|_| within) {
            Some(command) => {
                told.push_str(&format!("{line}\n"));
                let output = dev.run(&ids.show(command));
                let text =
                    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                told.push_str(&ids.hide(&text));
            }
            // What was said before is said anew.
            None if within && !fence => {}
            None => told.push_str(&format!("{line}\n")),
        }
    }
    told
}

#[test]
fn a_bad_day_goes_as_the_guide_tells_it() {
    let guide = std::fs::read_to_string(GUIDE).unwrap();
    let dev = Dev::start();
    let now = played(&guide, &dev);
    drop(dev);
    if std::env::var_os("LATTICE_SESSION_UPDATE").is_some() {
        std::fs::write(Path::new(GUIDE), &now).unwrap();
        return;
    }
    for (at, (then, now)) in guide.lines().zip(now.lines()).enumerate() {
        let lines: Vec<&str> = guide.lines().take(at).filter(|line| line.starts_with("$ ")).collect();
        assert_eq!(then, now, "line {} of {}, after {:?}", at + 1, PathBuf::from(GUIDE).display(), lines.last());
    }
    assert_eq!(guide.lines().count(), now.lines().count());
}

#[test]
fn what_differs_from_run_to_run_is_hidden_and_nothing_else() {
    let mut ids = Ids::default();
    let id = "01a1fd61-235b-7000-8000-00000000005a";
    assert_eq!(ids.hide(&format!("allocation {id}: runs for 4 min 2 s")), "allocation <id-1>: runs for <span>\n");
    assert_eq!(ids.hide(&format!("{id}   x    4 GPUs")), "<id-1>  x  4 GPUs\n");
    assert_eq!(ids.hide("until 2026-11-21T09:45:44.000Z, by ops"), "until <time>, by ops\n");
    assert_eq!(ids.show("lattice allocation release <id-1>"), format!("lattice allocation release {id}"));
    assert_eq!(ids.hide("key 9841f42644925a05, 4f00rh-1-10 -> 4f00rh-1-25"), "key <key>, <boot> -> <boot>\n");
    assert_eq!(ids.hide("c01u28 gives-it-up"), "c01u28 gives-it-up\n");
    assert_eq!(spans("down in 12.5 s unless"), "down in <span> unless");
    assert_eq!(words("a 'b c' \"d\" e"), ["a", "b c", "d", "e"]);
}
