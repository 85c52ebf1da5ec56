//! Connecting: the pool, the schema, what the server must promise.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::{Config, NoTls};

use super::connection;
use crate::error::StoreError;
use crate::migrate::{self, Migration};

/// Connections of one server: the committer's, and a few readers, as with SQLite.
const CONNECTIONS: usize = 8;
/// Longest wait for a connection: a database that does not answer is reported, not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads the address. The error does not repeat it: it may hold a password.
pub(super) fn config(url: &str) -> Result<Config, StoreError> {
    let mut config: Config =
        url.parse().map_err(|_| StoreError::Postgres { why: "the database's address cannot be read".to_owned() })?;
    config.connect_timeout(PATIENCE).application_name("lattice");
    Ok(config)
}

pub(super) fn pool(config: Config) -> Result<Pool, StoreError> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Pool::builder(Manager::from_config(config, NoTls, recycling))
        .max_size(CONNECTIONS)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(PATIENCE))
        .create_timeout(Some(PATIENCE))
        .build()
        .map_err(|error| StoreError::Postgres { why: error.to_string() })
}

/// Checks what durability rests on, and brings the schema forward.
pub(super) async fn prepare_database(pool: &Pool) -> Result<(), StoreError> {
    let client = connection(pool).await?;
    let failed = |error: tokio_postgres::Error| StoreError::postgres(&error);
    let setting: String = client.query_one("SHOW synchronous_commit", &[]).await.map_err(failed)?.get(0);
    if setting == "off" {
        let why = "synchronous_commit is off: commits would be answered before they are durable";
        return Err(StoreError::Postgres { why: why.to_owned() });
    }
    let migrated = migrate(&client, migrate::POSTGRES).await;
    if migrated.is_err() {
        // The open transaction ends with its connection.
        drop(Object::take(client));
    }
    migrated
}

/// One transaction under a lock of the version table, so that servers that start at once wait for each other.
async fn migrate(client: &Object, steps: &'static [Migration]) -> Result<(), StoreError> {
    const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)";
    let failed = |error: tokio_postgres::Error| StoreError::postgres(&error);
    if client.batch_execute(VERSIONS).await.is_err() {
        // IF NOT EXISTS is not safe against another server that creates the table at the same moment.
        client.batch_execute(VERSIONS).await.map_err(failed)?;
    }
    client.batch_execute("BEGIN; LOCK TABLE schema_version IN EXCLUSIVE MODE").await.map_err(failed)?;
    let have: i64 =
        client.query_one("SELECT COALESCE(MAX(version), 0) FROM schema_version", &[]).await.map_err(failed)?.get(0);
    let have = u32::try_from(have).map_err(|error| StoreError::corrupt("schema_version", error))?;
    for step in migrate::pending(steps, have)? {
        client.batch_execute(step.sql).await.map_err(failed)?;
        let version = i64::from(step.version);
        client.execute("INSERT INTO schema_version VALUES ($1)", &[&version]).await.map_err(failed)?;
    }
    client.batch_execute("COMMIT").await.map_err(failed)
}
