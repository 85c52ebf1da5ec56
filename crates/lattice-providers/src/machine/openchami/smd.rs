//! State Manager: components and their states, endpoints, interfaces, notices of state changes.

use std::collections::BTreeMap;

use http::Method;
use lattice_core::component::{ComponentFlag, ComponentState, Word};
use lattice_core::secret::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{OchamiClient, Service};
use crate::error::{ErrorKind, ProviderError};

/// Components in one request: smd takes 4,369 at most, and a thousand take it a second.
const PAGE: usize = 1_000;

/// A component's name by its place: `x1000c0s1b0n0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Xname(String);

impl Xname {
    /// Takes a text that can be one.
    ///
    /// # Errors
    /// It is none: smd would say that it knows no such component, whatever is wrong.
    pub fn parse(text: &str) -> Result<Self, ProviderError> {
        let good = text.len() <= 32
            && text.starts_with('x')
            && text.len() > 1
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(ProviderError::unusable("openchami xname", "an xname is like x1000c0s1b0n0"))
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// State of a component, as smd spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
pub enum State {
    /// Nothing is there.
    Empty,
    /// Something is there.
    Populated,
    /// It is off.
    Off,
    /// It is on.
    On,
    /// It was ready, and does not beat any more.
    Standby,
    /// It stops.
    Halt,
    /// It is booted, and answers.
    Ready,
    /// Anything else.
    #[serde(other)]
    Unknown,
}

/// What stands beside a state that somebody sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
pub enum Flag {
    /// Nothing is wrong.
    #[serde(rename = "OK")]
    #[strum(to_string = "OK")]
    Ok,
    /// Something is, and it works.
    Warning,
    /// It does not work.
    Alert,
}

impl From<ComponentState> for State {
    fn from(state: ComponentState) -> Self {
        match state {
            ComponentState::Empty => Self::Empty,
            ComponentState::Populated => Self::Populated,
            ComponentState::Off => Self::Off,
            ComponentState::On => Self::On,
            ComponentState::Standby => Self::Standby,
            ComponentState::Halt => Self::Halt,
            ComponentState::Ready => Self::Ready,
            ComponentState::Unknown => Self::Unknown,
        }
    }
}

impl From<State> for ComponentState {
    fn from(state: State) -> Self {
        match state {
            State::Empty => Self::Empty,
            State::Populated => Self::Populated,
            State::Off => Self::Off,
            State::On => Self::On,
            State::Standby => Self::Standby,
            State::Halt => Self::Halt,
            State::Ready => Self::Ready,
            State::Unknown => Self::Unknown,
        }
    }
}

impl From<ComponentFlag> for Flag {
    /// What Lattice tells: never a lock, and never nothing.
    fn from(flag: ComponentFlag) -> Self {
        match flag {
            ComponentFlag::Unknown | ComponentFlag::Ok => Self::Ok,
            ComponentFlag::Warning => Self::Warning,
            ComponentFlag::Alert | ComponentFlag::Locked => Self::Alert,
        }
    }
}

impl Component {
    /// What smd says of it. A flag that is not set, or that nobody knows, is unknown.
    pub fn word(&self) -> Word {
        let flag = match self.flag.as_deref() {
            Some("OK") => ComponentFlag::Ok,
            Some("Warning") => ComponentFlag::Warning,
            Some("Alert") => ComponentFlag::Alert,
            Some("Locked") => ComponentFlag::Locked,
            Some(_) | None => ComponentFlag::Unknown,
        };
        Word::new(self.state.map_or(ComponentState::Unknown, ComponentState::from), flag)
    }
}

/// A component. Fields that are not set are absent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Component {
    /// Its name.
    #[serde(rename = "ID")]
    pub id: Xname,
    /// `Node`, `NodeBMC`.
    #[serde(rename = "Type", default)]
    pub kind: String,
    /// Its state, if it has one. It is what somebody told smd, never evidence of power.
    #[serde(rename = "State", default)]
    pub state: Option<State>,
    /// `OK`, `Warning`, `Alert`, `Locked`, `Unknown`.
    #[serde(rename = "Flag", default)]
    pub flag: Option<String>,
    /// Whether it may be used.
    #[serde(rename = "Enabled", default)]
    pub enabled: Option<bool>,
    /// What runs there, in anybody's words.
    #[serde(rename = "SoftwareStatus", default)]
    pub software: Option<String>,
    /// Its number.
    #[serde(rename = "NID", default)]
    pub nid: Option<u64>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interface {
    /// Its hardware address, with colons.
    #[serde(rename = "MACAddress")]
    pub mac: String,
    /// Whose.
    #[serde(rename = "ComponentID", default)]
    pub component: String,
    /// Its addresses.
    #[serde(rename = "IPAddresses", default)]
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct InterfaceAddress {
    /// The address.
    #[serde(rename = "IPAddress")]
    pub address: String,
}

/// A BMC with its machines, to be made known.
pub struct NewEndpoint {
    /// Name of the BMC: `x1000c0s1b0`.
    pub id: Xname,
    /// Its address.
    pub address: String,
    /// Its user.
    pub user: String,
    /// Its password. smd shows it to whoever may read its endpoints: leave it empty where pcs has it elsewhere.
    pub password: Secret<String>,
    /// Its hardware address.
    pub mac: String,
    /// The machines behind it.
    pub systems: Vec<NewSystem>,
}

/// A machine behind a BMC.
#[derive(Debug, Clone)]
pub struct NewSystem {
    /// Its Redfish path.
    pub uri: String,
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Hardware address and address of the interface that it boots from.
    pub boot_interface: (String, String),
}

/// A subscription to notices of state changes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subscription {
    /// Its number.
    #[serde(rename = "ID")]
    pub id: u64,
    /// Whose.
    #[serde(rename = "Subscriber", default)]
    pub subscriber: String,
    /// Where notices go.
    #[serde(rename = "Url", default)]
    pub url: String,
}

/// A notice: these components changed to that state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StateChange {
    /// Which.
    #[serde(rename = "Components", default)]
    pub components: Vec<Xname>,
    /// Their state.
    #[serde(rename = "State", default)]
    pub state: Option<State>,
    /// Their flag.
    #[serde(rename = "Flag", default)]
    pub flag: Option<String>,
}

/// A BMC that smd knows. Its login, which smd shows in clear, is not read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KnownEndpoint {
    /// Its name: `x1000c0s1b0`.
    #[serde(rename = "ID")]
    pub id: Xname,
    /// Its name in the network, or its address.
    #[serde(rename = "FQDN", default)]
    pub fqdn: String,
    /// Its address.
    #[serde(rename = "IPAddress", default)]
    pub ip_address: String,
    /// Whether it may be used.
    #[serde(rename = "Enabled", default)]
    pub enabled: bool,
}

/// A BMC with the login that smd keeps for it, and shows in clear: it goes to a secret store, and nowhere else.
#[derive(Deserialize)]
pub struct EndpointLogin {
    /// The BMC.
    #[serde(flatten)]
    pub endpoint: KnownEndpoint,
    /// Its user; empty: smd keeps none.
    #[serde(rename = "User", default)]
    pub user: String,
    /// Its password.
    #[serde(rename = "Password", default = "no_password")]
    pub password: Secret<String>,
}

const fn no_password() -> Secret<String> {
    Secret::new(String::new())
}

#[derive(Deserialize)]
struct Endpoints<T> {
    #[serde(rename = "RedfishEndpoints")]
    endpoints: Vec<T>,
}

/// A component as its BMC has it.
#[derive(Deserialize)]
struct ComponentEndpoint {
    #[serde(rename = "ID")]
    id: Xname,
    /// Its Redfish path, or the last part of it.
    #[serde(rename = "OdataID", default)]
    odata_id: String,
}

#[derive(Deserialize)]
struct ComponentEndpoints {
    #[serde(rename = "ComponentEndpoints", default)]
    endpoints: Option<Vec<ComponentEndpoint>>,
}

#[derive(Deserialize)]
struct Components {
    #[serde(rename = "Components")]
    components: Vec<Component>,
}

#[derive(Deserialize)]
struct Subscriptions {
    /// Null when there is none.
    #[serde(rename = "SubscriptionList", default)]
    list: Option<Vec<Subscription>>,
}

impl OchamiClient {
    /// Whether smd is ready.
    ///
    /// # Errors
    /// It is not, or is not there.
    pub async fn smd_ready(&self) -> Result<(), ProviderError> {
        let ready: serde_json::Value = self.read("smd.ready", Service::Smd, "/hsm/v2/service/ready", &[]).await?;
        match ready["code"].as_i64() {
            Some(0) => Ok(()),
            Some(_) | None => Err(ProviderError::malformed("openchami smd.ready", &ready["message"])),
        }
    }

    /// All nodes.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn nodes(&self) -> Result<Vec<Component>, ProviderError> {
        let call = "smd.components.list";
        let found: Components = self.read(call, Service::Smd, "/hsm/v2/State/Components", &[("type", "Node")]).await?;
        Ok(found.components)
    }

    /// One component; `None`: there is none of that name.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn component(&self, id: &Xname) -> Result<Option<Component>, ProviderError> {
        let path = format!("/hsm/v2/State/Components/{}", id.as_str());
        match self.read("smd.components.read", Service::Smd, &path, &[]).await {
            Ok(component) => Ok(Some(component)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Says what state components are in.
    ///
    /// # Errors
    /// smd refuses: a component that is not there, or a state that may not follow.
    pub async fn set_states(&self, ids: &[Xname], state: State, flag: Flag) -> Result<(), ProviderError> {
        let path = "/hsm/v2/State/Components/BulkStateData";
        for some in ids.chunks(PAGE) {
            let body = json!({ "ComponentIDs": some, "State": state, "Flag": flag });
            self.send("smd.components.state", Service::Smd, Method::PATCH, path, &[], Some(&body)).await?;
        }
        Ok(())
    }

    /// Says what state a component is in: one at a time, since smd may leave a component as it is that stands beside an
    /// unknown one; and whatever it was in before, since smd else takes what may not follow, and does nothing. One that
    /// is not there, or is locked, is passed over: only reading it tells.
    ///
    /// # Errors
    /// smd refuses.
    pub async fn set_state(&self, id: &Xname, state: State, flag: Flag) -> Result<(), ProviderError> {
        let path = format!("/hsm/v2/State/Components/{}/StateData", id.as_str());
        let body = json!({ "State": state, "Flag": flag, "Force": true });
        self.send("smd.components.state", Service::Smd, Method::PATCH, &path, &[], Some(&body)).await.map(drop)
    }

    /// Says whether a component may be used.
    ///
    /// # Errors
    /// smd refuses.
    pub async fn set_enabled(&self, id: &Xname, enabled: bool) -> Result<(), ProviderError> {
        let path = format!("/hsm/v2/State/Components/{}/Enabled", id.as_str());
        let body = json!({ "Enabled": enabled });
        self.send("smd.components.enabled", Service::Smd, Method::PATCH, &path, &[], Some(&body)).await.map(drop)
    }

    /// Says whether components may be used. Those that are not there are passed over.
    ///
    /// # Errors
    /// smd refuses.
    pub async fn set_enabled_of(&self, ids: &[Xname], enabled: bool) -> Result<(), ProviderError> {
        let path = "/hsm/v2/State/Components/BulkEnabled";
        for some in ids.chunks(PAGE) {
            let body = json!({ "ComponentIDs": some, "Enabled": enabled });
            self.send("smd.components.enabled", Service::Smd, Method::PATCH, path, &[], Some(&body)).await?;
        }
        Ok(())
    }

    /// Says what runs on components. Those that are not there are passed over.
    ///
    /// # Errors
    /// smd refuses.
    pub async fn set_software(&self, ids: &[Xname], text: &str) -> Result<(), ProviderError> {
        let path = "/hsm/v2/State/Components/BulkSoftwareStatus";
        for some in ids.chunks(PAGE) {
            let body = json!({ "ComponentIDs": some, "SoftwareStatus": text });
            self.send("smd.components.software", Service::Smd, Method::PATCH, path, &[], Some(&body)).await?;
        }
        Ok(())
    }

    /// Makes a BMC and its machines known; smd makes their components and interfaces. One that is known is success.
    ///
    /// # Errors
    /// smd refuses.
    pub async fn make_known(&self, new: &NewEndpoint) -> Result<(), ProviderError> {
        let systems: Vec<_> = new
            .systems
            .iter()
            .map(|system| {
                let (mac, ip) = &system.boot_interface;
                let interface = json!({ "uri": system.uri, "mac": mac, "ip": ip, "description": "boot" });
                json!({
                    "uri": system.uri, "uuid": system.uuid, "name": system.name, "system_type": "Physical",
                    "actions": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"],
                    "ethernet_interfaces": [interface],
                })
            })
            .collect();
        let body = json!({
            "SchemaVersion": 1, "ID": new.id, "FQDN": new.address, "User": new.user, "Password": new.password.expose(),
            "MACAddr": new.mac, "Enabled": true, "Systems": systems, "Managers": [],
        });
        let path = "/hsm/v2/Inventory/RedfishEndpoints";
        match self.send("smd.endpoints.create", Service::Smd, Method::POST, path, &[], Some(&body)).await {
            Err(error) if matches!(error.kind, ErrorKind::Refused { status: 409, .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Interfaces with this hardware address.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn interfaces(&self, mac: &str) -> Result<Vec<Interface>, ProviderError> {
        self.interfaces_with(("MACAddress", mac)).await
    }

    /// Interfaces of a component.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn interfaces_of(&self, id: &Xname) -> Result<Vec<Interface>, ProviderError> {
        let found = self.interfaces_with(("ComponentID", id.as_str())).await?;
        // A filter that a version does not know is left out by it.
        Ok(found.into_iter().filter(|one| one.component == id.as_str()).collect())
    }

    async fn interfaces_with(&self, filter: (&str, &str)) -> Result<Vec<Interface>, ProviderError> {
        self.read("smd.interfaces.list", Service::Smd, "/hsm/v2/Inventory/EthernetInterfaces", &[filter]).await
    }

    /// The BMCs at an address, by its IP address or its name. The login that smd shows with them is left where it is.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn endpoints_at(&self, address: &str) -> Result<Vec<KnownEndpoint>, ProviderError> {
        let mut found: Vec<KnownEndpoint> = Vec::new();
        for filter in ["ipaddress", "fqdn"] {
            for endpoint in self.endpoints_with::<KnownEndpoint>(&[(filter, address)]).await? {
                let is_there = endpoint.ip_address == address || endpoint.fqdn == address;
                if is_there && !found.contains(&endpoint) {
                    found.push(endpoint);
                }
            }
        }
        Ok(found)
    }

    /// All BMCs.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn endpoints(&self) -> Result<Vec<KnownEndpoint>, ProviderError> {
        self.endpoints_with(&[]).await
    }

    /// All BMCs with their logins.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn endpoint_logins(&self) -> Result<Vec<EndpointLogin>, ProviderError> {
        self.endpoints_with(&[]).await
    }

    /// Which system of its BMC each node is, by the system's id, as far as smd knows.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn systems(&self) -> Result<BTreeMap<Xname, String>, ProviderError> {
        let path = "/hsm/v2/Inventory/ComponentEndpoints";
        let found: ComponentEndpoints =
            self.read("smd.component_endpoints.list", Service::Smd, path, &[("type", "Node")]).await?;
        let systems = found.endpoints.unwrap_or_default().into_iter().filter_map(|one| {
            let id = one.odata_id.trim_end_matches('/').rsplit('/').next()?.to_owned();
            (!id.is_empty()).then_some((one.id, id))
        });
        Ok(systems.collect())
    }

    async fn endpoints_with<T: DeserializeOwned>(&self, query: &[(&str, &str)]) -> Result<Vec<T>, ProviderError> {
        let path = "/hsm/v2/Inventory/RedfishEndpoints";
        let found: Endpoints<T> = self.read("smd.endpoints.list", Service::Smd, path, query).await?;
        Ok(found.endpoints)
    }

    /// The nodes behind a BMC, or below another component.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn nodes_below(&self, id: &Xname) -> Result<Vec<Component>, ProviderError> {
        let path = format!("/hsm/v2/State/Components/Query/{}", id.as_str());
        let found: Components = self.read("smd.components.below", Service::Smd, &path, &[("type", "node")]).await?;
        Ok(found.components)
    }

    /// Subscribes to changes of state; the subscriber's earlier subscription to the same address is kept instead.
    ///
    /// # Errors
    /// smd refuses.
    pub async fn subscribe(
        &self,
        subscriber: &str,
        states: &[State],
        url: &str,
    ) -> Result<Subscription, ProviderError> {
        let known = self.subscriptions().await?;
        if let Some(known) = known.into_iter().find(|one| one.subscriber == subscriber && one.url == url) {
            return Ok(known);
        }
        let body = json!({ "Subscriber": subscriber, "States": states, "Url": url });
        let call = "smd.subscriptions.create";
        let path = "/hsm/v2/Subscriptions/SCN";
        self.send(call, Service::Smd, Method::POST, path, &[], Some(&body)).await?.json(call)
    }

    /// All subscriptions.
    ///
    /// # Errors
    /// smd cannot be read.
    pub async fn subscriptions(&self) -> Result<Vec<Subscription>, ProviderError> {
        let path = "/hsm/v2/Subscriptions/SCN";
        let found: Subscriptions = self.read("smd.subscriptions.list", Service::Smd, path, &[]).await?;
        Ok(found.list.unwrap_or_default())
    }

    /// Ends a subscription; one that is not there is success.
    ///
    /// # Errors
    /// smd refuses.
    pub async fn unsubscribe(&self, id: u64) -> Result<(), ProviderError> {
        let path = format!("/hsm/v2/Subscriptions/SCN/{id}");
        match self.send("smd.subscriptions.delete", Service::Smd, Method::DELETE, &path, &[], None).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
