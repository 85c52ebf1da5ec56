//! What only files can show: the lock of the directory, schemas of other versions, damaged backups.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod fixture;

use std::path::Path;

use fixture::{START, applied, commit, created, node, site};
use lattice_core::explain::{Code, Explain, NextAction};
use lattice_store::{Store, StoreConfig, StoreError, restore};

async fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open(StoreConfig::sqlite(path)).await
}

fn only_fix(error: &StoreError) -> String {
    match error.next_actions().as_slice() {
        [NextAction::Fix { what }] => what.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_directory_is_refused_until_the_first_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lattice.db");
    let first = open(&path).await.unwrap();
    let refused = open(&path).await.unwrap_err();
    assert_eq!(refused.code(), Code::DataDirectoryBusy);
    let owner = format!("process {}", std::process::id());
    assert!(refused.to_string().ends_with(&format!("is in use by {owner}")), "{refused}");
    assert!(only_fix(&refused).starts_with(&format!("stop {owner}")), "{refused:?}");
    let clone = first.clone();
    drop(first);
    assert!(open(&path).await.is_err(), "a clone still holds it");
    drop(clone);
    open(&path).await.unwrap();
}

#[tokio::test]
async fn a_directory_of_a_newer_version_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lattice.db");
    drop(open(&path).await.unwrap());
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("INSERT INTO schema_version VALUES (99)", []).unwrap();
    drop(raw);
    let refused = open(&path).await.unwrap_err();
    assert_eq!(refused.code(), Code::SchemaNewer);
    assert!(refused.to_string().starts_with("the data has schema 99"), "{refused}");
    assert!(only_fix(&refused).contains("install the version that wrote the data"));
}

/// Every schema that was ever released, as its own steps made it, with a row in it.
#[tokio::test]
async fn a_directory_of_each_earlier_schema_is_brought_forward_with_its_data() {
    let steps = [include_str!("../migrations/sqlite/0001_spine.sql")];
    for have in 0..=steps.len() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lattice.db");
        let raw = rusqlite::Connection::open(&path).unwrap();
        for (version, step) in (1..).zip(&steps[..have]) {
            raw.execute_batch("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY) STRICT")
                .unwrap();
            raw.execute_batch(step).unwrap();
            raw.execute("INSERT INTO schema_version VALUES (?1)", [version]).unwrap();
        }
        if have > 0 {
            raw.execute("INSERT INTO leases VALUES ('kept', 's1', 7, 0)", []).unwrap();
        }
        drop(raw);
        let store = open(&path).await.unwrap();
        let kept = store.lease("kept").await.unwrap().map(|lease| lease.epoch.0);
        assert_eq!(kept, (have > 0).then_some(7), "from schema {have}");
        let site = site("dc1").id;
        applied(&store.commit_one(commit(START, vec![], vec![created(&node(site, "a"))])).await.unwrap());
    }
}

#[tokio::test]
async fn a_damaged_backup_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("data/lattice.db")).await.unwrap();
    let site = site("dc1").id;
    for n in 0..20 {
        let node = node(site, &format!("n{n}"));
        applied(&store.commit_one(commit(START, vec![], vec![created(&node)])).await.unwrap());
    }
    let target = StoreConfig::sqlite(directory.path().join("restored.db")).backend;
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("cut", |path| {
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("no database", |path| std::fs::write(path, "hostname,ipmi_ip\n").unwrap()),
        ("audit", |path| change(path, "UPDATE audit SET actor = 'nobody' WHERE seq = 3")),
        ("outbox", |path| change(path, "DELETE FROM outbox WHERE seq = 20")),
        ("nodes", |path| change(path, "DELETE FROM nodes WHERE hostname = 'n3'")),
    ];
    for (name, damage) in damages {
        let file = directory.path().join(format!("{name}.backup"));
        store.backup(&file).await.unwrap();
        damage(&file);
        let refused = restore(&file, &target).await;
        assert!(matches!(refused, Err(StoreError::BadCopy { .. })), "{name}: {refused:?}");
    }
    let newer = directory.path().join("newer.backup");
    store.backup(&newer).await.unwrap();
    change(&newer, "INSERT INTO schema_version VALUES (99)");
    assert_eq!(restore(&newer, &target).await.unwrap_err().code(), Code::SchemaNewer);
    assert!(!directory.path().join("restored.db").exists());
}

fn change(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).unwrap().execute(sql, []).unwrap();
}

#[tokio::test]
async fn a_store_that_cannot_be_made_says_where_and_why() {
    let error = open(Path::new("/proc/nowhere/lattice.db")).await.unwrap_err();
    assert!(error.to_string().contains("/proc/nowhere/lattice.db"), "{error}");
    assert!(!error.because().is_empty());
}
