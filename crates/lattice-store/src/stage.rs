//! What happened in the stages of jobs, and how long stages usually take.

use std::time::Duration;

use lattice_core::ids::{BatchId, Generation, JobId};
use lattice_core::job::{StageEvent, StageName};
use lattice_core::time::Timestamp;

use crate::error::StoreError;
use crate::page::{Cursor, PAGE_MAX, Page, PageRequest};
use crate::sql::{Conditions, Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each stage event; those of one change of a job are told apart by `ordinal`.
pub(crate) const STAGE_EVENTS: Table = Table {
    name: "stage_events",
    key: 3,
    writes: Writes::Append,
    columns: &[
        col("job", Kind::Id),
        col("generation", Kind::Int),
        col("ordinal", Kind::Int),
        col("at", Kind::Int),
        col("stage", Kind::Text),
        col("attempt", Kind::Int),
        col("round", Kind::Int),
        col("status", Kind::Text),
        col("message", Kind::Text),
    ],
};

/// Newest completed runs of a stage that its usual times are drawn from: enough for a 95th percentile, few enough
/// to be read while somebody waits.
const SAMPLE: i64 = 500;

pub(crate) fn row(
    job: JobId,
    generation: Generation,
    ordinal: usize,
    at: Timestamp,
    event: &StageEvent,
) -> Vec<Value<'_>> {
    vec![
        Value::Id(job.uuid()),
        Value::generation(generation),
        Value::count(ordinal as u64),
        Value::time(at),
        Value::name(event.stage),
        Value::Int(i64::from(event.attempt)),
        Value::Int(i64::from(event.round)),
        Value::name(event.status),
        Value::text(&event.message),
    ]
}

/// A stage event with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageRecord {
    /// When.
    pub at: Timestamp,
    /// Version of the job that it came with.
    pub generation: Generation,
    /// What.
    pub event: StageEvent,
}

fn read(r: &mut Reader<'_>) -> Result<StageRecord, StoreError> {
    Ok(StageRecord {
        at: r.time()?,
        generation: r.generation()?,
        event: StageEvent {
            stage: r.name()?,
            attempt: r.small()?,
            round: r.small()?,
            status: r.name()?,
            message: r.text()?,
        },
    })
}

/// A stage event of one machine of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRecord {
    /// Whose.
    pub job: JobId,
    /// Its hostname.
    pub hostname: String,
    /// What, and when.
    pub record: StageRecord,
    ordinal: u64,
}

fn read_of_batch(r: &mut Reader<'_>) -> Result<BatchRecord, StoreError> {
    let (job, hostname, ordinal) = (JobId::new(r.id()?), r.text()?, r.count()?);
    Ok(BatchRecord { job, hostname, ordinal, record: read(r)? })
}

/// How long a stage usually takes, from its start to its success, waiting included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageTimes {
    /// Which stage.
    pub stage: StageName,
    /// From how many completed runs.
    pub runs: usize,
    /// Half of them were done within this.
    pub p50: Duration,
    /// 19 of 20 were done within this.
    pub p95: Duration,
}

impl Store {
    /// The last stage events of a job, the oldest first; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn stage_events(&self, job: JobId) -> Result<Vec<StageRecord>, StoreError> {
        const EVENTS: &str = "SELECT at, generation, stage, attempt, round, status, message FROM stage_events \
            WHERE job = ?1 ORDER BY generation DESC, ordinal DESC LIMIT ?2";
        let params = vec![Value::Id(job.uuid()), Value::Int(PAGE_MAX as i64)];
        let mut events = self.fetch(Query::new(EVENTS, params), read).await?;
        events.reverse();
        Ok(events)
    }

    /// One page of what happened in the stages of a batch's machines, the newest first; of one machine, if it is named.
    ///
    /// # Errors
    /// A cursor of another list; the database fails.
    pub async fn batch_log(
        &self,
        batch: BatchId,
        hostname: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<BatchRecord>, StoreError> {
        const LINES: &str = "SELECT e.job, jobs.hostname, e.ordinal, e.at, e.generation, e.stage, e.attempt, e.round, \
            e.status, e.message FROM jobs JOIN stage_events e ON e.job = jobs.id";
        let mut conditions = Conditions::default();
        conditions.add("jobs.batch = ?", [Value::Id(batch.uuid())]);
        if let Some(hostname) = hostname {
            conditions.add("jobs.hostname = ?", [Value::owned(hostname.to_owned())]);
        }
        if let Some(cursor) = &page.cursor {
            let (at, job, generation, ordinal) = place(cursor)?;
            let values = [Value::Int(at), Value::Id(job), Value::Int(generation), Value::Int(ordinal)];
            conditions.add("(e.at, e.job, e.generation, e.ordinal) < (?, ?, ?, ?)", values);
        }
        let order = "ORDER BY e.at DESC, e.job DESC, e.generation DESC, e.ordinal DESC";
        let rows = self.fetch(conditions.query(LINES, order, page.probe()), read_of_batch).await?;
        Ok(page.page(rows, |last| {
            let at = last.record.at.as_millis();
            Cursor::new(&[&at, &last.job, &last.record.generation.0, &last.ordinal])
        }))
    }

    /// Which of these stages had nothing to do on some machine.
    ///
    /// # Errors
    /// The database fails.
    pub async fn skipped_stages(&self, stages: &[StageName]) -> Result<Vec<StageName>, StoreError> {
        const SKIPPED: &str = "SELECT stage FROM stage_events WHERE stage = ?1 AND status = 'skipped' LIMIT 1";
        let mut skipped = Vec::new();
        for stage in stages {
            skipped
                .extend(self.fetch(Query::new(SKIPPED, vec![Value::name(*stage)]), |r| r.name::<StageName>()).await?);
        }
        Ok(skipped)
    }

    /// How long these stages usually take, for machines of one SKU or of all; from the newest completed runs.
    /// A stage that never completed is left out.
    ///
    /// # Errors
    /// The database fails.
    pub async fn stage_times(&self, stages: &[StageName], sku: Option<&str>) -> Result<Vec<StageTimes>, StoreError> {
        const RUNS: &str = "SELECT done.at - (SELECT MIN(begun.at) FROM stage_events begun WHERE begun.job = done.job \
            AND begun.stage = done.stage AND begun.round = done.round AND begun.status = 'started') \
            FROM stage_events done WHERE done.stage = ?1 AND done.status = 'succeeded' \
            ORDER BY done.at DESC LIMIT ?2";
        const RUNS_OF_SKU: &str = "SELECT done.at - (SELECT MIN(begun.at) FROM stage_events begun \
            WHERE begun.job = done.job AND begun.stage = done.stage AND begun.round = done.round \
            AND begun.status = 'started') \
            FROM stage_events done JOIN jobs ON jobs.id = done.job JOIN nodes ON nodes.id = jobs.node \
            WHERE done.stage = ?1 AND done.status = 'succeeded' AND nodes.sku = ?3 ORDER BY done.at DESC LIMIT ?2";
        let mut all = Vec::new();
        for stage in stages {
            let mut params = vec![Value::name(*stage), Value::Int(SAMPLE)];
            params.extend(sku.map(|sku| Value::owned(sku.to_owned())));
            let sql = if sku.is_some() { RUNS_OF_SKU } else { RUNS };
            let millis = self.fetch(Query::new(sql, params), |r| r.opt_int()).await?;
            all.extend(times(*stage, millis.into_iter().flatten().collect()));
        }
        Ok(all)
    }
}

/// The place that a cursor of a batch's log names.
fn place(cursor: &Cursor) -> Result<(i64, uuid::Uuid, i64, i64), StoreError> {
    let mut rest = cursor.clone();
    let ordinal = rest.last()?;
    rest = Cursor::from_text(rest.first()?);
    let generation = rest.last()?;
    rest = Cursor::from_text(rest.first()?);
    let job = rest.last()?;
    let at = Cursor::from_text(rest.first()?).last()?;
    Ok((at, job, generation, ordinal))
}

fn times(stage: StageName, mut millis: Vec<i64>) -> Option<StageTimes> {
    millis.sort_unstable();
    let at = |share: usize| {
        let rank = (millis.len() * share).div_ceil(100).max(1);
        millis.get(rank - 1).map(|millis| Duration::from_millis(millis.unsigned_abs()))
    };
    Some(StageTimes { stage, runs: millis.len(), p50: at(50)?, p95: at(95)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_runs_that_happened() {
        let stage = StageName::WaitForAgentEnrollment;
        assert_eq!(times(stage, vec![]), None);
        for (runs, p50, p95) in [(1, 1, 1), (2, 1, 2), (20, 10, 19), (100, 50, 95)] {
            let times = times(stage, (1..=runs).rev().collect()).expect("there are runs");
            let have = (times.runs as i64, times.p50.as_millis(), times.p95.as_millis());
            assert_eq!(have, (runs, p50, p95));
        }
    }
}
