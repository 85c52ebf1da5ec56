//! `lattice site brake`: what the loss of nodes does to running work is held back. design: 2-state-model "Brake"

use std::time::Duration;

use clap::Args;
use lattice_api::client::post;
use lattice_api::site::{PullBrake, SiteView};

use crate::failure::Failure;
use crate::session::{Session, request};
use crate::span;
use crate::vocabulary::pair;

/// A brake to pull, or to let go.
#[derive(Debug, Args)]
pub struct Brake {
    /// Name or id
    site: String,
    /// For how long, at most a day: 10m, 2h
    #[arg(long = "for", value_name = "SPAN", value_parser = span::parse, required_unless_present = "release")]
    span: Option<Duration>,
    /// Only for nodes with this label, such as rack=c07
    #[arg(long = "selector", value_name = "NAME=VALUE", value_parser = pair, conflicts_with = "release")]
    selector: Vec<(String, String)>,
    /// Let go instead: everything that a brake holds back at the site counts as lost now
    #[arg(long, conflicts_with = "span")]
    release: bool,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// Pulls it, or lets go.
///
/// # Errors
/// Refused, or not confirmed.
pub async fn run(brake: Brake, session: &Session) -> Result<(), Failure> {
    let Some(span) = brake.span else {
        let effect = "running allocations of nodes that are down will be requeued or failed";
        session.confirm(&format!("let go of the brake of site {}", brake.site), effect)?;
        let call = request(reqwest::Method::DELETE, &["sites", &brake.site, "brake"]);
        return session.show::<SiteView>(call).await;
    };
    let body = PullBrake {
        for_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
        selector: brake.selector.into_iter().collect(),
        reason: brake.reason,
    };
    session.show::<SiteView>(post(&["sites", &brake.site, "brake"]).json(&body)).await
}
