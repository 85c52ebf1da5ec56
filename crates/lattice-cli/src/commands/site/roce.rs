//! `lattice site roce`: RoCE addresses of hosts, from a file with a header. spec: S5 3.3

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lattice_api::Gone;
use lattice_api::client::{ClientError, get};
use lattice_api::page::Page;
use lattice_api::roce::{PutRoce, RoceAnswer, RoceItem, RoceQuery, RoceView};

use crate::clock;
use crate::failure::Failure;
use crate::output::{Look, Row, Shown};
use crate::paging::Paging;
use crate::session::{Session, request};

/// Columns that a file must have, in any order.
const COLUMNS: [&str; 3] = ["hostname", "interface", "ipv4_cidr"];

/// What can be done with RoCE addresses.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the RoCE addresses of a site
    List(List),
    /// Assign the addresses of a CSV file with the header hostname,interface,ipv4_cidr: all of them or none
    Import(Import),
    /// Take an address from an interface
    Remove(Named),
}

/// Whose.
#[derive(Debug, Args)]
pub struct List {
    /// The site, by name or id
    site: String,
    /// Of this host alone
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// A file to import.
#[derive(Debug, Args)]
pub struct Import {
    /// The site, by name or id
    site: String,
    /// The file
    file: PathBuf,
}

/// One assignment.
#[derive(Debug, Args)]
pub struct Named {
    /// The site, by name or id
    site: String,
    /// Its id
    id: String,
}

/// Runs one of them.
///
/// # Errors
/// Refused, or the file has lines that cannot be right: each is named by its number.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(list) => {
            let page = list.page.query();
            let query = RoceQuery { hostname: list.hostname, cursor: page.cursor, limit: page.limit };
            session.show::<Page<RoceView>>(get(&["sites", &list.site, "roce-assignments"]).query(&query)).await
        }
        Command::Import(import) => self::import(&import, session).await,
        Command::Remove(named) => {
            let effect = "a host that has the address keeps it until it is deployed again";
            session.confirm(&format!("remove RoCE assignment {}", named.id), effect)?;
            let call = request(reqwest::Method::DELETE, &["sites", &named.site, "roce-assignments", &named.id]);
            session.show::<Gone>(call).await
        }
    }
}

async fn import(import: &Import, session: &Session) -> Result<(), Failure> {
    let file = import.file.display();
    let text = std::fs::read_to_string(&import.file)
        .map_err(|error| Failure::refused(format!("cannot read {file}")).because(error.to_string()))?;
    let lines = lines(&text).map_err(|problems| {
        let failure = Failure::refused(format!("{file} has lines that cannot be read; nothing was sent"));
        problems.into_iter().fold(failure, Failure::because)
    })?;
    let (numbers, items): (Vec<usize>, Vec<RoceItem>) = lines.into_iter().unzip();
    let call = request(reqwest::Method::POST, &["sites", &import.site, "roce-assignments"]).json(&PutRoce { items });
    match session.client.send_raw(call.idempotency_key(clock::fresh_key())).await {
        Ok(body) => {
            let value: RoceAnswer = serde_json::from_slice(&body).map_err(|error| {
                Failure::unexpected("the server's answer cannot be read").because(error.to_string())
            })?;
            session.print(&crate::session::Answer { body, value })
        }
        Err(ClientError::Refused(mut problem)) => {
            problem.because = problem.because.iter().map(|fact| by_line(fact, &numbers)).collect();
            Err(ClientError::Refused(problem).into())
        }
        Err(other) => Err(other.into()),
    }
}

/// The server counts items, a person looks for lines: `item 2 (…)` becomes `line 3 (…)`.
fn by_line(fact: &str, numbers: &[usize]) -> String {
    let item = fact.strip_prefix("item ").and_then(|rest| rest.split_once(' '));
    let line = item.and_then(|(item, rest)| Some((numbers.get(item.parse::<usize>().ok()?.checked_sub(1)?)?, rest)));
    line.map_or_else(|| fact.to_owned(), |(line, rest)| format!("line {line} {rest}"))
}

/// The assignments of a file, each with the number of its line.
///
/// # Errors
/// A header that lacks a column or has an unknown one, and each line that has more or fewer fields than it.
fn lines(text: &str) -> Result<Vec<(usize, RoceItem)>, Vec<String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let Some((_, header)) = lines.next() else { return Err(vec!["it is empty".to_owned()]) };
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let place = |column: &str| names.iter().position(|name| *name == column);
    let (Some(hostname), Some(interface), Some(cidr)) = (place(COLUMNS[0]), place(COLUMNS[1]), place(COLUMNS[2]))
    else {
        return Err(vec![format!("line 1 must be the header {}, not `{header}`", COLUMNS.join(","))]);
    };
    if names.len() != COLUMNS.len() {
        return Err(vec![format!("line 1 has columns besides {}: leave them out", COLUMNS.join(","))]);
    }
    let (mut items, mut problems) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != names.len() || fields.iter().any(|field| field.is_empty()) {
            problems.push(format!("line {number} must have {} fields, none of them empty", names.len()));
            continue;
        }
        let [hostname, interface, ipv4_cidr] = [hostname, interface, cidr].map(|at| fields[at].to_owned());
        items.push((number, RoceItem { hostname, interface, ipv4_cidr }));
    }
    if problems.is_empty() { Ok(items) } else { Err(problems) }
}

impl Row for RoceView {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["HOST", "INTERFACE", "ADDRESS"];
        if wide {
            head.extend(["CHANGED", "ID"]);
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let one = &self.assignment;
        let mut cells = vec![one.hostname.clone(), one.interface.clone(), one.ipv4_cidr.to_string()];
        if look.wide {
            cells.extend([look.age(self.updated_at.as_millis()), self.id.to_string()]);
        }
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Shown for RoceAnswer {
    fn text(&self, _: Look) -> String {
        format!("{} created, {} changed, {} unchanged\n", self.created, self.changed, self.unchanged)
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_by_its_header_and_lines_keep_their_numbers() {
        let read = lines("\u{feff}interface, hostname,ipv4_cidr\r\n\r\neth1,c07u31,172.30.9.61/31\r\n").unwrap();
        assert_eq!((read[0].0, read[0].1.hostname.as_str(), read[0].1.interface.as_str()), (3, "c07u31", "eth1"));
        for header in ["", "c07u31,eth1,172.30.9.61/31", "hostname,interface,ipv4_cidr,note"] {
            assert_eq!(lines(header).unwrap_err().len(), 1, "{header}");
        }
        let problems = lines("hostname,interface,ipv4_cidr\na,b\na,,c\na,b,c\n").unwrap_err();
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("line 2 ") && problems[1].starts_with("line 3 "), "{problems:?}");
    }

    #[test]
    fn what_the_server_says_of_an_item_is_said_of_its_line() {
        assert_eq!(by_line("item 2 (a eth1): bad", &[2, 5]), "line 5 (a eth1): bad");
        assert_eq!(by_line("item 9 (a eth1): bad", &[2, 5]), "item 9 (a eth1): bad");
        assert_eq!(by_line("and 7 more", &[2]), "and 7 more");
    }
}
