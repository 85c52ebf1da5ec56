//! A machine that booted from the network takes its enrolment token: who it is, its address tells. Pure decision.
//!
//! A boot script can be read by anybody, so it holds no secret. The token is made while the machine's power is seen to be
//! off, so that nothing that ran there before can take it, and is handed to an address that State Manager has for the
//! machine, until it was used. design: 4 "Identity and transport"

use std::net::IpAddr;

use crate::change::{Change, Resource};
use crate::credential::{EnrollmentToken, TokenRefused};
use crate::job::{Job, JobStatus};
use crate::node::Node;
use crate::time::Timestamp;

/// Why nothing is handed over. A stranger is told none of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRefused {
    /// No job boots the node from the network now.
    #[error("no job boots it now")]
    NotBooting,
    /// The address is none of the machine's.
    #[error("{peer} is none of its addresses, which are {}", addresses.join(", "))]
    Foreign {
        /// Who asks.
        peer: IpAddr,
        /// Whose it would be.
        addresses: Vec<String>,
    },
    /// Its token cannot be used any more.
    #[error(transparent)]
    Token(#[from] TokenRefused),
}

/// What is known when somebody asks for a node's token.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The node.
    pub node: &'a Node,
    /// The job that owns it.
    pub job: Option<&'a Job>,
    /// The token that the job made last.
    pub token: Option<&'a EnrollmentToken>,
    /// From where it is asked for.
    pub peer: IpAddr,
}

/// Whether the token may be handed over.
///
/// # Errors
/// No job boots the node, somebody else asks, or the token was used, withdrawn or is expired.
pub fn claimable<'a>(claim: &Claim<'a>, now: Timestamp) -> Result<&'a EnrollmentToken, ClaimRefused> {
    let live = claim.job.filter(|job| matches!(job.state.status, JobStatus::Running) && job.node == claim.node.id);
    let netboot = live.and_then(|job| job.outputs.netboot.as_ref()).ok_or(ClaimRefused::NotBooting)?;
    let is_its = |address: &String| address.parse::<IpAddr>().is_ok_and(|address| address == claim.peer.to_canonical());
    if !netboot.addresses.iter().any(is_its) {
        return Err(ClaimRefused::Foreign { peer: claim.peer, addresses: netboot.addresses.clone() });
    }
    let token = claim.token.ok_or(ClaimRefused::NotBooting)?;
    token.check(claim.node.id, now)?;
    Ok(token)
}

/// That it was handed over, for the record.
pub fn claimed(claim: &Claim<'_>) -> Change {
    Change::Note {
        name: "node.enrollment.claimed".to_owned(),
        resource: Resource::Node(claim.node.id),
        detail: format!(
            "{} booted from the network and took its enrolment token from {}",
            claim.node.hostname, claim.peer
        ),
    }
}
