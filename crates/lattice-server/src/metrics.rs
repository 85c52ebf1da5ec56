//! What Prometheus reads at `/metrics`. Labels are states, routes and causes; never ids. design: 8-interfaces

mod components;
mod work;

use std::time::Duration;

use lattice_core::batch::{BatchStatus, Children};
use lattice_core::ids::EventSeq;
use lattice_core::job::JobStatus;
use lattice_core::node::NodeState;
use lattice_core::site::Site;
use lattice_core::webhook::WebhookStatus;
use lattice_store::TaskCount;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use components::ComponentMetrics;
use work::WorkMetrics;

pub use work::WorkFigures;

/// Media type of the text format.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bounds of the buckets for request times, in seconds: from a cached read to a provider's answer.
const REQUEST_SECONDS: [f64; 10] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

/// States of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct NodeLabels {
    status: String,
    availability: String,
}

/// Kinds and states of sites.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SiteLabels {
    kind: String,
    status: String,
}

/// States of jobs, of batches, of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StatusLabels {
    status: String,
}

/// Requests by the path's pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

/// Requests by the path's pattern alone: times need no status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RouteLabels {
    method: String,
    route: String,
}

/// Why something happened: an event of a state machine, a failure class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CauseLabels {
    cause: String,
}

/// Tasks of agents: their kind, and what happened to them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TaskLabels {
    kind: String,
    event: String,
}

/// Tasks of agents: their kind and status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OpenTaskLabels {
    kind: String,
    status: String,
}

/// What was asked of the secret store, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SecretLabels {
    deed: String,
    result: String,
}

/// What was asked of the secret store: `read`, `write`, `delete`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DeedLabels {
    deed: String,
}

/// Permits of onboardings: `used`, `free`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PermitLabels {
    state: String,
}

/// Batches as they stand at a scrape.
#[derive(Debug, Clone, Default)]
pub struct BatchFigures {
    /// Of those that are not over.
    pub statuses: Vec<BatchStatus>,
    /// Machines of all of them.
    pub machines: Children,
    /// Permits of the sites of those that are not over.
    pub permits: u64,
    /// How many of these are used.
    pub used: u64,
}

/// What came of a delivery: `taken`, `refused`, `failed`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabels {
    result: String,
}

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    nodes: Family<NodeLabels, Gauge>,
    jobs: Family<StatusLabels, Gauge>,
    sites: Family<SiteLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram>,
    outbox_seq: Gauge,
    event_streams: Gauge,
    heartbeats: Counter,
    hears_agents: Gauge,
    transitions: Family<CauseLabels, Counter>,
    wipe_failures: Counter,
    tasks: Family<TaskLabels, Counter>,
    open_tasks: Family<OpenTaskLabels, Gauge>,
    secret_requests: Family<SecretLabels, Counter>,
    secret_seconds: Family<DeedLabels, Histogram>,
    secret_store_up: Gauge,
    batches: Family<StatusLabels, Gauge>,
    batch_machines: Family<StatusLabels, Gauge>,
    permits: Family<PermitLabels, Gauge>,
    webhooks: Family<StatusLabels, Gauge>,
    webhook_deliveries: Family<ResultLabels, Counter>,
    webhook_seconds: Histogram,
    webhook_lag: Gauge,
    components: ComponentMetrics,
    work: WorkMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            nodes: Family::default(),
            jobs: Family::default(),
            sites: Family::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
            outbox_seq: Gauge::default(),
            event_streams: Gauge::default(),
            hears_agents: Gauge::default(),
            heartbeats: Counter::default(),
            transitions: Family::default(),
            wipe_failures: Counter::default(),
            tasks: Family::default(),
            open_tasks: Family::default(),
            secret_requests: Family::default(),
            secret_seconds: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
            secret_store_up: Gauge::default(),
            batches: Family::default(),
            batch_machines: Family::default(),
            permits: Family::default(),
            webhooks: Family::default(),
            webhook_deliveries: Family::default(),
            webhook_seconds: Histogram::new(REQUEST_SECONDS),
            webhook_lag: Gauge::default(),
            components: ComponentMetrics::default(),
            work: WorkMetrics::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("lattice_nodes", "Nodes by their states", metrics.nodes.clone());
        registry.register("lattice_jobs", "Jobs by their status", metrics.jobs.clone());
        registry.register("lattice_sites", "Sites by their kind and status", metrics.sites.clone());
        registry.register("lattice_http_requests", "Requests answered", metrics.requests.clone());
        registry.register(
            "lattice_http_request_seconds",
            "Time from a request to its answer",
            metrics.request_seconds.clone(),
        );
        registry.register("lattice_outbox_seq", "Place of the last event", metrics.outbox_seq.clone());
        registry.register("lattice_event_streams", "Event streams that are open", metrics.event_streams.clone());
        registry.register("lattice_heartbeats", "Heartbeats accepted", metrics.heartbeats.clone());
        registry.register(
            "lattice_detector_transitions",
            "Availability changes that the failure detector made",
            metrics.transitions.clone(),
        );
        registry.register("lattice_sensitive_wipe_failure", "Secure wipes that failed", metrics.wipe_failures.clone());
        registry.register("lattice_tasks", "What happened to tasks of agents", metrics.tasks.clone());
        registry.register("lattice_open_tasks", "Tasks of agents that are not over", metrics.open_tasks.clone());
        metrics.register_servers();
        metrics.register_batches();
        metrics.register_webhooks();
        metrics.components.register(&mut metrics.registry);
        metrics.work.register(&mut metrics.registry);
        metrics
    }
}

impl Metrics {
    /// Which server hears the agents, and what the secret store does.
    fn register_servers(&mut self) {
        let hears = "1 on the server that hears the agents, 0 on those that stand by";
        self.registry.register("lattice_hears_agents", hears, self.hears_agents.clone());
        self.registry.register(
            "lattice_secret_requests",
            "Reads and writes of the secret store, by what came of them",
            self.secret_requests.clone(),
        );
        self.registry.register(
            "lattice_secret_request_seconds",
            "Time that the secret store took",
            self.secret_seconds.clone(),
        );
        self.registry.register(
            "lattice_secret_store_up",
            "1 while the secret store gives what it is asked for",
            self.secret_store_up.clone(),
        );
    }

    fn register_batches(&mut self) {
        let registry = &mut self.registry;
        registry.register("lattice_batches", "Batches that are not over, by their status", self.batches.clone());
        registry.register(
            "lattice_batch_machines",
            "Machines of all batches, by the status of their onboarding; pending ones wait for a permit",
            self.batch_machines.clone(),
        );
        registry.register(
            "lattice_onboarding_permits",
            "Onboardings that may run at once at sites with a batch that is not over: used, and free",
            self.permits.clone(),
        );
    }

    fn register_webhooks(&mut self) {
        let registry = &mut self.registry;
        registry.register("lattice_webhooks", "Webhooks by their status", self.webhooks.clone());
        registry.register(
            "lattice_webhook_deliveries",
            "Attempts to deliver an event, by what came of them",
            self.webhook_deliveries.clone(),
        );
        registry.register(
            "lattice_webhook_delivery_seconds",
            "Time of one attempt to deliver an event",
            self.webhook_seconds.clone(),
        );
        registry.register(
            "lattice_webhook_lag_seconds",
            "Age of the oldest event that an enabled webhook did not take",
            self.webhook_lag.clone(),
        );
    }

    /// Something happened to a task.
    pub fn task(&self, kind: &str, event: &str) {
        self.tasks.get_or_create(&TaskLabels { kind: kind.to_owned(), event: event.to_owned() }).inc();
    }

    /// Tasks that are not over, as the store counts them.
    pub fn observe_tasks(&self, counts: &[TaskCount]) {
        self.open_tasks.clear();
        for one in counts {
            let labels = OpenTaskLabels { kind: one.kind.to_string(), status: one.status.to_string() };
            self.open_tasks.get_or_create(&labels).set(i64::try_from(one.count).unwrap_or(i64::MAX));
        }
    }

    /// Counts an answered request.
    pub fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let (method, route) = (method.to_owned(), route.to_owned());
        self.request_seconds
            .get_or_create(&RouteLabels { method: method.clone(), route: route.clone() })
            .observe(took.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { method, route, status }).inc();
    }

    /// Counts accepted heartbeats.
    pub fn heartbeats(&self, accepted: u64) {
        self.heartbeats.inc_by(accepted);
    }

    /// Counts a change of availability that the detector made.
    pub fn transition(&self, cause: &str) {
        self.transitions.get_or_create(&CauseLabels { cause: cause.to_owned() }).inc();
    }

    /// Counts a secure wipe that failed. spec: S1 "Wipe Failure Handling"
    pub fn wipe_failure(&self) {
        self.wipe_failures.inc();
    }

    /// Counts what came of a request to the secret store: `ok`, or why not.
    pub fn secret_request(&self, deed: &'static str, result: &'static str, took: Duration) {
        let label = |text: &str| text.to_owned();
        self.secret_seconds.get_or_create(&DeedLabels { deed: label(deed) }).observe(took.as_secs_f64());
        self.secret_requests.get_or_create(&SecretLabels { deed: label(deed), result: label(result) }).inc();
    }

    /// Notes whether this server hears the agents.
    pub fn hears_agents(&self, hears: bool) {
        self.hears_agents.set(i64::from(hears));
    }

    /// Notes whether the secret store gives what it is asked for.
    pub fn secret_store(&self, is_up: bool) {
        self.secret_store_up.set(i64::from(is_up));
    }

    /// Counts an attempt to deliver an event.
    pub fn webhook_delivery(&self, result: &'static str, took: Duration) {
        self.webhook_seconds.observe(took.as_secs_f64());
        self.webhook_deliveries.get_or_create(&ResultLabels { result: result.to_owned() }).inc();
    }

    /// Notes how many webhooks there are.
    pub fn webhooks(&self, statuses: impl Iterator<Item = WebhookStatus>) {
        self.webhooks.clear();
        for status in statuses {
            self.webhooks.get_or_create(&StatusLabels { status: status.to_string() }).inc();
        }
    }

    /// Notes how old the oldest event is that was not taken.
    pub fn webhook_lag(&self, lag: Duration) {
        self.webhook_lag.set(clamp(lag.as_secs()));
    }

    /// An event stream was opened; it is counted as closed when the guard is dropped.
    pub fn stream_opened(&self) -> StreamGuard {
        self.event_streams.inc();
        StreamGuard(self.event_streams.clone())
    }

    /// Sets what is read from the store at each scrape. A pair or status that is gone is not shown any more.
    pub fn observe(&self, nodes: &[(NodeState, u64)], jobs: &[(JobStatus, u64)], last: EventSeq) {
        self.nodes.clear();
        for (state, count) in nodes {
            let labels = NodeLabels { status: state.status.to_string(), availability: state.availability.to_string() };
            self.nodes.get_or_create(&labels).inc_by(clamp(*count));
        }
        self.jobs.clear();
        for (status, count) in jobs {
            self.jobs.get_or_create(&StatusLabels { status: status.to_string() }).set(clamp(*count));
        }
        self.outbox_seq.set(clamp(last.0));
    }

    /// Sets the sites as they stand at a scrape.
    pub fn observe_sites<'a>(&self, sites: impl Iterator<Item = &'a Site>) {
        self.sites.clear();
        for site in sites {
            let labels = SiteLabels { kind: site.provider.kind().to_owned(), status: site.status.to_string() };
            self.sites.get_or_create(&labels).inc();
        }
    }

    /// Sets the batches as they stand at a scrape.
    pub fn observe_batches(&self, figures: &BatchFigures) {
        self.batches.clear();
        for status in &figures.statuses {
            self.batches.get_or_create(&StatusLabels { status: status.to_string() }).inc();
        }
        let machines = &figures.machines;
        for (status, count) in [
            (JobStatus::Pending, machines.pending),
            (JobStatus::Running, machines.running),
            (JobStatus::Compensating, machines.compensating),
            (JobStatus::Completed, machines.succeeded),
            (JobStatus::FailedRetryable, machines.failed_retryable),
            (JobStatus::FailedManualIntervention, machines.failed_manual_intervention),
            (JobStatus::Cancelled, machines.cancelled),
        ] {
            self.batch_machines.get_or_create(&StatusLabels { status: status.to_string() }).set(clamp(count));
        }
        for (state, count) in [("used", figures.used), ("free", figures.permits.saturating_sub(figures.used))] {
            self.permits.get_or_create(&PermitLabels { state: state.to_owned() }).set(clamp(count));
        }
    }

    /// All of it in the text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("a string takes any text");
        text
    }
}

/// Counts an event stream as long as it lives.
pub struct StreamGuard(Gauge);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use lattice_core::allocation::AllocationStatus;
    use lattice_core::node::{Availability, DownCause, HoldKind, Status};
    use lattice_core::site::Governor;

    use super::*;

    #[test]
    fn names_are_those_that_dashboards_ask_for() {
        let metrics = Metrics::default();
        let ready = NodeState::new(Status::Active, Availability::Ready);
        metrics.observe(&[(ready, 3), (ready, 4)], &[(JobStatus::Running, 2)], EventSeq(9));
        metrics.request("GET", "/api/v1/admin/nodes/{id}", 200, Duration::from_millis(2));
        metrics.transition("heartbeat_missed");
        metrics.heartbeats(5);
        metrics.secret_request("read", "sealed", Duration::from_millis(2));
        metrics.secret_store(true);
        metrics.webhook_delivery("taken", Duration::from_millis(2));
        metrics.webhooks([WebhookStatus::Enabled, WebhookStatus::GaveUp].into_iter());
        metrics.webhook_lag(Duration::from_secs(7));
        metrics.hears_agents(true);
        let governor = Governor { in_service: 40, taken: 1, limit: 4 };
        metrics.observe_work(&WorkFigures {
            allocations: vec![(AllocationStatus::Active, 12)],
            holds: vec![(HoldKind::WipeFailed, 1)],
            down: vec![(Status::Offline, Some(DownCause::Disabled), 6), (Status::Offline, None, 1)],
            deviating: 2,
            braked: 3,
            breakers_open: 4,
            silences: 5,
            governors: vec![("dc1".to_owned(), governor)],
        });
        let text = metrics.text();
        for line in [
            r#"lattice_nodes{status="active",availability="ready"} 7"#,
            r#"lattice_jobs{status="running"} 2"#,
            r#"lattice_http_requests_total{method="GET",route="/api/v1/admin/nodes/{id}",status="200"} 1"#,
            r#"lattice_detector_transitions_total{cause="heartbeat_missed"} 1"#,
            "lattice_heartbeats_total 5",
            r#"lattice_secret_requests_total{deed="read",result="sealed"} 1"#,
            r#"lattice_secret_request_seconds_count{deed="read"} 1"#,
            "lattice_secret_store_up 1",
            "lattice_hears_agents 1",
            r#"lattice_webhook_deliveries_total{result="taken"} 1"#,
            "lattice_webhook_delivery_seconds_count 1",
            r#"lattice_webhooks{status="gave_up"} 1"#,
            "lattice_webhook_lag_seconds 7",
            "lattice_outbox_seq 9",
            r#"lattice_allocations{status="active"} 12"#,
            r#"lattice_held_nodes{kind="wipe_failed"} 1"#,
            r#"lattice_down_nodes{status="offline",cause="disabled"} 6"#,
            r#"lattice_down_nodes{status="offline",cause="unknown"} 1"#,
            "lattice_deviating_nodes 2",
            "lattice_braked_nodes 3",
            "lattice_bmc_breakers_open 4",
            "lattice_silences 5",
            r#"lattice_automation_unavailable_nodes{site="dc1"} 1"#,
            r#"lattice_automation_unavailable_limit{site="dc1"} 4"#,
            "lattice_sensitive_wipe_failure_total 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    /// Words of the text that begin as our metrics do; an alert may ask for the suffixes that a kind of metric adds.
    fn named(text: &str) -> impl Iterator<Item = &str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("lattice_")).map(|word| {
            let base = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| word.strip_suffix(suffix));
            base.unwrap_or(word).trim_end_matches("_total")
        })
    }

    #[test]
    fn alerts_and_the_dashboard_ask_only_for_metrics_that_there_are() {
        // A family that counted nothing yet is in no text: the registrations above tell.
        let registered = concat!(include_str!("metrics.rs"), include_str!("metrics/work.rs"));
        let asked = [
            ("alerts.yml", include_str!("../../../deploy/alerts.yml")),
            ("dashboard.json", include_str!("../../../deploy/dashboard.json")),
        ];
        for (file, text) in asked {
            assert!(named(text).count() > 10, "{file} asks for hardly anything");
            for name in named(text) {
                assert!(registered.contains(&format!("\"{name}\",")), "{file} asks for {name}, which there is not");
            }
        }
    }
}
