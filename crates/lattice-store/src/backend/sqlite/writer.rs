//! The one writer: takes what waits, commits it in one transaction, answers each call.

use std::collections::HashMap;

use lattice_core::change::{Change, Outcome};
use lattice_core::explain::Explain;
use lattice_core::ids::{EventSeq, OpId};
use rusqlite::{Connection, ErrorCode, Transaction as SqlTransaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::open::DirectoryLock;
use super::{Work, lookup};
use crate::apply::{Chain, Put, Transaction, count_row, judge, write};
use crate::commit::{Head, HeldEpoch, Prepared, RowKey, UniqueKey};
use crate::error::StoreError;
use crate::last::Advance;
use crate::sql::Value;
use crate::table::{Table, Writes};

/// Commits of one group, unless a single call brings more: about 10 ms of work, so that nobody waits longer for
/// those before them.
pub(super) const GROUP_MAX: usize = 1_024;

type Reply = oneshot::Sender<Result<Vec<Outcome>, StoreError>>;

/// The connection that writes, and what goes on from commit to commit.
pub(crate) struct Writer {
    connection: Connection,
    chain: Chain,
    statements: Statements,
    last: Advance,
    /// Held as long as the connection is.
    _lock: Option<DirectoryLock>,
}

impl Writer {
    pub(super) fn new(connection: Connection, lock: Option<DirectoryLock>, last: Advance) -> Result<Self, StoreError> {
        let chain = stored_chain(&connection)?;
        last.to(EventSeq(chain.event_seq));
        Ok(Self { connection, chain, statements: Statements::default(), last, _lock: lock })
    }

    /// The connection, for reads and single statements.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Works until the store is dropped.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Work>) {
        while let Some(first) = queue.blocking_recv() {
            let mut next = Some(first);
            while let Some(work) = next.take() {
                match work {
                    Work::Read(read) => read(&self.connection),
                    Work::Run(run) => run(&mut self),
                    Work::Commit(prepared, reply) => next = self.group(prepared, reply, &mut queue),
                }
            }
        }
    }

    /// Commits a call together with those that wait behind it. Gives back what it took and is not a commit.
    fn group(&mut self, prepared: Vec<Prepared>, reply: Reply, queue: &mut mpsc::Receiver<Work>) -> Option<Work> {
        let mut size = prepared.len();
        let mut calls = vec![prepared];
        let mut replies = vec![reply];
        let mut rest = None;
        while size < GROUP_MAX {
            match queue.try_recv() {
                Ok(Work::Commit(prepared, reply)) => {
                    size += prepared.len();
                    calls.push(prepared);
                    replies.push(reply);
                }
                // The group has not begun: who reads now would otherwise wait for its end.
                Ok(Work::Read(read)) => read(&self.connection),
                Ok(other @ Work::Run(_)) => {
                    rest = Some(other);
                    break;
                }
                Err(mpsc::error::TryRecvError::Empty | mpsc::error::TryRecvError::Disconnected) => break,
            }
        }
        let calls: Vec<&[Prepared]> = calls.iter().map(Vec::as_slice).collect();
        match self.commit(&calls) {
            Ok(outcomes) => {
                for (reply, outcomes) in replies.into_iter().zip(outcomes) {
                    // A caller that went away does not need its answer.
                    drop(reply.send(Ok(outcomes)));
                }
            }
            Err(error) => {
                tracing::error!(%error, "commit failed");
                for reply in replies {
                    drop(reply.send(Err(error.clone())));
                }
            }
        }
        rest
    }

    /// Commits the calls in one transaction; one list of outcomes for each call.
    ///
    /// # Errors
    /// Nothing of any call is durable; with [`StoreError::Unknown`] it may be.
    pub(super) fn commit(&mut self, calls: &[&[Prepared]]) -> Result<Vec<Vec<Outcome>>, StoreError> {
        let before = self.chain.clone();
        let mut outcomes = self.transaction(calls, Alone::Trusted);
        if let Err(error) = &outcomes
            && breaks_key(error)
        {
            self.chain = before.clone();
            outcomes = self.transaction(calls, Alone::Saved);
        }
        match &outcomes {
            Ok(_) => {
                let seq = EventSeq(self.chain.event_seq);
                self.last.to(seq);
            }
            Err(StoreError::Unknown { .. }) => self.chain = stored_chain(&self.connection).unwrap_or(before),
            Err(_) => self.chain = before,
        }
        outcomes
    }

    fn transaction(&mut self, calls: &[&[Prepared]], alone: Alone) -> Result<Vec<Vec<Outcome>>, StoreError> {
        let sql = SqlTransaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let mut tx = Open { connection: &sql, statements: &mut self.statements };
        let mut outcomes = Vec::with_capacity(calls.len());
        let mut applied = false;
        for call in calls {
            let mut answers = Vec::with_capacity(call.len());
            for prepared in *call {
                let outcome = match alone {
                    Alone::Trusted => tx.apply(&mut self.chain, prepared)?,
                    Alone::Saved => tx.apply_saved(&mut self.chain, prepared)?,
                };
                applied |= matches!(outcome, Outcome::Applied { .. });
                answers.push(outcome);
            }
            outcomes.push(answers);
        }
        if !applied {
            sql.rollback()?;
            return Ok(outcomes);
        }
        tx.finish(&mut self.chain)?;
        sql.commit().map_err(|error| StoreError::Unknown { why: error.to_string() })?;
        Ok(outcomes)
    }
}

/// What the last commit left, as it stands in the database.
fn stored_chain(connection: &Connection) -> Result<Chain, StoreError> {
    const HEAD: &str = "SELECT event_seq, audit_seq, audit_hash FROM head";
    let chain = connection.query_row(HEAD, [], |row| {
        let (events, audits): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (event_seq, audit_seq) = (events.unsigned_abs(), audits.unsigned_abs());
        Ok(Chain { event_seq, audit_seq, audit_hash: row.get(2)?, ..Chain::empty() })
    })?;
    Ok(chain)
}

/// How the commits of a transaction are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alone {
    /// By their guards: each is judged before it writes anything. A savepoint for each would copy every page that it
    /// touches, for a case that does not happen.
    Trusted,
    /// By savepoints: one of them breaks a key that the guards do not know.
    Saved,
}

fn breaks_key(error: &StoreError) -> bool {
    match error {
        StoreError::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation),
        StoreError::Open { .. }
        | StoreError::DataDirectoryBusy { .. }
        | StoreError::SchemaNewer { .. }
        | StoreError::InvalidCommit { .. }
        | StoreError::Unknown { .. }
        | StoreError::Postgres { .. }
        | StoreError::Corrupt { .. }
        | StoreError::BadCursor { .. }
        | StoreError::Closed
        | StoreError::TargetExists { .. }
        | StoreError::BadCopy { .. }
        | StoreError::Unsupported { .. } => false,
    }
}

/// An open transaction.
struct Open<'c> {
    connection: &'c Connection,
    statements: &'c mut Statements,
}

impl Open<'_> {
    /// Applies one commit. What the guards refuse was not begun, so nothing must be undone.
    fn apply(&mut self, chain: &mut Chain, prepared: &Prepared) -> Result<Outcome, StoreError> {
        match judge(self, prepared)? {
            Ok(accepted) => write(self, chain, prepared, &accepted).map(|seq| Outcome::Applied { seq }),
            Err(outcome) => Ok(outcome),
        }
    }

    /// Applies one commit so that it falls alone even by a key that the guards do not know.
    fn apply_saved(&mut self, chain: &mut Chain, prepared: &Prepared) -> Result<Outcome, StoreError> {
        let before = chain.clone();
        self.execute("SAVEPOINT one")?;
        let outcome = match self.apply(chain, prepared) {
            Err(error) if breaks_key(&error) => {
                *chain = before;
                self.execute("ROLLBACK TO one")?;
                Outcome::Conflict { resource: "unique key".to_owned(), have: error.because().join(", ") }
            }
            other => other?,
        };
        self.execute("RELEASE one")?;
        Ok(outcome)
    }

    /// Writes what was collected over the whole transaction.
    fn finish(&mut self, chain: &mut Chain) -> Result<(), StoreError> {
        const COUNT: &str = "INSERT INTO node_counts (site, status, availability, n) VALUES (?1, ?2, ?3, ?4) \
            ON CONFLICT (site, status, availability) DO UPDATE SET n = n + excluded.n";
        const HEAD: &str = "UPDATE head SET event_seq = ?1, audit_seq = ?2, audit_hash = ?3";
        for (key, by) in chain.counts.drain().filter(|(_, by)| *by != 0) {
            let (site, status, availability, by) = count_row(key, by);
            let row = [Value::Id(site), Value::text(status), Value::text(availability), Value::Int(by)];
            self.connection.prepare_cached(COUNT)?.execute(rusqlite::params_from_iter(row))?;
        }
        let head = [Value::count(chain.event_seq), Value::count(chain.audit_seq), Value::text(&chain.audit_hash)];
        self.connection.prepare_cached(HEAD)?.execute(rusqlite::params_from_iter(head))?;
        Ok(())
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

impl Transaction for Open<'_> {
    fn op(&mut self, op: OpId) -> Result<Option<EventSeq>, StoreError> {
        lookup::op(self.connection, op)
    }
    fn row(&mut self, key: &RowKey) -> Result<Option<Head>, StoreError> {
        lookup::row(self.connection, key)
    }
    fn holder(&mut self, key: &UniqueKey) -> Result<Option<String>, StoreError> {
        lookup::holder(self.connection, key)
    }
    fn lease(&mut self, name: &str) -> Result<HeldEpoch, StoreError> {
        lookup::lease(self.connection, name)
    }
    fn put(&mut self, table: &'static Table, row: Vec<Value<'_>>, how: Put) -> Result<(), StoreError> {
        let statement = self.statements.of(table, how);
        let mut prepared = self.connection.prepare_cached(&statement.sql)?;
        for (index, column) in (1..).zip(&statement.columns) {
            prepared.raw_bind_parameter(index, &row[*column])?;
        }
        let changed = prepared.raw_execute()?;
        assert_eq!(changed, 1, "{}: a row that was just read is there, and only once", table.name);
        Ok(())
    }
    fn remove(&mut self, table: &'static Table, key: Value<'_>) -> Result<(), StoreError> {
        let sql = format!("DELETE FROM {} WHERE {} = ?1", table.name, table.columns[0].name);
        self.connection.prepare_cached(&sql)?.execute([key])?;
        Ok(())
    }
    fn written(&mut self, _change: &Change, _before: Option<&Head>) {}
}

/// The texts of the writing statements, made once for each table.
#[derive(Default)]
struct Statements(HashMap<(&'static str, u8), Statement>);

struct Statement {
    sql: String,
    /// Which columns of a row its parameters are.
    columns: Vec<usize>,
}

impl Statements {
    fn of(&mut self, table: &'static Table, how: Put) -> &Statement {
        self.0.entry((table.name, how as u8)).or_insert_with(|| match (how, table.writes) {
            (Put::Insert, Writes::Append | Writes::Replace) => insert(table),
            (Put::Update, _) => update(table, |column| !table.columns[column].stable),
            (Put::UpdateAll, _) => update(table, |_| true),
        })
    }
}

fn insert(table: &Table) -> Statement {
    Statement { sql: table.insert_statement(), columns: (0..table.columns.len()).collect() }
}

/// Sets only the columns asked for: SQLite rewrites the entries of every index that has one of them.
fn update(table: &Table, wanted: impl Fn(usize) -> bool) -> Statement {
    let mut columns: Vec<usize> = (0..table.key).collect();
    let condition: Vec<_> =
        columns.iter().map(|column| format!("{} = ?{}", table.columns[*column].name, column + 1)).collect();
    let mut set = Vec::new();
    for column in (table.key..table.columns.len()).filter(|column| wanted(*column)) {
        columns.push(column);
        set.push(format!("{} = ?{}", table.columns[column].name, columns.len()));
    }
    let (set, condition) = (set.join(", "), condition.join(" AND "));
    Statement { sql: format!("UPDATE {} SET {set} WHERE {condition}", table.name), columns }
}
