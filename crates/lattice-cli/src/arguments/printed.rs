//! Commands that the source prints as the next step: each exists, and the request that is told with it is the one that
//! it makes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use lattice_api::error::{ApiCall, call_of};

use super::Arguments;

/// Printed commands that make no request, more than one, or one that is not known before: a file or a secret is read.
const WITHOUT: [&str; 15] = [
    "audit verify",
    "backup",
    "dev",
    "node bmc set",
    "node create",
    "onboard maas",
    "server",
    "silence create",
    "sim",
    "token create",
    "version",
    "site credentials",
    "site override set",
    "site profile default",
    "site set",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests" || stem == "printed");
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") && !is_test {
            found.push(path);
        }
    }
}

/// String literals of the source that are one whole command, with `x` for what is filled in.
fn printed() -> BTreeSet<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut commands = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for piece in code.split("\"lattice ").skip(1) {
            let literal = piece.split('"').next().unwrap_or_default();
            let line: Vec<String> = literal.split_whitespace().map(filled).collect();
            commands.insert(line.join(" "));
        }
    }
    commands
}

fn filled(word: &str) -> String {
    match (word.find('{'), word.rfind('}')) {
        (Some(from), Some(to)) => format!("{}x{}", &word[..from], &word[to + 1..]),
        (Some(_), None) | (None, _) => word.to_owned(),
    }
}

/// Whether the words before its arguments name a command.
fn exists(line: &str) -> bool {
    let tree = Arguments::command();
    let mut at = &tree;
    for word in line.split(' ') {
        if !at.is_subcommand_required_set() && at.find_subcommand(word).is_none() {
            return true;
        }
        match at.find_subcommand(word) {
            Some(next) => at = next,
            None => return word == "x",
        }
    }
    !at.is_subcommand_required_set()
}

/// Prose begins with `lattice` as well.
fn begins_as_a_command(line: &str) -> bool {
    Arguments::command().find_subcommand(line.split(' ').next().unwrap_or_default()).is_some()
}

/// Its verb is filled in: which one it is, is known only when it is printed.
fn has_open_verb(line: &str) -> bool {
    line.split(' ').nth(1) == Some("x") || line.starts_with("onboarding batch x")
}

/// Whether the API's description has the request.
fn is_described(api: &serde_json::Value, call: &ApiCall) -> bool {
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    let fits = |known: &str| {
        let (known, path): (Vec<&str>, Vec<&str>) = (known.split('/').collect(), path.split('/').collect());
        known.len() == path.len()
            && known.iter().zip(path).all(|(known, part)| known.starts_with('{') || *known == part)
    };
    let paths = api["paths"].as_object().unwrap();
    paths.iter().any(|(known, methods)| {
        let Some(method) = methods.get(call.method.to_lowercase()).filter(|_| fits(known)) else { return false };
        let empty = Vec::new();
        let asked = method["parameters"].as_array().unwrap_or(&empty);
        let is_asked = |name: &str| asked.iter().any(|parameter| parameter["name"] == name);
        query.split('&').filter_map(|pair| pair.split_once('=')).all(|(name, _)| is_asked(name))
    })
}

#[test]
fn every_printed_command_exists_and_is_told_with_the_request_that_it_makes() {
    let text = std::fs::read_to_string(root().join("api/openapi.json")).unwrap();
    let api: serde_json::Value = serde_json::from_str(&text).unwrap();
    let printed = printed();
    assert!(printed.len() > 80, "{} commands are found", printed.len());
    let mut wrong = Vec::new();
    for line in printed.iter().filter(|line| begins_as_a_command(line)) {
        let is_without = WITHOUT.iter().any(|without| line == without || line.starts_with(&format!("{without} ")));
        match call_of(&format!("lattice {line}")) {
            _ if !exists(line) => wrong.push(format!("there is no `lattice {line}`")),
            Some(call) if !is_described(&api, &call) => wrong.push(format!("`lattice {line}` is told with {call:?}")),
            None if !is_without && !has_open_verb(line) => wrong.push(format!("`lattice {line}` has no request")),
            Some(_) | None => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every command of the tree, with `x` for each argument that it must have.
fn leaves(command: &clap::Command, line: &str, found: &mut Vec<String>) {
    for one in command.get_subcommands() {
        let mut line = format!("{line} {}", one.get_name());
        if one.has_subcommands() {
            leaves(one, &line, found);
            continue;
        }
        for _ in one.get_positionals().filter(|argument| argument.is_required_set()) {
            line.push_str(" x");
        }
        found.push(line);
    }
}

#[test]
fn no_command_is_told_with_a_request_that_there_is_not() {
    let text = std::fs::read_to_string(root().join("api/openapi.json")).unwrap();
    let api: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut lines = Vec::new();
    leaves(&Arguments::command(), "lattice", &mut lines);
    let calls: Vec<_> = lines.iter().filter_map(|line| Some((line, call_of(line)?))).collect();
    assert!(calls.len() > 60, "{} of {} commands have a request", calls.len(), lines.len());
    for (line, call) in calls {
        assert!(is_described(&api, &call), "`{line}` is told with {call:?}");
        let reads =
            ["list", "show", "get", "status", "watch", "timeline", "history", "tasks", "task", "explain", "log"];
        let is_read = line.split(' ').any(|word| reads.contains(&word));
        assert!(!is_read || call.method == "GET", "`{line}` only reads, and is told with {call:?}");
    }
}
