//! What became of each task, written before and after each step: received → begun → done → reported.
//!
//! A task that was begun is never begun again without looking at the host first. One that was refused stays refused: the
//! server was told so, and may have had the work done elsewhere. An entry is kept until its task is expired by the clock
//! of this host and by what the server's own said since, so that nothing is done twice, whoever sends it again and
//! wherever the clock of this host jumps.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lattice_core::agent::task::{Statement, TaskErrorCode, TaskReport};
use lattice_core::ids::TaskId;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::storage::{Item, Storage};

/// Tasks that may wait at once. One runs after the other; a server that sends more is wrong.
const OPEN: usize = 64;
/// Entries kept at once, those that are over included; the oldest that is over goes first.
const KEPT: usize = 1_024;
/// How long a refusal is kept at least: what was refused need not say truly when it expires. Longer than any task lives.
const REFUSED: Duration = Duration::from_hours(24);

/// One task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Which.
    pub task: TaskId,
    /// Its nonce; none: it was refused.
    pub nonce: Option<String>,
    /// When it was issued, by the server's clock; none: it was refused.
    pub issued_at: Option<Timestamp>,
    /// From when on nobody accepts it again.
    pub expires_at: Timestamp,
    /// How far it is.
    pub stage: Stage,
}

/// How far a task is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// Accepted, not begun.
    Received {
        /// What is to be done.
        statement: Box<Statement>,
    },
    /// Begun: its effect may be there.
    Begun {
        /// What is to be done.
        statement: Box<Statement>,
        /// Boot in which it was begun.
        boot_id: String,
    },
    /// Done or not, and to be reported.
    Done {
        /// What is to be said.
        report: Box<TaskReport>,
    },
    /// The server knows.
    Reported {
        /// What was said: a server that hands the task over again is told the same.
        report: Box<TaskReport>,
    },
}

/// What to do about a task that was handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handed {
    /// It is new, and written down.
    Accepted,
    /// It is here already, and under way.
    Known,
    /// It is over: say this again.
    Over(Box<TaskReport>),
    /// It is refused.
    Refused(TaskErrorCode, String),
}

/// All tasks.
pub struct Journal {
    storage: Storage,
    entries: Mutex<Vec<Entry>>,
    /// Held while it is written, so that an older one never replaces a newer one.
    writing: tokio::sync::Mutex<()>,
}

impl Journal {
    /// Reads the journal; a torn one is set aside.
    ///
    /// Nothing is done twice even then: the server hands over only what no agent reported about, and the workloads know
    /// what runs.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn load(storage: &Storage) -> std::io::Result<Self> {
        let entries = match storage.read(Item::Tasks).await? {
            None => Vec::new(),
            Some(bytes) => match serde_json::from_slice(&bytes) {
                Ok(entries) => entries,
                Err(error) => {
                    warn!(%error, "journal of tasks is torn: set aside");
                    storage.set_aside(Item::Tasks).await?;
                    Vec::new()
                }
            },
        };
        Ok(Self { storage: storage.clone(), entries: Mutex::new(entries), writing: tokio::sync::Mutex::default() })
    }

    /// Writes down a task that was handed over, unless it is known.
    ///
    /// # Errors
    /// It cannot be written: it is not accepted then.
    pub async fn accept(&self, statement: &Statement, now: Timestamp) -> std::io::Result<Handed> {
        {
            let mut entries = self.entries();
            if let Some(known) = entries.iter().find(|entry| entry.task == statement.task) {
                return Ok(known.handed_again(statement));
            }
            if entries.iter().any(|entry| entry.nonce.as_ref() == Some(&statement.nonce)) {
                let why = "its nonce was used for another task".to_owned();
                return Ok(Handed::Refused(TaskErrorCode::Replayed, why));
            }
            if entries.iter().filter(|entry| entry.is_open()).count() >= OPEN {
                let why = format!("{OPEN} tasks are open on this host");
                return Ok(Handed::Refused(TaskErrorCode::Busy, why));
            }
            let entry = Entry {
                task: statement.task,
                nonce: Some(statement.nonce.clone()),
                issued_at: Some(statement.issued_at),
                expires_at: statement.expires_at,
                stage: Stage::Received { statement: Box::new(statement.clone()) },
            };
            if !add(&mut entries, entry, now) {
                let why = format!("{KEPT} tasks of this host are not reported yet");
                return Ok(Handed::Refused(TaskErrorCode::Busy, why));
            }
        }
        self.save_new(statement.task).await?;
        Ok(Handed::Accepted)
    }

    /// Writes down that a task which is not known is refused, with what is said of it; durable on return.
    ///
    /// False: there is no room left for what nobody has been told yet. It must not be said then.
    ///
    /// # Errors
    /// It cannot be written: it must not be said then.
    pub async fn refuse(&self, report: Box<TaskReport>, now: Timestamp) -> std::io::Result<bool> {
        let task = report.task;
        let stage = Stage::Done { report };
        let entry = Entry { task, nonce: None, issued_at: None, expires_at: now + REFUSED, stage };
        if !add(&mut self.entries(), entry, now) {
            return Ok(false);
        }
        self.save_new(task).await?;
        Ok(true)
    }

    /// Entries as they are.
    pub fn entries_now(&self) -> Vec<Entry> {
        self.entries().clone()
    }

    /// Whether it has an entry.
    pub fn knows(&self, task: TaskId) -> bool {
        self.entries().iter().any(|entry| entry.task == task)
    }

    /// The oldest task that is accepted and not begun.
    pub fn next(&self) -> Option<Statement> {
        self.entries().iter().find_map(|entry| match &entry.stage {
            Stage::Received { statement } => Some((**statement).clone()),
            Stage::Begun { .. } | Stage::Done { .. } | Stage::Reported { .. } => None,
        })
    }

    /// What is to be reported, the oldest first.
    pub fn unreported(&self) -> Vec<TaskReport> {
        let entries = self.entries();
        let report = |entry: &Entry| match &entry.stage {
            Stage::Done { report } => Some((**report).clone()),
            Stage::Received { .. } | Stage::Begun { .. } | Stage::Reported { .. } => None,
        };
        entries.iter().filter_map(report).collect()
    }

    /// Moves a task on; durable on return.
    ///
    /// # Errors
    /// It cannot be written: the effect must not be begun then.
    pub async fn put(&self, task: TaskId, stage: Stage) -> std::io::Result<()> {
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.task == task) {
            entry.stage = stage;
        }
        self.save().await
    }

    /// Writes the journal with an entry that was just added; one that cannot be written is not there.
    async fn save_new(&self, task: TaskId) -> std::io::Result<()> {
        let saved = self.save().await;
        if saved.is_err() {
            self.entries().retain(|entry| entry.task != task);
        }
        saved
    }

    async fn save(&self) -> std::io::Result<()> {
        let _turn = self.writing.lock().await;
        let bytes = serde_json::to_vec(&*self.entries()).map_err(std::io::Error::other)?;
        self.storage.write(Item::Tasks, bytes).await
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        // No change of an entry can panic half way.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    const fn is_open(&self) -> bool {
        match self.stage {
            Stage::Received { .. } | Stage::Begun { .. } => true,
            Stage::Done { .. } | Stage::Reported { .. } => false,
        }
    }

    fn handed_again(&self, statement: &Statement) -> Handed {
        if self.nonce.as_ref().is_some_and(|nonce| *nonce != statement.nonce) {
            return Handed::Refused(TaskErrorCode::Replayed, "its id was used with another nonce".to_owned());
        }
        match &self.stage {
            Stage::Received { .. } | Stage::Begun { .. } => Handed::Known,
            Stage::Done { report } | Stage::Reported { report } => Handed::Over(report.clone()),
        }
    }
}

/// Adds an entry; false: there is no room for it.
fn add(entries: &mut Vec<Entry>, entry: Entry, now: Timestamp) -> bool {
    prune(entries, now);
    let has_room = entries.len() < KEPT;
    if has_room {
        entries.push(entry);
    }
    has_room
}

/// Forgets what nobody can hand over again, and the oldest of what is over when there is too much of it.
fn prune(entries: &mut Vec<Entry>, now: Timestamp) {
    let is_over = |entry: &Entry| matches!(entry.stage, Stage::Reported { .. });
    // What the server's clock said last: it moves on though that of this host may jump.
    let issued = entries.iter().filter_map(|entry| entry.issued_at).max();
    let is_past = |entry: &Entry| issued.is_some_and(|issued| issued.min(now) >= entry.expires_at);
    entries.retain(|entry| !is_over(entry) || !is_past(entry));
    while entries.len() >= KEPT {
        let Some(oldest) = entries.iter().position(is_over) else { return };
        entries.remove(oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lattice_core::agent::task::{HeartbeatCheck, Progress, TaskInput};
    use lattice_core::ids::{NodeId, uuid_v7};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_763_712_764_123);

    fn statement(number: u8) -> Statement {
        Statement {
            task: TaskId::new(uuid_v7(NOW, [number; 10])),
            node: NodeId::new(uuid_v7(NOW, [0; 10])),
            node_epoch: 1,
            issued_at: NOW,
            expires_at: NOW + Duration::from_secs(60),
            nonce: hex::encode([number; 16]),
            input: TaskInput::HeartbeatCheck(HeartbeatCheck {}),
        }
    }

    fn report(number: u8) -> Box<TaskReport> {
        let progress = Progress::failed(TaskErrorCode::EffectFailed, "no");
        Box::new(TaskReport { task: statement(number).task, at: NOW, progress })
    }

    #[tokio::test]
    async fn a_task_is_accepted_once_whatever_happened_to_it() {
        let storage = Storage::memory();
        let journal = Journal::load(&storage).await.unwrap();
        let one = statement(1);
        assert_eq!(journal.accept(&one, NOW).await.unwrap(), Handed::Accepted);
        assert_eq!(journal.accept(&one, NOW).await.unwrap(), Handed::Known);
        assert_eq!(journal.next(), Some(one.clone()));
        let begun = Stage::Begun { statement: Box::new(one.clone()), boot_id: "b".to_owned() };
        journal.put(one.task, begun).await.unwrap();
        // As after a crash.
        let journal = Journal::load(&storage).await.unwrap();
        assert_eq!(journal.next(), None, "it was begun");
        assert_eq!(journal.accept(&one, NOW).await.unwrap(), Handed::Known);
        let done = Stage::Done { report: report(1) };
        journal.put(one.task, done).await.unwrap();
        assert_eq!(journal.unreported().len(), 1);
        journal.put(one.task, Stage::Reported { report: report(1) }).await.unwrap();
        let journal = Journal::load(&storage).await.unwrap();
        assert_eq!(journal.accept(&one, NOW).await.unwrap(), Handed::Over(report(1)));
        assert!(journal.unreported().is_empty());
    }

    #[tokio::test]
    async fn a_nonce_and_an_id_are_used_once() {
        let journal = Journal::load(&Storage::memory()).await.unwrap();
        assert_eq!(journal.accept(&statement(1), NOW).await.unwrap(), Handed::Accepted);
        let borrowed = Statement { nonce: statement(1).nonce, ..statement(2) };
        let renamed = Statement { nonce: statement(2).nonce, ..statement(1) };
        for replayed in [borrowed, renamed] {
            let refused = journal.accept(&replayed, NOW).await.unwrap();
            assert!(matches!(refused, Handed::Refused(TaskErrorCode::Replayed, _)), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn what_is_over_is_forgotten_only_when_it_is_expired_by_both_clocks() {
        let at = |secs: u64| NOW + Duration::from_secs(secs);
        let issued_at =
            |number: u8, secs: u64| Statement { issued_at: at(secs), expires_at: at(secs + 60), ..statement(number) };
        let journal = Journal::load(&Storage::memory()).await.unwrap();
        let left = || journal.entries_now().iter().map(|entry| entry.task).collect::<Vec<_>>();
        journal.accept(&statement(1), NOW).await.unwrap();
        journal.put(statement(1).task, Stage::Reported { report: report(1) }).await.unwrap();
        // The host's clock jumps ahead; the server's has not come so far.
        journal.accept(&issued_at(2, 30), at(3_600)).await.unwrap();
        assert_eq!(left().len(), 2);
        assert_eq!(journal.accept(&statement(1), NOW).await.unwrap(), Handed::Over(report(1)));
        // The server's is past it; the host's is not.
        journal.accept(&issued_at(3, 90), at(59)).await.unwrap();
        assert_eq!(left().len(), 3);
        journal.accept(&issued_at(4, 90), at(60)).await.unwrap();
        assert_eq!(left(), [2, 3, 4].map(|number| statement(number).task));
    }

    #[tokio::test]
    async fn what_was_refused_stays_refused() {
        let storage = Storage::memory();
        let journal = Journal::load(&storage).await.unwrap();
        assert!(journal.refuse(report(1), NOW + Duration::from_secs(3_600)).await.unwrap());
        let journal = Journal::load(&storage).await.unwrap();
        assert_eq!(journal.unreported(), [*report(1)]);
        assert_eq!(journal.accept(&statement(1), NOW).await.unwrap(), Handed::Over(report(1)));
        assert_eq!(journal.next(), None);
    }

    #[tokio::test]
    async fn refusals_that_nobody_was_told_of_do_not_fill_the_memory() {
        let journal = Journal::load(&Storage::memory()).await.unwrap();
        let refused = |number: u16| {
            let mut random = [0; 10];
            random[..2].copy_from_slice(&number.to_be_bytes());
            Box::new(TaskReport { task: TaskId::new(uuid_v7(NOW, random)), ..*report(0) })
        };
        journal.entries().extend((0..KEPT as u16).map(|number| Entry {
            task: refused(number).task,
            nonce: None,
            issued_at: None,
            expires_at: NOW + REFUSED,
            stage: Stage::Done { report: refused(number) },
        }));
        assert!(!journal.refuse(refused(KEPT as u16), NOW).await.unwrap());
        journal.put(refused(0).task, Stage::Reported { report: refused(0) }).await.unwrap();
        assert!(journal.refuse(refused(KEPT as u16), NOW).await.unwrap(), "the oldest that is told makes room");
        assert_eq!(journal.entries_now().len(), KEPT);
    }

    #[tokio::test]
    async fn a_flood_is_refused_and_a_torn_journal_is_set_aside() {
        let storage = Storage::memory();
        let journal = Journal::load(&storage).await.unwrap();
        for number in 0..64 {
            assert_eq!(journal.accept(&statement(number), NOW).await.unwrap(), Handed::Accepted);
        }
        let refused = journal.accept(&statement(65), NOW).await.unwrap();
        assert!(matches!(refused, Handed::Refused(TaskErrorCode::Busy, _)));
        let whole = storage.read(Item::Tasks).await.unwrap().unwrap();
        for end in [0, 1, whole.len() / 2, whole.len() - 1] {
            storage.write(Item::Tasks, whole[..end].to_vec()).await.unwrap();
            assert!(Journal::load(&storage).await.unwrap().entries_now().is_empty());
            assert_eq!(storage.read(Item::Tasks).await.unwrap(), None, "cut at {end}");
        }
    }
}
