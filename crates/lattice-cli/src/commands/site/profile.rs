//! `lattice site profile`: other images, networks and policies for some onboardings. spec: S5 3.7

use clap::{Args, Subcommand};
use lattice_api::Gone;
use lattice_api::client::{get, post};
use lattice_api::page::Page;
use lattice_api::profile::{CreateProfile, PatchProfile, ProfileView, SiteStatus};
use lattice_api::site::{PatchSite, SiteView};
use serde_json::{Map, Value, json};

use super::{flatten, put, setting, with_unit};
use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown, table};
use crate::paging::Paging;
use crate::session::{Session, request};

/// What can be done with profiles.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the profiles of a site
    List(List),
    /// Show a profile and what it sets
    #[command(alias = "get")]
    Show(Named),
    /// Create a profile; image and network that are not set are the site's, policy begins as the site's is now
    Create(Create),
    /// Change what a profile sets; jobs that were accepted keep what they have
    Set(Set),
    /// Use it for onboardings that name none; `-` means none
    Default(Named),
    /// Refuse new onboardings with it
    Disable(Named),
    /// Accept onboardings with it again
    Enable(Named),
    /// Remove it; jobs that were accepted keep what they have
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

/// One profile.
#[derive(Debug, Args)]
pub struct Named {
    /// The site, by name or id
    site: String,
    /// The profile, by name or id
    profile: String,
}

/// A profile to create.
#[derive(Debug, Args)]
pub struct Create {
    /// The site, by name or id
    site: String,
    /// Unique name: gpu-default
    name: String,
    /// For people
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Setting such as distro_series=custom/gpuaas-noble or policy.require_hw_sync=false; a value is JSON, else text
    #[arg(value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, Value)>,
}

/// Settings to change.
#[derive(Debug, Args)]
pub struct Set {
    /// The site, by name or id
    site: String,
    /// The profile, by name or id
    profile: String,
    /// Setting such as policy.batch_max_parallel=20; null gives image and network back to the site
    #[arg(value_name = "KEY=VALUE", value_parser = setting, required = true)]
    settings: Vec<(String, Value)>,
}

/// Runs one of them.
///
/// # Errors
/// Refused.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let change = |site: String, profile: String, body: PatchProfile| async move {
        let call = request(reqwest::Method::PATCH, &["sites", &site, "profiles", &profile]).json(&body);
        session.show::<ProfileView>(call).await
    };
    match command {
        Command::List(list) => {
            let call = get(&["sites", &list.site, "profiles"]).query(&list.page.query());
            session.show::<Page<ProfileView>>(call).await
        }
        Command::Show(named) => {
            session.show::<ProfileView>(get(&["sites", &named.site, "profiles", &named.profile])).await
        }
        Command::Create(create) => {
            let settings = settings(create.settings);
            let body = CreateProfile { name: create.name, description: create.description, settings };
            session.show::<ProfileView>(post(&["sites", &create.site, "profiles"]).json(&body)).await
        }
        Command::Set(set) => {
            let body = PatchProfile { settings: Some(settings(set.settings)), ..PatchProfile::default() };
            change(set.site, set.profile, body).await
        }
        Command::Default(named) => default(&named, session).await,
        Command::Disable(named) => {
            let body = PatchProfile { status: Some(SiteStatus::Disabled), ..PatchProfile::default() };
            change(named.site, named.profile, body).await
        }
        Command::Enable(named) => {
            let body = PatchProfile { status: Some(SiteStatus::Active), ..PatchProfile::default() };
            change(named.site, named.profile, body).await
        }
        Command::Remove(named) => {
            let effect = "jobs that were accepted with it keep what they have";
            session.confirm(&format!("remove profile {} of site {}", named.profile, named.site), effect)?;
            let call = request(reqwest::Method::DELETE, &["sites", &named.site, "profiles", &named.profile]);
            session.show::<Gone>(call).await
        }
    }
}

/// The site keeps the id, people know the name.
async fn default(named: &Named, session: &Session) -> Result<(), Failure> {
    let id = if named.profile == "-" {
        Value::Null
    } else {
        let call = get(&["sites", &named.site, "profiles", &named.profile]);
        json!(session.ask::<ProfileView>(call).await?.value.id)
    };
    let body = PatchSite { provider: Some(json!({"default_profile_id": id})), ..PatchSite::default() };
    session.show::<SiteView>(request(reqwest::Method::PATCH, &["sites", &named.site]).json(&body)).await
}

fn settings(given: Vec<(String, Value)>) -> Value {
    let mut settings = Value::Object(Map::new());
    given.into_iter().for_each(|(key, value)| put(&mut settings, &key, value));
    settings
}

impl Row for ProfileView {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["PROFILE", "STATUS", "DEFAULT", "IMAGE", "DESCRIPTION"];
        if wide {
            head.extend(["CHANGED", "ID"]);
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let mut cells = vec![
            self.name.clone(),
            self.status.to_string(),
            if self.is_default { "yes".to_owned() } else { String::new() },
            self.settings.distro_series.clone().unwrap_or_else(|| "the site's".to_owned()),
            self.description.clone(),
        ];
        if look.wide {
            cells.extend([look.age(self.updated_at.as_millis()), self.id.to_string()]);
        }
        cells
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Shown for ProfileView {
    fn text(&self, look: Look) -> String {
        let mut text = output::rows(std::slice::from_ref(self), Look { wide: true, ..look });
        text.push('\n');
        let mut settings = Vec::new();
        flatten("", &json!(self.settings), &mut settings);
        // The poller's pace is the site's.
        settings.retain(|(key, _)| key != "policy.poll_interval_ms");
        text.push_str(&table(&[], settings.into_iter().map(|(key, value)| with_unit(key, value))));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}
