//! The one committer of a server: takes what waits, commits it in one transaction, answers each call.

use std::sync::Arc;

use deadpool_postgres::{Object, Pool};
use lattice_core::change::Outcome;
use lattice_core::ids::EventSeq;
use tokio::sync::mpsc;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::listener::CHANNEL;
use super::{ATTEMPTS, Work, connection, is_lost};
use crate::apply::{Chain, judge, write};
use crate::backend::postgres::batch::{self, Batch};
use crate::backend::postgres::preload::Preloaded;
use crate::commit::{Needs, Prepared};
use crate::error::StoreError;
use crate::last::Advance;

/// Commits of one transaction, unless a single call brings more.
const GROUP_MAX: usize = 1_024;
/// Commits that are judged while the rows of those before them are being written.
const AT_ONCE: usize = 1_000;

/// Works until the store is dropped.
pub(super) async fn run(pool: Pool, mut queue: mpsc::Receiver<Work>, last: Arc<Advance>) {
    while let Some(first) = queue.recv().await {
        let mut size = first.prepared.len();
        let mut calls = vec![first];
        while size < GROUP_MAX {
            let Ok(work) = queue.try_recv() else { break };
            size += work.prepared.len();
            calls.push(work);
        }
        let all: Vec<&Prepared> = calls.iter().flat_map(|call| &call.prepared).collect();
        match commit(&pool, &all, &last).await {
            Ok(outcomes) => {
                let mut outcomes = outcomes.into_iter();
                for call in calls {
                    let own = outcomes.by_ref().take(call.prepared.len()).collect();
                    // A caller that went away does not need its answer.
                    drop(call.reply.send(Ok(own)));
                }
            }
            Err(error) => {
                tracing::error!(%error, "commit failed");
                for call in calls {
                    drop(call.reply.send(Err(error.clone())));
                }
            }
        }
    }
}

/// Why a transaction did not end well.
pub(super) enum Failure {
    /// Beginning anew may help.
    Again(StoreError),
    /// A key that the guards do not know.
    Constraint(String),
    /// Nothing more to be done here.
    Final(StoreError),
}

impl Failure {
    /// Of a statement before COMMIT: nothing is durable.
    fn of(error: &Error) -> Self {
        match error.code() {
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => {
                Self::Again(StoreError::postgres(error))
            }
            Some(_) | None if is_lost(error) => Self::Again(StoreError::postgres(error)),
            Some(code) if code.code().starts_with("23") => Self::Constraint(StoreError::postgres(error).to_string()),
            Some(_) | None => Self::Final(StoreError::postgres(error)),
        }
    }

    /// Of COMMIT itself: without the server's word that it refused, it may be durable.
    fn of_commit(error: &Error) -> Self {
        match error.code() {
            // A server that is being stopped may have committed before it said so.
            Some(_) if !is_lost(error) => Self::of(error),
            Some(_) | None => Self::Final(StoreError::Unknown { why: StoreError::postgres(error).to_string() }),
        }
    }
}

async fn commit(pool: &Pool, all: &[&Prepared], last: &Advance) -> Result<Vec<Outcome>, StoreError> {
    match attempts(pool, all, last).await {
        Ok(outcomes) => Ok(outcomes),
        Err(Failure::Again(error) | Failure::Final(error)) => Err(error),
        Err(Failure::Constraint(have)) if all.len() == 1 => {
            Ok(vec![Outcome::Conflict { resource: "unique key".to_owned(), have }])
        }
        Err(Failure::Constraint(_)) => {
            // One of them breaks a key: each alone, so that only that one falls.
            let mut outcomes = Vec::with_capacity(all.len());
            for one in all {
                outcomes.extend(Box::pin(commit(pool, std::slice::from_ref(one), last)).await?);
            }
            Ok(outcomes)
        }
    }
}

async fn attempts(pool: &Pool, all: &[&Prepared], last: &Advance) -> Result<Vec<Outcome>, Failure> {
    let mut attempt = 1;
    loop {
        let client = connection(pool).await.map_err(Failure::Final)?;
        let result = transaction(&client, all).await;
        if result.is_err() {
            // The open transaction ends with its connection.
            drop(Object::take(client));
        }
        match result {
            Err(Failure::Again(_)) if attempt < ATTEMPTS => attempt += 1,
            Ok((outcomes, seq)) => {
                last.to(seq);
                return Ok(outcomes);
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Read committed suffices: the first statement locks the head row, which every writer takes first, so what is read
/// after it stands until the end. The places in the outbox are dense in commit order for the same reason.
async fn transaction(client: &Object, all: &[&Prepared]) -> Result<(Vec<Outcome>, EventSeq), Failure> {
    let mut needs = Needs::default();
    for prepared in all {
        prepared.needs(&mut needs);
    }
    let mut preloaded = Preloaded::read(client, needs).await?;
    let mut chain = preloaded.chain.clone();
    let mut outcomes = Vec::with_capacity(all.len());
    let (mut ready, mut changes) = (Batch::default(), false);
    for some in all.chunks(AT_ONCE) {
        // The server works on the rows of the last ones meanwhile.
        let judged = async { apply(&mut preloaded, &mut chain, some, &mut outcomes) };
        let (written, judged) = tokio::join!(ready.write(client), judged);
        written?;
        judged?;
        ready = std::mem::take(&mut preloaded.batch);
        changes |= !ready.is_empty();
    }
    if changes {
        ready.write(client).await?;
        batch::write_head(client, &chain, CHANNEL).await?;
        client.batch_execute("COMMIT").await.map_err(|error| Failure::of_commit(&error))?;
    } else {
        client.batch_execute("ROLLBACK").await?;
    }
    Ok((outcomes, EventSeq(chain.event_seq)))
}

/// Judges commits one after the other, and collects the rows of those that may be written.
fn apply(
    preloaded: &mut Preloaded,
    chain: &mut Chain,
    some: &[&Prepared],
    outcomes: &mut Vec<Outcome>,
) -> Result<(), StoreError> {
    for prepared in some {
        outcomes.push(match judge(preloaded, prepared)? {
            Err(outcome) => outcome,
            Ok(accepted) => {
                let seq = write(preloaded, chain, prepared, &accepted)?;
                preloaded.committed(prepared.commit.op, seq);
                Outcome::Applied { seq }
            }
        });
    }
    Ok(())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of(&error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}
