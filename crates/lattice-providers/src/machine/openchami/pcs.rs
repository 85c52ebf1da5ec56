//! Power Control: transitions that are watched to their end, and power as it was read. `completed` is not success.

use std::collections::BTreeMap;

use http::Method;
use lattice_core::bmc::{PowerReading, PowerSaid};
use lattice_core::node::PowerFact;
use lattice_core::time::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::client::{OchamiClient, Service};
use super::smd::Xname;
use crate::error::{ErrorKind, ProviderError};
use crate::message;

/// What power control is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum PowerOperation {
    /// Switch it on.
    On,
    /// Cut its power.
    ForceOff,
    /// Ask its operating system to stop.
    SoftOff,
    /// Off and on again.
    HardRestart,
}

/// A transition that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionId(pub String);

/// Where a transition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// It goes on.
    Running,
    /// Every component did it.
    Succeeded,
    /// It is over, and these did not, each with the reason.
    Failed(Vec<(String, String)>),
}

/// How long power control itself tries, in minutes: its default.
const DEADLINE_MINUTES: u32 = 5;

#[derive(Deserialize)]
struct Begun {
    #[serde(rename = "transitionID")]
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    transition_status: String,
    #[serde(default)]
    create_time: Option<String>,
    task_counts: Counts,
    #[serde(default)]
    tasks: Option<Vec<Task>>,
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default)]
    failed: u64,
    #[serde(default, rename = "un-supported")]
    unsupported: u64,
    #[serde(default)]
    succeeded: u64,
    #[serde(default)]
    total: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    xname: String,
    task_status: String,
    #[serde(default)]
    task_status_description: String,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
struct Statuses {
    #[serde(default)]
    status: Vec<PowerStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PowerStatus {
    xname: String,
    #[serde(default)]
    power_state: String,
    #[serde(default)]
    management_state: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    last_updated: Option<String>,
}

impl OchamiClient {
    /// Begins a transition of one node.
    ///
    /// # Errors
    /// The site has no power control, or it refuses.
    pub async fn begin_power(&self, node: &Xname, operation: PowerOperation) -> Result<TransitionId, ProviderError> {
        let call = "pcs.transitions.create";
        let word: &'static str = operation.into();
        let location = [json!({ "xname": node })];
        let body = json!({ "operation": word, "taskDeadlineMinutes": DEADLINE_MINUTES, "location": location });
        let answer = self.send(call, Service::Pcs, Method::POST, "/transitions", &[], Some(&body)).await?;
        Ok(TransitionId(answer.json::<Begun>(call)?.id))
    }

    /// Looks at a transition.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) after 24 hours; power control cannot be read.
    pub async fn transition(&self, id: &TransitionId) -> Result<Transition, ProviderError> {
        standing(self.seen(id).await?)
    }

    /// When a transition was begun that succeeded; `None` where it did not, goes on, is forgotten, or has no time.
    ///
    /// # Errors
    /// Power control cannot be read.
    pub async fn carried_out(&self, id: &TransitionId) -> Result<Option<Timestamp>, ProviderError> {
        let seen = match self.seen(id).await {
            Ok(seen) => seen,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let begun = seen.create_time.as_deref().and_then(|time| time.parse().ok());
        Ok(if standing(seen)? == Transition::Succeeded { begun } else { None })
    }

    async fn seen(&self, id: &TransitionId) -> Result<Seen, ProviderError> {
        if id.0.is_empty() || !id.0.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(ProviderError::unusable("openchami pcs.transitions.read", "this is no id of a transition"));
        }
        self.read("pcs.transitions.read", Service::Pcs, &format!("/transitions/{}", id.0), &[]).await
    }

    /// A node's power as power control keeps it, with the time of that; what says no time is as old as can be.
    ///
    /// It answers from its store, which it fills now and then, and writes when the power changed: an old time is that of
    /// a power that stayed the same, or of a store that nobody fills any more.
    ///
    /// # Errors
    /// Power control cannot be read; a node of which it says nothing is unknown, not an error.
    pub async fn power(&self, node: &Xname) -> Result<PowerReading, ProviderError> {
        let asked = self.now();
        let query = [("xname", node.as_str())];
        let found = self.read::<Statuses>("pcs.power.read", Service::Pcs, "/power-status", &query).await;
        let status = match found {
            Ok(found) => found.status.into_iter().find(|one| one.xname == node.as_str()),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        Ok(reading(status, asked))
    }

    /// The power of all nodes that power control knows, as it keeps it, however old. One that was not read is not there.
    ///
    /// # Errors
    /// Power control cannot be read.
    pub async fn powers(&self) -> Result<BTreeMap<Xname, PowerFact>, ProviderError> {
        let found: Statuses = self.read("pcs.power.list", Service::Pcs, "/power-status", &[]).await?;
        let facts = found.status.into_iter().filter_map(|status| {
            let name = Xname::parse(&status.xname).ok()?;
            let fact = reading(Some(status), self.now()).fact();
            (fact != PowerFact::Unknown).then_some((name, fact))
        });
        Ok(facts.collect())
    }

    /// Whether power control and what it needs are well.
    ///
    /// # Errors
    /// It is not, or is not there.
    pub async fn pcs_ready(&self) -> Result<(), ProviderError> {
        self.send("pcs.ready", Service::Pcs, Method::GET, "/readiness", &[], None).await.map(drop)
    }
}

fn standing(seen: Seen) -> Result<Transition, ProviderError> {
    Ok(match seen.transition_status.as_str() {
        "new" | "in-progress" | "abort-signaled" => Transition::Running,
        "completed" | "aborted" => outcome(seen),
        other => {
            let what = format!("a transition is {}, which is no status", message::bounded(other));
            return Err(ProviderError::malformed("openchami pcs.transitions.read", what));
        }
    })
}

/// A record that was compressed has no tasks any more: its counts stay.
fn outcome(seen: Seen) -> Transition {
    let failed = |task: &Task| task.task_status != "succeeded";
    let why = |task: Task| {
        let why = task.error.filter(|error| !error.is_empty()).unwrap_or(task.task_status_description);
        (message::bounded(&task.xname), message::bounded(&why))
    };
    let Counts { failed: lost, unsupported, succeeded, total } = seen.task_counts;
    let mut failures: Vec<_> = seen.tasks.unwrap_or_default().into_iter().filter(failed).map(why).collect();
    if failures.is_empty() && (lost + unsupported > 0 || succeeded < total || total == 0) {
        let told = format!("{lost} failed, {unsupported} cannot do it, {succeeded} of {total} did");
        failures.push(("transition".to_owned(), told));
    }
    if failures.is_empty() { Transition::Succeeded } else { Transition::Failed(failures) }
}

/// That nothing is known is known since it was asked; a state has its own time.
fn reading(status: Option<PowerStatus>, asked: Timestamp) -> PowerReading {
    let at = status
        .as_ref()
        .map_or(asked, |status| status.last_updated.as_deref().and_then(|time| time.parse().ok()).unwrap_or_default());
    let said = said(status);
    PowerReading {
        at: if matches!(said, PowerSaid::Unknown { .. }) { asked } else { at },
        said,
        source: "pcs".to_owned(),
    }
}

fn said(status: Option<PowerStatus>) -> PowerSaid {
    let unknown = |why: String| PowerSaid::Unknown { why: message::bounded(&why) };
    let Some(status) = status else { return unknown("power control does not know the node".to_owned()) };
    let error = status.error.filter(|error| !error.is_empty());
    // What cannot be managed was not read: its state is an earlier one.
    match (status.power_state.as_str(), status.management_state.as_str(), error) {
        (_, "unavailable", error) => unknown(error.unwrap_or_else(|| "its BMC does not answer".to_owned())),
        (_, _, Some(error)) => unknown(error),
        ("on", _, None) => PowerSaid::On,
        ("off", _, None) => PowerSaid::Off,
        (other, _, None) => unknown(format!("power control says {other}")),
    }
}

impl Transition {
    /// A failed one as an error.
    ///
    /// # Errors
    /// [`PowerFailed`](ErrorKind::PowerFailed) with the first reason.
    pub fn checked(self) -> Result<Self, ProviderError> {
        match &self {
            Self::Running | Self::Succeeded => Ok(self),
            Self::Failed(failures) => {
                let told: Vec<String> = failures.iter().map(|(who, why)| format!("{who}: {why}")).collect();
                let message = message::bounded(&told.join("; "));
                Err(ProviderError::new("openchami pcs.transitions", ErrorKind::PowerFailed { message }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn of(body: Value) -> Transition {
        outcome(serde_json::from_value(body).unwrap())
    }

    #[test]
    fn completed_is_success_only_when_every_task_succeeded() {
        let counts = |failed: u64, succeeded: u64| json!({"total": 2, "new": 0, "in-progress": 0, "failed": failed, "succeeded": succeeded, "un-supported": 0});
        assert_eq!(of(json!({"transitionStatus": "completed", "taskCounts": counts(0, 2)})), Transition::Succeeded);
        let failed = of(json!({"transitionStatus": "completed", "taskCounts": counts(1, 1), "tasks": [
            {"xname": "x1", "taskStatus": "succeeded"}, {"xname": "x2", "taskStatus": "failed", "error": "no answer"}]}));
        assert_eq!(failed, Transition::Failed(vec![("x2".to_owned(), "no answer".to_owned())]));
        let compressed = of(json!({"transitionStatus": "completed", "taskCounts": counts(1, 1)}));
        assert!(matches!(compressed, Transition::Failed(_)), "tasks vanish, counts stay");
        let aborted = of(json!({"transitionStatus": "aborted", "taskCounts": counts(0, 1)}));
        assert!(matches!(aborted, Transition::Failed(_)));
    }

    #[test]
    fn power_that_was_not_read_is_unknown() {
        let of = |power: &str, management: &str, error: &str| {
            said(Some(PowerStatus {
                xname: "x1".to_owned(),
                power_state: power.to_owned(),
                management_state: management.to_owned(),
                error: Some(error.to_owned()),
                last_updated: None,
            }))
        };
        assert_eq!(of("on", "available", ""), PowerSaid::On);
        assert_eq!(of("off", "available", ""), PowerSaid::Off);
        for unknown in [
            of("off", "unavailable", ""),
            of("off", "available", "timeout"),
            of("undefined", "available", ""),
            said(None),
        ] {
            assert!(matches!(unknown, PowerSaid::Unknown { .. }), "{unknown:?}");
        }
    }

    #[test]
    fn a_state_has_its_own_time_and_one_without_a_time_is_as_old_as_can_be() {
        let asked = Timestamp::from_millis(1_800_000_000_000);
        let of = |status: Value| reading(Some(serde_json::from_value(status).unwrap()), asked).at.to_string();
        for (time, want) in [
            (json!("2026-11-21T09:37:12.123456789+01:00"), "2026-11-21T08:37:12.123Z"),
            (json!("2026-11-21T09:37:12Z"), "2026-11-21T09:37:12.000Z"),
            (json!("yesterday"), "1970-01-01T00:00:00.000Z"),
            (json!(""), "1970-01-01T00:00:00.000Z"),
            (Value::Null, "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(of(json!({"xname": "x1", "powerState": "off", "lastUpdated": time})), want);
        }
        assert_eq!(of(json!({"xname": "x1", "powerState": "off"})), "1970-01-01T00:00:00.000Z");
        assert_eq!(reading(None, asked).at, asked);
    }
}
