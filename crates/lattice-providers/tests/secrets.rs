//! What every secret store must do, held against each of them.
//!
//! The encrypted file always; a real Vault, by role and by token, when `LATTICE_TEST_VAULT` names its binary.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod vault;

use std::sync::Arc;

use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::secret::file::FileSecretStore;
use lattice_providers::secret::vault::{VaultAuth, VaultStore};
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore, SecretTrouble, read_field};
use serde_json::json;

struct FixedClock;
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_795_253_832_000)
    }
}

/// A store, and what must live as long.
struct Place {
    store: Arc<dyn SecretStore>,
    _keep: Box<dyn std::any::Any>,
}

async fn file() -> Option<Place> {
    let folder = tempfile::tempdir().unwrap();
    let store = FileSecretStore::open(folder.path(), &folder.path().join("secrets.key")).unwrap();
    Some(Place { store: Arc::new(store), _keep: Box::new(folder) })
}

async fn vault_by_role() -> Option<Place> {
    let vault = vault::Vault::in_memory().await?;
    let settings = vault.by_role(&vault::Cell::new(vault.secret_id().await)).await;
    Some(Place { store: Arc::new(VaultStore::new(settings, Arc::new(FixedClock)).unwrap()), _keep: Box::new(vault) })
}

async fn vault_by_token() -> Option<Place> {
    let vault = vault::Vault::on_disk().await?;
    let token = vault::Cell::new(vault.token(json!({"policies": ["lattice"], "no_default_policy": true})).await);
    let settings = vault.settings(VaultAuth::Token { token: token.credential() });
    Some(Place { store: Arc::new(VaultStore::new(settings, Arc::new(FixedClock)).unwrap()), _keep: Box::new(vault) })
}

fn path(text: &str) -> SecretPath {
    text.parse().unwrap()
}

fn object(fields: &[(&str, &str)]) -> SecretObject {
    fields.iter().map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned()))).collect()
}

fn plain(object: &SecretObject) -> Vec<(&str, &str)> {
    object.iter().map(|(name, secret)| (name.as_str(), secret.expose().as_str())).collect()
}

async fn what_is_written_is_read_and_replaced_as_a_whole(store: &dyn SecretStore) {
    let at = path("kv/maas-sites/s1/power/default");
    store.write(&at, object(&[("user", "root"), ("pass", "hunter2")])).await.unwrap();
    assert_eq!(plain(&store.read(&at).await.unwrap()), [("pass", "hunter2"), ("user", "root")]);
    store.write(&at, object(&[("pass", "corrécthorse \"battery\"\n\u{1F40E}")])).await.unwrap();
    assert_eq!(plain(&store.read(&at).await.unwrap()), [("pass", "corrécthorse \"battery\"\n\u{1F40E}")]);
    store.write(&at, object(&[])).await.unwrap();
    assert!(store.read(&at).await.unwrap().is_empty());
}

async fn paths_do_not_touch_each_other(store: &dyn SecretStore) {
    let (a, b) = (path("kv/maas-sites/s2/api-token"), path("kv/maas-sites/s2/api-token/x"));
    store.write(&a, object(&[("token", "a:b:c")])).await.unwrap();
    store.write(&b, object(&[("token", "d:e:f")])).await.unwrap();
    store.delete(&a).await.unwrap();
    assert_eq!(plain(&store.read(&b).await.unwrap()), [("token", "d:e:f")]);
    assert!(matches!(store.read(&a).await, Err(SecretError::NotFound { .. })));
}

async fn what_is_not_there_is_missing_and_says_where(store: &dyn SecretStore) {
    for at in ["kv/maas-sites/nowhere/api-token", "jobs/none/bootstrap", "kv/lxd-sites/x/client-key"] {
        let at = path(at);
        let missing = store.read(&at).await.err().unwrap();
        assert_eq!(missing.trouble(), SecretTrouble::Missing);
        assert!(missing.to_string().contains(at.as_str()), "{missing}");
        store.delete(&at).await.unwrap();
    }
    let at = path("kv/maas-sites/s3/power/default");
    store.write(&at, object(&[("user", "root")])).await.unwrap();
    let lacking = read_field(store, &at, "pass").await.err().unwrap();
    assert_eq!(lacking.to_string(), "the secret at kv/maas-sites/s3/power/default has no field `pass`");
    assert_eq!(read_field(store, &at, "user").await.unwrap().expose(), "root");
}

async fn a_deleted_secret_is_gone_and_its_path_can_be_used_again(store: &dyn SecretStore) {
    let at = path("jobs/j1/bootstrap");
    store.write(&at, object(&[("token", "one")])).await.unwrap();
    store.delete(&at).await.unwrap();
    store.delete(&at).await.unwrap();
    assert!(matches!(store.read(&at).await, Err(SecretError::NotFound { .. })));
    assert!(store.create(&at, object(&[("token", "two")])).await.unwrap());
    assert_eq!(plain(&store.read(&at).await.unwrap()), [("token", "two")]);
}

async fn creating_never_replaces(store: &dyn SecretStore) {
    let at = path("lattice/ca");
    assert!(store.create(&at, object(&[("key", "first")])).await.unwrap());
    assert!(!store.create(&at, object(&[("key", "second")])).await.unwrap());
    assert_eq!(plain(&store.read(&at).await.unwrap()), [("key", "first")]);
}

async fn many_at_once_lose_nothing(store: Arc<dyn SecretStore>) {
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let at = path(&format!("jobs/many-{n}/bootstrap"));
                store.write(&at, object(&[("token", &n.to_string())])).await.unwrap();
                assert_eq!(plain(&store.read(&at).await.unwrap()), [("token", n.to_string().as_str())]);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// A payload of an onboarding is the largest thing that is kept.
async fn a_large_secret_fits(store: &dyn SecretStore) {
    let at = path("jobs/large/bootstrap");
    let text = "x".repeat(256 << 10);
    store.write(&at, object(&[("user_data", &text)])).await.unwrap();
    assert_eq!(store.read(&at).await.unwrap()["user_data"].expose().len(), text.len());
}

async fn conforms(place: Option<Place>) {
    let Some(place) = place else { return };
    let store = &*place.store;
    what_is_written_is_read_and_replaced_as_a_whole(store).await;
    paths_do_not_touch_each_other(store).await;
    what_is_not_there_is_missing_and_says_where(store).await;
    a_deleted_secret_is_gone_and_its_path_can_be_used_again(store).await;
    creating_never_replaces(store).await;
    a_large_secret_fits(store).await;
    many_at_once_lose_nothing(Arc::clone(&place.store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_encrypted_file_does_what_a_secret_store_must() {
    conforms(file().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vault_in_memory_by_role_does_what_a_secret_store_must() {
    conforms(vault_by_role().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vault_on_disk_by_token_does_what_a_secret_store_must() {
    conforms(vault_by_token().await).await;
}
