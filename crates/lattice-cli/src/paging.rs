//! Which page of a list.

use clap::Args;
use lattice_api::page::PageQuery;

/// Options of every list.
#[derive(Debug, Args)]
pub struct Paging {
    /// At most so many rows, 1 to 1000
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "ROWS")]
    limit: Option<u32>,
    /// Where the page before said that there is more
    #[arg(long)]
    cursor: Option<String>,
}

impl Paging {
    /// As the API takes it.
    pub fn query(&self) -> PageQuery {
        PageQuery { cursor: self.cursor.clone(), limit: self.limit }
    }
}
