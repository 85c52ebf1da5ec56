//! One suite for both backends. SQLite always; PostgreSQL where `LATTICE_TEST_POSTGRES` names a server.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod fixture;

use std::time::Duration;

use fixture::*;
use lattice_core::change::{Change, Guard, NodeAction, Outcome, Resource};
use lattice_core::ids::{EventSeq, Generation, JobId, LeaseEpoch, NodeId, RoceId, SiteId};
use lattice_core::job::{JobLease, JobStatus, StageEventStatus, StageName};
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, HostFacts, Node, PowerFact, ProviderState, Status};
use lattice_core::site::credentials::{CredentialCause, CredentialName, SetBy, SiteCredential};
use lattice_core::site::{RoceAssignment, RoceRow};
use lattice_store::{
    EventFilter, Held, Invalid, JobFilter, NodeFilter, NodeSort, PageRequest, Store, StoreConfig, StoreError,
    audit_verify, restore,
};

mod backends;
use backends::on_each_backend;

async fn apply(store: &Store, changes: Vec<Change>) -> EventSeq {
    applied(&store.commit_one(commit(START, vec![], changes)).await.unwrap())
}

async fn fleet(store: &Store, names: &[&str]) -> (SiteId, Vec<Node>) {
    let site = site("dc1");
    let nodes: Vec<_> = names.iter().map(|name| node(site.id, name)).collect();
    let mut changes = vec![Change::Site(Box::new(site.clone()))];
    changes.extend(nodes.iter().map(created));
    apply(store, changes).await;
    (site.id, nodes)
}

on_each_backend! {
    async fn a_commit_is_read_back_as_it_was(store: Store) {
        let (site, nodes) = fleet(&store, &["c07u31"]).await;
        let mut after = nodes[0].successor(at(5));
        after.holds.push(Hold {
            kind: HoldKind::Maintenance,
            by: lattice_core::actor::Actor::system("test"),
            reason: "fan".to_owned(),
            since: at(5),
            until: Some(at(60)),
            job: None,
        });
        after.provider_ref = Some("4y3h7n".to_owned());
        apply(&store, vec![updated(&nodes[0], &after)]).await;
        assert_eq!(store.node(after.id).await.unwrap().as_ref(), Some(&after));
        assert_eq!(store.node_by_hostname("c07u31").await.unwrap().as_ref(), Some(&after));
        assert_eq!(store.node_by_provider_ref(site, "4y3h7n").await.unwrap().as_ref(), Some(&after));
        assert_eq!(store.node_by_hostname("c07u32").await.unwrap(), None);
        assert_eq!(store.site(site).await.unwrap(), store.site_by_name("dc1").await.unwrap());
        let row = store.nodes(&NodeFilter::default(), NodeSort::Hostname, &PageRequest::first(10)).await.unwrap();
        assert_eq!(row.items[0].holds, [HoldKind::Maintenance]);
        for now in [at(59), at(60)] {
            assert_eq!(row.items[0].is_schedulable(now), after.is_schedulable(now));
        }
    }

    async fn a_stale_generation_is_a_conflict_and_changes_nothing(store: Store) {
        let (_, nodes) = fleet(&store, &["a"]).await;
        let (down, change) = moved(&nodes[0], Status::Offline, Availability::Down, at(1));
        let (_, rival) = moved(&nodes[0], Status::Active, Availability::Degraded, at(1));
        let outcomes = store
            .commit(vec![commit(at(1), vec![], vec![change]), commit(at(1), vec![], vec![rival])])
            .await
            .unwrap();
        applied(&outcomes[0]);
        let resource = format!("node {}", down.id);
        assert_eq!(outcomes[1], Outcome::Conflict { resource, have: "generation 2".to_owned() });
        assert_eq!(store.node(down.id).await.unwrap(), Some(down));
    }

    async fn each_commit_of_a_call_stands_or_falls_alone(store: Store) {
        let (site, nodes) = fleet(&store, &["a", "b"]).await;
        let (a, move_a) = moved(&nodes[0], Status::Offline, Availability::Down, at(1));
        let (_, half) = moved(&nodes[1], Status::Offline, Availability::Down, at(1));
        let stray = node(site, "stray").successor(at(1));
        let missing = updated(&stray, &stray);
        let outcomes = store
            .commit(vec![
                commit(at(1), vec![], vec![half, missing]),
                commit(at(1), vec![], vec![move_a]),
            ])
            .await
            .unwrap();
        assert_eq!(outcomes[0], Outcome::Missing { resource: format!("node {}", stray.id) });
        applied(&outcomes[1]);
        assert_eq!(store.node(a.id).await.unwrap(), Some(a));
        assert_eq!(store.node(nodes[1].id).await.unwrap().as_ref(), Some(&nodes[1]));
        assert_eq!(store.history(nodes[1].id, &PageRequest::first(10)).await.unwrap().items.len(), 1);
    }

    async fn two_commits_of_one_row_in_one_call_follow_each_other(store: Store) {
        let (_, nodes) = fleet(&store, &["a"]).await;
        let (degraded, first) = moved(&nodes[0], Status::Active, Availability::Degraded, at(1));
        let (down, second) = moved(&degraded, Status::Offline, Availability::Down, at(2));
        let outcomes = store
            .commit(vec![commit(at(1), vec![], vec![first]), commit(at(2), vec![], vec![second])])
            .await
            .unwrap();
        assert!(outcomes.iter().all(|outcome| applied(outcome) > EventSeq(0)));
        assert_eq!(store.node(down.id).await.unwrap().as_ref(), Some(&down));
        let history = store.history(down.id, &PageRequest::first(10)).await.unwrap().items;
        let states: Vec<_> = history.iter().map(|entry| entry.row.after.to_string()).collect();
        assert_eq!(states, ["offline / down", "active / degraded", "active / ready"]);
        assert_eq!(history[0].row.before, Some(degraded.state));
        assert_eq!(history[2].row.action, NodeAction::Created);
    }

    // Another's change may bring the row to the very generation that the second one builds on.
    async fn the_rest_of_a_chain_falls_with_its_beginning(store: Store) {
        let (_, nodes) = fleet(&store, &["a"]).await;
        let other = Node { minor_issue: Some("another's".to_owned()), ..nodes[0].successor(at(1)) };
        let first = Node { boot_id: Some("boot".to_owned()), ..nodes[0].successor(at(1)) };
        let second = Node { boot_failures: 1, ..first.successor(at(2)) };
        apply(&store, vec![updated(&nodes[0], &other)]).await;
        let first = commit(at(1), vec![], vec![updated(&nodes[0], &first)]);
        let second = commit(at(2), vec![Guard::After { op: first.op }], vec![updated(&nodes[0], &second)]);
        let outcomes = store.commit(vec![first, second]).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Conflict { .. }), "{outcomes:?}");
        assert!(matches!(outcomes[1], Outcome::Missing { .. }), "{outcomes:?}");
        assert_eq!(store.node(other.id).await.unwrap(), Some(other));
    }

    async fn a_repeated_op_is_answered_with_its_first_outcome(store: Store) {
        let (site, _) = fleet(&store, &[]).await;
        let node = node(site, "a");
        let create = commit(START, vec![], vec![created(&node)]);
        let twice = store.commit(vec![create.clone(), create.clone()]).await.unwrap();
        let seq = applied(&twice[0]);
        assert_eq!(twice[1], Outcome::Duplicate { seq });
        assert_eq!(store.commit_one(create).await.unwrap(), Outcome::Duplicate { seq });
        assert_eq!(store.history(node.id, &PageRequest::first(10)).await.unwrap().items.len(), 1);
    }

    async fn guards_refuse_what_they_should(store: Store) {
        let (site, nodes) = fleet(&store, &["a", "b"]).await;
        let work = job(&nodes[0]);
        apply(&store, vec![work.clone().created()]).await;
        let epoch = store.acquire("site/x", "s1", START, Duration::from_secs(10)).await.unwrap().unwrap();
        let wrong = Generation(7);
        let absent = NodeId::new(uuid::Uuid::nil());
        let lease = |epoch| Guard::Lease { name: "site/x".to_owned(), epoch };
        let cases = [
            (Guard::NodeGeneration { node: nodes[0].id, have: Generation::FIRST }, "applied"),
            (Guard::NodeGeneration { node: nodes[0].id, have: wrong }, "conflict"),
            (Guard::NodeGeneration { node: absent, have: wrong }, "missing"),
            (Guard::JobGeneration { job: work.id, have: Generation::FIRST }, "applied"),
            (Guard::JobGeneration { job: work.id, have: wrong }, "conflict"),
            (lease(epoch), "applied"),
            (lease(LeaseEpoch(epoch.0 + 1)), "fenced"),
            (Guard::Lease { name: "unknown".to_owned(), epoch }, "fenced"),
            (Guard::HostnameFree { hostname: "c".to_owned() }, "applied"),
            (Guard::HostnameFree { hostname: "a".to_owned() }, "conflict"),
            (Guard::NoLiveJob { node: nodes[0].id }, "conflict"),
            (Guard::NoLiveJob { node: nodes[1].id }, "applied"),
        ];
        for (guard, expected) in cases {
            let note = Change::Note {
                name: "test.note".to_owned(),
                resource: Resource::Site(site),
                detail: String::new(),
            };
            let outcome = store.commit_one(commit(START, vec![guard.clone()], vec![note])).await.unwrap();
            let name = serde_json::to_value(&outcome).unwrap()["outcome"].as_str().unwrap().to_owned();
            assert_eq!(name, expected, "{guard:?} gave {outcome:?}");
        }
    }

    async fn unique_keys_are_conflicts_that_name_the_holder(store: Store) {
        let (site, nodes) = fleet(&store, &["a"]).await;
        let mut b = node(site, "b");
        b.provider_ref = Some("m1".to_owned());
        apply(&store, vec![created(&b)]).await;
        let mut same_machine = node(site, "c");
        same_machine.provider_ref = Some("m1".to_owned());
        apply(&store, vec![Change::EnrollmentToken(enrollment_token(b.id, "h1"))]).await;
        apply(&store, vec![Change::ApiToken(api_token("h1"))]).await;
        let same_site = fixture::site("dc1");
        let have = |change| async {
            match store.commit_one(commit(START, vec![], vec![change])).await.unwrap() {
                Outcome::Conflict { have, .. } => have,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(have(created(&node(site, "a"))).await, nodes[0].id.to_string());
        assert_eq!(have(created(&same_machine)).await, b.id.to_string());
        assert_eq!(have(Change::Site(Box::new(same_site))).await, site.to_string());
        have(Change::EnrollmentToken(enrollment_token(b.id, "h1"))).await;
        have(Change::ApiToken(api_token("h1"))).await;
    }

    // Two creations of one commit with one hostname: the guards look at what is stored, and see neither.
    async fn a_key_that_no_guard_knows_fells_only_its_own_commit(store: Store) {
        let (site, _) = fleet(&store, &["a"]).await;
        let twins = vec![created(&node(site, "twin")), created(&node(site, "twin"))];
        let outcomes = store
            .commit(vec![
                commit(START, vec![], vec![created(&node(site, "before"))]),
                commit(START, vec![], twins),
                commit(START, vec![], vec![created(&node(site, "after"))]),
            ])
            .await
            .unwrap();
        let first = applied(&outcomes[0]);
        assert!(matches!(outcomes[1], Outcome::Conflict { .. }), "{:?}", outcomes[1]);
        assert_eq!(applied(&outcomes[2]), EventSeq(first.0 + 1));
        assert_eq!(pages(&store, &NodeFilter::default(), NodeSort::Hostname).await, ["a", "after", "before"]);
        let counted: u64 = store.node_counts().await.unwrap().iter().map(|count| count.nodes).sum();
        assert_eq!(counted, 3);
        let mut export = Vec::new();
        let summary = store.audit_export(&mut export).await.unwrap();
        assert_eq!(audit_verify(export.as_slice()).unwrap(), summary);
    }

    async fn the_hostname_of_a_deleted_node_is_free_again(store: Store) {
        let (site, nodes) = fleet(&store, &["a"]).await;
        let (_, retire) = moved(&nodes[0], Status::Deleted, Availability::Unknown, at(1));
        let next = node(site, "a");
        let outcomes = store
            .commit(vec![commit(at(1), vec![], vec![retire]), commit(at(2), vec![], vec![created(&next)])])
            .await
            .unwrap();
        assert!(outcomes.iter().all(|outcome| applied(outcome) > EventSeq(0)));
        assert_eq!(store.node_by_hostname("a").await.unwrap(), Some(next));
    }

    async fn a_commit_that_can_never_be_right_is_a_typed_error(store: Store) {
        let (site, nodes) = fleet(&store, &["a"]).await;
        let before = store.last_event().await.unwrap();
        let (_, forbidden) = moved(&nodes[0], Status::Active, Availability::Down, at(1));
        let (_, fine) = moved(&nodes[0], Status::Offline, Availability::Down, at(1));
        let mut zero = node(site, "b");
        zero.generation = Generation(0);
        let cases = [
            (vec![forbidden], "ForbiddenPair"),
            (vec![fine.clone(), fine.clone()], "Twice"),
            (vec![created(&zero)], "GenerationZero"),
            (vec![updated(&nodes[0], &nodes[0])], "FalseBefore"),
        ];
        for (changes, expected) in cases {
            let good = commit(at(1), vec![], vec![created(&node(site, "good"))]);
            match store.commit(vec![good, commit(at(1), vec![], changes)]).await {
                Err(StoreError::InvalidCommit { why, .. }) => {
                    assert!(format!("{why:?}").starts_with(expected), "{why:?}");
                    assert!(!matches!(why, Invalid::ForbiddenPair { .. }) || why.to_string().contains("active / down"));
                }
                other => panic!("{expected}: {other:?}"),
            }
        }
        assert_eq!(store.last_event().await.unwrap(), before);
    }

    async fn a_false_story_about_the_state_before_is_a_conflict(store: Store) {
        let (_, nodes) = fleet(&store, &["a"]).await;
        let mut liar = nodes[0].clone();
        liar.state.availability = Availability::Degraded;
        let (_, change) = moved(&liar, Status::Offline, Availability::Down, at(1));
        match store.commit_one(commit(at(1), vec![], vec![change])).await.unwrap() {
            Outcome::Conflict { have, .. } => assert_eq!(have, "active / ready"),
            other => panic!("{other:?}"),
        }
    }

    async fn events_are_dense_in_commit_order_and_wake_followers(store: Store) {
        let (site, nodes) = fleet(&store, &["a", "b"]).await;
        let start = store.last_event().await.unwrap();
        let mut follower = store.follow();
        let work = job(&nodes[0]);
        apply(&store, vec![work.clone().created()]).await;
        let commits = (0..50).map(|n| commit(at(n), vec![], vec![created(&node(site, &format!("n{n}")))])).collect();
        let outcomes = store.commit(commits).await.unwrap();
        let last = follower.after(start).await.unwrap();
        assert!(last > start);
        let all = store.events(EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
        let places: Vec<_> = all.iter().map(|event| event.seq.0).collect();
        assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>());
        assert_eq!(all.last().unwrap().seq, applied(outcomes.last().unwrap()));
        let few = store.events(EventSeq(3), &EventFilter::default(), 2).await.unwrap();
        assert_eq!(few, all[3..5]);
        let of_node = EventFilter { node: Some(nodes[0].id), job: None };
        let names: Vec<_> = store.events(EventSeq(0), &of_node, 10).await.unwrap();
        assert_eq!(names.iter().map(|event| event.row.name.as_str()).collect::<Vec<_>>(), ["node.created", "job.changed"]);
        let of_job = EventFilter { node: None, job: Some(work.id) };
        assert_eq!(store.events(EventSeq(0), &of_job, 10).await.unwrap().len(), 1);
        assert_eq!(store.latest_events(&EventFilter::default(), 1).await.unwrap(), all[all.len() - 1..]);
    }

    // More than PostgreSQL judges in one go: what the first part did stands for the second.
    async fn thousands_of_commits_in_one_call_follow_each_other(store: Store) {
        const BESIDE: usize = 1_500;
        let (site, nodes) = fleet(&store, &["a"]).await;
        let (down, first) = moved(&nodes[0], Status::Offline, Availability::Down, at(1));
        let (back, last) = moved(&down, Status::Active, Availability::Ready, at(2));
        let beside = (0..BESIDE).map(|n| commit(at(1), vec![], vec![created(&node(site, &format!("n{n}")))]));
        let mut commits = vec![commit(at(1), vec![], vec![first])];
        commits.extend(beside);
        commits.push(commit(at(2), vec![], vec![last]));
        // The node is not as this one found it any more.
        commits.push(commit(at(3), vec![], vec![moved(&nodes[0], Status::Offline, Availability::Down, at(3)).1]));
        let mut outcomes = store.commit(commits).await.unwrap();
        assert!(matches!(outcomes.pop(), Some(Outcome::Conflict { .. })));
        let places: Vec<u64> = outcomes.iter().map(|outcome| applied(outcome).0).collect();
        assert!(places.windows(2).all(|two| two[1] == two[0] + 1), "{places:?}");
        assert_eq!(store.node(nodes[0].id).await.unwrap(), Some(back));
        let counted: u64 = store.node_counts().await.unwrap().iter().map(|count| count.nodes).sum();
        assert_eq!(counted, BESIDE as u64 + 1);
        let mut export = Vec::new();
        let summary = store.audit_export(&mut export).await.unwrap();
        assert_eq!(audit_verify(export.as_slice()).unwrap(), summary);
    }

    async fn the_audit_is_a_chain_that_shows_tampering(store: Store) {
        let (site, nodes) = fleet(&store, &["a"]).await;
        let refusal = Change::Refusal {
            action: "enroll".to_owned(),
            resource: Resource::Node(nodes[0].id),
            detail: "the token was used before".to_owned(),
        };
        apply(&store, vec![refusal]).await;
        apply(&store, vec![created(&node(site, "b"))]).await;
        let mut export = Vec::new();
        let summary = store.audit_export(&mut export).await.unwrap();
        let text = String::from_utf8(export).unwrap();
        assert_eq!(audit_verify(text.as_bytes()).unwrap(), summary);
        assert_eq!(summary.rows, 4);
        let changed = text.replace("used before", "used never");
        assert!(audit_verify(changed.as_bytes()).unwrap_err().to_string().contains("audit row 3"));
        let cut: String = text.lines().enumerate().filter(|(n, _)| *n != 1).map(|(_, line)| format!("{line}\n")).collect();
        assert!(audit_verify(cut.as_bytes()).unwrap_err().to_string().contains("row 2 must stand"));
        let page = store.audit(Some(&Resource::Node(nodes[0].id)), &PageRequest::first(1)).await.unwrap();
        assert_eq!(page.items[0].row.result, "refused");
        let rest = store
            .audit(Some(&Resource::Node(nodes[0].id)), &PageRequest { cursor: page.next, limit: 10 })
            .await
            .unwrap();
        assert_eq!(rest.items.iter().map(|entry| entry.row.action.as_str()).collect::<Vec<_>>(), ["node.created"]);
        assert_eq!(rest.next, None);
    }

    async fn a_lease_has_one_holder_and_fences_the_former(store: Store) {
        let ttl = Duration::from_secs(10);
        let first = store.acquire("driver", "s1", at(0), ttl).await.unwrap().unwrap();
        assert_eq!(store.acquire("driver", "s2", at(5), ttl).await.unwrap(), None);
        assert!(store.renew("driver", first, at(5), ttl).await.unwrap());
        assert_eq!(store.acquire("driver", "s2", at(14), ttl).await.unwrap(), None);
        let lease = store.lease("driver").await.unwrap().unwrap();
        assert_eq!((lease.holder.as_str(), lease.epoch, lease.until), ("s1", first, at(15)));
        let second = store.acquire("driver", "s2", at(15), ttl).await.unwrap().unwrap();
        assert!(second > first);
        assert!(!store.renew("driver", first, at(15), ttl).await.unwrap());
        store.release("driver", first).await.unwrap();
        assert_eq!(store.lease("driver").await.unwrap().unwrap().holder, "s2");
        let again = store.acquire("driver", "s2", at(16), ttl).await.unwrap().unwrap();
        assert!(again > second, "a server that starts anew is not its own former life");
        store.release("driver", again).await.unwrap();
        assert_eq!(store.lease("driver").await.unwrap(), None);
        let third = store.acquire("driver", "s3", at(16), ttl).await.unwrap().unwrap();
        assert!(third > again);
    }

    async fn a_loop_has_its_lease_until_it_stops_or_has_been_gone_for_half_a_minute(store: Store) {
        let (mut one, mut two) = (Held::new("loop", "s1".to_owned()), Held::new("loop", "s2".to_owned()));
        let guarded = |epoch, name: &str| {
            let detail = String::new();
            let note = Change::Note { name: name.to_owned(), resource: Resource::Site(site("x").id), detail };
            commit(START, vec![Guard::Lease { name: "loop".to_owned(), epoch }], vec![note])
        };
        let first = one.epoch(&store, at(0)).await.unwrap().unwrap();
        assert_eq!(one.epoch(&store, at(20)).await.unwrap(), Some(first), "renewed");
        assert_eq!(two.epoch(&store, at(49)).await.unwrap(), None);
        assert_eq!(two.epoch(&store, at(50)).await.unwrap(), None, "it asks every five seconds");
        let second = two.epoch(&store, at(54)).await.unwrap().unwrap();
        assert_eq!(one.epoch(&store, at(34)).await.unwrap(), Some(first), "its clock is behind: it believes so");
        let outcomes = store.commit(vec![guarded(first, "test.one"), guarded(second, "test.two")]).await.unwrap();
        assert!(matches!(outcomes[..], [Outcome::Fenced, Outcome::Applied { .. }]), "{outcomes:?}");
        assert_eq!(one.epoch(&store, at(55)).await.unwrap(), None, "it learns it when it renews");
        let mut back = Held::new("back", "s1".to_owned());
        let first = back.epoch(&store, at(1_000)).await.unwrap().unwrap();
        store.acquire("back", "s2", at(1_040), Duration::from_secs(30)).await.unwrap().unwrap();
        assert_eq!(back.epoch(&store, at(1_010)).await.unwrap(), Some(first), "it was renewed not long ago");
        assert_eq!(back.epoch(&store, at(500)).await.unwrap(), None, "its clock was set back: it asks");
        two.release(&store).await;
        assert_eq!(store.lease("loop").await.unwrap(), None);
        assert!(one.epoch(&store, at(60)).await.unwrap() > Some(second));
        two.release(&store).await;
        assert_eq!(store.lease("loop").await.unwrap().unwrap().holder, "s1", "what it has not, it does not give back");
    }

    async fn nodes_are_filtered_sorted_and_paged(store: Store) {
        let (site, nodes) = fleet(&store, &["c1", "a1", "b1", "a2"]).await;
        let (_, down) = moved(&nodes[0], Status::Offline, Availability::Down, at(1));
        let mut held = nodes[1].successor(at(1));
        held.holds.push(Hold {
            kind: HoldKind::Maintenance,
            by: lattice_core::actor::Actor::system("test"),
            reason: String::new(),
            since: at(1),
            until: None,
            job: None,
        });
        let (_, gone) = moved(&nodes[2], Status::Deleted, Availability::Unknown, at(1));
        held.ownership = held.ownership.with("ada", held.class, 8);
        apply(&store, vec![down, updated(&nodes[1], &held), gone]).await;
        let failed = worked(&job(&nodes[3]), JobStatus::FailedRetryable, &[]).0;
        let work = job(&nodes[3]);
        apply(&store, vec![work.clone().created()]).await;
        let all = NodeFilter::default;
        let cases: Vec<(NodeFilter, &[&str])> = vec![
            (all(), &["a1", "a2", "c1"]),
            (NodeFilter { statuses: vec![Status::Deleted], ..all() }, &["b1"]),
            (NodeFilter { statuses: vec![Status::Offline, Status::Deleted], ..all() }, &["b1", "c1"]),
            (NodeFilter { availabilities: vec![Availability::Ready], ..all() }, &["a1", "a2"]),
            (NodeFilter { site: Some(site), hostname_prefix: Some("a".to_owned()), ..all() }, &["a1", "a2"]),
            (NodeFilter { sku: Some("other".to_owned()), ..all() }, &[]),
            (NodeFilter { hold: Some(HoldKind::Maintenance), ..all() }, &["a1"]),
            (NodeFilter { hold: Some(HoldKind::Disabled), ..all() }, &[]),
            (NodeFilter { schedulable_at: Some(at(2)), ..all() }, &["a2"]),
            (NodeFilter { idle: Some(true), ..all() }, &["a2", "c1"]),
            (NodeFilter { idle: Some(false), ..all() }, &["a1"]),
            (NodeFilter { needs_attention: true, ..all() }, &["c1"]),
        ];
        for (filter, expected) in cases {
            let page = store.nodes(&filter, NodeSort::Hostname, &PageRequest::first(10)).await.unwrap();
            let names: Vec<_> = page.items.iter().map(|node| node.hostname.as_str()).collect();
            assert_eq!(names, expected, "{filter:?}");
        }
        apply(&store, vec![worked(&work, failed.state.status, &[]).1]).await;
        let attention = NodeFilter { needs_attention: true, ..all() };
        assert_eq!(pages(&store, &attention, NodeSort::Hostname).await, ["a2", "c1"]);
        assert_eq!(pages(&store, &all(), NodeSort::Hostname).await, ["a1", "a2", "c1"]);
        assert_eq!(pages(&store, &all(), NodeSort::Oldest).await, ["c1", "a1", "a2"]);
        assert_eq!(pages(&store, &all(), NodeSort::Newest).await, ["a2", "a1", "c1"]);
        let mut seen = Vec::new();
        store.each_node(|node| seen.push(node.hostname)).await.unwrap();
        assert_eq!(seen, ["c1", "a1", "a2"]);
    }

    async fn a_foreign_cursor_is_refused(store: Store) {
        let page = PageRequest { cursor: Some(lattice_store::Cursor::from_text("nonsense")), limit: 10 };
        let refused = store.nodes(&NodeFilter::default(), NodeSort::Hostname, &page).await;
        assert!(matches!(refused, Err(StoreError::BadCursor { .. })), "{refused:?}");
    }

    async fn counts_follow_every_change(store: Store) {
        let (_, nodes) = fleet(&store, &["a", "b", "c"]).await;
        let (down, first) = moved(&nodes[0], Status::Offline, Availability::Down, at(1));
        let (_, back) = moved(&down, Status::Active, Availability::Ready, at(2));
        let (_, second) = moved(&nodes[1], Status::Offline, Availability::Down, at(2));
        apply(&store, vec![first]).await;
        apply(&store, vec![back, second]).await;
        let counts = store.node_counts().await.unwrap();
        let counts = by_name(counts.into_iter().map(|count| (count.state, count.nodes)));
        assert_eq!(counts, by_name([("active / ready", 2), ("offline / down", 1)]));
    }

    async fn nodes_that_are_down_are_counted_by_status_and_cause(store: Store) {
        let (_, nodes) = fleet(&store, &["a", "b", "c", "d", "e"]).await;
        let rows = [
            (Status::Offline, Availability::Down, Some(DownCause::HeartbeatLost)),
            (Status::Offline, Availability::Down, Some(DownCause::Disabled)),
            (Status::Offline, Availability::Down, Some(DownCause::Disabled)),
            (Status::Quarantined, Availability::Down, Some(DownCause::WipeFailed)),
            (Status::Active, Availability::Ready, None),
        ];
        let changes = nodes.iter().zip(rows).map(|(node, (status, availability, cause))| {
            let mut after = moved(node, status, availability, at(1)).0;
            after.down_cause = cause;
            updated(node, &after)
        });
        apply(&store, changes.collect()).await;
        let counts = store.down_counts().await.unwrap();
        let expected = [
            (Status::Offline, Some(DownCause::Disabled), 2),
            (Status::Offline, Some(DownCause::HeartbeatLost), 1),
            (Status::Quarantined, Some(DownCause::WipeFailed), 1),
        ];
        assert_eq!(counts, expected);
    }

    async fn jobs_are_listed_and_found_when_due(store: Store) {
        let (site, nodes) = fleet(&store, &["a", "b", "c"]).await;
        let jobs: Vec<_> = nodes.iter().map(job).collect();
        apply(&store, jobs.iter().map(|job| job.clone().created()).collect()).await;
        let leased = |after: &mut lattice_core::job::Job| {
            after.lease = Some(JobLease { holder: "s1".to_owned(), until: at(30) });
        };
        let (mut sleeping, _) = worked(&jobs[0], JobStatus::Running, &[]);
        sleeping.state.next_at = Some(at(20));
        let (mut held, _) = worked(&jobs[1], JobStatus::Running, &[]);
        leased(&mut held);
        let (mut done, _) = worked(&jobs[2], JobStatus::Completed, &[]);
        done.finished_at = Some(at(9));
        let change = |before: &lattice_core::job::Job, after: &lattice_core::job::Job| {
            Change::Job(Box::new(lattice_core::change::JobChange {
                after: after.clone(),
                before: Some(before.state.status),
                cause: "worked".to_owned(),
                stage_events: vec![],
                visible: false,
            }))
        };
        assert_eq!(store.due_jobs(START, 10).await.unwrap().len(), 3);
        apply(&store, vec![change(&jobs[0], &sleeping), change(&jobs[1], &held), change(&jobs[2], &done)]).await;
        for (now, expected) in [(at(19), vec![]), (at(20), vec![sleeping.id]), (at(30), vec![sleeping.id, held.id])] {
            let found: Vec<_> = store.due_jobs(now, 10).await.unwrap().iter().map(|job| job.id).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(store.next_due().await.unwrap(), Some(at(20)));
        assert_eq!(store.runnable_jobs(None).await.unwrap(), [sleeping.clone(), held.clone()]);
        assert_eq!(store.runnable_jobs(Some(sleeping.id)).await.unwrap(), [held.clone()]);
        assert_eq!(store.job(done.id).await.unwrap().as_ref(), Some(&done));
        for job in [&sleeping, &held, &done] {
            let (found, node) = store.job_and_node(job.id).await.unwrap().unwrap();
            assert_eq!((&found, Some(node)), (job, store.node(job.node).await.unwrap()));
        }
        assert_eq!(store.job_and_node(JobId::new(done.node.uuid())).await.unwrap(), None);
        let beside = store.reading_beside_commits();
        assert_eq!(beside.job_and_node(done.id).await.unwrap(), store.job_and_node(done.id).await.unwrap());
        assert_eq!(store.live_job(done.node).await.unwrap(), None);
        assert_eq!(store.live_job(held.node).await.unwrap().as_ref(), Some(&held));
        let running = JobFilter { statuses: vec![JobStatus::Running], site: Some(site), ..JobFilter::default() };
        let first = store.jobs(&running, &PageRequest::first(1)).await.unwrap();
        assert_eq!((first.items[0].id, first.items[0].lease.clone()), (held.id, held.lease.clone()));
        let rest = store.jobs(&running, &PageRequest { cursor: first.next, limit: 1 }).await.unwrap();
        assert_eq!((rest.items[0].id, rest.next), (sleeping.id, None));
        let of_node = JobFilter { node: Some(done.node), stage: Some(done.state.stage), ..JobFilter::default() };
        assert_eq!(store.jobs(&of_node, &PageRequest::first(9)).await.unwrap().items.len(), 1);
        assert_eq!(by_name(store.job_counts().await.unwrap()), by_name([("completed", 1), ("running", 2)]));
    }

    async fn stage_events_tell_a_job_and_how_long_stages_take(store: Store) {
        let (_, nodes) = fleet(&store, &["a"]).await;
        let stage = StageName::LoadSiteConfig;
        let work = job(&nodes[0]);
        let (running, begun) = worked(&work, JobStatus::Running, &[(stage, StageEventStatus::Started)]);
        let (_, done) = worked(&running, JobStatus::Completed, &[
            (stage, StageEventStatus::Succeeded),
            (StageName::WaitForAgentEnrollment, StageEventStatus::Skipped),
        ]);
        for (seconds, change) in [(0, work.clone().created()), (1, begun), (43, done)] {
            applied(&store.commit_one(commit(at(seconds), vec![], vec![change])).await.unwrap());
        }
        let events = store.stage_events(work.id).await.unwrap();
        let told: Vec<_> = events.iter().map(|record| (record.at, record.event.status)).collect();
        assert_eq!(told, [
            (at(1), StageEventStatus::Started),
            (at(43), StageEventStatus::Succeeded),
            (at(43), StageEventStatus::Skipped),
        ]);
        for (sku, runs) in [(None, 1), (Some(nodes[0].sku.as_str()), 1), (Some("other"), 0)] {
            let times = store.stage_times(&[stage, StageName::WaitForAgentEnrollment], sku).await.unwrap();
            assert_eq!(times.len(), runs, "{sku:?}");
            for time in times {
                assert_eq!((time.stage, time.runs, time.p50, time.p95), (stage, 1, Duration::from_secs(42), Duration::from_secs(42)));
            }
        }
    }

    async fn observations_and_credentials_are_kept(store: Store) {
        let (site, nodes) = fleet(&store, &["a"]).await;
        let facts = HostFacts { cpus: 64, ..HostFacts::default() };
        let seen = ProviderState {
            node: nodes[0].id,
            site,
            provider_ref: "m1".to_owned(),
            status: "Deployed".to_owned(),
            power: PowerFact::Unknown,
            addresses: vec!["10.0.0.7".to_owned()],
            observed_at: at(3),
        };
        let roce = RoceAssignment {
            hostname: "a".to_owned(),
            interface: "eth1".to_owned(),
            ipv4_cidr: "172.30.9.61/31".parse().unwrap(),
        };
        let token = enrollment_token(nodes[0].id, "hash");
        let api = api_token("api");
        let kind = sku("mi300x");
        apply(&store, vec![
            Change::HostFacts { node: nodes[0].id, facts: facts.clone() },
            Change::ProviderState(seen.clone()),
            Change::Roce(RoceRow::new(RoceId::generate(&Ids, START), site, roce.clone(), START)),
            Change::EnrollmentToken(token.clone()),
            Change::ApiToken(api.clone()),
            Change::Sku(kind.clone()),
        ]).await;
        let again = ProviderState { power: PowerFact::Off, ..seen.clone() };
        let mut used = token.clone();
        used.used_at = Some(at(4));
        used.generation = used.generation.next();
        apply(&store, vec![Change::ProviderState(again.clone()), Change::EnrollmentToken(used.clone())]).await;
        assert_eq!(store.host_facts(nodes[0].id).await.unwrap(), Some((facts, START)));
        assert_eq!(store.provider_state(nodes[0].id).await.unwrap(), Some(again));
        assert_eq!(store.roce_assignments(site, "a").await.unwrap(), [roce]);
        assert_eq!(store.roce_assignments(site, "b").await.unwrap(), []);
        assert_eq!(store.enrollment_token_by_hash("hash").await.unwrap().as_ref(), Some(&used));
        assert_eq!(store.enrollment_token(used.id).await.unwrap().as_ref(), Some(&used));
        assert_eq!(store.enrollment_tokens_of(nodes[0].id).await.unwrap(), [used]);
        assert_eq!(store.api_token_by_hash("api").await.unwrap().as_ref(), Some(&api));
        assert_eq!(store.api_tokens().await.unwrap(), [api]);
        assert_eq!(store.sku("mi300x").await.unwrap().as_ref(), Some(&kind));
        assert_eq!(store.skus().await.unwrap(), [kind]);
        assert_eq!(store.sites().await.unwrap().len(), 1);
    }

    async fn what_is_known_of_a_credential_is_kept_and_guarded(store: Store) {
        let (site, _) = fleet(&store, &[]).await;
        let by = SetBy { who: "ada".to_owned(), at: at(3) };
        let token = SiteCredential::unknown(site, CredentialName::ApiToken, "kv/maas-sites/x/api-token");
        let power = SiteCredential::unknown(site, CredentialName::Power, "kv/maas-sites/x/power/default").set(by.clone());
        let first = token.clone().set(by);
        let set = |after: &SiteCredential| Change::SiteCredential { after: after.clone(), cause: CredentialCause::Set };
        apply(&store, vec![set(&first), set(&power)]).await;
        let refused = first.clone().refused("401".to_owned());
        let late = Change::SiteCredential { after: first.clone().validated(at(9)), cause: CredentialCause::Validated };
        apply(&store, vec![Change::SiteCredential { after: refused.clone(), cause: CredentialCause::Refused }]).await;
        for stale in [late, set(&first)] {
            let outcome = store.commit_one(commit(at(10), vec![], vec![stale])).await.unwrap();
            assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");
        }
        assert_eq!(store.site_credentials(Some(site)).await.unwrap(), [refused.clone(), power.clone()]);
        assert_eq!(store.site_credentials(None).await.unwrap(), [refused, power]);
        let other = SiteId::new(uuid::Uuid::nil());
        assert_eq!(store.site_credentials(Some(other)).await.unwrap(), []);
    }

    async fn a_backup_is_of_one_moment_and_restores_to_the_same(store: Store) {
        let (site, nodes) = fleet(&store, &["a", "b"]).await;
        apply(&store, vec![job(&nodes[0]).created()]).await;
        store.acquire("driver", "s1", START, Duration::from_secs(10)).await.unwrap();
        let writer = {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..200 {
                    apply(&store, vec![created(&node(site, &format!("n{n}")))]).await;
                }
            })
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("backup.db");
        let summary = store.backup(&file).await.unwrap();
        assert!(matches!(store.backup(&file).await, Err(StoreError::TargetExists { .. })));
        writer.await.unwrap();
        let config = StoreConfig::sqlite(directory.path().join("restored/lattice.db"));
        std::fs::create_dir(directory.path().join("restored")).unwrap();
        let restored = restore(&file, &config.backend).await.unwrap();
        assert_eq!((restored.nodes, restored.events), (summary.nodes, summary.events));
        assert!(matches!(restore(&file, &config.backend).await, Err(StoreError::TargetExists { .. })));
        let copy = Store::open(config).await.unwrap();
        assert_eq!(copy.last_event().await.unwrap(), EventSeq(summary.events));
        assert_eq!(copy.node(nodes[0].id).await.unwrap().as_ref(), Some(&nodes[0]));
        assert_eq!(copy.live_job(nodes[0].id).await.unwrap(), store.live_job(nodes[0].id).await.unwrap());
        assert_eq!(copy.lease("driver").await.unwrap(), store.lease("driver").await.unwrap());
        let mut export = Vec::new();
        let audit = copy.audit_export(&mut export).await.unwrap();
        assert_eq!(audit_verify(export.as_slice()).unwrap(), audit);
        assert_eq!(audit.rows, summary.audit_rows);
        assert_eq!(apply(&copy, vec![created(&node(site, "later"))]).await, EventSeq(summary.events + 1));
    }

    async fn writers_at_once_lose_nothing(store: Store) {
        let (site, _) = fleet(&store, &[]).await;
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let store = store.clone();
                tokio::spawn(async move {
                    for n in 0..10 {
                        let mut node = node(site, &format!("t{task}n{n}"));
                        apply(&store, vec![created(&node)]).await;
                        let (after, change) = moved(&node, Status::Offline, Availability::Down, at(1));
                        apply(&store, vec![change]).await;
                        node = after;
                        assert_eq!(store.node(node.id).await.unwrap(), Some(node));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let mut export = Vec::new();
        let summary = store.audit_export(&mut export).await.unwrap();
        assert_eq!(audit_verify(export.as_slice()).unwrap(), summary);
        assert_eq!(summary.rows, 321);
        let events = store.events(EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
        assert!(events.iter().zip(1..).all(|(event, place)| event.seq.0 == place));
        assert_eq!(events.len(), 321);
    }
}

async fn pages(store: &Store, filter: &NodeFilter, sort: NodeSort) -> Vec<String> {
    let mut names = Vec::new();
    let mut request = PageRequest::first(1);
    loop {
        let page = store.nodes(filter, sort, &request).await.unwrap();
        names.extend(page.items.into_iter().map(|node| node.hostname));
        match page.next {
            Some(next) => request.cursor = Some(next),
            None => return names,
        }
    }
}
