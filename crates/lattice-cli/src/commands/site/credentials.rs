//! `lattice site credentials`: secrets go in, and never come out. spec: S5 3.4, 3.5
//!
//! They come from a file, from stdin, from the environment or from a prompt, never from the command line: other users
//! can read that.

use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::site::{ProbeAnswer, SiteCredential, SiteCredentials, SiteProvider, SiteView};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use serde_json::{Map, Value, json};

use super::{Named, parse, probed, read};
use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown};
use crate::session::{Answer, Session};

/// The variables of `--from-env`, each with what it holds.
const VARIABLES: [(&str, &str); 4] = [
    ("LATTICE_MAAS_API_TOKEN", "API token"),
    ("LATTICE_BMC_USER", "BMC user"),
    ("LATTICE_BMC_PASSWORD", "BMC password"),
    ("LATTICE_DEPLOY_PASSWORD", "deploy password"),
];

/// What can be done with credentials.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Try credentials at the provider, then keep them; what is not given stays as it is
    Set(Set),
    /// Show where each is kept, when it was set, and when the provider accepted it
    #[command(alias = "list")]
    Show(Named),
}

/// Credentials to set.
#[derive(Debug, Args)]
pub struct Set {
    /// Name or id
    site: String,
    /// Where they are read from
    #[command(flatten)]
    source: Source,
}

/// Secrets of a site: JSON or TOML with api_token, power = { user, pass } and deploy_password for MAAS, or
/// client_certificate_pem, client_key_pem and server_certificate_pem for LXD, or bearer_token for OpenCHAMI. Without any
/// of these they are asked for.
#[derive(Debug, Args)]
#[group(id = "source", required = false, multiple = false)]
struct Source {
    /// File that holds them; keep it readable for yourself only
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// Read them from stdin
    #[arg(long)]
    from_stdin: bool,
    /// Take LATTICE_MAAS_API_TOKEN, LATTICE_BMC_USER, LATTICE_BMC_PASSWORD and LATTICE_DEPLOY_PASSWORD, as far as set
    #[arg(long)]
    from_env: bool,
}

/// Runs one of them.
///
/// # Errors
/// Refused, or the credentials cannot be read.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Set(set) => {
            let body = match &set.source {
                Source { from_file: Some(path), .. } => parsed(&read(path)?, &path.display().to_string())?,
                Source { from_stdin: true, .. } => parsed(&stdin()?, "stdin")?,
                Source { from_env: true, .. } => of_variables(|name| std::env::var(name).ok())?,
                Source { .. } => asked(&session.client.site(&set.site).await?)?,
            };
            let answer = session.ask::<ProbeAnswer>(post(&["sites", &set.site, "credentials"]).json(&body)).await?;
            probed(&set.site, &answer, session)
        }
        Command::Show(named) => {
            let answer = session.ask::<SiteView>(get(&["sites", &named.site])).await?;
            let rows = Credentials(answer.value.credentials);
            let body = serde_json::to_vec(&rows.0).map(bytes::Bytes::from).unwrap_or_default();
            session.print(&Answer { body, value: rows })
        }
    }
}

pub(super) fn stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| Failure::refused("cannot read stdin").because(error.to_string()))?;
    Ok(text)
}

fn parsed(text: &str, name: &str) -> Result<SiteCredentials, Failure> {
    understood(parse(text, name)?, name)
}

fn understood(value: Value, name: &str) -> Result<SiteCredentials, Failure> {
    // The parser's own message would show the text around the mistake: a secret.
    serde_json::from_value(value).map_err(|_| {
        Failure::refused(format!("{name} does not hold credentials of a site")).because(
            "expected api_token, power = { user, pass } and deploy_password for MAAS; client_certificate_pem, \
             client_key_pem and server_certificate_pem for LXD; bearer_token for OpenCHAMI",
        )
    })
}

fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Result<SiteCredentials, Failure> {
    let given = VARIABLES.map(|(name, _)| variable(name).filter(|text| !text.is_empty()));
    if given.iter().all(Option::is_none) {
        let names = VARIABLES.map(|(name, _)| name).join(", ");
        return Err(Failure::refused("no variable holds a credential").next("", format!("set one of {names}")));
    }
    of_maas(given, "the environment")
}

/// API token, BMC user, BMC password and deploy password, as far as given.
fn of_maas(given: [Option<String>; 4], from: &str) -> Result<SiteCredentials, Failure> {
    let [token, user, pass, deploy] = given;
    let mut body = Map::new();
    match (user, pass) {
        (Some(user), Some(pass)) => drop(body.insert("power".to_owned(), json!({"user": user, "pass": pass}))),
        (None, None) => {}
        // A login is a user and a password: one alone is a mistake.
        (Some(_), None) => return Err(Failure::refused(format!("{from} gives a BMC user, and no BMC password"))),
        (None, Some(_)) => return Err(Failure::refused(format!("{from} gives a BMC password, and no BMC user"))),
    }
    for (field, value) in [("api_token", token), ("deploy_password", deploy)] {
        body.extend(value.map(|value| (field.to_owned(), Value::String(value))));
    }
    understood(Value::Object(body), from)
}

/// Asks for each credential; what is typed does not appear.
fn asked(site: &SiteView) -> Result<SiteCredentials, Failure> {
    let nobody = || {
        Failure::refused("there is nobody to ask for credentials")
            .next("", "give --from-file FILE, --from-stdin or --from-env, or run it in a terminal")
    };
    if !std::io::stdin().is_terminal() {
        return Err(nobody());
    }
    match &site.provider {
        SiteProvider::Maas(_) => {}
        SiteProvider::Openchami(_) => {
            eprintln!("Credentials of {}; an empty line keeps what is there.", site.name);
            let token = hidden("bearer token")?.map_or(json!({}), |token| json!({"bearer_token": token}));
            return understood(token, "the terminal");
        }
        SiteProvider::Lxd(_) | SiteProvider::Manual => {
            return Err(Failure::refused(format!("credentials of a {} site cannot be typed", site.provider.kind()))
                .next("", "give --from-file FILE"));
        }
    }
    eprintln!("Credentials of {}; an empty line keeps what is there.", site.name);
    let [token, user, pass, deploy] = VARIABLES.map(|(_, what)| what);
    let token = hidden(token)?;
    let user = shown(user)?;
    let pass = if user.is_some() { hidden(pass)? } else { None };
    of_maas([token, user, pass, hidden(deploy)?], "the terminal")
}

fn shown(what: &str) -> Result<Option<String>, Failure> {
    eprint!("{what}: ");
    // The question is only a courtesy when stderr is closed; the answer decides.
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::refused("cannot read the terminal").because(error.to_string()))?;
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()).filter(|line| !line.is_empty()))
}

/// Reads a line that the terminal does not show.
fn hidden(what: &str) -> Result<Option<String>, Failure> {
    let terminal = std::io::stdin();
    let failed = |error: nix::Error| Failure::refused("the terminal shows what is typed").because(error.to_string());
    let before = tcgetattr(terminal.as_fd()).map_err(failed)?;
    let mut silent = before.clone();
    silent.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(terminal.as_fd(), SetArg::TCSAFLUSH, &silent).map_err(failed)?;
    let line = shown(what);
    let restored = tcsetattr(terminal.as_fd(), SetArg::TCSANOW, &before);
    eprintln!();
    restored.map_err(failed)?;
    line
}

/// What is known of a site's credentials.
struct Credentials(Vec<SiteCredential>);

impl Row for SiteCredential {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["CREDENTIAL", "SET", "BY", "ACCEPTED", "PROBLEM"];
        if wide {
            head.push("PATH");
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let ago = |ms: Option<i64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{} ago", look.age(ms)));
        let problem = match &self.problem {
            Some(problem) => problem.clone(),
            None if self.generation.0 == 0 => "missing".to_owned(),
            None => "-".to_owned(),
        };
        let by = self.set_by.clone().unwrap_or_else(|| "-".to_owned());
        let (set, accepted) = (self.set_at.map(|at| at.as_millis()), self.validated_at.map(|at| at.as_millis()));
        let mut cells = vec![self.name.to_string(), ago(set), by, ago(accepted), problem];
        if look.wide {
            cells.push(self.path.clone());
        }
        cells
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

impl Shown for Credentials {
    fn text(&self, look: Look) -> String {
        output::rows(&self.0, look)
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(Row::name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_as_json_and_as_toml() {
        let toml = "api_token = \"a:b:c\"\n[power]\nuser = \"root\"\npass = \"x\"\n";
        let json = r#"{"api_token": "a:b:c", "power": {"user": "root", "pass": "x"}}"#;
        for text in [toml, json] {
            let read = parsed(text, "f").unwrap();
            assert_eq!(read.api_token.unwrap().expose(), "a:b:c");
            let power = read.power.unwrap();
            assert_eq!((power.user.as_str(), power.pass.expose().as_str()), ("root", "x"));
            assert!(read.deploy_password.is_none());
        }
    }

    #[test]
    fn a_mistake_in_credentials_does_not_show_them() {
        for text in [
            "{\"api_token\": \"hunter2\" oops}",
            "api_token = \"hunter2\" oops\n",
            "api_tokn = \"hunter2\"\n",
            "power = \"hunter2\"\n",
        ] {
            let failure = parsed(text, "stdin").err().unwrap();
            assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
        }
    }

    #[test]
    fn variables_give_what_is_set_and_half_a_login_is_refused() {
        let of = |set: &'static [(&str, &str)]| {
            of_variables(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        let some = of(&[("LATTICE_MAAS_API_TOKEN", "a:b:c"), ("LATTICE_DEPLOY_PASSWORD", "")]).unwrap();
        assert!(some.api_token.is_some() && some.power.is_none() && some.deploy_password.is_none());
        let both = of(&[("LATTICE_BMC_USER", "root"), ("LATTICE_BMC_PASSWORD", "hunter2")]).unwrap();
        assert_eq!(both.power.unwrap().pass.expose(), "hunter2");
        for half in [&[("LATTICE_BMC_USER", "root")][..], &[("LATTICE_BMC_PASSWORD", "hunter2")], &[]] {
            let failure = of_variables(|name| {
                half.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
            .err()
            .unwrap();
            assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
        }
    }
}
