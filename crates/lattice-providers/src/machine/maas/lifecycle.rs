//! Operations that move a machine from state to state. Each can be lost: observe before repeating one.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lattice_core::secret::Secret;
use serde::Deserialize;

use super::body::{Machine, SystemId};
use super::call::Call;
use super::client::MaasClient;
use crate::error::ProviderError;

/// How to commission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Commission {
    /// Keep the machine up and let operators in by SSH.
    pub enable_ssh: bool,
    /// Leave the BMC's own configuration alone.
    pub skip_bmc_config: bool,
    /// Run no hardware tests.
    pub skip_testing: bool,
}

/// What to deploy.
#[derive(Clone)]
pub struct Deploy {
    /// `ubuntu/noble`, `noble`, or the name of a custom image with or without `custom/`.
    pub distro_series: String,
    /// Cloud-init's user-data, as text.
    pub user_data: Option<Secret<String>>,
    /// Whether the deployed system reports its hardware to MAAS.
    pub enable_hw_sync: bool,
    /// Why, for the events.
    pub comment: Option<String>,
}

/// What happens to the disks at a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erase {
    /// What the region's configuration says of releases that say nothing themselves.
    AsConfigured,
    /// Nothing, whatever the region's configuration says.
    Nothing,
    /// Only the ends of each disk.
    Quick,
    /// The disk's own secure erase; where it has none, all of it.
    Secure,
    /// All of each disk.
    Whole,
}

/// The OAuth key of one machine: with it the deployed system reports its hardware.
#[derive(Clone)]
pub struct MachineToken {
    /// Public part.
    pub consumer_key: String,
    /// Names the token.
    pub token_key: Secret<String>,
    /// Proves it.
    pub token_secret: Secret<String>,
}

#[derive(Deserialize)]
struct TokenBody {
    consumer_key: String,
    token_key: Secret<String>,
    token_secret: Secret<String>,
}

impl MaasClient {
    /// Accepts machines that announced themselves.
    ///
    /// # Errors
    /// The region refuses or cannot be reached.
    pub async fn accept(&self, machines: &[SystemId]) -> Result<(), ProviderError> {
        self.done(
            Call::post("machines.accept", "machines/").op("accept").form(|form| form.with_each("machines", machines)),
        )
        .await
    }

    /// Starts commissioning.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) with 409 from a state that does not allow it.
    pub async fn commission(&self, system_id: &SystemId, how: Commission) -> Result<Machine, ProviderError> {
        let call = operation("machines.commission", system_id, "commission")
            .field("enable_ssh", u8::from(how.enable_ssh))
            .field("skip_bmc_config", u8::from(how.skip_bmc_config))
            .field_some("testing_scripts", how.skip_testing.then_some("none"));
        self.json(call).await
    }

    /// Starts a deployment; a Ready machine is allocated by it.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) with 400 when the image is missing or no interface has a link;
    /// the machine stays Allocated then.
    pub async fn deploy(&self, system_id: &SystemId, what: Deploy) -> Result<Machine, ProviderError> {
        let encoded = what.user_data.map(|text| Secret::new(STANDARD.encode(text.expose())));
        let call = operation("machines.deploy", system_id, "deploy")
            .field("distro_series", image_name(&what.distro_series))
            .field("enable_hw_sync", what.enable_hw_sync)
            .field_some("comment", what.comment);
        let call = match encoded {
            Some(user_data) => call.field_secret("user_data", user_data),
            None => call,
        };
        self.json(call).await
    }

    /// Starts a release; on a Ready or Releasing machine it does nothing.
    ///
    /// # Errors
    /// [`Forbidden`](crate::error::ErrorKind::Forbidden) when it is locked;
    /// [`Refused`](crate::error::ErrorKind::Refused) with 409 from a state that does not allow it.
    pub async fn release(&self, system_id: &SystemId, erase: Erase, comment: &str) -> Result<Machine, ProviderError> {
        let call = operation("machines.release", system_id, "release").field("comment", comment);
        let call = match erase {
            Erase::AsConfigured => call,
            Erase::Nothing => call.field("erase", false),
            Erase::Quick => call.field("erase", true).field("quick_erase", true),
            Erase::Secure => call.field("erase", true).field("secure_erase", true),
            Erase::Whole => call.field("erase", true),
        };
        self.json(call).await
    }

    /// Stops commissioning, deploying, erasing or testing.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) with 409 from any other state.
    pub async fn abort(&self, system_id: &SystemId, comment: &str) -> Result<Machine, ProviderError> {
        self.json(operation("machines.abort", system_id, "abort").field("comment", comment)).await
    }

    /// Declares a Broken machine good again.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) with 409 from any other state.
    pub async fn mark_fixed(&self, system_id: &SystemId, comment: &str) -> Result<Machine, ProviderError> {
        self.json(operation("machines.mark_fixed", system_id, "mark_fixed").field("comment", comment)).await
    }

    /// The machine's own key; `None` until MAAS rendered a preseed for it.
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn machine_token(&self, system_id: &SystemId) -> Result<Option<MachineToken>, ProviderError> {
        let call = Call::get("machines.get_token", format!("machines/{system_id}/")).op("get_token");
        let token: Option<TokenBody> = self.json(call).await?;
        Ok(token.map(|TokenBody { consumer_key, token_key, token_secret }| MachineToken {
            consumer_key,
            token_key,
            token_secret,
        }))
    }
}

fn operation(name: &'static str, system_id: &SystemId, op: &'static str) -> Call {
    Call::post(name, format!("machines/{system_id}/")).op(op)
}

/// The image's name as MAAS wants it: our own images are uploaded ones, which live under `custom/`.
fn image_name(series: &str) -> Cow<'_, str> {
    if series.starts_with("gpuaas-") { Cow::Owned(format!("custom/{series}")) } else { Cow::Borrowed(series) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_images_are_custom_ones() {
        assert_eq!(image_name("gpuaas-mi300x-24.04"), "custom/gpuaas-mi300x-24.04");
        assert_eq!(image_name("custom/gpuaas-mi300x-24.04"), "custom/gpuaas-mi300x-24.04");
        assert_eq!(image_name("ubuntu/noble"), "ubuntu/noble");
    }
}
