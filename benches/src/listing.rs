//! Lists of a large fleet: 1,000 nodes of 100,000 with a filter, from the store and over HTTP.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lattice_core::node::Availability;
use lattice_core::site::SiteProvider;
use lattice_store::{NodeFilter, NodeSort, PageRequest, Store, StoreConfig};
use serde::{Deserialize, Serialize};

use crate::accounts::{Span, quantile};
use crate::failure::{Failure, at, wrong};
use crate::figure::{Report, Target};
use crate::fleet;
use crate::measured::{Measured, configuration, reply};

/// Role of the measured process.
pub const ROLE: &str = "listing";
const NODES: u32 = 100_000;
const SITES: u8 = 4;
const PAGE: usize = 1_000;
const LISTS: usize = 200;

#[derive(Serialize, Deserialize)]
struct Config {
    folder: PathBuf,
}

/// What one filter's lists took.
#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    filter: String,
    p50_ms: f64,
    p99_ms: f64,
    cpu_ms: f64,
}

/// Measures each filter's first page from the store.
pub fn run() -> Result<Report, Failure> {
    let folder = tempfile::tempdir().map_err(at("make a folder"))?;
    let config = Config { folder: folder.path().to_owned() };
    let (_process, listed): (_, Vec<Listed>) = Measured::start(ROLE, &config)?;
    let conditions = format!("{PAGE} of {NODES} nodes, SQLite file, {LISTS} lists each, from the store");
    let mut report = Report::new("listing", conditions);
    for list in listed {
        report = report
            .figure(format!("{} p50", list.filter), list.p50_ms, "ms", Target::Informative)
            .figure("p99", list.p99_ms, "ms", Target::AtMost(10.0))
            .figure("CPU", list.cpu_ms, "ms", Target::AtMost(5.0));
    }
    Ok(report.peer("Ironic 190 ms of CPU for a list of 1,000"))
}

/// Plays the measured process.
///
/// # Errors
/// The store fails.
pub fn serve() -> Result<(), Failure> {
    let config: Config = configuration()?;
    let runtime = tokio::runtime::Runtime::new().map_err(at("start a runtime"))?;
    let listed = runtime.block_on(list_all(&config))?;
    reply(&listed)
}

async fn list_all(config: &Config) -> Result<Vec<Listed>, Failure> {
    let path = config.folder.join("lattice.db");
    let store = Store::open(StoreConfig::sqlite(path)).await.map_err(at("open a store"))?;
    let sites: Vec<_> = (1..=SITES).map(|number| fleet::site(number, SiteProvider::Manual)).collect();
    fleet::fill(&store, &sites, NODES, fleet::node).await?;
    let filters = [
        ("site", NodeFilter { site: Some(sites[2].id), ..NodeFilter::default() }),
        ("availability", NodeFilter { availabilities: vec![Availability::Degraded], ..NodeFilter::default() }),
        ("SKU", NodeFilter { sku: Some(fleet::SKU.to_owned()), ..NodeFilter::default() }),
        ("hostname prefix", NodeFilter { hostname_prefix: Some("r07".to_owned()), ..NodeFilter::default() }),
        ("needs attention", NodeFilter { needs_attention: true, ..NodeFilter::default() }),
    ];
    let mut listed = Vec::new();
    for (name, filter) in filters {
        listed.push(list(&store, name, &filter).await?);
    }
    Ok(listed)
}

async fn list(store: &Store, name: &str, filter: &NodeFilter) -> Result<Listed, Failure> {
    let page = PageRequest::first(PAGE);
    let mut times = Vec::with_capacity(LISTS);
    let span = Span::start()?;
    for _ in 0..LISTS {
        let started = Instant::now();
        let found = store.nodes(filter, NodeSort::Hostname, &page).await.map_err(at("list nodes"))?;
        times.push(started.elapsed());
        if found.items.len() != PAGE {
            return Err(wrong("list nodes", format!("filter {name} found {}", found.items.len())));
        }
    }
    let took = span.end()?;
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Listed {
        filter: name.to_owned(),
        p50_ms: ms(quantile(&times, 0.5)),
        p99_ms: ms(quantile(&times, 0.99)),
        cpu_ms: took.cpu_us / 1e3 / LISTS as f64,
    })
}
