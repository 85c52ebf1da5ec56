//! A real server on a real Vault that is rotated, revoked and sealed while machines onboard through a simulated region:
//! every machine becomes active, whatever was interrupted goes on by itself, and no secret is anywhere but in Vault.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[path = "../../lattice-providers/tests/vault/mod.rs"]
mod vault;

mod installation;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use installation::{Installation, tail};

use lattice_agent::Pace;
use lattice_core::secret::Secret;
use lattice_providers::secret::file::FileSecretStore;
use lattice_providers::secret::{SecretObject, SecretStore};
use lattice_sim::maas::config::SiteConfig;
use lattice_sim::maas::site::SimulatedSite;
use lattice_sim::machine::real_agent::RealAgents;
use serde_json::{Value, json};
use vault::Vault;

const MACHINES: u32 = 3;
/// Longest time for the whole: a quiet machine takes a fifth of it.
const PATIENCE: Duration = Duration::from_secs(400);
/// Not the port of `lattice dev`, nor of the test that kills servers.
const SSH_PORT: u16 = 22_133;

/// A server on that Vault, with a login of its own.
async fn on(vault: &Vault, secret_id: &str) -> Installation {
    let server = Installation::new("one", PATIENCE);
    std::fs::write(server.path("secret-id"), format!("{secret_id}\n")).unwrap();
    server.configure(&secrets_in(vault, &server).await);
    server
}

async fn secrets_in(vault: &Vault, server: &Installation) -> String {
    format!(
        "[secrets]\nbackend = \"vault\"\nvault_address = \"{}\"\nvault_role_id = \"{}\"\n\
         vault_secret_id = \"file:{}\"\n",
        vault.address,
        vault.role_id().await,
        server.path("secret-id").display(),
    )
}

/// Every file below, whatever it is.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn holds(bytes: &[u8], secret: &str) -> bool {
    bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
}

fn same<T: PartialEq + Debug>(have: T, want: T, about: &Value) {
    assert_eq!(have, want, "{about}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_vault_onboards_through_rotation_revocation_and_sealing() {
    let Some(vault) = Vault::on_disk().await else { return };
    let first_id = vault.secret_id().await;
    let mut server = on(&vault, &first_id).await;
    let region = SiteConfig::dev(11, MACHINES);
    let machines = region.population.machines.clone();
    let agents = Arc::new(RealAgents::new(Pace::default()));
    let site = SimulatedSite::start(region, SocketAddr::from(([127, 0, 0, 1], 0)), agents, SSH_PORT).await.unwrap();
    server.start().await;

    // Nothing is kept that the region did not accept.
    let provider = json!({"kind": "maas", "api_base_url": site.url, "pxe_iface": "ens19", "pxe_vlan_vid": 0,
        "node_pxe_iface": "eno8303", "deploy_ssh_port": SSH_PORT, "policy": {"poll_interval_ms": 250}});
    let made = server.ok("sites", json!({"name": "dc1", "region_code": "r", "provider": provider})).await;
    let kept_at = format!("kv/data/maas-sites/{}", made["id"].as_str().unwrap());
    let bmc = &machines[0].bmc;
    let credentials = |token: &str, deploy: &str| json!({"api_token": token, "power": {"user": bmc.user, "pass": bmc.password}, "deploy_password": deploy});
    let (status, refused) = server.post("sites/dc1/credentials", credentials("aa:bb:wrong-token", "deploy-one")).await;
    same((status, refused["code"].as_str()), (422, Some("LAT0051")), &refused);
    assert_eq!(vault.call("LIST", "kv/metadata/maas-sites", Value::Null).await.0, 404, "nothing was written");
    let key = site.key.joined();
    server.ok("sites/dc1/credentials", credentials(&key, "deploy-password-one")).await;
    let (_, kept) = vault.call("GET", &format!("{kept_at}/api-token"), Value::Null).await;
    assert_eq!(kept["data"]["data"]["token"], key.as_str());
    let (_, shown) = server.get("sites/dc1").await;
    same(shown["credentials_complete"].as_bool(), Some(true), &shown);
    let token = shown["credentials"].as_array().unwrap().iter().find(|row| row["name"] == "api_token").unwrap();
    assert!(token["set_by"] == "admin" && token["validated_at"].is_string() && token["set_at"].is_string(), "{token}");

    server.ok("skus", json!({"name": "any8", "gpus": 8})).await;
    let onboard = |machine: usize| {
        let machine = &machines[machine];
        json!({"site_id": "dc1", "sku_id": "any8", "hostname": machine.label,
            "ipmi_ip": machine.bmc.address.to_string()})
    };
    server.ok("onboardings", onboard(0)).await;
    server.active(1).await;

    // The login is rotated and every session of it revoked, the deploy password is rotated: nobody restarts anything.
    let second_id = vault.secret_id().await;
    std::fs::write(server.path("secret-id"), &second_id).unwrap();
    vault.ok("POST", "auth/approle/role/lattice/secret-id/destroy", json!({"secret_id": first_id})).await;
    vault.revoke_logins().await;
    server.ok("sites/dc1/credentials", json!({"deploy_password": "deploy-password-two"})).await;
    let (_, kept) = vault.call("GET", &format!("{kept_at}/deploy-password"), Value::Null).await;
    same(
        (kept["data"]["data"]["pass"].as_str(), kept["data"]["metadata"]["version"].as_u64()),
        (Some("deploy-password-two"), Some(2)),
        &kept,
    );
    server.ok("onboardings", onboard(1)).await;
    server.active(2).await;

    // Sealed: what needs no secret works, what does says why, and what waits goes on by itself.
    vault.seal().await;
    let (status, list) = server.get("sites").await;
    same((status, list["items"][0]["name"].as_str().is_some()), (200, true), &list);
    let (status, refused) = server.post("sites/dc1/credentials", json!({"deploy_password": "deploy-three"})).await;
    same((status, refused["code"].as_str()), (503, Some("LAT0053")), &refused);
    assert!(refused.to_string().contains("is sealed"), "{refused}");
    let job = server.ok("onboardings", onboard(2)).await["onboarding_id"].as_str().unwrap().to_owned();
    server
        .until("an explanation", async || {
            let (_, said) = server.get(&format!("jobs/{job}/explain")).await;
            let said = said.to_string();
            said.contains("is sealed; unseal it: `VAULT_ADDR=") && said.contains("vault operator unseal")
        })
        .await;
    server.until("the alert", async || server.events().await.contains(&"secrets.unavailable".to_owned())).await;
    let metrics = server.metrics().await;
    assert!(metrics.contains("lattice_secret_store_up 0") && metrics.contains(r#"result="sealed""#), "{metrics}");
    vault.unseal().await;
    server.active(3).await;
    server.until("its end", async || server.events().await.contains(&"secrets.available".to_owned())).await;
    assert!(server.metrics().await.contains("lattice_secret_store_up 1"));
    assert_eq!(vault.call("LIST", "kv/metadata/jobs", Value::Null).await.0, 404, "what was kept for jobs is gone");

    // No secret is in any answer, log, row or file of the server.
    let (_, audit) = server.get("audit?limit=1000").await;
    let (_, events) = server.get("events?limit=1000").await;
    server.stop();
    let mut secrets = vec![key, second_id.clone(), first_id, vault.root.clone()];
    secrets.extend(["deploy-password-one", "deploy-password-two", "wrong-token", "deploy-three"].map(str::to_owned));
    secrets.extend(machines.iter().map(|machine| machine.bmc.password.clone()).filter(|word| word.len() > 7));
    for secret in &secrets {
        assert!(!audit.to_string().contains(secret) && !events.to_string().contains(secret), "in the audit or events");
    }
    for file in files(server.folder.path()).into_iter().filter(|file| !file.ends_with("secret-id")) {
        let bytes = std::fs::read(&file).unwrap();
        for secret in &secrets {
            assert!(!holds(&bytes, secret), "{} holds {}…", file.display(), &secret[..4]);
        }
    }
    assert!(server.log().lines().count() > 10, "the log was looked at");

    // A server that starts beside a sealed Vault says so and ends; once it is unsealed, it has the same authority.
    vault.seal().await;
    let ended = server.spawn().wait().unwrap();
    let said = tail(&server.log());
    assert!(!ended.success() && said.contains("is sealed") && said.contains("vault operator unseal"), "{said}");
    vault.unseal().await;
    server.start().await;
    server.active(3).await;
    server.stop();
    site.stop().await;
}

/// `lattice server secrets copy` with the configuration of that folder.
fn copy(folder: &Path, more: &[&str]) -> (i32, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_lattice"))
        .args(["server", "secrets", "copy", "--config"])
        .arg(folder.join("lattice.toml"))
        .args(more)
        .output()
        .unwrap();
    let said = [run.stdout, run.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (run.status.code().unwrap(), said)
}

#[tokio::test]
async fn secrets_of_the_file_are_copied_into_vault_and_none_is_printed() {
    let Some(vault) = Vault::in_memory().await else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret-id"), vault.secret_id().await).unwrap();
    let text = format!(
        "[server]\ndata_dir = \"{data}\"\n[secrets]\nvault_address = \"{}\"\nvault_role_id = \"{}\"\n\
         vault_secret_id = \"file:{data}/secret-id\"\n",
        vault.address,
        vault.role_id().await,
        data = folder.path().display(),
    );
    std::fs::write(folder.path().join("lattice.toml"), text).unwrap();
    let (status, said) = copy(folder.path(), &[]);
    assert!(status == 1 && said.contains("holds no secrets.enc"), "{said}");
    let key = folder.path().join("secrets.key");
    let paths = ["lattice/ca", "kv/webhooks/a/b", "kv/maas-sites/x/api-token"];
    let file = FileSecretStore::open(folder.path(), &key).unwrap();
    for path in paths {
        let object = SecretObject::from([("token".to_owned(), Secret::new(format!("hunter2 {path}")))]);
        file.write(&path.parse().unwrap(), object).await.unwrap();
    }
    let (status, said) = copy(folder.path(), &[]);
    assert!(status == 1 && said.contains("stop the other server"), "the file has one user at a time: {said}");
    drop(file);
    let (status, said) = copy(folder.path(), &[]);
    assert!(status == 0 && said.contains("copied and read back: 3 secrets; 0 were there"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    for path in paths {
        let at = format!("kv/data/{}", path.trim_start_matches("kv/"));
        let (_, kept) = vault.call("GET", &at, Value::Null).await;
        assert_eq!(kept["data"]["data"]["token"], format!("hunter2 {path}"), "{kept}");
    }
    vault.ok("POST", "kv/data/lattice/ca", json!({"data": {"token": "another"}})).await;
    let (status, said) = copy(folder.path(), &[]);
    assert!(status == 1 && said.contains("lattice/ca") && said.contains("--overwrite"), "{said}");
    let (status, said) = copy(folder.path(), &["--overwrite"]);
    assert!(status == 0 && said.contains("1 secrets; 2 were there"), "{said}");
}
