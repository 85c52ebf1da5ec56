//! Which BMC login a machine gets: overrides in their order, then the site's default. spec: S5 3.2.1

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::check::{BadValue, bad};
use super::{MaasSite, SiteStatus};
use crate::command::create::{check_hostname, check_mac};
use crate::ids::{Generation, OverrideId, SiteId};
use crate::time::Timestamp;

/// What an override is matched by, strongest first. spec: S5 3.2.1 "Credential selection order"
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PowerSelector {
    /// The MAC it boots from.
    PxeMac,
    /// The address of its BMC.
    IpmiIp,
    /// Its host name.
    Hostname,
}

/// A BMC login that stands over the site's default for one machine. The login itself is in the secret store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PowerOverride {
    /// Identity.
    pub id: OverrideId,
    /// Whose.
    pub site: SiteId,
    /// What is compared.
    pub selector: PowerSelector,
    /// With what, as [`selector_value`] writes it: at a site, no two overrides match by the same.
    pub value: String,
    /// Path of the login in the secret store.
    pub path: String,
    /// Only an active one is looked at.
    pub status: SiteStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row, or its login, changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

/// What is known of a machine before it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerTarget<'a> {
    /// Its host name.
    pub hostname: &'a str,
    /// The address of its BMC.
    pub ipmi_ip: &'a str,
    /// The MAC it boots from, if that is known.
    pub pxe_mac: Option<&'a str>,
}

impl PowerTarget<'_> {
    /// What each selector is compared with, written as an override's value is.
    pub fn values(&self) -> Vec<(PowerSelector, String)> {
        let texts = [
            (PowerSelector::PxeMac, self.pxe_mac),
            (PowerSelector::IpmiIp, Some(self.ipmi_ip)),
            (PowerSelector::Hostname, Some(self.hostname)),
        ];
        texts
            .into_iter()
            .filter_map(|(selector, text)| Some((selector, selector_value(selector, text?).ok()?)))
            .collect()
    }
}

/// Where a login is, and why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerChoice {
    /// `override:ipmi_ip` or `site_default`: shown to people, kept in the job.
    pub source: String,
    /// Path in the secret store.
    pub path: String,
}

/// The login of a machine: of the strongest selector that an active override matches, else the site's default.
///
/// What is chosen is used, or nothing: falling back from a login that is missing would try a wrong one on a BMC that
/// locks itself. spec: S5 3.2.1
pub fn choose(site: &MaasSite, overrides: &[PowerOverride], target: &PowerTarget<'_>) -> PowerChoice {
    let values = target.values();
    let matches = |one: &&PowerOverride| {
        one.status == SiteStatus::Active
            && values.iter().any(|(selector, value)| *selector == one.selector && *value == one.value)
    };
    let strongest = PowerSelector::VARIANTS
        .iter()
        .find_map(|selector| overrides.iter().filter(matches).find(|one| one.selector == *selector));
    match strongest {
        Some(one) => PowerChoice { source: format!("override:{}", one.selector), path: one.path.clone() },
        None => PowerChoice { source: "site_default".to_owned(), path: site.default_power_creds_path.clone() },
    }
}

/// A selector's value in its one spelling: a MAC in lower case with colons, an address as it is printed, a host name
/// in lower case. So two that mean the same are the same.
///
/// # Errors
/// It is none of what the selector compares.
pub fn selector_value(selector: PowerSelector, text: &str) -> Result<String, BadValue> {
    let given: String = text.chars().take(70).collect();
    match selector {
        PowerSelector::PxeMac => {
            let mac = text.replace('-', ":").to_ascii_lowercase();
            check_mac(&mac)
                .map(|()| mac)
                .map_err(|_| bad("selector_value", format!("must be a MAC such as 52:54:00:00:00:13, not `{given}`")))
        }
        PowerSelector::IpmiIp => text
            .parse::<IpAddr>()
            .map(|address| address.to_string())
            .map_err(|_| bad("selector_value", format!("must be an IP address such as 10.176.16.128, not `{given}`"))),
        PowerSelector::Hostname => check_hostname(text)
            .map_err(|_| bad("selector_value", format!("must be a host name such as c07u43, not `{given}`"))),
    }
}
