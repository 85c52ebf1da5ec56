//! An installed system: files, accounts, units. It outlives a power cycle and ends with a release.

use std::collections::{BTreeMap, BTreeSet};

use lattice_api::agent::Bootstrap;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{PrivateKey, PublicKey, decode_secret_key};

use super::cloud_config::{Account, BadUserData, CloudConfig};
use super::command::Command;
use crate::dice::{Dice, text_key};
use crate::maas::oauth::ApiKey;

/// Where the agent's bootstrap lies. design: 4 "On the host"
pub const BOOTSTRAP_PATH: &str = "/etc/lattice/bootstrap.json";
/// Where the credentials of the hardware sync lie. spec: S5 9.1
pub const SYNC_CREDENTIALS_PATH: &str = "/etc/maas/maas-machine-creds.yml";
/// Where the first boot notes what failed.
const FIRST_BOOT_NOTES: &str = "/var/lib/lattice/first-boot";
/// The program that a `runcmd` entry must mention for the agent to start.
const AGENT_PROGRAM: &str = "lattice-agent";

/// A file of an installed system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What is in it.
    pub content: Vec<u8>,
    /// Octal mode.
    pub mode: u32,
}

/// An installed system on the disks of a machine.
pub struct System {
    files: BTreeMap<String, File>,
    accounts: BTreeMap<String, Account>,
    password_login: bool,
    host_key: PrivateKey,
    agent_enabled: bool,
    running_units: BTreeSet<String>,
    refused: Vec<String>,
}

/// What a command does beyond the system itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Exit status.
    pub status: u32,
    /// What it prints.
    pub output: Vec<u8>,
    /// The hardware sync was started.
    pub starts_sync: bool,
}

impl Outcome {
    fn done(output: impl Into<Vec<u8>>) -> Self {
        Self { status: 0, output: output.into(), starts_sync: false }
    }

    fn failed(status: u32, output: impl Into<Vec<u8>>) -> Self {
        Self { status, output: output.into(), starts_sync: false }
    }
}

impl System {
    /// What cloud-init makes of `user_data` at the first boot. Without a host key in it, the system makes its own.
    ///
    /// # Errors
    /// [`BadUserData`] where cloud-init would do nothing; the system then has no account to log in to.
    pub fn install(user_data: &[u8], hostname: &str, seed: u64) -> Result<(Self, CloudConfig), BadUserData> {
        let config = CloudConfig::parse(user_data)?;
        let given = config.ssh_keys.get("ed25519_private").and_then(|pem| decode_secret_key(pem, None).ok());
        let mut system = Self {
            files: BTreeMap::new(),
            accounts: config.accounts().into_iter().map(|account| (account.name.clone(), account)).collect(),
            password_login: config.ssh_pwauth.unwrap_or(false),
            host_key: given.unwrap_or_else(|| own_host_key(hostname, seed)),
            agent_enabled: config.runcmd.iter().any(|command| command.mentions(AGENT_PROGRAM)),
            running_units: BTreeSet::new(),
            refused: Vec::new(),
        };
        for file in &config.write_files {
            let mode = file.permissions.as_deref().and_then(|text| u32::from_str_radix(text, 8).ok());
            let mut content = file.bytes()?;
            if file.append {
                let mut before = system.files.remove(&file.path).map(|file| file.content).unwrap_or_default();
                before.append(&mut content);
                content = before;
            }
            system.files.insert(file.path.clone(), File { content, mode: mode.unwrap_or(0o644) });
        }
        Ok((system, config))
    }

    /// A layer of the first boot failed, and its runner noted it: `site_bootstrap`, `agent_bootstrap`.
    pub fn layer_failed(&mut self, layer: &str) {
        let content = format!("{layer} failed 1: a command of it\n").into_bytes();
        self.files.insert(FIRST_BOOT_NOTES.to_owned(), File { content, mode: 0o644 });
    }

    /// Carries out a command. `input` is what came over standard input.
    pub fn run(&mut self, command: Command, input: Vec<u8>) -> Outcome {
        match command {
            Command::Install { path, mode } => {
                // A path unit starts the sync as soon as its credentials are there.
                let watched = path == SYNC_CREDENTIALS_PATH
                    && self.running_units.iter().any(|unit| is_sync_unit(unit) && unit.ends_with(".path"));
                self.files.insert(path, File { content: input, mode });
                Outcome { starts_sync: watched, ..Outcome::done("") }
            }
            Command::Systemctl { verb, units, starts } => self.systemctl(&verb, &units, starts),
            Command::Read { path } => match self.files.get(&path) {
                Some(file) => Outcome::done(file.content.clone()),
                None => Outcome::failed(1, format!("cat: {path}: No such file or directory\n")),
            },
            Command::Exists { path } => Outcome::failed(u32::from(!self.files.contains_key(&path)), ""),
            Command::CloudInitStatus => Outcome::done("status: done\n"),
            Command::Nothing => Outcome::done(""),
        }
    }

    /// Remembers a command line that no machine of ours understands.
    pub fn refuse(&mut self, line: &str) {
        self.refused.push(line.to_owned());
    }

    /// Command lines that were refused.
    pub fn refused(&self) -> &[String] {
        &self.refused
    }

    /// A file.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// The host key.
    pub const fn host_key(&self) -> &PrivateKey {
        &self.host_key
    }

    /// Whether this password opens this account over SSH.
    pub fn accepts_password(&self, name: &str, password: &str) -> bool {
        let Some(account) = self.accounts.get(name).filter(|_| self.password_login) else { return false };
        account.lock_passwd == Some(false) && account.plain_text_passwd.as_deref() == Some(password)
    }

    /// Whether this key opens this account.
    pub fn accepts_key(&self, name: &str, key: &PublicKey) -> bool {
        let Some(account) = self.accounts.get(name) else { return false };
        let authorized = account.ssh_authorized_keys.iter();
        authorized.filter_map(|line| PublicKey::from_openssh(line).ok()).any(|known| known.key_data() == key.key_data())
    }

    /// The agent's bootstrap, if the system starts the agent.
    pub fn bootstrap(&self) -> Option<Result<Bootstrap, serde_json::Error>> {
        let file = self.files.get(BOOTSTRAP_PATH).filter(|_| self.agent_enabled)?;
        Some(serde_json::from_slice(&file.content))
    }

    /// The key of the hardware sync, if it runs and its credentials can be read.
    pub fn sync_key(&self) -> Option<ApiKey> {
        if !self.running_units.iter().any(|unit| is_sync_unit(unit)) {
            return None;
        }
        let file = self.files.get(SYNC_CREDENTIALS_PATH)?;
        let value: serde_yaml_ng::Value = serde_yaml_ng::from_slice(&file.content).ok()?;
        let find = |name: &str| find_text(&value, name);
        Some(ApiKey { consumer: find("consumer_key")?, token: find("token_key")?, secret: find("token_secret")? })
    }

    fn systemctl(&mut self, verb: &str, units: &[String], starts: bool) -> Outcome {
        if verb == "is-active" {
            let active = units.iter().all(|unit| self.running_units.contains(unit));
            return if active { Outcome::done("active\n") } else { Outcome::failed(3, "inactive\n") };
        }
        if starts {
            self.running_units.extend(units.iter().cloned());
        }
        if matches!(verb, "stop" | "disable") {
            self.running_units.retain(|unit| !units.contains(unit));
        }
        Outcome { starts_sync: starts && units.iter().any(|unit| is_sync_unit(unit)), ..Outcome::done("") }
    }
}

/// The units of MAAS' hardware sync: `maas_hardware_sync.timer`, `maas-agent` and their like.
fn is_sync_unit(unit: &str) -> bool {
    unit.contains("maas") || unit.contains("hardware-sync") || unit.contains("hardware_sync")
}

/// The text under `name`, however deep: the file's nesting differs between versions of the template.
fn find_text(value: &serde_yaml_ng::Value, name: &str) -> Option<String> {
    let map = value.as_mapping()?;
    let here = map.get(name).and_then(serde_yaml_ng::Value::as_str).map(str::to_owned);
    here.or_else(|| map.values().find_map(|inner| find_text(inner, name)))
}

fn own_host_key(hostname: &str, seed: u64) -> PrivateKey {
    let mut bytes = [0_u8; 32];
    for (at, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&Dice(seed).bits(&[0x55, text_key(hostname), at as u64]).to_le_bytes());
    }
    let pair = KeypairData::Ed25519(Ed25519Keypair::from_seed(&bytes));
    PrivateKey::new(pair, hostname).expect("an unencrypted Ed25519 key is always valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::command::parse;

    fn run(system: &mut System, line: &str, input: &[u8]) -> Outcome {
        system.run(parse(line).expect("a command"), input.to_vec())
    }

    #[test]
    fn hardware_sync_needs_both_its_credentials_and_its_unit() {
        let (mut system, _) = System::install(b"", "c01u43", 1).expect("a system");
        let creds = b"reporting:\n  maas:\n    consumer_key: a\n    token_key: b\n    token_secret: c\n";
        run(&mut system, "install -m 600 /dev/stdin /etc/maas/maas-machine-creds.yml", creds);
        assert!(system.sync_key().is_none());
        assert!(run(&mut system, "sudo systemctl restart maas_hardware_sync.timer", b"").starts_sync);
        assert_eq!(system.sync_key().map(|key| key.joined()), Some("a:b:c".into()));
        assert_eq!(system.file(SYNC_CREDENTIALS_PATH).map(|file| file.mode), Some(0o600));
    }

    #[test]
    fn a_path_unit_starts_hardware_sync_when_the_credentials_arrive() {
        let (mut system, _) = System::install(b"", "c01u43", 1).expect("a system");
        run(&mut system, "systemctl enable --now lattice-maas-sync.path", b"");
        let install = "install -m 600 /dev/stdin /etc/maas/maas-machine-creds.yml";
        assert!(run(&mut system, install, b"consumer_key: a\ntoken_key: b\ntoken_secret: c\n").starts_sync);
        assert!(!run(&mut system, "install -m 600 /dev/stdin /etc/motd", b"hi").starts_sync);
    }

    #[test]
    fn a_password_opens_an_account_only_where_passwords_are_allowed() {
        let text = |allowed: bool| {
            format!(
                "#cloud-config\nssh_pwauth: {allowed}\nusers:\n  - name: hpcadmin\n    lock_passwd: false\n    \
                 plain_text_passwd: hunter2\n"
            )
        };
        for allowed in [true, false] {
            let (system, _) = System::install(text(allowed).as_bytes(), "c01u43", 1).expect("a system");
            assert_eq!(system.accepts_password("hpcadmin", "hunter2"), allowed);
            assert!(!system.accepts_password("hpcadmin", "wrong") && !system.accepts_password("root", "hunter2"));
        }
    }

    #[test]
    fn a_system_without_a_given_host_key_makes_the_same_one_for_the_same_seed() {
        let key = |seed| System::install(b"", "c01u43", seed).expect("a system").0.host_key().public_key().clone();
        assert_eq!(key(1), key(1));
        assert_ne!(key(1), key(2));
    }
}
