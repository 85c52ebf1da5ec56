//! Rows of a whole transaction, written with one statement for each table.

use std::collections::HashMap;

use deadpool_postgres::Object;
use futures_util::future::try_join_all;
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::apply::{Chain, count_row};
use crate::sql::Value;
use crate::table::{Kind, Table, Writes};

/// What a transaction writes, by table.
#[derive(Default)]
pub(super) struct Batch {
    /// Removed before anything is written: a row that is made anew after it stays.
    removed: Vec<(&'static Table, Value<'static>)>,
    tables: Vec<Rows>,
    places: HashMap<&'static str, usize>,
}

struct Rows {
    table: &'static Table,
    rows: Vec<Vec<Value<'static>>>,
    /// Where the row of a key stands: a set-based statement must not have one row twice.
    by_key: HashMap<Vec<Value<'static>>, usize>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.removed.is_empty()
    }

    /// Removes the rows whose key begins with a value, and what the same transaction wrote of it.
    pub(super) fn remove(&mut self, table: &'static Table, key: Value<'_>) {
        let key = key.into_owned();
        if let Some(place) = self.places.get(table.name) {
            let rows = &mut self.tables[*place];
            rows.rows.retain(|row| row[0] != key);
            rows.by_key = (0..).zip(&rows.rows).map(|(place, row)| (row[..table.key].to_vec(), place)).collect();
        }
        self.removed.push((table, key));
    }

    /// Adds a row; of two rows with one key the later stands.
    pub(super) fn put(&mut self, table: &'static Table, row: Vec<Value<'_>>) {
        let row: Vec<_> = row.into_iter().map(Value::into_owned).collect();
        let place = *self.places.entry(table.name).or_insert_with(|| {
            self.tables.push(Rows { table, rows: Vec::new(), by_key: HashMap::new() });
            self.tables.len() - 1
        });
        let rows = &mut self.tables[place];
        match table.writes {
            Writes::Append => rows.rows.push(row),
            Writes::Replace => match rows.by_key.get(&row[..table.key]) {
                Some(place) => rows.rows[*place] = row,
                None => {
                    rows.by_key.insert(row[..table.key].to_vec(), rows.rows.len());
                    rows.rows.push(row);
                }
            },
        }
    }

    /// Writes all of it: the statements go out together, the server takes them one after the other.
    pub(super) async fn write(&self, client: &Object) -> Result<(), Error> {
        for (table, key) in &self.removed {
            remove_row(client, table, key).await?;
        }
        try_join_all(self.tables.iter().map(|rows| write_rows(client, rows.table, &rows.rows))).await.map(drop)
    }
}

/// Removes the rows whose key begins with a value; such commits are rare and small.
async fn remove_row(client: &Object, table: &Table, key: &Value<'_>) -> Result<(), Error> {
    let sql = format!("DELETE FROM {} WHERE {} = $1", table.name, table.columns[0].name);
    let statement = client.prepare_cached(&sql).await?;
    let (text, id) = (key_text(key), key_id(key));
    let param: &(dyn ToSql + Sync) = if id.is_some() { &id } else { &text };
    client.execute(&statement, &[param]).await.map(drop)
}

/// Writes rows of one table with one statement.
pub(crate) async fn write_rows(client: &Object, table: &Table, rows: &[Vec<Value<'_>>]) -> Result<(), Error> {
    let arrays: Vec<Array<'_>> = (0..table.columns.len())
        .map(|column| Array::of(table.columns[column].kind, rows.iter().map(|row| &row[column])))
        .collect();
    let params: Vec<&(dyn ToSql + Sync)> = arrays.iter().map(Array::param).collect();
    let types: Vec<_> =
        (1..).zip(table.columns).map(|(index, column)| format!("${index}::{}", array_type(column.kind))).collect();
    let sql = format!(
        "INSERT INTO {} ({}) SELECT * FROM UNNEST({}){}",
        table.name,
        table.names(),
        types.join(", "),
        table.conflict_clause()
    );
    let statement = client.prepare_cached(&sql).await?;
    client.execute(&statement, &params).await.map(drop)
}

/// Moves the head row and the counts of nodes, and wakes the listeners at the commit.
pub(super) async fn write_head(client: &Object, chain: &Chain, channel: &str) -> Result<(), Error> {
    const HEAD: &str = "UPDATE head SET event_seq = $1, audit_seq = $2, audit_hash = $3";
    const COUNTS: &str = "INSERT INTO node_counts (site, status, availability, n) \
        SELECT * FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::bigint[]) \
        ON CONFLICT (site, status, availability) DO UPDATE SET n = node_counts.n + excluded.n";
    const NOTIFY: &str = "SELECT pg_notify($1, $2)";
    let (events, audits) = (chain.event_seq as i64, chain.audit_seq as i64);
    let head = client.prepare_cached(HEAD).await?;
    client.execute(&head, &[&events, &audits, &chain.audit_hash]).await?;
    let changed = chain.counts.iter().filter(|(_, by)| **by != 0).map(|(key, by)| count_row(*key, *by));
    let (mut sites, mut statuses, mut availabilities, mut counts) = (vec![], vec![], vec![], vec![]);
    for (site, status, availability, by) in changed {
        sites.push(site);
        statuses.push(status);
        availabilities.push(availability);
        counts.push(by);
    }
    if !sites.is_empty() {
        let statement = client.prepare_cached(COUNTS).await?;
        client.execute(&statement, &[&sites, &statuses, &availabilities, &counts]).await?;
    }
    let notify = client.prepare_cached(NOTIFY).await?;
    client.execute(&notify, &[&channel, &events.to_string()]).await.map(drop)
}

const fn array_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "bigint[]",
        Kind::Text => "text[]",
        Kind::Id => "uuid[]",
    }
}

/// One column of many rows.
enum Array<'a> {
    Int(Vec<Option<i64>>),
    Text(Vec<Option<&'a str>>),
    Id(Vec<Option<Uuid>>),
}

impl<'a> Array<'a> {
    fn of(kind: Kind, values: impl Iterator<Item = &'a Value<'a>>) -> Self {
        match kind {
            Kind::Int => Self::Int(values.map(int).collect()),
            Kind::Text => Self::Text(values.map(text).collect()),
            Kind::Id => Self::Id(values.map(id).collect()),
        }
    }

    fn param(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(values) => values,
            Self::Text(values) => values,
            Self::Id(values) => values,
        }
    }
}

fn key_text<'a>(key: &'a Value<'_>) -> Option<&'a str> {
    match key {
        Value::Text(text) => Some(text),
        Value::Id(_) | Value::Int(_) | Value::Null => None,
    }
}

fn key_id(key: &Value<'_>) -> Option<Uuid> {
    match key {
        Value::Id(id) => Some(*id),
        Value::Text(_) | Value::Int(_) | Value::Null => None,
    }
}

fn int(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Int(value) => Some(*value),
        Value::Null => None,
        Value::Text(_) | Value::Id(_) => panic!("a row gives its columns their types"),
    }
}

fn text<'a>(value: &'a Value<'a>) -> Option<&'a str> {
    match value {
        Value::Text(text) => Some(text),
        Value::Null => None,
        Value::Int(_) | Value::Id(_) => panic!("a row gives its columns their types"),
    }
}

fn id(value: &Value<'_>) -> Option<Uuid> {
    match value {
        Value::Id(id) => Some(*id),
        Value::Null => None,
        Value::Int(_) | Value::Text(_) => panic!("a row gives its columns their types"),
    }
}
