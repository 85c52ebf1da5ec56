//! Components of nodes and this store kept in step: the same cases against simulated and real State Managers, faults
//! against the simulated one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::bmc::{BmcTls, BmcWay};
use lattice_core::change::{Change, Commit, NodeAction, NodeChange};
use lattice_core::command::bmc as bmc_commands;
use lattice_core::component::{ComponentFlag, ComponentReport, ComponentState, Word};
use lattice_core::ids::{EventSeq, NodeId, SiteId};
use lattice_core::node::{Availability, DownCause, Node, NodeState, OnboardingMode, Status};
use lattice_core::secret::Secret;
use lattice_core::site::{Site, SiteProvider};
use lattice_core::time::Clock;
use lattice_providers::error::ProviderError;
use lattice_providers::machine::maas::MaasObserver;
use lattice_providers::machine::openchami::{Flag, NewEndpoint, NewSystem, OchamiClient, State, Xname};
use lattice_providers::secret::{SecretObject, SecretStore};
use lattice_sim::openchami::{SimOpenchami, SmdFault};
use lattice_store::EventFilter;
use lattice_workflow::components::{Components, IMPORTER, Notices, Tended, Verified};
use lattice_workflow::crash::CrashPlan;
use lattice_workflow::providers::{InstanceHost, Providers, Shell, ShellTarget};
use serde_json::json;

use crate::harness::{HandClock, World};
use crate::{client, xname};

const READY: Word = Word::new(ComponentState::Ready, ComponentFlag::Ok);
const STANDBY: Word = Word::new(ComponentState::Standby, ComponentFlag::Ok);
const LOST: Word = Word::new(ComponentState::Standby, ComponentFlag::Alert);
const PASSWORD: &str = "hush-of-smd";

/// A case that holds at a simulated State Manager and at a real one; each with a slot of its own.
macro_rules! both {
    ($($name:ident = $slot:literal, $check:path;)*) => {$(
        mod $name {
            #[tokio::test]
            async fn simulated() {
                $check(super::Place::new(None, $slot).await).await;
            }

            #[tokio::test]
            async fn real() {
                let Some(services) = crate::real() else { return };
                $check(super::Place::new(Some(services), $slot).await).await;
            }
        }
    )*};
}

both! {
    each_state_of_a_node_is_told_and_off_only_when_its_power_was_seen_off = 1, super::states_are_told;
    another_systems_word_becomes_evidence_and_moves_no_node = 2, super::evidence_moves_nothing;
    one_subscription_stands_while_the_site_has_nodes = 3, super::one_subscription;
    bmcs_are_taken_over_with_their_logins_in_the_secret_store_alone = 4, super::bmcs_are_taken_over;
    a_component_that_is_not_there_is_told_nothing_and_one_that_is_locked_neither = 5, super::nothing_is_told;
}

/// The services by their addresses, as a site names them: a changed site has another client.
struct Clients(String, String, Option<String>);

#[async_trait]
impl Providers for Clients {
    async fn instances(&self, _: &Site) -> Result<Arc<dyn InstanceHost>, ProviderError> {
        Err(ProviderError::unusable("lxd", "there is none here"))
    }
    async fn maas(&self, _: &Site) -> Result<Arc<MaasObserver>, ProviderError> {
        Err(ProviderError::unusable("maas", "there is none here"))
    }
    async fn openchami(&self, _: &Site) -> Result<Arc<OchamiClient>, ProviderError> {
        Ok(Arc::new(client(&self.0, &self.1, self.2.clone())))
    }
    async fn shell(&self, _: &ShellTarget) -> Result<Box<dyn Shell>, ProviderError> {
        Err(ProviderError::unusable("ssh", "there is none here"))
    }
}

/// A site with one node that is active and ready, and its component.
struct Place {
    world: World,
    sim: SimOpenchami,
    ochami: OchamiClient,
    providers: Arc<Clients>,
    notices: Arc<Notices>,
    components: Components,
    node: NodeId,
    name: Xname,
}

impl Place {
    async fn new(real: Option<[String; 2]>, slot: u32) -> Self {
        let bmc = format!("x4000c0s{slot}b0");
        let name = format!("{bmc}n0");
        let clock = HandClock::at_start();
        let sim = SimOpenchami::start(&[&name], clock.clone(), None).await.unwrap();
        let [sim_smd, sim_bss, pcs] = sim.urls.clone();
        let [smd, bss] = real.unwrap_or([sim_smd, sim_bss]);
        let boot = json!({ "kernel": "http://i/k", "initrd": "http://i/i" });
        let settings = json!({
            "smd_url": smd, "bss_url": bss, "pcs_url": pcs, "needs_token": false, "token_path": "kv/none",
            "boot_profiles": { "default": boot },
        });
        let provider = SiteProvider::Openchami(serde_json::from_value(settings).unwrap());
        let providers = Arc::new(Clients(smd.clone(), bss.clone(), Some(pcs)));
        // Of each place the site has an id of its own: they share one State Manager, and subscribe by it.
        let world = World::at(provider, providers.clone(), clock, u64::from(slot) << 32).await;
        let ochami = client(&smd, &bss, None);
        let endpoint = NewEndpoint {
            id: xname(&bmc),
            address: format!("127.0.0.{slot}:8443"),
            user: "root".to_owned(),
            password: Secret::new(PASSWORD.to_owned()),
            mac: format!("aabbcc40{slot:04x}"),
            systems: vec![NewSystem {
                uri: "/redfish/v1/Systems/Node7".to_owned(),
                uuid: uuid::Uuid::from_u128(0x4000 + u128::from(slot)).to_string(),
                name: "n0".to_owned(),
                boot_interface: (format!("52:54:00:00:40:{slot:02x}"), format!("10.40.0.{slot}")),
            }],
        };
        ochami.make_known(&endpoint).await.unwrap();
        ochami.set_state(&xname(&name), State::On, Flag::Ok).await.unwrap();
        sim.pcs.press(&name, true);
        let node = world.node_row("c07u43", OnboardingMode::Openchami, Status::Active);
        let state = NodeState::new(Status::Active, Availability::Ready);
        let node = Node { state, provider_ref: Some(name.clone()), ..node };
        world.commit(vec![changed(None, node.clone())], vec![]).await;
        let notices: Arc<Notices> = Arc::default();
        let components = components(&world, providers.clone(), Arc::clone(&notices));
        let name = xname(&name);
        Self { node: node.id, world, sim, ochami, providers, notices, components, name }
    }

    /// The server starts anew.
    fn restart(&mut self) {
        self.components = components(&self.world, self.providers.clone(), Arc::clone(&self.notices));
    }

    /// One round, a minute after the last one.
    async fn round(&mut self) -> Tended {
        self.pass(61);
        self.soon().await
    }

    /// A round if one is due now.
    async fn soon(&mut self) -> Tended {
        let begun = self.components.tick(self.world.clock.now()).await.unwrap();
        let ended = self.components.settle(self.world.clock.now()).await.unwrap();
        Tended { begun: begun.begun, ..ended }
    }

    fn pass(&self, seconds: u64) {
        self.world.clock.set(self.world.clock.now() + Duration::from_secs(seconds));
    }

    async fn said(&self) -> Word {
        self.ochami.component(&self.name).await.unwrap().unwrap().word()
    }

    async fn others_say(&self, state: State, flag: Flag) {
        self.ochami.set_state(&self.name, state, flag).await.unwrap();
    }

    async fn report(&self) -> ComponentReport {
        self.world.store.component(self.node).await.unwrap().unwrap()
    }

    /// The node becomes what it would by its own machine; only its row counts here.
    async fn becomes(&self, status: Status, availability: Availability) {
        let node = self.world.node(self.node).await;
        let down_cause = (availability == Availability::Down).then_some(DownCause::HeartbeatLost);
        let after =
            Node { state: NodeState::new(status, availability), down_cause, ..node.successor(self.world.clock.now()) };
        self.world.commit(vec![changed(Some(node.state), after)], vec![]).await;
    }

    async fn events(&self, name: &str) -> Vec<String> {
        let events = self.world.store.events(EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
        let named = events.into_iter().filter(|event| event.row.name == name);
        named.map(|event| event.row.payload["detail"].as_str().unwrap_or_default().to_owned()).collect()
    }

    async fn set_provider(&mut self, change: impl FnOnce(&mut Site)) {
        let mut site = self.world.store.site(self.world.site.id).await.unwrap().unwrap();
        change(&mut site);
        site.generation = site.generation.next();
        self.world.commit(vec![Change::Site(Box::new(site.clone()))], vec![]).await;
        self.world.site = site;
    }

    async fn told_where(&mut self, url: Option<&str>) {
        let url = url.map(str::to_owned);
        self.set_provider(|site| {
            if let SiteProvider::Openchami(settings) = &mut site.provider {
                settings.notices_url = url;
            }
        })
        .await;
    }

    /// Addresses of our subscriptions.
    async fn subscribed(&self) -> Vec<String> {
        let name = format!("lattice@{}", self.world.site.id);
        let all = self.ochami.subscriptions().await.unwrap().into_iter();
        all.filter(|one| one.subscriber == name).map(|one| one.url).collect()
    }
}

fn changed(before: Option<NodeState>, after: Node) -> Change {
    let action = if before.is_none() { NodeAction::Created } else { NodeAction::Moved };
    Change::Node(Box::new(NodeChange { after, before, action, cause: "test".to_owned(), detail: String::new() }))
}

fn components(world: &World, providers: Arc<Clients>, notices: Arc<Notices>) -> Components {
    let tools = world.tools_with(CrashPlan::never(), world.clock.clone(), providers);
    Components::new(Arc::new(tools), notices)
}

async fn states_are_told(mut place: Place) {
    assert_eq!(place.round().await.told, 1);
    assert_eq!(place.said().await, READY);
    let down = (Status::Offline, Availability::Down);
    for (state, is_on, want) in [
        ((Status::Active, Availability::Degraded), true, Word::new(ComponentState::Ready, ComponentFlag::Warning)),
        ((Status::Active, Availability::Ready), true, READY),
        ((Status::Active, Availability::Draining), true, STANDBY),
        (down, true, LOST),
        (down, false, Word::new(ComponentState::Off, ComponentFlag::Alert)),
        (down, true, LOST),
        ((Status::Active, Availability::Degraded), true, Word::new(ComponentState::Ready, ComponentFlag::Warning)),
        ((Status::Active, Availability::Ready), true, READY),
    ] {
        place.becomes(state.0, state.1).await;
        place.sim.pcs.press(place.name.as_str(), is_on);
        assert_eq!(place.round().await.told, 1, "{} {}", state.0, state.1);
        assert_eq!(place.said().await, want, "{} {}", state.0, state.1);
        assert_eq!(place.round().await.told, 0, "what stands there is not told again");
    }
    // Power that cannot be read is not off.
    place.becomes(down.0, down.1).await;
    place.sim.pcs.press(place.name.as_str(), false);
    place.sim.pcs.set_fault(place.name.as_str(), Some(lattice_sim::openchami::PcsFault::Unreachable));
    place.round().await;
    assert_eq!(place.said().await, LOST);
    assert_eq!(place.events("node.component.changed").await, Vec::<String>::new(), "nobody else changed anything");
}

async fn evidence_moves_nothing(mut place: Place) {
    place.round().await;
    let before = place.world.node(place.node).await;
    place.others_say(State::Ready, Flag::Alert).await;
    place.round().await;
    let report = place.report().await;
    assert_eq!((report.raised, report.said), (Some(ComponentFlag::Alert), Some(place.said().await)));
    assert_eq!(place.said().await.flag, ComponentFlag::Alert, "whoever raised it takes it back");
    place.others_say(State::Off, Flag::Ok).await;
    let tended = place.round().await;
    assert_eq!((tended.changed, tended.told), (1, 1));
    assert_eq!(place.said().await, READY, "its agent is heard");
    assert_eq!(place.events("node.component.changed").await.len(), 2);
    assert_eq!(place.world.node(place.node).await, before, "nothing of it moves the node");
    // Not heard: theirs stands, and is shown as theirs. Ready makes it no more ready than before.
    place.becomes(Status::Offline, Availability::Down).await;
    place.round().await;
    place.others_say(State::Halt, Flag::Warning).await;
    assert_eq!(place.round().await.told, 0);
    assert_eq!(place.said().await, Word::new(ComponentState::Halt, ComponentFlag::Warning));
    assert!(place.report().await.in_words().contains("State Manager says halt/warning"));
    place.others_say(State::Ready, Flag::Ok).await;
    assert_eq!(place.round().await.told, 1);
    assert_eq!(place.said().await, LOST);
    assert_eq!(place.world.node(place.node).await.state.availability, Availability::Down);
}

async fn one_subscription(mut place: Place) {
    place.round().await;
    assert_eq!(place.subscribed().await, Vec::<String>::new(), "nobody said where notices go");
    place.told_where(Some("http://127.0.0.1:9/")).await;
    for _ in 0..3 {
        place.restart();
        place.round().await;
        let urls = place.subscribed().await;
        assert_eq!(urls.len(), 1, "{urls:?}");
        place.pass(2);
        place.soon().await;
    }
    let first = place.subscribed().await.remove(0);
    let site = place.world.site.id;
    let key = first.strip_prefix(&format!("http://127.0.0.1:9/api/v1/notices/openchami/{site}/")).unwrap().to_owned();
    assert!(key.len() >= 43, "{} characters can be guessed", key.len());
    // Only its key is heard, and one that was heard has State Manager read before its time.
    let now = place.world.clock.now();
    let secrets = place.world.secrets.clone();
    let came = async |site, key: &str| place.notices.came(&*secrets, site, key, now).await.unwrap();
    assert_eq!(came(site, "guessed").await, Verified::Unknown);
    assert_eq!(came(site, "").await, Verified::Unknown);
    assert_eq!(came(SiteId::new(uuid::Uuid::nil()), &key).await, Verified::Unknown);
    place.pass(5);
    assert_eq!(place.soon().await.begun, 0, "a forged notice does nothing");
    for _ in 0..3 {
        let came = place.notices.came(&*secrets, site, &key, now).await.unwrap();
        assert_eq!(came, Verified::Taken);
    }
    assert_eq!(place.soon().await.begun, 1, "one look for all that came");
    assert_eq!(place.soon().await.begun, 0);
    // Another address, a doubled one, and none.
    place.told_where(Some("http://127.0.0.1:10")).await;
    place.pass(5);
    place.round().await;
    let urls = place.subscribed().await;
    assert!(urls.len() == 1 && urls[0].starts_with("http://127.0.0.1:10/"), "{urls:?}");
    place.ochami.subscribe(&format!("lattice@{site}"), &[State::Off], "http://127.0.0.1:9/old").await.unwrap();
    place.round().await;
    assert_eq!(place.subscribed().await, urls);
    place.becomes(Status::Deleted, Availability::Unknown).await;
    place.round().await;
    assert_eq!(place.subscribed().await, Vec::<String>::new(), "the site has no nodes any more");
    let text = everything(&place.world).await;
    assert!(!text.contains(&key), "the key is in no row");
}

/// Everything that was committed, as text.
async fn everything(world: &World) -> String {
    let mut export = Vec::new();
    world.store.audit_export(&mut export).await.unwrap();
    let events = world.store.events(EventSeq(0), &EventFilter::default(), 1_000).await.unwrap();
    format!("{}{events:?}", String::from_utf8_lossy(&export))
}

async fn login(place: &Place, path: &str) -> (String, String) {
    let kept: SecretObject = place.world.secrets.read(&path.parse().unwrap()).await.unwrap();
    (kept["user"].expose().clone(), kept["pass"].expose().clone())
}

async fn bmcs_are_taken_over(mut place: Place) {
    place.round().await;
    assert_eq!(place.world.store.bmc(place.node).await.unwrap(), None);
    let problem = place.report().await.bmc_problem.expect("loopback is not allowed unless the site says so");
    assert!(problem.contains("bmc.networks"), "{problem}");
    place.set_provider(|site| site.bmc.networks = vec!["127.0.0.0/8".parse().unwrap()]).await;
    place.pass(5);
    assert_eq!(place.round().await.bmcs, 1);
    assert_eq!(place.report().await.bmc_problem, None);
    let bmc = place.world.store.bmc(place.node).await.unwrap().unwrap();
    let address = (bmc.endpoint.address.to_string(), bmc.endpoint.port);
    assert_eq!(address, ("127.0.0.4".to_owned(), Some(8443)));
    let way = BmcWay::Redfish { tls: BmcTls::Plain, system: Some("Node7".to_owned()) };
    assert_eq!((&bmc.endpoint.way, bmc.set_by.as_str()), (&way, IMPORTER));
    let path = bmc.endpoint.credential_path.clone();
    assert_eq!(login(&place, &path).await, ("root".to_owned(), PASSWORD.to_owned()));
    let text = everything(&place.world).await;
    assert!(!text.contains(PASSWORD), "the password is nowhere else");
    assert_eq!(place.round().await.bmcs, 0, "what is so already is not set again");
    // An operator's own stands, login and all.
    let site = place.world.site.clone();
    let node = place.world.node(place.node).await;
    let mut endpoint = bmc.endpoint.clone();
    endpoint.address = "127.0.0.99".parse().unwrap();
    endpoint.credential_path = "kv/nodes/own/bmc".to_owned();
    let commit: Commit = bmc_commands::set(&place.world.request(), &node, &site, Some(&bmc), endpoint.clone()).unwrap();
    place.world.store.commit_one(commit).await.unwrap();
    assert_eq!(place.round().await.bmcs, 0);
    let stands = place.world.store.bmc(place.node).await.unwrap().unwrap();
    assert_eq!((stands.endpoint, stands.set_by.as_str()), (endpoint, "test"));
}

async fn nothing_is_told(mut place: Place) {
    place.ochami.set_state(&xname("x4999c0s0b0n0"), State::Ready, Flag::Ok).await.expect("it is passed over");
    let node = place.world.node(place.node).await;
    let gone = Node { provider_ref: Some("x4999c0s0b0n0".to_owned()), ..node.successor(place.world.clock.now()) };
    place.world.commit(vec![changed(Some(node.state), gone)], vec![]).await;
    let tended = place.round().await;
    assert_eq!((tended.told, tended.troubled), (0, 0));
    assert_eq!(place.report().await.in_words(), "State Manager has no component x4999c0s0b0n0");
}

#[tokio::test]
async fn a_login_that_changes_at_state_manager_is_followed() {
    let mut place = Place::new(None, 6).await;
    place.set_provider(|site| site.bmc.networks = vec!["127.0.0.0/8".parse().unwrap()]).await;
    assert_eq!(place.round().await.bmcs, 1);
    let path = place.world.store.bmc(place.node).await.unwrap().unwrap().endpoint.credential_path;
    place.sim.smd.set_login("x4000c0s6b0", "root", "another");
    assert_eq!(place.round().await.bmcs, 1);
    assert_eq!(login(&place, &path).await.1, "another");
    place.sim.smd.set_login("x4000c0s6b0", "", "");
    assert_eq!(place.round().await.bmcs, 0);
    let problem = place.report().await.bmc_problem.unwrap();
    assert!(problem.contains("keeps no login for x4000c0s6b0"), "{problem}");
    assert_eq!(login(&place, &path).await.1, "another", "the one that is known stays");
}

#[tokio::test]
async fn a_state_manager_that_fails_is_told_of_once_and_nothing_is_believed_of_it() {
    for fault in [SmdFault::Down, SmdFault::Broken, SmdFault::Empty] {
        let mut place = Place::new(None, 7).await;
        place.round().await;
        let before = (place.report().await, place.world.node(place.node).await);
        place.sim.smd.set_fault(Some(fault));
        for _ in 0..3 {
            assert_eq!(place.round().await.troubled, 1, "{fault:?}");
        }
        assert_eq!(before, (place.report().await, place.world.node(place.node).await), "{fault:?}");
        assert_eq!(place.events("site.state_manager_lost").await.len(), 1, "{fault:?}");
        place.sim.smd.set_fault(None);
        assert_eq!(place.round().await.troubled, 0, "{fault:?}");
        assert_eq!(place.events("site.state_manager_back").await.len(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_state_manager_that_takes_a_state_and_keeps_its_own_is_told_again_a_minute_later_and_not_before() {
    let mut place = Place::new(None, 8).await;
    let before = place.sim.smd.orders(place.name.as_str());
    place.sim.smd.set_fault(Some(SmdFault::Deaf));
    assert_eq!(place.round().await.told, 0, "what it says then is not what it was told");
    assert_eq!(place.sim.smd.orders(place.name.as_str()), before + 1);
    let report = place.report().await;
    assert_eq!((report.told, report.said.map(|word| word.state)), (Some(READY), Some(ComponentState::On)));
    place.becomes(Status::Active, Availability::Ready).await;
    place.pass(5);
    place.soon().await;
    assert_eq!(place.sim.smd.orders(place.name.as_str()), before + 1);
    place.sim.smd.set_fault(None);
    assert_eq!(place.round().await.told, 1);
    assert_eq!(place.said().await, READY);
}

#[tokio::test]
async fn a_slow_state_manager_keeps_nobody_waiting() {
    let mut place = Place::new(None, 9).await;
    place.sim.smd.set_fault(Some(SmdFault::Slow(Duration::from_millis(300))));
    place.pass(61);
    let begun = place.components.tick(place.world.clock.now()).await.unwrap();
    assert_eq!(begun.begun, 1);
    place.pass(120);
    let again = place.components.tick(place.world.clock.now()).await.unwrap();
    assert_eq!((again.begun, again.told), (0, 0), "one round at a time, and a tick waits for none");
    let ended = place.components.settle(place.world.clock.now()).await.unwrap();
    assert_eq!((ended.told, ended.troubled), (1, 0));
}

#[tokio::test]
async fn a_node_that_moves_is_told_within_a_second_and_a_lost_notice_is_made_up_for_by_the_next_poll() {
    let mut place = Place::new(None, 10).await;
    place.round().await;
    place.becomes(Status::Active, Availability::Draining).await;
    place.pass(1);
    assert_eq!(place.soon().await.told, 1);
    assert_eq!(place.said().await, STANDBY);
    place.sim.smd.mute(true);
    place.sim.smd.set(place.name.as_str(), &json!({ "State": "Off" }));
    place.pass(2);
    assert_eq!(place.soon().await.begun, 0, "nobody told of it");
    assert_eq!(place.round().await.changed, 1);
}

#[tokio::test]
async fn another_server_of_the_same_rows_does_nothing_while_this_one_does_it() {
    let mut place = Place::new(None, 11).await;
    place.round().await;
    let mut tools = place.world.tools_with(CrashPlan::never(), place.world.clock.clone(), place.providers.clone());
    tools.holder = "lattice-2".to_owned();
    let mut other = Components::new(Arc::new(tools), Arc::default());
    assert_eq!(other.tick(place.world.clock.now()).await.unwrap().begun, 0);
    place.pass(120);
    assert_eq!(other.tick(place.world.clock.now()).await.unwrap().begun, 1, "its lease ran out");
    other.settle(place.world.clock.now()).await.unwrap();
}

#[tokio::test]
async fn a_site_may_have_nothing_told_and_no_bmc_taken_over() {
    let mut place = Place::new(None, 12).await;
    place
        .set_provider(|site| {
            site.bmc.networks = vec!["127.0.0.0/8".parse().unwrap()];
            if let SiteProvider::Openchami(settings) = &mut site.provider {
                settings.policy.publish_states = false;
                settings.policy.import_bmcs = false;
            }
        })
        .await;
    let tended = place.round().await;
    assert_eq!((tended.told, tended.bmcs), (0, 0));
    assert_eq!(
        place.report().await.said.map(|word| word.state),
        Some(ComponentState::On),
        "it is looked at all the same"
    );
}
