//! `lattice dev` in this process: machines with mishaps become active, an agent that dies is seen Degraded and back,
//! and a region that exists is taken as it is.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lattice_agent::Pace;
use lattice_sim::dev::{Dev, DevConfig, RealMaas};
use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::mishaps::Mishaps;
use lattice_sim::maas::site::SimulatedSite;
use lattice_sim::machine::real_agent::RealAgents;
use tempfile::TempDir;

const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn config(folder: &TempDir, nodes: u32, mishaps: Mishaps, maas: Option<RealMaas>) -> DevConfig {
    DevConfig {
        nodes,
        seed: 5,
        mishaps,
        scenario: None,
        data_dir: folder.path().to_owned(),
        api_listen: ANYWHERE,
        agent_listen: ANYWHERE,
        agent_binary: None,
        maas,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_with_mishaps_become_active_without_a_person_and_nothing_unknown_is_asked_of_maas() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(config(&folder, 8, Mishaps::Healing, None)).await.unwrap();
    let mut steps = Vec::new();
    let progress = dev.until_all_active(Duration::from_secs(120), |step| steps.push(step.active)).await.unwrap();
    assert_eq!((progress.active, progress.waiting.len()), (8, 0), "{progress:?}");
    assert!(progress.seconds_to_first <= progress.seconds_to_all);
    assert!(steps.len() > 2, "progress is told on the way: {steps:?}");
    let report = dev.region().unwrap().report();
    assert_eq!(report.unknown_requests, []);
    let struck = report.faults.iter().filter(|fault| fault.hits > 0).count();
    assert!(struck >= 5, "the mishaps happened: {:?}", report.faults);
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_person_is_said_and_the_others_are_active() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(config(&folder, 3, Mishaps::AndOneForAPerson, None)).await.unwrap();
    let mut store = dev.server().store.follow();
    let progress = loop {
        let last = dev.server().store.last_event().await.unwrap();
        let progress = dev.progress(&lattice_sim::dev::Progress::none(3)).await.unwrap();
        let counts = dev.server().store.job_counts().await.unwrap();
        let stopped = counts.iter().any(|(status, jobs)| status.is_failed() && *jobs > 0);
        if progress.active == 2 && stopped {
            break progress;
        }
        tokio::time::timeout(Duration::from_secs(120), store.after(last)).await.expect("it moves").unwrap();
    };
    assert_eq!(progress.waiting.len(), 1);
    dev.stop().await;
}

#[tokio::test]
async fn a_region_that_exists_is_taken_as_it_is() {
    let agents = Arc::new(RealAgents::new(Pace::default()));
    let region = SimulatedSite::start(SiteConfig::dev(3, 2), ANYWHERE, agents, 22_322).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let real = RealMaas::new(&region.url, region.key.joined());
    let dev = Dev::start(config(&folder, 20, Mishaps::None, Some(real))).await.unwrap();
    let site = dev.server().store.site_by_name("dev").await.unwrap();
    assert!(site.is_some(), "its key was tried and accepted");
    let progress = dev.until_all_active(Duration::from_secs(1), |_| ()).await.unwrap();
    assert_eq!((progress.nodes, progress.active), (0, 0), "no machine of it is touched");
    assert!(region.handle.report().calls.keys().all(|call| call.starts_with("GET")), "only reads");
    dev.stop().await;
    let wrong = RealMaas::new(&region.url, "a:b:c".to_owned());
    let other = tempfile::tempdir().unwrap();
    let refused = Dev::start(config(&other, 0, Mishaps::None, Some(wrong))).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("LAT0051")), "a wrong key is refused up front");
    region.stop().await;
}
