//! Nothing acknowledged is lost, nothing is half done: after kill -9, and after the loss of every unsynced write.
//!
//! `LATTICE_CRASH_ROUNDS` says how often (5 by default), `LATTICE_CRASH_SEED` repeats a failure. Writers run in child
//! processes: this same program, told by its environment what to do.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod disk;
mod fixture;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use disk::{Dice, Unsynced};
use fixture::{applied, at, commit, created, moved, node, site};
use lattice_core::change::Change;
use lattice_core::ids::{EventSeq, NodeId};
use lattice_core::node::{Availability, Node, Status};
use lattice_store::{EventFilter, PAGE_MAX, PageRequest, Store, StoreConfig, audit_verify};

const CHILD: &str = "LATTICE_CRASH_CHILD";
const ROUNDS: &str = "LATTICE_CRASH_ROUNDS";
const SEED: &str = "LATTICE_CRASH_SEED";

/// Last generation of each node that its writer was told is durable.
type Acknowledged = HashMap<NodeId, u64>;

/// What a check after a crash found wrong.
#[derive(Debug, Default, PartialEq, Eq)]
struct Damage {
    /// Acknowledged changes that are not there.
    lost: Vec<String>,
    /// Traces of half a commit.
    torn: Vec<String>,
}

fn rounds() -> u64 {
    std::env::var(ROUNDS).map_or(5, |rounds| rounds.parse().expect("a number of rounds"))
}

fn seed() -> u64 {
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().expect("a seed"),
        Err(_) => u64::from(std::process::id()),
    };
    println!("{SEED}={seed}");
    seed
}

#[tokio::test]
async fn every_acknowledged_commit_survives_kill_9_and_none_is_half_done() {
    let mut dice = Dice::new(seed());
    let mut directory = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::new();
    for round in 0..rounds() {
        // Each round reads everything that is there: a new database now and then keeps many rounds affordable.
        if round % 10 == 9 {
            directory = tempfile::tempdir().unwrap();
            acknowledged.clear();
        }
        let path = directory.path().join("lattice.db");
        let enough = 1 + dice.below(1_500);
        let before = acknowledged.len();
        kill_after(enough, &path, &mut acknowledged);
        assert!(acknowledged.len() > before, "round {round}: the writer acknowledged nothing");
        let store = Store::open(StoreConfig::sqlite(&path)).await.unwrap();
        assert_eq!(inspect(&store, &acknowledged).await, Damage::default(), "round {round}");
    }
    println!("{} rounds, {} nodes in the last database", rounds(), acknowledged.len());
}

/// Starts a writer, notes what it acknowledges, kills it in the middle of its work.
fn kill_after(enough: u64, path: &Path, acknowledged: &mut Acknowledged) {
    let mut child = child("kill", Stdio::piped()).env("LATTICE_CRASH_PATH", path).spawn().unwrap();
    let mut acks = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).filter_map(ack);
    // The test runner's own lines do not count: a writer that is killed has always acknowledged something.
    acknowledged.extend(acks.by_ref().take(enough as usize));
    child.kill().unwrap();
    // What it said before it died counts too; only a line that was cut off does not.
    acknowledged.extend(acks);
    child.wait().unwrap();
}

/// What a whole line of a writer acknowledges; nothing for any other line.
fn ack(line: String) -> Option<(NodeId, u64)> {
    let (id, generation) = line.strip_prefix("ack ")?.strip_suffix('.')?.split_once(' ')?;
    Some((id.parse().unwrap(), generation.parse().unwrap()))
}

fn child(what: &str, stdout: Stdio) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_child_does_what_its_environment_says", "--nocapture"]).env(CHILD, what).stdout(stdout);
    command
}

#[test]
fn a_child_does_what_its_environment_says() {
    match std::env::var(CHILD).as_deref() {
        Ok("kill") => write_until_killed(),
        Ok("dropped") => lose_power(Unsynced::Dropped, true),
        Ok("scattered") => lose_power(Unsynced::Scattered, true),
        Ok("without_sync") => lose_power(Unsynced::Dropped, false),
        Ok(other) => panic!("{CHILD}={other} is not known"),
        Err(_) => {}
    }
}

/// Writes from several tasks at once, so that commits are grouped, and says what is durable.
fn write_until_killed() {
    let path = std::env::var("LATTICE_CRASH_PATH").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = Store::open(StoreConfig::sqlite(path)).await.unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    loop {
                        let mut pair = Pair::new();
                        for _ in 0..4 {
                            pair.step(&store).await.expect("the disk is well");
                            let mut out = std::io::stdout().lock();
                            let generation = pair.generation();
                            for node in &pair.nodes {
                                writeln!(out, "ack {} {generation}.", node.id).unwrap();
                            }
                            out.flush().unwrap();
                        }
                    }
                })
            })
            .collect();
        // They end with the process.
        futures_util::future::join_all(tasks).await;
    });
}

#[test]
fn every_acknowledged_commit_survives_the_loss_of_unsynced_writes() {
    for what in ["dropped", "scattered"] {
        let (lost, torn) = power_cuts(what);
        assert_eq!((lost, torn), (0, 0), "{what}");
    }
}

/// The test above can fail: without `synchronous=FULL` the same disk loses what was acknowledged.
#[test]
fn without_full_sync_the_same_disk_is_seen_to_lose_commits() {
    let (lost, _) = power_cuts("without_sync");
    assert!(lost > 0, "the disk drops nothing, or the check sees nothing");
}

/// Runs power cuts in a process of their own, whose databases all live on the disk that forgets.
fn power_cuts(what: &str) -> (u64, u64) {
    let seed = seed().to_string();
    let output = child(what, Stdio::piped()).env(SEED, seed).stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix("damage ")?.split_once(' '));
    let (lost, torn) = found.unwrap_or_else(|| panic!("the child said:\n{text}"));
    (lost.parse().unwrap(), torn.parse().unwrap())
}

fn lose_power(unsynced: Unsynced, synchronous: bool) {
    let mut dice = Dice::new(seed());
    let (mut lost, mut torn) = (0, 0);
    for round in 0..rounds() * 4 {
        disk::install(dice.below(u64::MAX));
        let damage = one_disk(unsynced, synchronous, &mut dice);
        if damage != Damage::default() && synchronous {
            eprintln!("round {round}: {damage:?}");
        }
        lost += damage.lost.len();
        torn += damage.torn.len();
    }
    println!("damage {lost} {torn}");
}

/// A new disk, its power cut three times.
fn one_disk(unsynced: Unsynced, synchronous: bool, dice: &mut Dice) -> Damage {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lattice.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut acknowledged = Acknowledged::new();
    let mut damage = Damage::default();
    for _ in 0..3 {
        let result = runtime.block_on(async {
            let store = open(&path, synchronous).await?;
            disk::power_for(1 + dice.below(3_000));
            let mut pairs: Vec<Pair> = Vec::new();
            // Half of the cuts come while the store is being closed, in the middle of its last checkpoint.
            let steps = if dice.below(2) == 0 { u64::MAX } else { dice.below(200) };
            for _ in 0..steps {
                if pairs.len() < 40 {
                    pairs.push(Pair::new());
                }
                let chosen = dice.below(pairs.len() as u64) as usize;
                let pair = &mut pairs[chosen];
                if pair.step(&store).await.is_err() {
                    return Ok::<(), lattice_store::StoreError>(());
                }
                acknowledged.extend(pair.nodes.iter().map(|node| (node.id, pair.generation())));
            }
            disk::power_for(1 + dice.below(150));
            Ok(())
        });
        if let Err(error) = result {
            damage.lost.push(format!("the store cannot be opened: {error}"));
            return damage;
        }
        disk::restart(unsynced);
        let found = runtime.block_on(async {
            match open(&path, synchronous).await {
                Ok(store) => inspect(&store, &acknowledged).await,
                Err(error) => Damage { lost: vec![error.to_string()], torn: Vec::new() },
            }
        });
        damage.lost.extend(found.lost);
        damage.torn.extend(found.torn);
    }
    damage
}

async fn open(path: &Path, synchronous: bool) -> Result<Store, lattice_store::StoreError> {
    if synchronous {
        Store::open(StoreConfig { inline: true, ..StoreConfig::sqlite(path) }).await
    } else {
        Store::open_without_sync(path)
    }
}

/// Two nodes that only ever change together: whoever sees them apart sees half a commit.
struct Pair {
    nodes: Vec<Node>,
    exists: bool,
}

impl Pair {
    fn new() -> Self {
        let site = site("dc1").id;
        let nodes = (0..2)
            .map(|_| {
                let mut node = node(site, "");
                node.hostname = format!("n{}", node.id);
                node.address = Some(node.id.to_string());
                node
            })
            .collect();
        Self { nodes, exists: false }
    }

    fn generation(&self) -> u64 {
        self.nodes[0].generation.0
    }

    /// Creates them, or moves both; on success the pair is as it stands in the store.
    async fn step(&mut self, store: &Store) -> Result<(), lattice_store::StoreError> {
        let (nodes, changes): (Vec<Node>, Vec<Change>) = if self.exists {
            let (status, availability) = match self.nodes[0].state.status {
                Status::Active => (Status::Offline, Availability::Down),
                _ => (Status::Active, Availability::Ready),
            };
            let other = self.nodes[1].id.to_string();
            let mut moves: Vec<_> =
                self.nodes.iter().map(|node| moved(node, status, availability, at(node.generation.0))).collect();
            // The address tells the other half of the commit, so that the row itself is checked too.
            if let Some((after, Change::Node(change))) = moves.first_mut() {
                after.address = Some(other);
                change.after.address.clone_from(&after.address);
            }
            moves.into_iter().unzip()
        } else {
            self.nodes.iter().map(|node| (node.clone(), created(node))).unzip()
        };
        applied(&store.commit_one(commit(at(self.generation()), vec![], changes)).await?);
        (self.nodes, self.exists) = (nodes, true);
        Ok(())
    }
}

/// Compares the store with what was acknowledged, and with itself.
async fn inspect(store: &Store, acknowledged: &Acknowledged) -> Damage {
    let mut damage = Damage::default();
    if let Err(error) = inspect_rows(store, acknowledged, &mut damage).await {
        damage.lost.push(error.to_string());
    }
    damage
}

async fn inspect_rows(
    store: &Store,
    acknowledged: &Acknowledged,
    damage: &mut Damage,
) -> Result<(), lattice_store::StoreError> {
    let mut nodes = Vec::new();
    store.each_node(|node| nodes.push(node)).await?;
    let stored: HashMap<_, _> = nodes.iter().map(|node| (node.id, node.generation.0)).collect();
    for (id, generation) in acknowledged {
        let have = stored.get(id).copied().unwrap_or(0);
        if have < *generation {
            damage.lost.push(format!("{id}: generation {generation} was acknowledged, {have} is there"));
        }
    }
    // Pairs are created by one commit and so stand beside each other in the order of their ids.
    let mut changes = 0;
    for node in &nodes {
        changes += node.generation.0;
        let history = store.history(node.id, &PageRequest::first(PAGE_MAX)).await?.items.len() as u64;
        if history != node.generation.0 {
            damage.torn.push(format!("{}: generation {} with {history} rows of history", node.id, node.generation.0));
        }
        if let Some(other) = node.address.as_ref().and_then(|address| address.parse().ok())
            && stored.get(&other) != Some(&node.generation.0)
        {
            damage.torn.push(format!("{} is at generation {}, {other} is not", node.id, node.generation.0));
        }
    }
    inspect_feed(store, changes, damage).await?;
    let counted: u64 = store.node_counts().await?.iter().map(|count| count.nodes).sum();
    if counted != nodes.len() as u64 {
        damage.torn.push(format!("{counted} nodes are counted, {} are there", nodes.len()));
    }
    Ok(())
}

/// One event and one audit row for each change, both without gaps.
async fn inspect_feed(store: &Store, changes: u64, damage: &mut Damage) -> Result<(), lattice_store::StoreError> {
    let mut export = Vec::new();
    store.audit_export(&mut export).await?;
    match audit_verify(export.as_slice()) {
        Ok(summary) if summary.rows == changes => {}
        Ok(summary) => damage.torn.push(format!("{changes} changes, {} audit rows", summary.rows)),
        Err(error) => damage.torn.push(error.to_string()),
    }
    let mut seen = EventSeq(0);
    loop {
        let events = store.events(seen, &EventFilter::default(), PAGE_MAX).await?;
        let Some(last) = events.last() else { break };
        if last.seq.0 != seen.0 + events.len() as u64 {
            damage.torn.push(format!("events after {} have a gap", seen.0));
        }
        seen = last.seq;
    }
    if seen.0 != changes || store.last_event().await? != seen {
        damage.torn.push(format!("{changes} changes, {} events", seen.0));
    }
    Ok(())
}
