//! Which BMC login a machine gets: overrides in their order, then the site's default. spec: S5 3.2.1

use super::MaasSite;

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
    serde::Serialize,
    serde::Deserialize,
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

/// One active override: what it matches, and where its login is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerOverride {
    /// What is compared.
    pub selector: PowerSelector,
    /// With what; MACs in any case.
    pub value: String,
    /// Path in the secret store.
    pub path: String,
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

/// Where a login is, and why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerChoice {
    /// `override:ipmi_ip` or `site_default`: shown to people, kept in the job.
    pub source: String,
    /// Path in the secret store.
    pub path: String,
}

/// Every login that may be tried, best first; the site's default is always last.
pub fn candidates(site: &MaasSite, overrides: &[PowerOverride], target: &PowerTarget<'_>) -> Vec<PowerChoice> {
    use strum::VariantArray;
    let matching = PowerSelector::VARIANTS.iter().filter_map(|selector| {
        let wanted = match selector {
            PowerSelector::PxeMac => target.pxe_mac?,
            PowerSelector::IpmiIp => target.ipmi_ip,
            PowerSelector::Hostname => target.hostname,
        };
        let found = overrides.iter().find(|one| one.selector == *selector && one.value.eq_ignore_ascii_case(wanted))?;
        Some(PowerChoice { source: format!("override:{selector}"), path: found.path.clone() })
    });
    let default = PowerChoice { source: "site_default".to_owned(), path: site.default_power_creds_path.clone() };
    matching.chain(std::iter::once(default)).collect()
}
