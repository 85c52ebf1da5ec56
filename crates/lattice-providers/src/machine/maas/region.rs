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
