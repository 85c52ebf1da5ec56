//! What only several servers on one PostgreSQL database can show.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod backends;
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fixture::{START, applied, at, commit, created, moved, node, site};
use lattice_core::change::{Change, Guard, Outcome};
use lattice_core::explain::{Code, Explain};
use lattice_core::ids::EventSeq;
use lattice_core::node::{Availability, Status};
use lattice_store::{EventFilter, Store, StoreConfig, StoreError, audit_verify, restore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_one_dense_sequence_and_one_chain() {
    let Some(database) = backends::postgres("two_servers").await else { return };
    let other = Store::open(StoreConfig::postgres(database.url())).await.unwrap();
    let dc1 = site("dc1");
    applied(&other.commit_one(commit(START, vec![], vec![Change::Site(Box::new(dc1.clone()))])).await.unwrap());
    let tasks: Vec<_> = (0..8)
        .map(|task: usize| {
            let store = if task.is_multiple_of(2) { database.store.clone() } else { other.clone() };
            let site = dc1.id;
            tokio::spawn(async move {
                for n in 0..15 {
                    let node = node(site, &format!("t{task}n{n}"));
                    applied(&store.commit_one(commit(START, vec![], vec![created(&node)])).await.unwrap());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let events = other.events(EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
    assert_eq!(events.len(), 121);
    assert!(events.iter().zip(1..).all(|(event, place)| event.seq.0 == place));
    let mut export = Vec::new();
    let summary = database.store.audit_export(&mut export).await.unwrap();
    assert_eq!(audit_verify(export.as_slice()).unwrap(), summary);
    drop(other);
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_that_change_one_row_one_is_told_of_the_other() {
    let Some(database) = backends::postgres("one_row").await else { return };
    let other = Store::open(StoreConfig::postgres(database.url())).await.unwrap();
    let before = node(site("dc1").id, "a");
    applied(&other.commit_one(commit(START, vec![], vec![created(&before)])).await.unwrap());
    let (_, down) = moved(&before, Status::Offline, Availability::Down, at(1));
    let (_, degraded) = moved(&before, Status::Active, Availability::Degraded, at(1));
    let (one, two) = tokio::join!(
        database.store.commit_one(commit(at(1), vec![], vec![down])),
        other.commit_one(commit(at(1), vec![], vec![degraded])),
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    let conflicts = [&one, &two].into_iter().filter(|outcome| matches!(outcome, Outcome::Conflict { .. })).count();
    assert_eq!(conflicts, 1, "{one:?} {two:?}");
    drop(other);
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_hears_of_another_servers_commit() {
    let Some(database) = backends::postgres("follower").await else { return };
    let other = Store::open(StoreConfig::postgres(database.url())).await.unwrap();
    let mut follower = other.follow();
    let create = commit(START, vec![], vec![created(&node(site("dc1").id, "a"))]);
    let seq = applied(&database.store.commit_one(create).await.unwrap());
    let heard = tokio::time::timeout(Duration::from_secs(10), follower.after(EventSeq(0))).await;
    assert_eq!(heard.expect("within ten seconds").unwrap(), seq);
    drop(other);
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_lease_to_another_is_fenced() {
    let Some(database) = backends::postgres("fenced").await else { return };
    let other = Store::open(StoreConfig::postgres(database.url())).await.unwrap();
    let ttl = Duration::from_secs(10);
    let epoch = database.store.acquire("site/a", "s1", at(0), ttl).await.unwrap().unwrap();
    other.acquire("site/a", "s2", at(11), ttl).await.unwrap().unwrap();
    let guard = Guard::Lease { name: "site/a".to_owned(), epoch };
    let late = commit(at(12), vec![guard], vec![created(&node(site("dc1").id, "a"))]);
    assert_eq!(database.store.commit_one(late).await.unwrap(), Outcome::Fenced);
    drop(other);
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_connection_was_cut_can_be_repeated() {
    let Some(database) = backends::postgres("cut").await else { return };
    let (client, connection) = tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let site = site("dc1").id;
    for n in 0..60 {
        let create = commit(START, vec![], vec![created(&node(site, &format!("n{n}")))]);
        // Every connection of the server but this one is cut, in the middle of whatever it does.
        let cut = client.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE datname = current_database() AND pid <> pg_backend_pid()",
            &[],
        );
        let (outcome, cut) = tokio::join!(database.store.commit_one(create.clone()), cut);
        cut.unwrap();
        match outcome {
            Ok(outcome) => drop(applied(&outcome)),
            Err(StoreError::Unknown { .. } | StoreError::Postgres { .. }) => {
                let repeated = loop {
                    match database.store.commit_one(create.clone()).await {
                        Ok(outcome) => break outcome,
                        Err(StoreError::Unknown { .. } | StoreError::Postgres { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                };
                assert!(matches!(repeated, Outcome::Applied { .. } | Outcome::Duplicate { .. }), "{repeated:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    let events = database.store.events(EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
    assert_eq!(events.len(), 60, "each of them once");
    drop(client);
    database.drop().await;
}

/// Where the wire between server and database is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// COMMIT never arrives: nothing is durable.
    BeforeCommit,
    /// COMMIT arrives, its answer does not: all is durable.
    AfterCommit,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_dies_at_commit_leaves_the_outcome_unknown_and_the_repeat_tells() {
    let Some(database) = backends::postgres("unknown").await else { return };
    let site = site("dc1").id;
    for (cut, name) in [(Cut::BeforeCommit, "a"), (Cut::AfterCommit, "b")] {
        let armed = Arc::new(AtomicBool::new(false));
        let store =
            Store::open(StoreConfig::postgres(cut_wire(&database.url(), cut, armed.clone()).await)).await.unwrap();
        let create = commit(START, vec![], vec![created(&node(site, name))]);
        armed.store(true, Ordering::SeqCst);
        let outcome = store.commit_one(create.clone()).await;
        assert!(matches!(outcome, Err(StoreError::Unknown { .. })), "{cut:?}: {outcome:?}");
        let repeated = store.commit_one(create).await.unwrap();
        match cut {
            Cut::BeforeCommit => assert!(applied(&repeated) > EventSeq(0)),
            Cut::AfterCommit => assert!(matches!(repeated, Outcome::Duplicate { .. }), "{repeated:?}"),
        }
    }
    assert_eq!(database.store.last_event().await.unwrap(), EventSeq(2));
    database.drop().await;
}

/// A wire to the database that is cut once, at the next COMMIT after it was armed. Gives its address.
async fn cut_wire(url: &str, cut: Cut, armed: Arc<AtomicBool>) -> String {
    let (front, rest) = url.split_once('@').unwrap();
    let (target, name) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("{front}@{}/{name}", listener.local_addr().unwrap());
    let target = target.to_owned();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(carry(client, server, cut, armed.clone()));
        }
    });
    address
}

async fn carry(client: TcpStream, server: TcpStream, cut: Cut, armed: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut bytes = vec![0; 65_536];
    let mut answer = vec![0; 65_536];
    loop {
        tokio::select! {
            read = from_client.read(&mut bytes) => {
                let Ok(length @ 1..) = read else { return };
                let commits = bytes[..length].windows(7).any(|window| window == b"COMMIT\0");
                let now = commits && armed.swap(false, Ordering::SeqCst);
                if now && cut == Cut::BeforeCommit {
                    return;
                }
                to_server.write_all(&bytes[..length]).await.unwrap();
                if now {
                    // The answer shows that the commit is done; it is kept.
                    let kept = from_server.read(&mut answer).await.unwrap();
                    assert!(kept > 0, "the database answers");
                    return;
                }
            }
            read = from_server.read(&mut answer) => {
                let Ok(length @ 1..) = read else { return };
                to_client.write_all(&answer[..length]).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_a_newer_version_is_refused() {
    let Some(database) = backends::postgres("newer").await else { return };
    let (client, connection) = tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("INSERT INTO schema_version VALUES (99)").await.unwrap();
    let refused = Store::open(StoreConfig::postgres(database.url())).await.unwrap_err();
    assert_eq!(refused.code(), Code::SchemaNewer);
    drop(client);
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_sqlite_restores_into_postgresql_and_back() {
    let Some(database) = backends::postgres("restore").await else { return };
    let directory = tempfile::tempdir().unwrap();
    let sqlite = backends::sqlite(directory.path()).await;
    let site = site("dc1").id;
    for n in 0..5 {
        let node = node(site, &format!("n{n}"));
        applied(&sqlite.commit_one(commit(START, vec![], vec![created(&node)])).await.unwrap());
    }
    let file = directory.path().join("sqlite.backup");
    let summary = sqlite.backup(&file).await.unwrap();
    let target = StoreConfig::postgres(database.url()).backend;
    assert_eq!(restore(&file, &target).await.unwrap(), summary);
    assert!(matches!(restore(&file, &target).await, Err(StoreError::TargetExists { .. })));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    sqlite.audit_export(&mut ours).await.unwrap();
    database.store.audit_export(&mut theirs).await.unwrap();
    assert_eq!(ours, theirs);
    let back = directory.path().join("postgres.backup");
    let again = database.store.backup(&back).await.unwrap();
    assert_eq!((again.nodes, again.events, again.audit_rows), (summary.nodes, summary.events, summary.audit_rows));
    database.drop().await;
}
