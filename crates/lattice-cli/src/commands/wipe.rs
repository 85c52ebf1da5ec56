//! `lattice wipe`: devices that were wiped, and the certificates that prove it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::node::Reason;
use lattice_api::page::Page;
use lattice_api::wipe::{CertificateFile, NotProven, TaskKey, WipeKeys, WipeQuery, WipeRow, check_keys};
use serde::{Deserialize, Serialize};

use crate::arguments::Global;
use crate::clock;
use crate::failure::Failure;
use crate::output::{self, Format, Look, Row, Shown, facts, table};
use crate::paging::Paging;
use crate::session::{Answer, Session};

/// What can be done with wiped devices.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List wiped devices, newest first
    List(List),
    /// Show what a certificate says
    #[command(alias = "show")]
    Get(One),
    /// Write a certificate to a file that anybody can verify
    Certificate(Save),
    /// Check a certificate, without a server: not one byte of it was changed
    Verify(Verify),
    /// Show the keys that sign certificates, or write them to a file for `verify --key`
    Keys(Keys),
    /// Sign certificates with a new key from now on; those that were signed stay what they are
    RotateKey(Rotate),
}

/// Which devices.
#[derive(Debug, Args)]
pub struct List {
    /// Only those of this node, by hostname or id
    #[arg(long)]
    node: Option<String>,
    /// Only the device with this serial number, whichever node it was in
    #[arg(long)]
    serial: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// One certificate.
#[derive(Debug, Args)]
pub struct One {
    /// Its id
    certificate: String,
}

/// One certificate, and where to.
#[derive(Debug, Args)]
pub struct Save {
    /// Its id
    certificate: String,
    /// File to write; it must not be there
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// What to check, and against what.
#[derive(Debug, Args)]
pub struct Verify {
    /// The certificate
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Keys that are trusted, as `lattice wipe keys --out FILE` wrote them; without it the key in the file itself is used, which
    /// shows that nothing was changed, and not who signed
    #[arg(long = "key", value_name = "FILE")]
    keys: Option<PathBuf>,
}

/// Where to write keys.
#[derive(Debug, Args)]
pub struct Keys {
    /// File to write; it must not be there
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Why.
#[derive(Debug, Args)]
pub struct Rotate {
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// Runs one of them with a server.
///
/// # Errors
/// Refused, or a file cannot be written.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(list) => {
            let page = list.page.query();
            let query = WipeQuery { cursor: page.cursor, limit: page.limit, serial: list.serial };
            let call = match &list.node {
                Some(node) => get(&["nodes", node, "wipes"]),
                None => get(&["wipes"]),
            };
            session.show::<Page<WipeRow>>(call.query(&query)).await
        }
        Command::Get(one) => session.show::<CertificateFile>(get(&["wipes", &one.certificate])).await,
        Command::Certificate(save) => {
            let file = session.ask::<CertificateFile>(get(&["wipes", &save.certificate])).await?.value;
            write(&save.out, &file.text())?;
            eprintln!("check it anywhere: lattice wipe verify {} --key KEYS", save.out.display());
            eprintln!("KEYS is what `lattice wipe keys --out KEYS` wrote; keep it apart from the certificates");
            Ok(())
        }
        Command::Keys(keys) => match keys.out {
            None => session.show::<WipeKeys>(get(&["wipe-signing-keys"])).await,
            Some(path) => {
                let keys = session.ask::<WipeKeys>(get(&["wipe-signing-keys"])).await?.value;
                let mut text = serde_json::to_string_pretty(&keys).unwrap_or_default();
                text.push('\n');
                write(&path, &text)
            }
        },
        Command::RotateKey(rotate) => {
            let reason = Reason { reason: rotate.reason };
            session.show::<WipeKeys>(post(&["wipe-signing-keys", "rotate"]).json(&reason)).await
        }
        Command::Verify(_) => Err(Failure::unexpected("this command needs no server")),
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Verified {
    /// Not one byte was changed since it was signed.
    intact: bool,
    /// One of the trusted keys signed it; false: no keys were given.
    trusted: bool,
    /// The key that signed it.
    key_id: String,
    /// What is certified.
    certificate: lattice_api::wipe::WipeCertificate,
}

/// Checks a certificate without a server.
///
/// # Errors
/// It was changed, or another key than a trusted one signed it: what does not fit is named.
pub fn verify(verify: &Verify, global: &Global) -> Result<(), Failure> {
    let name = verify.file.display().to_string();
    let text = read(&verify.file)?;
    let refused = |why: NotProven| Failure::refused(format!("{name} proves nothing")).because(why.to_string());
    let file = CertificateFile::verify(&text).map_err(refused)?;
    let known = verify.keys.as_deref().map(keys_of).transpose()?;
    if let Some(known) = &known {
        check_keys(&file, known).map_err(|why| {
            refused(why).next("lattice wipe keys", "shows the keys of an installation, those of before included")
        })?;
    }
    let value =
        Verified { intact: true, trusted: known.is_some(), key_id: file.key_id(), certificate: file.certificate };
    let body = serde_json::to_vec(&value).unwrap_or_default();
    let format = if global.wide { Format::Wide } else { global.output };
    let look = Look { wide: global.wide, now_ms: clock::now_millis() };
    output::print(format, &Answer { body: body.into(), value }, look)
}

fn keys_of(path: &Path) -> Result<Vec<TaskKey>, Failure> {
    let keys: WipeKeys = serde_json::from_slice(&read(path)?).map_err(|error| {
        Failure::refused(format!("{} holds no keys", path.display()))
            .because(error.to_string())
            .next("lattice wipe keys", "with --out FILE, writes such a file")
    })?;
    Ok(keys.keys)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::refused(format!("cannot read {}", path.display())).because(error.to_string()))
}

/// A file that is there is left alone: it may be the only copy of another certificate.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let written = std::fs::File::create_new(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| Failure::refused(format!("cannot write {}", path.display())).because(error.to_string()))
}

impl Row for WipeRow {
    fn head(wide: bool) -> Vec<&'static str> {
        let mut head = vec!["CERTIFICATE", "NODE", "ERASED", "DEVICE", "SERIAL", "METHOD", "AGE"];
        if wide {
            head.extend(["TOOL", "VERSION", "JOB", "KEY"]);
        }
        head
    }

    fn cells(&self, look: Look) -> Vec<String> {
        let mut cells = vec![
            self.id.to_string(),
            self.hostname.clone(),
            self.erased.to_string(),
            self.device.clone(),
            self.serial.clone(),
            self.method.clone(),
            look.age(self.confirmed_at.as_millis()),
        ];
        if look.wide {
            let [tool, version] = [&self.tool, &self.tool_version].map(Clone::clone);
            cells.extend([tool, version, self.job_id.to_string(), self.key_id.clone()]);
        }
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Shown for CertificateFile {
    fn text(&self, _: Look) -> String {
        let mut text = told(&self.certificate);
        text.push_str(&facts(&[("signed by key", self.key_id())]));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.certificate.id.to_string()]
    }
}

impl Shown for Verified {
    fn text(&self, _: Look) -> String {
        let head = match self.trusted {
            true => format!("proven: not one byte was changed, and the trusted key {} signed it\n", self.key_id),
            false => format!("intact: not one byte was changed since key {} signed it\n", self.key_id),
        };
        format!("{head}{}", told(&self.certificate))
    }

    fn names(&self) -> Vec<String> {
        vec![self.certificate.id.to_string()]
    }

    fn note(&self) -> Option<String> {
        (!self.trusted).then(|| {
            "who holds that key is not proven: it came with the file. Give --key FILE, written by `lattice wipe keys --out FILE`"
                .to_owned()
        })
    }
}

fn told(one: &lattice_api::wipe::WipeCertificate) -> String {
    let evidence = &one.evidence;
    let bytes = evidence.bytes.map_or_else(|| "the tool does not say".to_owned(), |bytes| bytes.to_string());
    facts(&[
        ("certificate", one.id.to_string()),
        ("node", format!("{} ({})", one.hostname, one.node)),
        ("erased", one.erased.to_string()),
        ("device", format!("{} {}", evidence.device, evidence.model).trim().to_owned()),
        ("serial", evidence.serial.clone()),
        ("bytes", bytes),
        ("method", evidence.method.clone()),
        ("tool", format!("{} {}, ended with {}", evidence.tool, evidence.tool_version, evidence.exit_code)),
        ("before", evidence.status_before.clone()),
        ("after", evidence.status_after.clone()),
        ("from", evidence.started_at.to_string()),
        ("to", evidence.finished_at.to_string()),
        ("host had", one.inventory.iter().cloned().collect::<Vec<_>>().join(", ")),
        ("left as it was", one.kept.iter().cloned().collect::<Vec<_>>().join(", ")),
        ("booted since", format!("{} -> {}", one.boot_before, one.boot_after)),
        ("confirmed", one.confirmed_at.to_string()),
        ("job", one.job.to_string()),
        ("task", one.task.to_string()),
    ])
}

impl Shown for WipeKeys {
    fn text(&self, _: Look) -> String {
        let state = |at: usize| if at == 0 { "signs" } else { "signed before" };
        let rows = self.keys.iter().enumerate();
        let rows = rows.map(|(at, key)| vec![key.key_id.clone(), state(at).to_owned(), key.public_key.clone()]);
        table(&["KEY", "STATE", "PUBLIC KEY"], rows)
    }

    fn names(&self) -> Vec<String> {
        self.keys.iter().map(|key| key.key_id.clone()).collect()
    }
}
