//! References to secrets: where one is, never what it is.

use std::path::PathBuf;
use std::str::FromStr;

use lattice_core::secret::Secret;

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// In a file that only this user can read; a line feed at its end is not part of it.
    File(PathBuf),
    /// In a variable of the environment.
    Env(String),
}

/// A text that is no reference to a secret. The text itself is not repeated: it may be the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a reference to a secret: expected file:/path or env:NAME")]
pub struct InvalidSecretRef;

impl FromStr for SecretRef {
    type Err = InvalidSecretRef;
    fn from_str(text: &str) -> Result<Self, InvalidSecretRef> {
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        match text.split_once(':') {
            Some(("file", path)) if path.starts_with('/') => Ok(Self::File(PathBuf::from(path))),
            Some(("env", name)) if is_name(name) => Ok(Self::Env(name.to_owned())),
            Some(_) | None => Err(InvalidSecretRef),
        }
    }
}

impl SecretRef {
    /// The secret that stands there.
    ///
    /// # Errors
    /// Nothing is there, it is empty, or it cannot be read: why, without the secret.
    pub fn resolve(&self, env: &[(String, String)]) -> Result<Secret<String>, String> {
        let text = match self {
            Self::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
                text.trim_end_matches(['\n', '\r']).to_owned()
            }
            Self::Env(name) => env
                .iter()
                .find(|(variable, _)| variable == name)
                .map(|(_, value)| value.clone())
                .ok_or_else(|| format!("the variable {name} is not set"))?,
        };
        if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(Secret::new(text)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_references_are_taken() {
        assert_eq!("file:/etc/lattice/db".parse(), Ok(SecretRef::File("/etc/lattice/db".into())));
        assert_eq!("env:LATTICE_DB".parse(), Ok(SecretRef::Env("LATTICE_DB".to_owned())));
        for bad in ["", "hunter2", "file:relative", "env:", "env:A-B", "vault:kv/x#y", "postgres://u:p@h/db"] {
            assert_eq!(bad.parse::<SecretRef>(), Err(InvalidSecretRef), "{bad}");
        }
    }

    #[test]
    fn a_secret_is_read_from_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        std::fs::write(&path, "hunter2\n").unwrap();
        let from = |reference: SecretRef, env: &[(String, String)]| {
            reference.resolve(env).map(|secret| secret.expose().clone())
        };
        assert_eq!(from(SecretRef::File(path), &[]).unwrap(), "hunter2");
        let env = [("A".to_owned(), "b".to_owned()), ("E".to_owned(), String::new())];
        assert_eq!(from(SecretRef::Env("A".to_owned()), &env).unwrap(), "b");
        assert!(from(SecretRef::Env("E".to_owned()), &env).unwrap_err().contains("empty"));
        assert!(from(SecretRef::Env("N".to_owned()), &env).unwrap_err().contains("not set"));
        assert!(from(SecretRef::File("/nowhere/at/all".into()), &[]).is_err());
    }
}
