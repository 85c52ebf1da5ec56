//! Where secrets are kept: in an encrypted file of this server, or in Vault. spec: S5 3.2

use std::path::PathBuf;

use http::Uri;
use serde::{Deserialize, Serialize};

use super::{ConfigProblem, SecretRef};

/// Where secrets are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Secrets {
    /// `file` for one server, `vault` for several.
    pub backend: SecretsKind,
    /// Where Vault is: `https://vault.dc1:8200`.
    pub vault_address: String,
    /// Where its key-value store of version 2 is mounted.
    pub vault_mount: String,
    /// Its namespace; empty: none.
    pub vault_namespace: String,
    /// Authorities that its certificate may come from, in PEM; empty: those of the operating system.
    pub vault_ca_file: PathBuf,
    /// `approle`, or `token` for one that somebody else issues.
    pub vault_auth: VaultAuthKind,
    /// Where the AppRole method is mounted.
    pub vault_approle_path: String,
    /// The role's id; no secret.
    pub vault_role_id: String,
    /// Reference to the secret id: `file:/etc/lattice/vault-secret-id`. It is read whenever a login is made.
    pub vault_secret_id: String,
    /// Reference to the token, with `vault_auth = "token"`. It is read whenever the one before is refused or old.
    pub vault_token: String,
    /// Longest wait for one answer of Vault, in milliseconds.
    pub vault_timeout_ms: u32,
}

/// Which secret store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SecretsKind {
    /// An encrypted file in the data directory.
    File,
    /// HashiCorp Vault.
    Vault,
}

/// How this server logs in to Vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum VaultAuthKind {
    /// By a role and its secret id.
    Approle,
    /// By a token.
    Token,
}

impl Default for Secrets {
    fn default() -> Self {
        Self {
            backend: SecretsKind::File,
            vault_address: String::new(),
            vault_mount: "kv".to_owned(),
            vault_namespace: String::new(),
            vault_ca_file: PathBuf::new(),
            vault_auth: VaultAuthKind::Approle,
            vault_approle_path: "approle".to_owned(),
            vault_role_id: String::new(),
            vault_secret_id: String::new(),
            vault_token: String::new(),
            vault_timeout_ms: 5_000,
        }
    }
}

impl Secrets {
    /// What is wrong with the description of Vault, whether it is the secret store or not.
    pub fn vault_problems(&self) -> Vec<ConfigProblem> {
        check(&Self { backend: SecretsKind::Vault, ..self.clone() })
    }
}

/// Values that have the right type and cannot work.
pub(super) fn check(secrets: &Secrets) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    let mut add = |key: &str, problem: &str, remedy: &str| {
        problems.push(ConfigProblem {
            key: format!("secrets.{key}"),
            problem: problem.to_owned(),
            remedy: remedy.to_owned(),
        });
    };
    // A secret that was written down by mistake is noticed even where it is not used.
    for (key, text) in [("vault_secret_id", &secrets.vault_secret_id), ("vault_token", &secrets.vault_token)] {
        if !text.is_empty() && text.parse::<SecretRef>().is_err() {
            add(
                key,
                "is not a reference to a secret",
                "put it into a file of mode 0600 and write file:/path, or write env:NAME",
            );
        }
    }
    match secrets.backend {
        SecretsKind::File => return problems,
        SecretsKind::Vault => {}
    }
    match address(&secrets.vault_address) {
        Address::Good => {}
        Address::None => {
            add("vault_address", "is not the address of a server", "give one such as https://vault.dc1:8200")
        }
        Address::Plain => add(
            "vault_address",
            "is http, and every secret would cross the network in the clear",
            "give https://…; http is for loopback alone",
        ),
    }
    if secrets.vault_mount.trim_matches('/').is_empty() {
        add("vault_mount", "is empty", "name a key-value store of version 2, such as kv");
    }
    match secrets.vault_auth {
        VaultAuthKind::Approle => {
            if secrets.vault_role_id.is_empty() {
                let remedy = "give what `vault read auth/approle/role/lattice/role-id` prints";
                add("vault_role_id", "is empty", remedy);
            }
            if secrets.vault_secret_id.is_empty() {
                add("vault_secret_id", "is empty", "write file:/path of a file that holds the secret id, or env:NAME");
            }
            if secrets.vault_approle_path.trim_matches('/').is_empty() {
                add("vault_approle_path", "is empty", "name where the AppRole method is mounted: approle");
            }
        }
        VaultAuthKind::Token if secrets.vault_token.is_empty() => {
            add("vault_token", "is empty", "write file:/path of a file that holds the token, or env:NAME");
        }
        VaultAuthKind::Token => {}
    }
    if !(100..=60_000).contains(&secrets.vault_timeout_ms) {
        add("vault_timeout_ms", "is not 100 to 60000", "5000 is five seconds");
    }
    problems
}

enum Address {
    Good,
    Plain,
    None,
}

fn address(text: &str) -> Address {
    let Ok(uri) = text.parse::<Uri>() else { return Address::None };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match uri.scheme_str() {
        _ if host.is_empty() => Address::None,
        Some("https") => Address::Good,
        Some("http") if is_loopback => Address::Good,
        Some("http") => Address::Plain,
        Some(_) | None => Address::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(change: impl FnOnce(&mut Secrets)) -> Vec<String> {
        let mut secrets = Secrets {
            backend: SecretsKind::Vault,
            vault_address: "https://vault.dc1:8200".to_owned(),
            vault_role_id: "0190".to_owned(),
            vault_secret_id: "file:/etc/lattice/vault-secret-id".to_owned(),
            ..Secrets::default()
        };
        change(&mut secrets);
        check(&secrets).into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn what_vault_needs_is_asked_for() {
        assert_eq!(keys(|_| {}), [""; 0]);
        let bare = Secrets { backend: SecretsKind::Vault, ..Secrets::default() };
        let found: Vec<String> = check(&bare).into_iter().map(|problem| problem.key).collect();
        assert_eq!(found, ["secrets.vault_address", "secrets.vault_role_id", "secrets.vault_secret_id"]);
        assert_eq!(keys(|s| s.vault_auth = VaultAuthKind::Token), ["secrets.vault_token"]);
        assert_eq!(keys(|s| s.vault_timeout_ms = 0), ["secrets.vault_timeout_ms"]);
        assert_eq!(keys(|s| s.vault_mount = "/".to_owned()), ["secrets.vault_mount"]);
        assert!(check(&Secrets::default()).is_empty(), "the file needs none of it");
    }

    #[test]
    fn secrets_cross_the_network_encrypted_or_not_at_all() {
        for (address, is_good) in [
            ("https://vault.dc1:8200", true),
            ("http://127.0.0.1:8200", true),
            ("http://[::1]:8200", true),
            ("http://localhost:8200/", true),
            ("http://vault.dc1:8200", false),
            ("vault.dc1:8200", false),
            ("", false),
        ] {
            assert_eq!(keys(|s| s.vault_address = address.to_owned()).is_empty(), is_good, "{address}");
        }
    }

    #[test]
    fn a_secret_in_the_file_is_refused_without_being_repeated() {
        let written = Secrets { vault_token: "hvs.hunter2".to_owned(), ..Secrets::default() };
        let problems = check(&written);
        assert_eq!(problems[0].key, "secrets.vault_token");
        assert!(!problems[0].to_string().contains("hunter2"));
    }
}
