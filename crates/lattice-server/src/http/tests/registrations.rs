//! How the server takes the word of an agent that registers: of a host that comes up ill, and of one that was lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use lattice_api::agent::{HealthSummary, RegisterRequest};
use lattice_controllers::Fleet;
use lattice_core::actor::Actor;
use lattice_core::agent::task::{Running, SigningKey};
use lattice_core::allocation::{
    Allocation, AllocationCause, AllocationChange, AllocationStatus, Ownership, RequeuePolicy, Wanted,
};
use lattice_core::bmc::{BmcEndpoint, BmcPolicy, BmcTls, BmcWay};
use lattice_core::change::{Change, NodeAction, NodeChange};
use lattice_core::command::allocation::{self, NewAllocation};
use lattice_core::command::{Request, bmc, boots::BOOTS};
use lattice_core::explain::Code;
use lattice_core::heartbeat::Registry;
use lattice_core::ids::{
    AllocationId, CorrelationId, EventSeq, IdSource, JobId, NodeId, OwnershipEpoch, SessionId, uuid_v7,
};
use lattice_core::node::{Availability, DownCause, HostFacts, Node, NodeClass, Status};
use lattice_core::secret::Secret;
use lattice_core::site::Site;
use lattice_core::sku::Sku;
use lattice_core::time::Clock;
use lattice_store::EventFilter;

use super::fixture::Api;
use super::verbs::{NODE, with_node};
use crate::agent_api::{AgentEvents, Registered, Registration};
use crate::agents::{Agents, WakeJob};
use crate::task_keys::TaskKeys;

#[derive(Default)]
struct Woken(Mutex<Vec<JobId>>);

impl WakeJob for Woken {
    fn wake(&self, job: JobId) {
        self.0.lock().unwrap().push(job);
    }
}

/// What is asked of a host that has none of its GPUs.
async fn asks_for_a_gpu(api: &Api) {
    let sku = api.store.sku("lxd.small").await.unwrap().unwrap();
    api.commit(vec![Change::Sku(Sku { gpus: 1, generation: sku.generation.next(), ..sku })]).await;
}

async fn give_bmc(api: &Api, node: &Node) {
    let site = api.store.site(node.site).await.unwrap().unwrap();
    let networks = vec!["127.0.0.0/8".parse().unwrap()];
    let site = Site { bmc: BmcPolicy { networks, ..BmcPolicy::default() }, ..site };
    let way = BmcWay::Redfish { tls: BmcTls::Plain, system: None };
    let credential_path = "kv/nodes/n1/bmc".to_owned();
    let endpoint = BmcEndpoint { address: "127.0.0.1".parse().unwrap(), port: None, way, credential_path };
    let now = api.clock.now();
    let request = Request::of_system("test", &*api.ids, now, CorrelationId::generate(&*api.ids, now));
    let set = bmc::set(&request, node, &site, None, endpoint).unwrap();
    api.commit(set.changes).await;
}

fn agents(api: &Api, woken: &Arc<Woken>) -> Agents {
    agents_of(api, Arc::new(Fleet::new(api.store.clone(), Arc::new(Registry::new()))), woken)
}

fn agents_of(api: &Api, fleet: Arc<Fleet>, woken: &Arc<Woken>) -> Agents {
    let ids: Arc<dyn IdSource> = api.ids.clone();
    let keys = Arc::new(TaskKeys::new(SigningKey::from_seed(&Secret::new(vec![5; 32])).unwrap()));
    Agents::new(api.store.clone(), fleet, ids, woken.clone(), keys, Duration::from_secs(3_600))
}

/// Of a host without GPUs, whose agent was told of that ownership.
fn registration(api: &Api, node: &Node, ownership_epoch: OwnershipEpoch) -> Registration {
    let request = RegisterRequest {
        boot_id: "b1".to_owned(),
        agent_version: "1".to_owned(),
        facts: HostFacts::default(),
        fingerprint: "f".to_owned(),
        health: HealthSummary { gpu_count: 0, max_temperature_c: None, ecc_uncorrected: 0, minor_issue: None },
        running: Vec::new(),
        ownership_epoch,
    };
    let at = api.clock.now();
    let session = SessionId::new(uuid_v7(at, [1; 10]));
    Registration { node: node.id, session, request, peer: "127.0.0.1:1".parse().unwrap(), at }
}

#[tokio::test]
async fn a_registration_that_was_sent_before_the_node_was_lost_changes_nothing() {
    let api = with_node(Status::Offline, Availability::Down).await;
    let node = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
    let (before, lost) = (OwnershipEpoch(1), OwnershipEpoch(2));
    let ownership = Ownership { epoch: lost, confirmed: before, ..Ownership::default() };
    let down_cause = Some(DownCause::HeartbeatLost);
    let after = Node { ownership, down_cause, ..node.successor(api.clock.now()) };
    let (before_it, cause, detail) = (Some(node.state), "test".to_owned(), String::new());
    let change = NodeChange { after, before: before_it, action: NodeAction::Updated, cause, detail };
    api.commit(vec![Change::Node(Box::new(change))]).await;
    let down = api.store.node(node.id).await.unwrap().unwrap();
    let agents = agents(&api, &Arc::default());
    let late = agents.register(registration(&api, &node, before)).await.unwrap();
    assert_eq!(late, Registered::NotYet { stop_first: Vec::new(), ownership_epoch: lost });
    assert_eq!(api.store.node(node.id).await.unwrap(), Some(down));
    let fresh = agents.register(registration(&api, &node, lost)).await.unwrap();
    assert_eq!(fresh, Registered::Open { ownership_epoch: lost });
    let back = api.store.node(node.id).await.unwrap().unwrap();
    assert_eq!((back.state.availability, back.ownership.is_confirmed()), (Availability::Ready, true));
}

/// Work of that policy and class, running on the node.
async fn run(api: &Api, node: &Node, requeue: RequeuePolicy, class: NodeClass) -> AllocationId {
    let now = api.clock.now();
    let request = || Request::of_system("test", &*api.ids, now, CorrelationId::generate(&*api.ids, now));
    let workload = serde_json::from_value(serde_json::json!({"argv": ["/usr/bin/train"]})).unwrap();
    let new = NewAllocation { user: "ada".to_owned(), class, wanted: Wanted::default(), workload, requeue };
    let (one, asked) = allocation::request(&request(), new).unwrap();
    api.store.commit_one(asked).await.unwrap();
    let node = api.store.node(node.id).await.unwrap().unwrap();
    api.store.commit_one(allocation::place(&request(), &one, &node, [1; 16]).unwrap()).await.unwrap();
    let placed = api.store.allocation(one.id).await.unwrap().unwrap();
    let (before, status) = (Some(placed.status), AllocationStatus::Active);
    let after = Allocation { status, ..placed.successor(now) };
    let change = AllocationChange { after, before, cause: AllocationCause::Active };
    api.commit(vec![Change::Allocation(Box::new(change))]).await;
    one.id
}

#[tokio::test]
async fn work_that_a_reboot_ended_is_judged_by_its_policy_though_the_node_was_never_down() {
    for class in [NodeClass::Standard, NodeClass::Sensitive] {
        let api = with_node(Status::Active, Availability::Ready).await;
        let node = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
        let agents = agents(&api, &Arc::default());
        let opened = agents.register(registration(&api, &node, OwnershipEpoch::default())).await.unwrap();
        assert!(matches!(opened, Registered::Open { .. }));
        let again = run(&api, &node, RequeuePolicy::OnNodeFailure, class).await;
        let never = run(&api, &node, RequeuePolicy::Never, class).await;
        let same = agents.register(registration(&api, &node, OwnershipEpoch::default())).await.unwrap();
        assert!(matches!(same, Registered::Open { .. }), "it is the same boot: its work goes on");
        let booted = |epoch| {
            let mut booted = registration(&api, &node, epoch);
            booted.request.boot_id = "b2".to_owned();
            booted
        };
        let epoch = OwnershipEpoch(1);
        let told = agents.register(booted(OwnershipEpoch::default())).await.unwrap();
        assert_eq!(told, Registered::NotYet { stop_first: Vec::new(), ownership_epoch: epoch });
        let status = async |id| api.store.allocation(id).await.unwrap().unwrap().status;
        let placed = [status(again).await, status(never).await];
        // A word of an earlier boot that comes late says the same, and does not know what this one was told.
        assert_eq!(agents.register(booted(OwnershipEpoch::default())).await.unwrap(), told);
        assert_eq!([status(again).await, status(never).await], placed, "nothing is lost by a word that may be old");
        let opened = agents.register(booted(epoch)).await.unwrap();
        assert_eq!(opened, Registered::Open { ownership_epoch: epoch });
        let queued = match class {
            NodeClass::Sensitive => AllocationStatus::Failed,
            NodeClass::Standard | NodeClass::Borrowed => AllocationStatus::Requested,
        };
        assert_eq!((status(again).await, status(never).await), (queued, AllocationStatus::Failed));
        let after = api.store.node(node.id).await.unwrap().unwrap();
        assert_eq!((after.ownership.allocations, after.owes_wipe()), (0, class == NodeClass::Sensitive));
        api.events_are_as_described().await;
    }
}

#[tokio::test]
async fn the_first_answer_to_a_node_that_was_lost_needs_no_row() {
    let api = with_node(Status::Offline, Availability::Down).await;
    let node = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
    let (before, lost) = (OwnershipEpoch(1), OwnershipEpoch(2));
    let ownership = |confirmed| Ownership { epoch: lost, confirmed, ..Ownership::default() };
    let fleet = Arc::new(Fleet::new(api.store.clone(), Arc::new(Registry::new())));
    let agents = agents_of(&api, fleet.clone(), &Arc::default());
    // Of this one there is no row: who looks for it finds nothing.
    let absent = Node { id: NodeId::generate(&*api.ids, api.clock.now()), ..node };
    fleet.sync(&Node { ownership: ownership(before), ..absent.clone() }, api.clock.now());
    let told = agents.register(registration(&api, &absent, before)).await.unwrap();
    assert_eq!(told, Registered::NotYet { stop_first: Vec::new(), ownership_epoch: lost });
    let mut runs = registration(&api, &absent, before);
    let allocation = AllocationId::generate(&*api.ids, api.clock.now());
    runs.request.running = vec![Running { allocation, ownership_epoch: before }];
    let refused = [
        ("what runs is compared with the rows", agents.register(runs).await),
        ("who knows the present ownership is judged", agents.register(registration(&api, &absent, lost)).await),
    ];
    for (why, answer) in refused {
        assert!(answer.unwrap_err().is(Code::NotFound), "{why}");
    }
    fleet.sync(&Node { ownership: ownership(lost), ..absent.clone() }, api.clock.now());
    let answer = agents.register(registration(&api, &absent, before)).await;
    assert!(answer.unwrap_err().is(Code::NotFound), "nothing is open any more: the row decides");
}

#[tokio::test]
async fn a_registration_that_counts_an_ill_boot_begins_the_next_one_or_says_why_not() {
    for has_bmc in [true, false] {
        let api = with_node(Status::Active, Availability::Booting).await;
        asks_for_a_gpu(&api).await;
        let node = api.store.node_by_hostname("c07u43").await.unwrap().unwrap();
        if has_bmc {
            give_bmc(&api, &node).await;
        }
        let woken = Arc::new(Woken::default());
        let agents = agents(&api, &woken);
        for _ in 0..2 {
            agents.register(registration(&api, &node, OwnershipEpoch::default())).await.unwrap();
        }
        let after = api.store.node(node.id).await.unwrap().unwrap();
        assert_eq!((after.state, after.boot_failures), (node.state, 1), "it is the same boot");
        let job = api.store.live_job(node.id).await.unwrap();
        assert_eq!((job.is_some(), after.owning_job), (has_bmc, job.as_ref().map(|job| job.id)));
        if let Some(job) = &job {
            assert_eq!(job.requested_by, Actor::system(BOOTS));
            assert!(
                woken.0.lock().unwrap().iter().all(|woken| *woken == job.id) && !woken.0.lock().unwrap().is_empty()
            );
        }
        let events = api.store.events(EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
        let told = events.iter().filter(|event| event.row.name == "node.boot_not_repeated").count();
        assert_eq!(told, usize::from(!has_bmc));
        let why = api.json(Method::GET, &format!("{NODE}/explain"), "").await.body.to_string();
        assert!(why.contains("boot 1 of 3 came up ill"), "{why}");
        assert_eq!(why.contains("power-cycle it by hand"), !has_bmc, "{why}");
        api.events_are_as_described().await;
    }
}
