//! Tasks of agents in both backends: one per key, what waits for whom, what is overdue.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod backends;
mod fixture;

use backends::on_each_backend;
use fixture::*;
use lattice_core::agent::task::{
    AllocationStop, DrainMode, HeartbeatCheck, NodeDrain, Progress, Task, TaskChange, TaskErrorCode, TaskInput,
    TaskKind, TaskOwner, TaskReport, TaskStatus,
};
use lattice_core::change::{Change, Commit, Guard, Outcome};
use lattice_core::command::task::{self, NewTask};
use lattice_core::ids::{AllocationId, Generation, JobId, OwnershipEpoch};
use lattice_core::job::StageName;
use lattice_core::node::Node;
use lattice_core::time::Timestamp;
use lattice_store::{EventFilter, PageRequest, Store, StoreConfig, TaskFilter, restore};

fn drain() -> TaskInput {
    TaskInput::NodeDrain(NodeDrain { mode: DrainMode::Begin })
}

fn issue(node: &Node, key: &str, input: TaskInput, owner: TaskOwner, now: Timestamp) -> (Task, Commit) {
    let new = NewTask { node, owner, key: key.to_owned(), input, term: None };
    task::issue(&request(now), new, [3; 16]).unwrap()
}

async fn seed(store: &Store) -> Node {
    let home = site("dc1");
    let node = node(home.id, "c01u01");
    let changes = vec![Change::Site(Box::new(home)), created(&node)];
    applied(&store.commit_one(commit(START, vec![], changes)).await.unwrap());
    node
}

async fn put(store: &Store, change: TaskChange, now: Timestamp) -> Task {
    let after = change.after.clone();
    applied(&store.commit_one(commit(now, vec![], vec![Change::Task(Box::new(change))])).await.unwrap());
    after
}

on_each_backend! {
    async fn the_same_key_is_the_same_task(store: Store) {
        let node = seed(&store).await;
        let (first, new) = issue(&node, "job/drain", drain(), TaskOwner::Request, START);
        applied(&store.commit_one(new).await.unwrap());
        let (_, second) = issue(&node, "job/drain", drain(), TaskOwner::Request, at(1));
        let refused = store.commit_one(second).await.unwrap();
        let taken = Outcome::Conflict { resource: "task key job/drain".to_owned(), have: first.id.to_string() };
        assert_eq!(refused, taken, "the conflict names the task");
        assert_eq!(store.task_by_key("job/drain").await.unwrap(), Some(first.clone()));
        assert_eq!(store.task(first.id).await.unwrap(), Some(first));
        assert_eq!(store.task_by_key("other").await.unwrap(), None);
    }

    async fn of_two_issues_in_one_batch_one_stands(store: Store) {
        let node = seed(&store).await;
        let (first, one) = issue(&node, "k", drain(), TaskOwner::Request, START);
        let (_, other) = issue(&node, "k", drain(), TaskOwner::Request, START);
        let outcomes = store.commit(vec![one, other]).await.unwrap();
        applied(&outcomes[0]);
        assert!(matches!(&outcomes[1], Outcome::Conflict { have, .. } if *have == first.id.to_string()));
    }

    async fn a_stale_writer_of_a_task_loses(store: Store) {
        let node = seed(&store).await;
        let (task, new) = issue(&node, "k", drain(), TaskOwner::Request, START);
        applied(&store.commit_one(new).await.unwrap());
        let sent = put(&store, task::delivered(&request(at(1)), &task).unwrap(), at(1)).await;
        let again = task::delivered(&request(at(1)), &task).unwrap();
        let stale = store.commit_one(commit(at(2), vec![], vec![Change::Task(Box::new(again))])).await.unwrap();
        assert!(matches!(stale, Outcome::Conflict { .. }), "{stale:?}");
        let guard = |have| vec![Guard::TaskGeneration { task: task.id, have }];
        let note = || Change::Note {
            name: "test.noted".to_owned(),
            resource: lattice_core::change::Resource::Task(task.id),
            detail: String::new(),
        };
        let guarded = store.commit_one(commit(at(3), guard(Generation(1)), vec![note()])).await.unwrap();
        assert!(matches!(guarded, Outcome::Conflict { .. }));
        applied(&store.commit_one(commit(at(3), guard(sent.generation), vec![note()])).await.unwrap());
    }

    async fn open_tasks_wait_for_their_node_and_overdue_ones_are_found(store: Store) {
        let node = seed(&store).await;
        let other = Node { hostname: "c01u02".to_owned(), ..super::fixture::node(node.site, "c01u02") };
        applied(&store.commit_one(commit(START, vec![], vec![created(&other)])).await.unwrap());
        let mut tasks = Vec::new();
        for (number, node) in [&node, &node, &other].into_iter().enumerate() {
            let now = at(number as u64);
            let (task, new) = issue(node, &format!("k{number}"), drain(), TaskOwner::Request, now);
            applied(&store.commit_one(new).await.unwrap());
            tasks.push(task);
        }
        let open = |store: &Store, node: &Node| {
            let (store, node) = (store.clone(), node.id);
            async move { store.open_tasks(node, 10).await.unwrap().into_iter().map(|task| task.id).collect::<Vec<_>>() }
        };
        assert_eq!(open(&store, &node).await, [tasks[0].id, tasks[1].id], "the oldest first");
        assert_eq!(store.open_tasks(node.id, 1).await.unwrap().len(), 1);
        let mut both = vec![node.id, other.id];
        both.sort();
        assert_eq!(store.nodes_with_tasks(None).await.unwrap(), both);
        assert_eq!(store.nodes_with_tasks(Some(both[0])).await.unwrap(), [both[1]]);
        assert_eq!(store.last_task_deadline().await.unwrap(), Some(at(302)));
        assert_eq!(store.nodes_to_remind(at(1), None).await.unwrap(), [node.id], "both were forgotten");
        let sent = put(&store, task::delivered(&request(at(5)), &tasks[0]).unwrap(), at(5)).await;
        assert_eq!(store.nodes_to_remind(at(0), None).await.unwrap(), []);
        assert_eq!(store.nodes_to_remind(at(5), None).await.unwrap(), both);
        assert_eq!(store.nodes_to_remind(at(5), Some(both[0])).await.unwrap(), [both[1]]);
        let report = TaskReport { task: sent.id, at: at(6), progress: Progress::Running };
        let running = put(&store, task::reported(&request(at(6)), &sent, &report).unwrap().unwrap(), at(6)).await;
        let no = Progress::failed(TaskErrorCode::EffectFailed, "no");
        let report = TaskReport { task: sent.id, at: at(7), progress: no };
        let over = put(&store, task::reported(&request(at(7)), &running, &report).unwrap().unwrap(), at(7)).await;
        assert_eq!(store.task(over.id).await.unwrap(), Some(over));
        assert_eq!(open(&store, &node).await, [tasks[1].id]);
        let overdue: Vec<_> = store.overdue_tasks(at(301)).await.unwrap().into_iter().map(|task| task.id).collect();
        assert_eq!(overdue, [tasks[1].id]);
        put(&store, task::expired(&request(at(301)), &tasks[1]).unwrap(), at(301)).await;
        assert!(store.overdue_tasks(at(301)).await.unwrap().is_empty());
        let counts = store.open_task_counts().await.unwrap();
        assert_eq!(counts.len(), 1);
        assert_eq!((counts[0].kind, counts[0].status, counts[0].count), (TaskKind::NodeDrain, TaskStatus::Pending, 1));
    }

    async fn tasks_are_listed_by_node_job_allocation_status_and_kind(store: Store) {
        let node = seed(&store).await;
        let (job, allocation) = (JobId::generate(&Ids, START), AllocationId::generate(&Ids, START));
        let owners = [
            (TaskOwner::Job { job, stage: StageName::DrainNode }, drain()),
            (TaskOwner::Allocation { allocation }, TaskInput::HeartbeatCheck(HeartbeatCheck {})),
            (TaskOwner::Request, TaskInput::AllocationStop(AllocationStop {
                allocation, ownership_epoch: OwnershipEpoch(1), grace_ms: 1_000,
            })),
        ];
        let mut ids = Vec::new();
        for (number, (owner, input)) in owners.into_iter().enumerate() {
            let (task, new) = issue(&node, &format!("k{number}"), input, owner, at(number as u64));
            applied(&store.commit_one(new).await.unwrap());
            ids.push(task.id);
        }
        let list = |filter: TaskFilter| {
            let store = store.clone();
            async move {
                let page = store.tasks(&filter, &PageRequest::first(10)).await.unwrap();
                page.items.into_iter().map(|task| task.id).collect::<Vec<_>>()
            }
        };
        let none = TaskFilter::default;
        assert_eq!(list(TaskFilter { node: Some(node.id), ..none() }).await, [ids[2], ids[1], ids[0]]);
        assert_eq!(list(TaskFilter { job: Some(job), ..none() }).await, [ids[0]]);
        assert_eq!(list(TaskFilter { allocation: Some(allocation), ..none() }).await, [ids[2], ids[1]]);
        assert_eq!(list(TaskFilter { kinds: vec![TaskKind::HeartbeatCheck], ..none() }).await, [ids[1]]);
        assert!(list(TaskFilter { statuses: vec![TaskStatus::Failed], ..none() }).await.is_empty());
        let first = store.tasks(&none(), &PageRequest::first(2)).await.unwrap();
        let rest = PageRequest { cursor: first.next, limit: 2 };
        assert_eq!(store.tasks(&none(), &rest).await.unwrap().items[0].id, ids[0]);
    }

    async fn what_happens_to_a_task_is_in_its_nodes_stream(store: Store) {
        let node = seed(&store).await;
        let seen = store.last_event().await.unwrap();
        let (task, new) = issue(&node, "k", drain(), TaskOwner::Request, START);
        applied(&store.commit_one(new).await.unwrap());
        put(&store, task::delivered(&request(at(1)), &task).unwrap(), at(1)).await;
        let events = store.events(seen, &EventFilter::default(), 10).await.unwrap();
        let told: Vec<_> = events.iter().map(|event| (event.row.name.as_str(), event.row.node)).collect();
        assert_eq!(told, [("task.issued", Some(node.id)), ("task.delivered", Some(node.id))]);
    }
}

#[tokio::test]
async fn tasks_survive_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let store = backends::sqlite(directory.path()).await;
    let node = seed(&store).await;
    let (task, new) = issue(&node, "k", drain(), TaskOwner::Request, START);
    applied(&store.commit_one(new).await.unwrap());
    let copy = directory.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    let target = directory.path().join("restored");
    std::fs::create_dir(&target).unwrap();
    let config = StoreConfig::sqlite(target.join("lattice.db"));
    restore(&copy, &config.backend).await.unwrap();
    let restored = Store::open(config).await.unwrap();
    assert_eq!(restored.task(task.id).await.unwrap(), Some(task));
}
