//! What belongs to one machine only must not be in the repository: its paths, its registries.

use std::path::{Path, PathBuf};

use super::Finding;
use crate::repository::{Repository, SourceFile};

/// The only registry that a lock file may name.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all files against the paths and registries of the machine that runs the check.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = check_lock(&repository.files);
    findings.extend(check_paths(&repository.files, &machine_paths(&repository.root)));
    findings.extend(check_paths(&repository.files, &registry_hosts()));
    findings
}

fn check_lock(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("Cargo.lock")) {
        for (index, line) in file.text.lines().enumerate() {
            let source = line.strip_prefix("source = ").map(|source| source.trim_matches('"'));
            if let Some(source) = source.filter(|source| *source != REGISTRY) {
                findings.push(Finding::at(&file.path, index + 1, format!("{source} is not the public registry")));
            }
        }
    }
    findings
}

fn check_paths(files: &[SourceFile], forbidden: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            for text in forbidden.iter().filter(|text| line.contains(text.as_str())) {
                findings.push(Finding::at(&file.path, index + 1, format!("`{text}` exists on one machine only")));
            }
        }
    }
    findings
}

/// Where this checkout, cargo's home and the target folder lie. Paths of one part (`/root`) are too common a word.
fn machine_paths(root: &Path) -> Vec<String> {
    let mut paths = vec![root.to_owned()];
    paths.extend(
        ["CARGO_TARGET_DIR", "CARGO_HOME", "RUSTUP_HOME"].iter().filter_map(std::env::var_os).map(PathBuf::from),
    );
    paths.extend(std::env::home_dir().map(|home| home.join(".cargo")));
    let mut texts: Vec<String> = paths
        .iter()
        .filter(|path| path.is_absolute() && path.components().count() > 2)
        .map(|path| path.display().to_string())
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Hosts of the registries that cargo's own configuration of this machine replaces the public one with.
fn registry_hosts() -> Vec<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let Some(text) = home.and_then(|home| std::fs::read_to_string(home.join("config.toml")).ok()) else {
        return Vec::new();
    };
    hosts_of(&text)
}

fn hosts_of(config: &str) -> Vec<String> {
    let urls = config.split('"').filter(|text| text.contains("://"));
    let hosts = urls.filter_map(|url| {
        let rest = url.split_once("://")?.1;
        let host = rest.split('/').next()?;
        Some(host.rsplit('@').next()?.to_owned())
    });
    hosts.filter(|host| !host.is_empty() && host != "github.com" && !host.ends_with("crates.io")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_with_another_registry_is_found() {
        let lock = format!("source = \"{REGISTRY}\"\nsource = \"registry+https://mirror.example/index\"\n");
        let found = check_lock(&[SourceFile::new("Cargo.lock", &lock)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        let paths = machine_paths(Path::new("/srv/checkout"));
        let found = check_paths(&[SourceFile::new("README.md", "run\ncd /srv/checkout/crates\n")], &paths);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn hosts_of_a_replaced_registry_are_known() {
        let config = "[source.mirror]\nregistry = \"sparse+https://user@mirror.example/index/\"\n";
        assert_eq!(hosts_of(config), ["mirror.example"]);
        assert!(hosts_of("registry = \"https://index.crates.io/\"").is_empty());
    }
}
