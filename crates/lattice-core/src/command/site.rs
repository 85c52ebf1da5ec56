//! What operators tell a site besides its settings: the brake, and which fingerprints its nodes may have.

use super::{Refused, Request};
use crate::change::{Change, Commit, Resource};
use crate::node::label::{self, Labels};
use crate::site::{ApprovedFingerprint, Site, SiteBrake};
use crate::sku::Sku;
use crate::time::{Timestamp, human};

/// Longest time that a brake may be pulled for: a day.
const LONGEST_BRAKE: std::time::Duration = std::time::Duration::from_secs(86_400);
/// Most fingerprints of a site.
const MOST_APPROVED: usize = 1_000;
/// Longest fingerprint, in bytes.
const LONGEST_FINGERPRINT: usize = 256;

/// Pulls the brake: until then, what Down does to running work of the site's nodes is held back. One that is pulled
/// already is replaced. design: 2-state-model "Brake"
///
/// # Errors
/// The end does not lie within a day from now; a label cannot be right.
pub fn brake(request: &Request, site: &Site, selector: &Labels, until: Timestamp) -> Result<Commit, Refused> {
    if until <= request.now || until.since(request.now) > LONGEST_BRAKE {
        let problem = format!("must lie in the future, at most {} away", human(LONGEST_BRAKE));
        return Err(Refused::Invalid { field: "until", problem });
    }
    label::check(selector).map_err(|problem| Refused::Invalid { field: "selector", problem })?;
    let brake = SiteBrake {
        until,
        selector: selector.clone(),
        by: request.actor.clone(),
        reason: request.reason.clone(),
        since: request.now,
    };
    let whom = match selector.is_empty() {
        true => "all of its nodes".to_owned(),
        false => {
            let pairs: Vec<String> = selector.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("its nodes with {}", pairs.join(", "))
        }
    };
    let detail = format!("what the loss of {whom} brings is held back until {until}: {}", request.reason);
    let after = Site { brake: Some(brake), ..successor(site, request.now) };
    Ok(told(request, after, "site.brake_pulled", detail))
}

/// Lets go: the brake by hand ends, and everything at the site that a brake of either kind holds back counts as lost now.
pub fn let_go(request: &Request, site: &Site) -> Commit {
    let after = Site { brake: None, let_go_at: Some(request.now), ..successor(site, request.now) };
    let detail = format!("what a brake held back counts as lost: {}", request.reason);
    told(request, after, "site.brake_released", detail)
}

/// Approves a fingerprint for the site's nodes of a SKU. None: it is approved already.
///
/// A SKU may have several at one site: profiles install different systems.
///
/// # Errors
/// The fingerprint cannot be one, or there are too many.
pub fn approve(request: &Request, site: &Site, sku: &Sku, fingerprint: &str) -> Result<Option<Commit>, Refused> {
    let fine =
        (1..=LONGEST_FINGERPRINT).contains(&fingerprint.len()) && fingerprint.chars().all(|c| c.is_ascii_graphic());
    if !fine {
        let problem =
            format!("must be 1 to {LONGEST_FINGERPRINT} printable characters, as `lattice node get` shows it");
        return Err(Refused::Invalid { field: "fingerprint", problem });
    }
    if find(site, &sku.name, fingerprint).is_some() {
        return Ok(None);
    }
    if site.approved.len() >= MOST_APPROVED {
        let problem = format!("cannot be approved: the site has {MOST_APPROVED} of them; withdraw old ones first");
        return Err(Refused::Invalid { field: "fingerprint", problem });
    }
    let mut after = successor(site, request.now);
    after.approved.push(ApprovedFingerprint {
        sku: sku.name.clone(),
        fingerprint: fingerprint.to_owned(),
        by: request.actor.clone(),
        reason: request.reason.clone(),
        at: request.now,
    });
    let detail = format!("{} may have {fingerprint}: {}", sku.name, request.reason);
    Ok(Some(told(request, after, "site.fingerprint_approved", detail)))
}

/// Takes an approval back. With the last of a SKU its nodes are not judged any more.
///
/// # Errors
/// It is not approved.
pub fn withdraw(request: &Request, site: &Site, sku: &str, fingerprint: &str) -> Result<Commit, Refused> {
    if find(site, sku, fingerprint).is_none() {
        let problem = format!("is not approved for {sku} at {}", site.name);
        return Err(Refused::Invalid { field: "fingerprint", problem });
    }
    let mut after = successor(site, request.now);
    after.approved.retain(|one| one.sku != sku || one.fingerprint != fingerprint);
    let detail = format!("{sku} may not have {fingerprint} any more: {}", request.reason);
    Ok(told(request, after, "site.fingerprint_withdrawn", detail))
}

fn find<'a>(site: &'a Site, sku: &str, fingerprint: &str) -> Option<&'a ApprovedFingerprint> {
    site.approved.iter().find(|one| one.sku == sku && one.fingerprint == fingerprint)
}

fn successor(site: &Site, now: Timestamp) -> Site {
    Site { generation: site.generation.next(), updated_at: now, ..site.clone() }
}

fn told(request: &Request, after: Site, name: &str, detail: String) -> Commit {
    let note = Change::Note {
        name: name.to_owned(),
        resource: Resource::Site(after.id),
        detail: detail.trim_end_matches([':', ' ']).to_owned(),
    };
    request.commit(Vec::new(), vec![Change::Site(Box::new(after)), note])
}
