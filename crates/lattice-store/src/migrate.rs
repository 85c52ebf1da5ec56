//! Schema versions: forward only, embedded, a newer schema than ours refused.

use crate::error::StoreError;

/// One step of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    /// Version after it; they count from 1 without gaps.
    pub(crate) version: u32,
    /// Its statements.
    pub(crate) sql: &'static str,
}

/// Steps of the SQLite schema. A released step is never edited; a change is a new step.
pub(crate) const SQLITE: &[Migration] = &[
    Migration { version: 1, sql: include_str!("../migrations/sqlite/0001_spine.sql") },
    Migration { version: 2, sql: include_str!("../migrations/sqlite/0002_site_details.sql") },
    Migration { version: 3, sql: include_str!("../migrations/sqlite/0003_batches.sql") },
    Migration { version: 4, sql: include_str!("../migrations/sqlite/0004_site_credentials.sql") },
    Migration { version: 5, sql: include_str!("../migrations/sqlite/0005_tasks.sql") },
    Migration { version: 6, sql: include_str!("../migrations/sqlite/0006_webhooks.sql") },
    Migration { version: 7, sql: include_str!("../migrations/sqlite/0007_allocations.sql") },
    Migration { version: 8, sql: include_str!("../migrations/sqlite/0008_bmcs.sql") },
    Migration { version: 9, sql: include_str!("../migrations/sqlite/0009_labels.sql") },
    Migration { version: 10, sql: include_str!("../migrations/sqlite/0010_wipes.sql") },
    Migration { version: 11, sql: include_str!("../migrations/sqlite/0011_silences.sql") },
    Migration { version: 12, sql: include_str!("../migrations/sqlite/0012_automatic_jobs.sql") },
    Migration { version: 13, sql: include_str!("../migrations/sqlite/0013_components.sql") },
    Migration { version: 14, sql: include_str!("../migrations/sqlite/0014_lease_addresses.sql") },
];

/// Steps of the PostgreSQL schema; the same versions mean the same tables.
pub(crate) const POSTGRES: &[Migration] = &[
    Migration { version: 1, sql: include_str!("../migrations/postgres/0001_spine.sql") },
    Migration { version: 2, sql: include_str!("../migrations/postgres/0002_site_details.sql") },
    Migration { version: 3, sql: include_str!("../migrations/postgres/0003_batches.sql") },
    Migration { version: 4, sql: include_str!("../migrations/postgres/0004_site_credentials.sql") },
    Migration { version: 5, sql: include_str!("../migrations/postgres/0005_tasks.sql") },
    Migration { version: 6, sql: include_str!("../migrations/postgres/0006_webhooks.sql") },
    Migration { version: 7, sql: include_str!("../migrations/postgres/0007_allocations.sql") },
    Migration { version: 8, sql: include_str!("../migrations/postgres/0008_bmcs.sql") },
    Migration { version: 9, sql: include_str!("../migrations/postgres/0009_labels.sql") },
    Migration { version: 10, sql: include_str!("../migrations/postgres/0010_wipes.sql") },
    Migration { version: 11, sql: include_str!("../migrations/postgres/0011_silences.sql") },
    Migration { version: 12, sql: include_str!("../migrations/postgres/0012_automatic_jobs.sql") },
    Migration { version: 13, sql: include_str!("../migrations/postgres/0013_components.sql") },
    Migration { version: 14, sql: include_str!("../migrations/postgres/0014_lease_addresses.sql") },
];

/// Steps that a schema at `have` still needs.
///
/// # Errors
/// The schema is newer than all steps known here.
pub(crate) fn pending(steps: &'static [Migration], have: u32) -> Result<&'static [Migration], StoreError> {
    let known = steps.last().map_or(0, |step| step.version);
    if have > known {
        return Err(StoreError::SchemaNewer { have, known });
    }
    Ok(&steps[have as usize..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_count_from_one_without_gaps() {
        for (index, (sqlite, postgres)) in SQLITE.iter().zip(POSTGRES).enumerate() {
            assert_eq!((sqlite.version as usize, postgres.version), (index + 1, sqlite.version));
        }
        assert_eq!(SQLITE.len(), POSTGRES.len());
    }

    #[test]
    fn a_schema_needs_the_steps_after_it_and_a_newer_one_is_refused() {
        const STEPS: &[Migration] = &[Migration { version: 1, sql: "a" }, Migration { version: 2, sql: "b" }];
        let left = |have| pending(STEPS, have).map(|steps| steps.iter().map(|step| step.sql).collect::<String>());
        assert_eq!(left(0).unwrap(), "ab");
        assert_eq!(left(1).unwrap(), "b");
        assert_eq!(left(2).unwrap(), "");
        assert!(matches!(left(3), Err(StoreError::SchemaNewer { have: 3, known: 2 })));
    }
}
