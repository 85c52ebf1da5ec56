//! A new bootstrap command: for a host that has not come yet, or that lost its identity.

use super::create::DrawnToken;
use super::node::Known;
use super::{Planned, Refused, Request};
use crate::change::{Change, Guard};
use crate::credential::EnrollmentToken;
use crate::ids::{Generation, TokenId};
use crate::node::{OnboardingMode, Status};

/// Issues a new token; every one of `tokens` that could still be used is withdrawn in the same commit.
///
/// A host that was away for longer than its certificate lives, or whose certificates were revoked, comes back by this,
/// however it was onboarded. design: 4-agent-and-operations "certificate-only repair"
///
/// # Errors
/// A provider's onboarding brings the host its token, or the node is being removed.
pub fn reissue(
    known: &Known,
    request: &Request,
    tokens: &[EnrollmentToken],
    drawn: &DrawnToken,
) -> Result<Planned, Refused> {
    let node = known.node;
    let may_enrol = match node.state.status {
        Status::BootstrapIssued | Status::Enrolling => node.mode == OnboardingMode::Manual,
        Status::Active | Status::Offline | Status::Quarantined | Status::Draining | Status::Retired => true,
        Status::Removing | Status::Deleted => false,
    };
    if !may_enrol {
        return Err(Refused::NotBootstrapping { hostname: node.hostname.clone(), state: node.state });
    }
    let usable = tokens.iter().filter(|token| token.used_at.is_none() && token.revoked_at.is_none());
    let mut changes: Vec<Change> = usable
        .map(|token| {
            Change::EnrollmentToken(EnrollmentToken {
                revoked_at: Some(request.now),
                generation: token.generation.next(),
                ..token.clone()
            })
        })
        .collect();
    let job = known.job.map(|job| job.id).or(node.owning_job);
    changes.push(Change::EnrollmentToken(EnrollmentToken {
        id: TokenId::generate(request.ids, request.now),
        node: node.id,
        job,
        hash: drawn.hash.clone(),
        issued_at: request.now,
        expires_at: request.now + std::time::Duration::from_secs(drawn.ttl_seconds),
        used_at: None,
        key_hash: None,
        refreshes: 0,
        revoked_at: None,
        generation: Generation::FIRST,
    }));
    let guards = vec![Guard::NodeGeneration { node: node.id, have: node.generation }];
    Ok(Planned { commit: request.commit(guards, changes), node: node.id, job, effects: Vec::new() })
}
