//! What is printed: tables for people, the API's own body for programs.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use lattice_api::page::Page;

use crate::failure::Failure;
use crate::session::Answer;
use crate::span;

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for people
    Table,
    /// A table with more columns
    Wide,
    /// The body of the API's answer, unchanged
    Json,
    /// The same as YAML
    Yaml,
    /// Names only, one per line
    Name,
}

impl Format {
    /// Whether people read it.
    pub const fn is_for_people(self) -> bool {
        match self {
            Self::Table | Self::Wide => true,
            Self::Json | Self::Yaml | Self::Name => false,
        }
    }
}

/// What a view may depend on beside its data.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// More columns.
    pub wide: bool,
    /// What time it is, in milliseconds since 1970 UTC: by the server's clock where it is known.
    pub now_ms: i64,
}

impl Look {
    /// How long ago something was: `3 min`.
    pub fn age(self, at_ms: i64) -> String {
        span::words(u64::try_from(self.now_ms.saturating_sub(at_ms)).unwrap_or(0))
    }
}

/// Something that can be printed for people.
pub trait Shown {
    /// A table or a text; ends with a line feed unless it is empty.
    fn text(&self, look: Look) -> String;
    /// Names, for `-o name`.
    fn names(&self) -> Vec<String>;
    /// What is worth telling beside the data: goes to stderr.
    fn note(&self) -> Option<String> {
        None
    }
}

/// A row of a list.
pub trait Row {
    /// Heads of the columns.
    fn head(wide: bool) -> Vec<&'static str>;
    /// Cells of the columns.
    fn cells(&self, look: Look) -> Vec<String>;
    /// Its name.
    fn name(&self) -> String;
}

impl<T: Row> Shown for Page<T> {
    fn text(&self, look: Look) -> String {
        rows(&self.items, look)
    }
    fn names(&self) -> Vec<String> {
        self.items.iter().map(Row::name).collect()
    }
    fn note(&self) -> Option<String> {
        if self.items.is_empty() {
            return Some("nothing found".to_owned());
        }
        self.next.as_ref().map(|cursor| format!("there is more: --cursor {cursor}, or a higher --limit"))
    }
}

/// A table of rows; empty when there are none.
pub fn rows<T: Row>(items: &[T], look: Look) -> String {
    if items.is_empty() {
        return String::new();
    }
    table(&T::head(look.wide), items.iter().map(|item| item.cells(look)))
}

/// Columns with two blanks between them and nothing at the ends of lines.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !head.is_empty() {
        table.set_header(head.to_vec());
    }
    for row in rows {
        table.add_row(row.into_iter().map(|cell| cell.replace(['\n', '\t'], " ")));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `name  value` lines, without those that have no value.
pub fn facts(facts: &[(&str, String)]) -> String {
    let present = facts.iter().filter(|(_, value)| !value.is_empty());
    table(&[], present.map(|(name, value)| vec![(*name).to_owned(), value.clone()]))
}

/// Prints an answer to stdout.
///
/// # Errors
/// The answer cannot be printed, other than for a closed pipe.
pub fn print<T: Shown>(format: Format, answer: &Answer<T>, look: Look) -> Result<(), Failure> {
    match format {
        Format::Table | Format::Wide => {
            text(&answer.value.text(look))?;
            if let Some(note) = answer.value.note() {
                eprintln!("{}", harmless(&note));
            }
            Ok(())
        }
        Format::Json => json(&answer.body),
        Format::Yaml => {
            let value: serde_json::Value = serde_json::from_slice(&answer.body).map_err(unprintable)?;
            data(serde_yaml_ng::to_string(&value).map_err(unprintable)?.as_bytes())
        }
        Format::Name => {
            data(answer.value.names().iter().map(|name| format!("{name}\n")).collect::<String>().as_bytes())
        }
    }
}

/// Prints a JSON body as it is, with a line feed behind it.
///
/// # Errors
/// Stdout cannot be written, other than for a closed pipe.
pub fn json(body: &[u8]) -> Result<(), Failure> {
    data(body)?;
    if body.ends_with(b"\n") { Ok(()) } else { data(b"\n") }
}

/// Prints a text for people to stdout.
///
/// # Errors
/// Stdout cannot be written, other than for a closed pipe.
pub fn text(text: &str) -> Result<(), Failure> {
    data(harmless(text).as_bytes())
}

/// The text without control characters: what a host or a provider said must not steer the terminal.
pub fn harmless(text: &str) -> String {
    text.chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect()
}

/// Prints data to stdout as it is.
///
/// # Errors
/// Stdout cannot be written, other than for a closed pipe: whoever reads may stop early.
pub fn data(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(unprintable(error)),
    }
}

fn unprintable(error: impl std::fmt::Display) -> Failure {
    Failure::unexpected("cannot print the answer").because(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_no_blanks_at_the_ends_of_lines() {
        let text = table(&["NAME", "STATE"], [vec!["c07u43".into(), "ready".into()], vec!["x".into(), String::new()]]);
        assert_eq!(text, "NAME    STATE\nc07u43  ready\nx\n");
    }

    #[test]
    fn what_a_host_says_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\u{1b}[2Jb\r\u{9b}31mc\nd – ä"), "a[2Jb31mc\nd – ä");
    }

    #[test]
    fn facts_without_a_value_are_left_out() {
        assert_eq!(facts(&[("a", "1".into()), ("long name", String::new()), ("bcd", "2".into())]), "a    1\nbcd  2\n");
    }
}
