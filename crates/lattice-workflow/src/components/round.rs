//! One round at a site: State Manager is read once, what it says is kept, and what it is to be told is told.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lattice_core::change::{Change, Commit};
use lattice_core::component::{ComponentFlag, ComponentReport, ComponentState, Seen, Word, decide, told};
use lattice_core::ids::{LeaseEpoch, NodeId};
use lattice_core::node::{Node, PowerFact};
use lattice_core::site::{OpenchamiSite, Site};
use lattice_core::time::Timestamp;
use lattice_providers::error::ProviderError;
use lattice_providers::machine::openchami::{Flag, OchamiClient, State, Xname};
use lattice_store::{PAGE_MAX, StoreError};

use super::{bmcs, guard, request, settings, subscription};
use crate::tools::Tools;

/// Components that are told something in one round: the first of a large site takes some, at 4 ms each.
const MOST: usize = 1_000;
/// How old what a BMC said of power may be, to be told as its power.
const POWER_AGE: Duration = Duration::from_secs(120);

/// What a round did.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) told: u64,
    pub(super) changed: u64,
    pub(super) bmcs: u64,
    /// Whether the site has nodes; none: that was not looked at.
    pub(super) is_used: Option<bool>,
    /// Something may have changed that the round did not see and that nobody told of.
    pub(super) asks_again: bool,
    /// What could not be done, in words.
    pub(super) trouble: Option<String>,
}

/// A node with what is known of its component.
pub(super) struct Member {
    pub(super) node: Node,
    pub(super) xname: Xname,
    pub(super) report: ComponentReport,
}

/// What a round is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Occasion {
    pub(super) lease: LeaseEpoch,
    /// It looks after the subscription and the BMCs too.
    pub(super) is_whole: bool,
    /// Whether the site had nodes at the round before; a round that finds another answer is whole.
    pub(super) was_used: Option<bool>,
}

/// One round.
///
/// # Errors
/// Our own store fails: the next round finds the rest.
pub(super) async fn round(tools: &Tools, site: &Site, occasion: Occasion) -> Result<Round, StoreError> {
    let mut round = Round::default();
    let Some(settings) = settings(site) else { return Ok(round) };
    let smd = match tools.providers.openchami(site).await {
        Ok(smd) => smd,
        Err(error) => return Ok(Round { trouble: Some(error.to_string()), ..round }),
    };
    let nodes = nodes(tools, site).await?;
    let (is_used, lease) = (!nodes.is_empty(), occasion.lease);
    let is_whole = occasion.is_whole || occasion.was_used != Some(is_used);
    let mut members = Vec::new();
    if is_used {
        let look = Look { tools, site, settings, smd: &smd, lease };
        match look.components(nodes, &mut round).await? {
            Ok(found) => members = found,
            Err(error) => return Ok(Round { trouble: Some(error.to_string()), ..round }),
        }
    }
    if is_whole && settings.policy.import_bmcs && is_used {
        let import = bmcs::Import { tools, site, smd: &smd, lease };
        if let Err(error) = import.run(members, &mut round.bmcs).await? {
            round.trouble.get_or_insert(error);
        }
    }
    match is_whole {
        true => match subscription::keep(tools, site, settings, &smd, is_used).await {
            Ok(is_new) => {
                round.is_used = Some(is_used);
                round.asks_again = is_new;
            }
            Err(error) => {
                round.trouble.get_or_insert(error);
            }
        },
        false => round.is_used = Some(is_used),
    }
    Ok(round)
}

async fn nodes(tools: &Tools, site: &Site) -> Result<Vec<Node>, StoreError> {
    let mut nodes: Vec<Node> = Vec::new();
    loop {
        let page = tools.store.nodes_after(nodes.last().map(|node| node.id), Some(site.id)).await?;
        let is_last = page.len() < PAGE_MAX;
        nodes.extend(page);
        if is_last {
            nodes.retain(|node| node.provider_ref.is_some());
            return Ok(nodes);
        }
    }
}

struct Look<'a> {
    tools: &'a Tools,
    site: &'a Site,
    settings: &'a OpenchamiSite,
    smd: &'a OchamiClient,
    lease: LeaseEpoch,
}

impl Look<'_> {
    /// Reads, keeps and tells.
    async fn components(
        &self,
        nodes: Vec<Node>,
        round: &mut Round,
    ) -> Result<Result<Vec<Member>, ProviderError>, StoreError> {
        // What is read is no older than this.
        let now = self.tools.clock.now();
        let said = match self.said().await {
            Ok(said) => said,
            Err(error) => return Ok(Err(error)),
        };
        let powers = self.powers(round).await;
        let mut known = self.known().await?;
        let (mut members, mut orders, mut commits) = (Vec::new(), Vec::new(), Vec::new());
        for node in nodes {
            let Some(Ok(xname)) = node.provider_ref.as_deref().map(Xname::parse) else { continue };
            let stored = known.remove(&node.id).filter(|report| report.xname == xname.as_str());
            let is_first = stored.is_none();
            let report =
                stored.unwrap_or_else(|| ComponentReport::none_yet(node.id, node.site, xname.as_str().to_owned(), now));
            let power = self.power(&node, &powers, &xname, now).await?;
            let seen = Seen { said: said.get(&xname).copied(), power };
            let verdict = decide(&node, &report, is_first, seen, now);
            round.changed += verdict.changes.iter().filter(|one| matches!(one, Change::Note { .. })).count() as u64;
            if !verdict.changes.is_empty() {
                commits.push(self.commit(verdict.changes, now));
            }
            if let Some(word) = verdict.tell {
                orders.push((members.len(), word));
            }
            members.push(Member { node, xname, report: verdict.report });
        }
        self.tools.store.commit(commits).await?;
        if self.settings.policy.publish_states && !orders.is_empty() {
            orders.truncate(MOST);
            self.tell(&mut members, &orders, round).await?;
        }
        Ok(Ok(members))
    }

    async fn said(&self) -> Result<BTreeMap<Xname, Word>, ProviderError> {
        let components = self.smd.nodes().await?;
        Ok(components.into_iter().map(|one| (one.id.clone(), one.word())).collect())
    }

    /// Power as power control reads it now; nothing where it cannot be read.
    async fn powers(&self, round: &mut Round) -> BTreeMap<Xname, PowerFact> {
        if self.settings.pcs_url.is_none() {
            return BTreeMap::new();
        }
        self.smd.powers().await.unwrap_or_else(|error| {
            round.trouble.get_or_insert(error.to_string());
            BTreeMap::new()
        })
    }

    /// What is known of the power of a node: what power control says, else what its BMC said lately.
    async fn power(
        &self,
        node: &Node,
        powers: &BTreeMap<Xname, PowerFact>,
        xname: &Xname,
        now: Timestamp,
    ) -> Result<PowerFact, StoreError> {
        if let Some(power) = powers.get(xname) {
            return Ok(*power);
        }
        if node.bmc_address.is_none() {
            return Ok(PowerFact::Unknown);
        }
        let report = self.tools.store.bmc_report(node.id).await?;
        let reading = report.and_then(|report| report.power);
        Ok(reading.map_or(PowerFact::Unknown, |power| power.fresh_fact(now, POWER_AGE)))
    }

    async fn known(&self) -> Result<HashMap<NodeId, ComponentReport>, StoreError> {
        let mut known = HashMap::new();
        let mut after = None;
        loop {
            let page = self.tools.store.components(self.site.id, after).await?;
            let is_last = page.len() < PAGE_MAX;
            after = page.last().map(|report| report.node);
            known.extend(page.into_iter().map(|report| (report.node, report)));
            if is_last {
                return Ok(known);
            }
        }
    }

    /// Tells each component its word, then reads what State Manager made of it. What is lost between the two is known
    /// again by the next round: it says then what was to be told.
    async fn tell(
        &self,
        members: &mut [Member],
        orders: &[(usize, Word)],
        round: &mut Round,
    ) -> Result<(), StoreError> {
        let mut done = Vec::new();
        for (place, word) in orders {
            let member = &members[*place];
            match self.set(member, *word).await {
                Ok(()) => done.push((*place, *word)),
                Err(error) => {
                    round.trouble.get_or_insert(error.to_string());
                    break;
                }
            }
        }
        let said = match self.said().await {
            Ok(said) => said,
            Err(error) => {
                round.trouble.get_or_insert(error.to_string());
                return Ok(());
            }
        };
        let now = self.tools.clock.now();
        let mut commits = Vec::new();
        for (place, word) in done {
            let member = &mut members[place];
            let said = said.get(&member.xname).copied();
            member.report = told(&member.report, word, said, now);
            round.told += u64::from(said == Some(word));
            commits.push(self.commit(vec![Change::ComponentReport(Box::new(member.report.clone()))], now));
        }
        self.tools.store.commit(commits).await.map(drop)
    }

    async fn set(&self, member: &Member, word: Word) -> Result<(), ProviderError> {
        let is_ready = member.report.said.is_some_and(|said| said.state == ComponentState::Ready);
        if word == Word::new(ComponentState::Ready, ComponentFlag::Warning) && !is_ready {
            // It takes the warning only of what is ready, whatever is forced.
            self.smd.set_state(&member.xname, State::Ready, Flag::Ok).await?;
        }
        self.smd.set_state(&member.xname, word.state.into(), word.flag.into()).await
    }

    fn commit(&self, changes: Vec<Change>, now: Timestamp) -> Commit {
        request(self.tools, now).commit(guard(self.lease), changes)
    }
}
