//! The body of every refusal: RFC 9457 problem details, with the facts and what to do next. design: 8-interfaces

mod call;

use http::StatusCode;
use lattice_core::explain::{Code, Explain, NextAction};
use lattice_core::ids::CorrelationId;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use call::call_of;

/// Media type of a [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was refused, and what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Problem {
    /// Names the kind of refusal as a URI: `urn:lattice:error:LAT0042`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The kind of refusal in a few words; the same for each of its kind.
    pub title: String,
    /// HTTP status, repeated for readers of the body alone.
    pub status: u16,
    /// Stable number: `LAT0042`; `docs/errors/LAT0042.md` describes it.
    pub code: String,
    /// What happened this time.
    pub detail: String,
    /// The facts that led to it, most important first.
    #[serde(default)]
    pub because: Vec<String>,
    /// What to do, best first.
    #[serde(default)]
    pub next_actions: Vec<NextStep>,
    /// The field of the request that is wrong, as a path: `disks[0].count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Every field that is wrong, where one request has several: machines of a batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Address of the server that can answer, where this one cannot: agents go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Finds the server's log lines of this request.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub correlation_id: Option<CorrelationId>,
}

impl Problem {
    /// A problem without facts and actions.
    pub fn new(status: StatusCode, code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:lattice:error:{}", code.text()),
            title: code.title(),
            status: status.as_u16(),
            code: code.text(),
            detail: detail.into(),
            because: Vec::new(),
            next_actions: Vec::new(),
            field: None,
            errors: Vec::new(),
            holder: None,
            correlation_id: None,
        }
    }

    /// The problem that an explained error is.
    pub fn of(status: StatusCode, error: &dyn Explain) -> Self {
        Self {
            because: error.because(),
            next_actions: error.next_actions().into_iter().map(NextStep::from).collect(),
            ..Self::new(status, error.code(), error.to_string())
        }
    }

    /// The same with one more fact.
    #[must_use]
    pub fn because(mut self, fact: impl Into<String>) -> Self {
        self.because.push(fact.into());
        self
    }

    /// The same with one more thing to do.
    #[must_use]
    pub fn next(mut self, action: impl Into<NextStep>) -> Self {
        self.next_actions.push(action.into());
        self
    }

    /// The same, naming the field that is wrong.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>) -> Self {
        self.field = Some(path.into());
        self
    }

    /// Whether this is a refusal of that kind.
    pub fn is(&self, code: Code) -> bool {
        self.code == code.text()
    }
}

/// One wrong field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FieldError {
    /// Its path: `nodes[3].ipmi_ip`.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub detail: String,
}

/// One thing that helps: a command and the request that it makes, or what to wait for or put right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NextStep {
    /// The whole command line; absent when no command helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The request that the command makes; absent when it is more than one, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiCall>,
    /// What happens then; what is waited for; or what must be put right outside of Lattice.
    pub effect: String,
    /// When it moves by itself, if nothing but waiting helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A request of this API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ApiCall {
    /// `GET`, `POST` …
    pub method: String,
    /// Path with its query: `/api/v1/admin/jobs/0190…/resume`.
    pub path: String,
    /// JSON body; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub body: Option<serde_json::Value>,
}

impl From<NextAction> for NextStep {
    fn from(action: NextAction) -> Self {
        match action {
            NextAction::Run { command, effect } => {
                Self { api: call_of(&command), command: Some(command), effect, until: None }
            }
            NextAction::WaitUntil { until, waiting_for } => {
                Self { command: None, api: None, effect: format!("wait for {waiting_for}"), until: Some(until) }
            }
            NextAction::Fix { what } => Self { command: None, api: None, effect: what, until: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_kind_and_its_number() {
        let problem = Problem::new(StatusCode::CONFLICT, Code::HeartbeatReplayed, "sequence 7 came after 9");
        assert_eq!((problem.status, problem.title.as_str()), (409, "heartbeat replayed"));
        assert_eq!((problem.code.as_str(), problem.kind.as_str()), ("LAT0067", "urn:lattice:error:LAT0067"));
        assert!(problem.is(Code::HeartbeatReplayed) && !problem.is(Code::SessionUnknown));
    }

    #[test]
    fn a_printed_command_knows_its_request() {
        let rows = [
            ("lattice explain node c07u43", Some(("GET", "/api/v1/admin/nodes/c07u43/explain", "null"))),
            ("lattice node enable c07u43", Some(("POST", "/api/v1/admin/nodes/c07u43/enable", "{}"))),
            (
                "lattice node drain c07u43 --urgent --yes",
                Some(("POST", "/api/v1/admin/nodes/c07u43/drain", r#"{"urgent":true}"#)),
            ),
            (
                "lattice job resume 0190 --boot-disk nvme0n1",
                Some(("POST", "/api/v1/admin/jobs/0190/resume", r#"{"decisions":{"boot_disk":"nvme0n1"}}"#)),
            ),
            (
                "lattice onboarding batch resume 0190",
                Some(("POST", "/api/v1/admin/onboardings/batch/0190/resume", "{}")),
            ),
            ("lattice webhook enable ticketing", Some(("POST", "/api/v1/admin/webhooks/ticketing/enable", "{}"))),
            ("lattice webhook test ticketing", Some(("POST", "/api/v1/admin/webhooks/ticketing/test", "null"))),
            ("lattice webhook disable ticketing", Some(("POST", "/api/v1/admin/webhooks/ticketing/disable", "{}"))),
            ("lattice site enable dc1", Some(("PATCH", "/api/v1/admin/sites/dc1", r#"{"status":"active"}"#))),
            ("lattice node show c07u43", Some(("GET", "/api/v1/admin/nodes/c07u43", "null"))),
            ("lattice job watch 0190", Some(("GET", "/api/v1/admin/jobs/0190", "null"))),
            ("lattice job list --status=failed", Some(("GET", "/api/v1/admin/jobs?status=failed", "null"))),
            (
                "lattice hold clear c07u43 disabled",
                Some(("DELETE", "/api/v1/admin/nodes/c07u43/holds/disabled", "null")),
            ),
            (
                "lattice node secure-erase c07u43 --drive /a --drive /b --powered-on",
                Some((
                    "POST",
                    "/api/v1/admin/nodes/c07u43/secure-erase",
                    r#"{"drives":["/a","/b"],"powered_on":true}"#,
                )),
            ),
            (
                "lattice node reboot c07u43 --boot pxe",
                Some(("POST", "/api/v1/admin/nodes/c07u43/reboot", r#"{"boot":"pxe"}"#)),
            ),
            ("lattice node bmc check c07u43", Some(("POST", "/api/v1/admin/nodes/c07u43/bmc/check", "null"))),
            (
                "lattice node drain c07u43 --deadline 2h",
                Some(("POST", "/api/v1/admin/nodes/c07u43/drain", r#"{"deadline_ms":7200000}"#)),
            ),
            (
                "lattice node drain c07u43 --deadline <deadline>",
                Some(("POST", "/api/v1/admin/nodes/c07u43/drain", r#"{"deadline_ms":"<deadline>"}"#)),
            ),
            (
                "lattice node drain c07u43 --no-deadline",
                Some(("POST", "/api/v1/admin/nodes/c07u43/drain", r#"{"no_deadline":true}"#)),
            ),
            ("lattice node wipe c07u43", None),
            ("lattice node frobnicate c07u43", None),
            ("systemctl restart lattice-agent", None),
            ("lattice dev", None),
        ];
        for (command, expected) in rows {
            let call = call_of(command);
            let got = call.as_ref().map(|call| {
                let body = call.body.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string);
                (call.method.as_str(), call.path.as_str(), body)
            });
            let expected = expected.map(|(method, path, body)| (method, path, body.to_owned()));
            assert_eq!(got, expected, "{command}");
        }
    }
}
