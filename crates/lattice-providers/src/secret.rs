//! Where secrets are kept: an object of named secret strings per path. The database holds paths only. spec: S5 3.2

pub mod file;
pub mod trouble;
pub mod vault;

pub use trouble::SecretTrouble;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use async_trait::async_trait;
use lattice_core::explain::{Code, Explain, NextAction};
use lattice_core::secret::Secret;

use vault::VaultError;

/// The named secrets at one path: `{"token": …}` or `{"user": …, "pass": …}`. spec: S5 3.2
pub type SecretObject = BTreeMap<String, Secret<String>>;

/// Reads and writes secrets. This is the boundary to a secret store, whichever it is.
#[async_trait]
pub trait SecretStore: Send + Sync {
    /// The object at `path`.
    ///
    /// # Errors
    /// [`SecretError::NotFound`] when nothing is there; else the store cannot be read.
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError>;

    /// Puts `object` at `path`, in place of what was there. It is durable on return.
    ///
    /// # Errors
    /// The store cannot be read or written; what was there is untouched then.
    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError>;

    /// Puts `object` at `path` if nothing is there, and says whether it did. Stores that several servers share decide
    /// it themselves; here nobody else writes.
    ///
    /// # Errors
    /// The store cannot be read or written; what was there is untouched then.
    async fn create(&self, path: &SecretPath, object: SecretObject) -> Result<bool, SecretError> {
        match self.read(path).await {
            Ok(_) => Ok(false),
            Err(SecretError::NotFound { .. }) => self.write(path, object).await.map(|()| true),
            Err(error) => Err(error),
        }
    }

    /// Removes what is at `path`; nothing there is success.
    ///
    /// # Errors
    /// The store cannot be read or written.
    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError>;
}

/// The value named `field` at `path`.
///
/// # Errors
/// As [`SecretStore::read`]; [`SecretError::FieldMissing`] when the object lacks the field.
pub async fn read_field(
    store: &dyn SecretStore,
    path: &SecretPath,
    field: &'static str,
) -> Result<Secret<String>, SecretError> {
    let mut object = store.read(path).await?;
    object.remove(field).ok_or_else(|| SecretError::FieldMissing { path: path.clone(), field })
}

/// A path in a secret store: `kv/maas-sites/0190…/api-token`. Not a secret itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretPath(String);

/// A text that cannot be a path of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a path of a secret: expected segments of letters, digits, `.`, `_` or `-`, joined by `/`")]
pub struct InvalidSecretPath {
    given: String,
}

impl SecretPath {
    /// Longest path, in bytes.
    pub const LONGEST: usize = 256;

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretPath {
    type Err = InvalidSecretPath;
    fn from_str(text: &str) -> Result<Self, InvalidSecretPath> {
        let good = |segment: &str| {
            !matches!(segment, "" | "." | "..")
                && segment.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        };
        if text.len() <= Self::LONGEST && text.split('/').all(good) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidSecretPath { given: crate::message::bounded(&text.chars().take(80).collect::<String>()) })
        }
    }
}

impl fmt::Display for SecretPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a secret could not be read or written. Never holds one.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Nothing is stored at the path.
    #[error("no secret is stored at {path}")]
    NotFound {
        /// Where it was looked for.
        path: SecretPath,
    },
    /// The object lacks the field.
    #[error("the secret at {path} has no field `{field}`")]
    FieldMissing {
        /// Where it was looked for.
        path: SecretPath,
        /// Which one.
        field: &'static str,
    },
    /// Others can read the key, or own it.
    #[error("{file} can be read by others (mode {mode:o})")]
    KeyExposed {
        /// The key file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// There are secrets and the key to them is gone.
    #[error("{file} is missing, and {store} cannot be read without it")]
    KeyMissing {
        /// The key file.
        file: PathBuf,
        /// The encrypted file.
        store: PathBuf,
    },
    /// The key file does not hold a key.
    #[error("{file} does not hold a key of 64 hexadecimal digits")]
    KeyMalformed {
        /// The key file.
        file: PathBuf,
    },
    /// The file was encrypted with another key.
    #[error("{store} was encrypted with another key than the one in {file}")]
    KeyForeign {
        /// The key file.
        file: PathBuf,
        /// The encrypted file.
        store: PathBuf,
    },
    /// The file is cut short, longer than it says, or changed.
    #[error("{store} is damaged: {what}")]
    Damaged {
        /// The encrypted file.
        store: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// The file was written by a later version.
    #[error("{store} has format {found}, this version reads up to {known}")]
    FormatNewer {
        /// The encrypted file.
        store: PathBuf,
        /// Its format.
        found: u16,
        /// The latest known one.
        known: u16,
    },
    /// The operating system refused.
    #[error("cannot {what} {file}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        file: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Vault did not give or take it.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl SecretError {
    /// What kind of trouble it is.
    pub const fn trouble(&self) -> SecretTrouble {
        match self {
            Self::NotFound { .. } | Self::FieldMissing { .. } => SecretTrouble::Missing,
            Self::KeyExposed { .. }
            | Self::KeyMissing { .. }
            | Self::KeyMalformed { .. }
            | Self::KeyForeign { .. }
            | Self::Damaged { .. }
            | Self::FormatNewer { .. } => SecretTrouble::Misconfigured,
            Self::Io { .. } => SecretTrouble::Unavailable,
            Self::Vault(error) => error.trouble(),
        }
    }

    /// Its name in metrics and events: `sealed`, `not_found`.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::FieldMissing { .. } => "missing",
            Self::KeyExposed { .. } => "key_exposed",
            Self::KeyMissing { .. } | Self::KeyMalformed { .. } | Self::KeyForeign { .. } => "key_wrong",
            Self::Damaged { .. } | Self::FormatNewer { .. } => "file_unreadable",
            Self::Io { .. } => "io",
            Self::Vault(error) => error.cause(),
        }
    }

    /// What happened and what to do about it, in one line.
    pub fn told(&self) -> String {
        match self.remedy() {
            Some(remedy) => format!("{self}; {remedy}"),
            None => self.to_string(),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> Option<String> {
        self.next_actions().into_iter().find_map(|action| match action {
            NextAction::Fix { what } => Some(what),
            NextAction::Run { .. } | NextAction::WaitUntil { .. } => None,
        })
    }
}

impl Explain for SecretError {
    fn code(&self) -> Code {
        match self.trouble() {
            SecretTrouble::Missing => Code::SiteCredentials,
            SecretTrouble::Unavailable | SecretTrouble::Refused | SecretTrouble::Misconfigured => Code::SecretStore,
        }
    }

    fn because(&self) -> Vec<String> {
        vec![self.to_string()]
    }

    fn next_actions(&self) -> Vec<NextAction> {
        let what = match self {
            Self::NotFound { path } | Self::FieldMissing { path, .. } => format!("store the credential at {path}"),
            Self::KeyExposed { file, .. } => {
                format!("run `chmod 600 {}`; replace the key if it may be known", file.display())
            }
            Self::KeyMissing { file, .. } | Self::KeyForeign { file, .. } | Self::KeyMalformed { file } => {
                format!("put the key that belongs to it back at {}", file.display())
            }
            Self::Damaged { store, .. } => format!("restore {} from the last backup", store.display()),
            Self::FormatNewer { .. } => "run the version that wrote it".to_owned(),
            Self::Io { file, source, .. } if source.kind() == std::io::ErrorKind::WouldBlock => {
                format!("stop the other server that has {} open", file.display())
            }
            Self::Io { file, .. } => format!("give the server access to {}", file.display()),
            Self::Vault(error) => error.remedy(),
        };
        vec![NextAction::Fix { what }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_leave_their_place_are_refused() {
        for bad in ["", "/kv", "kv/", "kv//a", "kv/../a", "kv/./a", "kv/a b", "kv/ä", &"a".repeat(257)] {
            assert!(bad.parse::<SecretPath>().is_err(), "{bad}");
        }
        assert_eq!(
            "kv/maas-sites/a_1.b/api-token".parse::<SecretPath>().unwrap().as_str(),
            "kv/maas-sites/a_1.b/api-token"
        );
    }
}
