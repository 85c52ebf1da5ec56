//! Silences: for a while, incidents of some nodes raise no attention. A silence hides attention and changes nothing else:
//! no state, no decision, no metric that an alert reads. spec: S1 "Alert raised to operators"; design: 8-interfaces "Web page"

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::ids::{Generation, NodeId, SilenceId, SiteId};
use crate::job::JobKind;
use crate::node::label::selects;
use crate::node::{Availability, HoldKind, Labels, NodeState, Status};
use crate::time::Timestamp;

/// Longest silence: what nobody looked at for a month is not silenced but forgotten.
pub const LONGEST: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Most silences of an installation: every view of the fleet looks at each.
pub const SILENCES_MAX: usize = 500;
/// Most nodes that one silence names; labels or a site mean more.
pub const NODES_MAX: usize = 1_000;

/// What an incident is about. One spelling for SQL, JSON, CLI and page.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum IncidentKind {
    /// A job of a node stopped.
    JobStopped,
    /// The wipe of a node failed.
    WipeFailed,
    /// A node is quarantined.
    NodeQuarantined,
    /// A node is down.
    NodeDown,
    /// A node did not come back from a boot.
    NodeFailed,
    /// A node is degraded.
    NodeDegraded,
    /// A node is offline for another reason.
    NodeOffline,
    /// The fingerprint of a node is not approved.
    NodeDrifted,
    /// The credential of a node's BMC was refused so often that it is not tried any more.
    BmcLocked,
    /// A webhook gets no events.
    WebhookFailing,
    /// The secret store gives no secrets.
    SecretsUnavailable,
}

impl IncidentKind {
    /// What it is when a job of that kind stopped.
    pub const fn of_job(kind: JobKind) -> Self {
        match kind {
            JobKind::SensitiveWipe => Self::WipeFailed,
            JobKind::Onboarding
            | JobKind::Drain
            | JobKind::Retire
            | JobKind::Remove
            | JobKind::Reboot
            | JobKind::Reimage
            | JobKind::SecureErase
            | JobKind::BmcInvestigation => Self::JobStopped,
        }
    }

    /// What it is when a node with these states and holds needs attention; the gravest of what could be said.
    pub fn of_node(state: NodeState, holds: &[HoldKind]) -> Self {
        if holds.contains(&HoldKind::WipeFailed) {
            return Self::WipeFailed;
        }
        match (state.status, state.availability) {
            (Status::Quarantined, _) => Self::NodeQuarantined,
            (_, Availability::Down) => Self::NodeDown,
            (_, Availability::Failed) => Self::NodeFailed,
            (_, Availability::Degraded) => Self::NodeDegraded,
            (
                _,
                Availability::Unknown
                | Availability::Booting
                | Availability::Ready
                | Availability::Draining
                | Availability::Drained,
            ) => Self::NodeOffline,
        }
    }

    /// Whether it is about nodes: only such incidents can be silenced.
    pub const fn is_about_nodes(self) -> bool {
        match self {
            Self::JobStopped
            | Self::WipeFailed
            | Self::NodeQuarantined
            | Self::NodeDown
            | Self::NodeFailed
            | Self::NodeDegraded
            | Self::NodeOffline
            | Self::NodeDrifted
            | Self::BmcLocked => true,
            Self::WebhookFailing | Self::SecretsUnavailable => false,
        }
    }
}

/// A node that a silence names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamedNode {
    /// Which.
    pub id: NodeId,
    /// Its name when the silence was created.
    pub hostname: String,
}

/// Which incidents of which nodes. All that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matcher {
    /// Incidents of this kind; none: of any kind that is about nodes.
    pub kind: Option<IncidentKind>,
    /// These nodes; empty: any.
    pub nodes: Vec<NamedNode>,
    /// Nodes that have all of these labels; empty: any.
    pub selector: Labels,
    /// Nodes of this site; none: of any.
    pub site: Option<SiteId>,
}

impl Matcher {
    /// Whether an incident of that kind about that node is meant.
    pub fn matches(&self, kind: IncidentKind, about: &About<'_>) -> bool {
        kind.is_about_nodes() && self.kind.is_none_or(|wanted| wanted == kind) && self.covers(about)
    }

    /// Whether incidents of that node are meant, of whatever kind it is narrowed to.
    pub fn covers(&self, about: &About<'_>) -> bool {
        (self.nodes.is_empty() || self.nodes.iter().any(|named| named.id == about.node))
            && selects(&self.selector, about.labels)
            && self.site.is_none_or(|site| site == about.site)
    }

    /// Whether it says which nodes are meant.
    pub fn says_which(&self) -> bool {
        !self.nodes.is_empty() || !self.selector.is_empty() || self.site.is_some()
    }
}

/// The node that an incident is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About<'a> {
    /// Which.
    pub node: NodeId,
    /// Its site.
    pub site: SiteId,
    /// Its labels.
    pub labels: &'a Labels,
}

/// Says that incidents raise no attention until its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Identity.
    pub id: SilenceId,
    /// Which incidents.
    pub matcher: Matcher,
    /// Who owns it: the one who created it.
    pub by: Actor,
    /// Why, in the owner's words.
    pub reason: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub until: Timestamp,
    /// Version of the row.
    pub generation: Generation,
}

impl Silence {
    /// Whether it still counts at `now`.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// The silence that hides an incident at `now`: of several, the one that lasts longest.
pub fn silencing<'a>(
    silences: &'a [Silence],
    kind: IncidentKind,
    about: &About<'_>,
    now: Timestamp,
) -> Option<&'a Silence> {
    let hides = |silence: &&Silence| silence.is_in_force(now) && silence.matcher.matches(kind, about);
    silences.iter().filter(hides).max_by_key(|silence| (silence.until, silence.id))
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;
    use crate::ids::uuid_v7;

    const NOW: Timestamp = Timestamp::from_millis(1_763_712_000_000);

    fn node(number: u8) -> NodeId {
        NodeId::new(uuid_v7(NOW, [number; 10]))
    }

    fn site(number: u8) -> SiteId {
        SiteId::new(uuid_v7(NOW, [number; 10]))
    }

    fn labels(text: &str) -> Labels {
        text.split(',').filter_map(|pair| pair.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
    }

    fn silence(number: u8, matcher: Matcher, minutes: i64) -> Silence {
        Silence {
            id: SilenceId::new(uuid_v7(NOW, [number; 10])),
            matcher,
            by: Actor::system("test"),
            reason: "a rack is moved".to_owned(),
            created_at: NOW,
            until: Timestamp::from_millis(NOW.as_millis() + minutes * 60_000),
            generation: Generation::FIRST,
        }
    }

    #[test]
    fn all_that_a_silence_gives_must_hold() {
        let named = vec![NamedNode { id: node(1), hostname: "c07u43".to_owned() }];
        let any = Matcher::default;
        let rows = [
            (Matcher { site: Some(site(1)), ..any() }, true),
            (Matcher { site: Some(site(2)), ..any() }, false),
            (Matcher { nodes: named.clone(), ..any() }, true),
            (Matcher { nodes: named.clone(), site: Some(site(2)), ..any() }, false),
            (Matcher { nodes: vec![NamedNode { id: node(2), hostname: "c07u44".to_owned() }], ..any() }, false),
            (Matcher { selector: labels("rack=c07"), ..any() }, true),
            (Matcher { selector: labels("rack=c07,row=5"), ..any() }, false),
            (Matcher { kind: Some(IncidentKind::NodeDown), site: Some(site(1)), ..any() }, true),
            (Matcher { kind: Some(IncidentKind::NodeFailed), site: Some(site(1)), ..any() }, false),
        ];
        let has = labels("rack=c07,row=4");
        let about = About { node: node(1), site: site(1), labels: &has };
        for (matcher, expected) in rows {
            assert_eq!(matcher.matches(IncidentKind::NodeDown, &about), expected, "{matcher:?}");
        }
        let of_kind = Matcher { kind: Some(IncidentKind::NodeFailed), site: Some(site(1)), ..any() };
        assert!(of_kind.covers(&about), "whatever its kind");
        assert!(!Matcher { site: Some(site(2)), ..of_kind }.covers(&about));
    }

    #[test]
    fn what_is_not_about_nodes_is_never_silenced() {
        let has = Labels::new();
        let about = About { node: node(1), site: site(1), labels: &has };
        let all = Matcher { site: Some(site(1)), ..Matcher::default() };
        for kind in IncidentKind::VARIANTS {
            assert_eq!(all.matches(*kind, &about), kind.is_about_nodes(), "{kind}");
        }
    }

    #[test]
    fn a_silence_ends_at_its_expiry_and_the_longest_one_is_told() {
        let has = Labels::new();
        let about = About { node: node(1), site: site(1), labels: &has };
        let of_site = || Matcher { site: Some(site(1)), ..Matcher::default() };
        let silences = [silence(1, of_site(), 10), silence(2, of_site(), 60), silence(3, of_site(), 30)];
        let at = |minutes: i64| Timestamp::from_millis(NOW.as_millis() + minutes * 60_000);
        let told = |minutes| silencing(&silences, IncidentKind::NodeDown, &about, at(minutes)).map(|one| one.id);
        assert_eq!(told(0), Some(silences[1].id));
        assert_eq!(told(59), Some(silences[1].id));
        assert_eq!(told(60), None, "at its expiry it is over");
    }

    #[test]
    fn a_node_needs_attention_for_the_gravest_of_its_reasons() {
        use Availability as A;
        let rows = [
            (Status::Quarantined, A::Down, vec![HoldKind::WipeFailed], IncidentKind::WipeFailed),
            (Status::Quarantined, A::Down, vec![], IncidentKind::NodeQuarantined),
            (Status::Offline, A::Down, vec![HoldKind::Disabled], IncidentKind::NodeDown),
            (Status::Offline, A::Failed, vec![], IncidentKind::NodeFailed),
            (Status::Active, A::Degraded, vec![], IncidentKind::NodeDegraded),
            (Status::Offline, A::Booting, vec![], IncidentKind::NodeOffline),
        ];
        for (status, availability, holds, expected) in rows {
            assert_eq!(IncidentKind::of_node(NodeState::new(status, availability), &holds), expected);
        }
        assert_eq!(IncidentKind::of_job(JobKind::SensitiveWipe), IncidentKind::WipeFailed);
        assert_eq!(IncidentKind::of_job(JobKind::Reboot), IncidentKind::JobStopped);
    }
}
