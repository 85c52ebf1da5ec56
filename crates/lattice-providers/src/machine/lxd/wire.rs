//! The envelope of LXD's answers, and the parts of instances that are used.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;
use lattice_core::node::PowerFact;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::error::ErrorKind;
use crate::message;
use crate::observer::{MachineObservation, MachineState, STAMP};

/// Every answer but that of a file or log.
#[derive(Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    pub(super) error: String,
    #[serde(default)]
    pub(super) error_code: u16,
    /// Path of the operation that was started: `/1.0/operations/…`.
    #[serde(default)]
    pub(super) operation: String,
    #[serde(default)]
    pub(super) metadata: serde_json::Value,
}

impl Envelope {
    /// What went wrong, if anything. `secrets` are removed from its text.
    pub(super) fn failure(&self, status: StatusCode, secrets: &[&str]) -> Option<ErrorKind> {
        let code = if self.error_code == 0 { status.as_u16() } else { self.error_code };
        if self.error_code == 0 && status.is_success() {
            return None;
        }
        let message = message::of_body(self.error.as_bytes(), secrets);
        Some(match code {
            // LXD answers 403 to a certificate that it does not know: there is no 401.
            401 => ErrorKind::Unauthorised { message },
            403 if message == "not authorized" => ErrorKind::Unauthorised { message },
            403 => ErrorKind::Forbidden { message },
            404 => ErrorKind::NotFound { message },
            503 => ErrorKind::RetryLater { after: Duration::from_secs(5) },
            500..=599 => ErrorKind::ServerFailed { status: code, message },
            _ => ErrorKind::Refused { status: code, message },
        })
    }
}

/// An operation that runs or has ended.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Operation {
    #[serde(default)]
    pub(super) id: String,
    pub(super) status_code: u16,
    #[serde(default)]
    pub(super) err: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) resources: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub(super) metadata: serde_json::Value,
}

impl Operation {
    /// Whether it still runs: codes below 200 are on the way.
    pub(super) const fn running(&self) -> bool {
        self.status_code < 200
    }

    /// Whether it is about this instance.
    pub(super) fn concerns(&self, instance: &str) -> bool {
        let path = format!("/1.0/instances/{instance}");
        let named = |paths: &Vec<String>| paths.iter().any(|p| p.split('?').next() == Some(path.as_str()));
        self.resources.get("instances").is_some_and(named)
    }
}

/// An instance.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Instance {
    pub(super) name: String,
    pub(super) status: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) config: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) state: Option<InstanceState>,
}

/// What an instance is doing.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct InstanceState {
    #[serde(default, deserialize_with = "nullable")]
    network: BTreeMap<String, Network>,
}

#[derive(Debug, Clone, Deserialize)]
struct Network {
    #[serde(default, deserialize_with = "nullable")]
    addresses: Vec<Address>,
}

#[derive(Debug, Clone, Deserialize)]
struct Address {
    address: String,
    #[serde(default)]
    scope: String,
}

impl Instance {
    /// Key of the effect that made it.
    pub(super) fn stamp(&self) -> Option<&str> {
        self.config.get(&stamp_name()).map(String::as_str)
    }

    /// What is said about it, asked at `observed_at`.
    pub(super) fn observation(&self, observed_at: Timestamp) -> MachineObservation {
        let (state, power) = match self.status.as_str() {
            "Running" | "Ready" => (MachineState::Running, PowerFact::On),
            "Stopped" => (MachineState::Stopped, PowerFact::Off),
            "Starting" | "Stopping" | "Aborting" | "Freezing" | "Thawed" => {
                (MachineState::Changing, PowerFact::Unknown)
            }
            "Frozen" => (MachineState::Stopped, PowerFact::On),
            "Error" => (MachineState::Failed, PowerFact::Unknown),
            _ => (MachineState::Unknown, PowerFact::Unknown),
        };
        let networks = self.state.iter().flat_map(|state| state.network.values());
        let global = networks.flat_map(|network| &network.addresses).filter(|address| address.scope == "global");
        MachineObservation {
            provider_ref: self.name.clone(),
            name: self.name.clone(),
            state,
            status: self.status.clone(),
            power,
            addresses: global.filter_map(|address| address.address.parse::<IpAddr>().ok()).collect(),
            stamp: self.stamp().map(ToOwned::to_owned),
            observed_at,
        }
    }
}

/// Name of the stamp in an instance's configuration: what begins with `user.` is ours to use.
pub(super) fn stamp_name() -> String {
    format!("user.{STAMP}")
}

fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, body: &str) -> Option<ErrorKind> {
        let envelope: Envelope = serde_json::from_str(body).unwrap();
        envelope.failure(StatusCode::from_u16(status).unwrap(), &["hunter22"])
    }

    #[test]
    fn errors_are_read_from_the_envelope() {
        let error = |code: u16, text: &str| {
            format!(r#"{{"type":"error","error_code":{code},"error":"{text}","metadata":null}}"#)
        };
        assert_eq!(failure(200, r#"{"type":"sync","metadata":{}}"#), None);
        assert!(matches!(failure(404, &error(404, "Instance not found")), Some(ErrorKind::NotFound { .. })));
        assert!(matches!(failure(403, &error(403, "not authorized")), Some(ErrorKind::Unauthorised { .. })));
        assert!(matches!(failure(403, &error(403, "project is restricted")), Some(ErrorKind::Forbidden { .. })));
        let refused = failure(400, &error(400, "bad hunter22")).unwrap();
        assert_eq!(refused, ErrorKind::Refused { status: 400, message: "bad ***".to_owned() });
        assert!(matches!(
            failure(412, &error(412, "ETag doesn't match")),
            Some(ErrorKind::Refused { status: 412, .. })
        ));
        assert!(matches!(failure(503, &error(503, "starting")), Some(ErrorKind::RetryLater { .. })));
    }

    #[test]
    fn only_global_addresses_of_an_instance_are_its_addresses() {
        let instance: Instance = serde_json::from_str(
            r#"{"name":"c1","status":"Running","config":{"user.lattice-key":"k"},"state":{"network":{"lo":{"addresses":
                [{"address":"127.0.0.1","scope":"local"}]},"eth0":{"addresses":[{"address":"10.0.0.9","scope":"global"}]},"x":{"addresses":null}}}}"#,
        )
        .unwrap();
        let seen = instance.observation(Timestamp::from_millis(1));
        assert_eq!((seen.state, seen.power, seen.stamp.as_deref()), (MachineState::Running, PowerFact::On, Some("k")));
        assert_eq!(seen.addresses, ["10.0.0.9".parse::<IpAddr>().unwrap()]);
    }
}
