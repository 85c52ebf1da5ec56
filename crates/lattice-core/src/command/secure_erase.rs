//! Drives of a node, erased by its BMC: for a machine whose wipe failed, or that leaves. Pure.

use super::node::Known;
use super::{Planned, Refused, Request};
use crate::bmc::erasure::{DRIVE_NAME, DRIVES, EVERY_DRIVE};
use crate::job::JobInput;
use crate::node::{Availability, Node, Status};

/// Has a node's BMC erase drives, by their names there, or all that it lists. A job switches the machine off before, or
/// sees that nothing runs on it where its BMC erases only while it is on. It gives no certificate, and ends no
/// `wipe_required`: what a BMC says is its word.
///
/// # Errors
/// No drive is named, or one in a way that cannot be; the node has no BMC, may have work, or is owned by another job.
pub fn secure_erase(known: &Known, request: &Request, drives: &[String], powered_on: bool) -> Result<Planned, Refused> {
    check(drives).map_err(|problem| Refused::Invalid { field: "drives", problem: problem.to_owned() })?;
    let node = known.node;
    if !known.has_bmc {
        return Err(Refused::NoBmc { hostname: node.hostname.clone() });
    }
    // What an agent counted last of a machine that died says nothing any more, and its power goes; where that stays, it does.
    let live = if powered_on { known.live_allocations } else { 0 };
    let allocations = node.ownership.allocations.max(live);
    if !may_be_erased(node) || allocations > 0 {
        return Err(Refused::NotIdle { hostname: node.hostname.clone(), state: node.state, allocations });
    }
    known.not_busy()?;
    let input = JobInput::SecureErase { drives: drives.to_vec(), powered_on };
    let planned = known.owned(request, input, "secure_erase", &request.reason);
    Ok(planned.held(request, "its drives are erased"))
}

/// Whether its states say that nothing runs on a node that was ours once.
pub const fn may_be_erased(node: &Node) -> bool {
    let is_out = match node.state.availability {
        Availability::Drained | Availability::Down | Availability::Failed | Availability::Unknown => true,
        Availability::Booting | Availability::Ready | Availability::Degraded | Availability::Draining => false,
    };
    is_out
        && match node.state.status {
            Status::Active | Status::Offline | Status::Quarantined | Status::Retired => true,
            Status::BootstrapIssued | Status::Enrolling | Status::Draining | Status::Removing | Status::Deleted => {
                false
            }
        }
}

fn check(drives: &[String]) -> Result<(), &'static str> {
    let is_name =
        |drive: &String| (1..=DRIVE_NAME).contains(&drive.len()) && drive.bytes().all(|b| b.is_ascii_graphic());
    let mut names: Vec<&String> = drives.iter().collect();
    names.sort_unstable();
    names.dedup();
    match drives {
        [] => Err("must name the drives, as `lattice node bmc check NODE` lists them, or be `all`"),
        _ if drives.len() > DRIVES => Err("names more than 256 drives"),
        _ if names.len() < drives.len() => Err("names a drive twice"),
        [_, _, ..] if drives.iter().any(|drive| drive == EVERY_DRIVE) => Err("is `all`, or names of drives"),
        _ if !drives.iter().all(is_name) => Err("must be names of 1 to 256 bytes of ASCII without spaces"),
        _ => Ok(()),
    }
}
