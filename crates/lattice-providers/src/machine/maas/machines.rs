//! Machines: list, create, change, remove.

use std::collections::BTreeMap;

use lattice_core::secret::Secret;
use serde::Deserialize;

use super::body::{Machine, SystemId, nullable};
use super::call::Call;
use super::client::MaasClient;
use super::status::MachineStatus;
use super::transport::Params;
use crate::error::{ErrorKind, ProviderError};

/// Which machines a listing should hold. Values of one kind are alternatives; kinds narrow each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineFilter {
    /// These.
    pub ids: Vec<SystemId>,
    /// Those with these host names.
    pub hostnames: Vec<String>,
    /// Those with these hardware addresses.
    pub macs: Vec<String>,
    /// Those in this state.
    pub status: Option<MachineStatus>,
}

/// A machine to be created.
#[derive(Clone)]
pub struct NewMachine {
    /// `amd64/generic`.
    pub architecture: String,
    /// Host name without domain.
    pub hostname: String,
    /// Hardware addresses; may be empty where the BMC tells them.
    pub macs: Vec<String>,
    /// How to control its power.
    pub power: PowerSetup,
}

/// How MAAS controls a machine's power. spec: MAAS contract section 5
#[derive(Clone)]
pub struct PowerSetup {
    driver: &'static str,
    plain: Vec<(&'static str, String)>,
    secret: Vec<(&'static str, Secret<String>)>,
}

impl PowerSetup {
    /// IPMI 2.0 with a login.
    pub fn ipmi(address: impl Into<String>, user: impl Into<String>, password: Secret<String>) -> Self {
        Self {
            driver: "ipmi",
            plain: vec![
                ("power_driver", "LAN_2_0".to_owned()),
                ("power_boot_type", "auto".to_owned()),
                ("power_address", address.into()),
                ("power_user", user.into()),
            ],
            secret: vec![("power_pass", password)],
        }
    }

    /// Somebody presses the button.
    pub const fn manual() -> Self {
        Self { driver: "manual", plain: Vec::new(), secret: Vec::new() }
    }

    fn add_to(self, params: Params) -> Params {
        let params = params.with("power_type", self.driver);
        let params = self
            .plain
            .into_iter()
            .fold(params, |params, (name, value)| params.with(format!("power_parameters_{name}"), value));
        self.secret
            .into_iter()
            .fold(params, |params, (name, value)| params.with_secret(format!("power_parameters_{name}"), value))
    }
}

/// What to change of a machine; what is `None` stays.
#[derive(Clone, Default)]
pub struct MachineUpdate {
    /// New host name.
    pub hostname: Option<String>,
    /// New power control.
    pub power: Option<PowerSetup>,
}

/// A machine that is there now.
#[derive(Debug, Clone, PartialEq)]
pub enum Creation {
    /// It was created by this call.
    Created(Machine),
    /// It was there: an earlier call made it, or somebody else.
    Adopted(Machine),
}

impl Creation {
    /// The machine.
    pub fn into_machine(self) -> Machine {
        match self {
            Self::Created(machine) | Self::Adopted(machine) => machine,
        }
    }
}

/// Whether a machine is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    Present,
    /// MAAS answered that it has no such machine.
    Absent,
}

/// Only the address: the region returns the login in clear beside it, which is dropped unread.
#[derive(Deserialize)]
struct PowerAddress {
    #[serde(default, deserialize_with = "nullable")]
    power_address: String,
}

impl MaasClient {
    /// Machines that pass `filter`; with an empty filter all of them, which costs the region some 23 SQL statements each.
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn machines(&self, filter: &MachineFilter) -> Result<Vec<Machine>, ProviderError> {
        if filter.status.is_some_and(|status| status.filter().is_none()) {
            return Err(ProviderError::unusable("maas machines.filter", "the status to filter by is not known"));
        }
        let name = if *filter == MachineFilter::default() { "machines.list" } else { "machines.filter" };
        let call = Call::get(name, "machines/")
            .listing()
            .query_each("id", &filter.ids)
            .query_each("hostname", &filter.hostnames)
            .query_each("mac_address", &filter.macs)
            .query_each("status", filter.status.and_then(MachineStatus::filter));
        self.json(call).await
    }

    /// One machine, or `None` when the listing does not hold it, which proves nothing: see [`Self::presence`].
    ///
    /// Read by filter: reading the item itself costs the region nearly twice as much.
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn machine(&self, system_id: &SystemId) -> Result<Option<Machine>, ProviderError> {
        let filter = MachineFilter { ids: vec![system_id.clone()], ..MachineFilter::default() };
        let machines = self.machines(&filter).await?;
        Ok(machines.into_iter().find(|machine| machine.system_id == *system_id))
    }

    /// Whether the machine is there, asked of the machine itself: a 404 on it is the proof of absence.
    ///
    /// # Errors
    /// The region cannot be read.
    pub async fn presence(&self, system_id: &SystemId) -> Result<Presence, ProviderError> {
        match self.done(Call::get("machines.read", format!("machines/{system_id}/"))).await {
            Ok(()) => Ok(Presence::Present),
            Err(error) if error.is_not_found() => Ok(Presence::Absent),
            Err(error) => Err(error),
        }
    }

    /// The BMC address of every machine that has one.
    ///
    /// # Errors
    /// The region cannot be read, or the key is not an administrator's.
    pub async fn power_addresses(&self) -> Result<BTreeMap<SystemId, String>, ProviderError> {
        let call = Call::get("machines.power_parameters", "machines/").op("power_parameters").listing();
        let found: BTreeMap<String, PowerAddress> = self.json(call).await?;
        let known = found.into_iter().filter(|(_, power)| !power.power_address.is_empty());
        Ok(known.filter_map(|(id, power)| Some((id.parse().ok()?, power.power_address))).collect())
    }

    /// Creates a machine without commissioning it, or adopts the one that has its hardware address or host name.
    ///
    /// Creating is not idempotent in MAAS: a repeat after a lost answer is refused for the used address.
    ///
    /// # Errors
    /// [`ErrorKind::SeveralMatch`] when its host name belongs to a machine with other hardware addresses, or its
    /// addresses to several machines; [`ErrorKind::Ambiguous`] when the answer was lost and nothing is there yet;
    /// [`ErrorKind::Refused`] when it was refused for another reason.
    pub async fn create_or_adopt(&self, new: &NewMachine) -> Result<Creation, ProviderError> {
        let refused = match self.create(new).await {
            Ok(machine) => return Ok(Creation::Created(machine)),
            Err(error) => error,
        };
        match &refused.kind {
            ErrorKind::Refused { status: 400 | 409, .. } | ErrorKind::Ambiguous { .. } => {}
            ErrorKind::ServerFailed { .. } | ErrorKind::PowerFailed { .. } => {}
            ErrorKind::Unreachable { .. }
            | ErrorKind::Timeout { .. }
            | ErrorKind::Unauthorised { .. }
            | ErrorKind::Forbidden { .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::RetryLater { .. }
            | ErrorKind::Malformed { .. }
            | ErrorKind::BadCertificate { .. }
            | ErrorKind::SeveralMatch { .. }
            | ErrorKind::NoCredential { .. }
            | ErrorKind::NotOffered { .. }
            | ErrorKind::LockedOut { .. }
            | ErrorKind::Unusable { .. } => return Err(refused),
        }
        match self.existing(new).await? {
            Some(machine) => Ok(Creation::Adopted(machine)),
            None => Err(refused),
        }
    }

    async fn create(&self, new: &NewMachine) -> Result<Machine, ProviderError> {
        let call = Call::post("machines.create", "machines/")
            .field("architecture", &new.architecture)
            .field("hostname", &new.hostname)
            // An administrator's create commissions unless told not to.
            .field("commission", false)
            .form(|form| form.with_each("mac_addresses", &new.macs))
            .form(|form| new.power.clone().add_to(form));
        self.json(call).await
    }

    async fn existing(&self, new: &NewMachine) -> Result<Option<Machine>, ProviderError> {
        let several = |what: String| ProviderError::new("maas machines.create", ErrorKind::SeveralMatch { what });
        if !new.macs.is_empty() {
            let filter = MachineFilter { macs: new.macs.clone(), ..MachineFilter::default() };
            let mut found = self.machines(&filter).await?;
            if found.len() > 1 {
                let ids: Vec<_> = found.iter().map(|machine| machine.system_id.as_str()).collect();
                return Err(several(format!("the hardware addresses belong to the machines {}", ids.join(", "))));
            }
            if let Some(machine) = found.pop() {
                return Ok(Some(machine));
            }
        }
        let filter = MachineFilter { hostnames: vec![new.hostname.clone()], ..MachineFilter::default() };
        let found = self.machines(&filter).await?;
        let Some(machine) = found.into_iter().find(|machine| machine.hostname == new.hostname) else {
            return Ok(None);
        };
        let known: Vec<String> = machine.macs().collect();
        let same_box =
            new.macs.is_empty() || known.is_empty() || new.macs.iter().any(|mac| known.contains(&mac.to_lowercase()));
        if same_box {
            Ok(Some(machine))
        } else {
            let text = format!("the host name belongs to machine {} with other hardware addresses", machine.system_id);
            Err(several(text))
        }
    }

    /// Changes host name or power control.
    ///
    /// # Errors
    /// The region refuses or cannot be reached; after [`ErrorKind::Ambiguous`] a repeat is harmless.
    pub async fn update(&self, system_id: &SystemId, update: MachineUpdate) -> Result<Machine, ProviderError> {
        let call = Call::put("machines.update", format!("machines/{system_id}/"))
            .field_some("hostname", update.hostname)
            .form(|form| match update.power {
                Some(power) => power.add_to(form),
                None => form,
            });
        self.json(call).await
    }

    /// Stamps names and values on the machine; an empty value removes its name.
    ///
    /// # Errors
    /// The region refuses or cannot be reached; after [`ErrorKind::Ambiguous`] a repeat is harmless.
    pub async fn set_owner_data(
        &self,
        system_id: &SystemId,
        data: &BTreeMap<String, String>,
    ) -> Result<Machine, ProviderError> {
        let call = Call::post("machines.set_owner_data", format!("machines/{system_id}/"))
            .op("set_owner_data")
            .form(|form| data.iter().fold(form, |form, (name, value)| form.with(name.clone(), value)));
        self.json(call).await
    }

    /// Removes the machine from MAAS; one that is not there is success.
    ///
    /// # Errors
    /// The region refuses, as for a locked machine, or cannot be reached.
    pub async fn delete(&self, system_id: &SystemId) -> Result<(), ProviderError> {
        match self.done(Call::delete("machines.delete", format!("machines/{system_id}/"))).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }
}
