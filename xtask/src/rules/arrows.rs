//! Which of our crates may depend on which. design: 1-architecture "Crates"

use super::Finding;
use crate::repository::{SourceFile, Unreadable};

/// One row of the table: a crate and what it may depend on, of ours. Dev-dependencies are free.
const ALLOWED: &[(&str, &[&str])] = &[
    ("lattice-core", &[]),
    ("lattice-planner", &["lattice-core"]),
    ("lattice-api", &["lattice-core"]),
    ("lattice-store", &["lattice-core"]),
    ("lattice-providers", &["lattice-core"]),
    ("lattice-workflow", &["lattice-core", "lattice-store", "lattice-providers"]),
    ("lattice-controllers", &["lattice-core", "lattice-planner", "lattice-store", "lattice-providers"]),
    (
        "lattice-server",
        &[
            "lattice-core",
            "lattice-planner",
            "lattice-api",
            "lattice-store",
            "lattice-providers",
            "lattice-workflow",
            "lattice-controllers",
        ],
    ),
    ("lattice-agent", &["lattice-core", "lattice-api"]),
    (
        "lattice-sim",
        &[
            "lattice-core",
            "lattice-planner",
            "lattice-api",
            "lattice-store",
            "lattice-providers",
            "lattice-workflow",
            "lattice-controllers",
            "lattice-server",
            "lattice-agent",
        ],
    ),
    ("lattice-cli", &["lattice-api", "lattice-server", "lattice-sim"]),
    (
        "lattice-bench",
        &[
            "lattice-core",
            "lattice-planner",
            "lattice-api",
            "lattice-store",
            "lattice-providers",
            "lattice-workflow",
            "lattice-controllers",
            "lattice-server",
            "lattice-agent",
            "lattice-sim",
        ],
    ),
    ("xtask", &["lattice-core"]),
];

/// Holds every manifest against the table.
///
/// # Errors
/// When a manifest is not TOML.
pub fn check(files: &[SourceFile]) -> Result<Vec<Finding>, Unreadable> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let manifest: toml::Table = toml::from_str(&file.text)
            .map_err(|source| Unreadable::Toml { path: file.path.clone(), source: Box::new(source) })?;
        let Some(name) = manifest.get("package").and_then(|package| package.get("name")).and_then(|n| n.as_str())
        else {
            continue;
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(row, _)| *row == name) else {
            findings.push(Finding::in_file(
                &file.path,
                format!("`{name}` is not in the table of crates: add a row to xtask/src/rules/arrows.rs"),
            ));
            continue;
        };
        for dependency in dependencies(&manifest) {
            if is_ours(&dependency) && !allowed.contains(&dependency.as_str()) {
                findings.push(Finding::in_file(
                    &file.path,
                    format!("`{name}` may not depend on `{dependency}`; allowed: {}", listed(allowed)),
                ));
            }
        }
    }
    Ok(findings)
}

fn is_ours(name: &str) -> bool {
    name.starts_with("lattice-") || name == "xtask"
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none of ours".to_owned() } else { names.join(", ") }
}

/// Names of the normal and build dependencies, those for one target included.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(|target| target.as_table()) {
        tables.extend(targets.values().filter_map(|target| target.as_table()));
    }
    let mut names = Vec::new();
    for table in tables {
        for kind in ["dependencies", "build-dependencies"] {
            if let Some(entries) = table.get(kind).and_then(|entries| entries.as_table()) {
                names.extend(entries.iter().map(|(key, value)| package(key, value)));
            }
        }
    }
    names
}

/// `alias = { package = "name" }` depends on `name`.
fn package(key: &str, value: &toml::Value) -> String {
    value.get("package").and_then(|name| name.as_str()).unwrap_or(key).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(manifest: &str) -> Vec<String> {
        let file = SourceFile::new("crates/x/Cargo.toml", manifest);
        check(&[file]).unwrap().into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_found() {
        let found =
            messages("[package]\nname = \"lattice-store\"\n[dependencies]\nlattice-workflow.workspace = true\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`lattice-store` may not depend on `lattice-workflow`"), "{found:?}");
    }

    #[test]
    fn an_arrow_behind_another_name_or_for_one_target_is_found() {
        let found = messages(
            "[package]\nname = \"lattice-api\"\n[target.'cfg(unix)'.dependencies]\ns = { package = \"lattice-sim\", path = \"\" }\n",
        );
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn dev_dependencies_are_free() {
        let found =
            messages("[package]\nname = \"lattice-server\"\n[dev-dependencies]\nlattice-sim.workspace = true\n");
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(messages("[package]\nname = \"lattice-extras\"\n").len(), 1);
    }
}
