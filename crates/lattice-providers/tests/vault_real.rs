//! Secrets in a real Vault that is sealed, killed, restarted, that refuses, and whose logins are revoked and rotated.
//!
//! `LATTICE_TEST_VAULT` names the binary (`tests/peers/vault/build.sh` makes one); without it every test is skipped.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod vault;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lattice_core::explain::Explain;
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::secret::vault::{VaultAuth, VaultError, VaultSettings, VaultStore};
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore, SecretTrouble};
use serde_json::{Value, json};
use vault::{Cell, Vault};

/// A clock that stands until it is moved.
struct HandClock(AtomicI64);

impl HandClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_795_253_832_000)))
    }
    fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

const SECRET: &str = "ckey:tkey:hunter2-of-the-site";

fn at() -> SecretPath {
    "kv/maas-sites/s1/api-token".parse().unwrap()
}

fn secret(text: &str) -> SecretObject {
    [("token".to_owned(), Secret::new(text.to_owned()))].into()
}

fn store(settings: VaultSettings) -> VaultStore {
    VaultStore::new(settings, HandClock::new()).unwrap()
}

async fn by_role(vault: &Vault) -> VaultStore {
    store(vault.by_role(&Cell::new(vault.secret_id().await)).await)
}

async fn read(store: &VaultStore) -> String {
    store.read(&at()).await.unwrap()["token"].expose().clone()
}

/// The failure of a read, after everything it says was searched for secrets.
async fn failure(store: &VaultStore, hidden: &[&str]) -> VaultError {
    let SecretError::Vault(error) = store.read(&at()).await.map(|_| ()).unwrap_err() else {
        panic!("not Vault's own failure")
    };
    let whole = SecretError::Vault(error.clone());
    let said = format!("{error} {error:?} {} {:?} {:?}", whole.told(), whole.because(), whole.next_actions());
    for secret in hidden.iter().chain([&SECRET]) {
        assert!(!said.contains(secret), "{said}");
    }
    assert!(!whole.next_actions().is_empty());
    error
}

#[tokio::test]
async fn a_sealed_vault_says_so_and_serves_again_once_it_is_unsealed() {
    let Some(vault) = Vault::on_disk().await else { return };
    let store = by_role(&vault).await;
    store.write(&at(), secret(SECRET)).await.unwrap();
    vault.seal().await;
    let sealed = failure(&store, &[]).await;
    assert_eq!((sealed.cause(), sealed.trouble()), ("sealed", SecretTrouble::Unavailable));
    assert!(sealed.remedy().contains("vault operator unseal"), "{}", sealed.remedy());
    let refused = store.write(&at(), secret("other")).await.unwrap_err();
    assert_eq!(refused.cause(), "sealed");
    // One that never logged in sees the same.
    assert_eq!(failure(&by_role_of(&vault, "unknown").await, &[]).await.cause(), "sealed");
    vault.unseal().await;
    assert_eq!(read(&store).await, SECRET, "what was there is untouched");
}

async fn by_role_of(vault: &Vault, role_id: &str) -> VaultStore {
    store(vault.settings(VaultAuth::AppRole {
        path: "approle".to_owned(),
        role_id: role_id.to_owned(),
        secret_id: Cell::new("whatever").credential(),
    }))
}

#[tokio::test]
async fn a_vault_that_was_killed_is_unreachable_then_sealed_and_then_has_kept_everything() {
    let Some(mut vault) = Vault::on_disk().await else { return };
    let store = by_role(&vault).await;
    store.write(&at(), secret(SECRET)).await.unwrap();
    vault.kill();
    let gone = failure(&store, &[]).await;
    assert_eq!((gone.cause(), gone.trouble()), ("unreachable", SecretTrouble::Unavailable));
    vault.run().await;
    assert_eq!(failure(&store, &[]).await.cause(), "sealed");
    vault.unseal().await;
    assert_eq!(read(&store).await, SECRET);
}

#[tokio::test]
async fn a_vault_in_memory_that_was_restarted_knows_neither_role_nor_secret() {
    let Some(mut vault) = Vault::in_memory().await else { return };
    let id = vault.secret_id().await;
    let store = store(vault.by_role(&Cell::new(id.clone())).await);
    store.write(&at(), secret(SECRET)).await.unwrap();
    vault.kill();
    vault.run().await;
    let refused = failure(&store, &[&id]).await;
    assert_eq!((refused.cause(), refused.trouble()), ("login_refused", SecretTrouble::Refused));
}

#[tokio::test]
async fn a_rotated_secret_is_read_at_once() {
    let Some(vault) = Vault::in_memory().await else { return };
    let store = by_role(&vault).await;
    store.write(&at(), secret(SECRET)).await.unwrap();
    assert_eq!(read(&store).await, SECRET);
    vault.ok("POST", "kv/data/maas-sites/s1/api-token", json!({"data": {"token": "rotated"}})).await;
    assert_eq!(read(&store).await, "rotated");
    // Vault still has the version before, for whoever must go back.
    let (_, old) = vault.call("GET", "kv/data/maas-sites/s1/api-token?version=1", Value::Null).await;
    assert_eq!(old["data"]["data"]["token"], SECRET);
}

#[tokio::test]
async fn a_revoked_login_is_made_anew_without_anybody_noticing() {
    let Some(vault) = Vault::in_memory().await else { return };
    let store = Arc::new(by_role(&vault).await);
    store.write(&at(), secret(SECRET)).await.unwrap();
    vault.revoke_logins().await;
    let before = vault.tokens().await;
    let readers: Vec<_> = (0..50)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { read(&store).await })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), SECRET);
    }
    assert_eq!(vault.tokens().await, before + 1, "fifty readers make one login");
}

#[tokio::test]
async fn a_revoked_token_is_refused_until_another_is_put_in_its_place() {
    let Some(vault) = Vault::in_memory().await else { return };
    let first = vault.token(json!({"policies": ["lattice"]})).await;
    let cell = Cell::new(first.clone());
    let store = store(vault.settings(VaultAuth::Token { token: cell.credential() }));
    store.write(&at(), secret(SECRET)).await.unwrap();
    vault.ok("POST", "auth/token/revoke", json!({"token": first})).await;
    let refused = failure(&store, &[&first]).await;
    assert_eq!((refused.cause(), refused.trouble()), ("login_refused", SecretTrouble::Refused));
    assert!(refused.to_string().contains("refused the token"), "{refused}");
    cell.set(Err("/run/vault-token cannot be read".to_owned()));
    assert_eq!(failure(&store, &[&first]).await.cause(), "login_unreadable");
    cell.set(Ok(vault.token(json!({"policies": ["lattice"]})).await));
    assert_eq!(read(&store).await, SECRET);
}

#[tokio::test]
async fn a_wrong_secret_id_does_not_lock_the_role_out_and_a_new_one_works_at_once() {
    let Some(vault) = Vault::in_memory().await else { return };
    let id = vault.secret_id().await;
    let cell = Cell::new(id.clone());
    let store = store(vault.by_role(&cell).await);
    store.write(&at(), secret(SECRET)).await.unwrap();
    vault.ok("POST", "auth/approle/role/lattice/secret-id/destroy", json!({"secret_id": id})).await;
    assert_eq!(read(&store).await, SECRET, "the session outlives the secret id");
    vault.revoke_logins().await;
    // Vault would lock the role out for a quarter of an hour after five.
    for _ in 0..12 {
        let refused = failure(&store, &[&id]).await;
        assert_eq!(refused.cause(), "login_refused");
        assert!(refused.to_string().contains("invalid role or secret ID"), "{refused}");
    }
    cell.set(Ok(vault.secret_id().await));
    assert_eq!(read(&store).await, SECRET);
}

#[tokio::test]
async fn a_session_is_renewed_at_two_thirds_and_made_anew_near_the_end_of_its_longest_life() {
    let Some(vault) = Vault::in_memory().await else { return };
    vault.role(json!({"token_policies": ["lattice"], "token_ttl": "300s", "token_max_ttl": "400s"})).await;
    let clock = HandClock::new();
    let settings = vault.by_role(&Cell::new(vault.secret_id().await)).await;
    let store = VaultStore::new(settings, clock.clone()).unwrap();
    store.write(&at(), secret(SECRET)).await.unwrap();
    let before = vault.tokens().await;
    clock.pass(Duration::from_secs(199));
    assert_eq!((read(&store).await.as_str(), vault.tokens().await), (SECRET, before));
    clock.pass(Duration::from_secs(2));
    assert_eq!((read(&store).await.as_str(), vault.tokens().await), (SECRET, before), "renewed, no new login");
    clock.pass(Duration::from_secs(301));
    assert_eq!((read(&store).await.as_str(), vault.tokens().await), (SECRET, before + 1), "its life was over");
    vault.role(json!({"token_policies": ["lattice"], "token_ttl": "300s", "token_max_ttl": "300s"})).await;
    vault.revoke_logins().await;
    assert_eq!(read(&store).await, SECRET);
    let before = vault.tokens().await;
    clock.pass(Duration::from_secs(201));
    assert_eq!((read(&store).await.as_str(), vault.tokens().await), (SECRET, before), "a renewal gives what is left");
}

#[tokio::test]
async fn what_the_policy_does_not_allow_is_named_and_the_rest_goes_on() {
    let Some(vault) = Vault::in_memory().await else { return };
    let policy = "path \"kv/data/jobs/*\" { capabilities = [\"create\", \"read\", \"update\"] }";
    vault.ok("PUT", "sys/policies/acl/narrow", json!({"policy": policy})).await;
    vault.role(json!({"token_policies": ["narrow"]})).await;
    let store = by_role(&vault).await;
    let denied = failure(&store, &[]).await;
    assert_eq!((denied.cause(), denied.trouble()), ("denied", SecretTrouble::Refused));
    assert!(denied.to_string().contains("does not allow reading kv/data/maas-sites/s1/api-token"), "{denied}");
    assert_eq!(store.write(&at(), secret(SECRET)).await.unwrap_err().cause(), "denied");
    let job: SecretPath = "jobs/j1/bootstrap".parse().unwrap();
    store.write(&job, secret("one")).await.unwrap();
    assert_eq!(store.delete(&job).await.unwrap_err().cause(), "denied");
    assert_eq!(store.read(&job).await.unwrap()["token"].expose(), "one");
    vault.role(json!({"token_policies": ["default"]})).await;
    let nothing = failure(&by_role(&vault).await, &[]).await;
    assert!(nothing.to_string().contains("does not allow anything in kv/"), "{nothing}");
}

#[tokio::test]
async fn a_store_of_the_wrong_version_is_refused_before_anything_is_written() {
    let Some(vault) = Vault::in_memory().await else { return };
    vault.mount("old", "1").await;
    let root = Cell::new("root");
    let auth = VaultAuth::Token { token: root.credential() };
    let store = store(VaultSettings { mount: "old".to_owned(), ..vault.settings(auth.clone()) });
    let wrong = store.write(&at(), secret(SECRET)).await.unwrap_err();
    assert_eq!((wrong.cause(), wrong.trouble()), ("wrong_engine", SecretTrouble::Misconfigured));
    assert!(wrong.to_string().contains("`old` of Vault") && wrong.to_string().contains("is kv version 1"), "{wrong}");
    assert_eq!(vault.call("LIST", "old/", Value::Null).await.0, 404, "nothing is in it");
    for (mount, cause) in [("sys", "wrong_engine"), ("nowhere", "denied")] {
        let settings = VaultSettings { mount: mount.to_owned(), ..vault.settings(auth.clone()) };
        let error = VaultStore::new(settings, HandClock::new()).unwrap().read(&at()).await.err().unwrap();
        assert_eq!(error.cause(), cause, "{error}");
    }
}

#[tokio::test]
async fn an_upgraded_store_works_without_a_restart() {
    let Some(vault) = Vault::in_memory().await else { return };
    vault.mount("old", "1").await;
    let auth = VaultAuth::Token { token: Cell::new("root").credential() };
    let store = store(VaultSettings { mount: "old".to_owned(), ..vault.settings(auth) });
    assert_eq!(store.read(&at()).await.err().unwrap().cause(), "wrong_engine");
    vault.ok("POST", "sys/mounts/old/tune", json!({"options": {"version": "2"}})).await;
    let mut tries = 0;
    while let Err(error) = store.write(&at(), secret(SECRET)).await {
        tries += 1;
        assert!(tries < 200 && error.trouble() == SecretTrouble::Unavailable, "{error}");
    }
    assert_eq!(read(&store).await, SECRET);
}

#[tokio::test]
async fn deleting_leaves_no_version_behind_and_a_soft_deleted_secret_is_missing() {
    let Some(vault) = Vault::in_memory().await else { return };
    let store = by_role(&vault).await;
    store.write(&at(), secret(SECRET)).await.unwrap();
    store.write(&at(), secret("second")).await.unwrap();
    vault.ok("DELETE", "kv/data/maas-sites/s1/api-token", Value::Null).await;
    assert!(matches!(store.read(&at()).await, Err(SecretError::NotFound { .. })));
    store.delete(&at()).await.unwrap();
    assert_eq!(vault.call("GET", "kv/metadata/maas-sites/s1/api-token", Value::Null).await.0, 404);
}

#[tokio::test]
async fn of_many_that_create_the_same_exactly_one_does() {
    let Some(vault) = Vault::in_memory().await else { return };
    let at: SecretPath = "lattice/ca".parse().unwrap();
    // Each has a login of its own, as servers have.
    let mut servers = Vec::new();
    for n in 0..8 {
        let (store, at) = (by_role(&vault).await, at.clone());
        servers.push(tokio::spawn(async move { store.create(&at, secret(&n.to_string())).await.unwrap() }));
    }
    let mut created = 0;
    for server in servers {
        created += usize::from(server.await.unwrap());
    }
    assert_eq!(created, 1);
    assert_eq!(by_role(&vault).await.read(&at).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_value_that_is_no_text_is_not_taken_for_a_secret_and_not_repeated() {
    let Some(vault) = Vault::in_memory().await else { return };
    let store = by_role(&vault).await;
    vault.ok("POST", "kv/data/maas-sites/s1/api-token", json!({"data": {"token": {"hunter2": 4_711}}})).await;
    let wrong = failure(&store, &["hunter2", "4711"]).await;
    assert_eq!(wrong.cause(), "malformed");
}

#[tokio::test]
async fn tls_is_checked_against_the_given_authority() {
    let Some(vault) = Vault::with_tls().await else { return };
    let settings = vault.by_role(&Cell::new(vault.secret_id().await)).await;
    let trusted = store(VaultSettings { ca_pem: Some(vault.ca()), ..settings.clone() });
    trusted.write(&at(), secret(SECRET)).await.unwrap();
    assert_eq!(read(&trusted).await, SECRET);
    let distrusted = failure(&store(settings), &[]).await;
    assert_eq!((distrusted.cause(), distrusted.trouble()), ("certificate", SecretTrouble::Misconfigured));
}
