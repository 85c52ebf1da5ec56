//! OpenCHAMI: the client against real services and simulated ones, held against each other; jobs at such a site with a
//! crash at every place; a whole server with it. Real smd and bss where the environment names them (`LATTICE_TEST_SMD`,
//! `LATTICE_TEST_BSS`): `tests/peers/ochami/start.sh` starts them.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod client;
mod components;
#[path = "../../../lattice-workflow/tests/harness/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of jobs at other sites")]
mod harness;
mod jobs;
mod live;
mod power;

use std::sync::Arc;

use lattice_providers::machine::maas::Roots;
use lattice_providers::machine::openchami::{OchamiClient, OchamiSettings, Xname};
use lattice_sim::clock::SystemClock;

/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:9";

fn client(smd: &str, bss: &str, pcs: Option<String>) -> OchamiClient {
    let settings = OchamiSettings { smd: smd.to_owned(), bss: bss.to_owned(), pcs, roots: Roots::System };
    OchamiClient::new(settings, None, Arc::new(SystemClock)).unwrap()
}

/// The addresses of real smd and bss, if there are any.
fn real() -> Option<[String; 2]> {
    match (std::env::var("LATTICE_TEST_SMD"), std::env::var("LATTICE_TEST_BSS")) {
        (Ok(smd), Ok(bss)) => Some([smd, bss]),
        (_, _) => {
            eprintln!("skipped: LATTICE_TEST_SMD and LATTICE_TEST_BSS name no OpenCHAMI");
            None
        }
    }
}

fn xname(text: &str) -> Xname {
    Xname::parse(text).unwrap()
}
