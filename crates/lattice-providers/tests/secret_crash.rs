//! No acknowledged secret is lost at a kill -9, and the file is readable at once afterwards.
//!
//! The writer runs in a child process: this same program, told by its environment what to do.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use lattice_core::secret::Secret;
use lattice_providers::secret::file::FileSecretStore;
use lattice_providers::secret::{SecretObject, SecretPath, SecretStore};

const PLACE: &str = "LATTICE_SECRET_CRASH_PLACE";
const ROUNDS: u64 = 10;
const WRITERS: u64 = 16;

/// What each writer was last told: the number that its secret holds, or none when it was removed.
type Acknowledged = HashMap<u64, Option<u64>>;

fn path(writer: u64) -> SecretPath {
    format!("jobs/{writer}/bootstrap").parse().unwrap()
}

fn object(number: u64) -> SecretObject {
    // Long enough that a frame spans pages.
    [("token".to_owned(), Secret::new(format!("{number} {}", "x".repeat(700))))].into()
}

fn open(place: &Path) -> FileSecretStore {
    FileSecretStore::open(place, &place.join("secrets.key")).unwrap()
}

#[tokio::test]
async fn every_acknowledged_secret_survives_kill_9() {
    let place = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        let mut acknowledged = Acknowledged::new();
        kill_after(200 + 97 * round, place.path(), round * 1_000_000, &mut acknowledged);
        assert!(!acknowledged.is_empty(), "round {round}");
        let store = open(place.path());
        for (writer, told) in &acknowledged {
            let found = store.read(&path(*writer)).await.ok();
            let found = found.map(|object| object["token"].expose().split(' ').next().unwrap().parse::<u64>().unwrap());
            // Each writer goes from n to removed to n + 1; it was at most one step further than it could say.
            let next = match told {
                Some(_) => found.is_none(),
                None => found.is_some(),
            };
            assert!(found == *told || next, "round {round}, writer {writer}: told {told:?}, found {found:?}");
            if let (Some(told), Some(found)) = (told, found) {
                assert_eq!(*told, found, "round {round}, writer {writer}");
            }
        }
    }
}

fn kill_after(enough: u64, place: &Path, first: u64, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_writes_until_it_is_killed", "--nocapture"])
        .env(PLACE, format!("{first} {}", place.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).filter_map(told);
    acknowledged.extend(told.by_ref().take(enough as usize));
    child.kill().unwrap();
    // What it said before it died counts too; only a line that was cut off does not.
    acknowledged.extend(told);
    child.wait().unwrap();
}

/// What a whole line of the writer acknowledges; nothing for any other line.
fn told(line: String) -> Option<(u64, Option<u64>)> {
    let (writer, number) = line.strip_prefix("ack ")?.strip_suffix('.')?.split_once(' ')?;
    Some((writer.parse().unwrap(), number.parse().ok()))
}

#[test]
fn a_child_writes_until_it_is_killed() {
    let Ok(told) = std::env::var(PLACE) else { return };
    let (first, place) = told.split_once(' ').unwrap();
    let (first, place) = (first.parse::<u64>().unwrap(), Path::new(place));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(open(place));
        let writers = (0..WRITERS).map(|writer| tokio::spawn(write(Arc::clone(&store), writer, first)));
        for writer in writers.collect::<Vec<_>>() {
            // They end with the process.
            writer.await.unwrap();
        }
    });
}

async fn write(store: Arc<FileSecretStore>, writer: u64, first: u64) {
    for number in first.. {
        store.write(&path(writer), object(number)).await.unwrap();
        say(writer, &number.to_string());
        store.delete(&path(writer)).await.unwrap();
        say(writer, "gone");
    }
}

fn say(writer: u64, what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ack {writer} {what}.").unwrap();
    out.flush().unwrap();
}
