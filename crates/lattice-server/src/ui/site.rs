//! One site: where it is, how it behaves, what stands beside it, and its newest jobs. No secret is on it.

use askama::Template;
use lattice_api::job::JobRow;
use lattice_api::power_override::PowerOverrideView;
use lattice_api::profile::{ProfileView, SiteStatus};
use lattice_api::roce::RoceView;
use lattice_api::site::{FingerprintLine, Knob, KnobScope, OpenchamiSite, SiteCalls, SiteProvider, SiteView};
use lattice_core::site::MaasPolicy;

use super::action::{Button, let_go_button, probe_button, site_status_button};
use super::shell::Shell;

/// Rows of a list that a page shows; the rest is a command away.
pub const SHOWN: u32 = 20;

/// The page.
#[derive(Template)]
#[template(path = "site.html", blocks = ["main"])]
pub struct SitePage {
    /// Frame.
    pub shell: Shell,
    view: SiteView,
    settings: Vec<(&'static str, String)>,
    knobs: Vec<KnobLine>,
    profiles: Vec<ProfileLine>,
    overrides: Vec<PowerOverrideView>,
    more_overrides: bool,
    roce: Vec<RoceView>,
    more_roce: bool,
    jobs: Vec<JobRow>,
    calls: Option<SiteCalls>,
    probe: Option<Button>,
    status: Button,
    fingerprints: Vec<FingerprintLine>,
    let_go: Option<Button>,
}

/// A knob with its value.
struct KnobLine {
    knob: Knob,
    value: String,
    /// It is not what S5 3.6 begins with.
    changed: bool,
}

struct ProfileLine {
    view: ProfileView,
    /// What it sets that its site does not.
    sets: Vec<String>,
}

/// What a site is shown from, as the API answers it.
pub struct SiteParts {
    /// The site.
    pub view: SiteView,
    /// Its profiles.
    pub profiles: Vec<ProfileView>,
    /// Its first overrides, and whether there are more.
    pub overrides: (Vec<PowerOverrideView>, bool),
    /// Its first RoCE assignments, and whether there are more.
    pub roce: (Vec<RoceView>, bool),
    /// Its newest jobs.
    pub jobs: Vec<JobRow>,
    /// How often it was asked, where that is counted.
    pub calls: Option<SiteCalls>,
    /// Fingerprints, approved and reported.
    pub fingerprints: Vec<FingerprintLine>,
}

impl SitePage {
    /// The page of these answers.
    pub fn of(shell: Shell, parts: SiteParts) -> Self {
        let SiteParts { view, profiles, overrides, roce, jobs, calls, fingerprints } = parts;
        let policy = match &view.provider {
            SiteProvider::Maas(maas) => Some(&maas.policy),
            SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_) => None,
        };
        let knobs = policy.map_or_else(Vec::new, |policy| knobs(policy, &MaasPolicy::default()));
        let profiles = match policy {
            Some(of_site) => profiles.into_iter().map(|profile| profile_line(profile, of_site)).collect(),
            None => Vec::new(),
        };
        let has_provider = !matches!(view.provider, SiteProvider::Manual);
        Self {
            settings: settings(&view.provider),
            knobs,
            profiles,
            overrides: overrides.0,
            more_overrides: overrides.1,
            roce: roce.0,
            more_roce: roce.1,
            jobs,
            calls,
            probe: has_provider.then(|| probe_button(&view.name, &shell)),
            status: site_status_button(&view.name, view.status, &shell),
            let_go: view.brake.is_some().then(|| let_go_button(&view.name, &shell)),
            fingerprints,
            view,
            shell,
        }
    }

    fn is_maas(&self) -> bool {
        matches!(self.view.provider, SiteProvider::Maas(_))
    }

    fn is_disabled(&self) -> bool {
        self.view.status == SiteStatus::Disabled
    }
}

/// Where it is, and its network: no path of a secret, though none of them is one.
fn settings(provider: &SiteProvider) -> Vec<(&'static str, String)> {
    match provider {
        SiteProvider::Manual => Vec::new(),
        SiteProvider::Maas(maas) => vec![
            ("Address", maas.api_base_url.clone()),
            ("PXE", format!("{}, VLAN {}; machines: {}", maas.pxe_iface, maas.pxe_vlan_vid, maas.node_pxe_iface)),
            ("Image", format!("{} on {}", maas.distro_series, maas.architecture)),
            (
                "Deploy user",
                format!("{} over {}, port {}", maas.deploy_user, maas.deploy_ssh_iface, maas.deploy_ssh_port),
            ),
            ("Name servers", maas.upstream_dns_servers.join(", ")),
        ],
        SiteProvider::Lxd(lxd) => vec![
            ("Address", lxd.api_url.clone()),
            ("Project", lxd.project.clone()),
            ("Profile", lxd.default_profile.clone()),
            ("Image", lxd.image.clone()),
        ],
        SiteProvider::Openchami(site) => openchami(site),
    }
}

fn openchami(site: &OpenchamiSite) -> Vec<(&'static str, String)> {
    let pcs = site.pcs_url.clone().unwrap_or_else(|| "none: nodes are switched through their BMCs".to_owned());
    let mut lines = vec![
        ("State Manager", site.smd_url.clone()),
        ("Boot Script Service", site.bss_url.clone()),
        ("Power Control", pcs),
        ("New nodes boot", site.boot_profile.clone()),
        ("Notices to", site.notices_url.clone().unwrap_or_else(|| "none: State Manager is only asked".to_owned())),
        (
            "State Manager is told",
            if site.policy.publish_states { "the state of each node" } else { "nothing" }.to_owned(),
        ),
        (
            "BMCs that it has",
            if site.policy.import_bmcs { "used for nodes without one" } else { "not used" }.to_owned(),
        ),
    ];
    lines.extend(site.boot_profiles.iter().map(|(name, boot)| {
        ("Boot profile", format!("{name}: {} {} {}", boot.kernel, boot.initrd, boot.params).trim_end().to_owned())
    }));
    lines
}

fn knobs(policy: &MaasPolicy, beginning: &MaasPolicy) -> Vec<KnobLine> {
    let values = policy.values().into_iter().zip(beginning.values());
    values.map(|((knob, value), (_, first))| KnobLine { knob, changed: value != first, value: words(&value) }).collect()
}

fn profile_line(profile: ProfileView, of_site: &MaasPolicy) -> ProfileLine {
    let own = &profile.settings;
    let texts = [
        ("distro_series", own.distro_series.clone()),
        ("architecture", own.architecture.clone()),
        ("pxe_iface", own.pxe_iface.clone()),
        ("pxe_vlan_vid", own.pxe_vlan_vid.map(|vid| vid.to_string())),
        ("node_pxe_iface", own.node_pxe_iface.clone()),
    ];
    let mut sets: Vec<String> =
        texts.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?))).collect();
    let differs = knobs(&own.policy, of_site).into_iter();
    let differs = differs.filter(|line| line.changed && line.knob.scope == KnobScope::Profile);
    sets.extend(differs.map(|line| format!("{} {}{}", line.knob.name, line.value, unit(line.knob))));
    ProfileLine { view: profile, sets }
}

fn unit(knob: Knob) -> String {
    match knob.kind.unit() {
        "" | "time span" => String::new(),
        unit => format!(" {unit}"),
    }
}

fn words(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "none".to_owned(),
        serde_json::Value::Bool(true) => "yes".to_owned(),
        serde_json::Value::Bool(false) => "no".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(_) | serde_json::Value::Array(_) | serde_json::Value::Object(_) => value.to_string(),
    }
}
