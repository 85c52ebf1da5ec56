//! Makes a host run the agent: the bootstrap file, the trust, the service. What the one-line command ends with.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use lattice_api::agent::Bootstrap;

use crate::config::parse_bootstrap;
use crate::error::AgentError;
use crate::storage::replace;

/// The service as systemd reads it.
const UNIT: &str = include_str!("../../../deploy/lattice-agent.service");
/// Its name.
const SERVICE: &str = "lattice-agent.service";
/// As `UNIT` names them.
const UNIT_BOOTSTRAP: &str = "/etc/lattice/bootstrap.json";
const UNIT_AGENT: &str = "/usr/local/bin/lattice-agent";

/// What to install, and where.
#[derive(Debug, Clone)]
pub struct Install {
    /// Where the bootstrap file is, or is put: mode 0600, since it holds the token. The CA goes beside it.
    pub bootstrap: PathBuf,
    /// Content of the bootstrap file, when it is to be written.
    pub given: Option<Vec<u8>>,
    /// What keeps the agent running.
    pub keeper: Keeper,
    /// The host's root: `/`, but in tests.
    pub root: PathBuf,
}

/// What keeps the agent running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// systemd, where the host runs it.
    Systemd,
    /// Whoever asks: files alone are put in place.
    Caller,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// The service runs, and starts with the host.
    Serves,
    /// Files are in place; this command runs the agent.
    StartWith(String),
}

/// Puts everything in place. Running it again replaces what is there, and restarts the service.
///
/// # Errors
/// [`AgentError::Bootstrap`] when the bootstrap cannot be used: nothing was written then. [`AgentError::Storage`],
/// [`AgentError::Service`].
pub fn install(install: &Install) -> Result<Installed, AgentError> {
    let path = install.root.join(relative(&install.bootstrap));
    let text = match &install.given {
        Some(text) => text.clone(),
        None => std::fs::read(&path).map_err(|error| AgentError::Bootstrap {
            path: path.clone(),
            why: format!("{error}; run the line of `lattice node bootstrap NODE`, or give it with --from-stdin"),
        })?,
    };
    let bootstrap: Bootstrap = parse_bootstrap(&path, &text)?;
    replace(&path, &text, 0o600)?;
    replace(&path.with_file_name("ca.pem"), bootstrap.ca_pem.as_bytes(), 0o644)?;
    let by_hand = || format!("{UNIT_AGENT} run --bootstrap {}", install.bootstrap.display());
    match install.keeper {
        Keeper::Caller => Ok(Installed::StartWith(by_hand())),
        Keeper::Systemd if !install.root.join("run/systemd/system").is_dir() => Ok(Installed::StartWith(by_hand())),
        Keeper::Systemd => {
            let unit = UNIT.replace(UNIT_BOOTSTRAP, &install.bootstrap.display().to_string());
            replace(&install.root.join("etc/systemd/system").join(SERVICE), unit.as_bytes(), 0o644)?;
            serve()?;
            Ok(Installed::Serves)
        }
    }
}

/// Restarted rather than started: an agent of an earlier bootstrap must read the new one. One that was refused for good
/// and failed starts anew by this, too.
fn serve() -> Result<(), AgentError> {
    for words in [&["daemon-reload"][..], &["enable", "--quiet", SERVICE], &["restart", SERVICE]] {
        let command = format!("systemctl {}", words.join(" "));
        let failed = |why: String| AgentError::Service { command: command.clone(), why };
        let ended = Command::new("systemctl").args(words).output().map_err(|error| failed(error.to_string()))?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            return Err(failed(format!("{}: {}", ended.status, said.trim())));
        }
    }
    Ok(())
}

/// Below a root: without the leading slash, which would replace it.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Reads what is given on standard input, up to a bound: a bootstrap takes 2 kB.
///
/// # Errors
/// What the system says; more than 1 MiB.
pub fn read_given(input: impl io::Read) -> io::Result<Vec<u8>> {
    const MOST: u64 = 1 << 20;
    let mut text = Vec::new();
    let read = io::Read::read_to_end(&mut io::Read::take(input, MOST + 1), &mut text)?;
    if read as u64 > MOST {
        return Err(io::Error::other("more than 1 MiB was given as bootstrap"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GIVEN: &str = r#"{"server":"https://lattice:7443","node_id":"0190c2a4-7d1e-7c3a-9b1f-2f6d1c0a5e11","token":"lat_enroll_hush","ca_pem":"CA"}"#;

    fn plan(root: &Path, given: Option<&str>) -> Install {
        Install {
            bootstrap: PathBuf::from(UNIT_BOOTSTRAP),
            given: given.map(|text| text.as_bytes().to_vec()),
            keeper: Keeper::Systemd,
            root: root.to_owned(),
        }
    }

    #[test]
    fn files_are_put_in_place_and_the_start_is_named_where_no_systemd_runs() {
        let root = tempfile::tempdir().unwrap();
        let by_hand = Installed::StartWith(format!("{UNIT_AGENT} run --bootstrap {UNIT_BOOTSTRAP}"));
        assert_eq!(install(&plan(root.path(), Some(GIVEN))).unwrap(), by_hand);
        for (file, text, mode) in [("bootstrap.json", GIVEN, 0o600), ("ca.pem", "CA", 0o644)] {
            let path = root.path().join("etc/lattice").join(file);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{file}");
        }
        assert_eq!(install(&plan(root.path(), None)).unwrap(), by_hand, "what is in place is enough");
        assert!(!root.path().join("etc/systemd").exists());
    }

    #[test]
    fn a_bootstrap_that_cannot_be_used_is_not_written_and_not_shown() {
        let root = tempfile::tempdir().unwrap();
        let error = install(&plan(root.path(), Some(r#"{"token":"lat_enroll_hush"}"#))).unwrap_err().to_string();
        assert!(error.contains("bootstrap.json") && !error.contains("hush"), "{error}");
        assert!(!root.path().join("etc").exists());
        let missing = install(&plan(root.path(), None)).unwrap_err().to_string();
        assert!(missing.contains("lattice node bootstrap"), "{missing}");
    }

    #[test]
    fn the_unit_runs_what_the_command_installs_and_does_not_repeat_a_refusal() {
        for line in [
            "ExecStart=/usr/local/bin/lattice-agent run --bootstrap /etc/lattice/bootstrap.json --state-dir /var/lib/lattice",
            "KillMode=process",
            "RestartPreventExitStatus=1",
        ] {
            assert!(UNIT.lines().any(|one| one == line), "{line}");
        }
        assert!(UNIT.contains(UNIT_AGENT) && UNIT.contains(UNIT_BOOTSTRAP));
    }

    #[test]
    fn a_bootstrap_has_a_bound() {
        assert_eq!(read_given(&b"{}"[..]).unwrap(), b"{}");
        assert!(read_given(io::repeat(b' ')).is_err());
    }
}
