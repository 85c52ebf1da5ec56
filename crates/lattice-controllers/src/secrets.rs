//! Whether the secret store gives secrets; what it stopped goes on once it does again. spec: S5 3.2, 4.7

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::change::{Change, Outcome, Resource};
use lattice_core::command::Request;
use lattice_core::command::job::{Asked, act};
use lattice_core::ids::{CorrelationId, IdSource, JobId};
use lattice_core::job::{CompensateTo, Decisions, Job, JobStatus, OperatorAction};
use lattice_core::time::Timestamp;
use lattice_providers::secret::{SecretError, SecretPath, SecretStore, SecretTrouble};
use lattice_store::{JobFilter, PAGE_MAX, PageRequest, Store, StoreError};
use tracing::{info, warn};

/// What every installation keeps in its secret store.
const ALWAYS_THERE: &str = "lattice/ca";

/// Looks at the secret store as long as the server runs.
pub struct SecretWatch {
    store: Store,
    secrets: Arc<dyn SecretStore>,
    ids: Arc<dyn IdSource>,
    server: String,
    standing: Standing,
}

/// What is known of the secret store, and was told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Unknown,
    Up,
    /// Since when, and the causes that were told: each once in an outage.
    Down(Timestamp, BTreeSet<&'static str>),
}

/// An outage that lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretOutage {
    /// Since when.
    pub since: Timestamp,
    /// Its name in metrics: `sealed`.
    pub cause: &'static str,
    /// What the secret store said, without secrets.
    pub why: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// What a look led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Why the store gives no secrets; none while it does.
    pub outage: Option<SecretOutage>,
    /// Jobs that go on now: their drivers are to be woken.
    pub resumed: Vec<JobId>,
    /// When to look again.
    pub pause: Duration,
}

impl SecretWatch {
    /// Pause between two looks at a store that is well: a quarter of an alert's usual minute.
    pub const PAUSE: Duration = Duration::from_secs(15);
    /// Pause while it is not: its return is noticed soon.
    pub const PAUSE_DOWN: Duration = Duration::from_secs(5);

    /// A watch of the server of that name, which has not looked yet.
    pub const fn new(store: Store, secrets: Arc<dyn SecretStore>, ids: Arc<dyn IdSource>, server: String) -> Self {
        Self { store, secrets, ids, server, standing: Standing::Unknown }
    }

    /// Looks once. What changed is told in an event; when the store is back, the jobs that it stopped are resumed.
    ///
    /// # Errors
    /// Our own store fails: the next look tells the same.
    pub async fn tick(&mut self, now: Timestamp) -> Result<Watched, StoreError> {
        let path: SecretPath = ALWAYS_THERE.parse().expect("a constant path is well formed");
        match self.secrets.read(&path).await {
            Ok(_) => self.up(now).await,
            Err(error) if error.trouble() == SecretTrouble::Missing => self.up(now).await,
            Err(error) => self.down(&error, now).await,
        }
    }

    async fn up(&mut self, now: Timestamp) -> Result<Watched, StoreError> {
        let mut resumed = Vec::new();
        if self.standing != Standing::Up {
            resumed = self.resume_stopped(now).await?;
        }
        if let Standing::Down(..) = self.standing {
            let detail = format!("server {}: {} jobs go on by themselves", self.server, resumed.len());
            self.tell("secrets.available", detail, now).await?;
            info!(jobs = resumed.len(), "secret store available");
        }
        self.standing = Standing::Up;
        Ok(Watched { outage: None, resumed, pause: Self::PAUSE })
    }

    async fn down(&mut self, error: &SecretError, now: Timestamp) -> Result<Watched, StoreError> {
        let (since, mut told) = match &self.standing {
            Standing::Down(since, told) => (*since, told.clone()),
            Standing::Unknown | Standing::Up => (now, BTreeSet::new()),
        };
        if told.insert(error.cause()) {
            self.tell("secrets.unavailable", format!("server {}: {}", self.server, error.told()), now).await?;
            warn!(error_code = error.trouble().error_code(), %error, "secret store unavailable");
        }
        self.standing = Standing::Down(since, told);
        let outage = SecretOutage { since, cause: error.cause(), why: error.to_string(), remedy: error.remedy() };
        Ok(Watched { outage: Some(outage), resumed: Vec::new(), pause: Self::PAUSE_DOWN })
    }

    async fn tell(&self, name: &str, detail: String, now: Timestamp) -> Result<(), StoreError> {
        let resource = Resource::System("secrets".to_owned());
        let note = Change::Note { name: name.to_owned(), resource, detail };
        self.store.commit_one(self.request(now).commit(Vec::new(), vec![note])).await.map(|_| ())
    }

    fn request(&self, now: Timestamp) -> Request<'_> {
        let correlation = CorrelationId::generate(&*self.ids, now);
        Request {
            reason: "the secret store is available again".to_owned(),
            ..Request::of_system("secrets", &*self.ids, now, correlation)
        }
    }

    /// Asks every job to go on that stopped because of the secret store and nothing else.
    async fn resume_stopped(&self, now: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let statuses = vec![JobStatus::FailedRetryable, JobStatus::FailedManualIntervention];
        let filter = JobFilter { statuses, ..JobFilter::default() };
        let mut page = PageRequest::first(PAGE_MAX);
        let mut resumed = Vec::new();
        loop {
            let found = self.store.jobs(&filter, &page).await?;
            for summary in found.items.iter().filter(|summary| is_outage(summary.error_code.as_deref())) {
                if let Some(job) = self.store.job(summary.id).await?
                    && self.resume(&job, now).await?
                {
                    resumed.push(job.id);
                }
            }
            match found.next {
                Some(next) => page.cursor = Some(next),
                None => return Ok(resumed),
            }
        }
    }

    /// Whether the job goes on. One that an operator moved meanwhile is left alone.
    async fn resume(&self, job: &Job, now: Timestamp) -> Result<bool, StoreError> {
        let (Some(node), Some(site)) = (self.store.node(job.node).await?, self.store.site(job.site).await?) else {
            return Ok(false);
        };
        let asked = Asked { action: way_on(job), decisions: Decisions::default(), observed: None };
        let Ok(Some(planned)) = act(&self.request(now), job, &node, &site, &asked) else { return Ok(false) };
        Ok(matches!(self.store.commit_one(planned.commit).await?, Outcome::Applied { .. }))
    }
}

fn is_outage(error_code: Option<&str>) -> bool {
    let outages = [SecretTrouble::Unavailable, SecretTrouble::Refused].map(SecretTrouble::error_code);
    error_code.is_some_and(|code| outages.contains(&code))
}

/// What moves a stopped job on in the direction in which it went.
const fn way_on(job: &Job) -> OperatorAction {
    match job.state.compensating_to {
        Some(CompensateTo::Cancelled) => OperatorAction::Cancel,
        Some(CompensateTo::Restart { .. }) | None => OperatorAction::Resume,
    }
}
