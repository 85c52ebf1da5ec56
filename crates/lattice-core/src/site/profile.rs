//! Profiles of a MAAS site, and what an onboarding works with once it is accepted. spec: S5 3.7

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{MaasPolicy, MaasSite, Site, SiteProvider, SiteStatus};
use crate::ids::{Generation, ProfileId, SiteId};
use crate::job::JobInput;
use crate::time::Timestamp;

/// One way of running onboardings at a site. Image and network are the site's where they are absent; the policy is
/// the profile's own, whole. The deploy user, its password and its interface stay the site's. spec: S5 3.6, 3.7
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SiteProfile {
    /// Identity.
    pub id: ProfileId,
    /// Whose.
    pub site: SiteId,
    /// Unique at its site.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
    /// Whether new onboardings may name it.
    pub status: SiteStatus,
    /// What it sets.
    pub settings: ProfileSettings,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

/// What a profile sets over its site. spec: S5 3.6, 3.7
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileSettings {
    /// Image to deploy; absent: the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distro_series: Option<String>,
    /// Architecture of its machines; absent: the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Interface of the MAAS server on the PXE network; absent: the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pxe_iface: Option<String>,
    /// VLAN of the PXE network; absent: the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pxe_vlan_vid: Option<u16>,
    /// Interface of a node on the PXE network; absent: the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pxe_iface: Option<String>,
    /// Behaviour, whole. `poll_interval_ms` and `site_max_parallel` are the site's and not looked at here.
    #[serde(default)]
    pub policy: MaasPolicy,
}

/// What an onboarding works with: the site's settings with its profile's over them, as they stood when it was
/// accepted, or run again from the top. It is part of the job's input, so that a later edit does not change a job that
/// runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MaasSettings {
    /// The profile's name; absent: the site's own settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<ProfileId>,
    /// Image to deploy.
    pub distro_series: String,
    /// Architecture of the machine.
    pub architecture: String,
    /// Interface of the MAAS server on the PXE network.
    pub pxe_iface: String,
    /// VLAN of the PXE network.
    pub pxe_vlan_vid: u16,
    /// The machine's interface on the PXE network.
    pub node_pxe_iface: String,
    /// Behaviour.
    pub policy: MaasPolicy,
}

impl MaasSettings {
    /// What stands now for an onboarding of that profile; of none: the site's own settings.
    pub fn of(site: &MaasSite, profile: Option<&SiteProfile>) -> Self {
        let own = profile.map(|profile| &profile.settings);
        let text = |own: Option<&String>, of_site: &String| own.unwrap_or(of_site).clone();
        let policy = own.map_or(&site.policy, |own| &own.policy).clone();
        Self {
            profile: profile.map(|profile| profile.name.clone()),
            profile_id: profile.map(|profile| profile.id),
            distro_series: text(own.and_then(|own| own.distro_series.as_ref()), &site.distro_series),
            architecture: text(own.and_then(|own| own.architecture.as_ref()), &site.architecture),
            pxe_iface: text(own.and_then(|own| own.pxe_iface.as_ref()), &site.pxe_iface),
            pxe_vlan_vid: own.and_then(|own| own.pxe_vlan_vid).unwrap_or(site.pxe_vlan_vid),
            node_pxe_iface: text(own.and_then(|own| own.node_pxe_iface.as_ref()), &site.node_pxe_iface),
            policy: MaasPolicy {
                poll_interval_ms: site.policy.poll_interval_ms,
                site_max_parallel: site.policy.site_max_parallel,
                ..policy
            },
        }
    }

    /// What differs from what stood before, as `policy.require_hw_sync: true → false`, by name.
    pub fn differences(&self, before: &Self) -> Vec<String> {
        let (before, after) = (before.fields(), self.fields());
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let shown = |value: Option<&Value>| match value {
            None | Some(Value::Null) => "none".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        names
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name))
            .map(|name| format!("{name}: {} → {}", shown(before.get(name)), shown(after.get(name))))
            .collect()
    }

    /// Every setting by its name, those of the policy with their path.
    fn fields(&self) -> BTreeMap<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else { return BTreeMap::new() };
        let policy = fields.remove("policy");
        let policy = policy.as_ref().and_then(Value::as_object).into_iter().flatten();
        let policy = policy.map(|(name, value)| (format!("policy.{name}"), value.clone()));
        policy.chain(fields.clone()).collect()
    }

    /// The site with these settings; address, credentials and deploy user are those that it has now.
    pub fn over(&self, site: &MaasSite) -> MaasSite {
        MaasSite {
            distro_series: self.distro_series.clone(),
            architecture: self.architecture.clone(),
            pxe_iface: self.pxe_iface.clone(),
            pxe_vlan_vid: self.pxe_vlan_vid,
            node_pxe_iface: self.node_pxe_iface.clone(),
            policy: MaasPolicy {
                poll_interval_ms: site.policy.poll_interval_ms,
                site_max_parallel: site.policy.site_max_parallel,
                ..self.policy.clone()
            },
            ..site.clone()
        }
    }
}

impl Site {
    /// The site as a job of that input sees it.
    pub fn seen_by(&self, input: &JobInput) -> Cow<'_, Self> {
        match (input, &self.provider) {
            (JobInput::OnboardMaas { settings, .. } | JobInput::ReimageMaas { settings }, SiteProvider::Maas(maas)) => {
                Cow::Owned(Self { provider: SiteProvider::Maas(settings.over(maas)), ..self.clone() })
            }
            (
                JobInput::OnboardMaas { .. } | JobInput::ReimageMaas { .. },
                SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_),
            )
            | (
                JobInput::OnboardLxd { .. }
                | JobInput::OnboardOpenchami { .. }
                | JobInput::OnboardManual { .. }
                | JobInput::Drain { .. }
                | JobInput::Retire { .. }
                | JobInput::Remove
                | JobInput::Reboot { .. }
                | JobInput::Reimage { .. }
                | JobInput::InvestigateBmc
                | JobInput::SecureErase { .. }
                | JobInput::WipeSensitive { .. },
                _,
            ) => Cow::Borrowed(self),
        }
    }
}
