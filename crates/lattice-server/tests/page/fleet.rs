//! A small fleet with a bit of everything: what a person sees on a normal day.

use std::time::Duration;

use lattice_core::actor::{Actor, Role};
use lattice_core::batch::{Batch, BatchCause, BatchChange, BatchControl, BatchStatus, Children};
use lattice_core::change::{Change, JobChange, NodeAction, NodeChange};
use lattice_core::explain::NextAction;
use lattice_core::failure::FailureClass;
use lattice_core::ids::{BatchId, CorrelationId, EventSeq, Generation, JobId, NodeId, SiteId, WebhookId, WebhookKeyId};
use lattice_core::job::{
    Failure, Job, JobInput, JobKind, JobOutputs, JobState, JobStatus, Observed, StageEvent, StageEventStatus,
    StageName, Wait,
};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::node::{
    Availability, DiskFact, DownCause, GpuFact, Hold, HoldKind, HostFacts, NicFact, Node, NodeClass, NodeState,
    OnboardingMode, PowerFact, ProviderState, Status,
};
use lattice_core::site::{MaasSettings, Site, SiteProvider, SiteStatus};
use lattice_core::sku::Sku;
use lattice_core::time::Timestamp;
use lattice_core::webhook::delivery::{Attempted, Delivery, WebhookProgress, WebhookStep, after};
use lattice_core::webhook::{Webhook, WebhookCause, WebhookChange, WebhookStatus};

use crate::server::{START, TestServer};

/// Its model.
pub const MODEL: &str = "mi300x.192g.8gpu";

const STAGES: [StageName; 13] = [
    StageName::LoadSiteConfig,
    StageName::ResolvePowerCredentials,
    StageName::CreateOrFindInMaas,
    StageName::CommissionNode,
    StageName::WaitForReady,
    StageName::ConfigureStorage,
    StageName::ApplyRocePhase2,
    StageName::EnsurePxeInterfaceAuto,
    StageName::RenderCloudInit,
    StageName::DeployViaMaas,
    StageName::WaitForDeployed,
    StageName::EnsureHardwareSyncConfigured,
    StageName::WaitForAgentEnrollment,
];

/// How long each of them takes, in milliseconds.
const USUAL_MS: [u64; 13] = [200, 150, 2_100, 1_400, 410_000, 900, 1_200, 300, 80, 1_900, 540_000, 2_500, 11_000];

/// Ids of what a test goes to.
pub struct Fleet {
    pub site: SiteId,
    pub failed_job: JobId,
}

fn before(seconds: u64) -> Timestamp {
    START - Duration::from_secs(seconds)
}

/// Fills the store.
pub async fn seed(server: &TestServer) -> Fleet {
    let site = maas_site(server);
    let lab = Site { name: "local".to_owned(), provider: SiteProvider::Manual, ..other(server, &site) };
    let skus = [sku(MODEL, 8), sku("vm.small", 0)].map(Change::Sku);
    let mut changes = vec![Change::Site(Box::new(site.clone())), Change::Site(Box::new(lab.clone()))];
    changes.extend(skus);
    server.commit(before(86_400), changes).await;
    for number in 1..=24 {
        healthy(server, &site, &format!("c07u{number:02}"), number).await;
    }
    for number in 1..=14 {
        healthy(server, &site, &format!("c08u{number:02}"), number + 40).await;
    }
    troubled(server, &site).await;
    let failed_job = waiting(server, &site).await;
    for (hostname, stage, age) in [("c07u44", 10, 400), ("c07u45", 12, 8), ("c07u46", 4, 130)] {
        onboarding(server, &site, hostname, stage, age).await;
    }
    Fleet { site: site.id, failed_job }
}

fn maas_site(server: &TestServer) -> Site {
    Site {
        id: SiteId::generate(&*server.ids, before(86_400)),
        name: "dc1".to_owned(),
        region_code: "eu-1".to_owned(),
        provider: maas_provider(),
        heartbeat: HeartbeatPolicy::default(),
        bmc: lattice_core::bmc::BmcPolicy::default(),
        automation: lattice_core::site::AutomationPolicy::default(),
        brake: None,
        let_go_at: None,
        approved: Vec::new(),
        sensitive: lattice_core::site::SensitivePolicy::default(),
        status: SiteStatus::Active,
        created_at: before(86_400),
        updated_at: before(86_400),
        generation: Generation::FIRST,
    }
}

fn maas_provider() -> SiteProvider {
    let provider = serde_json::json!({"kind": "maas", "api_base_url": "http://10.176.46.1:5240/MAAS",
        "api_token_path": "lattice/sites/dc1/api", "default_power_creds_path": "lattice/sites/dc1/power",
        "deploy_password_path": "lattice/sites/dc1/deploy", "pxe_iface": "eno1", "pxe_vlan_vid": 46,
        "node_pxe_iface": "eno8303"});
    serde_json::from_value(provider).unwrap()
}

fn other(server: &TestServer, like: &Site) -> Site {
    Site { id: SiteId::generate(&*server.ids, before(86_400)), ..like.clone() }
}

fn sku(name: &str, gpus: u32) -> Sku {
    Sku {
        name: name.to_owned(),
        gpus,
        gpu_vendor: None,
        gpu_model: None,
        nics: Vec::new(),
        disks: Vec::new(),
        created_at: before(86_400),
        updated_at: before(86_400),
        generation: Generation::FIRST,
    }
}

/// A node in those states.
pub fn node(
    server: &TestServer,
    site: SiteId,
    hostname: &str,
    state: (Status, Availability),
    since: Timestamp,
) -> Node {
    let mark = hostname.bytes().fold(7_u32, |mark, byte| mark.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let (high, low) = (mark / 250 % 250, mark % 250);
    Node {
        id: NodeId::generate(&*server.ids, since),
        hostname: hostname.to_owned(),
        site,
        sku: MODEL.to_owned(),
        class: NodeClass::Standard,
        mode: OnboardingMode::Maas,
        state: NodeState::new(state.0, state.1),
        status_since: since,
        availability_since: since,
        down_cause: None,
        deadline: None,
        boot_failures: 0,
        drain_intent: false,
        minor_issue: None,
        identity_epoch: 1,
        boot_id: Some("7a0d8c1e".to_owned()),
        agent_version: Some("0.1.0".to_owned()),
        fingerprint: Some("sha256:9f86d081884c7d65".to_owned()),
        deviates_since: None,
        labels: lattice_core::node::Labels::new(),
        address: Some(format!("10.20.{high}.{low}")),
        bmc_address: Some(format!("10.30.{high}.{low}")),
        provider_ref: Some(format!("{mark:x}")),
        owning_job: None,
        holds: Vec::new(),
        ownership: lattice_core::allocation::Ownership::default(),
        created_at: since,
        updated_at: since,
        generation: Generation::FIRST,
    }
}

/// It appears.
pub fn created(node: &Node) -> Change {
    changed(node, None, NodeAction::Created, "onboarding_accepted")
}

/// It moves to other states at `now`: its next row, and the change.
pub fn moved(node: &Node, state: (Status, Availability), now: Timestamp, cause: &str) -> (Node, Change) {
    let mut after = node.successor(now);
    after.state = NodeState::new(state.0, state.1);
    after.availability_since = now;
    after.status_since = if after.state.status == node.state.status { node.status_since } else { now };
    let change = changed(&after, Some(node.state), NodeAction::Moved, cause);
    (after, change)
}

fn changed(after: &Node, before: Option<NodeState>, action: NodeAction, cause: &str) -> Change {
    Change::Node(Box::new(NodeChange {
        after: after.clone(),
        before,
        action,
        cause: cause.to_owned(),
        detail: String::new(),
    }))
}

fn settings() -> MaasSettings {
    let SiteProvider::Maas(maas) = maas_provider() else { panic!("a MAAS site") };
    MaasSettings::of(&maas, None)
}

/// A job of that kind on the node, accepted at `at`.
pub fn job(server: &TestServer, node: &Node, kind: JobKind, at: Timestamp) -> Job {
    let id = JobId::generate(&*server.ids, at);
    let hostname = node.hostname.clone();
    let (input, first) = match kind {
        JobKind::Onboarding => {
            let ipmi_ip = node.bmc_address.clone().unwrap_or_default();
            let input = JobInput::OnboardMaas { hostname, ipmi_ip, pxe_mac: None, settings: Box::new(settings()) };
            (input, StageName::LoadSiteConfig)
        }
        JobKind::Drain => (JobInput::Drain { urgent: false, deadline_ms: None, allocations: 0 }, StageName::BeginDrain),
        JobKind::Retire => (JobInput::Retire { disposal: lattice_core::job::Disposal::Keep }, StageName::DisableNode),
        JobKind::Remove => (JobInput::Remove, StageName::UninstallAgent),
        JobKind::Reboot => (JobInput::Reboot { boot: None }, StageName::PowerOff),
        JobKind::Reimage => (JobInput::Reimage { image: None }, StageName::LoadOpenchamiSiteConfig),
        JobKind::BmcInvestigation => (JobInput::InvestigateBmc, StageName::CheckOutOfBand),
        JobKind::SecureErase => {
            (JobInput::SecureErase { drives: Vec::new(), powered_on: false }, StageName::FindDrives)
        }
        JobKind::SensitiveWipe => {
            (JobInput::WipeSensitive { reboot: lattice_core::wipe::WipeReboot::Power }, StageName::PrepareWipe)
        }
    };
    Job {
        id,
        kind,
        node: node.id,
        site: node.site,
        batch: None,
        hostname: node.hostname.clone(),
        input,
        state: JobState::pending(id, first, at),
        outputs: JobOutputs::default(),
        observed: None,
        lease: None,
        requested_by: Actor { name: "ops-ci".to_owned(), role: Role::PlatformAdmin },
        reason: "new machines in rack c07".to_owned(),
        correlation: CorrelationId::generate(&*server.ids, at),
        created_at: at,
        started_at: Some(at),
        finished_at: None,
        updated_at: at,
        generation: Generation::FIRST,
    }
}

pub fn job_change(
    after: &Job,
    before: Option<JobStatus>,
    cause: &str,
    events: &[(StageName, StageEventStatus, &str)],
) -> Change {
    let event = |(stage, status, message): &(StageName, StageEventStatus, &str)| StageEvent {
        stage: *stage,
        attempt: 1,
        round: 0,
        status: *status,
        message: (*message).to_owned(),
    };
    Change::Job(Box::new(JobChange {
        after: after.clone(),
        before,
        cause: cause.to_owned(),
        stage_events: events.iter().map(event).collect(),
        visible: true,
    }))
}

fn facts() -> HostFacts {
    let gpu = |slot: u32| GpuFact {
        address: format!("0000:{slot:02x}:00.0"),
        vendor: "amd".to_owned(),
        model: "MI300X".to_owned(),
    };
    let nic = |number: u32| NicFact {
        name: format!("rdma{number}"),
        mac: format!("02:00:00:00:00:{number:02x}"),
        firmware: "22.41".to_owned(),
        speed_mbps: 400_000,
    };
    let disk = |name: &str, model: &str, bytes| DiskFact {
        name: name.to_owned(),
        model: model.to_owned(),
        size_bytes: bytes,
        in_use: false,
    };
    HostFacts {
        gpus: (1..=8).map(gpu).collect(),
        nics: (0..4).map(nic).collect(),
        disks: vec![
            disk("nvme0n1", "INTEL SSDPF2KX076", 7_681_501_126_656),
            disk("sda", "DELLBOSS VD", 480_036_847_616),
        ],
        memory_mib: 2_063_597,
        cpus: 256,
        kernel: "6.8.0-48-generic".to_owned(),
        os: "Ubuntu 24.04.1 LTS".to_owned(),
    }
}

/// An active node with the job that brought it, whose times make the usual ones.
async fn healthy(server: &TestServer, site: &Site, hostname: &str, number: u64) {
    let begun = before(40_000 - number * 60);
    let young = node(server, site.id, hostname, (Status::Enrolling, Availability::Unknown), begun);
    let mut job = job(server, &young, JobKind::Onboarding, begun);
    server.commit(begun, vec![created(&young), job_change(&job, None, "created", &[])]).await;
    let mut at = begun;
    for (stage, usual) in STAGES.iter().zip(USUAL_MS) {
        let start = at;
        at = at + Duration::from_millis(usual * (80 + number * 7 % 60) / 100);
        let was = job.state.status;
        job = worked(job, *stage, JobStatus::Running, start);
        let started = job_change(&job, Some(was), "claimed", &[(*stage, StageEventStatus::Started, "")]);
        server.commit(start, vec![started]).await;
        job = worked(job, *stage, JobStatus::Running, at);
        let done = job_change(&job, Some(JobStatus::Running), "stage_ok", &[(*stage, StageEventStatus::Succeeded, "")]);
        server.commit(at, vec![done]).await;
    }
    let mut over = worked(job, StageName::WaitForAgentEnrollment, JobStatus::Completed, at);
    over.finished_at = Some(at);
    let (booting, one) = moved(&young, (Status::Enrolling, Availability::Booting), at, "agent_registered");
    let (ready, two) = moved(&booting, (Status::Enrolling, Availability::Ready), at, "health_check_passed");
    let (active, three) = moved(&ready, (Status::Active, Availability::Ready), at, "onboarded");
    let done = job_change(&over, Some(JobStatus::Running), "completed", &[]);
    server.commit(at, vec![one]).await;
    server.commit(at, vec![two]).await;
    server.commit(at, vec![three, done, Change::HostFacts { node: active.id, facts: facts() }]).await;
    server.commit(before(30), vec![provider(&active, "Deployed", PowerFact::On)]).await;
    server.hear(active.id, Duration::from_secs(number % 9));
}

fn provider(node: &Node, status: &str, power: PowerFact) -> Change {
    Change::ProviderState(ProviderState {
        node: node.id,
        site: node.site,
        provider_ref: node.provider_ref.clone().unwrap_or_default(),
        status: status.to_owned(),
        power,
        addresses: node.address.clone().into_iter().collect(),
        observed_at: before(12),
    })
}

/// The job stands at that stage since `at`.
pub fn worked(job: Job, stage: StageName, status: JobStatus, at: Timestamp) -> Job {
    let mut after = job;
    after.generation = after.generation.next();
    after.updated_at = at;
    if after.state.stage != stage {
        after.state.stage_entered_at = at;
    }
    after.state.stage = stage;
    after.state.highest_stage = stage;
    after.state.status = status;
    after
}

/// Nodes that say why they are not schedulable.
async fn troubled(server: &TestServer, site: &Site) {
    let at = before(9_000);
    let add = |name: &str| node(server, site.id, name, (Status::Active, Availability::Ready), at);
    let silent = add("c07u32");
    let (after, change) = moved(&silent, (Status::Active, Availability::Degraded), before(11), "heartbeat_missed");
    server.commit(at, vec![created(&silent)]).await;
    server.commit(before(11), vec![change]).await;
    server.hear(after.id, Duration::from_secs(41));

    for (name, later) in [("c08u21", 0), ("c08u22", 1), ("c08u23", 4)] {
        let lost = add(name);
        let (mut degraded, one) =
            moved(&lost, (Status::Active, Availability::Degraded), before(420 - later), "heartbeat_missed");
        server.commit(at, vec![created(&lost)]).await;
        server.commit(before(420 - later), vec![one]).await;
        degraded.down_cause = Some(DownCause::HeartbeatLost);
        let (down, two) = moved(&degraded, (Status::Offline, Availability::Down), before(360 - later), "grace_expired");
        server.commit(before(360 - later), vec![two]).await;
        server.hear(down.id, Duration::from_secs(450));
    }

    let mut bad = add("c08u17");
    bad.state = NodeState::new(Status::Quarantined, Availability::Drained);
    server.commit(before(7_400), vec![created(&bad), provider(&bad, "Deployed", PowerFact::On)]).await;
    server.hear(bad.id, Duration::from_secs(5));

    let mut held = add("c08u16");
    held.holds.push(Hold {
        kind: HoldKind::Maintenance,
        by: Actor { name: "mara".to_owned(), role: Role::PlatformAdmin },
        reason: "swap DIMM A7".to_owned(),
        since: before(1_800),
        until: None,
        job: None,
    });
    server.commit(before(1_800), vec![created(&held)]).await;
    server.hear(held.id, Duration::from_secs(2));
}

/// The onboarding that waits for a person.
async fn waiting(server: &TestServer, site: &Site) -> JobId {
    let begun = before(780);
    let mut young = node(server, site.id, "c07u43", (Status::Enrolling, Availability::Unknown), begun);
    (young.boot_id, young.agent_version, young.fingerprint, young.address) = (None, None, None, None);
    let mut job = job(server, &young, JobKind::Onboarding, begun);
    young.owning_job = Some(job.id);
    server.commit(begun, vec![created(&young), job_change(&job, None, "created", &[])]).await;
    let mut at = begun;
    for (place, (stage, usual)) in STAGES.iter().zip(USUAL_MS).take(6).enumerate() {
        let start = at;
        at = at + Duration::from_millis(if place == 4 { 590_000 } else { usual * 9 / 10 });
        let was = job.state.status;
        job = worked(job, *stage, JobStatus::Running, start);
        server
            .commit(start, vec![job_change(&job, Some(was), "claimed", &[(*stage, StageEventStatus::Started, "")])])
            .await;
        if place < 5 {
            job = worked(job, *stage, JobStatus::Running, at);
            let said = if place == 4 { "Ready · power off · 2 block devices, 4 interfaces" } else { "" };
            let done =
                job_change(&job, Some(JobStatus::Running), "stage_ok", &[(*stage, StageEventStatus::Succeeded, said)]);
            server.commit(at, vec![done]).await;
        }
    }
    let message = "no boot disk matches `boss|boot optimized|m.2`; seen: nvme0n1 INTEL SSDPF2KX076 7.7 TB, nvme1n1 INTEL \
                   SSDPF2KX076 7.7 TB";
    job = worked(job, StageName::ConfigureStorage, JobStatus::FailedManualIntervention, at);
    job.state.attempt = 1;
    job.observed =
        Some(Observed { status: "Ready".to_owned(), power: PowerFact::Off, addresses: Vec::new(), at: before(12) });
    job.outputs.provider_ref = young.provider_ref.clone();
    job.outputs.power_credentials = Some("site_default".to_owned());
    job.state.failure = Some(Failure {
        stage: StageName::ConfigureStorage,
        class: FailureClass::HardwareMismatch,
        error_code: "boot_disk_not_found".to_owned(),
        message: message.to_owned(),
        at,
        next_action: NextAction::run(
            format!("lattice job resume {} --boot-disk <disk>", job.id),
            "uses this disk and continues at configure_storage",
        ),
    });
    let failed = (StageName::ConfigureStorage, StageEventStatus::Failed, message);
    server.commit(at, vec![job_change(&job, Some(JobStatus::Running), "stage_failed", &[failed])]).await;
    server.commit(before(12), vec![provider(&young, "Ready", PowerFact::Off)]).await;
    job.id
}

/// An onboarding that goes on, `age` seconds in its stage.
async fn onboarding(server: &TestServer, site: &Site, hostname: &str, reached: usize, age: u64) {
    let begun = before(1_200 + age);
    let mut young = node(server, site.id, hostname, (Status::Enrolling, Availability::Unknown), begun);
    let mut job = job(server, &young, JobKind::Onboarding, begun);
    young.owning_job = Some(job.id);
    server.commit(begun, vec![created(&young), job_change(&job, None, "created", &[])]).await;
    for (place, stage) in STAGES.iter().take(reached + 1).enumerate() {
        let spent: u64 = USUAL_MS[place..reached].iter().sum();
        let at = before(age) - Duration::from_millis(spent);
        let was = job.state.status;
        job = worked(job, *stage, JobStatus::Running, at);
        server
            .commit(at, vec![job_change(&job, Some(was), "claimed", &[(*stage, StageEventStatus::Started, "")])])
            .await;
        if place < reached {
            let done = at + Duration::from_millis(USUAL_MS[place]);
            job = worked(job, *stage, JobStatus::Running, done);
            let event = (*stage, StageEventStatus::Succeeded, "");
            server.commit(done, vec![job_change(&job, Some(JobStatus::Running), "stage_ok", &[event])]).await;
        }
    }
    job = worked(job, STAGES[reached], JobStatus::Running, before(age));
    job.state.wait = Some(Wait { reason: "its agent".to_owned(), until: START + Duration::from_secs(20) });
    server.commit(before(age), vec![job_change(&job, Some(JobStatus::Running), "stage_waiting", &[])]).await;
}

/// A batch of four machines: one is a node, one is on its way, one stopped, one waits.
pub async fn batch(server: &TestServer, site: SiteId) -> BatchId {
    let at = before(600);
    let id = BatchId::generate(&*server.ids, at);
    let mara = Actor { name: "mara".to_owned(), role: Role::PlatformAdmin };
    let row = Batch {
        id,
        site,
        sku: MODEL.to_owned(),
        profile: None,
        profile_parallel: None,
        machines: 4,
        max_parallel: Some(2),
        control: BatchControl::Run,
        control_by: mara.clone(),
        control_since: at,
        status: BatchStatus::Running,
        status_since: at,
        requested_by: mara,
        reason: "rack c09".to_owned(),
        correlation: CorrelationId::generate(&*server.ids, at),
        created_at: at,
        started_at: Some(at),
        finished_at: None,
        updated_at: at,
        generation: Generation::FIRST,
    };
    let change = BatchChange { after: row, before: None, cause: BatchCause::Created, children: Children::default() };
    server.commit(at, vec![Change::Batch(Box::new(change))]).await;
    let rows = [
        ("c09u01", JobStatus::Completed),
        ("c09u02", JobStatus::Running),
        ("c09u03", JobStatus::FailedRetryable),
        ("c09u04", JobStatus::Pending),
    ];
    for (hostname, status) in rows {
        let young = node(server, site, hostname, (Status::Enrolling, Availability::Unknown), at);
        let mut job = job(server, &young, JobKind::Onboarding, at);
        (job.batch, job.state.stage, job.state.status) = (Some(id), StageName::WaitForReady, status);
        if status == JobStatus::FailedRetryable {
            job.state.failure = Some(Failure {
                stage: StageName::WaitForReady,
                class: FailureClass::UpstreamTransient,
                error_code: "provider_unreachable".to_owned(),
                message: "the region does not answer".to_owned(),
                at: before(60),
                next_action: NextAction::run(format!("lattice job resume {}", job.id), "asks the region again"),
            });
        }
        server.commit(at, vec![created(&young), job_change(&job, None, "created", &[])]).await;
    }
    id
}

/// A webhook that takes what it gets, and one that was given up.
pub async fn webhooks(server: &TestServer) -> WebhookId {
    let taken = Attempted::Taken { status: 204 };
    webhook(server, "mirror", &[(taken.clone(), 40), (taken, 9)], None).await;
    let refused = Attempted::Refused { status: 503, said: "out of <disk>".to_owned() };
    let rows = [(refused.clone(), 86_900), (refused, 300)];
    webhook(server, "ticketing", &rows, Some("it took nothing for 24 h 0 min (20 attempts): answered 503")).await
}

async fn webhook(server: &TestServer, name: &str, attempts: &[(Attempted, u64)], given_up: Option<&str>) -> WebhookId {
    let at = before(90_000);
    let row = Webhook {
        id: WebhookId::generate(&*server.ids, at),
        name: name.to_owned(),
        url: format!("https://{name}.example/lattice"),
        events: vec!["node.*".parse().unwrap(), "onboarding.batch.*".parse().unwrap()],
        site: None,
        status: WebhookStatus::Enabled,
        status_reason: String::new(),
        status_since: at,
        key: WebhookKeyId::generate(&*server.ids, at),
        previous_key: None,
        created_by: Actor { name: "mara".to_owned(), role: Role::PlatformAdmin },
        created_at: at,
        updated_at: at,
        generation: Generation::FIRST,
    };
    let mut progress = WebhookProgress::new(row.id, server.store.last_event().await.unwrap());
    let made = WebhookChange { after: row.clone(), before: None, cause: WebhookCause::Created };
    let step = |after, delivery| Change::WebhookStep(Box::new(WebhookStep { after, delivery }));
    server.commit(at, vec![Change::Webhook(Box::new(made)), step(progress.clone(), None)]).await;
    for (attempted, ago) in attempts {
        let delivery = Delivery {
            number: progress.attempts,
            event: EventSeq(4_711),
            name: "node.moved".to_owned(),
            attempt: progress.failed + 1,
            at: before(*ago),
            status: attempted.status(),
            error: attempted.error(),
            took_ms: 12,
        };
        progress = after(&progress, EventSeq(progress.cursor.0), attempted, before(*ago)).progress;
        server.commit(before(*ago), vec![step(progress.clone(), Some(delivery))]).await;
    }
    if let Some(reason) = given_up {
        let after = row.clone().given_up(reason.to_owned(), before(300));
        let change = WebhookChange { after, before: Some(row.status), cause: WebhookCause::GaveUp };
        server.commit(before(300), vec![Change::Webhook(Box::new(change))]).await;
    }
    row.id
}

/// A silence of one node that is down, one of a rack that has nothing, and one of whatever is degraded in the site.
pub async fn silences(server: &TestServer) {
    use lattice_core::silence::{IncidentKind, Matcher, NamedNode, Silence};
    let bad = server.store.node_by_hostname("c08u17").await.unwrap().unwrap();
    let degraded = Matcher { kind: Some(IncidentKind::NodeDegraded), site: Some(bad.site), ..Matcher::default() };
    let of_node = NamedNode { id: bad.id, hostname: bad.hostname };
    let of_node = Matcher { nodes: vec![of_node], ..Matcher::default() };
    let of_rack = Matcher { selector: [("rack".to_owned(), "c09".to_owned())].into(), ..Matcher::default() };
    for (matcher, reason, minutes) in [
        (of_node, "its board is <on> the way", 240),
        (of_rack, "the rack is moved", 60),
        (degraded, "the fans are known", 10_080),
    ] {
        let silence = Silence {
            id: lattice_core::ids::SilenceId::generate(&*server.ids, before(600)),
            matcher,
            by: Actor { name: "ada".to_owned(), role: Role::PlatformAdmin },
            reason: reason.to_owned(),
            created_at: before(600),
            until: START + Duration::from_secs(minutes * 60),
            generation: Generation::FIRST,
        };
        server.commit(before(600), vec![Change::Silence(Box::new(silence))]).await;
    }
}
