//! Tables as lists of columns: from them both backends build the statements that write rows.

/// Type of a column, as both backends know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `INTEGER`, `BIGINT`.
    Int,
    /// `TEXT`.
    Text,
    /// 16 bytes, `UUID`.
    Id,
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its type.
    pub(crate) kind: Kind,
    /// Whether it seldom changes: a lean update leaves it, and so its indexes, alone.
    pub(crate) stable: bool,
}

/// A column that changes.
pub(crate) const fn col(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, stable: false }
}

/// A column that seldom changes.
pub(crate) const fn stable(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, stable: true }
}

/// How rows get into a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Each row is new.
    Append,
    /// A row with the same key is replaced.
    Replace,
}

/// One table; its first `key` columns are the primary key.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name.
    pub(crate) name: &'static str,
    /// How many columns the key has.
    pub(crate) key: usize,
    /// How rows get in.
    pub(crate) writes: Writes,
    /// All columns, in the order in which rows give their values.
    pub(crate) columns: &'static [Column],
}

impl Table {
    /// Names of all columns, with commas.
    pub(crate) fn names(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }

    /// What a replaced row takes over: `a = excluded.a, …`.
    pub(crate) fn conflict_clause(&self) -> String {
        match self.writes {
            Writes::Append => String::new(),
            Writes::Replace => {
                let key: Vec<_> = self.columns[..self.key].iter().map(|column| column.name).collect();
                let set: Vec<_> =
                    self.columns[self.key..].iter().map(|column| format!("{0} = excluded.{0}", column.name)).collect();
                format!(" ON CONFLICT ({}) DO UPDATE SET {}", key.join(", "), set.join(", "))
            }
        }
    }
}
