//! Secrets in memory, in a store that goes away.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use lattice_providers::secret::vault::VaultError;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};

/// The store, and what befalls it.
#[derive(Default)]
pub struct Memory(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    objects: BTreeMap<String, SecretObject>,
    requests: u64,
    outage: Option<Outage>,
}

/// From that request on, counted from 0, so many requests are refused.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    pub from: u64,
    pub hits: u64,
}

impl Memory {
    pub fn paths(&self) -> Vec<String> {
        self.0.lock().unwrap().objects.keys().cloned().collect()
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.0.lock().unwrap().requests
    }

    /// Seals it; none: it is well.
    pub fn befalls(&self, outage: Option<Outage>) {
        self.0.lock().unwrap().outage = outage;
    }

    fn request<T>(&self, deed: impl FnOnce(&mut BTreeMap<String, SecretObject>) -> T) -> Result<T, SecretError> {
        let mut kept = self.0.lock().unwrap();
        let number = kept.requests;
        kept.requests += 1;
        if let Some(outage) = &mut kept.outage
            && number >= outage.from
            && outage.hits > 0
        {
            outage.hits -= 1;
            return Err(VaultError::Sealed { address: "http://127.0.0.1:8200".to_owned() }.into());
        }
        Ok(deed(&mut kept.objects))
    }
}

#[async_trait]
impl SecretStore for Memory {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let found = self.request(|objects| objects.get(path.as_str()).cloned())?;
        found.ok_or_else(|| SecretError::NotFound { path: path.clone() })
    }
    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        self.request(|objects| drop(objects.insert(path.as_str().to_owned(), object)))
    }
    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        self.request(|objects| drop(objects.remove(path.as_str())))
    }
}
