//! The wipe of a node as its page shows it: under way, failed, confirmed.

use std::collections::BTreeSet;
use std::time::Duration;

use lattice_core::actor::Actor;
use lattice_core::agent::task::{
    EraseMethod, GpuScrub, NvmeErase, Progress, RamScrub, SigningKey, Task, TaskErrorCode, TaskInput, TaskOutput,
    TaskOwner, TaskReport, WipeEvidence, WipeOutput,
};
use lattice_core::change::Change;
use lattice_core::command::{Request, task as tasks};
use lattice_core::explain::NextAction;
use lattice_core::failure::FailureClass;
use lattice_core::ids::{CertificateId, CorrelationId, OpId};
use lattice_core::job::{Failure, Job, JobKind, JobStatus, StageEventStatus, StageName, Wait};
use lattice_core::node::{Availability, DownCause, Hold, HoldKind, Node, Status};
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;
use lattice_core::wipe::{CertificateFile, ProvenStep, WipeCertificate, WipeRun, WipeTarget};

use crate::fleet::{self, created, job, job_change, seed, worked};
use crate::server::{START, TOKEN, TestServer, Time, VIEWER};

/// When the steps were asked for: seconds before the page.
const BEGAN: u64 = 420;

fn before(seconds: u64) -> Timestamp {
    START - Duration::from_secs(seconds)
}

/// A wipe that is being put together.
struct Wipe<'a> {
    server: &'a TestServer,
    node: Node,
    job: Job,
}

impl<'a> Wipe<'a> {
    /// Its first step was asked for.
    async fn begun(server: &'a TestServer, site: &fleet::Fleet, hostname: &str, state: (Status, Availability)) -> Self {
        let mut node = fleet::node(server, site.site, hostname, state, before(600));
        let hold = |kind| Hold {
            kind,
            by: Actor::system("wipes"),
            reason: "sensitive work of ada ended".to_owned(),
            since: before(600),
            until: None,
            job: None,
        };
        node.holds = vec![hold(HoldKind::WipeRequired)];
        if state.1 == Availability::Down {
            node.holds.push(hold(HoldKind::WipeFailed));
            node.down_cause = Some(DownCause::WipeFailed);
        }
        let mut job = job(server, &node, JobKind::SensitiveWipe, before(600));
        job.outputs.wipe = Some(WipeRun { started_at: before(BEGAN), boot: None, steps: Vec::new() });
        node.owning_job = Some(job.id);
        server.commit(before(600), vec![created(&node), job_change(&job, None, "created", &[])]).await;
        server.hear(node.id, Duration::from_secs(3));
        Self { server, node, job }
    }

    fn request(&self, at: Timestamp) -> Request<'a> {
        Request {
            actor: Actor::system("job"),
            reason: String::new(),
            now: at,
            ids: &*self.server.ids,
            op: OpId::generate(&*self.server.ids, at),
            correlation: CorrelationId::generate(&*self.server.ids, at),
        }
    }

    /// A step is asked for, and its agent says that about it.
    async fn step(&self, stage: StageName, input: TaskInput, at: u64, said: Progress) -> Task {
        let key = format!("{}/{stage}", self.job.id);
        let owner = TaskOwner::Job { job: self.job.id, stage };
        let new = tasks::NewTask { node: &self.node, owner, key, input, term: None };
        let (task, issued) = tasks::issue(&self.request(before(at)), new, [7; 16]).unwrap();
        self.server.store.commit_one(issued).await.unwrap();
        let report = TaskReport { task: task.id, at: before(at - 10), progress: said };
        let request = self.request(before(at - 10));
        let change = tasks::reported(&request, &task, &report).unwrap().unwrap();
        let after = change.after.clone();
        self.server.commit(before(at - 10), vec![Change::Task(Box::new(change))]).await;
        after
    }

    async fn gpus(&mut self) -> Task {
        let names: Vec<String> = (1..=2).map(|slot| format!("0000:{slot:02x}:00.0")).collect();
        let evidence = names.iter().map(|name| evidence(name, "MI300X", "", "gpu_reset", None)).collect();
        let output = WipeOutput { inventory: names.iter().cloned().collect(), evidence };
        let said = Progress::Succeeded { output: TaskOutput::GpuScrub(output) };
        let task = self.step(StageName::ClearGpuMemory, TaskInput::GpuScrub(GpuScrub { gpus: 2 }), BEGAN, said).await;
        self.prove(WipeTarget::GpuMemory, &task, names.into_iter().collect());
        task
    }

    async fn nvme(&self, said: Progress) -> Task {
        let devices = BTreeSet::from(["nvme0n1".to_owned()]);
        let input = NvmeErase { devices, keep: BTreeSet::from(["nvme1n1".to_owned()]), method: EraseMethod::Crypto };
        self.step(StageName::EraseNvme, TaskInput::NvmeErase(input), 300, said).await
    }

    fn prove(&mut self, target: WipeTarget, task: &Task, devices: BTreeSet<String>) {
        let kept = match target {
            WipeTarget::NvmeDrive => BTreeSet::from(["nvme1n1".to_owned()]),
            WipeTarget::GpuMemory | WipeTarget::MainMemory => BTreeSet::new(),
        };
        let run = self.job.outputs.wipe.as_mut().unwrap();
        run.steps.push(ProvenStep { target, task: task.id, devices, kept });
    }

    /// The job stands there now.
    async fn stands(mut self, stage: StageName, status: JobStatus, events: &[(StageName, StageEventStatus, &str)]) {
        self.job.state.limit_at = Some(before(BEGAN) + Duration::from_secs(1_800));
        let job = worked(self.job, stage, status, before(120));
        let change = job_change(&job, Some(JobStatus::Pending), "stage_ok", events);
        self.server.commit(before(120), vec![change]).await;
    }

    /// The certificate of a device.
    async fn certify(&self, target: WipeTarget, task: &Task, one: WipeEvidence) -> CertificateFile {
        let certificate = WipeCertificate {
            id: CertificateId::generate(&*self.server.ids, before(60)),
            node: self.node.id,
            hostname: self.node.hostname.clone(),
            site: self.node.site,
            job: self.job.id,
            task: task.id,
            erased: target,
            inventory: BTreeSet::from([one.device.clone()]),
            evidence: one,
            kept: BTreeSet::new(),
            boot_before: "boot-1".to_owned(),
            boot_after: "boot-2".to_owned(),
            wipe_started_at: before(BEGAN),
            confirmed_at: before(60),
        };
        let file = certificate.signed(&SigningKey::from_seed(&Secret::new(vec![7; 32])).unwrap());
        self.server.commit(before(60), vec![Change::WipeCertificate(Box::new(file.clone()))]).await;
        file
    }
}

fn evidence(device: &str, model: &str, serial: &str, method: &str, bytes: Option<u64>) -> WipeEvidence {
    WipeEvidence {
        device: device.to_owned(),
        model: model.to_owned(),
        serial: serial.to_owned(),
        bytes,
        method: method.to_owned(),
        tool: "/usr/sbin/nvme".to_owned(),
        tool_version: "2.8 <x>".to_owned(),
        exit_code: 0,
        status_before: "namespace in use".to_owned(),
        status_after: "sanitized".to_owned(),
        started_at: before(400),
        finished_at: before(390),
    }
}

fn erased() -> (WipeEvidence, Progress) {
    let one = evidence("nvme0n1", "INTEL SSDPF2KX076", "PHAC1234", "crypto", Some(7_681_501_126_656));
    let inventory = BTreeSet::from(["nvme0n1".to_owned(), "nvme1n1".to_owned()]);
    let output = WipeOutput { inventory, evidence: vec![one.clone()] };
    (one, Progress::Succeeded { output: TaskOutput::NvmeErase(output) })
}

fn panel(page: &str) -> &str {
    let start = page.find(r#"<section class="panel" id="wipe-title-panel""#).unwrap_or_else(|| panic!("{page}"));
    &page[start..start + page[start..].find("</section>").unwrap()]
}

#[tokio::test]
async fn a_wipe_under_way_shows_each_device_what_it_waits_for_and_when_it_fails() {
    let server = TestServer::start(Time::Stands).await;
    let fleet = seed(&server).await;
    let mut wipe = Wipe::begun(&server, &fleet, "c09u01", (Status::Active, Availability::Drained)).await;
    wipe.gpus().await;
    wipe.nvme(Progress::Running).await;
    wipe.job.state.wait = Some(Wait { reason: "its agent to erase nvme0n1".to_owned(), until: before(0) });
    wipe.stands(StageName::EraseNvme, JobStatus::Running, &[(StageName::EraseNvme, StageEventStatus::Started, "")])
        .await;
    let (_, page) = server.page("/ui/nodes/c09u01", TOKEN).await;
    insta::assert_snapshot!("wipe_under_way", panel(&page));
}

#[tokio::test]
async fn a_wipe_that_failed_says_where_and_its_next_actions_are_buttons() {
    let server = TestServer::start(Time::Stands).await;
    let fleet = seed(&server).await;
    let mut wipe = Wipe::begun(&server, &fleet, "c09u02", (Status::Quarantined, Availability::Down)).await;
    wipe.gpus().await;
    let why = "nvme0n1: /usr/sbin/nvme ended with 1: <device> is busy";
    wipe.nvme(Progress::failed(TaskErrorCode::EffectFailed, why)).await;
    wipe.job.state.failure = Some(Failure {
        stage: StageName::EraseNvme,
        class: FailureClass::HardwareMismatch,
        error_code: "wipe_failed".to_owned(),
        message: why.to_owned(),
        at: before(120),
        next_action: NextAction::run("lattice admin node wipe c09u02 --force", "wipes it again, from the first step"),
    });
    let failed = [(StageName::EraseNvme, StageEventStatus::Failed, why)];
    wipe.stands(StageName::EraseNvme, JobStatus::FailedManualIntervention, &failed).await;
    let (_, page) = server.page("/ui/nodes/c09u02", TOKEN).await;
    insta::assert_snapshot!("wipe_failed", panel(&page));
    let start = page.find(r#"id="why""#).unwrap();
    let why = &page[start..start + page[start..].find("</section>").unwrap()];
    insta::assert_snapshot!("wipe_failed_next", why);
    assert!(why.contains(r#"data-path="/api/v1/admin/nodes/c09u02/wipe" data-body="{&#34;force&#34;:true}""#), "{why}");
    assert!(why.contains("lattice node disable c09u02"), "{why}");
}

#[tokio::test]
async fn a_confirmed_wipe_gives_its_certificates_as_files_that_verify() {
    let server = TestServer::start(Time::Stands).await;
    let fleet = seed(&server).await;
    let mut wipe = Wipe::begun(&server, &fleet, "c09u03", (Status::Active, Availability::Ready)).await;
    wipe.gpus().await;
    let (one, said) = erased();
    let task = wipe.nvme(said).await;
    wipe.prove(WipeTarget::NvmeDrive, &task, BTreeSet::from(["nvme0n1".to_owned()]));
    let memory = evidence("memory", "", "", "overwrite", Some(2_162_000_000_000));
    let output = WipeOutput { inventory: BTreeSet::from(["memory".to_owned()]), evidence: vec![memory.clone()] };
    let said = Progress::Succeeded { output: TaskOutput::RamScrub(output) };
    let input = TaskInput::RamScrub(RamScrub { reserve_mib: 1_024 });
    let scrub = wipe.step(StageName::ScrubMemory, input, 200, said).await;
    wipe.prove(WipeTarget::MainMemory, &scrub, BTreeSet::from(["memory".to_owned()]));
    let file = wipe.certify(WipeTarget::NvmeDrive, &task, one).await;
    wipe.certify(WipeTarget::MainMemory, &scrub, memory).await;
    let done = [(StageName::ConfirmWipe, StageEventStatus::Succeeded, "")];
    wipe.stands(StageName::ConfirmWipe, JobStatus::Completed, &done).await;
    let (_, page) = server.page("/ui/nodes/c09u03", TOKEN).await;
    insta::assert_snapshot!("wipe_confirmed", panel(&page));
    let path = format!("/ui/wipes/{}", file.certificate.id);
    let (status, text) = server.page(&path, VIEWER).await;
    assert_eq!((status, CertificateFile::verify(text.as_bytes()).as_ref()), (200, Ok(&file)), "{text}");
    assert_eq!(server.page("/ui/wipes/nothing", TOKEN).await.0, 404);
    assert_ne!(server.page(&path, "lat_api_nobody").await.0, 200);
}
