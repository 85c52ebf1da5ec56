//! Notices of State Managers: public, since State Manager cannot sign; each site has a secret address. What a notice says
//! is not read: it has State Manager read a moment earlier, and nothing else.

use axum::body::Body;
use axum::extract::{Path, State};
use http::StatusCode;
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::SiteId;
use lattice_workflow::components::Verified;

use super::App;
use super::extract::read;
use crate::auth::{Payer, Rate};
use crate::error::{Answer, Refusal};

/// Largest notice, in bytes: one that names a thousand components has 20,000.
const LARGEST: usize = 64 * 1_024;

/// Notices that are looked at, of all sites together: more of them bring no earlier look.
pub const NOTICES: Rate = Rate { per_second: 20, burst: 100 };

/// Takes a notice. Whoever does not know the address learns nothing: not even whether there is such a site.
pub async fn of_openchami(
    State(app): State<App>,
    Path((site, key)): Path<(String, String)>,
    body: Body,
) -> Answer<StatusCode> {
    let now = app.clock.now();
    if let Err(wait) = app.notices_rate.take(Payer::Strangers, now) {
        app.metrics.notice("limited");
        let seconds = wait.as_secs() + 1;
        return Err(Refusal::new(Code::RateLimited, "too many notices")
            .next(NextAction::WaitUntil { until: now + wait, waiting_for: "the next allowance".to_owned() })
            .retry_after_s(seconds));
    }
    if let Err(refusal) = read(body, LARGEST).await {
        app.metrics.notice("unread");
        return Err(refusal);
    }
    let unknown = || {
        app.metrics.notice("unknown");
        Refusal::new(Code::NotFound, "there is no such address for notices")
    };
    let site: SiteId = site.parse().map_err(|_| unknown())?;
    if app.store.site(site).await?.is_none() {
        return Err(unknown());
    }
    let came = app.notices.came(&*app.secrets, site, &key, now).await;
    match came.map_err(|error| Refusal::explained(&error))? {
        Verified::Unknown => Err(unknown()),
        Verified::Taken => {
            app.metrics.notice("taken");
            Ok(StatusCode::NO_CONTENT)
        }
    }
}
