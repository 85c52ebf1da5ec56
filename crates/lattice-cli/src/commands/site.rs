//! `lattice site`: provider endpoints, their settings and their credentials. spec: S5 3.4

mod brake;
mod conformance;
mod credentials;
mod power_override;
mod profile;
mod roce;

pub use power_override::login_from;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lattice_api::Gone;
use lattice_api::client::{get, post};
use lattice_api::page::Page;
use lattice_api::site::{
    AutomationPolicy, BmcPolicy, CreateSite, HeartbeatPolicy, KNOBS, PatchSite, ProbeAnswer, SensitivePolicy,
    SiteCalls, SiteStatus, SiteView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown, table};
use crate::paging::Paging;
use crate::session::{Session, request};

/// What can be done with sites.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List sites
    List(Paging),
    /// Show a site and its settings
    #[command(alias = "get")]
    Show(Named),
    /// Create a site
    #[command(subcommand)]
    Create(Create),
    /// Change settings of a site
    Set(Set),
    /// Set credentials, or see when each was set; values are never shown
    #[command(subcommand)]
    Credentials(credentials::Command),
    /// Ask the provider whether it answers and accepts the credentials
    Probe(Named),
    /// Show how often a MAAS region was asked, against its budget
    Calls(Named),
    /// Hold back what the loss of nodes does to running work, or let go of it
    Brake(brake::Brake),
    /// Fingerprints that nodes may have: approved and reported ones
    #[command(subcommand)]
    Conformance(conformance::Command),
    /// Refuse new onboardings; those in flight go on
    Disable(Named),
    /// Accept onboardings again
    Enable(Named),
    /// Remove a site that no node ever was of, with its secrets
    Remove(Named),
    /// Other images, networks and policies for some onboardings
    #[command(subcommand)]
    Profile(profile::Command),
    /// BMC logins of single machines, which stand over the site's
    #[command(subcommand)]
    Override(power_override::Command),
    /// RoCE addresses of hosts
    #[command(subcommand)]
    Roce(roce::Command),
}

/// One site.
#[derive(Debug, Args)]
pub struct Named {
    /// Name or id
    site: String,
}

/// Which kind of site.
#[derive(Debug, Subcommand)]
pub enum Create {
    /// A MAAS region
    Maas(Maas),
    /// An LXD server
    Lxd(Lxd),
    /// An OpenCHAMI system
    Openchami(Openchami),
}

/// What every site has.
#[derive(Debug, Args)]
pub struct Place {
    /// Unique name: dc1
    name: String,
    /// Region that its nodes belong to
    #[arg(long, default_value = "default")]
    region: String,
    /// Any other setting, such as policy.require_hw_sync=false or heartbeat.interval_ms=5000; a value is JSON, else text
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, Value)>,
    /// File with further settings of the provider, JSON or TOML
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

/// A MAAS region.
#[derive(Debug, Args)]
pub struct Maas {
    /// Name and further settings
    #[command(flatten)]
    place: Place,
    /// Address of the region: http://10.176.46.1:5240/MAAS
    #[arg(long, value_name = "URL")]
    api_url: String,
    /// Interface of the MAAS server on the PXE network
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    pxe_iface: String,
    /// VLAN of the PXE network
    #[arg(long, value_name = "VID", default_value_t = 1)]
    pxe_vlan: u16,
    /// Interface of a node on the PXE network
    #[arg(long, value_name = "NAME", default_value = "eno8303")]
    node_pxe_iface: String,
    /// Image to deploy
    #[arg(long, value_name = "SERIES")]
    distro_series: Option<String>,
    /// Interface of a node whose address is used for SSH
    #[arg(long, value_name = "NAME")]
    deploy_ssh_iface: Option<String>,
}

/// An LXD server.
#[derive(Debug, Args)]
pub struct Lxd {
    /// Name and further settings
    #[command(flatten)]
    place: Place,
    /// Address of the server: https://10.0.0.5:8443
    #[arg(long, value_name = "URL")]
    api_url: String,
    /// Alias of the image of new instances
    #[arg(long)]
    image: String,
    /// Project of its instances
    #[arg(long)]
    project: Option<String>,
    /// Profile of its instances
    #[arg(long)]
    profile: Option<String>,
    /// The agent's static binary on the server's host, for images without cloud-init
    #[arg(long, value_name = "FILE")]
    agent_binary: Option<String>,
}

/// An OpenCHAMI system.
#[derive(Debug, Args)]
pub struct Openchami {
    /// Name and further settings
    #[command(flatten)]
    place: Place,
    /// Address of State Manager: https://smd.dc1:27779
    #[arg(long, value_name = "URL")]
    smd_url: String,
    /// Address of the Boot Script Service: https://bss.dc1:27778
    #[arg(long, value_name = "URL")]
    bss_url: String,
    /// Address of Power Control; without it nodes are switched through BMCs of their own
    #[arg(long, value_name = "URL")]
    pcs_url: Option<String>,
    /// Where State Manager reaches this server's API, to tell of changes: https://lattice.dc1:7440
    #[arg(long, value_name = "URL")]
    notices_url: Option<String>,
    /// Certificates of those who sign the services' certificates, in PEM; those of the server's host when it is not given
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// The services ask for no token
    #[arg(long)]
    no_token: bool,
    /// Kernel of new nodes: http://images.dc1/vmlinuz
    #[arg(long, value_name = "URL")]
    kernel: String,
    /// Initial file system of new nodes; it, or what it mounts, holds the agent
    #[arg(long, value_name = "URL")]
    initrd: String,
    /// Parameters of the kernel; anybody may read them
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    params: String,
}

/// Settings to change.
#[derive(Debug, Args)]
pub struct Set {
    /// Name or id
    site: String,
    /// Setting as `site show` prints it, such as policy.batch_max_parallel=20; a value is JSON, else text
    #[arg(value_name = "KEY=VALUE", value_parser = setting, required = true)]
    settings: Vec<(String, Value)>,
}

fn setting(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            Ok((key.to_owned(), value))
        }
        Some(_) | None => Err(format!("`{text}` is no setting: expected KEY=VALUE")),
    }
}

/// Runs one of them.
///
/// # Errors
/// Refused, or a file cannot be read.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(page) => session.show::<Page<SiteView>>(get(&["sites"]).query(&page.query())).await,
        Command::Show(named) => session.show::<SiteView>(get(&["sites", &named.site])).await,
        Command::Create(kind) => {
            let body = match kind {
                Create::Maas(maas) => self::maas(maas)?,
                Create::Lxd(lxd) => self::lxd(lxd)?,
                Create::Openchami(openchami) => self::openchami(openchami)?,
            };
            session.show::<SiteView>(post(&["sites"]).json(&body)).await
        }
        Command::Set(set) => self::set(set, session).await,
        Command::Credentials(command) => credentials::run(command, session).await,
        Command::Probe(named) => {
            let answer = session.ask::<ProbeAnswer>(post(&["sites", &named.site, "probe"])).await?;
            probed(&named.site, &answer, session)
        }
        Command::Calls(named) => session.show::<SiteCalls>(get(&["sites", &named.site, "calls"])).await,
        Command::Disable(named) => {
            let body = PatchSite { status: Some(SiteStatus::Disabled), ..PatchSite::default() };
            patch(&named.site, &body, session).await
        }
        Command::Enable(named) => {
            let body = PatchSite { status: Some(SiteStatus::Active), ..PatchSite::default() };
            patch(&named.site, &body, session).await
        }
        Command::Remove(named) => {
            let effect = "its profiles, overrides, RoCE assignments and secrets are removed with it";
            session.confirm(&format!("remove site {}", named.site), effect)?;
            session.show::<Gone>(request(reqwest::Method::DELETE, &["sites", &named.site])).await
        }
        Command::Brake(brake) => brake::run(brake, session).await,
        Command::Conformance(command) => conformance::run(command, session).await,
        Command::Profile(command) => profile::run(command, session).await,
        Command::Override(command) => power_override::run(command, session).await,
        Command::Roce(command) => roce::run(command, session).await,
    }
}

impl Shown for SiteCalls {
    fn text(&self, _: Look) -> String {
        let mut text = format!(
            "{} calls, {} of them polls, {} tried again, {} failed\nbudget: {} for each onboarding, {} more for each RoCE \
             interface, one poll each {} ms while a job waits\n\n",
            self.calls,
            self.polls,
            self.retries,
            self.failures,
            self.budget_per_onboarding,
            self.budget_per_roce_interface,
            self.poll_interval_ms
        );
        let cells = |line: &lattice_api::site::CallLine| {
            vec![line.call.clone(), line.calls.to_string(), line.retries.to_string(), line.failures.to_string()]
        };
        text.push_str(&table(&["CALL", "MADE", "TRIED AGAIN", "FAILED"], self.by_call.iter().map(cells)));
        text
    }

    fn names(&self) -> Vec<String> {
        self.by_call.iter().map(|line| line.call.clone()).collect()
    }
}

impl Shown for Gone {
    fn text(&self, _: Look) -> String {
        format!("{} is removed\n", self.removed)
    }

    fn names(&self) -> Vec<String> {
        vec![self.removed.clone()]
    }
}

/// Policies that are a site's own, each under its name as the first word of a setting.
#[derive(Default)]
struct Policies {
    heartbeat: HeartbeatPolicy,
    bmc: BmcPolicy,
    automation: AutomationPolicy,
    sensitive: SensitivePolicy,
}

impl Policies {
    const NAMES: [&str; 4] = ["heartbeat", "bmc", "automation", "sensitive"];

    /// Whether a setting is of one of them: `heartbeat.interval_ms`.
    fn have((key, _): &(String, Value)) -> bool {
        key.split_once('.').is_some_and(|(first, _)| Self::NAMES.contains(&first))
    }
}

/// What `settings` make of a policy, which they leave: the API takes it as a whole, so what is not named stays as it was.
/// None: they do not name it.
fn changed<T: Serialize + DeserializeOwned>(
    settings: &mut Vec<(String, Value)>,
    name: &str,
    before: T,
    what: &str,
) -> Result<Option<T>, Failure> {
    let is_of_it = |(key, _): &(String, Value)| key.split_once('.').is_some_and(|(first, _)| first == name);
    let (own, rest): (Vec<_>, Vec<_>) = std::mem::take(settings).into_iter().partition(is_of_it);
    *settings = rest;
    if own.is_empty() {
        return Ok(None);
    }
    let mut policy = json!({name: before});
    own.into_iter().for_each(|(key, value)| put(&mut policy, &key, value));
    serde_json::from_value(policy[name].take())
        .map(Some)
        .map_err(|error| Failure::refused(format!("these are no {what}")).because(error.to_string()))
}

/// Those that were changed.
type Changed = (Option<HeartbeatPolicy>, Option<BmcPolicy>, Option<AutomationPolicy>, Option<SensitivePolicy>);

/// What `settings` make of the site's own policies; what they leave is the provider's.
fn policies(settings: &mut Vec<(String, Value)>, before: Policies) -> Result<Changed, Failure> {
    Ok((
        changed(settings, "heartbeat", before.heartbeat, "heartbeat times")?,
        changed(settings, "bmc", before.bmc, "rules for BMCs")?,
        changed(settings, "automation", before.automation, "rules of automation")?,
        changed(settings, "sensitive", before.sensitive, "rules for wipes")?,
    ))
}

/// What no policy of the site's own takes is its provider's.
async fn set(set: Set, session: &Session) -> Result<(), Failure> {
    let mut settings = set.settings;
    let before = match settings.iter().any(Policies::have) {
        true => {
            let SiteView { heartbeat, bmc, automation, sensitive, .. } = session.client.site(&set.site).await?;
            Policies { heartbeat, bmc, automation, sensitive }
        }
        false => Policies::default(),
    };
    let (heartbeat, bmc, automation, sensitive) = policies(&mut settings, before)?;
    let mut body = PatchSite { heartbeat, bmc, automation, sensitive, ..PatchSite::default() };
    if !settings.is_empty() {
        let mut provider = Value::Object(Map::new());
        settings.into_iter().for_each(|(key, value)| put(&mut provider, &key, value));
        body.provider = Some(provider);
    }
    patch(&set.site, &body, session).await
}

async fn patch(site: &str, body: &PatchSite, session: &Session) -> Result<(), Failure> {
    session.show::<SiteView>(request(reqwest::Method::PATCH, &["sites", site]).json(body)).await
}

/// A probe that failed is printed, and is a failure too.
fn probed(site: &str, answer: &crate::session::Answer<ProbeAnswer>, session: &Session) -> Result<(), Failure> {
    session.print(answer)?;
    if answer.value.ok {
        return Ok(());
    }
    let failure = Failure::refused(format!("the provider of site {site} cannot be used as it is"));
    Err(answer.value.details.iter().cloned().fold(failure, Failure::because))
}

fn maas(maas: Maas) -> Result<CreateSite, Failure> {
    let mut provider = json!({
        "kind": "maas",
        "api_base_url": maas.api_url,
        "pxe_iface": maas.pxe_iface,
        "pxe_vlan_vid": maas.pxe_vlan,
        "node_pxe_iface": maas.node_pxe_iface,
    });
    put_given(&mut provider, "distro_series", maas.distro_series);
    put_given(&mut provider, "deploy_ssh_iface", maas.deploy_ssh_iface);
    create(maas.place, provider)
}

fn lxd(lxd: Lxd) -> Result<CreateSite, Failure> {
    let mut provider = json!({"kind": "lxd", "api_url": lxd.api_url, "image": lxd.image});
    put_given(&mut provider, "project", lxd.project);
    put_given(&mut provider, "default_profile", lxd.profile);
    put_given(&mut provider, "agent_binary", lxd.agent_binary);
    create(lxd.place, provider)
}

fn openchami(site: Openchami) -> Result<CreateSite, Failure> {
    let mut provider = json!({
        "kind": "openchami",
        "smd_url": site.smd_url,
        "bss_url": site.bss_url,
        "needs_token": !site.no_token,
        "boot_profiles": {"default": {"kernel": site.kernel, "initrd": site.initrd, "params": site.params}},
    });
    put_given(&mut provider, "pcs_url", site.pcs_url);
    put_given(&mut provider, "notices_url", site.notices_url);
    put_given(&mut provider, "authority_pem", site.authority.map(|path| read(&path)).transpose()?);
    create(site.place, provider)
}

fn create(place: Place, mut provider: Value) -> Result<CreateSite, Failure> {
    if let Some(path) = &place.settings {
        let text = read(path)?;
        let Value::Object(settings) = parse(&text, &path.display().to_string())? else {
            return Err(Failure::refused(format!("{} holds no settings", path.display())));
        };
        for (key, value) in settings {
            put(&mut provider, &key, value);
        }
    }
    let mut settings = place.set;
    let (heartbeat, bmc, automation, sensitive) = policies(&mut settings, Policies::default())?;
    for (key, value) in settings {
        put(&mut provider, &key, value);
    }
    Ok(CreateSite { name: place.name, region_code: place.region, provider, heartbeat, bmc, automation, sensitive })
}

fn put_given(target: &mut Value, key: &str, value: Option<String>) {
    if let Some(value) = value {
        put(target, key, Value::String(value));
    }
}

/// Puts a value under a dotted key: `policy.require_hw_sync`.
fn put(target: &mut Value, key: &str, value: Value) {
    let mut place = target;
    for part in key.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        place = fields.entry(part.to_owned()).or_insert(Value::Null);
    }
    *place = value;
}

/// JSON or TOML: what begins with `{` is JSON.
fn parse(text: &str, name: &str) -> Result<Value, Failure> {
    let wrong = |kind: &str| Failure::refused(format!("{name} is not valid {kind}"));
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| wrong("JSON").because(format!("line {}, column {}", error.line(), error.column())));
    }
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        match error.span().map(|span| text[..span.start].lines().count().max(1)) {
            Some(line) => wrong("TOML").because(format!("line {line}")),
            None => wrong("TOML"),
        }
    })?;
    serde_json::to_value(table).map_err(|_| wrong("TOML"))
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::refused(format!("cannot read {}", path.display())).because(error.to_string()))
}

impl Row for SiteView {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["SITE", "KIND", "REGION", "STATUS", "CREDENTIALS"];
        if wide {
            head.extend(["AGE", "ID"]);
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let mut cells = vec![
            self.name.clone(),
            self.provider.kind().to_owned(),
            self.region_code.clone(),
            self.status.to_string(),
            if self.credentials_complete { "complete".to_owned() } else { "missing".to_owned() },
        ];
        if look.wide {
            cells.extend([look.age(self.created_at.as_millis()), self.id.to_string()]);
        }
        cells
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Shown for SiteView {
    fn text(&self, look: Look) -> String {
        let mut text = output::rows(std::slice::from_ref(self), Look { wide: true, ..look });
        text.push('\n');
        let mut settings = Vec::new();
        flatten("", &json!(self.provider), &mut settings);
        flatten("heartbeat", &json!(self.heartbeat), &mut settings);
        flatten("bmc", &json!(self.bmc), &mut settings);
        flatten("automation", &json!(self.automation), &mut settings);
        text.push_str(&table(&[], settings.into_iter().map(|(key, value)| with_unit(key, value))));
        let governor = &self.governor;
        text.push_str(&format!(
            "\nmade unavailable by Lattice itself: {} of {} nodes in service, at most {}\n",
            governor.taken, governor.in_service, governor.limit
        ));
        if let Some(brake) = &self.brake {
            let whom: Vec<String> = brake.selector.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let whom = if whom.is_empty() { "all its nodes".to_owned() } else { whom.join(", ") };
            text.push_str(&format!("brake for {whom} until {}, by {}: {}\n", brake.until, brake.by.name, brake.reason));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn note(&self) -> Option<String> {
        (!self.credentials_complete && self.provider.kind() != "manual")
            .then(|| format!("it has no credentials yet: lattice site credentials set {} --from-file FILE", self.name))
    }
}

/// A setting as a line: a knob of a policy has its unit and what it is for beside it.
fn with_unit(key: String, value: String) -> Vec<String> {
    let knob = KNOBS.iter().find(|knob| key.strip_prefix("policy.") == Some(knob.name));
    let about = knob.map(|knob| match knob.kind.unit() {
        "" => knob.about.to_owned(),
        unit => format!("{unit}; {}", knob.about),
    });
    vec![key, value, about.unwrap_or_default()]
}

/// Every value with its dotted key, as `lattice site set` takes them.
fn flatten(prefix: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, found);
            }
        }
        Value::Null => {}
        Value::String(text) => found.push((prefix.to_owned(), text.clone())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => found.push((prefix.to_owned(), value.to_string())),
    }
}

impl Shown for ProbeAnswer {
    fn text(&self, _: Look) -> String {
        let version = self.version.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
        let mut text = format!("{}{version}\n", if self.ok { "ok" } else { "failed" });
        if self.ok {
            for detail in &self.details {
                text.push_str(&format!("  {detail}\n"));
            }
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![if self.ok { "ok".to_owned() } else { "failed".to_owned() }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_put_under_their_dotted_key() {
        let mut target = json!({"kind": "maas", "policy": {"a": 1}});
        let (key, value) = setting("policy.require_hw_sync=false").unwrap();
        put(&mut target, &key, value);
        let (key, value) = setting("distro_series=ubuntu/noble").unwrap();
        put(&mut target, &key, value);
        assert_eq!(
            target,
            json!({"kind": "maas", "policy": {"a": 1, "require_hw_sync": false}, "distro_series": "ubuntu/noble"})
        );
    }
}
