//! Profiles, overrides, RoCE assignments and removed rows, on both backends.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod fixture;

use fixture::*;
use lattice_core::change::{Change, Guard, Outcome, Removed};
use lattice_core::ids::{EventSeq, Generation, NodeId, SiteId};
use lattice_core::node::{Availability, Status};
use lattice_core::site::power_credentials::PowerTarget;
use lattice_core::site::{PowerSelector, RoceRow, SiteStatus};
use lattice_store::{EventFilter, Store, StoreError, audit_verify};

mod backends;
use backends::on_each_backend;

async fn apply(store: &Store, changes: Vec<Change>) -> EventSeq {
    applied(&store.commit_one(commit(START, vec![], changes)).await.unwrap())
}

async fn conflict(store: &Store, guards: Vec<Guard>, changes: Vec<Change>) -> String {
    match store.commit_one(commit(START, guards, changes)).await.unwrap() {
        Outcome::Conflict { resource, .. } => resource,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

async fn place(store: &Store, name: &str) -> SiteId {
    let site = site(name);
    apply(store, vec![Change::Site(Box::new(site.clone()))]).await;
    site.id
}

fn removed(what: Removed) -> Change {
    Change::Removed(Box::new(what))
}

fn moved_to(row: &RoceRow, cidr: &str) -> RoceRow {
    let mut after = row.clone();
    after.assignment.ipv4_cidr = cidr.parse().unwrap();
    after.generation = row.generation.next();
    after
}

on_each_backend! {
    async fn profiles_are_read_back_by_id_by_name_and_by_site(store: Store) {
        let (dc1, dc2) = (place(&store, "dc1").await, place(&store, "dc2").await);
        let (strict, fast, other) = (profile(dc1, "strict"), profile(dc1, "fast"), profile(dc2, "strict"));
        for one in [&strict, &fast, &other] {
            apply(&store, vec![Change::Profile(Box::new(one.clone()))]).await;
        }
        assert_eq!(store.profile(strict.id).await.unwrap().as_ref(), Some(&strict));
        assert_eq!(store.profile_by_name(dc2, "strict").await.unwrap().as_ref(), Some(&other));
        assert_eq!(store.profile_by_name(dc2, "fast").await.unwrap(), None);
        assert_eq!(store.profiles(dc1).await.unwrap(), [fast, strict.clone()]);
        let twin = profile(dc1, "strict");
        let resource = conflict(&store, vec![], vec![Change::Profile(Box::new(twin))]).await;
        assert!(resource.starts_with("profile name strict"), "{resource}");
        let stale = Guard::ProfileGeneration { profile: strict.id, have: Generation(2) };
        assert!(conflict(&store, vec![stale], vec![Change::Site(Box::new(site("dc3")))]).await.starts_with("profile "));
    }

    async fn an_override_is_found_by_what_is_known_of_a_machine(store: Store) {
        let (dc1, dc2) = (place(&store, "dc1").await, place(&store, "dc2").await);
        let by_ip = power_override(dc1, PowerSelector::IpmiIp, "10.0.0.43");
        let by_name = power_override(dc1, PowerSelector::Hostname, "c07u43");
        let elsewhere = power_override(dc2, PowerSelector::Hostname, "c07u43");
        for one in [&by_ip, &by_name, &elsewhere] {
            apply(&store, vec![Change::PowerOverride(one.clone())]).await;
        }
        let target = PowerTarget { hostname: "C07U43", ipmi_ip: "10.0.0.43", pxe_mac: Some("aa:bb:cc:00:00:01") };
        assert_eq!(store.power_overrides_of(dc1, &target).await.unwrap(), [by_ip.clone(), by_name.clone()]);
        let target = PowerTarget { hostname: "c07u44", ipmi_ip: "10.0.0.44", pxe_mac: None };
        assert_eq!(store.power_overrides_of(dc1, &target).await.unwrap(), []);
        assert_eq!(store.power_overrides(dc1, None, 1).await.unwrap(), std::slice::from_ref(&by_ip));
        assert_eq!(store.power_overrides(dc1, Some(by_ip.id), 9).await.unwrap(), [by_name]);
        let mut off = by_ip.clone();
        (off.status, off.generation) = (SiteStatus::Disabled, by_ip.generation.next());
        apply(&store, vec![Change::PowerOverride(off.clone())]).await;
        assert_eq!(store.power_override(by_ip.id).await.unwrap(), Some(off));
        let twin = power_override(dc1, PowerSelector::IpmiIp, "10.0.0.43");
        let resource = conflict(&store, vec![], vec![Change::PowerOverride(twin)]).await;
        assert!(resource.starts_with("power override by ipmi_ip 10.0.0.43"), "{resource}");
    }

    async fn an_address_has_one_interface_and_an_interface_one_address(store: Store) {
        let (dc1, dc2) = (place(&store, "dc1").await, place(&store, "dc2").await);
        let (a, b) = (roce(dc1, "a", "eth1", "172.30.0.1/31"), roce(dc1, "a", "eth2", "172.30.0.3/31"));
        apply(&store, vec![Change::Roce(a.clone()), Change::Roce(b.clone())]).await;
        apply(&store, vec![Change::Roce(roce(dc2, "a", "eth1", "172.30.0.1/31"))]).await;
        let same_slot = Change::Roce(roce(dc1, "a", "eth1", "172.30.0.9/31"));
        assert!(conflict(&store, vec![], vec![same_slot]).await.starts_with("RoCE address of a eth1"));
        let same_address = Change::Roce(roce(dc1, "b", "eth1", "172.30.0.1/31"));
        assert!(conflict(&store, vec![], vec![same_address]).await.starts_with("RoCE address 172.30.0.1"));
        let taken = Change::Roce(moved_to(&a, "172.30.0.3/31"));
        assert!(conflict(&store, vec![], vec![taken]).await.starts_with("RoCE address 172.30.0.3"));
        let exchange = vec![Change::Roce(moved_to(&a, "172.30.0.3/31")), Change::Roce(moved_to(&b, "172.30.0.1/31"))];
        apply(&store, exchange).await;
        let addresses: Vec<_> = store.roce_assignments(dc1, "a").await.unwrap();
        let addresses: Vec<_> = addresses.iter().map(|one| one.ipv4_cidr.to_string()).collect();
        assert_eq!(addresses, ["172.30.0.3/31", "172.30.0.1/31"]);
        let twice = vec![
            Change::Roce(roce(dc1, "c", "eth1", "172.30.0.5/31")),
            Change::Roce(roce(dc1, "c", "eth2", "172.30.0.5/31")),
        ];
        let refused = store.commit_one(commit(START, vec![], twice)).await;
        assert!(matches!(refused, Err(StoreError::InvalidCommit { .. })), "{refused:?}");
        assert_eq!(store.roce_rows(dc1, ("a", "eth1"), 9).await.unwrap().len(), 1);
        assert_eq!(store.roce_rows(dc1, ("", ""), 1).await.unwrap()[0].assignment.interface, "eth1");
        assert_eq!(store.roce_row(a.id).await.unwrap().map(|row| row.generation), Some(Generation(2)));
    }

    async fn what_is_removed_is_gone_and_what_it_had_is_free(store: Store) {
        let dc1 = place(&store, "dc1").await;
        let (a, one) = (roce(dc1, "a", "eth1", "172.30.0.1/31"), profile(dc1, "strict"));
        let login = power_override(dc1, PowerSelector::Hostname, "a");
        let kind = sku("mi300x");
        apply(&store, vec![
            Change::Roce(a.clone()),
            Change::Profile(Box::new(one.clone())),
            Change::PowerOverride(login.clone()),
            Change::Sku(kind.clone()),
        ]).await;
        let stale = RoceRow { generation: Generation(2), ..a.clone() };
        assert!(conflict(&store, vec![], vec![removed(Removed::Roce(stale))]).await.starts_with("RoCE assignment"));
        let last = apply(&store, vec![
            removed(Removed::Roce(a.clone())),
            removed(Removed::Profile(one.clone())),
            removed(Removed::PowerOverride(login.clone())),
            removed(Removed::Sku(kind.clone())),
        ]).await;
        assert_eq!(store.roce_row(a.id).await.unwrap(), None);
        assert_eq!(store.profile(one.id).await.unwrap(), None);
        assert_eq!(store.power_override(login.id).await.unwrap(), None);
        assert_eq!(store.sku("mi300x").await.unwrap(), None);
        let events = store.latest_events(&EventFilter::default(), 4).await.unwrap();
        let names: Vec<_> = events.iter().map(|event| event.row.name.as_str()).collect();
        assert_eq!(names, ["sku.removed", "site.power_override.removed", "site.profile.removed", "site.roce_removed"]);
        assert_eq!(events[0].seq, last);
        let again = store.commit_one(commit(START, vec![], vec![removed(Removed::Sku(kind.clone()))])).await.unwrap();
        assert!(matches!(again, Outcome::Missing { .. }), "{again:?}");
        apply(&store, vec![
            Change::Roce(roce(dc1, "b", "eth1", "172.30.0.1/31")),
            Change::Profile(Box::new(profile(dc1, "strict"))),
            Change::Sku(kind),
        ]).await;
        let mut export = Vec::new();
        let summary = store.audit_export(&mut export).await.unwrap();
        assert_eq!(audit_verify(export.as_slice()).unwrap(), summary);
    }

    // One call, one transaction: what one commit removes, the next makes anew, and the other way round.
    async fn removing_and_making_anew_within_one_call_ends_as_the_last_says(store: Store) {
        let dc1 = place(&store, "dc1").await;
        let kind = sku("a");
        apply(&store, vec![Change::Sku(kind.clone())]).await;
        let (first, second) = (roce(dc1, "a", "eth1", "172.30.0.1/31"), roce(dc1, "a", "eth1", "172.30.0.1/31"));
        let outcomes = store
            .commit(vec![
                commit(START, vec![], vec![removed(Removed::Sku(kind.clone()))]),
                commit(START, vec![], vec![Change::Sku(kind.clone())]),
                commit(START, vec![], vec![Change::Roce(first.clone())]),
                commit(START, vec![], vec![removed(Removed::Roce(first.clone()))]),
                commit(START, vec![], vec![Change::Roce(second.clone())]),
            ])
            .await
            .unwrap();
        assert!(outcomes.iter().all(|outcome| applied(outcome) > EventSeq(0)));
        assert_eq!(store.sku("a").await.unwrap(), Some(kind));
        assert_eq!(store.roce_row(first.id).await.unwrap(), None);
        assert_eq!(store.roce_row(second.id).await.unwrap(), Some(second));
    }

    async fn a_site_that_had_a_node_and_a_sku_in_use_stay(store: Store) {
        let (used, unused) = (site("used"), site("unused"));
        let kind = sku("mi300x.192g.8gpu");
        let host = node(used.id, "a");
        apply(&store, vec![
            Change::Site(Box::new(used.clone())),
            Change::Site(Box::new(unused.clone())),
            Change::Sku(kind.clone()),
            created(&host),
        ]).await;
        let of = |site: &lattice_core::site::Site| Guard::SiteUnused { site: site.id };
        let of_sku = || Guard::SkuUnused { sku: kind.name.clone() };
        assert!(conflict(&store, vec![of(&used)], vec![removed(Removed::Site(used.clone()))]).await.starts_with("node of"));
        assert!(conflict(&store, vec![of_sku()], vec![removed(Removed::Sku(kind.clone()))]).await.starts_with("node of"));
        let gone = commit(START, vec![of(&unused)], vec![removed(Removed::Site(unused.clone()))]);
        applied(&store.commit_one(gone).await.unwrap());
        assert_eq!(store.site(unused.id).await.unwrap(), None);
        assert_eq!(store.node_and_sku(host.id).await.unwrap(), Some((host.clone(), Some(kind.clone()))));
        assert_eq!(store.node_and_sku(NodeId::generate(&Ids, START)).await.unwrap(), None);
        let (host, end) = moved(&host, Status::Deleted, Availability::Unknown, at(1));
        apply(&store, vec![end]).await;
        applied(&store.commit_one(commit(START, vec![of_sku()], vec![removed(Removed::Sku(kind.clone()))])).await.unwrap());
        assert_eq!(store.node_and_sku(host.id).await.unwrap(), Some((host, None)));
        let resource = conflict(&store, vec![of(&used)], vec![removed(Removed::Site(used.clone()))]).await;
        assert!(resource.starts_with("node of site"), "its history refers to it: {resource}");
    }

    async fn a_bmc_has_one_live_node_at_a_site(store: Store) {
        let (dc1, dc2) = (place(&store, "dc1").await, place(&store, "dc2").await);
        let mut first = node(dc1, "a");
        first.bmc_address = Some("10.0.0.1".to_owned());
        let mut second = node(dc1, "b");
        second.bmc_address = first.bmc_address.clone();
        let free = |site| Guard::BmcAddressFree { site, address: "10.0.0.1".to_owned() };
        // In one call: the second is judged after the first was written.
        let outcomes = store
            .commit(vec![
                commit(START, vec![free(dc1)], vec![created(&first)]),
                commit(START, vec![free(dc1)], vec![created(&second)]),
            ])
            .await
            .unwrap();
        applied(&outcomes[0]);
        assert!(matches!(&outcomes[1], Outcome::Conflict { resource, have }
            if resource.starts_with("BMC address 10.0.0.1") && *have == first.id.to_string()), "{outcomes:?}");
        conflict(&store, vec![free(dc1)], vec![created(&second)]).await;
        applied(&store.commit_one(commit(START, vec![free(dc2)], vec![created(&node(dc2, "c"))])).await.unwrap());
        let (_, end) = moved(&first, Status::Deleted, Availability::Unknown, at(1));
        apply(&store, vec![end]).await;
        applied(&store.commit_one(commit(START, vec![free(dc1)], vec![created(&second)])).await.unwrap());
    }

    async fn a_site_or_sku_that_changed_meanwhile_is_a_conflict(store: Store) {
        let (dc1, kind) = (site("dc1"), sku("x"));
        apply(&store, vec![Change::Site(Box::new(dc1.clone())), Change::Sku(kind.clone())]).await;
        let of_site = |have| Guard::SiteGeneration { site: dc1.id, have };
        let of_sku = |have| Guard::SkuGeneration { sku: "x".to_owned(), have };
        let create = |name: &str| vec![created(&node(dc1.id, name))];
        let fine = vec![of_site(Generation::FIRST), of_sku(Generation::FIRST)];
        applied(&store.commit_one(commit(START, fine, create("a"))).await.unwrap());
        assert!(conflict(&store, vec![of_site(Generation(2))], create("b")).await.starts_with("site "));
        assert!(conflict(&store, vec![of_sku(Generation(2))], create("b")).await.starts_with("sku x"));
        let absent = Guard::SkuGeneration { sku: "y".to_owned(), have: Generation::FIRST };
        let outcome = store.commit_one(commit(START, vec![absent], create("b"))).await.unwrap();
        assert!(matches!(outcome, Outcome::Missing { .. }), "{outcome:?}");
    }
}
