//! Tasks on the host: verified, written down, done one after the other, reported. design: 4 "Identity and transport"

mod effects;
mod journal;
mod reporter;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lattice_core::agent::task::{Envelope, Expected, KeySet, Progress, Statement, TaskErrorCode, TaskKey, TaskReport};
use lattice_core::ids::{NodeId, TaskId};
use serde::Deserialize;
use tokio::sync::Notify;
use tracing::{info, warn};

use self::journal::{Handed, Journal, Stage};
use crate::agent::Ground;
use crate::config::Pace;
use crate::hands::Hands;
use crate::link::Target;
use crate::storage::Storage;
use crate::workloads::Workloads;

/// Words that are said once and not kept: more of them wait only when the server does not answer for long.
const PASSING: usize = 64;

/// Tasks of one host.
pub struct Tasks {
    node: NodeId,
    version: String,
    pace: Pace,
    ground: Ground,
    hands: Arc<dyn Hands>,
    workloads: Arc<Workloads>,
    journal: Journal,
    trusted: RwLock<Trusted>,
    /// How to reach the server; none: there is no identity yet.
    way: Mutex<Option<Target>>,
    /// Said once: that a task began, what became of one that is handed over again.
    passing: Mutex<VecDeque<TaskReport>>,
    to_do: Notify,
    to_report: Notify,
}

/// Whose signature counts, and for which identity.
#[derive(Default)]
struct Trusted {
    keys: KeySet,
    epoch: Option<u64>,
}

/// What tasks are put together from.
pub struct Parts {
    /// The node that the agent is.
    pub node: NodeId,
    /// Version of the agent.
    pub version: String,
    /// How fast things go.
    pub pace: Pace,
    /// The machine, read; the present time; chances.
    pub ground: Ground,
    /// The machine, changed.
    pub hands: Arc<dyn Hands>,
    /// What runs on it.
    pub workloads: Arc<Workloads>,
    /// Where the journal is.
    pub storage: Storage,
}

/// A report on its way.
struct Job {
    report: TaskReport,
    /// It is in the journal, and stays there until it was taken.
    is_kept: bool,
}

/// What of a payload is read when it cannot be trusted: only to say that it was refused.
#[derive(Deserialize)]
struct Addressed {
    task: TaskId,
    node: NodeId,
}

impl Tasks {
    /// Takes up what the agent before left.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn load(parts: Parts) -> std::io::Result<Self> {
        Ok(Self {
            journal: Journal::load(&parts.storage).await?,
            node: parts.node,
            version: parts.version,
            pace: parts.pace,
            ground: parts.ground,
            hands: parts.hands,
            workloads: parts.workloads,
            trusted: RwLock::default(),
            way: Mutex::default(),
            passing: Mutex::default(),
            to_do: Notify::new(),
            to_report: Notify::new(),
        })
    }

    /// Trusts these keys, for tasks of that identity, from now on.
    pub fn trust(&self, keys: &[TaskKey], epoch: Option<u64>) {
        *self.trusted.write().unwrap_or_else(PoisonError::into_inner) = Trusted { keys: KeySet::new(keys), epoch };
    }

    /// Reports go this way from now on.
    pub fn reach(&self, target: Target) {
        *self.way.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
        self.to_report.notify_one();
    }

    /// Takes what the server handed over: each is verified and written down, or refused with a code of its own.
    ///
    /// # Errors
    /// The journal cannot be written: what was handed over is handed over again.
    pub async fn take(&self, envelopes: &[Envelope]) -> std::io::Result<()> {
        for envelope in envelopes {
            let now = self.ground.clock.now();
            let opened = {
                let trusted = self.trusted.read().unwrap_or_else(PoisonError::into_inner);
                trusted.keys.open(envelope, Expected { node: self.node, node_epoch: trusted.epoch, now })
            };
            match opened {
                Ok(statement) => self.accept(&statement).await?,
                // One that is here already may be handed over again after its time; what became of it is being said.
                Err((code, detail)) => match addressed(envelope).filter(|to| to.node == self.node) {
                    Some(to) if self.is_known(to.task) => {}
                    Some(to) => self.refuse(to.task, code, detail).await?,
                    None => {
                        warn!(node_id = %self.node, %code, detail, "task refused, and not reported: it is not ours")
                    }
                },
            }
        }
        Ok(())
    }

    async fn accept(&self, statement: &Statement) -> std::io::Result<()> {
        let (task, kind) = (statement.task, statement.input.kind());
        if !self.is_known(task)
            && let Some(lacking) = self.hands.lacks(&statement.input)
        {
            return self.refuse(task, TaskErrorCode::MissingCapability, lacking).await;
        }
        match self.journal.accept(statement, self.ground.clock.now()).await? {
            Handed::Accepted => {
                info!(node_id = %self.node, task_id = %task, %kind, "task accepted");
                self.to_do.notify_one();
            }
            Handed::Known => {}
            Handed::Over(report) => self.say(*report),
            // To report it would end the task whose id was taken.
            Handed::Refused(code, detail) if self.is_known(task) => {
                warn!(node_id = %self.node, task_id = %task, %code, detail, "task refused");
            }
            Handed::Refused(code, detail) => self.refuse(task, code, detail).await?,
        }
        Ok(())
    }

    /// Whether a task is under way.
    pub fn is_at_one(&self) -> bool {
        self.journal.entries_now().iter().any(|entry| matches!(entry.stage, Stage::Begun { .. }))
    }

    /// Settles what the agent before left, then works and reports for ever.
    pub async fn run(&self) -> std::io::Result<Infallible> {
        tokio::select! {
            biased;
            ended = self.work() => ended,
            never = self.report() => match never {},
        }
    }

    async fn work(&self) -> std::io::Result<Infallible> {
        for entry in self.journal.entries_now() {
            if let Stage::Begun { statement, boot_id } = entry.stage {
                let progress = self.probe(&statement, &boot_id).await;
                self.done(&statement, progress).await?;
            }
        }
        loop {
            match self.journal.next() {
                Some(statement) => self.do_one(statement).await?,
                None => self.to_do.notified().await,
            }
        }
    }

    async fn do_one(&self, statement: Statement) -> std::io::Result<()> {
        let task = statement.task;
        if self.ground.clock.now() >= statement.expires_at {
            let detail = format!("it expired at {} behind other tasks of this host", statement.expires_at);
            return self.done(&statement, Progress::failed(TaskErrorCode::Expired, detail)).await;
        }
        let begun = Stage::Begun { statement: Box::new(statement.clone()), boot_id: self.workloads.boot_id() };
        self.journal.put(task, begun).await?;
        self.say(TaskReport { task, at: self.ground.clock.now(), progress: Progress::Running });
        let progress = self.perform(&statement).await;
        self.done(&statement, progress).await
    }

    async fn done(&self, statement: &Statement, progress: Progress) -> std::io::Result<()> {
        let (task, kind) = (statement.task, statement.input.kind());
        if let Progress::Failed { code, detail, .. } = &progress {
            warn!(node_id = %self.node, task_id = %task, %kind, %code, detail, "task failed");
        } else {
            info!(node_id = %self.node, task_id = %task, %kind, "task done");
        }
        // That it began need not be said any more.
        self.passing().retain(|report| report.task != task);
        let report = Box::new(TaskReport { task, at: self.ground.clock.now(), progress });
        self.journal.put(task, Stage::Done { report }).await?;
        self.to_report.notify_one();
        Ok(())
    }

    /// For good: once the server has heard it, it may have the work done elsewhere.
    async fn refuse(&self, task: TaskId, code: TaskErrorCode, detail: String) -> std::io::Result<()> {
        warn!(node_id = %self.node, task_id = %task, %code, detail, "task refused");
        let now = self.ground.clock.now();
        let report = TaskReport { task, at: now, progress: Progress::failed(code, detail) };
        if self.journal.refuse(Box::new(report), now).await? {
            self.to_report.notify_one();
        } else {
            warn!(node_id = %self.node, task_id = %task, "refusal not kept and not said: too many wait to be reported");
        }
        Ok(())
    }

    /// Says something that is not kept: the server asks again if it is lost.
    fn say(&self, report: TaskReport) {
        let mut passing = self.passing();
        if passing.len() >= PASSING {
            passing.pop_front();
        }
        if !passing.contains(&report) {
            passing.push_back(report);
        }
        drop(passing);
        self.to_report.notify_one();
    }

    fn is_known(&self, task: TaskId) -> bool {
        self.journal.knows(task)
    }

    fn way(&self) -> Option<(NodeId, Target)> {
        let way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        way.clone().map(|target| (self.node, target))
    }

    fn passing(&self) -> MutexGuard<'_, VecDeque<TaskReport>> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn addressed(envelope: &Envelope) -> Option<Addressed> {
    serde_json::from_slice(&envelope.unverified()?).ok()
}
