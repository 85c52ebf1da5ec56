//! Notices of State Manager. It cannot sign them: whoever knows a site's secret address may send one, and all that a
//! notice does is to have State Manager read a moment earlier.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lattice_core::ids::SiteId;
use lattice_core::secret::{Secret, constant_time_eq, token_hash};
use lattice_core::time::Timestamp;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore, read_field};
use tokio::sync::Notify;

/// How long a key is remembered, and that there is none: the secret store is not asked for each notice.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Sites that are remembered: those who guess must not fill the memory.
const MOST: usize = 1_000;
const FIELD: &str = "key";

/// Notices that came, by their site.
#[derive(Default)]
pub struct Notices {
    came: Mutex<HashSet<SiteId>>,
    known: Mutex<HashMap<SiteId, (Option<String>, Timestamp)>>,
    told: Notify,
}

/// Whether a notice came from whom the site's address was given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// It did: State Manager is read.
    Taken,
    /// It did not.
    Unknown,
}

impl Notices {
    /// Takes a notice about a site that was sent with this key.
    ///
    /// # Errors
    /// The secret store cannot be read.
    pub async fn came(
        &self,
        secrets: &dyn SecretStore,
        site: SiteId,
        key: &str,
        now: Timestamp,
    ) -> Result<Verified, SecretError> {
        let Some(hash) = self.hash(secrets, site, now).await? else { return Ok(Verified::Unknown) };
        if !constant_time_eq(hash.as_bytes(), token_hash(key).as_bytes()) {
            return Ok(Verified::Unknown);
        }
        lock(&self.came).insert(site);
        self.told.notify_one();
        Ok(Verified::Taken)
    }

    /// Waits until a notice came.
    pub async fn any(&self) {
        self.told.notified().await;
    }

    /// The sites of which something was told since the last time.
    pub(super) fn take(&self) -> HashSet<SiteId> {
        std::mem::take(&mut *lock(&self.came))
    }

    async fn hash(
        &self,
        secrets: &dyn SecretStore,
        site: SiteId,
        now: Timestamp,
    ) -> Result<Option<String>, SecretError> {
        let fresh = lock(&self.known).get(&site).filter(|(_, at)| now.since(*at) < REMEMBERED).cloned();
        if let Some((hash, _)) = fresh {
            return Ok(hash);
        }
        let hash = match read_field(secrets, &path(site), FIELD).await {
            Ok(key) => Some(token_hash(key.expose())),
            Err(SecretError::NotFound { .. } | SecretError::FieldMissing { .. }) => None,
            Err(error) => return Err(error),
        };
        let mut known = lock(&self.known);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(site, (hash.clone(), now));
        Ok(hash)
    }
}

/// The key of a site's address for notices, made where there is none yet.
pub(super) async fn key(
    secrets: &dyn SecretStore,
    site: SiteId,
    random: [u8; 32],
) -> Result<Secret<String>, SecretError> {
    use base64::Engine;
    let path = path(site);
    match read_field(secrets, &path, FIELD).await {
        Err(SecretError::NotFound { .. } | SecretError::FieldMissing { .. }) => {}
        other => return other,
    }
    let key = Secret::new(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random));
    // Another server may have been first.
    secrets.create(&path, SecretObject::from([(FIELD.to_owned(), key)])).await?;
    read_field(secrets, &path, FIELD).await
}

fn path(site: SiteId) -> SecretPath {
    format!("kv/openchami-sites/{site}/notices").parse().expect("an id is letters, digits and hyphens")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
