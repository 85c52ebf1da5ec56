//! `lattice backup`: one file with everything but the secrets, read back here before it gets its name.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use lattice_api::client::get;

use crate::arguments::Global;
use crate::failure::Failure;
use crate::session::Session;

/// Options of `lattice backup`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// File to write; it must not be there yet
    to: PathBuf,
}

/// Downloads a backup of one moment while the server goes on.
///
/// # Errors
/// Refused, the file is there already, or what arrived is damaged.
pub async fn run(arguments: Arguments, global: &Global) -> Result<(), Failure> {
    let to = arguments.to;
    if to.exists() {
        return Err(Failure::refused(format!("{} is there already", to.display()))
            .next("", "give a name that is free: a backup never replaces another"));
    }
    let session = Session::open(global)?;
    let body = session.client.send_raw(get(&["backup"])).await?;
    let mut partial = to.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let unwritable = |error: std::io::Error| Failure::refused(format!("{} cannot be written: {error}", to.display()));
    write(&partial, &body).map_err(unwritable)?;
    let summary = lattice_server::check_backup(&partial).map_err(|error| {
        // The damaged file is of no use to anybody; that it stays is no harm either.
        let _left = std::fs::remove_file(&partial);
        Failure::unexpected(format!("what arrived is not a good backup: {error}")).next("", "try again")
    })?;
    std::fs::rename(&partial, &to).map_err(unwritable)?;
    println!(
        "{}: {} nodes, {} jobs, {} events, {} audit rows with an intact chain, {} bytes",
        to.display(),
        summary.nodes,
        summary.jobs,
        summary.events,
        summary.audit_rows,
        summary.bytes
    );
    eprintln!(
        "Secrets are not in it: keep secrets.enc and secrets.key of the data directory as well, apart from each other."
    );
    Ok(())
}

fn write(path: &Path, body: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(body)?;
    file.sync_all()
}
