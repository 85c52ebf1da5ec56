//! Bringing a machine in: by the bootstrap command, through MAAS, as an LXD instance.

use std::net::IpAddr;

use super::{Planned, Refused, Request};
use crate::allocation::Ownership;
use crate::change::{Change, Guard, NodeAction, NodeChange};
use crate::credential::EnrollmentToken;
use crate::ids::{BatchId, Generation, NodeId, TokenId};
use crate::job::{JobInput, NewJob};
use crate::node::{Availability, Node, NodeClass, NodeState, OnboardingMode, Status};
use crate::site::{MaasSettings, OpenchamiSite, Site, SiteProfile, SiteProvider, SiteStatus};
use crate::sku::Sku;

/// A machine as an operator names it.
#[derive(Debug, Clone)]
pub struct NewNode<'a> {
    /// Where.
    pub site: &'a Site,
    /// What kind of machine.
    pub sku: &'a Sku,
    /// Its name.
    pub hostname: String,
    /// Its default class.
    pub class: NodeClass,
    /// Part of which batch.
    pub batch: Option<BatchId>,
}

/// What a MAAS site needs to know of a machine besides.
#[derive(Debug, Clone, Copy)]
pub struct MaasMachine<'a> {
    /// Address of its BMC.
    pub ipmi_ip: &'a str,
    /// Hardware address that it boots from, where it is known.
    pub pxe_mac: Option<&'a str>,
    /// Profile of its onboarding; none: the site's own settings.
    pub profile: Option<&'a SiteProfile>,
}

/// What an OpenCHAMI system knows a machine by: at least one of the names.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenchamiMachine<'a> {
    /// The component: `x1000c0s1b0n0`.
    pub xname: Option<&'a str>,
    /// Hardware address of the interface that it boots from.
    pub mac: Option<&'a str>,
    /// Address of its BMC.
    pub bmc_address: Option<&'a str>,
    /// What it boots; none: what the site says.
    pub boot_profile: Option<&'a str>,
}

/// A token that the caller drew; only its hash comes in here.
#[derive(Debug, Clone)]
pub struct DrawnToken {
    /// SHA-256 of the token, in hex.
    pub hash: String,
    /// How long it may be used, in seconds.
    pub ttl_seconds: u64,
}

/// Creates a node that an operator bootstraps by hand, with its token and the job that waits for it.
///
/// # Errors
/// Bad hostname, disabled site, or a site that is not manual.
pub fn manual(request: &Request, new: &NewNode, token: &DrawnToken) -> Result<Planned, Refused> {
    match &new.site.provider {
        SiteProvider::Manual => {}
        other @ (SiteProvider::Maas(_) | SiteProvider::Lxd(_) | SiteProvider::Openchami(_)) => {
            return Err(wrong_kind(new.site, other.kind(), "manual"));
        }
    }
    let mut node = row(request, new, OnboardingMode::Manual, Status::BootstrapIssued)?;
    let input = JobInput::OnboardManual { hostname: node.hostname.clone() };
    let mut job = NewJob { node: &node, site: new.site, input, batch: new.batch }.build(request);
    node.owning_job = Some(job.id);
    let issued = EnrollmentToken {
        id: TokenId::generate(request.ids, request.now),
        node: node.id,
        job: Some(job.id),
        hash: token.hash.clone(),
        issued_at: request.now,
        expires_at: request.now + std::time::Duration::from_secs(token.ttl_seconds),
        used_at: None,
        key_hash: None,
        refreshes: 0,
        revoked_at: None,
        generation: Generation::FIRST,
    };
    job.outputs.token = Some(issued.id);
    let mut planned = onboarding(request, new, node, job);
    planned.commit.changes.push(Change::EnrollmentToken(issued));
    Ok(planned)
}

/// Accepts an onboarding through MAAS. spec: S5 4.1
///
/// # Errors
/// Bad hostname or address, disabled site or profile, or a site that is not MAAS.
pub fn maas(request: &Request, new: &NewNode, machine: MaasMachine<'_>) -> Result<Planned, Refused> {
    let MaasMachine { ipmi_ip, pxe_mac, profile } = machine;
    let settings = match &new.site.provider {
        SiteProvider::Maas(maas) => Box::new(MaasSettings::of(maas, profile)),
        other @ (SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_)) => {
            return Err(wrong_kind(new.site, other.kind(), "maas"));
        }
    };
    check_profile(new.site, profile)?;
    let address = bmc_ip(ipmi_ip)?;
    if let Some(mac) = pxe_mac {
        check_mac(mac)?;
    }
    let mut node = row(request, new, OnboardingMode::Maas, Status::Enrolling)?;
    node.bmc_address = Some(address.clone());
    let pxe_mac = pxe_mac.map(str::to_ascii_lowercase);
    let input = JobInput::OnboardMaas { hostname: node.hostname.clone(), ipmi_ip: address.clone(), pxe_mac, settings };
    let job = NewJob { node: &node, site: new.site, input, batch: new.batch }.build(request);
    node.owning_job = Some(job.id);
    let bmc = Guard::BmcAddressFree { site: new.site.id, address };
    let mut planned = onboarding(request, new, node, job);
    planned.commit.guards.push(bmc);
    Ok(planned)
}

/// New work takes no profile that is disabled.
pub(super) fn check_profile(site: &Site, profile: Option<&SiteProfile>) -> Result<(), Refused> {
    match profile.filter(|profile| profile.status == SiteStatus::Disabled) {
        Some(profile) => Err(Refused::ProfileDisabled { site: site.name.clone(), profile: profile.name.clone() }),
        None => Ok(()),
    }
}

/// Accepts an onboarding as an LXD instance. spec: S5 10
///
/// # Errors
/// Bad hostname, disabled site, or a site that is not LXD.
pub fn lxd(request: &Request, new: &NewNode) -> Result<Planned, Refused> {
    match &new.site.provider {
        SiteProvider::Lxd(_) => {}
        other @ (SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Openchami(_)) => {
            return Err(wrong_kind(new.site, other.kind(), "lxd"));
        }
    }
    let mut node = row(request, new, OnboardingMode::Lxd, Status::Enrolling)?;
    let input = JobInput::OnboardLxd { hostname: node.hostname.clone() };
    let job = NewJob { node: &node, site: new.site, input, batch: new.batch }.build(request);
    node.owning_job = Some(job.id);
    Ok(onboarding(request, new, node, job))
}

/// Accepts an onboarding of a machine of an OpenCHAMI system.
///
/// # Errors
/// Bad hostname, name or address, no name at all, an unknown boot profile, disabled site, or one that is not OpenCHAMI.
pub fn openchami(request: &Request, new: &NewNode, machine: OpenchamiMachine<'_>) -> Result<Planned, Refused> {
    let site = match &new.site.provider {
        SiteProvider::Openchami(site) => site,
        other @ (SiteProvider::Manual | SiteProvider::Maas(_) | SiteProvider::Lxd(_)) => {
            return Err(wrong_kind(new.site, other.kind(), "openchami"));
        }
    };
    let OpenchamiMachine { xname, mac, bmc_address, boot_profile } = machine;
    if xname.is_none() && mac.is_none() && bmc_address.is_none() {
        let problem = "or `pxe_mac` or `ipmi_ip` is needed at an OpenCHAMI site: the component, the hardware address that \
                       it boots from, or the address of its BMC";
        return Err(Refused::Invalid { field: "xname", problem: problem.to_owned() });
    }
    if let Some(xname) = xname {
        check_xname(xname)?;
    }
    if let Some(mac) = mac {
        check_mac(mac)?;
    }
    let bmc_address = bmc_address.map(bmc_ip).transpose()?;
    check_boot_profile(site, boot_profile)?;
    let mut node = row(request, new, OnboardingMode::Openchami, Status::Enrolling)?;
    node.bmc_address.clone_from(&bmc_address);
    let input = JobInput::OnboardOpenchami {
        hostname: node.hostname.clone(),
        xname: xname.map(str::to_owned),
        mac: mac.map(str::to_ascii_lowercase),
        bmc_address,
        boot_profile: boot_profile.map(str::to_owned),
    };
    let job = NewJob { node: &node, site: new.site, input, batch: new.batch }.build(request);
    node.owning_job = Some(job.id);
    // One BMC may serve several nodes: its address is no name of one.
    Ok(onboarding(request, new, node, job))
}

/// A boot profile of the site.
///
/// # Errors
/// It has none of that name.
pub fn check_boot_profile(site: &OpenchamiSite, name: Option<&str>) -> Result<(), Refused> {
    if site.profile(name).is_some() {
        return Ok(());
    }
    let there: Vec<&str> = site.boot_profiles.keys().map(String::as_str).collect();
    Err(Refused::Invalid {
        field: "boot_profile",
        problem: format!("must be one of the site's boot_profiles: {}", there.join(", ")),
    })
}

/// A component's name such as `x1000c0s1b0n0`.
///
/// # Errors
/// Anything else, naming the field.
fn check_xname(text: &str) -> Result<(), Refused> {
    let fine = (2..=32).contains(&text.len())
        && text.starts_with('x')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if fine {
        return Ok(());
    }
    Err(Refused::Invalid { field: "xname", problem: "must be a component's name such as x1000c0s1b0n0".to_owned() })
}

fn wrong_kind(site: &Site, kind: &'static str, needed: &'static str) -> Refused {
    Refused::WrongSiteKind { site: site.name.clone(), kind, needed }
}

fn onboarding(request: &Request, new: &NewNode, node: Node, job: crate::job::Job) -> Planned {
    let (id, job_id) = (node.id, job.id);
    let guards = vec![
        Guard::HostnameFree { hostname: node.hostname.clone() },
        // Neither is disabled or removed while this was decided.
        Guard::SiteGeneration { site: new.site.id, have: new.site.generation },
        Guard::SkuGeneration { sku: new.sku.name.clone(), have: new.sku.generation },
    ];
    let change = NodeChange {
        before: None,
        action: NodeAction::Created,
        cause: node.mode.to_string(),
        detail: request.reason.clone(),
        after: node,
    };
    let changes = vec![Change::Node(Box::new(change)), job.created()];
    Planned { commit: request.commit(guards, changes), node: id, job: Some(job_id), effects: Vec::new() }
}

fn row(request: &Request, new: &NewNode, mode: OnboardingMode, status: Status) -> Result<Node, Refused> {
    if new.site.status == SiteStatus::Disabled {
        return Err(Refused::SiteDisabled { site: new.site.name.clone() });
    }
    Ok(Node {
        id: NodeId::generate(request.ids, request.now),
        hostname: check_hostname(&new.hostname)?,
        site: new.site.id,
        sku: new.sku.name.clone(),
        class: new.class,
        mode,
        state: NodeState::new(status, Availability::Unknown),
        status_since: request.now,
        availability_since: request.now,
        down_cause: None,
        deadline: None,
        boot_failures: 0,
        drain_intent: false,
        minor_issue: None,
        identity_epoch: 1,
        boot_id: None,
        agent_version: None,
        fingerprint: None,
        deviates_since: None,
        labels: crate::node::Labels::new(),
        address: None,
        bmc_address: None,
        provider_ref: None,
        owning_job: None,
        holds: Vec::new(),
        ownership: Ownership::default(),
        created_at: request.now,
        updated_at: request.now,
        generation: Generation::FIRST,
    })
}

fn bmc_ip(text: &str) -> Result<String, Refused> {
    let parsed: Result<IpAddr, _> = text.parse();
    parsed.map(|address| address.to_string()).map_err(|_| Refused::Invalid {
        field: "ipmi_ip",
        problem: format!("must be an IP address such as 10.176.16.128, not `{text}`"),
    })
}

/// A hostname: 1 to 63 letters, digits and hyphens, no hyphen at either end; kept in lower case.
///
/// # Errors
/// Anything else, naming the field.
pub fn check_hostname(text: &str) -> Result<String, Refused> {
    let fine = (1..=63).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if fine {
        return Ok(text.to_ascii_lowercase());
    }
    let given: String = text.chars().take(70).collect();
    Err(Refused::Invalid {
        field: "hostname",
        problem: format!(
            "must be 1 to 63 letters, digits and hyphens, with no hyphen at either end, such as c07u43, not `{given}`"
        ),
    })
}

/// A hardware address such as `52:54:00:00:00:13`.
///
/// # Errors
/// Anything else, naming the field.
pub fn check_mac(text: &str) -> Result<(), Refused> {
    let parts: Vec<&str> = text.split(':').collect();
    let fine =
        parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit()));
    if fine {
        return Ok(());
    }
    Err(Refused::Invalid {
        field: "pxe_mac",
        problem: "must be six pairs of hexadecimal digits, such as 52:54:00:00:00:13".to_owned(),
    })
}
