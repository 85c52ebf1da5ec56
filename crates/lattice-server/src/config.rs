//! Configuration: one TOML file, overridden by the environment, checked as a whole. design: 8-interfaces "Operations"
//!
//! Every key has a default; `deploy/lattice.example.toml` shows them all. Secrets stand here only by reference.

mod check;
mod secret_ref;
mod secrets;

pub use secret_ref::{InvalidSecretRef, SecretRef};
pub use secrets::{Secrets, SecretsKind, VaultAuthKind};

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::auth::Rate;
use crate::http::HttpLimits;

/// Every environment variable that overrides a key begins with it: `LATTICE_HTTP_LISTEN`.
pub const ENV_PREFIX: &str = "LATTICE_";

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The process.
    pub server: Server,
    /// Where the data is.
    pub store: StoreSection,
    /// Where secrets are kept.
    pub secrets: Secrets,
    /// The API and the page.
    pub http: Http,
    /// What agents talk to.
    pub agents: Agents,
    /// What new hosts are told.
    pub bootstrap: Bootstrap,
    /// Where events may be posted to.
    pub webhooks: Webhooks,
    /// What is logged.
    pub log: Log,
}

/// The process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Where everything that this server keeps lies: database, secrets, keys.
    pub data_dir: PathBuf,
    /// Name of this server in leases and logs; empty: the host's name.
    pub name: String,
}

/// Where the data is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// `sqlite` for one server, `postgres` for several.
    pub backend: BackendKind,
    /// Reference to the PostgreSQL address: `env:LATTICE_DATABASE` or `file:/etc/lattice/database`.
    pub postgres_url: String,
}

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BackendKind {
    /// A file in the data directory.
    Sqlite,
    /// A PostgreSQL database.
    Postgres,
}

/// The API and the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Address to listen at. Anything but loopback needs TLS.
    pub listen: String,
    /// Certificate chain in PEM; empty: no TLS.
    pub tls_certificate: PathBuf,
    /// Reference to its key in PEM: `file:/etc/lattice/http.key`.
    pub tls_key: String,
    /// Largest request body, in bytes.
    pub max_body_bytes: u64,
    /// Requests per second and token that go on for ever.
    pub requests_per_second: u32,
    /// Requests of one token at once, after a pause.
    pub burst: u32,
    /// Event streams at once.
    pub max_event_streams: u32,
}

/// What agents talk to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agents {
    /// Address to listen at.
    pub listen: String,
    /// Where agents reach this very server: `https://lattice-1.dc1:7443`. Its certificate is made for this name, and for that
    /// of `bootstrap.server`.
    pub address: String,
    /// Life of an agent's certificate, in hours; it is renewed at two thirds.
    pub certificate_hours: u32,
}

/// What new hosts are told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bootstrap {
    /// Where new hosts find a server; empty: at `agents.address`. Of several servers: a name that leads to any that lives.
    pub server: String,
    /// The agent's binary that this server gives to new hosts; empty: it gives none.
    pub agent_binary: PathBuf,
    /// Where hosts fetch the agent's binary; empty: from this server.
    pub agent_url: String,
    /// SHA-256 of that binary in hex; empty: it is not checked beyond TLS.
    pub agent_sha256: String,
}

/// Where events may be posted to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Webhooks {
    /// Ranges of this host, of link-local and private networks in which receivers are: `10.1.0.0/16`. Everything else that
    /// is not public is refused.
    pub allow: Vec<String>,
}

/// What is logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, or a filter such as `info,lattice_workflow=debug`.
    pub level: String,
    /// `json` for machines, `text` for people.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LogFormat {
    /// One JSON object in each line.
    Json,
    /// Columns.
    Text,
}

impl Default for Server {
    fn default() -> Self {
        Self { data_dir: PathBuf::from("/var/lib/lattice"), name: String::new() }
    }
}

impl Default for StoreSection {
    fn default() -> Self {
        Self { backend: BackendKind::Sqlite, postgres_url: String::new() }
    }
}

impl Default for Http {
    fn default() -> Self {
        let limits = HttpLimits::default();
        Self {
            listen: "127.0.0.1:7440".to_owned(),
            tls_certificate: PathBuf::new(),
            tls_key: String::new(),
            max_body_bytes: limits.max_body_bytes as u64,
            requests_per_second: limits.rate.per_second,
            burst: limits.rate.burst,
            max_event_streams: u32::try_from(limits.max_streams).unwrap_or(u32::MAX),
        }
    }
}

impl Http {
    /// As bounds of the API.
    pub fn limits(&self) -> HttpLimits {
        HttpLimits {
            max_body_bytes: usize::try_from(self.max_body_bytes).unwrap_or(usize::MAX),
            rate: Rate { per_second: self.requests_per_second, burst: self.burst },
            max_streams: self.max_event_streams as usize,
        }
    }
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7443".to_owned(),
            address: "https://localhost:7443".to_owned(),
            certificate_hours: 24,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Json }
    }
}

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Which key: `http.listen`; a variable's name where one set it.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  next: {}", self.key, self.problem, self.remedy)
    }
}

impl Config {
    /// Reads a file's text, lets variables override it, and checks the whole.
    ///
    /// A variable is `LATTICE_<SECTION>_<KEY>`; others that begin with `LATTICE_` belong to somebody else.
    ///
    /// # Errors
    /// All problems at once, in the order of the keys.
    pub fn load(text: &str, env: &[(String, String)]) -> Result<Self, Vec<ConfigProblem>> {
        let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
            let at = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            vec![ConfigProblem {
                key: at.map_or_else(|| "the file".to_owned(), |line| format!("line {line}")),
                problem: error.message().to_owned(),
                remedy: "write it as TOML; deploy/lattice.example.toml shows every key".to_owned(),
            }]
        })?;
        let known = known_keys();
        let mut problems = override_with(&mut table, &known, env);
        problems.extend(check::shape(&table, &known));
        if !problems.is_empty() {
            return Err(problems);
        }
        let config: Self = table.try_into().map_err(|error: toml::de::Error| {
            vec![ConfigProblem {
                key: "the file".to_owned(),
                problem: error.message().to_owned(),
                remedy: "see deploy/lattice.example.toml".to_owned(),
            }]
        })?;
        let problems = check::values(&config);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

/// Every section with every key and its default.
fn known_keys() -> Table {
    Table::try_from(Config::default()).expect("the defaults are plain values")
}

/// Puts the values of variables into the table. A key that is text takes any text; others are read as TOML.
fn override_with(table: &mut Table, known: &Table, env: &[(String, String)]) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for (section, keys) in known {
        for (key, default) in keys.as_table().into_iter().flatten() {
            let name = format!("{ENV_PREFIX}{}_{}", section.to_uppercase(), key.to_uppercase());
            let Some((_, text)) = env.iter().find(|(variable, _)| *variable == name) else { continue };
            let value = if default.is_str() {
                Some(Value::String(text.clone()))
            } else {
                format!("v = {text}").parse::<Table>().ok().and_then(|mut read| read.remove("v"))
            };
            let Some(value) = value else {
                problems.push(ConfigProblem {
                    key: name,
                    problem: format!("`{}` cannot be read", text.chars().take(40).collect::<String>()),
                    remedy: format!("give a value such as {default}"),
                });
                continue;
            };
            let section = table.entry(section.clone()).or_insert_with(|| Value::Table(Table::new()));
            if let Some(section) = section.as_table_mut() {
                section.insert(key.clone(), value);
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../deploy/lattice.example.toml");

    fn problems(text: &str, env: &[(&str, &str)]) -> Vec<String> {
        let env: Vec<_> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Config::load(text, &env).unwrap_err().into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn the_example_has_every_key_at_its_default() {
        assert_eq!(EXAMPLE.parse::<Table>().unwrap(), known_keys());
        assert_eq!(Config::load(EXAMPLE, &[]).unwrap(), Config::default());
        assert_eq!(Config::load("", &[]).unwrap(), Config::default());
    }

    #[test]
    fn variables_override_the_file() {
        let env = [("LATTICE_HTTP_BURST", "7"), ("LATTICE_HTTP_LISTEN", "[::1]:80"), ("LATTICE_TOKEN", "x")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::load("[http]\nburst = 5\nrequests_per_second = 3", &env).unwrap();
        let http = config.http;
        assert_eq!((http.burst, http.requests_per_second, http.listen.as_str()), (7, 3, "[::1]:80"));
    }

    #[test]
    fn all_problems_are_listed_with_their_keys() {
        assert_eq!(
            problems("[http]\nburst = 'x'\nport = 1\n[htp]\nlisten = ''", &[]),
            ["htp", "http.burst", "http.port"]
        );
        assert_eq!(problems("http = 3", &[]), ["http"]);
        assert_eq!(problems("[http]\nlisten =", &[]), ["line 2"]);
        assert_eq!(problems("", &[("LATTICE_HTTP_BURST", "many")]), ["LATTICE_HTTP_BURST"]);
        let text = "[http]\nlisten = '0.0.0.0:80'\nburst = 0\n[store]\nbackend = 'postgres'\npostgres_url = \
            'postgres://u:p@h/db'\n[agents]\naddress = 'ftp://x'\ncertificate_hours = 0\n[bootstrap]\nserver = 'http://x'\nagent_sha256 = 'ab'";
        let keys = ["store.postgres_url", "http.tls_certificate", "http.burst", "agents.address"];
        assert_eq!(problems(text, &[])[..4], keys);
        let rest = ["agents.certificate_hours", "bootstrap.server", "bootstrap.agent_sha256"];
        assert_eq!(problems(text, &[])[4..], rest);
        assert_eq!(problems("[store]\nbackend = 'oracle'", &[]), ["the file"]);
    }

    #[test]
    fn a_secret_that_stands_in_the_file_is_refused_without_being_repeated() {
        let text = "[store]\nbackend = 'postgres'\npostgres_url = 'postgres://u:hunter2@h/db'";
        let problems = Config::load(text, &[]).unwrap_err();
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(said[0].contains("file:") && !said[0].contains("hunter2"), "{said:?}");
    }
}
