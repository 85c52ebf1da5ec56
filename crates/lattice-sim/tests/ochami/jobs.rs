//! Jobs at an OpenCHAMI site, with a crash after every commit and before every act: the end is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::change::Change;
use lattice_core::command::claim::{Claim, claimable};
use lattice_core::command::job::{Asked, act};
use lattice_core::command::node as commands;
use lattice_core::failure::FailureClass;
use lattice_core::ids::{Generation, JobId, NodeId};
use lattice_core::job::{Decisions, Job, JobInput, JobStatus, OperatorAction, StageName};
use lattice_core::node::availability::AvailabilityEvent;
use lattice_core::node::machine::{Health, NodeEvent};
use lattice_core::node::status::Owner;
use lattice_core::node::{Availability, HoldKind, NodeState, Status};
use lattice_core::secret::Secret;
use lattice_core::site::openchami::{NODE_PARAMETER, PROFILE_PARAMETER, parameter};
use lattice_core::site::{OpenchamiSite, Site, SiteProvider};
use lattice_core::sku::Sku;
use lattice_providers::error::ProviderError;
use lattice_providers::machine::maas::MaasObserver;
use lattice_providers::machine::openchami::{NewEndpoint, NewSystem, OchamiClient};
use lattice_sim::openchami::{PcsFault, SimOpenchami};
use lattice_workflow::crash::CrashPlan;
use lattice_workflow::providers::{InstanceHost, Providers, Shell, ShellTarget};
use serde_json::json;

use crate::harness::{Driven, HandClock, START, World};
use crate::{client, xname};

const NODE: &str = "x1000c0s1b0n0";
const TWIN: &str = "x1000c0s1b0n1";
const MAC: &str = "52:54:00:00:00:01";
const BMC: &str = "10.0.0.1";
const HOST: &str = "c07u43";

struct Clients(Arc<OchamiClient>);

#[async_trait]
impl Providers for Clients {
    async fn instances(&self, _: &Site) -> Result<Arc<dyn InstanceHost>, ProviderError> {
        Err(ProviderError::unusable("lxd", "there is none here"))
    }
    async fn maas(&self, _: &Site) -> Result<Arc<MaasObserver>, ProviderError> {
        Err(ProviderError::unusable("maas", "there is none here"))
    }
    async fn openchami(&self, _: &Site) -> Result<Arc<OchamiClient>, ProviderError> {
        Ok(self.0.clone())
    }
    async fn shell(&self, _: &ShellTarget) -> Result<Box<dyn Shell>, ProviderError> {
        Err(ProviderError::unusable("ssh", "there is none here"))
    }
}

/// A site with one machine, that is on and runs something.
struct Place {
    world: World,
    sim: SimOpenchami,
    /// Whether the machine booted since its power came on.
    booted: AtomicBool,
}

fn site(sim: &SimOpenchami) -> OpenchamiSite {
    let [smd_url, bss_url, pcs_url] = &sim.urls;
    let boot =
        |name: &str| json!({ "kernel": format!("http://i/{name}"), "initrd": "http://i/initrd", "params": "quiet" });
    serde_json::from_value(json!({
        "smd_url": smd_url, "bss_url": bss_url, "pcs_url": pcs_url, "needs_token": false, "token_path": "kv/none",
        "boot_profiles": { "default": boot("compute"), "gpu": boot("gpu") },
    }))
    .unwrap()
}

impl Place {
    async fn new() -> Self {
        let clock = HandClock::at_start();
        let sim = SimOpenchami::start(&[NODE, TWIN], clock.clone(), None).await.unwrap();
        sim.pcs.press(NODE, true);
        let [smd, bss, pcs] = &sim.urls;
        let ochami = Arc::new(client(smd, bss, Some(pcs.clone())));
        let site = SiteProvider::Openchami(site(&sim));
        let world = World::at(site, Arc::new(Clients(ochami.clone())), clock, 0).await;
        let sku = Sku {
            name: "any".to_owned(),
            gpus: 0,
            gpu_vendor: None,
            gpu_model: None,
            nics: Vec::new(),
            disks: Vec::new(),
            created_at: START,
            updated_at: START,
            generation: Generation::FIRST,
        };
        world.commit(vec![Change::Sku(sku)], vec![]).await;
        let place = Self { world, sim, booted: AtomicBool::new(true) };
        place.discovered(&ochami, 1).await;
        place
    }

    /// State Manager learns the BMC with that many machines.
    async fn discovered(&self, ochami: &OchamiClient, machines: u32) {
        let system = |place: u32| NewSystem {
            uri: format!("/redfish/v1/Systems/{place}"),
            uuid: uuid::Uuid::from_u128(u128::from(place) + 1).to_string(),
            name: format!("n{place}"),
            boot_interface: (format!("52:54:00:00:00:{:02x}", place + 1), format!("10.1.0.{}", place + 1)),
        };
        let endpoint = NewEndpoint {
            id: xname("x1000c0s1b0"),
            address: BMC.to_owned(),
            user: "root".to_owned(),
            password: Secret::new(String::new()),
            mac: "aabbccddee01".to_owned(),
            systems: (0..machines).map(system).collect(),
        };
        ochami.make_known(&endpoint).await.unwrap();
    }

    /// The machine does what its power and its boot script say; its agent takes the token as the server would hand it.
    async fn lives(&self, job: JobId) {
        if !self.sim.pcs.is_on(NODE) {
            self.booted.store(false, Ordering::SeqCst);
            return;
        }
        if self.booted.load(Ordering::SeqCst) {
            return;
        }
        let script = self.sim.bss.script(MAC);
        let Some(kernel) = script.lines().find(|line| line.starts_with("kernel ")) else { return };
        let job = self.world.job(job).await;
        if parameter(kernel, NODE_PARAMETER) != Some(&job.node.to_string()) {
            return;
        }
        let node = self.world.node(job.node).await;
        let token = match job.outputs.token {
            Some(token) => self.world.store.enrollment_token(token).await.unwrap(),
            None => None,
        };
        let claim = |peer: &str| {
            let claim = Claim { node: &node, job: Some(&job), token: token.as_ref(), peer: peer.parse().unwrap() };
            claimable(&claim, self.world.request().now).is_ok()
        };
        assert!(!claim("10.1.0.2"), "nobody else is given its token");
        if claim("10.1.0.1") && self.world.agent_comes(job.id).await {
            self.booted.store(true, Ordering::SeqCst);
        }
    }

    async fn drive(&self, job: JobId, crash: CrashPlan) -> Driven {
        self.world.drive(job, crash, async |_| self.lives(job).await).await
    }

    async fn onboarded(&self, crash: CrashPlan) -> Driven {
        let job = self.world.onboard(HOST, named()).await;
        self.drive(job.id, crash).await
    }

    async fn operate(&self, job: &Job, action: OperatorAction, decisions: Decisions) {
        let (job, node) = (self.world.job(job.id).await, self.world.node(job.node).await);
        let asked = Asked { action, decisions, observed: None };
        let planned = act(&self.world.request(), &job, &node, &self.world.site, &asked).unwrap().unwrap();
        self.world.store.commit_one(planned.commit).await.unwrap();
    }

    async fn drained(&self, node: NodeId) {
        let availability = NodeEvent::Availability;
        let events = [availability(AvailabilityEvent::Drain), availability(AvailabilityEvent::Emptied)];
        self.world.move_node(node, Owner::Operator, &events).await;
    }

    /// Its boot parameters, the same under both names.
    fn params(&self) -> Option<String> {
        let stored = self.sim.bss.stored();
        let of = |key: String| stored.get(&key).map(|boot| boot["params"].as_str().unwrap().to_owned());
        let (by_name, by_mac) = (of(format!("hosts/{NODE}")), of(format!("macs/{MAC}")));
        assert_eq!(by_name, by_mac);
        by_name
    }

    /// Every token of the node is used or withdrawn, and nothing is kept secret any more.
    async fn nothing_is_left_open(&self, node: NodeId) {
        for token in self.world.store.enrollment_tokens_of(node).await.unwrap() {
            assert!(token.used_at.is_some() || token.revoked_at.is_some(), "{token:?}");
        }
        assert_eq!(self.world.secrets.paths(), Vec::<String>::new());
    }
}

fn named() -> JobInput {
    by(Some(NODE), None, None)
}

fn by(xname: Option<&str>, mac: Option<&str>, bmc: Option<&str>) -> JobInput {
    JobInput::OnboardOpenchami {
        hostname: HOST.to_owned(),
        xname: xname.map(str::to_owned),
        mac: mac.map(str::to_owned),
        bmc_address: bmc.map(str::to_owned),
        boot_profile: None,
    }
}

async fn at_every_place(run: impl AsyncFn(CrashPlan) -> Driven) -> u64 {
    let places = run(CrashPlan::never()).await.places;
    for place in 0..places {
        let driven = run(CrashPlan::at(place)).await;
        assert_eq!(driven.crashes, 1, "place {place} of {places}");
    }
    places
}

#[tokio::test]
async fn an_onboarding_survives_a_crash_at_every_place() {
    let places = at_every_place(async |crash| {
        let place = Place::new().await;
        let driven = place.onboarded(crash).await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        let node = place.world.node(driven.job.node).await;
        assert_eq!(node.state, NodeState::new(Status::Active, Availability::Ready));
        assert_eq!((node.provider_ref.as_deref(), node.owning_job), (Some(NODE), None));
        let params = place.params().unwrap();
        assert_eq!(parameter(&params, NODE_PARAMETER), Some(node.id.to_string().as_str()));
        assert!(!params.contains("lat_enroll"), "no secret in what anybody may read: {params}");
        place.nothing_is_left_open(node.id).await;
        // An order whose answer was lost may be given again; the machine is never cut off after it booted.
        let orders = place.sim.pcs.orders(NODE);
        assert!(matches!(orders.as_slice(), [first, .., last] if first == "force-off" && last == "on"), "{orders:?}");
        assert!(orders.iter().filter(|order| *order == "on").count() <= 2 && orders.len() <= 3, "{orders:?}");
        driven
    })
    .await;
    assert!(places >= 8, "an onboarding has at least so many places to die at, not {places}");
}

#[tokio::test]
async fn a_reboot_boots_the_assigned_image_with_a_token_of_its_own() {
    at_every_place(async |crash| {
        let place = Place::new().await;
        let node = place.onboarded(CrashPlan::never()).await.job.node;
        let before = place.params().unwrap();
        place.drained(node).await;
        let job = place.world.job_on(node, JobInput::Reboot { boot: None }).await;
        let driven = place.drive(job.id, crash).await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        let node = place.world.node(node).await;
        assert_eq!(node.state, NodeState::new(Status::Active, Availability::Drained), "it was drained before");
        assert_eq!(place.params().unwrap(), before);
        assert_eq!(
            place
                .world
                .store
                .enrollment_tokens_of(node.id)
                .await
                .unwrap()
                .iter()
                .filter(|t| t.used_at.is_some())
                .count(),
            2
        );
        place.nothing_is_left_open(node.id).await;
        driven
    })
    .await;
}

#[tokio::test]
async fn a_reimage_boots_another_image_and_enrols_again() {
    at_every_place(async |crash| {
        let place = Place::new().await;
        let id = place.onboarded(CrashPlan::never()).await.job.node;
        place.drained(id).await;
        let before = place.world.node(id).await;
        let job = reimage(&place, id, Some("gpu")).await.unwrap();
        let held = place.world.node(id).await;
        assert_eq!(held.hold(HoldKind::Maintenance).and_then(|hold| hold.job), Some(job));
        let driven = place.drive(job, crash).await;
        assert_eq!(driven.job.state.status, JobStatus::Completed, "{:?}", driven.job.state);
        let node = place.world.node(id).await;
        assert_eq!(node.state, NodeState::new(Status::Active, Availability::Ready));
        assert_eq!((node.holds.len(), node.identity_epoch), (0, before.identity_epoch + 1));
        assert_eq!(parameter(&place.params().unwrap(), PROFILE_PARAMETER), Some("gpu"));
        place.nothing_is_left_open(id).await;
        driven
    })
    .await;
}

async fn reimage(place: &Place, node: NodeId, image: Option<&str>) -> Result<JobId, String> {
    let node = place.world.node(node).await;
    let known = commands::Known {
        node: &node,
        job: None,
        health: Health::Passed,
        live_allocations: 0,
        site: &place.world.site,
        placed: &[],
        has_bmc: false,
    };
    let planned = commands::reimage(&known, &place.world.request(), commands::Image { name: image, profile: None })
        .map_err(|refused| refused.to_string())?;
    let job = planned.job.unwrap();
    place.world.store.commit_one(planned.commit).await.unwrap();
    Ok(job)
}

#[tokio::test]
async fn a_reimage_is_refused_while_something_runs_and_for_an_image_that_there_is_not() {
    let place = Place::new().await;
    let node = place.onboarded(CrashPlan::never()).await.job.node;
    let ready = reimage(&place, node, None).await.unwrap_err();
    assert!(ready.contains("drain it first"), "{ready}");
    place.drained(node).await;
    let unknown = reimage(&place, node, Some("windows")).await.unwrap_err();
    assert!(unknown.contains("boot_profile") && unknown.contains("default, gpu"), "{unknown}");
}

/// Whatever an onboarding had done when it is cancelled, and wherever the cancel dies: others' boot parameters are back,
/// no token can be used, nothing is kept, and nothing is left of the node.
#[tokio::test]
async fn a_cancelled_onboarding_puts_back_what_the_machine_booted() {
    let theirs = || json!({ "hosts": [NODE], "kernel": "http://theirs/k", "initrd": "", "params": "root=/dev/sda" });
    let stages = [
        StageName::SetBootParameters,
        StageName::PowerOff,
        StageName::OpenEnrollment,
        StageName::PowerOn,
        StageName::WaitForNetworkBoot,
        StageName::WaitForAgentEnrollment,
    ];
    for stage in stages {
        at_every_place(async |crash| {
            let place = Place::new().await;
            place.sim.bss.store("hosts", NODE, theirs());
            let job = place.world.onboard(HOST, named()).await;
            let spoiled = CrashPlan::never().spoiling(Some(lattice_workflow::crash::Spoil {
                stage,
                class: FailureClass::InputConfigError,
                when: lattice_workflow::crash::SpoilWhen::AfterEffect,
            }));
            let stopped = match stage {
                // What waits has no effect of its own: it is stopped as it waits.
                StageName::WaitForNetworkBoot | StageName::WaitForAgentEnrollment => {
                    let silent = place.world.drive(job.id, CrashPlan::never(), async |_| {}).await;
                    assert!(silent.job.state.status.is_failed());
                    silent
                }
                _ => place.drive(job.id, spoiled).await,
            };
            assert!(stopped.job.state.status.is_failed(), "{stage}: {:?}", stopped.job.state);
            place.operate(&stopped.job, OperatorAction::Cancel, Decisions::default()).await;
            let driven = place.drive(job.id, crash).await;
            assert_eq!(driven.job.state.status, JobStatus::Cancelled, "{stage}: {:?}", driven.job.state);
            let stored = place.sim.bss.stored();
            assert_eq!(stored.keys().collect::<Vec<_>>(), [&format!("hosts/{NODE}")], "{stage}");
            assert_eq!(stored[&format!("hosts/{NODE}")]["params"], "root=/dev/sda");
            assert_eq!(place.world.node(job.node).await.state.status, Status::Deleted);
            place.nothing_is_left_open(job.node).await;
            driven
        })
        .await;
    }
}

#[tokio::test]
async fn a_machine_is_found_by_any_of_its_names_and_an_operator_is_asked_when_they_are_not_one() {
    for input in [by(None, Some(MAC), None), by(None, None, Some(BMC)), by(Some(NODE), Some(MAC), Some(BMC))] {
        let place = Place::new().await;
        let job = place.world.onboard(HOST, input).await;
        assert_eq!(place.drive(job.id, CrashPlan::never()).await.job.state.status, JobStatus::Completed);
    }
    // Two machines behind one BMC: which one is it?
    let place = Place::new().await;
    place.sim.smd.remove(NODE);
    let [smd, bss, _] = &place.sim.urls;
    let twin = client(smd, bss, None);
    let second = NewEndpoint {
        id: xname("x1000c0s1b1"),
        address: "10.0.0.2".to_owned(),
        user: String::new(),
        password: Secret::new(String::new()),
        mac: String::new(),
        systems: Vec::new(),
    };
    twin.make_known(&second).await.unwrap();
    let job = place.world.onboard(HOST, by(None, None, Some("10.0.0.2"))).await;
    let waits = place.world.drive(job.id, CrashPlan::never(), async |_| {}).await.job;
    let failure = waits.state.failure.unwrap();
    assert_eq!((failure.class, failure.error_code.as_str()), (FailureClass::PxeDiscoveryFailure, "component_unknown"));
    assert!(failure.message.contains("the BMC 10.0.0.2"), "{}", failure.message);
}

#[tokio::test]
async fn a_component_that_others_use_is_touched_only_when_an_operator_says_so() {
    let place = Place::new().await;
    place.sim.smd.set(NODE, &json!({ "State": "Ready" }));
    let stopped = place.onboarded(CrashPlan::never()).await.job;
    let failure = stopped.state.failure.clone().unwrap();
    assert_eq!((failure.class, failure.error_code.as_str()), (FailureClass::StateAmbiguity, "component_in_use"));
    assert_eq!(place.sim.pcs.orders(NODE), Vec::<String>::new());
    assert_eq!(place.sim.bss.writes(), 0);
    let decisions = Decisions { machine: Some(NODE.to_owned()), ..Decisions::default() };
    place.operate(&stopped, OperatorAction::Resume, decisions).await;
    let done = place.drive(stopped.id, CrashPlan::never()).await.job;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
}

#[tokio::test]
async fn a_power_order_that_fails_says_why_and_the_onboarding_goes_on_once_it_can() {
    for (fault, word) in [(PcsFault::TaskFails, "no answer from the BMC"), (PcsFault::Unreachable, "no answer")] {
        let place = Place::new().await;
        place.sim.pcs.set_fault(NODE, Some(fault));
        let stopped = place.onboarded(CrashPlan::never()).await.job;
        assert_eq!(stopped.state.status, JobStatus::FailedManualIntervention);
        let failure = stopped.state.failure.clone().unwrap();
        assert_eq!((failure.stage, failure.class), (StageName::PowerOff, FailureClass::BmcPowerFailure));
        assert!(failure.message.contains(word), "{}", failure.message);
        assert!(place.sim.pcs.is_on(NODE), "unknown is not off");
        place.sim.pcs.set_fault(NODE, None);
        place.operate(&stopped, OperatorAction::Resume, Decisions::default()).await;
        let done = place.drive(stopped.id, CrashPlan::never()).await.job;
        assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    }
}

#[tokio::test]
async fn power_that_takes_its_time_is_waited_for_without_another_order() {
    let place = Place::new().await;
    place.sim.pcs.set_duration(Duration::from_secs(60));
    let done = place.onboarded(CrashPlan::never()).await.job;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    assert_eq!(place.sim.pcs.orders(NODE), ["force-off", "on"]);
}

#[tokio::test]
async fn a_machine_that_never_asks_for_its_script_is_told_from_one_whose_agent_is_missing() {
    let place = Place::new().await;
    let job = place.world.onboard(HOST, named()).await;
    let dead = place.world.drive(job.id, CrashPlan::never(), async |_| {}).await.job;
    let failure = dead.state.failure.clone().unwrap();
    assert_eq!(failure.error_code, "never_asked_for_boot_script");
    // It asks, and no agent comes: another stage, another code. Then it works: with a token of the new boot.
    place.operate(&dead, OperatorAction::Resume, Decisions::default()).await;
    let mute = place
        .world
        .drive(job.id, CrashPlan::never(), async |_| {
            if place.sim.pcs.is_on(NODE) {
                place.sim.bss.script(MAC);
            }
        })
        .await
        .job;
    assert_eq!(mute.state.failure.clone().unwrap().error_code, "failed_enrollment");
    place.operate(&mute, OperatorAction::Resume, Decisions::default()).await;
    let done = place.drive(job.id, CrashPlan::never()).await.job;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    assert_eq!(place.world.store.enrollment_tokens_of(job.node).await.unwrap().len(), 3, "one for each boot");
    place.nothing_is_left_open(job.node).await;
}

/// What power control kept from long ago is no proof: the machine is switched off, whatever it says.
#[tokio::test]
async fn an_old_word_of_power_control_is_not_taken_for_power_that_is_off() {
    let place = Place::new().await;
    place.sim.pcs.press(NODE, false);
    place.sim.pcs.stand_still();
    place.sim.pcs.press(NODE, true);
    place.world.clock.set(START + Duration::from_secs(3_600));
    let job = place.world.onboard(HOST, named()).await;
    let stopped = place.world.drive(job.id, CrashPlan::never(), async |_| {}).await.job;
    let orders = place.sim.pcs.orders(NODE);
    assert_eq!(orders.first().map(String::as_str), Some("force-off"), "{orders:?}");
    let failure = stopped.state.failure.clone().expect("power control never says that it came on");
    assert_eq!((failure.stage, failure.class), (StageName::PowerOn, FailureClass::BmcPowerFailure));
    place.sim.pcs.go_on();
    place.operate(&stopped, OperatorAction::Resume, Decisions::default()).await;
    let done = place.drive(stopped.id, CrashPlan::never()).await.job;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
}

#[tokio::test]
async fn a_machine_that_has_been_off_for_days_is_told_so_once_more_and_onboarded() {
    let place = Place::new().await;
    place.sim.pcs.press(NODE, false);
    place.world.clock.set(START + Duration::from_secs(2 * 86_400));
    let done = place.onboarded(CrashPlan::never()).await.job;
    assert_eq!(done.state.status, JobStatus::Completed, "{:?}", done.state);
    assert_eq!(place.sim.pcs.orders(NODE), ["force-off", "on"]);
}
