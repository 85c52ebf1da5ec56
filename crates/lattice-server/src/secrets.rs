//! The secret store of a server: opened, counted, watched.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use lattice_controllers::{SecretOutage, SecretWatch, Watched};
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
