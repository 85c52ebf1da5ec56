//! `lattice site override`: BMC logins of single machines, which stand over the site's. spec: S5 3.2.1
//!
//! Logins come from a file or from stdin, as the site's own credentials do.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lattice_api::Gone;
use lattice_api::client::{get, post};
use lattice_api::page::Page;
use lattice_api::power_override::{
    CreatePowerOverride, PatchPowerOverride, PowerOverrideView, PowerSelector, SiteStatus,
};
use lattice_api::site::PowerLogin;

use super::credentials::stdin;
use super::{parse, read};
use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown};
use crate::paging::Paging;
use crate::session::{Session, request};

/// What can be done with overrides.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the overrides of a site
    List(List),
    /// Create an override with its login
    Create(Create),
    /// Give an override another login; what reads it next uses it
    Set(Set),
    /// Do not look at it any more; its login stays
    Disable(Named),
    /// Look at it again
    Enable(Named),
    /// Remove it and its login
    Remove(Named),
}

/// Whose.
#[derive(Debug, Args)]
pub struct List {
    /// The site, by name or id
    site: String,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// One override.
#[derive(Debug, Args)]
pub struct Named {
    /// The site, by name or id
    site: String,
    /// Its id
    id: String,
}

/// An override to create: the machine by one of three, strongest first.
#[derive(Debug, Args)]
pub struct Create {
    /// The site, by name or id
    site: String,
    /// Which machine
    #[command(flatten)]
    machine: Machine,
    /// The login: JSON or TOML with user and pass
    #[command(flatten)]
    source: Source,
}

/// Where a login is read from: JSON or TOML with user and pass.
#[derive(Debug, Args)]
#[group(id = "source", required = true, multiple = false)]
pub struct Source {
    /// File that holds it; keep it readable for yourself only
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// Read it from stdin
    #[arg(long)]
    from_stdin: bool,
}

/// Which machine.
#[derive(Debug, Args)]
#[group(id = "machine", required = true, multiple = false)]
pub struct Machine {
    /// By the MAC that it boots from
    #[arg(long, value_name = "MAC")]
    pxe_mac: Option<String>,
    /// By the address of its BMC
    #[arg(long, value_name = "ADDRESS")]
    ipmi_ip: Option<String>,
    /// By its host name
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
}

/// Another login.
#[derive(Debug, Args)]
pub struct Set {
    /// The site, by name or id
    site: String,
    /// Its id
    id: String,
    /// The login: JSON or TOML with user and pass
    #[command(flatten)]
    source: Source,
}

/// Runs one of them.
///
/// # Errors
/// Refused, or a file cannot be read.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let change = |site: String, id: String, body: PatchPowerOverride| async move {
        let call = request(reqwest::Method::PATCH, &["sites", &site, "power-overrides", &id]).json(&body);
        session.show::<PowerOverrideView>(call).await
    };
    match command {
        Command::List(list) => {
            let call = get(&["sites", &list.site, "power-overrides"]).query(&list.page.query());
            session.show::<Page<PowerOverrideView>>(call).await
        }
        Command::Create(create) => {
            let (selector_type, selector_value) = create.machine.selector()?;
            let body = CreatePowerOverride { selector_type, selector_value, login: login(&create.source)? };
            session.show::<PowerOverrideView>(post(&["sites", &create.site, "power-overrides"]).json(&body)).await
        }
        Command::Set(set) => {
            let body = PatchPowerOverride { login: Some(login(&set.source)?), ..PatchPowerOverride::default() };
            change(set.site, set.id, body).await
        }
        Command::Disable(named) => {
            let body = PatchPowerOverride { status: Some(SiteStatus::Disabled), ..PatchPowerOverride::default() };
            change(named.site, named.id, body).await
        }
        Command::Enable(named) => {
            let body = PatchPowerOverride { status: Some(SiteStatus::Active), ..PatchPowerOverride::default() };
            change(named.site, named.id, body).await
        }
        Command::Remove(named) => {
            let effect = "its login is deleted; the machine gets the next login in their order";
            session.confirm(&format!("remove override {}", named.id), effect)?;
            let call = request(reqwest::Method::DELETE, &["sites", &named.site, "power-overrides", &named.id]);
            session.show::<Gone>(call).await
        }
    }
}

impl Machine {
    fn selector(self) -> Result<(PowerSelector, String), Failure> {
        let given = [
            (PowerSelector::PxeMac, self.pxe_mac),
            (PowerSelector::IpmiIp, self.ipmi_ip),
            (PowerSelector::Hostname, self.hostname),
        ];
        let mut given = given.into_iter().filter_map(|(selector, value)| Some((selector, value?)));
        given.next().ok_or_else(|| Failure::refused("no machine is named").next("", "give --ipmi-ip ADDRESS"))
    }
}

fn login(source: &Source) -> Result<PowerLogin, Failure> {
    login_from(source.from_file.as_deref())
}

/// A login from a file, or from stdin.
///
/// # Errors
/// It cannot be read, or is no login.
pub fn login_from(file: Option<&Path>) -> Result<PowerLogin, Failure> {
    let (text, name) = match file {
        Some(path) => (read(path)?, path.display().to_string()),
        None => (stdin()?, "stdin".to_owned()),
    };
    // The parser's own message would show the text around the mistake: a secret.
    serde_json::from_value(parse(&text, &name)?)
        .map_err(|_| Failure::refused(format!("{name} does not hold a login")).because("expected user and pass"))
}

impl Row for PowerOverrideView {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["BY", "VALUE", "STATUS", "CHANGED", "ID"];
        if wide {
            head.push("KEPT AT");
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let mut cells = vec![
            self.selector_type.to_string(),
            self.selector_value.clone(),
            self.status.to_string(),
            look.age(self.updated_at.as_millis()),
            self.id.to_string(),
        ];
        if look.wide {
            cells.push(self.vault_path.clone());
        }
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Shown for PowerOverrideView {
    fn text(&self, look: Look) -> String {
        output::rows(std::slice::from_ref(self), look)
    }

    fn names(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }
}
