//! Programs of this workspace that are measured as they are shipped.

use std::path::PathBuf;

use crate::failure::{Failure, at, wrong};

/// The program `name`, built beside this one by `./bench`.
///
/// # Errors
/// It is not there.
pub fn built(name: &str, package: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(at("find this program"))?;
    let path = own.with_file_name(name);
    if path.exists() {
        return Ok(path);
    }
    let missing = format!("{} is not there: run `./bench`, or `cargo build --release -p {package}`", path.display());
    Err(wrong("find a program", missing))
}
