//! BMCs of nodes on both backends.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod backends;
mod fixture;

use backends::on_each_backend;
use fixture::*;
use lattice_core::bmc::{Bmc, BmcCause, BmcEndpoint, BmcReport, BmcWay, BreakerState, CipherSuite};
use lattice_core::change::{Change, Guard, Outcome};
use lattice_core::component::{ComponentFlag, ComponentReport, ComponentState, Word};
use lattice_core::ids::{Generation, NodeId, SiteId};
use lattice_core::job::{Job, JobInput, JobKind};
use lattice_core::node::Node;
use lattice_store::Store;

async fn apply(store: &Store, changes: Vec<Change>) {
    applied(&store.commit_one(commit(START, vec![], changes)).await.unwrap());
}

async fn fleet(store: &Store, names: &[&str]) -> (SiteId, Vec<Node>) {
    let site = site("dc1");
    let nodes: Vec<_> = names.iter().map(|name| node(site.id, name)).collect();
    let mut changes = vec![Change::Site(Box::new(site.clone()))];
    changes.extend(nodes.iter().map(created));
    apply(store, changes).await;
    (site.id, nodes)
}

fn bmc(node: NodeId, site: SiteId) -> Bmc {
    let way = BmcWay::Ipmi { cipher: CipherSuite::Three };
    let credential_path = "kv/nodes/x/bmc".to_owned();
    Bmc {
        node,
        site,
        endpoint: BmcEndpoint { address: "10.0.0.7".parse().unwrap(), port: None, way, credential_path },
        breaker: BreakerState::Closed,
        refusals: 0,
        set_at: START,
        set_by: "ada".to_owned(),
        generation: Generation::FIRST,
    }
}

on_each_backend! {
    async fn a_bmc_s_row_is_guarded_and_its_report_replaced(store: Store) {
        let (site, nodes) = fleet(&store, &["a", "b"]).await;
        let first = bmc(nodes[0].id, site);
        let set = |after: &Bmc| Change::Bmc { after: after.clone(), cause: BmcCause::Set };
        apply(&store, vec![set(&first), set(&bmc(nodes[1].id, site))]).await;
        let opened = BreakerState::Open { since: at(5), by: "health poll".to_owned() };
        let second = Bmc { breaker: opened, refusals: 3, generation: first.generation.next(), ..first.clone() };
        apply(&store, vec![Change::Bmc { after: second.clone(), cause: BmcCause::BreakerOpened }]).await;
        for stale in [set(&first), set(&second)] {
            let outcome = store.commit_one(commit(at(10), vec![], vec![stale])).await.unwrap();
            assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");
        }
        assert_eq!(store.bmc(nodes[0].id).await.unwrap(), Some(second.clone()));
        let all = store.bmcs(None).await.unwrap();
        assert_eq!(all.iter().map(|bmc| bmc.node).collect::<Vec<_>>(), [nodes[0].id, nodes[1].id]);
        assert_eq!(store.bmcs(Some(nodes[0].id)).await.unwrap().len(), 1);
        let report = BmcReport::none_yet(nodes[0].id, site, at(6));
        let later = BmcReport { looked_at: at(7), failure: Some("no answer".to_owned()), ..report.clone() };
        for report in [report, later.clone()] {
            apply(&store, vec![Change::BmcReport(Box::new(report))]).await;
        }
        assert_eq!(store.bmc_report(nodes[0].id).await.unwrap(), Some(later));
        assert_eq!(store.bmc_report(nodes[1].id).await.unwrap(), None);
    }

    async fn what_state_manager_said_is_replaced_and_read_by_site(store: Store) {
        let (site, nodes) = fleet(&store, &["a", "b"]).await;
        let report = |at: usize| ComponentReport::none_yet(nodes[at].id, site, format!("x1000c0s{at}b0n0"), START);
        let later = ComponentReport { told: Some(Word::new(ComponentState::Ready, ComponentFlag::Ok)), ..report(0) };
        for report in [report(0), later.clone(), report(1)] {
            apply(&store, vec![Change::ComponentReport(Box::new(report))]).await;
        }
        assert_eq!(store.component(nodes[0].id).await.unwrap(), Some(later.clone()));
        assert_eq!(store.components(site, None).await.unwrap(), [later.clone(), report(1)]);
        assert_eq!(store.components(site, Some(nodes[0].id)).await.unwrap(), [report(1)]);
        let twice = commit(at(9), vec![], [report(0), later].map(|one| Change::ComponentReport(Box::new(one))).into());
        assert!(store.commit_one(twice).await.is_err(), "one change for each row");
    }

    async fn an_investigation_stands_beside_the_job_that_owns_its_node(store: Store) {
        let (_, nodes) = fleet(&store, &["a"]).await;
        let look = Job { kind: JobKind::BmcInvestigation, input: JobInput::InvestigateBmc, ..job(&nodes[0]) };
        apply(&store, vec![look.clone().created()]).await;
        assert_eq!(store.live_job(nodes[0].id).await.unwrap(), None);
        let owner = job(&nodes[0]);
        let guard = vec![Guard::NoLiveJob { node: nodes[0].id }];
        let outcomes = store.commit(vec![commit(at(3), guard.clone(), vec![owner.clone().created()])]).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Applied { .. }), "{outcomes:?}");
        assert_eq!(store.live_job(nodes[0].id).await.unwrap().map(|job| job.id), Some(owner.id));
        let second = store.commit_one(commit(at(4), guard, vec![job(&nodes[0]).created()])).await.unwrap();
        assert!(matches!(second, Outcome::Conflict { .. }), "{second:?}");
    }
}
