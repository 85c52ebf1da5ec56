//! Which machine of a provider a hostname means: found, created or claimed, and when to ask. spec: S5 4.16

/// What is known of the machine that is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its host name.
    pub hostname: &'a str,
    /// The address of its BMC.
    pub power_address: &'a str,
    /// The MAC it boots from, if that is known.
    pub pxe_mac: Option<&'a str>,
}

/// A machine that the provider has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The provider's id of it.
    pub id: String,
    /// Its host name there.
    pub hostname: String,
    /// The address of its BMC, if the provider says it.
    pub power_address: Option<String>,
    /// Hardware addresses of its interfaces.
    pub macs: Vec<String>,
    /// Discovered and not yet accepted by anybody.
    pub is_new: bool,
    /// It was not there when this run began to look.
    pub appeared: bool,
}

/// What a machine was recognised by, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum MatchedBy {
    /// An operator said which.
    Decision,
    /// The host name.
    Hostname,
    /// The address of the BMC.
    PowerAddress,
    /// The MAC it boots from.
    PxeMac,
    /// It is the only one that appeared in this run.
    Appeared,
    /// It is the only New machine, and the site's policy allows to claim it.
    OnlyNew,
}

/// What the candidates allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is that one.
    Found {
        /// The provider's id.
        id: String,
        /// Why it.
        by: MatchedBy,
    },
    /// None matches.
    Absent,
    /// More than one could be it: an operator must say which. Ids and host names.
    Ambiguous(Vec<Candidate>),
}

/// Looks for a machine in S5 4.16's order. A stronger match that is not unique ends the search: a weaker one cannot
/// settle what a stronger one left open. `auto_claim_single_new` is the site's policy of that name.
pub fn claim(
    wanted: &Wanted<'_>,
    candidates: &[Candidate],
    decision: Option<&str>,
    auto_claim_single_new: bool,
) -> Claim {
    if let Some(found) = decision.and_then(|id| candidates.iter().find(|one| one.id == id)) {
        return Claim::Found { id: found.id.clone(), by: MatchedBy::Decision };
    }
    let has_mac = |one: &Candidate, mac: &str| one.macs.iter().any(|have| have.eq_ignore_ascii_case(mac));
    let steps: [(MatchedBy, Vec<&Candidate>); 5] = [
        (MatchedBy::Hostname, pick(candidates, |one| one.hostname.eq_ignore_ascii_case(wanted.hostname))),
        (MatchedBy::PowerAddress, pick(candidates, |one| one.power_address.as_deref() == Some(wanted.power_address))),
        (MatchedBy::PxeMac, pick(candidates, |one| wanted.pxe_mac.is_some_and(|mac| has_mac(one, mac)))),
        (MatchedBy::Appeared, pick(candidates, |one| one.is_new && one.appeared && may_be(one, wanted))),
        (MatchedBy::OnlyNew, pick(candidates, |one| one.is_new && auto_claim_single_new && may_be(one, wanted))),
    ];
    for (by, matches) in steps {
        match matches.as_slice() {
            [] => {}
            [one] => return contradiction(one, wanted, by, candidates),
            [_, _, ..] => return Claim::Ambiguous(matches.into_iter().cloned().collect()),
        }
    }
    Claim::Absent
}

fn pick(candidates: &[Candidate], is_it: impl Fn(&Candidate) -> bool) -> Vec<&Candidate> {
    candidates.iter().filter(|one| is_it(one)).collect()
}

/// A machine whose BMC is known to be another one's is never claimed for having appeared.
fn may_be(one: &Candidate, wanted: &Wanted<'_>) -> bool {
    one.power_address.as_deref().is_none_or(|address| address.is_empty() || address == wanted.power_address)
}

/// A host name that belongs to another BMC, while that BMC belongs to another machine, is two machines.
fn contradiction(one: &Candidate, wanted: &Wanted<'_>, by: MatchedBy, candidates: &[Candidate]) -> Claim {
    let other = candidates
        .iter()
        .find(|other| other.id != one.id && other.power_address.as_deref() == Some(wanted.power_address));
    match other {
        Some(other) if by == MatchedBy::Hostname && !may_be(one, wanted) => {
            Claim::Ambiguous(vec![one.clone(), other.clone()])
        }
        Some(_) | None => Claim::Found { id: one.id.clone(), by },
    }
}
