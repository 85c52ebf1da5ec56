//! Machines as comma-separated values: named by a header, wrong lines by their number. spec: S5 4.1
//!
//! The API takes JSON alone; files are this program's business.

use std::collections::HashMap;
use std::net::IpAddr;

/// Columns that a file must have, in any order.
const COLUMNS: [&str; 2] = ["hostname", "ipmi_ip"];

/// One machine of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Line on which its record begins, from 1.
    pub line: usize,
    /// Hostname.
    pub hostname: String,
    /// Address of the BMC; none where the field is empty.
    pub ipmi_ip: Option<String>,
}

/// A line that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongLine {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for WrongLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// Lines that are right.
    pub machines: Vec<Machine>,
    /// Lines that are wrong.
    pub wrong: Vec<WrongLine>,
}

/// Reads a file: a header with [`COLUMNS`], then one machine in each line. Fields may be quoted; a byte order mark,
/// line ends of any kind and empty lines are let through.
pub fn read(text: &str) -> Read {
    let mut found = Read::default();
    let mut records = records(text.strip_prefix('\u{feff}').unwrap_or(text)).into_iter();
    let Some(header) = records.next() else {
        found.wrong.push(WrongLine { line: 1, problem: "there is no header: expected hostname,ipmi_ip".to_owned() });
        return found;
    };
    let places = match header.fields.and_then(|fields| places(&fields)) {
        Ok(places) => places,
        Err(problem) => {
            found.wrong.push(WrongLine { line: header.line, problem });
            return found;
        }
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for Record { line, fields } in records {
        match fields.and_then(|fields| machine(line, &fields, &places, &mut seen)) {
            Ok(machine) => found.machines.push(machine),
            Err(problem) => found.wrong.push(WrongLine { line, problem }),
        }
    }
    found
}

/// Where the columns stand, and how many there are.
struct Places {
    hostname: usize,
    ipmi_ip: usize,
    count: usize,
}

fn places(header: &[String]) -> Result<Places, String> {
    let names: Vec<String> = header.iter().map(|name| name.trim().to_lowercase()).collect();
    if let Some(unknown) = names.iter().find(|name| !COLUMNS.contains(&name.as_str())) {
        return Err(format!("there is no column `{unknown}`: expected {}", COLUMNS.join(",")));
    }
    let place = |wanted: &str| {
        let mut found = names.iter().enumerate().filter(|(_, name)| *name == wanted).map(|(place, _)| place);
        match (found.next(), found.next()) {
            (Some(place), None) => Ok(place),
            (Some(_), Some(_)) => Err(format!("the column `{wanted}` stands there twice")),
            (None, _) => Err(format!("the column `{wanted}` is missing: expected {}", COLUMNS.join(","))),
        }
    };
    Ok(Places { hostname: place("hostname")?, ipmi_ip: place("ipmi_ip")?, count: names.len() })
}

fn machine(
    line: usize,
    fields: &[String],
    places: &Places,
    seen: &mut HashMap<String, usize>,
) -> Result<Machine, String> {
    if fields.len() != places.count {
        return Err(format!("it has {} fields, the header has {}", fields.len(), places.count));
    }
    let hostname = fields[places.hostname].trim();
    if hostname.is_empty() {
        return Err("hostname is empty".to_owned());
    }
    let given = fields[places.ipmi_ip].trim();
    let address: Option<IpAddr> = match given {
        "" => None,
        text => Some(text.parse().map_err(|_| format!("ipmi_ip is not an address: `{}`", short(text)))?),
    };
    let names = [Some(hostname.to_lowercase()), address.map(|address| address.to_string())];
    for name in names.into_iter().flatten() {
        if let Some(first) = seen.insert(name.clone(), line) {
            seen.insert(name.clone(), first);
            return Err(format!("{} stands in line {first} already", short(&name)));
        }
    }
    Ok(Machine { line, hostname: hostname.to_owned(), ipmi_ip: address.map(|address| address.to_string()) })
}

fn short(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

struct Record {
    line: usize,
    fields: Result<Vec<String>, String>,
}

/// Records of a text by RFC 4180, empty ones left out. A record with a broken quote ends with its line.
fn records(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let (record, length) = record(rest);
        let lines = rest[..length].matches('\n').count();
        let is_empty = matches!(record.as_deref(), Ok([only]) if only.trim().is_empty());
        if !is_empty {
            records.push(Record { line, fields: record });
        }
        line += lines;
        rest = &rest[length..];
    }
    records
}

/// The first record of a text, and how many bytes it takes with the end of its line.
fn record(text: &str) -> (Result<Vec<String>, String>, usize) {
    let end_of_line = text.find('\n').map_or(text.len(), |at| at + 1);
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut letters = text.char_indices().peekable();
    let mut is_quoted = false;
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek().is_some_and(|(_, next)| *next == '"') => {
                field.push('"');
                letters.next();
            }
            '"' if is_quoted => {
                is_quoted = false;
                if letters.peek().is_some_and(|(_, next)| !matches!(next, ',' | '\r' | '\n')) {
                    return (Err("something stands behind a closing quote".to_owned()), end_of_line);
                }
            }
            '"' if field.trim().is_empty() => {
                field.clear();
                is_quoted = true;
            }
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            '\n' if !is_quoted => {
                fields.push(field);
                return (Ok(fields), at + 1);
            }
            '\r' if !is_quoted && letters.peek().is_none_or(|(_, next)| *next == '\n') => {}
            _ => field.push(letter),
        }
    }
    if is_quoted {
        return (Err("a quote is not closed".to_owned()), end_of_line);
    }
    fields.push(field);
    (Ok(fields), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<(usize, String, Option<String>)> {
        let read = read(text);
        assert_eq!(read.wrong, []);
        read.machines.into_iter().map(|machine| (machine.line, machine.hostname, machine.ipmi_ip)).collect()
    }

    fn wrong(text: &str) -> Vec<String> {
        read(text).wrong.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_is_read_by_its_header_whatever_its_line_ends() {
        let expected = vec![(2, "a".to_owned(), Some("10.0.0.1".to_owned())), (4, "b".to_owned(), None)];
        for text in [
            "hostname,ipmi_ip\na,10.0.0.1\n\nb,\n",
            "\u{feff}hostname,ipmi_ip\r\na,10.0.0.1\r\n\r\nb,",
            "IPMI_IP, Hostname\n10.0.0.1,a\n\n,b\n",
            "\"hostname\",\"ipmi_ip\"\n\"a\",\"10.0.0.1\"\n \nb,\"\"\n",
        ] {
            assert_eq!(rows(text), expected, "{text:?}");
        }
    }

    #[test]
    fn quotes_may_hold_anything_and_lines_are_counted_through_them() {
        let read = read("hostname,ipmi_ip\n\"a\"\"b\",10.0.0.1\n\"c\nd\",10.0.0.2\ne,10.0.0.3\n");
        let seen: Vec<_> = read.machines.iter().map(|machine| (machine.line, machine.hostname.as_str())).collect();
        assert_eq!(seen, [(2, "a\"b"), (3, "c\nd"), (5, "e")]);
    }

    #[test]
    fn each_wrong_line_is_named_and_the_others_are_read() {
        let text = "hostname,ipmi_ip\na,10.0.0.1\nb\n,10.0.0.2\nc,10.0.0.300\nA,10.0.0.4\nd,10.0.0.1\n\"e,10.0.0.5\nf,10.0.0.6\n\"g\"x,10.0.0.7\n";
        assert_eq!(
            wrong(text),
            [
                "line 3: it has 1 fields, the header has 2",
                "line 4: hostname is empty",
                "line 5: ipmi_ip is not an address: `10.0.0.300`",
                "line 6: a stands in line 2 already",
                "line 7: 10.0.0.1 stands in line 2 already",
                "line 8: something stands behind a closing quote",
                "line 10: something stands behind a closing quote",
            ]
        );
        assert_eq!(
            wrong("hostname,ipmi_ip\n\"e,10.0.0.5\nf,1\n"),
            ["line 2: a quote is not closed", "line 3: ipmi_ip is not an address: `1`",]
        );
    }

    #[test]
    fn a_header_must_have_both_columns_and_no_other() {
        let rows = [
            ("", "line 1: there is no header: expected hostname,ipmi_ip"),
            ("a,10.0.0.1\n", "line 1: there is no column `a`: expected hostname,ipmi_ip"),
            ("hostname\na\n", "line 1: the column `ipmi_ip` is missing: expected hostname,ipmi_ip"),
            ("hostname,ipmi_ip,rack\n", "line 1: there is no column `rack`: expected hostname,ipmi_ip"),
            ("hostname,ipmi_ip,hostname\n", "line 1: the column `hostname` stands there twice"),
        ];
        for (text, expected) in rows {
            assert_eq!(wrong(text), [expected], "{text:?}");
        }
    }
}
