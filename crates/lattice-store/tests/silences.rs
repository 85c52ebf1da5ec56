//! Silences on each backend: stored, listed, ended once.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod fixture;

use fixture::*;
use lattice_core::actor::Actor;
use lattice_core::change::{Change, Outcome, Removed};
use lattice_core::ids::{EventSeq, Generation, SilenceId};
use lattice_core::silence::{IncidentKind, Matcher, NamedNode, Silence};
use lattice_store::{EventFilter, Store};

mod backends;
use backends::on_each_backend;

fn silence(matcher: Matcher, ends: u64) -> Silence {
    Silence {
        id: SilenceId::generate(&Ids, START),
        matcher,
        by: Actor::system("test"),
        reason: "a rack is moved".to_owned(),
        created_at: START,
        until: at(ends),
        generation: Generation::FIRST,
    }
}

fn removed(silence: &Silence) -> Vec<Change> {
    vec![Change::Removed(Box::new(Removed::Silence(silence.clone())))]
}

on_each_backend! {
    async fn silences_are_listed_by_their_end_and_end_once(store: Store) {
        let named = NamedNode { id: node(site("dc1").id, "c07u43").id, hostname: "c07u43".to_owned() };
        let of_nodes = Matcher { kind: Some(IncidentKind::NodeDown), nodes: vec![named], ..Matcher::default() };
        let of_rack = Matcher { selector: [("rack".to_owned(), "c07".to_owned())].into(), ..Matcher::default() };
        let (long, short) = (silence(of_nodes, 7_200), silence(of_rack, 60));
        for one in [&long, &short] {
            let made = commit(START, vec![], vec![Change::Silence(Box::new(one.clone()))]);
            applied(&store.commit_one(made).await.unwrap());
        }
        assert_eq!(store.silence(long.id).await.unwrap(), Some(long.clone()));
        assert_eq!(store.silences().await.unwrap(), [short.clone(), long.clone()], "what ends first is first");
        let seq = applied(&store.commit_one(commit(at(60), vec![], removed(&short))).await.unwrap());
        let told = store.events(EventSeq(seq.0 - 1), &EventFilter::default(), 9).await.unwrap();
        assert_eq!(told[0].row.name, "silence.expired", "it ended at its expiry");
        assert_eq!(told[0].row.payload["selector"], serde_json::json!({"rack": "c07"}));
        let twice = store.commit_one(commit(at(60), vec![], removed(&short))).await.unwrap();
        assert!(matches!(twice, Outcome::Missing { .. }), "another server was faster: {twice:?}");
        // Both in one batch, as two servers would ask: one of them ends it.
        let both = vec![commit(at(61), vec![], removed(&long)), commit(at(61), vec![], removed(&long))];
        let outcomes = store.commit(both).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Applied { .. }) && matches!(outcomes[1], Outcome::Missing { .. }), "{outcomes:?}");
        assert_eq!(store.silences().await.unwrap(), []);
    }

    async fn a_node_in_a_list_has_its_labels(store: Store) {
        let site = site("dc1");
        let mut labelled = node(site.id, "c07u43");
        labelled.labels = [("rack".to_owned(), "c07".to_owned())].into();
        let changes = vec![Change::Site(Box::new(site.clone())), Change::Sku(sku("lxd.small")), created(&labelled)];
        applied(&store.commit_one(commit(START, vec![], changes)).await.unwrap());
        let filter = lattice_store::NodeFilter::default();
        let page = store.nodes(&filter, lattice_store::NodeSort::Hostname, &lattice_store::PageRequest::first(9)).await.unwrap();
        assert_eq!(page.items[0].labels, labelled.labels);
    }
}
