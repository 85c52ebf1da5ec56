//! The region itself: version, user, racks, images, configuration.

use serde::Deserialize;

use super::body::{SystemId, nullable};
use super::call::Call;
use super::client::MaasClient;
use crate::error::ProviderError;

/// Version of a region. Read without a credential.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Version {
    /// `3.7.3`.
    pub version: String,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// The user whose key is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct User {
    /// Name.
    pub username: String,
    /// Whether it is an administrator.
    #[serde(default)]
    pub is_superuser: bool,
}

/// A rack controller: without one nothing boots.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RackController {
    /// Its name in calls.
    pub system_id: SystemId,
    /// Host name.
    #[serde(default, deserialize_with = "nullable")]
    pub hostname: String,
    /// Its interfaces; none where the region does not list them.
    #[serde(default)]
    pub interface_set: Option<Vec<RackInterface>>,
}

/// An interface of a rack controller.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RackInterface {
    /// Its name: `ens19`.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// Its VLAN, where it has one.
    #[serde(default)]
    pub vlan: Option<RackVlan>,
}

/// A VLAN, as an interface names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct RackVlan {
    /// Its tag; 0 for untagged.
    pub vid: u16,
}

/// What does not fit between the rack controllers and the site's `pxe_iface` and `pxe_vlan_vid`. None when it fits, and
/// where the region does not list interfaces: what is not known is no mistake. spec: S5 3.2, 3.4, 3.6
pub fn pxe_note(racks: &[RackController], pxe_iface: &str, pxe_vlan_vid: u16) -> Option<String> {
    let listed: Vec<&RackInterface> = racks.iter().filter_map(|rack| rack.interface_set.as_ref()).flatten().collect();
    let named: Vec<&RackInterface> = listed.iter().copied().filter(|one| one.name == pxe_iface).collect();
    if listed.is_empty() || racks.iter().any(|rack| rack.interface_set.is_none()) && named.is_empty() {
        return None;
    }
    if named.is_empty() {
        let mut there: Vec<&str> = listed.iter().map(|one| one.name.as_str()).collect();
        there.sort_unstable();
        there.dedup();
        return Some(format!(
            "no rack controller has the interface {pxe_iface} (the site's pxe_iface); there are: {}",
            there.join(", ")
        ));
    }
    let vids: Vec<u16> = named.iter().filter_map(|one| one.vlan).map(|vlan| vlan.vid).collect();
    if vids.is_empty() || vids.contains(&pxe_vlan_vid) {
        return None;
    }
    Some(format!("{pxe_iface} is in VLAN {}, not in {pxe_vlan_vid} (the site's pxe_vlan_vid)", vids[0]))
}

/// An image that machines can boot or be installed with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BootResource {
    /// `ubuntu/noble` or `custom/…`; some versions leave out `custom/`.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// `amd64/…`.
    #[serde(default, deserialize_with = "nullable")]
    pub architecture: String,
    /// `Synced`, `Uploaded`.
    #[serde(default, rename = "type", deserialize_with = "nullable")]
    pub kind: String,
}

impl MaasClient {
    /// The region's version. Succeeds with a wrong key too: it proves reachability, nothing else.
    ///
    /// # Errors
    /// The region cannot be reached, or the address is not a region's.
    pub async fn version(&self) -> Result<Version, ProviderError> {
        self.json(Call::get("version.read", "version/")).await
    }

    /// The user whose key is used: proves the key.
    ///
    /// # Errors
    /// [`Unauthorised`](crate::error::ErrorKind::Unauthorised) when the key is wrong.
    pub async fn whoami(&self) -> Result<User, ProviderError> {
        self.json(Call::get("users.whoami", "users/").op("whoami")).await
    }

    /// The rack controllers.
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn rack_controllers(&self) -> Result<Vec<RackController>, ProviderError> {
        self.json(Call::get("rackcontrollers.list", "rackcontrollers/").listing()).await
    }

    /// The images.
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn boot_resources(&self) -> Result<Vec<BootResource>, ProviderError> {
        self.json(Call::get("boot_resources.list", "boot-resources/")).await
    }

    /// A value of the region's configuration, as text; `None` when it is null.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) when there is no such name.
    pub async fn config(&self, name: &str) -> Result<Option<String>, ProviderError> {
        let call = Call::get("maas.get_config", "maas/").op("get_config").query("name", name);
        Ok(match self.json::<serde_json::Value>(call).await? {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text),
            other => Some(other.to_string()),
        })
    }

    /// Sets a value of the region's configuration; setting it again is harmless.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) when there is no such name or the value is not acceptable.
    pub async fn set_config(&self, name: &str, value: &str) -> Result<(), ProviderError> {
        let call = Call::post("maas.set_config", "maas/").op("set_config");
        self.done(call.field("name", name).field("value", value)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_the_pxe_network_is_looked_for_on_the_racks() {
        let rack = |interfaces: serde_json::Value| {
            let mut body = serde_json::json!({"system_id": "rack01", "hostname": "rack-1"});
            body["interface_set"] = interfaces;
            serde_json::from_value::<RackController>(body).unwrap()
        };
        let two = rack(serde_json::json!([{"name": "ens18", "vlan": null}, {"name": "ens19", "vlan": {"vid": 46}}]));
        let silent = rack(serde_json::Value::Null);
        let rows = [
            (vec![two.clone()], "ens19", 46, None),
            (vec![two.clone()], "ens18", 46, None),
            (vec![two.clone()], "ens19", 0, Some("ens19 is in VLAN 46, not in 0")),
            (vec![two.clone()], "eth0", 46, Some("there are: ens18, ens19")),
            (vec![silent.clone()], "eth0", 46, None),
            (vec![two, silent], "eth0", 46, None),
            (vec![], "eth0", 46, None),
        ];
        for (racks, name, vid, expected) in rows {
            let said = pxe_note(&racks, name, vid);
            let fits = match (&said, expected) {
                (Some(said), Some(part)) => said.contains(part),
                (said, expected) => said.is_none() == expected.is_none(),
            };
            assert!(fits, "{name} {vid}: {said:?}");
        }
    }
}
