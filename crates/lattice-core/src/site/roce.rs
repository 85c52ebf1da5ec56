//! RoCE addresses of hosts: what a list of them must be, and what it changes. spec: S5 3.3

use std::collections::HashMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::MaasSite;
use crate::command::create::check_hostname;
use crate::ids::{Generation, IdSource, RoceId, SiteId};
use crate::time::Timestamp;

/// One RoCE address that an onboarding applies. spec: S5 3.3
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoceAssignment {
    /// Host it belongs to.
    pub hostname: String,
    /// Interface of that host.
    pub interface: String,
    /// Address with its prefix: `172.30.9.61/31`.
    #[schema(value_type = String)]
    pub ipv4_cidr: Ipv4Net,
}

/// One row of them. At a site, a host's interface has one address, and an address has one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RoceRow {
    /// Identity.
    pub id: RoceId,
    /// At which site.
    pub site: SiteId,
    /// Which host, which interface, which address.
    #[serde(flatten)]
    pub assignment: RoceAssignment,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its address changed last.
    pub updated_at: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

impl RoceRow {
    /// A new row.
    pub const fn new(id: RoceId, site: SiteId, assignment: RoceAssignment, now: Timestamp) -> Self {
        Self { id, site, assignment, created_at: now, updated_at: now, generation: Generation::FIRST }
    }
}

/// An assignment as it was sent: its texts are judged all together, so that one answer names every mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoceItem {
    /// Host it belongs to.
    pub hostname: String,
    /// Interface of that host.
    pub interface: String,
    /// Address with its prefix: `172.30.9.61/31`.
    pub ipv4_cidr: String,
}

/// What is wrong with one item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadItem {
    /// Its place in the list, from 0.
    pub index: usize,
    /// Which of its fields.
    pub field: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// Where and when a list is applied.
pub struct Upsert<'a> {
    /// At which site.
    pub site: SiteId,
    /// Its settings.
    pub settings: &'a MaasSite,
    /// When.
    pub now: Timestamp,
    /// Source of new ids.
    pub ids: &'a dyn IdSource,
}

/// The rows that a list creates or changes; those that stand already as it says are left alone.
///
/// `stored` is every row of the site. All of the list is good, or nothing of it happens.
///
/// # Errors
/// Every mistake of every item: a host name or interface that cannot be one, an address that is no host's side of a
/// /31, the same interface or address twice, an address that another row has, both ends of one link.
pub fn upsert(at: &Upsert<'_>, stored: &[RoceRow], items: &[RoceItem]) -> Result<Vec<RoceRow>, Vec<BadItem>> {
    let mut problems = Vec::new();
    let mut wanted: Vec<(usize, RoceAssignment)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match parse(at.settings, item) {
            Ok(one) => wanted.push((index, one)),
            Err((field, problem)) => problems.push(BadItem { index, field, problem }),
        }
    }
    problems.extend(clashes(stored, &wanted));
    if !problems.is_empty() {
        problems.sort_by_key(|problem| problem.index);
        return Err(problems);
    }
    let slots: HashMap<(&str, &str), &RoceRow> = stored.iter().map(|row| (slot(&row.assignment), row)).collect();
    let changed = |(_, assignment): (usize, RoceAssignment)| {
        let Some(row) = slots.get(&slot(&assignment)).copied() else {
            return Some(RoceRow::new(RoceId::generate(at.ids, at.now), at.site, assignment, at.now));
        };
        let generation = row.generation.next();
        (row.assignment != assignment).then(|| RoceRow { assignment, updated_at: at.now, generation, ..row.clone() })
    };
    Ok(wanted.into_iter().filter_map(changed).collect())
}

fn slot(one: &RoceAssignment) -> (&str, &str) {
    (&one.hostname, &one.interface)
}

fn parse(site: &MaasSite, item: &RoceItem) -> Result<RoceAssignment, (&'static str, String)> {
    let hostname = check_hostname(&item.hostname)
        .map_err(|_| ("hostname", "must be 1 to 63 letters, digits and hyphens, such as c07u31".to_owned()))?;
    let interface = item.interface.clone();
    if !super::check::is_interface(&interface) {
        return Err(("interface", "must be an interface's name of 1 to 15 characters, such as enp28s0np0".to_owned()));
    }
    if interface == site.node_pxe_iface {
        let why = format!("is {interface}, from which the site's machines boot: it gets its address automatically");
        return Err(("interface", why));
    }
    let cidr: Ipv4Net = item.ipv4_cidr.parse().map_err(|_| {
        let given: String = item.ipv4_cidr.chars().take(40).collect();
        ("ipv4_cidr", format!("must be an address with its prefix, such as 172.30.9.61/31, not `{given}`"))
    })?;
    if cidr.prefix_len() != 31 {
        let why = format!("must be one end of a /31 link, such as {}/31, not {cidr}", cidr.addr());
        return Err(("ipv4_cidr", why));
    }
    let address = cidr.addr();
    let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    if is_special || address.is_link_local() || address.octets()[0] >= 240 || address.octets()[0] == 0 {
        return Err(("ipv4_cidr", format!("is {address}, which no interface of a network can have")));
    }
    Ok(RoceAssignment { hostname, interface, ipv4_cidr: cidr })
}

/// What the list and the rows that stay would have twice.
fn clashes(stored: &[RoceRow], wanted: &[(usize, RoceAssignment)]) -> Vec<BadItem> {
    let mut problems = Vec::new();
    let mut slots: HashMap<(&str, &str), usize> = HashMap::new();
    for (index, one) in wanted {
        if let Some(first) = slots.insert(slot(one), *index) {
            let problem = format!("{} of {} is in item {} already", one.interface, one.hostname, first + 1);
            problems.push(BadItem { index: *index, field: "interface", problem });
        }
    }
    let stays =
        stored.iter().filter(|row| !slots.contains_key(&slot(&row.assignment))).map(|row| (None, &row.assignment));
    let mut addresses: HashMap<Ipv4Addr, (Option<usize>, &RoceAssignment)> =
        stays.map(|(from, one)| (one.ipv4_cidr.addr(), (from, one))).collect();
    for (index, one) in wanted {
        let address = one.ipv4_cidr.addr();
        for (taken, what) in [(address, "is taken by"), (peer(address), "is the other end of the link of")] {
            let holder = addresses.get(&taken).filter(|(_, other)| slot(other) != slot(one));
            if let Some((from, other)) = holder {
                let place = from.map(|first| format!(", item {}", first + 1)).unwrap_or_default();
                let problem = format!("{address} {what} {} of {}{place}", other.interface, other.hostname);
                problems.push(BadItem { index: *index, field: "ipv4_cidr", problem });
            }
        }
        addresses.entry(address).or_insert((Some(*index), one));
    }
    problems
}

/// The other end of a /31.
pub fn peer(address: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) ^ 1)
}
