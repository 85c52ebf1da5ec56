//! The flows: each kind of work as a table of stages, with the values of its policy. spec: S5 4.3, 4.6, 4.10, 5.4, 10

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::flow::{Attempts, BackEdge, Backoff, Enter, Failing, Flow, Limit, Reentry, Stage, Timeout, Undo, UndoKind};
use super::operator_action::DecisionKind;
use super::stage::StageName;
use crate::failure::FailureClass;
use crate::node::Status;
use crate::node::availability::BOOT_FAILURES;
use crate::site::{LxdSite, MaasPolicy, OpenchamiPolicy};

/// Code of a deployment failure that is worth a second deployment. spec: S5 4.3 ClassifyDeployFailure
pub const DATASOURCE_LIKE: &str = "datasource_like";
/// Code of any other deployment failure.
pub const GENERIC: &str = "generic";

/// Code of a boot whose host came up ill: it is booted again, until three in a row failed. spec: S1 "Booting → Failed"
pub const CAME_UP_ILL: &str = "came_up_ill";

/// Which flow a job follows; the first part of its idempotency keys.
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
pub enum FlowName {
    /// A machine becomes a node, through MAAS. spec: S5 4.3
    OnboardingMaas,
    /// An instance becomes a node. spec: S5 10
    OnboardingLxd,
    /// A machine of an OpenCHAMI system becomes a node.
    OnboardingOpenchami,
    /// An operator ran the bootstrap command.
    OnboardingManual,
    /// A node is emptied, and stays in the fleet. spec: S1
    Drain,
    /// A node leaves the fleet, and keeps its identity. spec: S2 3.2
    Retire,
    /// A retired node is removed by its own agent. spec: S5 5.4 RemoveGPUaaSNodeRecord
    Remove,
    /// A retired LXD node is deleted with its instance. spec: S5 10
    RemoveLxd,
    /// A machine or an instance is switched off and on again. spec: S1 "Down → Booting"
    Reboot,
    /// A machine of an OpenCHAMI system boots its image anew, with a fresh token. spec: S1 "Down → Booting"
    RebootOpenchami,
    /// A machine of an OpenCHAMI system boots another image, and enrols again. spec: S1 "Down → Booting"
    ReimageOpenchami,
    /// A machine is released and deployed again through MAAS, and enrols again. spec: S5 7.3
    ReimageMaas,
    /// A node that went down is looked at through its BMC. spec: S1 "Degraded → Down"
    BmcInvestigation,
    /// A node is wiped after sensitive work. spec: S1 "Sensitive Release Sequence"
    SensitiveWipe,
    /// A node's BMC erases its drives.
    SecureErase,
}

/// Seconds.
const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Pause between attempts against a provider: long enough for a restart of it, short enough to watch.
const PROVIDER_BACKOFF: Backoff = Backoff { first: s(2), max: s(60) };
/// Pause between attempts that need a machine or its BMC to settle.
const MACHINE_BACKOFF: Backoff = Backoff { first: s(10), max: s(120) };
/// Longest time of a stage that only talks to a provider; three attempts with their pauses fit in.
const CALL: Timeout =
    Timeout { after: s(600), class: FailureClass::UpstreamTransient, error_code: "stage_timeout", windows: 1 };

/// A stage that observes first, tries three times and lets the class decide. spec: S5 4.6 "Retry 3x"
const fn stage(name: StageName) -> Stage {
    Stage {
        name,
        enter: Enter::InSequence,
        reentry: Reentry::ObserveFirst,
        attempts: Attempts::Bounded(3),
        backoff: PROVIDER_BACKOFF,
        timeout: CALL,
        failing: Failing::ByClass,
        resume_at: None,
        undo: None,
        decisions: &[],
        node_during: None,
        node_after: None,
    }
}

const fn within(after: Duration, class: FailureClass, error_code: &'static str) -> Timeout {
    Timeout { after, class, error_code, windows: 1 }
}

const fn undo(kind: UndoKind, timeout: Duration, until: Option<StageName>) -> Option<Undo> {
    Some(Undo { kind, attempts: 3, backoff: MACHINE_BACKOFF, timeout, until })
}

/// Onboarding through MAAS: the 16 stages of S2 4.2, in S5 4.3's order.
pub fn onboarding_maas(policy: &MaasPolicy) -> Flow {
    let mut stages = before_deploy(policy);
    stages.extend(deployed(policy));
    let back_edge = Some(deployed_again(policy));
    Flow { name: FlowName::OnboardingMaas, version: 1, stages, back_edge, limit: None }
}

/// Another OS through MAAS: from the release of the machine on nothing of the one before is left, so the node enrols again
/// from there, by the stages of an onboarding. spec: S5 7.3; design: 2-state-model "Reimage"
pub fn reimage_maas(policy: &MaasPolicy) -> Flow {
    let load = Stage { reentry: Reentry::Pure, ..stage(StageName::LoadSiteConfig) };
    let release = Stage {
        backoff: MACHINE_BACKOFF,
        timeout: within(RELEASE, FailureClass::UpstreamTransient, "release_timeout"),
        node_during: Some(Status::Enrolling),
        ..stage(StageName::ReleaseMachine)
    };
    let mut stages = vec![load, release];
    // What an operator puts right is looked at again where the machine is Ready already.
    stages.extend(configure(policy).map(|stage| Stage { resume_at: None, ..stage }));
    stages.extend(deployed(policy));
    let back_edge = Some(deployed_again(policy));
    Flow { name: FlowName::ReimageMaas, version: 1, stages, back_edge, limit: None }
}

/// Longest release of a machine: its disks may be erased.
pub const RELEASE: Duration = s(7_200);

/// A deployment, until its agent enrolled.
fn deployed(policy: &MaasPolicy) -> Vec<Stage> {
    let mut stages = deploy(policy);
    stages.extend(after_deploy(policy));
    stages
}

/// A deployment whose datasource failed is tried again, as often as the policy says.
fn deployed_again(policy: &MaasPolicy) -> BackEdge {
    let max_rounds =
        if policy.enable_deploy_retry_on_datasource_failure { policy.max_deploy_retry_attempts } else { 0 };
    BackEdge {
        from: &[StageName::WaitForDeployed, StageName::ClassifyDeployFailure],
        class: FailureClass::DeployCloudInitFailure,
        error_code: DATASOURCE_LIKE,
        via: Some(StageName::RecoverForDatasourceRetry),
        // A release gives storage and interfaces back: they are looked at again. spec: S5 5.3
        to: StageName::ConfigureStorage,
        max_rounds,
    }
}

fn before_deploy(policy: &MaasPolicy) -> Vec<Stage> {
    let discovery = Duration::from_millis(policy.discovery_timeout_ms);
    let commission = Duration::from_millis(policy.commission_timeout_ms);
    let mut stages = vec![
        Stage { reentry: Reentry::Pure, node_during: Some(Status::Enrolling), ..stage(StageName::LoadSiteConfig) },
        Stage { reentry: Reentry::Pure, ..stage(StageName::ResolvePowerCredentials) },
        Stage {
            timeout: within(discovery, FailureClass::PxeDiscoveryFailure, "discovery_timeout"),
            backoff: MACHINE_BACKOFF,
            decisions: &[DecisionKind::Machine],
            ..stage(StageName::CreateOrFindInMaas)
        },
        Stage { backoff: MACHINE_BACKOFF, ..stage(StageName::CommissionNode) },
        Stage {
            timeout: within(commission, FailureClass::PxeDiscoveryFailure, "failed_commission_timeout"),
            resume_at: Some(StageName::CommissionNode),
            ..stage(StageName::WaitForReady)
        },
    ];
    stages.extend(configure(policy));
    stages
}

/// What a machine that is Ready is given before it is deployed.
fn configure(policy: &MaasPolicy) -> [Stage; 3] {
    let pxe_failing = if policy.strict_pxe_preflight { Failing::ByClass } else { Failing::Continues };
    [
        // MAAS believes its inventory until the machine is commissioned again: what was put right shows only then.
        Stage {
            decisions: &[DecisionKind::BootDisk],
            resume_at: Some(StageName::CommissionNode),
            ..stage(StageName::ConfigureStorage)
        },
        Stage { failing: Failing::Continues, ..stage(StageName::ApplyRocePhase2) },
        Stage {
            attempts: Attempts::Bounded(2),
            failing: pxe_failing,
            resume_at: Some(StageName::CommissionNode),
            ..stage(StageName::EnsurePxeInterfaceAuto)
        },
    ]
}

fn deploy(policy: &MaasPolicy) -> Vec<Stage> {
    const RUNNING_OS: Option<StageName> = Some(StageName::EnsureHardwareSyncConfigured);
    let deploy = Duration::from_millis(policy.deploy_timeout_ms);
    vec![
        Stage { undo: undo(UndoKind::RevokeEnrollmentToken, s(300), None), ..stage(StageName::RenderCloudInit) },
        Stage {
            reentry: Reentry::NeverBlind,
            backoff: MACHINE_BACKOFF,
            undo: undo(UndoKind::ReleaseToReady, s(1_800), RUNNING_OS),
            // A machine that was released meanwhile lost its storage and its addresses. spec: S5 5.3
            resume_at: Some(StageName::ConfigureStorage),
            ..stage(StageName::DeployViaMaas)
        },
        Stage {
            timeout: within(deploy, FailureClass::DeployCloudInitFailure, "deploy_timeout"),
            resume_at: Some(StageName::ConfigureStorage),
            ..stage(StageName::WaitForDeployed)
        },
        Stage {
            enter: Enter::OnFailure { of: StageName::WaitForDeployed, class: FailureClass::DeployCloudInitFailure },
            reentry: Reentry::Pure,
            resume_at: Some(StageName::RecoverForDatasourceRetry),
            ..stage(StageName::ClassifyDeployFailure)
        },
        Stage {
            enter: Enter::BackEdge,
            attempts: Attempts::Bounded(2),
            backoff: MACHINE_BACKOFF,
            timeout: within(s(1_800), FailureClass::DeployCloudInitFailure, "recovery_timeout"),
            failing: Failing::ForOperator,
            ..stage(StageName::RecoverForDatasourceRetry)
        },
    ]
}

fn after_deploy(policy: &MaasPolicy) -> Vec<Stage> {
    let seed = Duration::from_millis(policy.hw_sync_seed_timeout_ms);
    let health = Duration::from_millis(policy.hw_sync_health_timeout_ms);
    let enrollment = Duration::from_millis(policy.enrollment_timeout_ms);
    let sync_failing = if policy.require_hw_sync { Failing::ByClass } else { Failing::Continues };
    vec![
        Stage {
            attempts: Attempts::UntilTimeout,
            timeout: within(seed, FailureClass::HardwareSyncFailure, "failed_hw_sync_seed"),
            failing: sync_failing,
            ..stage(StageName::EnsureHardwareSyncConfigured)
        },
        Stage {
            attempts: Attempts::UntilTimeout,
            timeout: within(health, FailureClass::HardwareSyncFailure, "failed_hw_sync_health"),
            failing: sync_failing,
            resume_at: Some(StageName::EnsureHardwareSyncConfigured),
            ..stage(StageName::WaitForHardwareSyncHealthy)
        },
        enrollment_stage(enrollment, 2),
    ]
}

fn enrollment_stage(after: Duration, windows: u32) -> Stage {
    Stage {
        timeout: Timeout { windows, ..within(after, FailureClass::AgentEnrollmentFailure, "failed_enrollment") },
        node_after: Some(Status::Active),
        ..stage(StageName::WaitForAgentEnrollment)
    }
}

/// Onboarding as an LXD instance: seconds, not minutes. spec: S5 10
pub fn onboarding_lxd(site: &LxdSite) -> Flow {
    let stages = vec![
        Stage { reentry: Reentry::Pure, node_during: Some(Status::Enrolling), ..stage(StageName::LoadLxdSiteConfig) },
        Stage { undo: undo(UndoKind::DeleteInstance, s(300), None), ..stage(StageName::CreateLxdInstance) },
        Stage {
            timeout: within(s(120), FailureClass::UpstreamTransient, "instance_not_running"),
            resume_at: Some(StageName::CreateLxdInstance),
            ..stage(StageName::WaitForRunning)
        },
        Stage { undo: undo(UndoKind::RevokeEnrollmentToken, s(300), None), ..stage(StageName::InjectBootstrap) },
        Stage {
            resume_at: Some(StageName::InjectBootstrap),
            ..enrollment_stage(Duration::from_millis(site.enrollment_timeout_ms), 2)
        },
    ];
    Flow { name: FlowName::OnboardingLxd, version: 1, stages, back_edge: None, limit: None }
}

/// Manual onboarding: the operator holds the bootstrap command, the job waits as long as its token lives.
pub fn onboarding_manual(token_ttl: Duration) -> Flow {
    let stage = Stage {
        node_during: Some(Status::Enrolling),
        undo: undo(UndoKind::RevokeEnrollmentToken, s(300), None),
        ..enrollment_stage(token_ttl, 1)
    };
    Flow { name: FlowName::OnboardingManual, version: 1, stages: vec![stage], back_edge: None, limit: None }
}

/// S1's drain: the node is emptied and stays in the fleet. Its allocations end within `patience`.
pub fn drain(patience: Duration) -> Flow {
    let stages = vec![
        Stage { undo: undo(UndoKind::Undrain, s(300), None), ..stage(StageName::BeginDrain) },
        Stage {
            timeout: within(patience, FailureClass::PostDeployConnectivityFailure, "drain_timeout"),
            ..stage(StageName::WaitForDrained)
        },
    ];
    Flow { name: FlowName::Drain, version: 1, stages, back_edge: None, limit: None }
}

/// Retirement: active, offline or quarantined → draining → retired. spec: S2 3.2, S5 5.8
pub fn retire(patience: Duration) -> Flow {
    let stages = vec![
        Stage { node_after: Some(Status::Draining), ..stage(StageName::DisableNode) },
        Stage {
            timeout: within(patience, FailureClass::PostDeployConnectivityFailure, "drain_timeout"),
            backoff: MACHINE_BACKOFF,
            ..stage(StageName::DrainNode)
        },
        Stage { node_after: Some(Status::Retired), ..stage(StageName::RetireGpuaasNode) },
    ];
    Flow { name: FlowName::Retire, version: 1, stages, back_edge: None, limit: None }
}

/// Removal of a retired node by its own agent: retired → removing → deleted. spec: S5 5.4, 5.8
pub fn remove() -> Flow {
    let uninstall = Stage {
        backoff: MACHINE_BACKOFF,
        timeout: within(s(900), FailureClass::PostDeployConnectivityFailure, "uninstall_timeout"),
        node_during: Some(Status::Removing),
        decisions: &[DecisionKind::OsGone],
        ..stage(StageName::UninstallAgent)
    };
    let stages = std::iter::once(uninstall).chain(end_of_identity()).collect();
    Flow { name: FlowName::Remove, version: 1, stages, back_edge: None, limit: None }
}

/// Removal of a retired LXD node with its instance; that the instance is gone is the proof. spec: S5 10
pub fn remove_lxd() -> Flow {
    let stop = Stage { node_during: Some(Status::Removing), ..stage(StageName::StopInstance) };
    let stages = [stop, stage(StageName::DeleteInstance)].into_iter().chain(end_of_identity()).collect();
    Flow { name: FlowName::RemoveLxd, version: 1, stages, back_edge: None, limit: None }
}

/// Longest time in which a machine must have done what its power control was told: a soft stop waits for the services of
/// its OS, and a BMC that is busy answers after a minute. After the first of these the power is cut.
const POWER: Duration = s(180);

/// Off and on again: the node boots from the moment at which its power is seen to be off, for `boot` at most.
pub fn reboot(boot: Duration) -> Flow {
    let stages = power_cycle(boot).into();
    Flow { name: FlowName::Reboot, version: 1, stages, back_edge: Some(BOOTS_AGAIN), limit: None }
}

/// A host that came up ill is switched off and on again; the node counts the boots, and fails after the third.
const BOOTS_AGAIN: BackEdge = BackEdge {
    from: &[StageName::WaitForBoot],
    class: FailureClass::HardwareMismatch,
    error_code: CAME_UP_ILL,
    via: None,
    to: StageName::PowerOff,
    max_rounds: BOOT_FAILURES - 1,
};

fn power_cycle(boot: Duration) -> [Stage; 3] {
    let power = |error_code| within(POWER, FailureClass::BmcPowerFailure, error_code);
    [
        Stage {
            backoff: MACHINE_BACKOFF,
            timeout: Timeout { windows: 2, ..power("power_off_timeout") },
            ..stage(StageName::PowerOff)
        },
        Stage {
            backoff: MACHINE_BACKOFF,
            timeout: power("power_on_timeout"),
            resume_at: Some(StageName::PowerOff),
            ..stage(StageName::PowerOn)
        },
        Stage {
            timeout: within(boot, FailureClass::PostDeployConnectivityFailure, "boot_timeout"),
            resume_at: Some(StageName::PowerOff),
            ..stage(StageName::WaitForBoot)
        },
    ]
}

/// How the host of a wipe restarts.
#[derive(Debug, Clone, Copy)]
pub enum Restart<'a> {
    /// Off and on again, through its BMC or its provider; a boot takes so long at most.
    Power(Duration),
    /// It boots its image from the network.
    Network(&'a OpenchamiPolicy),
    /// Its agent restarts it.
    Agent,
}

impl Restart<'_> {
    /// Its stages, and the one from which it is tried again.
    fn stages(self) -> (Vec<Stage>, StageName) {
        match self {
            Self::Power(boot) => (power_cycle(boot).into(), StageName::PowerOff),
            Self::Network(policy) => (reboot_openchami(policy).stages, StageName::PowerOff),
            Self::Agent => (vec![stage(StageName::RebootHost)], StageName::RebootHost),
        }
    }
}

/// The wipe of a node after sensitive work. All of it but the wait for running work is done within `whole`, whatever the
/// single stages take; every failure asks an operator. spec: S1 "Sensitive Release Sequence", "Wipe Failure Handling"
pub fn sensitive_wipe(patience: Duration, whole: Duration, restart: Restart) -> Flow {
    let silent = FailureClass::PostDeployConnectivityFailure;
    // A step that failed is not tried again by itself: what a device refused once, a person looks at.
    let step = |name| Stage { timeout: within(whole, silent, "wipe_timeout"), ..stage(name) };
    let mut stages = vec![
        Stage { timeout: within(patience, silent, "drain_timeout"), ..stage(StageName::PrepareWipe) },
        step(StageName::ClearGpuMemory),
        step(StageName::EraseNvme),
        step(StageName::ScrubMemory),
    ];
    let (restarting, restarts) = restart.stages();
    stages.extend(restarting);
    stages.push(Stage { attempts: Attempts::UntilTimeout, resume_at: Some(restarts), ..step(StageName::ConfirmWipe) });
    for stage in &mut stages {
        stage.failing = Failing::ForOperator;
    }
    let limit = Limit { from: StageName::ClearGpuMemory, after: whole, class: silent, error_code: "wipe_timeout" };
    Flow { name: FlowName::SensitiveWipe, version: 1, stages, back_edge: None, limit: Some(limit) }
}

/// Onboarding of a machine of an OpenCHAMI system: it boots an image from the network, whose agent enrols.
pub fn onboarding_openchami(policy: &OpenchamiPolicy) -> Flow {
    let mut stages = vec![
        Stage {
            reentry: Reentry::Pure,
            node_during: Some(Status::Enrolling),
            ..stage(StageName::LoadOpenchamiSiteConfig)
        },
        find_component(policy),
    ];
    stages.extend(netboot(policy, RESTORED, None));
    stages.push(waits_for_network(policy));
    stages.push(Stage {
        resume_at: Some(StageName::PowerOff),
        ..enrollment_stage(Duration::from_millis(policy.enrollment_timeout_ms), 2)
    });
    Flow { name: FlowName::OnboardingOpenchami, version: 1, stages, back_edge: None, limit: None }
}

/// What it boots stands; its power is cut, and the agent of the new boot comes with a token of its own.
pub fn reboot_openchami(policy: &OpenchamiPolicy) -> Flow {
    let mut stages = vec![find_component(policy)];
    stages.extend(netboot(policy, None, None));
    let boot = policy.netboot_timeout_ms + policy.enrollment_timeout_ms;
    stages.push(Stage {
        timeout: within(Duration::from_millis(boot), FailureClass::PostDeployConnectivityFailure, "boot_timeout"),
        resume_at: Some(StageName::PowerOff),
        ..stage(StageName::WaitForBoot)
    });
    Flow { name: FlowName::RebootOpenchami, version: 1, stages, back_edge: Some(BOOTS_AGAIN), limit: None }
}

/// Another image: once the power is off nothing of the OS before is left, so the node enrols again from there.
/// design: 2-state-model "Reimage"
pub fn reimage_openchami(policy: &OpenchamiPolicy) -> Flow {
    let mut stages =
        vec![Stage { reentry: Reentry::Pure, ..stage(StageName::LoadOpenchamiSiteConfig) }, find_component(policy)];
    stages.extend(netboot(policy, RESTORED, Some(Status::Enrolling)));
    stages.push(waits_for_network(policy));
    stages.push(Stage {
        resume_at: Some(StageName::PowerOff),
        ..enrollment_stage(Duration::from_millis(policy.enrollment_timeout_ms), 2)
    });
    Flow { name: FlowName::ReimageOpenchami, version: 1, stages, back_edge: None, limit: None }
}

const RESTORED: Option<Undo> = undo(UndoKind::RestoreBootParameters, s(300), None);

fn find_component(policy: &OpenchamiPolicy) -> Stage {
    let discovery = Duration::from_millis(policy.discovery_timeout_ms);
    Stage {
        timeout: within(discovery, FailureClass::PxeDiscoveryFailure, "component_unknown"),
        decisions: &[DecisionKind::Machine],
        ..stage(StageName::FindComponent)
    }
}

/// The token is made while the machine is off: whatever ran there before cannot take it.
fn netboot(policy: &OpenchamiPolicy, restored: Option<Undo>, while_off: Option<Status>) -> [Stage; 4] {
    let power = Duration::from_millis(policy.power_timeout_ms);
    let power = |error_code| within(power, FailureClass::BmcPowerFailure, error_code);
    [
        Stage { undo: restored, ..stage(StageName::SetBootParameters) },
        Stage {
            backoff: MACHINE_BACKOFF,
            timeout: Timeout { windows: 2, ..power("power_off_timeout") },
            node_during: while_off,
            ..stage(StageName::PowerOff)
        },
        Stage {
            undo: undo(UndoKind::RevokeEnrollmentToken, s(300), None),
            resume_at: Some(StageName::PowerOff),
            ..stage(StageName::OpenEnrollment)
        },
        Stage {
            backoff: MACHINE_BACKOFF,
            timeout: power("power_on_timeout"),
            resume_at: Some(StageName::PowerOff),
            ..stage(StageName::PowerOn)
        },
    ]
}

fn waits_for_network(policy: &OpenchamiPolicy) -> Stage {
    let netboot = Duration::from_millis(policy.netboot_timeout_ms);
    Stage {
        timeout: within(netboot, FailureClass::PxeDiscoveryFailure, "never_asked_for_boot_script"),
        resume_at: Some(StageName::PowerOff),
        ..stage(StageName::WaitForNetworkBoot)
    }
}

/// An out-of-band look at a node that went down: it changes nothing, and its result is shown.
pub fn bmc_investigation() -> Flow {
    let stages = vec![Stage {
        reentry: Reentry::Pure,
        backoff: MACHINE_BACKOFF,
        timeout: within(s(600), FailureClass::BmcPowerFailure, "bmc_silent"),
        ..stage(StageName::CheckOutOfBand)
    }];
    Flow { name: FlowName::BmcInvestigation, version: 1, stages, back_edge: None, limit: None }
}

/// Longest erasure of all drives of a machine, one after the other: one of many terabytes that is overwritten takes most of
/// a day.
const ERASE: Duration = s(7 * 86_400);

/// A BMC erases drives of a machine on which nothing runs. Whatever fails asks an operator: nothing is erased that was not
/// seen to be idle, and what a drive refused a person looks at.
pub fn secure_erase() -> Flow {
    let find = Stage { failing: Failing::ForOperator, ..stage(StageName::FindDrives) };
    let off = Stage {
        backoff: MACHINE_BACKOFF,
        timeout: Timeout { windows: 2, ..within(POWER, FailureClass::BmcPowerFailure, "not_seen_idle") },
        failing: Failing::ForOperator,
        decisions: &[DecisionKind::OsGone],
        ..stage(StageName::SwitchOff)
    };
    let erase = Stage {
        backoff: MACHINE_BACKOFF,
        timeout: within(ERASE, FailureClass::BmcPowerFailure, "erase_timeout"),
        failing: Failing::ForOperator,
        resume_at: Some(StageName::SwitchOff),
        decisions: &[DecisionKind::OsGone],
        // What a BMC began goes on without its job: nothing else has the machine before it is over.
        undo: undo(UndoKind::AwaitErasure, ERASE, None),
        ..stage(StageName::EraseDrives)
    };
    Flow { name: FlowName::SecureErase, version: 1, stages: vec![find, off, erase], back_edge: None, limit: None }
}

fn end_of_identity() -> [Stage; 2] {
    // The secrets go before the record, so that `deleted` never stands beside anything but `completed`. spec: S2 5.3
    [
        // S5 5.8: the removal may complete with a follow-up.
        Stage { failing: Failing::Continues, ..stage(StageName::CleanupSecrets) },
        Stage { node_after: Some(Status::Deleted), ..stage(StageName::RemoveGpuaasNodeRecord) },
    ]
}
