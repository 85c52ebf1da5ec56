//! What cloud-init reads from user-data: the part of `#cloud-config` that our machines carry out.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// A parsed `#cloud-config`.
#[derive(Debug, Default, Deserialize)]
pub struct CloudConfig {
    /// Files to write, in order.
    #[serde(default)]
    pub write_files: Vec<WriteFile>,
    /// Commands to run at the end of the first boot, in order.
    #[serde(default)]
    pub runcmd: Vec<Command>,
    /// Accounts to make.
    #[serde(default)]
    pub users: Vec<User>,
    /// Passwords to set.
    #[serde(default)]
    pub chpasswd: Passwords,
    /// Host keys by cloud-init's names, `ed25519_private` and so on.
    #[serde(default)]
    pub ssh_keys: BTreeMap<String, String>,
    /// Whether passwords are accepted over SSH.
    #[serde(default)]
    pub ssh_pwauth: Option<bool>,
    /// Everything else; a machine of ours does nothing about it.
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_yaml_ng::Value>,
}

/// One entry of `write_files`.
#[derive(Debug, Deserialize)]
pub struct WriteFile {
    /// Absolute path.
    pub path: String,
    /// Content in `encoding`.
    #[serde(default)]
    pub content: String,
    /// `b64`, `base64`, or `text/plain` when absent.
    #[serde(default)]
    pub encoding: Option<String>,
    /// Octal mode, `0600`.
    #[serde(default)]
    pub permissions: Option<String>,
    /// Whether to append instead of replacing.
    #[serde(default)]
    pub append: bool,
}

/// One entry of `runcmd`: a line for a shell, or a program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// A line for a shell.
    Line(String),
    /// A program with its arguments.
    Words(Vec<String>),
}

/// One entry of `users`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum User {
    /// `default`, the user of the image.
    Named(String),
    /// An account.
    Account(Account),
}

/// An account to make.
#[derive(Debug, Clone, Deserialize)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// Password in clear.
    #[serde(default)]
    pub plain_text_passwd: Option<String>,
    /// Hashed password; such an account has no password login here, because hashes are not checked.
    #[serde(default, alias = "hashed_passwd")]
    pub passwd: Option<String>,
    /// Whether password login is off; it is, unless this says `false`.
    #[serde(default)]
    pub lock_passwd: Option<bool>,
    /// Public keys in OpenSSH form.
    #[serde(default, alias = "ssh-authorized-keys")]
    pub ssh_authorized_keys: Vec<String>,
}

/// The `chpasswd` block.
#[derive(Debug, Default, Deserialize)]
pub struct Passwords {
    /// Passwords by account.
    #[serde(default)]
    pub users: Vec<Password>,
}

/// One password of the `chpasswd` block.
#[derive(Debug, Deserialize)]
pub struct Password {
    /// Login name.
    pub name: String,
    /// The password.
    #[serde(default)]
    pub password: Option<String>,
    /// `text`, `hash` or `RANDOM`; cloud-init takes `hash` when absent.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
}

/// Why user-data cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum BadUserData {
    /// The first line is not `#cloud-config`.
    #[error("user-data does not begin with #cloud-config: cloud-init would not read it")]
    NotCloudConfig,
    /// It is not YAML of the right shape.
    #[error("user-data is not a cloud-config: {0}")]
    NotYaml(#[from] serde_yaml_ng::Error),
    /// A file has an encoding that is not known here.
    #[error("the file {path} cannot be decoded from {encoding}")]
    Encoding {
        /// Path of the file.
        path: String,
        /// Its encoding.
        encoding: String,
    },
}

impl CloudConfig {
    /// Reads user-data as cloud-init does. Empty user-data asks for nothing.
    ///
    /// # Errors
    /// [`BadUserData`] where cloud-init would log an error and do nothing.
    pub fn parse(user_data: &[u8]) -> Result<Self, BadUserData> {
        let text = String::from_utf8_lossy(user_data);
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        if text.lines().next().map(str::trim_end) != Some("#cloud-config") {
            return Err(BadUserData::NotCloudConfig);
        }
        match serde_yaml_ng::from_str::<Option<Self>>(&text)? {
            Some(config) => Ok(config),
            None => Ok(Self::default()),
        }
    }

    /// The accounts, with the passwords of `chpasswd` filled in.
    pub fn accounts(&self) -> Vec<Account> {
        let accounts = self.users.iter().filter_map(|user| match user {
            User::Account(account) => Some(account.clone()),
            User::Named(_) => None,
        });
        let mut accounts: Vec<Account> = accounts.collect();
        for given in self.chpasswd.users.iter().filter(|given| given.kind.as_deref() == Some("text")) {
            if let Some(account) = accounts.iter_mut().find(|account| account.name == given.name) {
                account.plain_text_passwd.clone_from(&given.password);
                account.lock_passwd = Some(false);
            }
        }
        accounts
    }
}

impl WriteFile {
    /// The bytes that end up in the file.
    ///
    /// # Errors
    /// [`BadUserData::Encoding`] for an encoding not known here or content that does not fit it.
    pub fn bytes(&self) -> Result<Vec<u8>, BadUserData> {
        let refusal = |encoding: &str| BadUserData::Encoding { path: self.path.clone(), encoding: encoding.to_owned() };
        match self.encoding.as_deref() {
            None | Some("text/plain" | "") => Ok(self.content.clone().into_bytes()),
            Some(encoding @ ("b64" | "base64")) => {
                let compact: String = self.content.split_whitespace().collect();
                STANDARD.decode(compact).map_err(|_| refusal(encoding))
            }
            Some(other) => Err(refusal(other)),
        }
    }
}

impl Command {
    /// Whether it has something to do with this program or unit.
    pub fn mentions(&self, name: &str) -> bool {
        match self {
            Self::Line(line) => line.contains(name),
            Self::Words(words) => words.iter().any(|word| word.contains(name)),
        }
    }

    /// The command in one line.
    pub fn line(&self) -> String {
        match self {
            Self::Line(line) => line.clone(),
            Self::Words(words) => words.join(" "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_cloud_config_are_read() {
        let text =
            b"#cloud-config\nusers:\n  - default\n  - name: hpcadmin\n    ssh_authorized_keys: [ssh-ed25519 AAAA x]\n\
chpasswd:\n  expire: false\n  users:\n    - {name: hpcadmin, password: hunter2, type: text}\nssh_pwauth: true\n\
ssh_keys:\n  ed25519_private: |\n    KEY\nwrite_files:\n  - path: /etc/a\n    encoding: b64\n    content: aGk=\n\
    permissions: '0600'\nruncmd:\n  - [systemctl, start, lattice-agent]\n  - echo hi\npackage_update: false\n";
        let config = CloudConfig::parse(text).expect("a config");
        let accounts = config.accounts();
        assert_eq!(
            (accounts[0].name.as_str(), accounts[0].plain_text_passwd.as_deref()),
            ("hpcadmin", Some("hunter2"))
        );
        assert_eq!(config.write_files[0].bytes().expect("bytes"), b"hi");
        assert!(config.runcmd[0].mentions("lattice-agent") && !config.runcmd[1].mentions("lattice-agent"));
        assert_eq!(config.ssh_keys["ed25519_private"], "KEY\n");
        assert!(config.other.contains_key("package_update"));
    }

    #[test]
    fn user_data_that_cloud_init_would_not_read_is_refused() {
        assert!(matches!(CloudConfig::parse(b"#!/bin/sh\n"), Err(BadUserData::NotCloudConfig)));
        assert!(matches!(CloudConfig::parse(b"#cloud-config\nruncmd: 5\n"), Err(BadUserData::NotYaml(_))));
        assert!(CloudConfig::parse(b"").expect("nothing to do").runcmd.is_empty());
        assert!(CloudConfig::parse(b"#cloud-config\n").expect("nothing to do").runcmd.is_empty());
    }
}
