//! Batches in both backends: rows, counts of children, guards, and what a new batch is checked against.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod backends;
mod fixture;

use backends::on_each_backend;
use fixture::*;
use lattice_core::actor::Actor;
use lattice_core::batch::{Batch, BatchCause, BatchChange, BatchControl, BatchStatus, Children};
use lattice_core::change::{Change, Guard, Outcome};
use lattice_core::failure::FailureClass;
use lattice_core::ids::{BatchId, CorrelationId, Generation, SiteId};
use lattice_core::job::{Job, JobInput, JobKind, JobStatus, StageEventStatus, StageName};
use lattice_core::node::{HostFacts, NicFact, Node};
use lattice_core::site::{MaasSettings, SiteProvider};
use lattice_store::{BatchFilter, JobFilter, PageRequest, Store, StoreConfig, restore};

fn batch(site: SiteId, machines: u64) -> Batch {
    Batch {
        id: BatchId::generate(&Ids, START),
        site,
        sku: "mi300x.192g.8gpu".to_owned(),
        profile: None,
        profile_parallel: None,
        machines,
        max_parallel: Some(4),
        control: BatchControl::Run,
        control_by: Actor::system("test"),
        control_since: START,
        status: BatchStatus::Pending,
        status_since: START,
        requested_by: Actor::system("test"),
        reason: "rack 7".to_owned(),
        correlation: CorrelationId::generate(&Ids, START),
        created_at: START,
        started_at: None,
        finished_at: None,
        updated_at: START,
        generation: Generation::FIRST,
    }
}

fn change(after: Batch, before: Option<BatchStatus>, cause: BatchCause) -> Change {
    Change::Batch(Box::new(BatchChange { after, before, cause, children: Children::default() }))
}

fn child(node: &Node, batch: BatchId) -> Job {
    Job { batch: Some(batch), kind: JobKind::Onboarding, ..job(node) }
}

async fn apply(store: &Store, guards: Vec<Guard>, changes: Vec<Change>) -> Outcome {
    store.commit_one(commit(START, guards, changes)).await.unwrap()
}

/// A batch with that many children, all pending.
async fn seed(store: &Store, site: SiteId, names: &[&str]) -> (Batch, Vec<Job>) {
    let batch = batch(site, names.len() as u64);
    let nodes: Vec<Node> = names
        .iter()
        .enumerate()
        .map(|(n, name)| Node { bmc_address: Some(format!("10.0.0.{n}")), ..node(site, name) })
        .collect();
    let jobs: Vec<Job> = nodes.iter().map(|node| child(node, batch.id)).collect();
    let mut changes: Vec<Change> = nodes.iter().map(created).collect();
    changes.extend(jobs.iter().cloned().map(Job::created));
    changes.push(change(batch.clone(), None, BatchCause::Created));
    applied(&apply(store, vec![], changes).await);
    (batch, jobs)
}

on_each_backend! {
    async fn a_batch_and_its_children_are_read_back_and_counted(store: Store) {
        let home = site("dc1");
        applied(&apply(&store, vec![], vec![Change::Site(Box::new(home.clone()))]).await);
        let (first, jobs) = seed(&store, home.id, &["a", "b", "c"]).await;
        let (second, _) = seed(&store, home.id, &["d"]).await;
        assert_eq!(store.batch(first.id).await.unwrap().as_ref(), Some(&first));
        let started = [(StageName::LoadSiteConfig, StageEventStatus::Started)];
        let (running, moved) = worked(&jobs[1], JobStatus::Running, &started);
        applied(&apply(&store, vec![], vec![moved]).await);
        let (_, moved) = worked(&jobs[2], JobStatus::Completed, &[(StageName::ApplyRocePhase2, StageEventStatus::Skipped)]);
        applied(&apply(&store, vec![], vec![moved]).await);
        let counts = store.children_of(&[first.id, second.id]).await.unwrap();
        assert_eq!(counts[&first.id], Children { pending: 1, running: 1, succeeded: 1, ..Children::default() });
        assert_eq!(counts[&second.id], Children { pending: 1, ..Children::default() });
        assert_eq!(store.moving_onboardings(home.id).await.unwrap(), 1);
        let all = Children { pending: 2, running: 1, succeeded: 1, ..Children::default() };
        assert_eq!(store.children_of_all().await.unwrap(), all);
        let mut stages = store.children_by_stage(first.id).await.unwrap();
        stages.sort_by_key(|count| count.status);
        let seen: Vec<_> = stages.iter().map(|count| (count.status, count.count)).collect();
        assert_eq!(seen, [(JobStatus::Pending, 1), (JobStatus::Running, 1), (JobStatus::Completed, 1)]);
        let next = store.next_children(first.id, 10).await.unwrap();
        assert_eq!(next.iter().map(|job| job.id).collect::<Vec<_>>(), [jobs[0].id]);
        let open = store.children_to_cancel(first.id, None, 10).await.unwrap();
        let mut open: Vec<_> = open.iter().map(|job| job.id).collect();
        open.sort();
        let mut expected = vec![jobs[0].id, running.id];
        expected.sort();
        assert_eq!(open, expected);
        let skipped = store.skipped_stages(&[StageName::ApplyRocePhase2, StageName::DeployViaMaas]).await.unwrap();
        assert_eq!(skipped, [StageName::ApplyRocePhase2]);
    }

    async fn a_hardware_address_is_found_where_it_was_named_and_where_it_was_seen(store: Store) {
        let (home, away) = (site("dc1"), site("dc2"));
        let sites = [&home, &away].map(|site| Change::Site(Box::new(site.clone())));
        applied(&apply(&store, vec![], sites.to_vec()).await);
        let (named, seen) = (node(home.id, "named"), node(home.id, "seen"));
        let SiteProvider::Maas(maas) = serde_json::from_value(serde_json::json!({"kind": "maas",
            "api_base_url": "http://10.0.0.1:5240/MAAS", "api_token_path": "a", "default_power_creds_path": "b",
            "deploy_password_path": "c", "pxe_iface": "ens19", "pxe_vlan_vid": 46, "node_pxe_iface": "eno8303"}))
        .unwrap() else {
            panic!("it is one of MAAS")
        };
        let input = JobInput::OnboardMaas {
            hostname: "named".to_owned(),
            ipmi_ip: "10.0.0.9".to_owned(),
            pxe_mac: Some("52:54:00:aa:00:13".to_owned()),
            settings: Box::new(MaasSettings::of(&maas, None)),
        };
        let onboarding = Job { kind: JobKind::Onboarding, input, ..job(&named) };
        let nic = NicFact {
            name: "eno1".to_owned(),
            mac: "02:00:00:00:00:0A".to_owned(),
            firmware: String::new(),
            speed_mbps: 0,
        };
        let facts = HostFacts { nics: vec![nic], ..HostFacts::default() };
        let changes = vec![created(&named), created(&seen), onboarding.created(), Change::HostFacts { node: seen.id, facts }];
        applied(&apply(&store, vec![], changes).await);
        let holder = async |site, mac: &str| store.node_with_mac(site, mac).await.unwrap().map(|(_, name)| name);
        assert_eq!(holder(home.id, "52:54:00:aa:00:13").await.as_deref(), Some("named"));
        assert_eq!(holder(home.id, "02:00:00:00:00:0a").await.as_deref(), Some("seen"));
        assert_eq!(holder(away.id, "52:54:00:aa:00:13").await, None);
        assert_eq!(holder(home.id, "52:54:00:aa:00:14").await, None);
    }

    async fn batches_are_listed_filtered_and_those_that_are_over_are_not_live(store: Store) {
        let home = site("dc1");
        applied(&apply(&store, vec![], vec![Change::Site(Box::new(home.clone()))]).await);
        let mut rows = Vec::new();
        for name in ["a", "b", "c"] {
            rows.push(seed(&store, home.id, &[name]).await.0);
        }
        let over = Batch {
            status: BatchStatus::Completed,
            finished_at: Some(at(9)),
            generation: Generation(2),
            ..rows[1].clone()
        };
        let done = change(over, Some(BatchStatus::Pending), BatchCause::Completed);
        applied(&apply(&store, vec![], vec![done]).await);
        let live: Vec<_> = store.live_batches(None).await.unwrap().iter().map(|batch| batch.id).collect();
        assert_eq!(live, [rows[0].id, rows[2].id], "the oldest first");
        assert_eq!(store.live_batches(Some(rows[0].id)).await.unwrap().len(), 1);
        let filter = BatchFilter { statuses: vec![BatchStatus::Pending], site: Some(home.id) };
        let page = store.batches(&filter, &PageRequest::first(1)).await.unwrap();
        assert_eq!((page.items[0].id, page.next.is_some()), (rows[2].id, true));
        let rest = PageRequest { cursor: page.next, limit: 5 };
        let page = store.batches(&filter, &rest).await.unwrap();
        assert_eq!((page.items[0].id, page.next.is_some()), (rows[0].id, false));
    }

    async fn a_batch_that_changed_and_an_address_in_use_refuse_a_commit(store: Store) {
        let home = site("dc1");
        applied(&apply(&store, vec![], vec![Change::Site(Box::new(home.clone()))]).await);
        let (row, jobs) = seed(&store, home.id, &["a", "b"]).await;
        let (_, start) = worked(&jobs[0], JobStatus::Running, &[]);
        let current = Guard::BatchGeneration { batch: row.id, have: Generation::FIRST };
        let stale = Guard::BatchGeneration { batch: row.id, have: Generation(2) };
        let missing = Guard::BatchGeneration { batch: BatchId::generate(&Ids, START), have: Generation::FIRST };
        let outcome = apply(&store, vec![stale], vec![start.clone()]).await;
        assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");
        let outcome = apply(&store, vec![missing], vec![start.clone()]).await;
        assert!(matches!(outcome, Outcome::Missing { .. }), "{outcome:?}");
        applied(&apply(&store, vec![current], vec![start]).await);
        let free = |address: &str| Guard::BmcAddressFree { site: home.id, address: address.to_owned() };
        let more = Node { bmc_address: Some("10.0.0.1".to_owned()), ..node(home.id, "c") };
        let outcome = apply(&store, vec![free("10.0.0.1")], vec![created(&more)]).await;
        let Outcome::Conflict { resource, have } = outcome else { panic!("{outcome:?}") };
        assert!(resource.starts_with("BMC address 10.0.0.1"), "{resource}");
        assert_eq!(have, jobs[1].node.to_string());
        let elsewhere = Guard::BmcAddressFree { site: SiteId::generate(&Ids, START), address: "10.0.0.1".to_owned() };
        applied(&apply(&store, vec![elsewhere, free("10.0.0.7")], vec![created(&more)]).await);
        // Two in one call: the second sees what the first wrote.
        let twin = |name: &str| Node { bmc_address: Some("10.0.0.9".to_owned()), ..node(home.id, name) };
        let both = ["d", "e"].map(|name| commit(START, vec![free("10.0.0.9")], vec![created(&twin(name))]));
        let outcomes = store.commit(both.into()).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Applied { .. }) && matches!(outcomes[1], Outcome::Conflict { .. }));
    }

    async fn names_and_addresses_in_use_are_found_at_once(store: Store) {
        let home = site("dc1");
        applied(&apply(&store, vec![], vec![Change::Site(Box::new(home.clone()))]).await);
        seed(&store, home.id, &["a", "b"]).await;
        let names: Vec<String> = ["b", "x"].map(str::to_owned).into();
        let addresses: Vec<String> = ["10.0.0.0", "10.9.9.9"].map(str::to_owned).into();
        let in_use = store.in_use(home.id, &names, &addresses).await.unwrap();
        assert_eq!(in_use.hostnames.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(in_use.bmc_addresses.iter().collect::<Vec<_>>(), [(&"10.0.0.0".to_owned(), &"a".to_owned())]);
        let other = store.in_use(SiteId::generate(&Ids, START), &[], &addresses).await.unwrap();
        assert!(other.bmc_addresses.is_empty(), "addresses of another site are another network's");
    }

    async fn the_log_of_a_batch_is_paged_and_told_by_machine(store: Store) {
        let home = site("dc1");
        applied(&apply(&store, vec![], vec![Change::Site(Box::new(home.clone()))]).await);
        let (row, jobs) = seed(&store, home.id, &["a", "b"]).await;
        for job in &jobs {
            let events = [
                (StageName::LoadSiteConfig, StageEventStatus::Started),
                (StageName::LoadSiteConfig, StageEventStatus::Succeeded),
            ];
            let (_, moved) = worked(job, JobStatus::Running, &events);
            applied(&apply(&store, vec![], vec![moved]).await);
        }
        let mut seen = Vec::new();
        let mut page = PageRequest::first(3);
        loop {
            let found = store.batch_log(row.id, None, &page).await.unwrap();
            seen.extend(found.items.into_iter().map(|line| (line.hostname, line.record.event.status)));
            let Some(next) = found.next else { break };
            page.cursor = Some(next);
        }
        assert_eq!(seen.len(), 4, "{seen:?}");
        let of_one = store.batch_log(row.id, Some("a"), &PageRequest::first(9)).await.unwrap().items;
        assert_eq!(of_one.len(), 2);
        assert_eq!(of_one[0].record.event.status, StageEventStatus::Succeeded, "the newest first");
    }

    async fn jobs_are_filtered_by_failure_stage_and_name(store: Store) {
        let home = site("dc1");
        applied(&apply(&store, vec![], vec![Change::Site(Box::new(home.clone()))]).await);
        let (row, jobs) = seed(&store, home.id, &["rack7u1", "rack7u2", "rack8u1"]).await;
        let mut failed = jobs[0].clone();
        failed.generation = Generation(2);
        failed.state.status = JobStatus::FailedManualIntervention;
        failed.state.stage = StageName::ConfigureStorage;
        failed.state.failure = Some(lattice_core::job::Failure {
            stage: StageName::ConfigureStorage,
            class: FailureClass::HardwareMismatch,
            error_code: "boot_disk_not_found".to_owned(),
            message: "none".to_owned(),
            at: at(1),
            next_action: lattice_core::explain::NextAction::Fix { what: "look".to_owned() },
        });
        let change = Change::Job(Box::new(lattice_core::change::JobChange {
            after: failed.clone(),
            before: Some(JobStatus::Pending),
            cause: "stage_failed".to_owned(),
            stage_events: vec![],
            visible: true,
        }));
        applied(&apply(&store, vec![], vec![change]).await);
        let all = JobFilter { batch: Some(row.id), ..JobFilter::default() };
        let rows = [
            (JobFilter { failure_class: Some(FailureClass::HardwareMismatch), ..all.clone() }, 1),
            (JobFilter { failure_class: Some(FailureClass::BmcPowerFailure), ..all.clone() }, 0),
            (JobFilter { stage: Some(StageName::ConfigureStorage), ..all.clone() }, 1),
            (JobFilter { hostname_prefix: Some("rack7".to_owned()), ..all.clone() }, 2),
            (all, 3),
        ];
        for (filter, expected) in rows {
            let page = store.jobs(&filter, &PageRequest::first(10)).await.unwrap();
            assert_eq!(page.items.len(), expected, "{filter:?}");
        }
    }

    async fn a_thousand_machines_are_one_commit(store: Store) {
        let home = site("dc1");
        applied(&apply(&store, vec![], vec![Change::Site(Box::new(home.clone()))]).await);
        let names: Vec<String> = (0..1_000).map(|n| format!("c{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let row = batch(home.id, 1_000);
        let mut changes = Vec::new();
        for name in names {
            let node = node(home.id, name);
            changes.push(created(&node));
            changes.push(child(&node, row.id).created());
        }
        changes.push(change(row.clone(), None, BatchCause::Created));
        applied(&apply(&store, vec![], changes).await);
        assert_eq!(store.children_of(&[row.id]).await.unwrap()[&row.id].pending, 1_000);
        assert_eq!(store.runnable_jobs(None).await.unwrap().len(), 0, "they wait for permits");
        let directory = tempfile::tempdir().unwrap();
        let (file, place) = (directory.path().join("copy.db"), directory.path().join("restored").join("lattice.db"));
        store.backup(&file).await.unwrap();
        std::fs::create_dir(directory.path().join("restored")).unwrap();
        let config = StoreConfig::sqlite(&place);
        restore(&file, &config.backend).await.unwrap();
        let restored = Store::open(config).await.unwrap();
        assert_eq!(restored.batch(row.id).await.unwrap(), Some(row));
    }
}
