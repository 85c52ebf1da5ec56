//! Allocations in every backend: who waits longest, what is placed where, whose loss is held back.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod backends;
mod fixture;

use backends::on_each_backend;
use fixture::*;
use lattice_core::agent::task::{CheckpointHow, Limits};
use lattice_core::allocation::{Allocation, AllocationStatus, RequeuePolicy, Wanted, Workload};
use lattice_core::change::Change;
use lattice_core::command::allocation::{self, NewAllocation};
use lattice_core::ids::AllocationId;
use lattice_core::node::{Availability, Node, NodeClass, Status};
use lattice_core::time::Timestamp;
use lattice_store::{AllocationFilter, Page, PageRequest, Store};

async fn ask(store: &Store, user: &str, now: Timestamp) -> Allocation {
    let workload = Workload {
        argv: vec!["/usr/bin/train".to_owned()],
        env: Default::default(),
        directory: None,
        user: None,
        limits: Limits::default(),
        mounts: Vec::new(),
        checkpoint: CheckpointHow::None,
    };
    let new = NewAllocation {
        user: user.to_owned(),
        class: NodeClass::Standard,
        wanted: Wanted { gpus: 2, ..Wanted::default() },
        workload,
        requeue: RequeuePolicy::OnNodeFailure,
    };
    let (one, commit) = allocation::request(&request(now), new).unwrap();
    applied(&store.commit_one(commit).await.unwrap());
    one
}

/// Two ready nodes.
async fn seed(store: &Store) -> [Node; 2] {
    let home = site("dc1");
    let nodes = ["c01u01", "c01u02"].map(|name| node(home.id, name));
    let mut changes = vec![Change::Site(Box::new(home))];
    changes.extend(nodes.iter().map(created));
    applied(&store.commit_one(commit(START, vec![], changes)).await.unwrap());
    nodes
}

async fn place(store: &Store, one: &Allocation, node: &Node) -> Node {
    let commit = allocation::place(&request(at(9)), one, node, [3; 16]).unwrap();
    applied(&store.commit_one(commit).await.unwrap());
    store.node(node.id).await.unwrap().unwrap()
}

fn ids(page: &[Allocation]) -> Vec<AllocationId> {
    page.iter().map(|one| one.id).collect()
}

on_each_backend! {
    async fn a_queue_is_read_page_after_page_the_longest_waiting_first(store: Store) {
        let mut asked = Vec::new();
        for seconds in [3, 0, 2, 0, 1] {
            asked.push(ask(&store, "ada", at(seconds)).await);
        }
        let expected: Vec<AllocationId> = [1, 3, 4, 2, 0].map(|place: usize| asked[place].id).into();
        let mut page = PageRequest::first(2);
        let mut read = Vec::new();
        loop {
            let Page { items, next } = store.allocations_in(AllocationStatus::Requested, &page).await.unwrap();
            assert!(items.len() <= 2);
            read.extend(ids(&items));
            let Some(next) = next else { break };
            page.cursor = Some(next);
        }
        assert_eq!(read, expected);
        let none = store.allocations_in(AllocationStatus::Releasing, &PageRequest::first(2)).await.unwrap();
        assert_eq!((none.items.len(), none.next), (0, None));
    }

    async fn what_is_placed_is_found_by_its_node_its_user_and_its_status(store: Store) {
        let nodes = seed(&store).await;
        let (first, second, waits) =
            (ask(&store, "ada", at(1)).await, ask(&store, "ada", at(2)).await, ask(&store, "bob", at(3)).await);
        let owned = place(&store, &first, &nodes[0]).await;
        place(&store, &second, &owned).await;
        assert_eq!(ids(&store.placed_on(nodes[0].id).await.unwrap()), [first.id, second.id]);
        assert_eq!(store.placed_on(nodes[1].id).await.unwrap(), []);
        let placed = store.placed_on_any(&nodes.each_ref().map(|node| node.id)).await.unwrap();
        assert_eq!(placed.len(), 1, "a node with nothing is left out");
        assert_eq!(ids(&placed[&nodes[0].id]), [first.id, second.id]);
        assert_eq!(
            store.allocation_counts().await.unwrap(),
            [(AllocationStatus::Provisioning, 2), (AllocationStatus::Requested, 1)]
        );
        assert_eq!(store.active_counts().await.unwrap(), [], "being started is not running yet");

        let none = AllocationFilter::default;
        let list = async |filter| {
            ids(&store.allocations(&filter, &PageRequest::first(10)).await.unwrap().items)
        };
        assert_eq!(list(none()).await, [waits.id, second.id, first.id], "the newest first");
        assert_eq!(list(AllocationFilter { user: Some("bob".to_owned()), ..none() }).await, [waits.id]);
        assert_eq!(list(AllocationFilter { node: Some(nodes[0].id), ..none() }).await, [second.id, first.id]);
        let statuses = vec![AllocationStatus::Requested];
        assert_eq!(list(AllocationFilter { statuses, ..none() }).await, [waits.id]);
    }

    async fn only_lost_nodes_with_work_that_is_held_back_are_braked(store: Store) {
        let nodes = seed(&store).await;
        let one = ask(&store, "ada", at(1)).await;
        let owned = place(&store, &one, &nodes[0]).await;
        assert_eq!(store.braked_nodes().await.unwrap(), []);
        let (mut lost, _) = moved(&owned, Status::Offline, Availability::Down, at(10));
        lost.ownership.braked_until = Some(at(600));
        let (other, fell) = moved(&nodes[1], Status::Offline, Availability::Down, at(10));
        let changes = vec![updated(&owned, &lost), fell];
        applied(&store.commit_one(commit(at(10), vec![], changes)).await.unwrap());
        assert_eq!(store.braked_nodes().await.unwrap(), [lost.id], "{} has nothing to lose", other.hostname);
    }
}
