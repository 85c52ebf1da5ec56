//! What can go wrong with Vault, told apart by what an operator does about it.

use std::time::Duration;

use lattice_core::time::human;

use super::super::trouble::SecretTrouble;
use crate::message::bounded;

/// Why Vault did not give or take a secret. It never holds one: words of Vault are bounded and cleaned of what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum VaultError {
    /// It is sealed: nobody can read it until it is unsealed.
    #[error("Vault at {address} is sealed")]
    Sealed {
        /// Where it is.
        address: String,
    },
    /// It has no storage yet.
    #[error("Vault at {address} is not initialised")]
    Uninitialised {
        /// Where it is.
        address: String,
    },
    /// Another server of its cluster is the active one, and this one does not pass requests on.
    #[error("Vault at {address} is a standby that answers nothing itself")]
    Standby {
        /// Where it is.
        address: String,
    },
    /// No connection could be made.
    #[error("Vault at {address} cannot be reached: {detail}")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What the network said.
        detail: String,
    },
    /// It did not answer in time.
    #[error("Vault at {address} did not answer within {}", human(*.limit))]
    Timeout {
        /// Where it is.
        address: String,
        /// How long was waited.
        limit: Duration,
    },
    /// Its certificate is not from an authority that is trusted here.
    #[error("the certificate of Vault at {address} is not trusted: {detail}")]
    Certificate {
        /// Where it is.
        address: String,
        /// What does not fit.
        detail: String,
    },
    /// It does not accept the token, or the role with its secret id.
    #[error("Vault at {address} refused the {login}: {said}")]
    LoginRefused {
        /// Where it is.
        address: String,
        /// What was refused: `token`, `AppRole login`.
        login: &'static str,
        /// Its own words.
        said: String,
    },
    /// The token or the secret id cannot be read where it is kept.
    #[error("the {login} for Vault cannot be read: {problem}")]
    LoginUnreadable {
        /// What is read: `token`, `secret id`.
        login: &'static str,
        /// Why not.
        problem: String,
    },
    /// The login is good, and its policy does not allow this.
    #[error("Vault at {address} does not allow {what} {place}: {said}")]
    Denied {
        /// Where it is.
        address: String,
        /// What was tried: `reading`, `writing`, `deleting`.
        what: &'static str,
        /// At which path of Vault.
        place: String,
        /// Its own words.
        said: String,
    },
    /// The mount is something else than a key-value store of version 2.
    #[error("`{mount}` of Vault at {address} is {found}, not a key-value store of version 2")]
    WrongEngine {
        /// Where it is.
        address: String,
        /// Which mount.
        mount: String,
        /// What it is: `kv version 1`, `transit`.
        found: String,
    },
    /// It answered with a failure of its own.
    #[error("Vault at {address} failed with {status}: {said}")]
    Failed {
        /// Where it is.
        address: String,
        /// HTTP status.
        status: u16,
        /// Its own words.
        said: String,
    },
    /// What answered does not speak as Vault does.
    #[error("the answer of {address} is not Vault's: {what}")]
    Malformed {
        /// Where it is.
        address: String,
        /// What was expected.
        what: String,
    },
    /// What this server is told about Vault cannot be used.
    #[error("{what}")]
    Unusable {
        /// What is wrong.
        what: String,
    },
}

impl VaultError {
    /// What this server is told cannot be used.
    pub(super) fn unusable(what: impl std::fmt::Display) -> Self {
        Self::Unusable { what: bounded(&what.to_string()) }
    }

    /// Its name in metrics and events: `sealed`, `login_refused`.
    pub fn cause(&self) -> &'static str {
        self.into()
    }

    /// What kind of trouble it is.
    pub const fn trouble(&self) -> SecretTrouble {
        match self {
            Self::Sealed { .. }
            | Self::Uninitialised { .. }
            | Self::Standby { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Failed { .. } => SecretTrouble::Unavailable,
            Self::LoginRefused { .. } | Self::LoginUnreadable { .. } | Self::Denied { .. } => SecretTrouble::Refused,
            Self::Certificate { .. } | Self::WrongEngine { .. } | Self::Malformed { .. } | Self::Unusable { .. } => {
                SecretTrouble::Misconfigured
            }
        }
    }

    /// What an operator does about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Sealed { address } => format!("unseal it: `VAULT_ADDR={address} vault operator unseal`"),
            Self::Uninitialised { address } => {
                format!(
                    "initialise it and set it up as docs/guides/vault.md says: `VAULT_ADDR={address} vault operator init`"
                )
            }
            Self::Standby { .. } => {
                "give secrets.vault_address the address of the cluster, or of its active server".to_owned()
            }
            Self::Unreachable { address, .. } | Self::Timeout { address, .. } => {
                format!("see whether it answers from this server: `curl {address}/v1/sys/health`")
            }
            Self::Certificate { .. } => {
                "give secrets.vault_ca_file the certificate of the authority that signed it".to_owned()
            }
            Self::LoginRefused { login: "token", .. } => {
                "put a valid token where secrets.vault_token says; it is read again at once".to_owned()
            }
            Self::LoginRefused { .. } => {
                "put a new secret id where secrets.vault_secret_id says, or correct the role; it is read again at once"
                    .to_owned()
            }
            Self::LoginUnreadable { login, .. } => {
                format!("let the user that runs the server read the {login} where the configuration says it is")
            }
            Self::Denied { place, .. } => {
                format!("allow {place} in the policy of the login; deploy/vault-policy.hcl has every path")
            }
            Self::WrongEngine { mount, .. } => {
                format!(
                    "give secrets.vault_mount a mount of `vault secrets enable -version=2 kv`, or upgrade `{mount}`"
                )
            }
            Self::Failed { .. } => "look into Vault's own log".to_owned(),
            Self::Malformed { .. } => {
                "see whether secrets.vault_address is Vault's, and no proxy or another server".to_owned()
            }
            Self::Unusable { .. } => "correct the [secrets] section of the configuration".to_owned(),
        }
    }
}
