//! Sites, with a probe each.

use std::time::Duration;

use askama::Template;
use lattice_api::site::{SiteProvider, SiteView};
use lattice_core::node::NodeClass;
use lattice_core::time::human;

use super::action::{Button, probe_button};
use super::shell::Shell;
use super::site_credentials::CredentialLines;

/// The page.
#[derive(Template)]
#[template(path = "sites.html", blocks = ["main"])]
pub struct SitesPage {
    shell: Shell,
    sites: Vec<SiteCard>,
}

struct SiteCard {
    address: Option<String>,
    window: String,
    grace: String,
    probe: Option<Button>,
    credentials: CredentialLines,
    view: SiteView,
}

impl SitesPage {
    /// The page of these sites.
    pub fn of(shell: Shell, sites: Vec<SiteView>) -> Self {
        let sites = sites.into_iter().map(|view| card(view, &shell)).collect();
        Self { shell, sites }
    }
}

fn card(view: SiteView, shell: &Shell) -> SiteCard {
    let address = match &view.provider {
        SiteProvider::Manual => None,
        SiteProvider::Maas(maas) => Some(maas.api_base_url.clone()),
        SiteProvider::Lxd(lxd) => Some(lxd.api_url.clone()),
        SiteProvider::Openchami(site) => Some(site.smd_url.clone()),
    };
    let times = view.heartbeat.times(NodeClass::Standard);
    SiteCard {
        probe: address.as_ref().map(|_| probe_button(&view.name, shell)),
        address,
        credentials: CredentialLines::of(&view, shell.at),
        window: human(Duration::from_millis(times.window_ms)),
        grace: human(Duration::from_millis(times.grace_ms)),
        view,
    }
}
