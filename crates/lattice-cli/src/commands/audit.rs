//! `lattice audit`: who did what, and proof that nobody changed it afterwards.

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lattice_api::audit::{AuditEntry, AuditQuery, AuditVerification};
use lattice_api::client::get;
use lattice_api::page::Page;
use lattice_server::audit_verify;

use crate::arguments::Global;
use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown};
use crate::paging::Paging;
use crate::session::{Answer, Session};
use crate::{clock, output::Format};

/// What can be done with the audit.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List rows of the audit, newest first
    List(List),
    /// Write the whole audit as JSON lines, to be verified elsewhere
    Export(Export),
    /// Recompute the hash chain: of an export, without a server, or of the server itself
    Verify(Verify),
}

/// Which rows.
#[derive(Debug, Args)]
pub struct List {
    /// Only rows about one thing: node ID, job ID, site ID
    #[arg(long, value_names = ["KIND", "ID"], num_args = 2)]
    about: Option<Vec<String>>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// Where to write.
#[derive(Debug, Args)]
pub struct Export {
    /// File to write; stdout when absent
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// What to verify.
#[derive(Debug, Args)]
pub struct Verify {
    /// An export; without it the server verifies its own audit
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Hash of the last row as it was noted elsewhere: shows that none was cut off
    #[arg(long, value_name = "HASH", requires = "file")]
    head: Option<String>,
}

impl Command {
    /// Whether it works without a server.
    pub const fn is_local(&self) -> bool {
        match self {
            Self::List(_) | Self::Export(_) => false,
            Self::Verify(verify) => verify.file.is_some(),
        }
    }
}

/// Runs one of them with a server.
///
/// # Errors
/// Refused, or the chain is broken.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(list) => {
            let page = list.page.query();
            let mut about = list.about.unwrap_or_default().into_iter();
            let (resource_kind, resource_id) = (about.next(), about.next());
            let query = AuditQuery { cursor: page.cursor, limit: page.limit, resource_kind, resource_id };
            session.show::<Page<AuditEntry>>(get(&["audit"]).query(&query)).await
        }
        Command::Export(export) => self::export(export, session).await,
        Command::Verify(_) => {
            let answer = session.ask::<AuditVerification>(get(&["audit", "verify"])).await?;
            session.print(&answer)?;
            judged(&answer.value)
        }
    }
}

/// Runs one of them without a server.
///
/// # Errors
/// The file cannot be read, or the chain in it is broken.
pub fn run_local(command: Command, global: &Global) -> Result<(), Failure> {
    let Command::Verify(Verify { file: Some(path), head }) = command else {
        return Err(Failure::unexpected("this command needs a server"));
    };
    let verification = verify(&path, head.as_deref())?;
    let body = serde_json::to_vec(&verification).unwrap_or_default();
    let format = if global.wide { Format::Wide } else { global.output };
    let look = Look { wide: global.wide, now_ms: clock::now_millis() };
    output::print(format, &Answer { body: body.into(), value: verification.clone() }, look)?;
    judged(&verification)
}

fn verify(path: &Path, head: Option<&str>) -> Result<AuditVerification, Failure> {
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::refused(format!("cannot read {}", path.display())).because(error.to_string()))?;
    let (rows, last, problem) = match audit_verify(BufReader::new(file)) {
        Ok(summary) => {
            let cut = head.filter(|head| *head != summary.last_hash);
            let problem = cut.map(|head| format!("the last row has not the hash {head}: rows are missing at the end"));
            (summary.rows, summary.last_hash, problem)
        }
        Err(broken) => (0, String::new(), Some(broken.to_string())),
    };
    Ok(AuditVerification { ok: problem.is_none(), rows, head: last, problem })
}

fn judged(verification: &AuditVerification) -> Result<(), Failure> {
    if verification.ok {
        return Ok(());
    }
    let failure = Failure::refused("the audit is not as it was written");
    Err(verification.problem.iter().cloned().fold(failure, Failure::because))
}

async fn export(export: Export, session: &Session) -> Result<(), Failure> {
    let body = session.client.send_raw(get(&["audit", "export"])).await?;
    let Some(path) = export.to else { return output::data(&body) };
    let written = std::fs::File::create(&path).and_then(|mut file| {
        file.write_all(&body)?;
        file.sync_all()
    });
    written.map_err(|error| Failure::refused(format!("cannot write {}", path.display())).because(error.to_string()))?;
    eprintln!("verify it anywhere: lattice audit verify {}", path.display());
    Ok(())
}

impl Row for AuditEntry {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["SEQ", "AT", "BY", "ACTION", "ABOUT", "RESULT", "REASON"];
        if wide {
            head.extend(["ROLE", "BEFORE", "AFTER", "CORRELATION", "HASH"]);
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let mut cells = vec![
            self.seq.to_string(),
            self.at.to_string(),
            self.actor.clone(),
            self.action.clone(),
            format!("{} {}", self.resource_kind, self.resource_id),
            self.result.clone(),
            self.reason.clone(),
        ];
        if look.wide {
            let hash = self.hash.chars().take(12).collect();
            cells.extend([
                self.role.clone(),
                self.before.to_string(),
                self.after.to_string(),
                self.correlation.clone(),
                hash,
            ]);
        }
        cells
    }

    fn name(&self) -> String {
        self.seq.to_string()
    }
}

impl Shown for AuditVerification {
    fn text(&self, _: Look) -> String {
        if self.ok { format!("intact: {} rows, last hash {}\n", self.rows, self.head) } else { "broken\n".to_owned() }
    }

    fn names(&self) -> Vec<String> {
        vec![if self.ok { "intact".to_owned() } else { "broken".to_owned() }]
    }
}
