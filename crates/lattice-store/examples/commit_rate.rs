//! Prints how fast commits are, and what they cost: `cargo run --release -p lattice-store --example commit_rate`.
//!
//! One transition is a node row with its history, audit and outbox rows. With `LATTICE_TEST_POSTGRES` set it measures
//! that database instead, which must be empty.

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use std::time::{Duration, Instant};

use fixture::{START, applied, at, commit, created, moved, node, site};
use lattice_core::change::Change;
use lattice_core::node::{Availability, Node, Status};
use lattice_store::{NodeFilter, NodeSort, PageRequest, Store, StoreConfig};

#[tokio::main]
async fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = match std::env::var("LATTICE_TEST_POSTGRES") {
        Ok(url) => StoreConfig::postgres(url),
        Err(_) => StoreConfig::sqlite(directory.path().join("lattice.db")),
    };
    let store = Store::open(config).await.expect("the store opens");
    let fleet: usize = std::env::var("NODES").map_or(100_000, |nodes| nodes.parse().expect("a number"));
    let mut nodes = create(&store, fleet).await;
    for writers in [1, 64, 256] {
        alone(&store, &mut nodes, writers, 200 * writers.min(64)).await;
    }
    storm(&store, &mut nodes[..fleet.min(10_000)]).await;
    lists(&store).await;
}

async fn create(store: &Store, fleet: usize) -> Vec<Node> {
    let sites: Vec<_> = (0..4).map(|n| site(&format!("dc{n}"))).collect();
    let changes = sites.iter().map(|site| Change::Site(Box::new(site.clone()))).collect();
    applied(&store.commit_one(commit(START, vec![], changes)).await.expect("the disk is well"));
    let nodes: Vec<_> = (0..fleet)
        .map(|n| {
            let mut node = node(sites[n % 4].id, &format!("c{:02}u{:05}", n % 64, n));
            node.sku = format!("sku{}", n % 7);
            node
        })
        .collect();
    let meter = Meter::start();
    for chunk in nodes.chunks(10_000) {
        let commits = chunk.iter().map(|node| commit(START, vec![], vec![created(node)])).collect();
        store.commit(commits).await.expect("the disk is well");
    }
    meter.print("create, 10,000 commits a call", fleet);
    nodes
}

/// Each writer commits one transition after the other.
async fn alone(store: &Store, nodes: &mut [Node], writers: usize, transitions: usize) {
    let each = transitions / writers;
    let meter = Meter::start();
    let share = nodes.len() / writers;
    let tasks: Vec<_> = nodes
        .chunks(share)
        .take(writers)
        .map(|own| {
            let store = store.clone();
            let own: Vec<_> = own.iter().take(each).cloned().collect();
            tokio::spawn(async move {
                let mut after = Vec::new();
                for node in own {
                    let (next, change) = flip(&node);
                    applied(&store.commit_one(commit(at(1), vec![], vec![change])).await.expect("the disk is well"));
                    after.push(next);
                }
                after
            })
        })
        .collect();
    let mut done = 0;
    for (writer, task) in tasks.into_iter().enumerate() {
        for (place, node) in task.await.expect("the writer ends").into_iter().enumerate() {
            nodes[writer * share + place] = node;
            done += 1;
        }
    }
    meter.print(&format!("{writers} writers"), done);
}

/// Many nodes fall silent at once.
async fn storm(store: &Store, nodes: &mut [Node]) {
    let (after, commits): (Vec<_>, Vec<_>) = nodes
        .iter()
        .map(|node| {
            let (next, change) = flip(node);
            (next, commit(at(2), vec![], vec![change]))
        })
        .unzip();
    let meter = Meter::start();
    store.commit(commits).await.expect("the disk is well");
    meter.print("storm, one call", after.len());
    nodes.clone_from_slice(&after);
}

async fn lists(store: &Store) {
    let all = NodeFilter::default;
    let site = store.sites().await.expect("readable")[0].id;
    let filters = [
        ("no filter", all()),
        ("status", NodeFilter { statuses: vec![Status::Active], ..all() }),
        ("two statuses", NodeFilter { statuses: vec![Status::Active, Status::Offline], ..all() }),
        ("availability", NodeFilter { availabilities: vec![Availability::Down], ..all() }),
        ("site and status", NodeFilter { site: Some(site), statuses: vec![Status::Active], ..all() }),
        (
            "sku and availability",
            NodeFilter { sku: Some("sku3".to_owned()), availabilities: vec![Availability::Ready], ..all() },
        ),
        ("prefix", NodeFilter { hostname_prefix: Some("c17".to_owned()), ..all() }),
        ("schedulable", NodeFilter { schedulable_at: Some(at(9)), ..all() }),
        ("needs attention", NodeFilter { needs_attention: true, ..all() }),
        ("nothing matches", NodeFilter { statuses: vec![Status::Retired], ..all() }),
    ];
    for (name, filter) in filters {
        let mut times = Vec::new();
        let meter = Meter::start();
        let mut rows = 0;
        for _ in 0..50 {
            let begun = Instant::now();
            let page = store.nodes(&filter, NodeSort::Hostname, &PageRequest::first(1_000)).await.expect("readable");
            rows = page.items.len();
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        let cpu = meter.cpu() / 50;
        println!("list {name}: {rows} rows, p50 {:?}, p99 {:?}, CPU {cpu:?}", times[25], times[49]);
    }
    let meter = Meter::start();
    let counts = store.node_counts().await.expect("readable");
    meter.print(&format!("counts ({} pairs)", counts.len()), 1);
    let meter = Meter::start();
    let mut nodes = 0;
    store.each_node(|_| nodes += 1).await.expect("readable");
    meter.print("each node, whole rows", nodes);
}

fn flip(node: &Node) -> (Node, Change) {
    let (status, availability) = match node.state.status {
        Status::Active => (Status::Offline, Availability::Down),
        _ => (Status::Active, Availability::Ready),
    };
    moved(node, status, availability, at(node.generation.0))
}

/// Wall clock and processor time of this process, threads included.
struct Meter {
    begun: Instant,
    cpu: Duration,
}

impl Meter {
    fn start() -> Self {
        Self { begun: Instant::now(), cpu: process_cpu() }
    }

    fn cpu(&self) -> Duration {
        process_cpu().saturating_sub(self.cpu)
    }

    fn print(&self, what: &str, items: usize) {
        let (wall, cpu) = (self.begun.elapsed(), self.cpu());
        let (per_second, each) = (items as f64 / wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / items as f64);
        println!("{what}: {items} in {wall:?}, {per_second:.0} per second, {each:.1} µs CPU each");
    }
}

/// From the kernel's own count, in ticks of 10 ms.
fn process_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}
