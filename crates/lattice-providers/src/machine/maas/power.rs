//! Power of a machine through MAAS.

use lattice_core::node::PowerFact;
use serde::Deserialize;

use super::body::{SystemId, power_of};
use super::call::Call;
use super::client::MaasClient;
use crate::error::ProviderError;

/// How to switch off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Ask the operating system.
    Soft,
    /// Cut the power.
    Hard,
}

/// What came of making sure that a machine is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerOn {
    /// It was off and was told to start.
    Started,
    /// It is on: nothing was done.
    WasOn,
    /// Nobody knows: nothing was done, since starting a running machine would cut its power for a moment.
    Unknown,
}

#[derive(Deserialize)]
struct StateBody {
    #[serde(default)]
    state: String,
}

impl MaasClient {
    /// Asks the BMC now, and waits for it: up to a minute when it is silent.
    ///
    /// # Errors
    /// [`PowerFailed`](crate::error::ErrorKind::PowerFailed) or
    /// [`ServerFailed`](crate::error::ErrorKind::ServerFailed) when the BMC does not answer.
    pub async fn query_power(&self, system_id: &SystemId) -> Result<PowerFact, ProviderError> {
        let call = Call::get("machines.query_power_state", format!("machines/{system_id}/"));
        let body: StateBody = self.json(call.op("query_power_state").waits_for_power()).await?;
        Ok(power_of(&body.state))
    }

    /// Starts the machine if its BMC says that it is off, and only then: the IPMI driver power-cycles a running one.
    ///
    /// # Errors
    /// As [`Self::query_power`]; [`Refused`](crate::error::ErrorKind::Refused) with 409 when nobody holds the machine.
    pub async fn ensure_on(&self, system_id: &SystemId) -> Result<PowerOn, ProviderError> {
        match self.query_power(system_id).await? {
            PowerFact::On => Ok(PowerOn::WasOn),
            PowerFact::Unknown => Ok(PowerOn::Unknown),
            PowerFact::Off => self.power_on(system_id).await.map(|()| PowerOn::Started),
        }
    }

    /// Starts the machine. Call it only where a power cycle does no harm; else [`Self::ensure_on`].
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) with 409 when nobody holds the machine.
    pub async fn power_on(&self, system_id: &SystemId) -> Result<(), ProviderError> {
        let call = Call::post("machines.power_on", format!("machines/{system_id}/"));
        self.done(call.op("power_on").waits_for_power()).await
    }

    /// Stops the machine.
    ///
    /// # Errors
    /// The region refuses or cannot be reached; after a lost answer a repeat is harmless.
    pub async fn power_off(&self, system_id: &SystemId, mode: StopMode) -> Result<(), ProviderError> {
        let mode = match mode {
            StopMode::Soft => "soft",
            StopMode::Hard => "hard",
        };
        let call = Call::post("machines.power_off", format!("machines/{system_id}/"));
        self.done(call.op("power_off").waits_for_power().field("stop_mode", mode)).await
    }
}
