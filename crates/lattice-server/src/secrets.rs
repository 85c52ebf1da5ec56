//! The secret store of a server: opened, counted, watched.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use lattice_controllers::{SecretOutage, SecretWatch, Watched};
use lattice_core::secret::constant_time_eq;
use lattice_core::time::Clock;
use lattice_providers::secret::file::FileSecretStore;
use lattice_providers::secret::vault::VaultStore;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock::Stopwatch;
use crate::http::Parts;
use crate::metrics::Metrics;
use crate::wiring::Options;

/// The secret store that the options name, counted.
///
/// # Errors
/// The file or its key cannot be used; what is said about Vault cannot be used. Vault itself is not asked yet.
pub fn open(
    options: &Options,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn SecretStore>, SecretError> {
    let store: Arc<dyn SecretStore> = match &options.vault {
        Some(vault) => Arc::new(VaultStore::new(vault.clone(), Arc::clone(clock))?),
        None => Arc::new(file(options)?),
    };
    Ok(Arc::new(MeasuredSecrets { store, metrics: Arc::clone(metrics) }))
}

fn file(options: &Options) -> Result<FileSecretStore, SecretError> {
    let file = FileSecretStore::open(&options.secrets_dir, &options.secrets_key)?;
    if file.torn_bytes() > 0 {
        warn!(bytes = file.torn_bytes(), "a crash cut off the last write of secrets; nobody was told it was done");
    }
    Ok(file)
}

/// What the last look at the secret store found, for whoever shows it.
#[derive(Debug, Default)]
pub struct SecretStanding(Mutex<Option<SecretOutage>>);

impl SecretStanding {
    /// The outage that lasts; none while the store gives secrets.
    pub fn outage(&self) -> Option<SecretOutage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what a look found.
    pub fn note(&self, outage: Option<SecretOutage>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = outage;
    }
}

/// Looks at the secret store as long as the server of that name runs: tells when it goes and comes back, and wakes the
/// jobs that were resumed then.
pub fn watch(parts: &Parts, server: String) -> impl Future<Output = ()> + Send + 'static {
    let watch = SecretWatch::new(parts.store.clone(), Arc::clone(&parts.secrets), Arc::clone(&parts.ids), server);
    let (metrics, standing) = (Arc::clone(&parts.metrics), Arc::clone(&parts.secret_standing));
    let (clock, wake, stop) = (Arc::clone(&parts.clock), Arc::clone(&parts.wake), parts.stop.clone());
    looks(watch, clock, stop, move |seen| {
        metrics.secret_store(seen.outage.is_none());
        standing.note(seen.outage);
        seen.resumed.into_iter().for_each(|job| wake(job));
    })
}

async fn looks(mut watch: SecretWatch, clock: Arc<dyn Clock>, stop: CancellationToken, tell: impl Fn(Watched) + Send) {
    loop {
        let pause = match watch.tick(clock.now()).await {
            Ok(seen) => {
                let pause = seen.pause;
                tell(seen);
                pause
            }
            Err(error) => {
                warn!(%error, "the watch over the secret store waits for the store");
                SecretWatch::PAUSE
            }
        };
        tokio::select! {
                biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Counts for another store.
struct MeasuredSecrets {
    store: Arc<dyn SecretStore>,
    metrics: Arc<Metrics>,
}

impl MeasuredSecrets {
    fn count<T>(&self, deed: &'static str, begun: Stopwatch, answer: Result<T, SecretError>) -> Result<T, SecretError> {
        let result = answer.as_ref().map_or_else(SecretError::cause, |_| "ok");
        self.metrics.secret_request(deed, result, begun.elapsed());
        answer
    }
}

#[async_trait]
impl SecretStore for MeasuredSecrets {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let begun = Stopwatch::start();
        self.count("read", begun, self.store.read(path).await)
    }

    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        let begun = Stopwatch::start();
        self.count("write", begun, self.store.write(path, object).await)
    }

    async fn create(&self, path: &SecretPath, object: SecretObject) -> Result<bool, SecretError> {
        let begun = Stopwatch::start();
        self.count("write", begun, self.store.create(path, object).await)
    }

    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        let begun = Stopwatch::start();
        self.count("delete", begun, self.store.delete(path).await)
    }
}

/// What is done with a secret that the target has already, and that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Nothing at all is copied.
    Stops,
    /// It is replaced.
    IsReplaced,
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    /// Secrets that were written and read back.
    pub written: usize,
    /// Secrets that were there already, and the same.
    pub there: usize,
}

/// Why secrets are not copied, or not all of them. Never holds one.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A store does not give or take what it should.
    #[error("{path}: {source}")]
    Store {
        /// Which secret.
        path: SecretPath,
        /// Why.
        source: SecretError,
    },
    /// The target has other secrets at these paths; nothing was written.
    #[error("{} of the secrets are in the target already and differ, the first at {first}; nothing was written", .count)]
    Different {
        /// How many.
        count: usize,
        /// Where the first one is.
        first: SecretPath,
    },
    /// What was read back is not what was written.
    #[error("{path} is not what was written when it is read back")]
    NotTheSame {
        /// Which secret.
        path: SecretPath,
    },
}

/// Copies every secret of the encrypted file into another store, and reads each back. Nothing is written before it is known
/// that all of it may be.
///
/// # Errors
/// [`CopyError`]; what was written stays, and the same call again goes on.
pub async fn copy(from: &FileSecretStore, to: &dyn SecretStore, existing: Existing) -> Result<Copied, CopyError> {
    let (mut copied, mut missing, mut different) = (Copied::default(), Vec::new(), Vec::new());
    for path in from.paths() {
        let object = read(from, &path).await?;
        match to.read(&path).await {
            Ok(there) if is_same(&there, &object) => copied.there += 1,
            Ok(_) => different.push((path, object)),
            Err(SecretError::NotFound { .. }) => missing.push((path, object)),
            Err(source) => return Err(CopyError::Store { path, source }),
        }
    }
    match (different.first(), existing) {
        (Some((first, _)), Existing::Stops) => {
            return Err(CopyError::Different { count: different.len(), first: first.clone() });
        }
        (Some(_), Existing::IsReplaced) | (None, _) => {}
    }
    for (path, object) in missing.into_iter().chain(different) {
        let write = to.write(&path, object.clone()).await;
        write.map_err(|source| CopyError::Store { path: path.clone(), source })?;
        if !is_same(&read(to, &path).await?, &object) {
            return Err(CopyError::NotTheSame { path });
        }
        copied.written += 1;
    }
    Ok(copied)
}

async fn read(store: &dyn SecretStore, path: &SecretPath) -> Result<SecretObject, CopyError> {
    store.read(path).await.map_err(|source| CopyError::Store { path: path.clone(), source })
}

fn is_same(a: &SecretObject, b: &SecretObject) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((name, one), (other_name, other))| {
            name == other_name && constant_time_eq(one.expose().as_bytes(), other.expose().as_bytes())
        })
}

#[cfg(test)]
mod tests {
    use lattice_core::secret::Secret;

    use super::*;

    fn file(directory: &tempfile::TempDir) -> FileSecretStore {
        FileSecretStore::open(directory.path(), &directory.path().join("secrets.key")).unwrap()
    }

    fn object(text: &str) -> SecretObject {
        SecretObject::from([("token".to_owned(), Secret::new(text.to_owned()))])
    }

    fn path(text: &str) -> SecretPath {
        text.parse().unwrap()
    }

    /// Takes everything, and gives something else back.
    struct Forgetful(FileSecretStore);

    #[async_trait]
    impl SecretStore for Forgetful {
        async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
            self.0.read(path).await.map(|_| object("something else"))
        }
        async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
            self.0.write(path, object).await
        }
        async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
            self.0.delete(path).await
        }
    }

    #[tokio::test]
    async fn every_secret_is_copied_read_back_and_left_alone_the_second_time() {
        let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (from, to) = (file(&homes[0]), file(&homes[1]));
        for name in ["lattice/ca", "kv/webhooks/a/b", "kv/maas-sites/x/api-token"] {
            from.write(&path(name), object(name)).await.unwrap();
        }
        let copied = copy(&from, &to, Existing::Stops).await.unwrap();
        assert_eq!(copied, Copied { written: 3, there: 0 });
        assert!(is_same(&to.read(&path("lattice/ca")).await.unwrap(), &object("lattice/ca")));
        assert_eq!(copy(&from, &to, Existing::Stops).await.unwrap(), Copied { written: 0, there: 3 });
    }

    #[tokio::test]
    async fn what_differs_stops_it_before_anything_is_written_unless_it_is_to_be_replaced() {
        let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (from, to) = (file(&homes[0]), file(&homes[1]));
        from.write(&path("a"), object("hunter2")).await.unwrap();
        from.write(&path("b"), object("hunter3")).await.unwrap();
        to.write(&path("b"), object("older")).await.unwrap();
        let refused = copy(&from, &to, Existing::Stops).await.unwrap_err();
        assert!(matches!(&refused, CopyError::Different { count: 1, .. }), "{refused}");
        assert!(!format!("{refused} {refused:?}").contains("hunter"), "{refused:?}");
        assert!(matches!(to.read(&path("a")).await, Err(SecretError::NotFound { .. })), "nothing was written");
        assert_eq!(copy(&from, &to, Existing::IsReplaced).await.unwrap(), Copied { written: 2, there: 0 });
    }

    #[tokio::test]
    async fn a_store_that_gives_back_something_else_is_noticed() {
        let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (from, to) = (file(&homes[0]), Forgetful(file(&homes[1])));
        from.write(&path("a"), object("hunter2")).await.unwrap();
        let refused = copy(&from, &to, Existing::Stops).await.unwrap_err();
        assert!(matches!(&refused, CopyError::NotTheSame { path } if path.as_str() == "a"), "{refused}");
    }
}
