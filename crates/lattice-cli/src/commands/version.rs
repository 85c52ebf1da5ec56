//! `lattice version`: of this program, and of the server if one is known.

use lattice_api::client::Call;
use lattice_api::server::ServerHealth;

use crate::arguments::Global;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;

/// Prints both. A server that cannot be reached is said on stderr and is no failure.
///
/// # Errors
/// Stdout cannot be written.
pub async fn run(global: &Global) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    let server = match Session::open(global) {
        Ok(session) => asked(&session).await,
        Err(_) => None,
    };
    let text = match global.output {
        Format::Table | Format::Wide | Format::Name => match &server {
            Some((address, version)) => format!("lattice {own}\nserver {version} at {address}\n"),
            None => format!("lattice {own}\n"),
        },
        Format::Json | Format::Yaml => {
            let (address, version) = server.unzip();
            format!("{}\n", serde_json::json!({"version": own, "server": address, "server_version": version}))
        }
    };
    output::text(&text)
}

async fn asked(session: &Session) -> Option<(String, String)> {
    let call = Call::new(reqwest::Method::GET, "/healthz");
    match session.client.send::<ServerHealth>(call).await {
        Ok(health) => Some((session.server().to_owned(), health.version)),
        Err(error) => {
            eprintln!("{error}");
            None
        }
    }
}
