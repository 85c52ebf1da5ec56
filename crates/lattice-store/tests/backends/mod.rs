//! Runs each case of the suite on an empty store of each backend.
#![allow(dead_code, unused_macros, unused_imports)]

use lattice_store::{Store, StoreConfig};

/// Makes one test of each backend from each case.
macro_rules! on_each_backend {
    ($(async fn $name:ident($store:ident: Store) $body:block)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let directory = tempfile::tempdir().unwrap();
                super::cases::$name(super::backends::sqlite(directory.path()).await).await;
            })*
        }
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::cases::$name(super::backends::memory().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let Some(database) = super::backends::postgres(stringify!($name)).await else { return };
                super::cases::$name(database.store.clone()).await;
                database.drop().await;
            })*
        }
        mod cases {
            use super::*;
            $(pub async fn $name($store: Store) $body)*
        }
    };
}
pub(crate) use on_each_backend;

pub async fn sqlite(directory: &std::path::Path) -> Store {
    Store::open(StoreConfig::sqlite(directory.join("lattice.db"))).await.unwrap()
}

pub async fn memory() -> Store {
    Store::open(StoreConfig::memory()).await.unwrap()
}

/// A database of its own on the test server.
pub struct Database {
    pub store: Store,
    server: String,
    name: String,
}

impl Database {
    /// Address of the database.
    pub fn url(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }

    /// Removes the database.
    pub async fn drop(self) {
        drop(self.store);
        administer(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

/// An empty database, or none without a server.
pub async fn postgres(name: &str) -> Option<Database> {
    let Ok(url) = std::env::var("LATTICE_TEST_POSTGRES") else {
        println!("skipped: postgres (LATTICE_TEST_POSTGRES is not set)");
        return None;
    };
    let (server, _) = url.rsplit_once('/').expect("postgres://user@host:port/database");
    // A name is cut at 63 bytes; the process's number keeps runs apart.
    let name = format!("t{}_{}", std::process::id(), &name[..name.len().min(48)]);
    // A run that was killed may have left one, and numbers of processes come again.
    administer(server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    administer(server, &format!("CREATE DATABASE {name}")).await;
    let store = Store::open(StoreConfig::postgres(format!("{server}/{name}"))).await.unwrap();
    Some(Database { store, server: server.to_owned(), name })
}

async fn administer(server: &str, sql: &str) {
    let (client, connection) =
        tokio_postgres::connect(&format!("{server}/postgres"), tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}
