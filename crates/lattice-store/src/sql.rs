//! Values on their way into SQL, and rows on their way out: the same for both backends.

use std::borrow::Cow;
use std::str::FromStr;

use lattice_core::ids::Generation;
use lattice_core::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::error::StoreError;

/// One value of a row or a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Value<'a> {
    /// SQL null.
    Null,
    /// A number, a flag (0 or 1) or a time in milliseconds.
    Int(i64),
    /// A text, an enum's name or JSON.
    Text(Cow<'a, str>),
    /// An id.
    Id(Uuid),
}

impl<'a> Value<'a> {
    /// A borrowed text.
    pub(crate) const fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
    /// A text made for this row.
    pub(crate) const fn owned(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
    /// A text, or null.
    pub(crate) fn opt_text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::text)
    }
    /// A time.
    pub(crate) const fn time(time: Timestamp) -> Self {
        Self::Int(time.as_millis())
    }
    /// A time, or null.
    pub(crate) fn opt_time(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Null, Self::time)
    }
    /// An id, or null.
    pub(crate) fn opt_id(id: Option<Uuid>) -> Self {
        id.map_or(Self::Null, Self::Id)
    }
    /// A flag.
    pub(crate) const fn flag(flag: bool) -> Self {
        Self::Int(flag as i64)
    }
    /// A counter; SQL has no unsigned numbers, and no counter here comes near 2^63.
    pub(crate) fn count(count: u64) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }
    /// Version of a row.
    pub(crate) fn generation(generation: Generation) -> Self {
        Self::count(generation.0)
    }
    /// The name of one of our enums.
    pub(crate) fn name(name: impl Into<&'static str>) -> Self {
        Self::Text(Cow::Borrowed(name.into()))
    }
    /// Anything as JSON.
    pub(crate) fn json(value: &impl Serialize) -> Self {
        Self::owned(serde_json::to_string(value).expect("rows have only text keys"))
    }
    /// The same value, kept.
    pub(crate) fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Int(value) => Value::Int(value),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Id(id) => Value::Id(id),
        }
    }
}

/// One row of an answer.
pub(crate) trait Columns {
    /// A number.
    fn int(&self, index: usize) -> Result<Option<i64>, StoreError>;
    /// A text.
    fn text(&self, index: usize) -> Result<Option<&str>, StoreError>;
    /// An id.
    fn id(&self, index: usize) -> Result<Option<Uuid>, StoreError>;
}

/// Reads the columns of a row one after the other, in the order of the select list.
pub(crate) struct Reader<'r> {
    row: &'r dyn Columns,
    next: usize,
}

impl<'r> Reader<'r> {
    /// Starts at the first column.
    pub(crate) const fn new(row: &'r dyn Columns) -> Self {
        Self { row, next: 0 }
    }

    fn step(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn missing(index: usize) -> StoreError {
        StoreError::corrupt(format!("column {index}"), "null where a value must stand")
    }

    pub(crate) fn opt_int(&mut self) -> Result<Option<i64>, StoreError> {
        let index = self.step();
        self.row.int(index)
    }
    pub(crate) fn int(&mut self) -> Result<i64, StoreError> {
        let index = self.step();
        self.row.int(index)?.ok_or_else(|| Self::missing(index))
    }
    pub(crate) fn count(&mut self) -> Result<u64, StoreError> {
        let value = self.int()?;
        u64::try_from(value).map_err(|error| StoreError::corrupt(value.to_string(), error))
    }
    pub(crate) fn small(&mut self) -> Result<u32, StoreError> {
        let value = self.int()?;
        u32::try_from(value).map_err(|error| StoreError::corrupt(value.to_string(), error))
    }
    pub(crate) fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.int()? != 0)
    }
    pub(crate) fn generation(&mut self) -> Result<Generation, StoreError> {
        self.count().map(Generation)
    }
    pub(crate) fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.int().map(Timestamp::from_millis)
    }
    pub(crate) fn opt_time(&mut self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.opt_int()?.map(Timestamp::from_millis))
    }
    pub(crate) fn opt_text(&mut self) -> Result<Option<String>, StoreError> {
        let index = self.step();
        Ok(self.row.text(index)?.map(str::to_owned))
    }
    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        let index = self.step();
        self.row.text(index)?.map(str::to_owned).ok_or_else(|| Self::missing(index))
    }
    pub(crate) fn opt_id(&mut self) -> Result<Option<Uuid>, StoreError> {
        let index = self.step();
        self.row.id(index)
    }
    pub(crate) fn id(&mut self) -> Result<Uuid, StoreError> {
        let index = self.step();
        self.row.id(index)?.ok_or_else(|| Self::missing(index))
    }
    /// One of our enums, by its name.
    pub(crate) fn name<T: FromStr>(&mut self) -> Result<T, StoreError> {
        let index = self.step();
        let text = self.row.text(index)?.ok_or_else(|| Self::missing(index))?;
        text.parse().map_err(|_| StoreError::corrupt(format!("column {index}"), format!("`{text}` is not known")))
    }
    pub(crate) fn opt_name<T: FromStr>(&mut self) -> Result<Option<T>, StoreError> {
        let index = self.step();
        let Some(text) = self.row.text(index)? else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| StoreError::corrupt(format!("column {index}"), format!("`{text}` is not known")))
    }
    pub(crate) fn opt_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StoreError> {
        let index = self.step();
        let parse = |text| serde_json::from_str(text);
        let value = self.row.text(index)?.map(parse).transpose();
        value.map_err(|error| StoreError::corrupt(format!("column {index}"), error))
    }
    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        let index = self.next;
        self.opt_json()?.ok_or_else(|| Self::missing(index))
    }
}

/// A statement that reads, with its parameters; `?1` is the first one in both dialects.
pub(crate) struct Query {
    /// The text.
    pub(crate) sql: Cow<'static, str>,
    /// What stands for `?1`, `?2` …
    pub(crate) params: Vec<Value<'static>>,
}

impl Query {
    /// A fixed statement.
    pub(crate) const fn new(sql: &'static str, params: Vec<Value<'static>>) -> Self {
        Self { sql: Cow::Borrowed(sql), params }
    }
}

/// Conditions of a list, collected with their parameters.
#[derive(Default)]
pub(crate) struct Conditions {
    text: String,
    params: Vec<Value<'static>>,
}

impl Conditions {
    /// Adds a condition; each `?` in it is the next of `params`.
    pub(crate) fn add(&mut self, condition: &str, params: impl IntoIterator<Item = Value<'static>>) {
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        let mut params = params.into_iter();
        for piece in condition.split_inclusive('?') {
            match piece.strip_suffix('?') {
                Some(before) => {
                    self.params.push(params.next().expect("one parameter for each mark"));
                    self.text.push_str(&format!("{before}?{}", self.params.len()));
                }
                None => self.text.push_str(piece),
            }
        }
        assert!(params.next().is_none(), "one mark for each parameter");
    }

    /// Adds `column IN (…)`, unless `names` is empty: an empty filter filters nothing.
    pub(crate) fn one_of(&mut self, column: &str, names: impl IntoIterator<Item = Value<'static>>) {
        let names: Vec<_> = names.into_iter().collect();
        if names.is_empty() {
            return;
        }
        let marks = vec!["?"; names.len()].join(", ");
        self.add(&format!("{column} IN ({marks})"), names);
    }

    /// The whole statement: `select`, the conditions, `rest`, and a limit as the last parameter.
    pub(crate) fn query(mut self, select: &str, rest: &str, limit: usize) -> Query {
        self.params.push(Value::count(limit as u64));
        let sql = format!("{select}{} {rest} LIMIT ?{}", self.text, self.params.len());
        Query { sql: Cow::Owned(sql), params: self.params }
    }
}
